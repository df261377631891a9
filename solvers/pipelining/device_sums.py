"""Contiguous stages of a chain, some devices with several of them, cut so that the busiest device has least to do.

Interleaved schedules and V shapes visit each device twice. Small chains are solved by branch and bound, others by local
search; a lower bound says how far from the least the answer can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import lcm

import numpy as np

from solvers.arrays import ints
from solvers.pipelining.chain import Allocation, Chain, Machines

MOST_STATES = 1 << 16
"""Partial cuts that branch and bound looks at before it gives up the proof."""
MOST_MOVES = 1 << 16
"""Moves of a cut that local search evaluates."""
_MOST_STAGES = 128
"""Upper limit of the stages for branch and bound, which recurses once per stage."""
_WINDOW = 16
"""Layers by which local search moves a cut at most."""


@dataclass(frozen=True, slots=True)
class DeviceCuts:
    """Stages of a chain, given by their numbers of layers, and the ticks a batch of the busiest device."""

    layers: tuple[int, ...]
    """[S] layers of each stage, at least one."""
    ticks: int
    """Ticks a batch of the busiest device."""
    bound: int
    """No cuts into as many stages on these devices have a busiest device with fewer ticks."""

    @property
    def optimal(self) -> bool:
        """True if the busiest device has the least ticks there can be."""
        return self.ticks == self.bound


def equal_shares(chain: Chain, machines: Machines, device: Sequence[int]) -> list[int]:
    """Return layers of each stage, of loads as near to equal shares, by speed, as cuts at these shares make them.

    device: [S] device of each stage. ValueError where there are fewer layers than stages.
    """
    stages, layers = len(device), chain.layers
    if layers < stages:
        raise ValueError(f"{stages} stages need {stages} layers")
    share = np.cumsum(chain.loads) / max(1, int(chain.loads.sum()))
    speed = np.array([float(machines.speed[d]) for d in device])
    until = np.arange(1, stages) / stages
    if len(set(speed.tolist())) > 1:
        until = (np.cumsum(speed) / speed.sum())[:-1]
    ends = np.searchsorted(share, until) + 1
    ends = np.minimum(np.maximum.accumulate(ends - np.arange(stages - 1)), layers - stages + 1) + np.arange(stages - 1)
    return np.diff([0, *ends.tolist(), layers]).tolist()


def least_device_sum(chain: Chain, machines: Machines, device: Sequence[int]) -> DeviceCuts:
    """Return the cuts for stages on these devices whose busiest device has the least ticks a batch, as far as is found.

    device: [S] device of each stage. `DeviceCuts.bound` is that number of ticks where it is proven the least. Always
    the same answer. ValueError where there are fewer layers than stages.
    """
    search = _BranchSearch(chain, machines, device)
    search.improve()
    search.prove()
    return DeviceCuts(
        layers=tuple(np.diff([0, *search.best, chain.layers]).tolist()), ticks=search.ticks, bound=search.bound
    )


class _BranchSearch:
    """The best ends of all stages but the last, and what is known of the least ticks."""

    def __init__(self, chain: Chain, machines: Machines, device: Sequence[int]) -> None:
        self.layers, self.device = chain.layers, list(device)
        self.stages = len(self.device)
        used = sorted(set(self.device))
        scale = lcm(*(machines.speed[d].denominator for d in used))
        self.speed = {d: int(machines.speed[d] * scale) for d in used}
        alone = {d: Allocation(device=ints([d] * self.layers), devices=machines.devices) for d in used}
        self.before = {d: np.append(0, np.cumsum(machines.on(chain, alone[d]).loads)).tolist() for d in used}
        """Device -> ticks there of all layers before each."""
        self.work = [scale * ticks for ticks in np.append(0, np.cumsum(chain.loads)).tolist()]
        """Ticks of all layers before each at a speed of 1 / scale."""
        self.best = np.cumsum(equal_shares(chain, machines, device))[:-1].tolist()
        self.ticks = max(self._sums(self.best).values())
        largest = max(min(b[at + 1] - b[at] for b in self.before.values()) for at in range(self.layers))
        self.bound = max(largest, -(-self.work[-1] // sum(self.speed.values())))
        self.later = [set(self.device[stage + 1 :]) for stage in range(self.stages)]
        """[S] devices that are visited again after each stage."""
        self.failed = set[tuple[int, ...]]()
        self.states = 0

    def _sums(self, ends: list[int]) -> dict[int, int]:
        sums = dict.fromkeys(self.before, 0)
        for d, (first, end) in zip(self.device, pairwise([0, *ends, self.layers]), strict=True):
            sums[d] += self.before[d][end] - self.before[d][first]
        return sums

    def improve(self) -> None:
        """Move one cut at a time while that helps, from equal shares and from the best with some cuts moved."""
        rng, left, ends = np.random.default_rng(0), MOST_MOVES, self.best
        while left > 0 and self.ticks > self.bound:
            left -= self.stages
            ends, moves = self._descend(ends, left)
            left -= moves
            ticks = max(self._sums(ends).values())
            if ticks < self.ticks:
                self.ticks, self.best = ticks, ends
            # On from the best cuts, each moved by up to three layers.
            moved, shift = [0], rng.integers(-3, 4, self.stages - 1).tolist()
            for stage, (end, by) in enumerate(zip(self.best, shift, strict=True)):
                moved.append(min(max(end + by, moved[-1] + 1), self.layers - self.stages + stage + 1))
            ends = moved[1:]

    def _descend(self, ends: list[int], most: int) -> tuple[list[int], int]:
        """Return cuts that no move of one improves, and how many moves were evaluated, about `most` at most."""
        ends, sums, moves = list(ends), self._sums(ends), 0
        while moves < most:
            now = (max(sums.values()), sum(ticks * ticks for ticks in sums.values()))
            best, taken = now, None
            for cut in range(self.stages - 1):
                here, there = self.device[cut], self.device[cut + 1]
                if here == there:
                    continue
                low, end, high = (ends[cut - 1] if cut else 0), ends[cut], [*ends, self.layers][cut + 1]
                for to in range(max(low + 1, end - _WINDOW), min(high - 1, end + _WINDOW) + 1):
                    moved = dict(sums)
                    moved[here] += self.before[here][to] - self.before[here][end]
                    moved[there] -= self.before[there][to] - self.before[there][end]
                    value = (max(moved.values()), sum(ticks * ticks for ticks in moved.values()))
                    moves += 1
                    if value < best:
                        best, taken = value, (cut, to, moved)
            if taken is None:
                break
            ends[taken[0]], sums = taken[1], taken[2]
        return ends, moves

    def prove(self) -> None:
        """Branch and bound for fewer ticks than the best; where it ends by itself, the best is the least."""
        if self.ticks > self.bound and self.stages <= _MOST_STAGES:
            self._extend([], dict.fromkeys(self.before, 0))
            if self.states < MOST_STATES:
                self.bound = self.ticks

    def _extend(self, ends: list[int], sums: dict[int, int]) -> None:
        """Look at all ends of the next stages behind these."""
        stage, first = len(ends), ends[-1] if ends else 0
        d, before = self.device[stage], self.before[self.device[stage]]
        if stage == self.stages - 1:
            total = sums[d] + before[self.layers] - before[first]
            if total < self.ticks:
                self.ticks, self.best = max(total, *sums.values()), ends
            return
        state = (stage, first, *(sums[e] for e in sorted(self.later[stage] | {d})))
        if state in self.failed:
            return
        # What fails for the best known ticks fails for fewer.
        self.failed.add(state)
        # Ends that the device has room for, the nearest to the best known first.
        last, most = self.layers - self.stages + stage + 1, first
        while most < last and sums[d] + before[most + 1] - before[first] < self.ticks:
            most += 1
        aim = self.best[stage]
        for end in sorted(range(first + 1, most + 1), key=lambda end: abs(end - aim)):
            self.states += 1
            if self.states >= MOST_STATES or self.ticks <= self.bound:
                return
            total = sums[d] + before[end] - before[first]
            room = sum(self.speed[e] * (self.ticks - 1 - (total if e == d else sums[e])) for e in self.later[stage])
            if total < self.ticks and self.work[-1] - self.work[end] <= room:
                self._extend([*ends, end], {**sums, d: total})
