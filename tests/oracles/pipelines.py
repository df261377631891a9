"""Pipelines by enumeration and by unrolling: slow, plain, and without a line of what they are held against."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from solvers.pipelining.chain import Chain


class Stage(NamedTuple):
    """A stage of layers i to j - 1, or the transfer between two."""

    forward: int
    backward: int
    weights: int
    activation: int
    entering: int
    leaving: int
    link: bool

    @property
    def ticks(self) -> int:
        return self.forward + self.backward


def twelve() -> Chain:
    """A chain of 12 layers with large activations first, large weights last."""
    rows = [
        (4, 8, 1, 16), (6, 12, 1, 16), (5, 9, 2, 8), (7, 13, 2, 8), (3, 6, 4, 8), (8, 15, 4, 4), (8, 15, 4, 4),
        (4, 8, 8, 4), (6, 11, 8, 2), (6, 11, 8, 2), (3, 5, 32, 1), (2, 3, 16, 1),
    ]  # fmt: skip
    forward, backward, weights, activation = zip(*rows, strict=True)
    return Chain(
        forward=np.array(forward), backward=np.array(backward), weights=np.array(weights),
        activation=np.array(activation), output=np.array([0, *activation]),
        transfers=np.array([8, 8, 4, 4, 4, 2, 2, 2, 1, 1, 0]),
    )  # fmt: skip


def small_chain(rng: np.random.Generator, layers: int, ticks: int = 6, size: int = 6) -> Chain:
    """A random chain of small whole numbers, zeros among them."""
    return Chain(
        forward=rng.integers(0, ticks, layers),
        backward=rng.integers(0, ticks, layers) + 1,
        weights=rng.integers(0, size, layers),
        activation=rng.integers(0, size, layers),
        output=rng.integers(0, size, layers + 1),
        transfers=rng.integers(0, ticks, layers - 1),
    )


def chain_with_idle_layers(seed: int) -> tuple[Chain, int, int]:
    """A random chain of up to 3 layers, of which half take no ticks; devices, and bytes of each."""
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(1, 4))
    ticks = np.zeros((2, layers), dtype=np.int64)
    while not ticks.any():
        ticks = rng.integers(0, 4, (2, layers)) * (rng.random(layers) < 0.5)
    chain = Chain(
        forward=ticks[0], backward=ticks[1], weights=rng.integers(0, 5, layers), activation=rng.integers(0, 5, layers),
        output=rng.integers(0, 5, layers + 1), transfers=rng.integers(0, 3, layers - 1) // 2 * 2,
    )  # fmt: skip
    return chain, int(rng.integers(1, 5)), int(rng.integers(0, 14))


def stages_of(chain: Chain, first: Sequence[int]) -> list[Stage]:
    """Stages and transfers in the chain's order; a transfer's forward half is the shorter."""
    found = []
    for i, j in pairwise(first):
        if i:
            ticks = int(chain.transfers[i - 1])
            found.append(Stage(ticks // 2, ticks - ticks // 2, 0, 0, 0, 0, True))
        columns = (chain.forward, chain.backward, chain.weights, chain.activation)
        sums = [int(column[i:j].sum()) for column in columns]
        found.append(Stage(*sums, int(chain.output[i]), int(chain.output[j]), False))
    return found


def groups(stages: Sequence[Stage], period: int) -> list[int] | None:
    """The group of each by the paper's phase 1; None where one takes more than the period."""
    found, group, load = [], 1, 0
    for stage in reversed(stages):
        if stage.ticks > period:
            return None
        if load + stage.ticks > period:
            group, load = group + 1, 0
        load += stage.ticks
        found.append(group)
    return found[::-1]


