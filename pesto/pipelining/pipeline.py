"""A chain laid on devices: stages and schedule of the least period that fits, and what is proven of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np

from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, UsageError
from pesto.core.quantities import counted, size
from pesto.pipelining.schedules import (
    FREE,
    KEEPS,
    NAMES,
    NO_CONTIGUOUS,
    NO_STAGES,
    NONE_FOUND,
    STAR,
    THINNED,
    ChainSchedule,
    PipelineRequest,
    all_schedules,
    check_name,
    gather_schedules,
    without_memory,
)
from pesto.planning.solving.interrupt import hold, release
from solvers.pipelining.anywhere.min_memory import roomy_memory
from solvers.pipelining.chain import WEIGHT_GRADIENT, Allocation
from solvers.pipelining.contiguous import Cuts
from solvers.pipelining.one_f_one_b_star import least_period
from solvers.pipelining.pipeline_bounds import PeriodBound, best, flushed_step, of_allocation
from solvers.pipelining.unequal.device_orders import order_bound
from solvers.pipelining.unequal.fitting_cuts import bytes_short, fitting_both
from solvers.pipelining.unequal.unequal_bounds import of_machines

ALL, OF_SO_MANY, THESE_STAGES, WHOLE_HALVES, PERIODIC = (
    "all schedules of all stages, contiguous or not",
    "all schedules of {} a period, of all stages, contiguous or not",
    "all schedules of these stages",
    "schedules of these stages that do each half of a stage at once",
    "1F1B* on contiguous stages",
)
"""What a period can be the least of."""
COUNTED = 1 << 62
"""Ticks that fit 64 bits, with room to add two."""
AT_ONCE = "in flight"
"""The bound of a fixed allocation that is of schedules that do each half of a stage at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """What was found of a chain."""

    asked: PipelineRequest
    chosen: ChainSchedule
    """The least period that fits, or the schedule that was asked for."""
    schedules: tuple[ChainSchedule, ...] = field(repr=False)
    """All that there are, in the order of NAMES; after Ctrl-C those that were found before."""
    bound: PeriodBound
    """What no schedule of any stages is below."""
    stage_bound: PeriodBound
    """What no schedule of the chosen stages is below; where its name is AT_ONCE, that does each half at once."""
    step_bound: PeriodBound
    """What no step of so many micro-batches through the chosen stages is below."""
    optimal_among: str | None
    """Among which schedules the period is proven the least; None where that is not proven."""
    interrupted: bool
    """Whether Ctrl-C ended something; what was found before is kept."""

    @property
    def gap(self) -> float:
        """The chosen period over the bound, less 1."""
        return float((self.chosen.period or Fraction(0)) / self.bound.value) - 1 if self.bound.value else 0.0

    @property
    def bubble(self) -> float:
        """Share of the devices' time in a step in which they do nothing; idle devices count."""
        allocation, step = self.chosen.allocation, self.chosen.step or 0
        chain = self.asked.chain if allocation is None else self.asked.seen(allocation)
        work = int(chain.loads.sum()) * self.asked.batches
        return 1 - work / (self.asked.devices * step) if step else 0.0


def find_pipeline(asked: PipelineRequest, name: str | None = None) -> Pipeline:
    """The schedule of that name, else the one of least period that fits; of equal ones the first, as NAMES has them.

    UsageError as of `check_name`; InputError for a chain that takes no time, or more than can be counted over
    all batches; InfeasibleError, or NothingFoundError where that is not proven, with the
    least memory that some stages fit, where none fits.
    """
    release()
    check_name(name, NAMES, k=asked.k, contiguous=asked.contiguous)
    _countable(asked)
    asked = asked.begun()
    found, interrupted = gather_schedules(_made(asked), partial(_enough, name))
    hold()
    chosen = _chosen(asked, found, name)
    allocation = chosen.allocation
    if allocation is None or chosen.period is None:
        if chosen.interrupted:
            raise KeyboardInterrupt
        if chosen.why in (NO_CONTIGUOUS, NO_STAGES, NONE_FOUND):
            raise _unfit(replace(asked, contiguous=chosen.name != FREE), found)
        raise NothingFoundError(f"{chosen.name}: {chosen.why}")
    machines = asked.machines if chosen.fits else replace(asked.machines, memory=None)
    bound = best([*of_machines(asked.chain, machines, asked.model), *_floors(found, chosen)])
    seen = asked.seen(allocation)
    split = chosen.pattern is not None and bool((chosen.pattern.kind == WEIGHT_GRADIENT).any())
    return Pipeline(
        asked=asked,
        chosen=chosen,
        schedules=tuple(found),
        bound=bound,
        stage_bound=best(of_allocation(seen, allocation, machines.memory, asked.model)),
        step_bound=best(flushed_step(seen, allocation, asked.batches, split=split)),
        optimal_among=_optimal(asked, chosen, allocation, bound, [each.least for each in found]),
        interrupted=interrupted,
    )


