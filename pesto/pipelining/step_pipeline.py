"""A training step pipelined: its chain, the named schedules laid over all its micro-batches, and the best as a plan.

For other runtimes it is also a list: the stage, devices and part of each op.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan, verify
from pesto.core.quantities import size
from pesto.core.settings import Settings
from pesto.core.step_parts import AFTER, BACKWARD, BEFORE, FORWARD
from pesto.pipelining.replicas import shared_step
from pesto.pipelining.schedules import (
    KEEPS,
    NAMES,
    REPLICATED,
    ChainSchedule,
    PipelineRequest,
    all_schedules,
    check_name,
    gather_schedules,
)
from pesto.pipelining.staged_step import MappedSchedule, StagedStep
from pesto.pipelining.step_search import SearchedStep, best_replicated, search_step
from pesto.planning.solving.candidates import Candidate, shortest_fitting
from pesto.planning.solving.interrupt import hold, release
from pesto.planning.solving.record import SolveRecord, make_plan
from solvers.arrays import Ints
from solvers.bounds import quick_bounds
from solvers.pipelining.chain import Machines
from solvers.pipelining.one_f_one_b_star import fitting_cuts
from solvers.pipelining.pipeline_bounds import PeriodBound, flushed_step
from solvers.pipelining.pipeline_bounds import best as greatest

STEP_NAMES = (*NAMES, REPLICATED)
"""Names of schedules that can be requested for a step."""
SEARCH_S = 5.0
"""Seconds of search where no schedule is named."""
_TIGHTER = 3
"""How often stages are cut for less memory than there is, where what was cut for all of it does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Options of `pipeline_step`."""

    name: str | None = None
    """The schedule that is taken, one of STEP_NAMES; None: the shortest that fits."""
    k: int = 0
    """Batches of a period of the exact schedule; 0: it is not looked for."""
    seconds: float = 20.0
    """That all searches by CP-SAT may take together."""
    search: float | None = None
    """Seconds of search op by op from the best schedules, or from the named one; None: SEARCH_S, of a named one 0."""
    contiguous: bool = False
    """True if each device has stages of its own, and FREE is not looked for."""

    def __post_init__(self) -> None:
        """UsageError for a schedule that there is not or that is left out, and for seconds below 0."""
        check_name(self.name, STEP_NAMES, k=self.k, contiguous=self.contiguous)
        if self.search is not None and not 0 <= self.search < float("inf"):
            raise UsageError.build(f"search for {self.search} s", remedy="give 0 or more seconds")

    @property
    def search_s(self) -> float:
        """Seconds of search."""
        return self.search if self.search is not None else SEARCH_S if self.name is None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPipeline:
    """Schedules of a training step in stages, the chosen one, and its plan."""

    staged: StagedStep
    request: PipelineRequest
    mapped: tuple[MappedSchedule, ...] = field(repr=False)
    """All schedules, in the order of STEP_NAMES; after Ctrl-C those that were laid out before."""
    chosen: MappedSchedule
    """The shortest step that fits, op by op, or the schedule that was asked for; what search made of it, if shorter."""
    plan: Plan = field(repr=False)
    """The chosen one, verified by the reference simulator."""
    chain_bound: PeriodBound
    """Lower bound on the chain's step through these stages, without updates; an op-by-op run may be shorter."""
    search: SearchedStep | None
    """Result of search, if it is shorter than all else."""
    interrupted: bool
    """True if Ctrl-C ended something; what was found before is kept."""

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The names of the devices that stages can be on, by their number in allocations."""
        return tuple(self.staged.cluster.devices[at].name for at in self.staged.fast.tolist())

    @property
    def bound_ticks(self) -> int:
        """Lower bound on the ticks of any plan of these ops on this cluster, in stages or not."""
        return self.plan.provenance.lower_bound_ticks

    @property
    def bubble(self) -> float:
        """Share of the accelerators' time in the step in which they run no op."""
        candidate = self.chosen.candidate
        if candidate is None:
            raise ValueError("a schedule that was chosen was laid out")
        run = candidate.timeline
        on = np.isin(run.problem.location[run.schedule.device], self.staged.fast)
        busy = int((run.schedule.finish - run.schedule.start)[on].sum())
        return 1 - busy / (len(self.accelerators) * candidate.makespan) if candidate.makespan else 0.0


