"""Contiguous stages in the memory model that also counts what is received, found by what a schedule holds.

`best_orders` charges stages with a rule that no schedule is above, and so may pass over stages that fit. Here stages
are cut for more bytes than there are, and without limit, and each is laid out by 1F1B* and checked against the bytes
that there are.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel
from solvers.pipelining.contiguous import Cuts
from solvers.pipelining.device_orders import Keeps, best_orders, bytes_lacking, larger
from solvers.pipelining.one_f_one_b_star import candidate_periods, groups, stages_of, thinned
from solvers.pipelining.pattern_check import check

SLACKS = 8
"""Amounts of memory beyond what there is for which stages are cut."""
_GRADIENTS = 5
"""Multiple of the largest output by which the rule may exceed a stage's bytes."""


def fitting_cuts(
    chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED, keeps: Keeps = ((1, 1),)
) -> Cuts | None:
    """Return the stages of least period that are found, by what a schedule holds of them; None: none fits.

    Never above `best_orders`, nor above what 1F1B* by bisection needs on stages cut without memory.

    In the paper's model, and without memory, that of `best_orders`. ValueError as there.
    """
    return _of_each(chain, machines, model, [keeps])[0]


def fitting_both(chain: Chain, machines: Machines, model: MemoryModel, keeps: Keeps) -> tuple[Cuts | None, Cuts | None]:
    """`fitting_cuts` of 1F1B*, and of these thinnings; the stages that are cut for other memory are cut once."""
    whole, thin = _of_each(chain, machines, model, [((1, 1),), keeps])
    return whole, thin


def _of_each(chain: Chain, machines: Machines, model: MemoryModel, ways: list[Keeps]) -> list[Cuts | None]:
    """Return for each of some keeps the least period on the stages found by the rule, and on others."""
    found = [best_orders(chain, machines, model, keeps) for keeps in ways]
    if machines.memory is None or model is MemoryModel.PAPER:
        return found
    # Others are cut without limit, then for less and less memory than far above what there is, at steps that do not
    # depend on it, so that little is found for less memory alone.
    step, least = max(1, _GRADIENTS * int(chain.output.max()) // SLACKS), int(machines.memory.min())
    rooms = [replace(machines, memory=None), larger(machines, bytes_lacking(chain, machines))]
    rooms += [larger(machines, at * step - least % step) for at in range(SLACKS + 1, 0, -1)]
    others = [cuts for room in rooms if (cuts := best_orders(chain, room, MemoryModel.RECEIVED)) is not None]
    result = list[Cuts | None]()
    for cuts, keeps in zip(found, ways, strict=True):
        best, seen = cuts, dict[tuple[int, ...], _AllocationPeaks]()
        for other in others:
            key = tuple(other.allocation.device.tolist())
            if key not in seen and (best is None or other.period < best.period):
                seen[key] = _AllocationPeaks(chain, machines, other.allocation)
                best = seen[key].below(best, keeps[:1])
        # Thinnings are laid out on few: on the stages that are best so far, and on those cut without memory.
        first = () if best is None else (tuple(best.allocation.device.tolist()),)
        for key in dict.fromkeys((*first, *list(seen)[:1])):
            if key not in seen:
                allocation = Allocation(device=ints(key), devices=machines.devices)
                seen[key] = _AllocationPeaks(chain, machines, allocation)
            best = seen[key].below(best, keeps)
        result.append(best)
    return result


def bytes_short(chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED) -> int:
    """Return how many bytes more each device would need for stages that `fitting_cuts` finds, one batch in flight."""
    more = bytes_lacking(chain, machines, model)
    if model is MemoryModel.PAPER or machines.memory is None:
        return more
    cuts = best_orders(chain, larger(machines, more), model)
    if cuts is None:
        raise RuntimeError("with the bytes that lack there are stages")
    on = _AllocationPeaks(chain, machines, cuts.allocation)
    return min(more, max(0, int((on.peaks(on.periods[-1]) - machines.memory).max())))


class _AllocationPeaks:
    """One allocation, and which periods fit."""

    def __init__(self, chain: Chain, machines: Machines, allocation: Allocation) -> None:
        self.chain, self.memory, self.allocation = machines.on(chain, allocation), machines.memory, allocation
        self.stages = stages_of(self.chain, allocation)
        self.periods = candidate_periods(self.stages)

    def peaks(self, T: int) -> Ints:  # noqa: N803 - the paper's name
        """Return bytes of each device by 1F1B*(T)."""
        pattern = thinned(self.chain, self.allocation, T, (1, 1))
        return check(self.chain, self.allocation, pattern, None, MemoryModel.RECEIVED).peaks

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
