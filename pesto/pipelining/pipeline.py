"""A chain laid on devices: stages and schedule of the least period that fits, and what is proven of it."""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, UsageError
from pesto.core.quantities import plural, size
from pesto.pipelining.schedules import (
    FREE,
    KEEPS,
    NAMES,
    NO_CONTIGUOUS,
    NO_STAGES,
    NONE_FOUND,
    STAR,
    THINNED,
    ChainRequest,
    ChainSchedule,
    all_schedules,
    check_name,
    gather_schedules,
    without_memory,
)
from pesto.planning.solving.interrupt import hold, release
from solvers.pipelining.chain import WEIGHT_GRADIENT, Allocation
from solvers.pipelining.contiguous import Cuts, period_bound
from solvers.pipelining.one_f_one_b_star import bytes_short, fitting_cuts, least_period
from solvers.pipelining.pipeline_bounds import PeriodBound, best, flushed_step, of_allocation, of_machines
from solvers.pipelining.within_memory import roomy_memory

ALL, OF_SO_MANY, THESE_STAGES, WHOLE_HALVES, PERIODIC = (
    "all schedules of all stages, contiguous or not",
    "all schedules of {} a period, of all stages, contiguous or not",
    "all schedules of these stages",
    "schedules of these stages that do each half of a stage at once",
    "1F1B* on contiguous stages",
)
"""Sets of schedules among which a period can be the least."""
COUNTED = 1 << 62
"""Ticks that fit 64 bits, with room to add two."""
AT_ONCE = "in flight"
"""The bound of a fixed allocation that is of schedules that do each half of a stage at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """Schedules found for a chain, the chosen one, and bounds."""

    request: ChainRequest
    chosen: ChainSchedule
    """The least period that fits, or the schedule that was asked for."""
    schedules: tuple[ChainSchedule, ...] = field(repr=False)
    """All that there are, in the order of NAMES; after Ctrl-C those that were found before."""
    bound: PeriodBound
    """Lower bound on the period of any schedule on any stages."""
    stage_bound: PeriodBound
    """Lower bound on the period on the chosen stages; if named AT_ONCE, of schedules that do each half at once."""
    step_bound: PeriodBound
    """Lower bound on the ticks of a step of so many micro-batches through the chosen stages."""
    optimal_among: str | None
    """Among which schedules the period is proven the least; None where that is not proven."""
    interrupted: bool
    """True if Ctrl-C ended something; what was found before is kept."""

    @property
    def gap(self) -> float:
        """The chosen period over the bound, less 1."""
        return float((self.chosen.period or Fraction(0)) / self.bound.value) - 1 if self.bound.value else 0.0

    @property
    def bubble(self) -> float:
        """Share of the devices' time in a step in which they do nothing; idle devices count."""
        allocation, step = self.chosen.allocation, self.chosen.step or 0
        chain = self.request.chain if allocation is None else self.request.seen(allocation)
        work = int(chain.loads.sum()) * self.request.batches
        return 1 - work / (self.request.devices * step) if step else 0.0


