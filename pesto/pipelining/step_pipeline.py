"""A training step pipelined: its chain, the named schedules laid over all its micro-batches, and the best as a plan.

Then steps shorter than the named schedules': devices that share a stage, and orders and homes searched op by op. For
other runtimes it is also a list: the stage, devices and part of each op.
"""

import csv
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain

import numpy as np

from pesto.core.errors import NothingFoundError
from pesto.core.plans.plan import Plan, verify
from pesto.core.quantities import size
from pesto.core.settings import Settings
from pesto.core.step_parts import AFTER, BACKWARD, BEFORE, FORWARD
from pesto.pipelining.replicas import Replicas, in_flight, replicated_runs
from pesto.pipelining.schedules import (
    KEEPS,
    NAMES,
    REPLICATED,
    ChainRequest,
    ChainSchedule,
    all_schedules,
    gather_schedules,
)
from pesto.pipelining.staged_step import MappedSchedule, StagedStep
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, shortest_fitting
from pesto.planning.solving.interrupt import hold, release
from pesto.planning.solving.tracker import SolveRecord, make_plan
from solvers.arrays import Ints, ints, rank_of
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound
from solvers.compiled.interruption import struck
from solvers.pipelining.chain import Chain, Machines
from solvers.pipelining.one_f_one_b_star import fitting_cuts
from solvers.pipelining.pipeline_bounds import PeriodBound, flushed_step
from solvers.pipelining.pipeline_bounds import best as greatest
from solvers.timing.replay import replay

STEP_NAMES = (*NAMES, REPLICATED)
"""Names of schedules that can be requested for a step."""
SEARCH_S = 5.0
"""Seconds of search where no schedule is named."""
_TIGHTER = 3
"""How often stages are cut for less memory than there is, where what was cut for all of it does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchedStep:
    """Result of a search: the best schedule, and the number of tries."""

    mapped: MappedSchedule
    """Its schedule is the one that it began from, with the homes that it found; never longer than the shortest."""
    begun: str
    """The name of that schedule."""
    tried: int
    """Orders and placements that were run, op by op."""
    interrupted: bool
    """True if Ctrl-C ended it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPipeline:
    """Schedules of a training step in stages, the chosen one, and its plan."""

    staged: StagedStep
    request: ChainRequest
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


def pipeline_staged(staged: StagedStep, request: ChainRequest, name: str | None, search_s: float) -> StepPipeline:
    """Return the step in stages, in the shortest schedule that fits or in the named one, as a plan.

    request: as of `staged.request`. search_s: seconds of search op by op from the best schedules, or the named one.
    Stages are cut for the memory as the chain counts it, and where that does not fit op by op, for less.
    NothingFoundError, with the bytes that lack, where no schedule fits. Ctrl-C keeps the best that was found;
    KeyboardInterrupt before there is any.
    """
    release()
    return _StepPipeliner(staged, request, name).pipeline(search_s)


def plan_schedule(
    staged: StagedStep, request: ChainRequest, name: str | None, chosen: MappedSchedule, *, interrupted: bool
) -> StepPipeline:
    """Return one schedule that was laid out, as the plan; NothingFoundError where it does not fit.

    name: the schedule that was asked for, if one was. interrupted: whether Ctrl-C ended a search for a better one.
    """
    hold()
    return replace(_StepPipeliner(staged, request, name).only(chosen), interrupted=interrupted)