def _made(asked: PipelineRequest) -> Iterator[ChainSchedule]:
    try:
        cuts, thin = fitting_both(asked.chain, asked.machines, asked.model, KEEPS)
    except ValueError as error:
        raise UsageError(str(error)) from error
    yield from all_schedules(asked, cuts, thin)


def _floors(found: list[ChainSchedule], chosen: ChainSchedule) -> list[PeriodBound]:
    """Bounds of all stages that were found beside schedules, which hold for the one that is chosen."""
    return [each.floor for each in found if each.floor is not None and chosen.fits]


def _enough(name: str | None, each: ChainSchedule) -> bool:
    """Whether it may be the one that is chosen."""
    return each.period is not None and (each.fits if name is None else each.name == name)


def _countable(asked: PipelineRequest) -> None:
    """InputError where ticks are none, or too many for 64 bits at the end of the step, or of a batch's way."""
    chain = asked.chain
    ticks = asked.machines.most_ticks(chain)
    if not chain.loads.any():
        raise InputError("no layer takes any ticks - give the times of the halves in a smaller unit")
    if ticks * 8 * (max(asked.batches, asked.k) + min(asked.devices, chain.layers) + 4) > COUNTED:
        raise InputError(f"{ticks} ticks a batch are more than can be counted here - give them in a larger unit")


def _chosen(asked: PipelineRequest, found: list[ChainSchedule], name: str | None) -> ChainSchedule:
    if name is not None:
        return next(each for each in found if each.name == name)
    fitting = [each for each in found if each.fits and each.period is not None]
    if not fitting:
        raise _unfit(asked, found)
    return min(fitting, key=lambda each: each.period or Fraction(0))


def _unfit(asked: PipelineRequest, found: list[ChainSchedule]) -> InfeasibleError | NothingFoundError:
    """With a memory that can, and whether the lack of it is proven."""
    kind, proven = "contiguous stages", order_bound(asked.chain, asked.machines, asked.model) is None
    if not asked.contiguous:
        kind, proven = "stages", any(each.infeasible for each in found)
    text = f"no {kind} {'' if proven else 'were found that '}{_lack(asked)}, or more devices"
    return InfeasibleError(text) if proven else NothingFoundError(text)


def _lack(asked: PipelineRequest) -> str:
    """The bytes that lack on the devices, at most where stages need not be contiguous, and those that would do."""
    memory, chain = asked.machines.memory, asked.chain
    if memory is None:
        raise ValueError("without a limit of memory all stages fit")
    if not asked.machines.equal:
        more = bytes_short(chain, asked.machines, asked.model)
        return f"fit the memory of these {asked.devices} devices - give each {more} bytes ({size(more)}) more"
    each = int(memory[0])
    least, most = each + bytes_short(chain, asked.machines, asked.model), ""
    if not asked.contiguous:
        least, most = min(least, roomy_memory(chain, asked.devices, asked.model)), " at most"
    return f"fit {each} bytes on each of {asked.devices} devices: {size(least - each)} lack{most} - give {least} bytes"


def describe_shortfall(found: Pipeline) -> str:
    """What lacks for the chosen schedule, which does not fit, and what would do."""
    memory, peaks = found.asked.machines.memory, found.chosen.peaks
    if memory is None or peaks is None:
        raise ValueError("without a limit of memory every schedule fits")
    short = int((peaks - memory).max())
    enough = f"{int(peaks.max())} bytes" if found.asked.machines.equal else f"each {short} bytes ({size(short)}) more"
    return f"{found.chosen.why}: {size(short)} lack - give {enough}, or take another schedule"


