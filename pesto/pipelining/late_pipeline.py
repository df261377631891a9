"""A training step pipelined without a flush: updates behind its batches, by gradients of weights that are late."""

from collections.abc import Callable
from dataclasses import replace

from pesto.core.cluster import Cluster
from pesto.core.errors import InputError, NothingFoundError, UsageError
from pesto.core.graph import Graph
from pesto.core.quantities import size
from pesto.pipelining.schedules import (
    CLOCK,
    EXACT,
    KEEPS,
    STAR,
    THINNED,
    ChainRequest,
    ChainSchedule,
    periodic_schedules,
)
from pesto.pipelining.staged_step import MappedSchedule, StagedStep, weight_staleness
from pesto.pipelining.step_pipeline import StepPipeline, plan_schedule
from pesto.planning.solving.interrupt import release
from solvers.pipelining.one_f_one_b_star import bytes_short, fitting_cuts

LATE_NAMES = (STAR, THINNED, EXACT)
"""The schedules that begin and end no step: 1F1B goes on in them."""
_TIGHTER = 6
"""How often stages are cut for less memory, where what was cut for all of it does not fit op by op."""

Trace = Callable[[tuple[int, ...]], Graph]
"""The step with updates behind its batches, with each variable read so much too late (`pesto.core.source.Cut.late`)."""


def pipeline_without_flush(
    trace: Trace, cluster: Cluster, name: str | None = None, *, k: int = 0, seconds: float = 20.0,
    contiguous: bool = False,
) -> StepPipeline:  # fmt: skip
    """Return the step in the periodic schedule of least period that fits, or the named one, on modelled costs.

    PipeDream's weight stashing (Narayanan et al., SOSP 2019, section 3.3): batch b is done, on a stage with NCA batches
    in flight, with the weights of NCA - 1 updates before those that it would have without a pipeline, in both halves.
    With an update behind several batches (PipeDream-2BW, Narayanan et al., ICML 2021, section 3.1) all are late by one,
    so that two versions do.
    The stages are found on a trace of which nothing is late; a second trace has what is late by them, and is the plan's
    step: its values are the same in whatever order it runs.
    k, seconds, contiguous: as of `StagedStep.request`. UsageError for a schedule that begins and ends empty, and for
    fewer batches than devices, or in an update than in flight; else as `pipeline_staged`.
    """
    if name is not None and name not in LATE_NAMES:
        raise UsageError.build(f"{name} is no schedule without a flush", remedy=f"give one of {', '.join(LATE_NAMES)}")
    release()
    staged = StagedStep.of(trace(()), cluster, None)
    if staged.step.batches < len(staged.fast):
        raise UsageError.build(
            f"{staged.step.batches} batches on {len(staged.fast)} devices never fill the pipeline",
            remedy="give as many micro-batches as devices, or more",
        )
    # The quickest by the chain that fits op by op; where that does not, stages are cut for less.
    until, memory = CLOCK() + seconds, staged.memory
    tried = list[tuple[int, StagedStep, MappedSchedule, bool]]()
    for _ in range(_TIGHTER):
        try:
            request = staged.request(k=k, seconds=seconds, contiguous=True, memory=max(0, memory), until=until)
            schedule, interrupted = _schedule(staged, request, name)
        except (NothingFoundError, UsageError):
            if not tried:
                raise
            break  # what was laid out says how much is needed
        if tried and _same(schedule, tried[-1][2].schedule):
            # Bytes of its fullest device, by the chain.
            if schedule.peaks is None:
                raise ValueError("a schedule that was chosen was measured")
            fullest = int(schedule.peaks.max())
            memory = min(memory, fullest - 1)
            continue
        # By how much each variable is late by a schedule.
        if schedule.in_flight is None:
            raise ValueError("a schedule that was chosen was measured")
        late = weight_staleness(staged.chain, staged.one, schedule.in_flight, staged.step.batches, staged.every)
        result = tried[-1][1] if tried and tried[-1][1].late == late else _traced(trace, staged, late)
        laid = result.map_schedule(schedule)
        if laid.candidate is None:
            raise ValueError("a schedule that was chosen has a run")
        tried.append((laid.candidate.short, result, laid, interrupted))
        if laid.fits:
            break
        memory -= laid.candidate.short
    _, result, laid, interrupted = min(tried, key=lambda each: each[0])
    request = result.request(k=k, seconds=seconds, contiguous=contiguous)
    return plan_schedule(result, request, name, laid, interrupted=interrupted)


def _schedule(staged: StagedStep, request: ChainRequest, name: str | None) -> tuple[ChainSchedule, bool]:
    """Return the chain's shortest schedule, or the named one, and whether Ctrl-C ended a search.

    NothingFoundError where none fits; UsageError where an update has several batches, but fewer than any schedule has
    in flight.
    """
    cuts, thin = fitting_cuts(request.chain, request.machines, request.model, KEEPS)
    made = [each for each in periodic_schedules(request, cuts, thin) if name in (None, each.name)]
    fitting = [each for each in made if each.fits and each.period is not None]
    interrupted = any(each.interrupted for each in made)
    if not fitting and interrupted:
        raise KeyboardInterrupt
    if not fitting:
        short = bytes_short(request.chain, request.machines, request.model)
        least = short + (request.machines.limits[0] or 0)
        more = f" (of {least} bytes, {size(least)}, or more)" if short else ""
        raise NothingFoundError.build(
            f"{made[0].why}, with a version of the weights for every batch in flight",
            where=made[0].name,
            remedy=f"use larger devices{more}, more of them, a smaller batch, or let the step flush",
        )

    def flight(each: ChainSchedule) -> int:
        return 0 if each.in_flight is None else min(int(each.in_flight.max()), staged.step.batches)

    # Where an update has several batches, no more than these may be in flight, so that two versions do.
    served = [each for each in fitting if staged.every == 1 or flight(each) <= staged.every]
    if not served:
        fewest = min(fitting, key=flight)
        other = f"or {STAR}, " if fewest.name == EXACT else ""
        raise UsageError.build(
            f"an update behind every {staged.every} micro-batches: {fewest.name} has {flight(fewest)} in flight, which "
            "two versions of the weights do not serve",
            remedy=(
                f"give {flight(fewest)} or more micro-batches an update, and "
                f"twice as many in all, {other}or fewer devices"
            ),
        )
    return min(served, key=lambda each: each.period or 0), interrupted


def _same(one: ChainSchedule, other: ChainSchedule) -> bool:
    if one.allocation is None or other.allocation is None or one.name != other.name:
        return False
    return one.period == other.period and bool((one.allocation.device == other.allocation.device).all())


def _traced(trace: Trace, staged: StagedStep, late: tuple[int, ...]) -> StagedStep:
    """Step with late weights on which a schedule is mapped."""
    result = StagedStep.of(trace(late), staged.cluster, None)
    if result.chain.chain.layers != staged.chain.chain.layers:
        raise InputError.build(
            "it is another step each time that it is traced",
            where=staged.step.graph.source,
            remedy="give one that does the same",
        )
    return replace(result, late=late)