def find_pipeline(request: ChainRequest, name: str | None = None) -> Pipeline:
    """Return the pipeline of the named schedule, or of the least period that fits; of equal ones the first of NAMES.

    UsageError as of `check_name`; InputError for a chain that takes no time, or more than can be counted over
    all batches; InfeasibleError, or NothingFoundError where that is not proven, with the
    least memory that some stages fit, where none fits.
    """
    release()
    check_name(name, NAMES, k=request.k, contiguous=request.contiguous)
    # InputError where ticks are none, or too many for 64 bits at the end of the step, or of a batch's way.
    chain = request.chain
    ticks = request.machines.most_ticks(chain)
    if not chain.loads.any():
        raise InputError.build("no layer takes any ticks", remedy="give the times of the halves in a smaller unit")
    if ticks * 8 * (max(request.batches, request.k) + min(request.devices, chain.layers) + 4) > COUNTED:
        raise InputError.build(
            f"{ticks} ticks a batch are more than can be counted here", remedy="give them in a larger unit"
        )
    request = request.begun()
    try:
        cuts, thin = fitting_cuts(chain, request.machines, request.model, KEEPS)
    except ValueError as error:
        raise UsageError.of(error) from error
    result, interrupted = gather_schedules(
        all_schedules(request, cuts, thin),
        lambda each: each.period is not None and (each.fits if name is None else each.name == name),
    )
    hold()
    if name is not None:
        chosen = next(each for each in result if each.name == name)
    else:
        fitting = [each for each in result if each.fits and each.period is not None]
        if not fitting:
            raise _unfit(request, result)
        chosen = min(fitting, key=lambda each: each.period or Fraction(0))
    allocation = chosen.allocation
    if allocation is None or chosen.period is None:
        if chosen.interrupted:
            raise KeyboardInterrupt
        if chosen.why in (NO_CONTIGUOUS, NO_STAGES, NONE_FOUND):
            raise _unfit(replace(request, contiguous=chosen.name != FREE), result)
        raise NothingFoundError.of(chosen.why, where=chosen.name)
    machines = request.machines if chosen.fits else replace(request.machines, memory=None)
    # Bounds of all stages that were found beside schedules hold for the one that is chosen.
    floors = [each.floor for each in result if each.floor is not None and chosen.fits]
    bound = best([*of_machines(chain, machines, request.model), *floors])
    seen = request.seen(allocation)
    split = chosen.pattern is not None and bool((chosen.pattern.kind == WEIGHT_GRADIENT).any())
    return Pipeline(
        request=request, chosen=chosen, schedules=tuple(result), bound=bound,
        stage_bound=best(of_allocation(seen, allocation, machines.memory, request.model)),
        step_bound=best(flushed_step(seen, allocation, request.batches, split=split)),
        optimal_among=_optimal(request, chosen, allocation, bound, [each.least for each in result]),
        interrupted=interrupted,
    )  # fmt: skip


def _unfit(request: ChainRequest, schedules: list[ChainSchedule]) -> InfeasibleError | NothingFoundError:
    """Return the error of stages that fit no memory: what they lack, what would do, and whether that is proven."""
    memory, chain = request.machines.memory, request.chain
    if memory is None:
        raise ValueError("without a limit of memory all stages fit")
    kind, proven = "contiguous stages", period_bound(chain, request.machines, request.model) is None
    if not request.contiguous:
        kind, proven = "stages", any(each.infeasible for each in schedules)
    short = bytes_short(chain, request.machines, request.model)
    if request.machines.equal:
        each = int(memory[0])
        least, most = each + short, ""
        if not request.contiguous:
            least, most = min(least, roomy_memory(chain, request.devices, request.model)), " at most"
        given = f"fit {each} bytes on each of {request.devices} devices"
        lack, remedy = f"{given}: {size(least - each)} lack{most}", f"give {least} bytes"
    else:
        lack = f"fit the memory of these {request.devices} devices"
        remedy = f"give each {short} bytes ({size(short)}) more"
    error = InfeasibleError if proven else NothingFoundError
    return error.build(f"no {kind} {'' if proven else 'were found that '}{lack}", remedy=f"{remedy}, or more devices")


def describe_shortfall(pipeline: Pipeline) -> tuple[str, str]:
    """Describe the memory that the chosen schedule exceeds, and, as a remedy, the memory that would suffice."""
    memory, peaks = pipeline.request.machines.memory, pipeline.chosen.peaks
    if memory is None or peaks is None:
        raise ValueError("without a limit of memory every schedule fits")
    short = int((peaks - memory).max())
    enough = (
        f"{int(peaks.max())} bytes" if pipeline.request.machines.equal else f"each {short} bytes ({size(short)}) more"
    )
    return f"{pipeline.chosen.why}: {size(short)} lack", f"give {enough}, or take another schedule"


