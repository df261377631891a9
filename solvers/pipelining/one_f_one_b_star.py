"""1F1B*: for a fixed contiguous allocation the 1-periodic schedule that has least batches in flight on every stage.

Beaumont, Eyraud-Dubois, Shilova (Euro-Par 2021), section 5.1, Algorithm 1 and Theorem 3; mended: an operation goes to
the next period at or after T, as often as it must. Cuts between devices count as stages that hold nothing.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import (
    BACKWARD,
    FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    Allocation,
    Chain,
    MemoryModel,
    Pattern,
    pattern_from_starts,
)
from solvers.pipelining.pattern_check import check


class Stages(NamedTuple):
    """The n stages of an allocation and the transfers between them, in the order in which a batch meets them."""

    forward: Ints
    """[n] ticks of each forward half."""
    backward: Ints
    """[n] ticks of each backward half."""
    first: Ints
    """[n] first layer; of a transfer, the layer before its cut."""
    last: Ints
    """[n] last layer; of a transfer, the layer before its cut."""
    transfer: Ints
    """[n] 1 for a transfer, 0 for a stage."""


class LeastPeriod(NamedTuple):
    """The least period that fits, as a pattern, and how it was made."""

    pattern: Pattern
    T: int
    """Ticks of the 1-periodic schedule that was thinned."""
    keep: tuple[int, int]
    """(k, n): of every n of its batches, k are kept; (1, 1) for all."""

    @property
    def period(self) -> Fraction:
        """Ticks a batch."""
        return self.pattern.period


def stages_of(chain: Chain, allocation: Allocation) -> Stages:
    """Return stages and transfers of a contiguous allocation; ValueError for any other."""
    if not allocation.contiguous:
        raise ValueError("1F1B* needs a contiguous allocation: one run of layers on each device")
    rows: list[tuple[int, int, int, int, int]] = []
    for first, last, _ in allocation.stages.tolist():
        layers = slice(first, last + 1)
        rows.append((int(chain.forward[layers].sum()), int(chain.backward[layers].sum()), first, last, 0))
        if last + 1 < chain.layers and chain.transfers[last]:
            total = int(chain.transfers[last])
            rows.append((total // 2, total - total // 2, last, last, 1))
    return Stages(*(ints(column) for column in zip(*rows, strict=True)))


def groups(stages: Stages, T: int) -> Ints:  # noqa: N803 - the paper's name
    """Return [n] group of each stage and transfer, 1 for the last: runs of at most T ticks, packed from the last stage.

    A stage's group is the number of batches that are in flight there. ValueError where one alone takes more than T.
    """
    result = np.ones(len(stages.forward), dtype=np.int64)
    group = load = 0
    for at, ticks in reversed(list(enumerate((stages.forward + stages.backward).tolist()))):
        if ticks > T:
            raise ValueError(f"a stage takes {ticks} ticks a batch - give a period of at least that, not {T}")
        group, load = (group, load + ticks) if group and load + ticks <= T else (group + 1, ticks)
        result[at] = group
    return ints(result)


def one_f_one_b_star(chain: Chain, allocation: Allocation, T: int) -> Pattern:  # noqa: N803 - the paper's name
    """Return the pattern of period T on a contiguous allocation; ValueError where a stage or transfer takes more."""
    return pattern_from_starts(allocation, 1, T, _rows(chain, allocation, T))


def thinned(chain: Chain, allocation: Allocation, T: int, keep: tuple[int, int]) -> Pattern:  # noqa: N803
    """Return the pattern that does k of every n batches of 1F1B*(T), evenly spread, for keep = (k, n) with 1 <= k <= n.

    Its period is nT/k, and a stage of group g has ceil(g k/n) batches in flight (Theorem 4, for every k and n).
    ValueError as for `one_f_one_b_star`.
    """
    k, n = keep
    if not 1 <= k <= n:
        raise ValueError(f"keep is {k} of {n} - give k of n with 1 <= k <= n")
    rows = _rows(chain, allocation, T)
    each = np.tile(rows, (k, 1))
    copy = np.repeat(np.arange(k), len(rows))
    each[:, 2], each[:, 3] = copy, each[:, 3] + T * (copy * n // k)
    return pattern_from_starts(allocation, k, n * T, ints(each))


def candidate_periods(stages: Stages) -> list[int]:
    """Return the periods of interest, ascending: sums of consecutive stages (Theorem 3: a group changes at these)."""
    loads = stages.forward + stages.backward
    sums = {int(s) for at in range(len(loads)) for s in np.cumsum(loads[at:])}
    return sorted(s for s in sums if s >= max(1, int(loads.max())))


def least_period(
    chain: Chain, allocation: Allocation, memory: int | Ints | None, model: MemoryModel = MemoryModel.RECEIVED,
    keeps: tuple[tuple[int, int], ...] = ((1, 1),),
) -> LeastPeriod | None:  # fmt: skip
    """Return the least period of 1F1B* on a contiguous allocation within memory, thinned by one of `keeps`, or None.

    In the paper's model this is the least period of all 1-periodic schedules for keeps = ((1, 1),). In the other, it is
    the least candidate period whose pattern fits. ValueError as for `one_f_one_b_star`.
    """
    stages = stages_of(chain, allocation)
    best: LeastPeriod | None = None
    for keep in keeps:
        for period in candidate_periods(stages):
            if best is not None and Fraction(period * keep[1], keep[0]) >= best.period:
                break
            pattern = thinned(chain, allocation, period, keep)
            if check(chain, allocation, pattern, memory, model).valid:
                best = LeastPeriod(pattern, period, keep)
                break
    return best


def _rows(chain: Chain, allocation: Allocation, T: int) -> Ints:  # noqa: N803
    """Return [r, 4] kind, layer, batch and start of every operation of batch 0, for `pattern_from_starts`."""
    stages = stages_of(chain, allocation)
    group = groups(stages, T)
    rows: list[tuple[int, int, int, int]] = []
    # All forward halves follow each other at once.
    at = 0
    ended = dict[int, int]()
    for stage in range(len(group)):
        at = _lay(rows, chain, stages, stage, at)
        ended[int(group[stage])] = at
    # A group's backward halves follow its last forward half, from its last stage to its first, group - 1 periods later:
    # in the pattern, at once.
    for number in sorted(ended):
        at = ended[number] + (number - 1) * T
        for stage in reversed(np.flatnonzero(group == number).tolist()):
            at = _lay(rows, chain, stages, stage, at, back=True)
    return ints(rows)


def _lay(
    rows: list[tuple[int, int, int, int]], chain: Chain, stages: Stages, stage: int, at: int, *, back: bool = False
) -> int:
    """Append one stage's halves of layers, one after the other from tick `at` on; the tick at which they end."""
    if stages.transfer[stage]:
        rows.append((SEND_BACKWARD if back else SEND_FORWARD, int(stages.first[stage]), 0, at))
        return at + int((stages.backward if back else stages.forward)[stage])
    layers = range(int(stages.first[stage]), int(stages.last[stage]) + 1)
    for layer in reversed(layers) if back else layers:
        rows.append((BACKWARD if back else FORWARD, layer, 0, at))
        at += int((chain.backward if back else chain.forward)[layer])
    return at