def held(stages: Sequence[Stage], at: int, group: Sequence[int], ratio: tuple[int, int], paper: bool) -> int:
    """Bytes of a stage, as the two rules say, from the groups of all stages and transfers."""
    stage = stages[at]
    in_flight, entered = (-(-group[here] * ratio[0] // ratio[1]) for here in (at, max(at - 1, 0)))
    found = stage.weights + in_flight * stage.activation
    if not paper:
        moved = at > 0 and stages[at - 1].ticks > 0
        found += (entered if moved else in_flight) * stage.entering + 2 * moved * stage.entering
        found += 2 * stage.leaving * (at < len(stages) - 1)
    return found


def every_cut(layers: int, devices: int) -> Iterator[list[int]]:
    """Every way to cut layers into at most so many stages."""
    for cuts in range(min(layers, devices)):
        for inner in combinations(range(1, layers), cuts):
            yield [0, *inner, layers]


def least_of_cuts(
    chain: Chain, first: Sequence[int], memory: int, ratio: tuple[int, int], paper: bool
) -> Fraction | None:
    """The least n T / k of fixed cuts: the first T of 0, 1, 2, ... that fits; None where not even one group does."""
    stages = stages_of(chain, first)
    kept, of = ratio
    for period in range(sum(stage.ticks for stage in stages) + 1):
        group = groups(stages, period)
        if group is not None and all(
            stage.link or held(stages, at, group, ratio, paper) <= memory for at, stage in enumerate(stages)
        ):
            return Fraction(period * of, kept)
    return None


class Peak(NamedTuple):
    """What a stage holds at most while 1F1B* runs for ever."""

    in_flight: int
    bytes: int


def peaks(stages: Sequence[Stage], period: int, ratio: tuple[int, int]) -> list[Peak]:
    """Of each stage, counted on 1F1B*(period) laid out batch by batch, of which k of n are kept.

    An activation is held from the start of the forward to the end of the backward half, what enters from the start of
    its transfer to the end of the backward half, a gradient from the start of what writes it to the end of its reader;
    where a link takes no time it is written where it is read.
    """
    group = groups(stages, period)
    assert group is not None
    start = np.cumsum([0] + [s.forward for s in stages]).tolist()
    back = [0] * len(stages)
    for g in range(1, group[0] + 1):
        members = [at for at in range(len(stages)) if group[at] == g]
        now = start[members[-1] + 1]
        for at in reversed(members):
            back[at], now = now, now + stages[at].backward
    batches = [
        b for b in range(6 * ratio[1] + 6 * group[0]) if (b + 1) * ratio[0] // ratio[1] > b * ratio[0] // ratio[1]
    ]

    def ahead(at: int, batch: int) -> int:
        return start[at] + (batch - (group[0] - 1)) * period

    def behind(at: int, batch: int) -> int:
        return back[at] + (batch - (group[0] - group[at])) * period

    return [_peak(stages, at, batches, ahead, behind) for at, stage in enumerate(stages) if not stage.link]


def _peak(stages, at, batches, ahead, behind) -> Peak:
    stage, lives, in_flight = stages[at], [], []
    for b in batches:
        end = behind(at, b) + stage.backward
        in_flight.append((ahead(at, b), end, 1))
        lives.append((ahead(at, b), end, stage.activation))
        lives.append((ahead(max(at - 1, 0), b), end, stage.entering))
        if at > 0 and stages[at - 1].ticks:
            lives.append((behind(at, b), behind(at - 1, b) + stages[at - 1].backward, stage.entering))
        if at < len(stages) - 1:
            writer = at + 1 if stages[at + 1].ticks else at + 2
            lives.append((behind(writer, b), end, stage.leaving))
    return Peak(_most(in_flight), stage.weights + _most(lives))


def _most(lives: Sequence[tuple[int, int, int]]) -> int:
    """The greatest sum at a time; what ends at a tick is gone before what starts then."""
    events = sorted([(a, 1, n) for a, _, n in lives] + [(b, 0, -n) for _, b, n in lives])
    found = now = 0
    for _, _, n in events:
        now += n
        found = max(found, now)
    return found
