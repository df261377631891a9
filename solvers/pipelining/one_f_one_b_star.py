"""1F1B*: for a fixed contiguous allocation the 1-periodic schedule that has least batches in flight on every stage.

Beaumont, Eyraud-Dubois, Shilova (Euro-Par 2021), section 5.1, Algorithm 1 and Theorem 3; mended: an operation goes to
the next period at or after T, as often as it must. Cuts between devices count as stages that hold nothing.

`best_cuts` charges stages with a rule that no schedule is above, and so may pass over stages that fit. `fitting_cuts`
cuts for more bytes than there are, and without limit, lays each out by 1F1B*, and keeps what the check lets pass.
"""

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel, Pattern, batch_rows, pattern_from_starts
from solvers.pipelining.contiguous import Cuts, Keeps, best_cuts, bytes_lacking, larger
from solvers.pipelining.pattern_check import check


class Stages(NamedTuple):
    """The n stages of an allocation and the transfers between them, in the order in which a batch meets them."""

    forward: Ints
    """[n] ticks of each forward half."""
    backward: Ints
    """[n] ticks of each backward half."""
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
    rows: list[tuple[int, int, int]] = []
    for first, last, _ in allocation.stages.tolist():
        layers = slice(first, last + 1)
        rows.append((int(chain.forward[layers].sum()), int(chain.backward[layers].sum()), 0))
        if last + 1 < chain.layers and chain.transfers[last]:
            total = int(chain.transfers[last])
            rows.append((total // 2, total - total // 2, 1))
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


def thinned(chain: Chain, allocation: Allocation, T: int, keep: tuple[int, int]) -> Pattern:  # noqa: N803
    """Return the pattern that does k of every n batches of 1F1B*(T), evenly spread, for keep = (k, n) with 1 <= k <= n.

    Its period is nT/k, and a stage of group g has ceil(g k/n) batches in flight (Theorem 4, for every k and n); of
    keep = (1, 1) it is 1F1B*(T) itself. ValueError where a stage or transfer takes more than T.
    """
    k, n = keep
    if not 1 <= k <= n:
        raise ValueError(f"keep is {k} of {n} - give k of n with 1 <= k <= n")
    stages = stages_of(chain, allocation)
    group = groups(stages, T)
    # All forward halves follow each other at once. A group's backward halves follow its last forward half, from its
    # last stage to its first, group - 1 periods later: in the pattern, at once.
    ended, done = np.cumsum(stages.forward), np.cumsum(stages.backward)
    last = np.searchsorted(-group, -group, side="right") - 1
    back = ended[last] + (group - 1) * T + done[last] - done
    rows = batch_rows(chain, allocation, ints(ended - stages.forward), ints(back))
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
    keeps: Keeps = ((1, 1),),
) -> LeastPeriod | None:  # fmt: skip
    """Return the least period of 1F1B* on a contiguous allocation within memory, thinned by one of `keeps`, or None.

    In the paper's model this is the least period of all 1-periodic schedules for keeps = ((1, 1),). In the other, it is
    the least candidate period whose pattern fits. ValueError as for `thinned`.
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


SLACKS = 8
"""Amounts of memory beyond what there is for which stages are cut."""
_GRADIENTS = 5
"""Multiple of the largest output by which the rule may exceed a stage's bytes."""


def fitting_cuts(chain: Chain, machines: Machines, model: MemoryModel, keeps: Keeps) -> tuple[Cuts | None, Cuts | None]:
    """Return the stages of least period that are found, of 1F1B* and of these thinnings, by what a schedule holds.

    None: none fits. Never above `best_cuts`, nor above what 1F1B* by bisection needs on stages cut without memory. In
    the paper's model, and without memory, those of `best_cuts`. ValueError as there.
    """
    by_rule = [(best_cuts(chain, machines, model, each), each) for each in (((1, 1),), keeps)]
    if machines.memory is None or model is MemoryModel.PAPER:
        return by_rule[0][0], by_rule[1][0]
    # Others are cut without limit, then for less and less memory than far above what there is, at steps that do not
    # depend on it, so that little is found for less memory alone.
    step, least = max(1, _GRADIENTS * int(chain.output.max()) // SLACKS), int(machines.memory.min())
    rooms = [replace(machines, memory=None), larger(machines, bytes_lacking(chain, machines))]
    rooms += [larger(machines, at * step - least % step) for at in range(SLACKS + 1, 0, -1)]
    others = [cuts for room in rooms if (cuts := best_cuts(chain, room, MemoryModel.RECEIVED)) is not None]
    result = list[Cuts | None]()
    for cuts, kept in by_rule:
        best, seen = cuts, dict[tuple[int, ...], _AllocationPeaks]()
        for other in others:
            key = tuple(other.allocation.device.tolist())
            if key not in seen and (best is None or other.period < best.period):
                seen[key] = _AllocationPeaks(chain, machines, other.allocation)
                best = seen[key].below(best, kept[:1])
        # Thinnings are laid out on few: on the stages that are best so far, and on those cut without memory.
        first = () if best is None else (tuple(best.allocation.device.tolist()),)
        for key in dict.fromkeys((*first, *list(seen)[:1])):
            if key not in seen:
                allocation = Allocation(device=ints(key), devices=machines.devices)
                seen[key] = _AllocationPeaks(chain, machines, allocation)
            best = seen[key].below(best, kept)
        result.append(best)
    return result[0], result[1]


def bytes_short(chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED) -> int:
    """Return how many bytes more each device would need for stages that `fitting_cuts` finds, one batch in flight."""
    more = bytes_lacking(chain, machines, model)
    if model is MemoryModel.PAPER or machines.memory is None:
        return more
    cuts = best_cuts(chain, larger(machines, more), model)
    if cuts is None:
        raise RuntimeError("with the bytes that lack there are stages")
    seen = machines.on(chain, cuts.allocation)
    longest = candidate_periods(stages_of(seen, cuts.allocation))[-1]
    held = check(seen, cuts.allocation, thinned(seen, cuts.allocation, longest, (1, 1)), None, model).peaks
    return min(more, max(0, int((held - machines.memory).max())))


class _AllocationPeaks:
    """One allocation, and which periods fit."""

    def __init__(self, chain: Chain, machines: Machines, allocation: Allocation) -> None:
        self.chain, self.memory, self.allocation = machines.on(chain, allocation), machines.memory, allocation
        self.stages = stages_of(self.chain, allocation)
        self.periods = candidate_periods(self.stages)

    def below(self, best: Cuts | None, keeps: Keeps) -> Cuts | None:
        """Return the least period below the best, by bisection as if whatever is longer fitted too; or the best."""
        for keep in keeps:
            stretch = Fraction(keep[1], keep[0])
            high = len([T for T in self.periods if best is None or T * stretch < best.period]) - 1
            result = self._fitting(high, keep) if high >= 0 else None
            low = 0
            while result is not None and low < high:
                middle = (low + high) // 2
                tried = self._fitting(middle, keep)
                low, high = (middle + 1, high) if tried is None else (low, middle)
                result = tried or result
            best = result or best
        return best

    def _fitting(self, at: int, keep: tuple[int, int]) -> Cuts | None:
        """Return the stages with that period, if it fits."""
        T = self.periods[at]  # noqa: N806 - the paper's name
        pattern = thinned(self.chain, self.allocation, T, keep)
        checked = check(self.chain, self.allocation, pattern, self.memory, MemoryModel.RECEIVED)
        if not checked.valid:
            return None
        rows = self.allocation.stages
        return Cuts(
            first=ints(np.append(rows[:, 0], self.chain.layers)), devices=self.allocation.devices, T=T, keep=keep,
            group=groups(self.stages, T)[self.stages.transfer == 0], bytes=checked.peaks[rows[:, 2]], order=rows[:, 2],
        )  # fmt: skip