class _StepPipeliner:
    def __init__(self, staged: StagedStep, request: ChainRequest, name: str | None) -> None:
        self.staged, self.request, self.name = staged, request.begun(), name
        self.interrupted = False

    def pipeline(self, search_s: float) -> StepPipeline:
        """Return the best of all, or the one of that name, as a plan."""
        laid = self._map_all()
        hold()
        chosen, search = self._priced(self._choose(laid)), None
        if search_s and not self.interrupted:
            starts = laid if self.name is None else (chosen,)
            search = search_step(self.staged, starts, search_s)
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
            raise self._unfit(f"{mapped.schedule.name} does not fit", mapped.candidate)
        chosen = self._priced(mapped)
        return self._result((chosen,), chosen, None)

    def _map_all(self) -> tuple[MappedSchedule, ...]:
        """Every schedule laid out; what the chain has within the memory and does not fit op by op, again for less.

        After Ctrl-C no more than until one will do.
        """
        laid, self.interrupted = gather_schedules(self._all(), self._enough)
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
        return mapped.fits and self.name in (None, mapped.schedule.name)

    def _all(self) -> Iterator[MappedSchedule]:
        yield from self._named(self.request)
        if self.request.contiguous:
            yield MappedSchedule(schedule=ChainSchedule(name=REPLICATED, why="not looked for"))
        elif self.name in (None, REPLICATED):
            yield best_replicated(self.staged)

    def _named(self, request: ChainRequest) -> Iterator[MappedSchedule]:
        cuts, thin = fitting_cuts(request.chain, request.machines, request.model, KEEPS)
        for schedule in all_schedules(request, cuts, thin):
            yield self.staged.map_schedule(schedule)

    def _priced(self, mapped: MappedSchedule) -> MappedSchedule:
        if mapped.candidate is None:
            if mapped.schedule.interrupted:
                raise KeyboardInterrupt
            raise NothingFoundError.of(mapped.schedule.why, where=mapped.schedule.name)
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
            bound=FullBound(*quick_bounds.best(staged.problem))
        )  # fmt: skip
        # A plan says that none of its candidates is shorter, which one that was asked for need not be.
        rivals = mapped_schedules if self.name is None else (chosen,)
        plan = make_plan(record, candidate, {each.candidate.name: each.candidate for each in rivals if each.candidate})
        verify(plan, staged.step.graph, staged.problem, staged.cluster)
        return StepPipeline(
            staged=staged, request=self.request, mapped=mapped_schedules, chosen=chosen, plan=plan, search=search,
            chain_bound=through, interrupted=self.interrupted,
        )  # fmt: skip

    def _choose(self, mapped_schedules: tuple[MappedSchedule, ...]) -> MappedSchedule:
        """Return the schedule that was asked for, or the shortest that fits; NothingFoundError where there is none."""
        name = self.name
        if name is not None:
            chosen = next((each for each in mapped_schedules if each.schedule.name == name), None)
            if chosen is None:
                raise KeyboardInterrupt
            if chosen.candidate is not None and not chosen.fits:
                raise self._unfit(f"{name} does not fit", chosen.candidate)
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
        raise self._unfit(f"no schedule fits: {nearest.name} is the nearest", nearest)

    def _unfit(self, fault: str, candidate: Candidate) -> NothingFoundError:
        over: Ints = candidate.peak - self.staged.problem.capacity
        at = int(over.argmax())
        device = self.staged.cluster.devices[at]
        needed, lack = int(candidate.peak[at]), f"{device.name} lacks {size(int(over[at]))}"
        remedy = f"give devices of {needed} bytes ({size(needed)}), more of them, or a smaller batch"
        return NothingFoundError.build(f"{fault}: {lack}", remedy=remedy)


def _ticks(mapped: MappedSchedule) -> int:
    return mapped.candidate.makespan if mapped.candidate is not None else 0


SEARCH = "search"
"""Name of candidates that search found."""
_BLENDS = (1.0, 0.75, 0.5, 0.25)
"""Shares of the list order in an order between it and the schedule's own; the first that fits the memory is kept."""
_STARTS = 3
"""Schedules that search begins from."""
_HEAVY, _LEAST = 24, 0.004
"""Layers at most whose variables are moved, of at least this share of all their bytes."""


