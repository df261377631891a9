"""Least periods of chains by enumeration: every start of every half of a layer, every allocation; plain, but compiled.

Without a line of what it is held against. Operations of a batch follow each other on one way through the chain, and
batches follow each other in each operation; so each next one begins less than a period after the one before has ended:
to wait for longer makes room for nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

import numba
import numpy as np

from solvers.pipelining.chain import Chain


class Way(NamedTuple):
    """What a batch passes, halves of layers and what is sent, and what it holds on the way."""

    ticks: np.ndarray
    """[n] of each step."""
    resource: np.ndarray
    """[n] devices, then links."""
    first: np.ndarray
    """[h] the step from whose start on a thing is held."""
    last: np.ndarray
    """[h] the step at whose end it is let go of."""
    device: np.ndarray
    """[h] where."""
    size: np.ndarray
    """[h] bytes."""


def way(chain: Chain, device: tuple[int, ...], paper: bool) -> Way:
    """The way of a batch on these devices; sends only where devices differ and they take time."""
    last, number = chain.layers - 1, {}
    crosses = [device[at] != device[at + 1] for at in range(last)]
    sent = [crosses[at] and chain.transfers[at] > 0 for at in range(last)]
    links = {frozenset(pair) for pair in pairwise(device) if pair[0] != pair[1]}
    link = {pair: max(device) + 1 + at for at, pair in enumerate(sorted(links, key=sorted))}
    steps = []

    def add(key, ticks, resource):
        number[key] = len(steps)
        steps.append((int(ticks), resource))

    for at in range(last + 1):
        add(("f", at), chain.forward[at], device[at])
        if at < last and sent[at]:
            add(("sf", at), chain.transfers[at] // 2, link[frozenset(device[at : at + 2])])
    for at in range(last, -1, -1):
        add(("b", at), chain.backward[at], device[at])
        if at and sent[at - 1]:
            total = chain.transfers[at - 1]
            add(("sb", at - 1), total - total // 2, link[frozenset(device[at - 1 : at + 1])])
    held = [(("f", at), ("b", at), device[at], chain.activation[at]) for at in range(last + 1)]
    if not paper:
        held.append((("f", 0), ("b", 0), device[0], chain.output[0]))
        for at in (at for at in range(last) if crosses[at]):
            size = chain.output[at + 1]
            held.append((("sf", at) if sent[at] else ("f", at + 1), ("b", at + 1), device[at + 1], size))
            held.append((("sb", at) if sent[at] else ("b", at + 1), ("b", at), device[at], size))
            if sent[at]:
                held.append((("b", at + 1), ("sb", at), device[at + 1], size))
    rows = [(number[first], number[end], where, int(size)) for first, end, where, size in held if size]
    things = np.array(rows or [(0, 0, 0, 0)], dtype=np.int64).T
    return Way(*np.array(steps, dtype=np.int64).T, *things)


def fits(chain: Chain, device: tuple[int, ...], period: int, k: int, memory: int | np.ndarray, paper: bool) -> bool:
    """Whether some schedule of k <= 2 batches every `period` ticks is within the memory, of all devices or each."""
    found, devices = way(chain, device, paper), max(device) + 1
    room = memory - np.bincount(device, weights=chain.weights, minlength=devices).astype(np.int64)
    busy = k * np.bincount(found.resource, weights=found.ticks)
    if busy.max() > period or room.min() < 0:
        return False
    taken = np.zeros((found.resource.max() + 1, period), dtype=np.bool_)
    starts = np.zeros((len(found.ticks), 2), dtype=np.int64)
    return bool(_placed(found, 0, k, period, starts, taken, room, paper))


@numba.njit
def _laid(taken, start, ticks, period, value):
    """Take or give back ticks of a resource; how many there were before one that is taken."""
    for at in range(ticks):
        if value and taken[(start + at) % period]:
            return at
        taken[(start + at) % period] = value
    return ticks


@numba.njit
def _full(way, at, k, period, starts, room, paper):
    """Whether what is held at least, with all steps up to `at` placed and the rest to follow at once, has no room.

    By the paper each thing as often as it is there at its most; else what is there at each tick of a period.
    """
    held = np.zeros((len(room), period), dtype=np.int64)
    alive = np.zeros(period, dtype=np.int64)
    for thing in range(len(way.first)):
        if way.first[thing] > at:
            continue
        alive[:] = 0
        until = min(at, way.last[thing])
        for batch in range(k):
            end = starts[until, batch] + way.ticks[until : way.last[thing] + 1].sum()
            for tick in range(starts[way.first[thing], batch], end):
                alive[tick % period] += 1
        if paper:
            alive[:] = alive.max()
        held[way.device[thing]] += way.size[thing] * alive
        if held[way.device[thing]].max() > room[way.device[thing]]:
            return True
    return False


@numba.njit
def _placed(way, at, k, period, starts, taken, room, paper):
    """Whether the steps from `at` on can be placed, for two batches from their two starts on."""
    if at == len(way.ticks):
        return True
    ticks, mine = way.ticks[at], taken[way.resource[at]]
    ready0 = starts[at - 1, 0] + way.ticks[at - 1] if at else 0
    ready1 = starts[at - 1, 1] + way.ticks[at - 1] if at else 0
    for begin in range(ready0, ready0 + (period if at else 1)):
        done = _laid(mine, begin, ticks, period, True)
        if done == ticks:
            starts[at, 0] = begin
            if k == 1:
                full = _full(way, at, k, period, starts, room, paper)
                if not full and _placed(way, at + 1, k, period, starts, taken, room, paper):
                    return True
            for other in range(max(begin, ready1), begin + period if k == 2 else 0):
                laid = _laid(mine, other, ticks, period, True)
                if laid == ticks:
                    starts[at, 1] = other
                    full = _full(way, at, k, period, starts, room, paper)
                    if not full and _placed(way, at + 1, k, period, starts, taken, room, paper):
                        return True
                _laid(mine, other, laid, period, False)
        _laid(mine, begin, done, period, False)
    return False


def least_ticks(chain: Chain, device: tuple[int, ...], k: int, memory: int, paper: bool) -> int | None:
    """The least period of k batches of one allocation; None: not even one batch at a time fits."""
    return _least(chain, [device], k, memory, paper)


def partitions(layers: int, devices: int) -> Iterator[tuple[int, ...]]:
    """Every allocation to equal devices once: each is first used after the one before it."""
    found = [()]
    for _ in range(layers):
        found = [(*begun, d) for begun in found for d in range(min(max(begun, default=-1) + 2, devices))]
    yield from found


def least_of_all(chain: Chain, devices: int, k: int, memory: int, paper: bool) -> int | None:
    """The least period of k batches of all allocations; None: no allocation fits."""
    return _least(chain, list(partitions(chain.layers, devices)), k, memory, paper)


def _least(chain: Chain, every: list[tuple[int, ...]], k: int, memory: int, paper: bool) -> int | None:
    """One batch after the other, without a gap, holds the least: what does not fit so does not fit at all."""
    longest = k * int(chain.loads.sum() + chain.transfers.sum())
    roomy = [device for device in every if one_fits(chain, device, memory, paper)]
    if not roomy:
        return None
    return next(
        period for period in range(1, longest + 1) if any(fits(chain, d, period, k, memory, paper) for d in roomy)
    )


def least_on(
    chain: Chain, speed: Sequence[Fraction], links: dict[tuple[int, int], Fraction], memory: Sequence[int], paper: bool
) -> int | None:
    """The least period of one batch of all allocations to unequal devices; None: no allocation fits.

    speed, memory: of each device; links: of each pair, lower first. A layer takes its ticks over the speed, rounded up.
    """

    def slower(ticks: int, at: Fraction) -> int:
        return next(n for n in range(1000 * int(ticks) + 1) if n * at >= ticks)

    def on(device: tuple[int, ...]) -> Chain:
        forward, backward = (
            [slower(ticks, speed[d]) for ticks, d in zip(half.tolist(), device, strict=True)]
            for half in (chain.forward, chain.backward)
        )
        pairs = [(min(pair), max(pair)) for pair in pairwise(device)]
        sent = [
            slower(t, links.get(pair, Fraction(1))) for t, pair in zip(chain.transfers.tolist(), pairs, strict=True)
        ]
        none = [0] * chain.layers
        return replace(chain, forward=forward, backward=backward, transfers=sent, weight_gradient=none)

    every = [(on(device), device, np.array(memory)[: max(device) + 1]) for device in _all(chain, len(speed))]
    roomy = [each for each in every if one_fits(*each, paper)]
    longest = max((int(slow.loads.sum() + slow.transfers.sum()) for slow, _, _ in roomy), default=0)
    return next(
        (n for n in range(1, longest + 1) if any(fits(slow, d, n, 1, room, paper) for slow, d, room in roomy)), None
    )


def _all(chain: Chain, devices: int) -> Iterator[tuple[int, ...]]:
    return product(range(devices), repeat=chain.layers)


def one_fits(chain: Chain, device: tuple[int, ...], memory: int | np.ndarray, paper: bool) -> bool:
    """Whether one batch by itself is within the memory."""
    found = way(chain, device, paper)
    room = memory - np.bincount(device, weights=chain.weights, minlength=max(device) + 1).astype(np.int64)
    ends = np.cumsum(found.ticks)
    starts = np.repeat((ends - found.ticks)[:, None], 2, axis=1)
    return room.min() >= 0 and not _full(found, len(ends) - 1, 1, int(ends[-1]), starts, room, paper)