def pipeline_step(
    graph: Graph, cluster: Cluster, *, batches: int | None, wish: PipelineOptions | None = None
) -> StepPipeline:
    """Return the step of so many micro-batches in stages, on modelled costs; the shortest that fits.

    batches: None for a step that loops over micro-batches itself, which is taken as it is, and else for BATCHES.
    Stages are cut for the memory as the chain counts it, and where that does not fit op by op, for less. UsageError for
    a cluster of one accelerator, or of different ones; InputError for a graph that is no training step; InfeasibleError
    where the variables cannot fit; NothingFoundError, with the bytes that lack, where no schedule fits. Ctrl-C keeps
    the best that was found; KeyboardInterrupt before there is any.
    """
    release()
    return _StepPipeliner(StagedStep.of(graph, cluster, batches), wish or PipelineOptions()).pipeline()


def plan_schedule(
    staged: StagedStep, options: PipelineOptions, chosen: MappedSchedule, *, interrupted: bool
) -> StepPipeline:
    """Return one schedule that was laid out, as the plan; NothingFoundError where it does not fit.

    interrupted: whether Ctrl-C ended a search for a better one.
    """
    hold()
    return replace(_StepPipeliner(staged, options).only(chosen), interrupted=interrupted)


class _StepPipeliner:
    def __init__(self, staged: StagedStep, options: PipelineOptions) -> None:
        self.staged, self.options = staged, options
        self.interrupted = False
        try:
            self.request = PipelineRequest(
                chain=staged.chain.chain, machines=Machines.alike(len(staged.fast), staged.memory),
                batches=staged.step.batches, k=options.k, seconds=options.seconds, contiguous=options.contiguous,
            ).begun()  # fmt: skip
        except ValueError as error:
            raise UsageError(str(error)) from error

    def pipeline(self) -> StepPipeline:
        """Return the best of all, or the one of that name, as a plan."""
        laid = self._map_all()
        hold()
        chosen, search = self._priced(self._choose(laid)), None
        if self.options.search_s and not self.interrupted:
            starts = laid if self.options.name is None else (chosen,)
            search = search_step(self.staged, starts, self.options.search_s)
            self.interrupted |= search is not None and search.interrupted
        shorter = self._priced(search.mapped) if search is not None else chosen
        if _ticks(shorter) < _ticks(chosen) and search is not None:
            laid = (*laid, shorter)
            return self._result(laid, shorter, replace(search, mapped=shorter))
        named = chosen.schedule.name
        return self._result(tuple(chosen if each.schedule.name == named else each for each in laid), chosen, None)

    def only(self, mapped: MappedSchedule) -> StepPipeline:
        """Return the pipeline of this schedule alone."""
        if mapped.candidate is not None and not mapped.fits:
            raise NothingFoundError(f"{mapped.schedule.name} does not fit: {self._lack(mapped.candidate)}")
        chosen = self._priced(mapped)
        return self._result((chosen,), chosen, None)

    def _map_all(self) -> tuple[MappedSchedule, ...]:
        """Every schedule laid out; what the chain has within the memory and does not fit op by op, again for less.

        After Ctrl-C no more than until one will do.
        """
        laid, self.interrupted = gather_schedules(self._all(self.request), self._enough)
        result, memory = {each.schedule.name: each for each in laid}, self.staged.memory
        for _ in range(_TIGHTER):
            over = [
                each.candidate.short
                for each in result.values()
                if each.candidate and (each.schedule.fits and not each.fits)
            ]
            if not over:
                break
            memory = max(0, memory - max(over))
            less = replace(self.request, machines=Machines.alike(self.request.devices, memory))
            tighter = chain(list(result.values()), self._named(less))
            laid, self.interrupted = gather_schedules(tighter, self._enough, interrupted=self.interrupted)
            for new in laid:
                if new.fits and not result[new.schedule.name].fits:
                    result[new.schedule.name] = new
        return tuple(result.values())

    def _enough(self, mapped: MappedSchedule) -> bool:
        """Return True if it may be the plan: it fits, and it is what was asked for."""
        return mapped.fits and self.options.name in (None, mapped.schedule.name)

    def _all(self, request: PipelineRequest) -> Iterator[MappedSchedule]:
        yield from self._named(request)
        if self.options.contiguous:
            yield MappedSchedule(schedule=ChainSchedule(name=REPLICATED, why="not looked for"))
        elif self.options.name in (None, REPLICATED):
            yield best_replicated(self.staged)

    def _named(self, request: PipelineRequest) -> Iterator[MappedSchedule]:
        cuts, thin = fitting_cuts(request.chain, request.machines, request.model, KEEPS)
        for schedule in all_schedules(request, cuts, thin):
            yield self.staged.map_schedule(schedule)

    def _priced(self, mapped: MappedSchedule) -> MappedSchedule:
        if mapped.candidate is None:
            if mapped.schedule.interrupted:
                raise KeyboardInterrupt
            raise NothingFoundError(f"{mapped.schedule.name}: {mapped.schedule.why}")
        return replace(mapped, candidate=self.staged.bench.priced(mapped.candidate))

    def _result(
        self, mapped_schedules: tuple[MappedSchedule, ...], chosen: MappedSchedule, search: SearchedStep | None
    ) -> StepPipeline:
        staged, candidate = self.staged, chosen.candidate
        schedule, request = chosen.schedule, self.request
        if candidate is None or (schedule.shared is None and schedule.allocation is None):
            raise ValueError("a schedule that was chosen has stages, and was laid out")
        if schedule.shared is not None:
            through = shared_step(request.chain, schedule.shared, request.batches)
        elif schedule.allocation is not None:
            through = greatest(flushed_step(request.chain, schedule.allocation, request.batches, split=True))
        record = SolveRecord(
            graph=staged.step.graph, cluster=staged.cluster, costs=staged.costs, settings=Settings(),
            bound=quick_bounds.best(staged.problem), exact=None,
        )  # fmt: skip
        # A plan says that none of its candidates is shorter, which one that was asked for need not be.
        rivals = mapped_schedules if self.options.name is None else (chosen,)
        plan = make_plan(record, candidate, {each.candidate.name: each.candidate for each in rivals if each.candidate})
        verify(plan, staged.step.graph, staged.problem, staged.cluster)
        return StepPipeline(
            staged=staged, request=self.request, mapped=mapped_schedules, chosen=chosen, plan=plan, search=search,
            chain_bound=through, interrupted=self.interrupted,
        )  # fmt: skip

    def _choose(self, mapped_schedules: tuple[MappedSchedule, ...]) -> MappedSchedule:
        """Return the schedule that was asked for, or the shortest that fits; NothingFoundError where there is none."""
        name = self.options.name
        if name is not None:
            chosen = next((each for each in mapped_schedules if each.schedule.name == name), None)
            if chosen is None:
                raise KeyboardInterrupt
            if chosen.candidate is not None and not chosen.fits:
                raise NothingFoundError(f"{name} does not fit: {self._lack(chosen.candidate)}")
            return chosen
        tried = [each.candidate for each in mapped_schedules if each.candidate]
        quickest = shortest_fitting(tried)
        if quickest is not None:
            return next(each for each in mapped_schedules if each.candidate is quickest)
        if not tried:
            raise NothingFoundError.build(
                f"no stages fit the memory: {mapped_schedules[0].schedule.why}", remedy="use more or larger devices"
            )
        nearest = min(tried, key=lambda each: each.short)
        raise NothingFoundError(f"no schedule fits: {nearest.name} is the nearest, {self._lack(nearest)}")

    def _lack(self, candidate: Candidate) -> str:
        over: Ints = candidate.peak - self.staged.problem.capacity
        at = int(over.argmax())
        device = self.staged.cluster.devices[at]
        return (
            f"{device.name} lacks {size(int(over[at]))} - give devices of {int(candidate.peak[at])} bytes "
            f"({size(int(candidate.peak[at]))}), more of them, or a smaller batch"
        )