def _optimal(
    asked: PipelineRequest,
    chosen: ChainSchedule,
    allocation: Allocation,
    bound: PeriodBound,
    least: list[Fraction | None],
) -> str | None:
    """The widest among which a period is the least; None too where it does not fit."""
    if not chosen.fits or chosen.period is None:
        return None
    bounds = of_allocation(asked.seen(allocation), allocation, asked.machines.memory, asked.model)
    k = max(1, asked.k)
    reached = [(bound.value, ALL)]
    if chosen.periodic and chosen.pattern is not None and chosen.pattern.k == k:
        reached += [(each, OF_SO_MANY.format(counted(k, "batch", "batches"))) for each in least if each is not None]
    reached.append((best([bound for bound in bounds if bound.name != AT_ONCE]).value, THESE_STAGES))
    reached.append((best(bounds).value, WHOLE_HALVES))
    keeps = {STAR: ((1, 1),), THINNED: KEEPS}.get(chosen.name)
    lowest = order_bound(asked.chain, asked.machines, asked.model, keeps) if keeps else None
    if lowest is not None:
        reached.append((lowest, PERIODIC + (" and its thinnings" if chosen.name == THINNED else "")))
    return next((among for value, among in reached if value == chosen.period), None)


def period_curve(asked: PipelineRequest, points: int = 24) -> list[tuple[int, dict[str, Fraction | None]]]:
    """Bytes of a device, then the least period by way: fixed, joint, thinned, free, and the bound of all.

    None: none fits. From the least memory that some stages fit to where more memory is of no use, each device with as
    much. Fixed: stages cut without regard to memory, then 1F1B* on them. Free is looked for where stages need not be
    contiguous, at all points together for the time of searches; it is not longer than with less memory.
    """
    wide = without_memory(asked)
    low, high = bytes_short(asked.chain, _with(asked, 0).machines, asked.model), int(wide.bytes.max())
    if not asked.contiguous and asked.machines.equal:
        low = min(low, roomy_memory(asked.chain, asked.devices, asked.model))
    sizes = sorted(set(np.linspace(low, max(low, high), points).astype(np.int64).tolist()))
    quick, found = (
        replace(replace(asked, until=math.inf).begun(), k=0, seconds=asked.seconds / len(sizes)),
        list[tuple[int, dict[str, Fraction | None]]](),
    )
    for memory in sizes:
        with_less = found[-1][1][FREE] if found else None
        found.append((memory, _at(_with(quick, memory), wide, memory, with_less)))
    return found


def _with(asked: PipelineRequest, memory: int) -> PipelineRequest:
    """So many bytes for each device."""
    return replace(asked, machines=replace(asked.machines, memory=np.full(asked.devices, memory)))


def _at(asked: PipelineRequest, wide: Cuts, memory: int, with_less: Fraction | None) -> dict[str, Fraction | None]:
    """with_less: the period of FREE with less memory."""
    chain, model = asked.chain, asked.model
    fixed = least_period(asked.seen(wide.allocation), wide.allocation, memory, model)
    joint, thin = fitting_both(chain, asked.machines, model, KEEPS)
    # Stages that were cut without regard to memory are some of those that are cut for it.
    known = _least(*(None if each is None else each.period for each in (fixed, joint)))
    thinner = _least(known, None if thin is None else thin.period)
    bound = best(of_machines(chain, asked.machines, model)).value
    free = _least(thinner, with_less)
    if free != bound and not asked.contiguous:
        free = _least(free, _freely(asked, joint, thin))
    return {
        "fixed": None if fixed is None else fixed.period,
        "joint": known,
        THINNED: thinner,
        FREE: None if asked.contiguous else free,
        "bound": bound,
    }


def _freely(asked: PipelineRequest, joint: Cuts | None, thin: Cuts | None) -> Fraction | None:
    """The period of FREE; None where none is found, or none can be shorter than that of contiguous stages."""
    made = next(each for each in all_schedules(asked, joint, thin) if each.name == FREE)
    if made.interrupted:
        raise KeyboardInterrupt
    return made.period if made.fits else None


def _least(*periods: Fraction | None) -> Fraction | None:
    """Of those that are known."""
    return min((each for each in periods if each is not None), default=None)