def best_replicated(staged: StagedStep) -> MappedSchedule:
    """Return stages shared by several devices: of each number of stages, in turn or not, the shortest that fits.

    Those that the chain says are no shorter than one that was found to fit are left out; where none fits, the one that
    lacks least.
    """
    best: MappedSchedule | None = None
    for shared, run in replicated_runs(staged.chain.chain, staged.cluster, staged.fast, staged.step.batches):
        if best is not None and best.candidate is not None and best.fits and run.step >= best.candidate.makespan:
            break
        schedule = ChainSchedule(
            name=REPLICATED, shared=shared, run=run, period=Fraction(run.step, run.batches),
            in_flight=in_flight(shared, run),
        )  # fmt: skip
        result = staged.map_schedule(schedule)
        best = result if best is None else min(best, result, key=_worth)
    return best or MappedSchedule(schedule=ChainSchedule(name=REPLICATED, why="no stage can have several devices"))


def shared_step(chain: Chain, stages: Replicas, batches: int) -> PeriodBound:
    """Return a lower bound on the ticks of a step of so many micro-batches: its busiest device's work.

    What comes before its stage, forward, and its load of these; or all that these wait for, with what comes before its
    stage, backward. Gradients of weights may come last of all.
    """
    late, result, ahead, back = chain.weight_gradient, 0, 0, 0
    for first, end, devices in zip(
        stages.first.tolist(), [*stages.first[1:].tolist(), chain.layers], stages.devices, strict=True
    ):
        most, load, last = -(-batches // len(devices)), int(chain.loads[first:end].sum()), int(late[first:end].sum())
        result = max(result, ahead + most * load, ahead + back + most * (load - last))
        cut = int(chain.transfers[end - 1]) if end < chain.layers else 0
        forward = int(chain.forward[first:end].sum())
        ahead, back = ahead + forward + cut // 2, back + load - forward - last + cut - cut // 2
    return PeriodBound(name="device", value=Fraction(result))


def _worth(mapped: MappedSchedule) -> tuple[bool, int]:
    """Less is better: what fits, then its ticks; else the bytes that it lacks."""
    if mapped.candidate is None:
        return True, np.iinfo(np.int64).max
    return not mapped.fits, mapped.candidate.makespan if mapped.fits else mapped.candidate.short


def search_step(staged: StagedStep, mapped_schedules: Sequence[MappedSchedule], seconds: float) -> SearchedStep | None:
    """Return a step shorter than all of these that fit, as far as one is found in so many seconds; None where none is.

    Orders first: ready ops first come, by the schedule's order, by the longest way to the end, or weight gradients
    where nothing else is ready; each as far towards that as fits the memory. Then where variables of shared stages
    are, and gradients are added up.
    """
    search = _StepSearch(staged, mapped_schedules, seconds)
    try:
        release()
        search.run()
    except (KeyboardInterrupt, Exception) as error:
        if not struck(error):
            raise
        search.interrupted = True
    hold()
    return search.found()


class _StepSearch:
    def __init__(self, staged: StagedStep, mapped_schedules: Sequence[MappedSchedule], seconds: float) -> None:
        self.staged, self.ends = staged, time.monotonic() + seconds
        fitting = sorted((each for each in mapped_schedules if each.fits), key=_worth)
        self.starts, self.before = fitting[:_STARTS], _worth(fitting[0])[1] if fitting else 0
        self.best: dict[str, MappedSchedule] = {each.schedule.name: each for each in self.starts}
        self.tried, self.interrupted = 0, False

    def run(self) -> None:
        """Search orders, then homes of variables, until the time is over."""
        for start in self.starts:
            if start.candidate is not None:
                self._take(start, _reordered(self.staged, start.candidate))
        for start in self.starts:
            if start.schedule.shared is not None:
                self._rehome(start)

    def found(self) -> SearchedStep | None:
        """Return the shortest, where it is shorter than all that it began from."""
        if not self.best:
            return None
        name, laid = min(self.best.items(), key=lambda each: _worth(each[1]))
        if _worth(laid)[1] >= self.before and not self.interrupted:
            return None
        return SearchedStep(mapped=laid, begun=name, tried=self.tried, interrupted=self.interrupted)

    def _take(self, start: MappedSchedule, candidates: Iterator[Candidate]) -> bool:
        """Keep what is better than the best from the same schedule; whether something was."""
        better, name = False, start.schedule.name
        while time.monotonic() < self.ends:
            candidate = next(candidates, None)
            if candidate is None:
                break
            self.tried += 1
            result = replace(start, candidate=candidate)
            if _worth(result) < _worth(self.best[name]):
                self.best[name], better = result, True
        return better

    def _rehome(self, start: MappedSchedule) -> None:
        """Try sums made elsewhere, then the heaviest layers' variables on other devices of their stage, one by one."""
        shared, chain = start.schedule.shared, self.staged.chain.chain
        if shared is None:
            return
        other = replace(shared, sums=not shared.sums)
        if self._tried(start, other):
            shared = other
        heavy = np.argsort(-chain.weights, kind="stable")[:_HEAVY]
        heavy = heavy[chain.weights[heavy] >= _LEAST * chain.weights.sum()]
        moved = True
        while moved and time.monotonic() < self.ends:
            moved, stage, before = False, shared.stage, shared
            moves = [(layer, device) for layer in heavy.tolist() for device in before.devices[int(stage[layer])]]
            for layer, device in moves:
                if device == before.homes[layer]:
                    continue
                homes = shared.homes.copy()
                homes[layer] = device
                other = replace(shared, homes=ints(homes))
                if self._tried(start, other):
                    shared, moved = other, True

    def _tried(self, start: MappedSchedule, shared: Replicas) -> bool:
        run, candidate, staged = start.schedule.run, start.candidate, self.staged
        if run is None or candidate is None or time.monotonic() >= self.ends:
            return False
        device = staged.op_devices(shared.homes, run, sums=shared.sums)
        moved = staged.bench.ordered(f"{start.schedule.name}, variables moved", candidate.rule, device, candidate.rank)
        return self._take(replace(start, schedule=replace(start.schedule, shared=shared)), _listed(staged.bench, moved))


def _reordered(staged: StagedStep, start: Candidate) -> Iterator[Candidate]:
    bench, schedule = staged.bench, start.timeline.schedule
    yield from _listed(bench, start)
    longest = bench.placed(SEARCH, "", schedule.device).timeline.schedule.start
    yield from _between(bench, start, longest, "the longest way to the end first")
    apart = staged.chain.weight[staged.step.op] & (staged.step.batch >= 0)
    later = schedule.start + np.where(apart, schedule.makespan // max(1, staged.step.batches), 0)
    rank = rank_of(ints(np.lexsort((bench.topological, later))))
    filled = replay(bench.problem, schedule.device, rank, strict=False, prepared=bench.prepared).start
    yield from _between(bench, start, filled, "weight gradients where devices would wait")


def _listed(bench: CandidateEvaluator, start: Candidate) -> Iterator[Candidate]:
    listed = replay(
        bench.problem, start.timeline.schedule.device, start.rank, strict=False, prepared=bench.prepared
    ).start
    yield from _between(bench, start, listed, "ready ops in its order")


def _between(bench: CandidateEvaluator, start: Candidate, other: Ints, rule: str) -> Iterator[Candidate]:
    """Orders between a candidate's own and another run's, by the mean of their starts, down to the first that fits.

    No op is before one that it waits for in either, so in none between.
    """
    own, device = start.timeline.schedule.start, start.timeline.schedule.device
    for share in _BLENDS:
        moment = share * other + (1 - share) * own
        rank = rank_of(ints(np.lexsort((bench.topological, moment))))
        result = bench.ordered(SEARCH, f"{start.name}, {rule}" + (f" ({share:.0%})" if share < 1 else ""), device, rank)
        yield result
        if result.fits:
            return


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