def _ticks(mapped: MappedSchedule) -> int:
    return mapped.candidate.makespan if mapped.candidate is not None else 0


_PARTS = {BEFORE: "once", FORWARD: "forward", BACKWARD: "backward", AFTER: "update"}


def step_stages(pipeline: StepPipeline) -> str:
    """Return CSV, a row an op of the step as it was given, in its order: op, part, layer, stage, devices.

    part: forward and backward are done for each micro-batch, once before and update after all of them. Stages are
    numbered as in the rank actions; an op that is in the group of a variable is in the stage where that is. devices,
    with a space between: of forward and backward ops all that do some of the batches, else the variable's.
    """
    rows, chain, parts = pipeline.chosen.schedule.rows, pipeline.staged.chain, pipeline.staged.parts.part
    first = np.unique(rows[:, 0])
    stage = np.searchsorted(first, chain.home, side="right") - 1
    shared = pipeline.chosen.schedule.shared
    takers = [" ".join(pipeline.accelerators[row[2]] for row in rows.tolist() if row[0] == begin) for begin in first]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("op", "part", "layer", "stage", "devices"))
    for op, name in enumerate(pipeline.staged.names):
        part, at = int(parts[op]), int(stage[op])
        once = shared is not None and part in (BEFORE, AFTER)
        home = pipeline.accelerators[int(shared.homes[chain.home[op]])] if once and shared is not None else takers[at]
        table.writerow((name, _PARTS[part], int(chain.home[op]), at, home))
    return text.getvalue()