def _optimal(
    request: ChainRequest, chosen: ChainSchedule, allocation: Allocation, bound: PeriodBound,
    least: list[Fraction | None],
) -> str | None:  # fmt: skip
    """Return the widest among which a period is the least; None too where it does not fit."""
    if not chosen.fits or chosen.period is None:
        return None
    bounds = of_allocation(request.seen(allocation), allocation, request.machines.memory, request.model)
    k = max(1, request.k)
    reached = [(bound.value, ALL)]
    if chosen.periodic and chosen.pattern is not None and chosen.pattern.k == k:
        reached += [(each, OF_SO_MANY.format(plural(k, "batch", "batches"))) for each in least if each is not None]
    reached.append((best([bound for bound in bounds if bound.name != AT_ONCE]).value, THESE_STAGES))
    reached.append((best(bounds).value, WHOLE_HALVES))
    keeps = {STAR: ((1, 1),), THINNED: KEEPS}.get(chosen.name)
    lowest = period_bound(request.chain, request.machines, request.model, keeps) if keeps else None
    if lowest is not None:
        reached.append((lowest, PERIODIC + (" and its thinnings" if chosen.name == THINNED else "")))
    return next((among for value, among in reached if value == chosen.period), None)


def period_curve(request: ChainRequest, points: int = 24) -> list[tuple[int, dict[str, Fraction | None]]]:
    """Return bytes of a device, then the least period by way: fixed, joint, thinned, free, and the bound of all.

    None: none fits. From the least memory that some stages fit to where more memory is of no use, each device with as
    much. Fixed: stages cut without regard to memory, then 1F1B* on them. Free is looked for where stages need not be
    contiguous, at all points together for the time of searches; it is not longer than with less memory.
    """
    wide = without_memory(request)
    low, high = bytes_short(request.chain, _with(request, 0).machines, request.model), int(wide.bytes.max())
    if not request.contiguous and request.machines.equal:
        low = min(low, roomy_memory(request.chain, request.devices, request.model))
    sizes = sorted(set(np.linspace(low, max(low, high), points).astype(np.int64).tolist()))
    quick, result = (
        replace(replace(request, until=math.inf).begun(), k=0, seconds=request.seconds / len(sizes)),
        list[tuple[int, dict[str, Fraction | None]]](),
    )
    for memory in sizes:
        with_less = result[-1][1][FREE] if result else None
        result.append((memory, _at(_with(quick, memory), wide, memory, with_less)))
    return result


def _with(request: ChainRequest, memory: int) -> ChainRequest:
    return replace(request, machines=replace(request.machines, memory=np.full(request.devices, memory)))


def _at(request: ChainRequest, wide: Cuts, memory: int, with_less: Fraction | None) -> dict[str, Fraction | None]:
    """with_less: the period of FREE with less memory."""
    chain, model = request.chain, request.model
    fixed = least_period(request.seen(wide.allocation), wide.allocation, memory, model)
    joint, thin = fitting_cuts(chain, request.machines, model, KEEPS)
    # Stages that were cut without regard to memory are some of those that are cut for it.
    known = _least(*(None if each is None else each.period for each in (fixed, joint)))
    thinner = _least(known, None if thin is None else thin.period)
    bound = best(of_machines(chain, request.machines, model)).value
    free = _least(thinner, with_less)
    if free != bound and not request.contiguous:
        # The period of FREE; None where none is found, or none can be shorter than that of contiguous stages.
        made = next(each for each in all_schedules(request, joint, thin) if each.name == FREE)
        if made.interrupted:
            raise KeyboardInterrupt
        freely = made.period if made.fits else None
        free = _least(free, freely)
    return {
        "fixed": None if fixed is None else fixed.period, "joint": known, THINNED: thinner,
        FREE: None if request.contiguous else free, "bound": bound,
    }  # fmt: skip


def _least(*periods: Fraction | None) -> Fraction | None:
    return min((each for each in periods if each is not None), default=None)
