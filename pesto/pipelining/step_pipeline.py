"""A training step pipelined: its chain, the named schedules laid over all its micro-batches, and the best as a plan."""

from dataclasses import dataclass, field, replace

import numpy as np

from pesto.cluster import Cluster
from pesto.costs import Costs
from pesto.costs.analytical import modelled
from pesto.errors import NothingFoundError, UsageError
from pesto.graph import Graph
from pesto.micro_batches.recognised import recognised
from pesto.micro_batches.step_parts import StepParts, step_parts
from pesto.micro_batches.unrolling import MicroBatched, unroll
from pesto.pipelining.chain_of_step import StepChain, accelerators, chain_of_step
from pesto.pipelining.folded import fold
from pesto.pipelining.laid import lay
from pesto.pipelining.schedules import KEEPS, NAMES, Asked, Schedule, schedules
from pesto.plans.plan import Plan, verify
from pesto.quantities import size
from pesto.settings import Settings
from pesto.solving.candidates import Bench, Candidate, best
from pesto.solving.flow import formulate
from pesto.solving.record import SolveRecord, make_plan
from solvers import Problem
from solvers.arrays import Ints
from solvers.bounds import quick_bounds
from solvers.pipelining.contiguous import best_cuts
from solvers.pipelining.pipeline_bounds import Bound, flushed_step
from solvers.pipelining.pipeline_bounds import best as greatest

BATCHES = 8
"""Micro-batches where nobody says how many."""
_TIGHTER = 3
"""How often stages are cut for less memory than there is, where what was cut for all of it does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """One schedule on a step's stages."""

    schedule: Schedule
    """Of the chain; without a pattern where there is none."""
    candidate: Candidate | None = None
    """All micro-batches, op by op, as the event loop ran them; None where there is no pattern."""
    once: int = 0
    """Ticks of the updates on the device that has most of them."""

    @property
    def fits(self) -> bool:
        """Whether the step, op by op, is within the memory."""
        return self.candidate is not None and self.candidate.fits

    @property
    def predicted(self) -> int:
        """Ticks of the step as the chain has it: its schedule, then the updates."""
        return (self.schedule.step or 0) + self.once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPipeline:
    """What was found of a training step."""

    names: tuple[str, ...] = field(repr=False)
    """[n] the ops of the step as it was given."""
    parts: StepParts = field(repr=False)
    step: MicroBatched
    chain: StepChain
    asked: Asked
    cluster: Cluster
    laid: tuple[Laid, ...] = field(repr=False)
    """All schedules, in the order of NAMES."""
    chosen: Laid
    """The shortest step that fits, op by op, or the schedule that was asked for."""
    plan: Plan = field(repr=False)
    """The chosen one, verified by the reference simulator."""
    chain_bound: Bound
    """What none of the chain's own steps through these stages is below, without updates; an op-by-op run may be."""
    accelerators: tuple[str, ...]

    @property
    def bound_ticks(self) -> int:
        """What no plan of these ops on this cluster is below, in stages or not."""
        return self.plan.provenance.lower_bound_ticks

    @property
    def bubble(self) -> float:
        """Share of the accelerators' time in the step in which they run no op."""
        candidate = self.chosen.candidate
        if candidate is None:
            raise ValueError("a schedule that was chosen was laid out")
        run = candidate.timeline
        on = np.isin(run.problem.location[run.schedule.device], accelerators(self.cluster))
        busy = int((run.schedule.finish - run.schedule.start)[on].sum())
        return 1 - busy / (len(self.accelerators) * candidate.makespan) if candidate.makespan else 0.0


def step_pipeline(
    graph: Graph, cluster: Cluster, *, batches: int | None, name: str | None = None, k: int = 0, seconds: float = 20.0
) -> StepPipeline:
    """The step of so many micro-batches in stages, one or two a device, on modelled costs; the shortest that fits.

    batches: None for a step that loops over micro-batches itself, which is taken as it is, and else for BATCHES.
    name: of one of NAMES, which is then taken. k, seconds: of the search for an exact schedule. Stages are cut for
    the memory as the chain counts it, and where that does not fit op by op, for less. UsageError for a
    cluster of one accelerator, or of different ones; InputError for a graph that is no training step; InfeasibleError
    where the variables cannot fit; NothingFoundError, with the bytes that lack, where no schedule fits.
    """
    if name is not None and name not in NAMES:
        raise UsageError(f"there is no schedule {name!r} - give one of {', '.join(NAMES)}")
    work = _Work(graph, cluster, batches)
    try:
        asked = Asked(
            chain=work.chain.chain,
            devices=len(work.fast),
            memory=work.memory,
            batches=work.step.batches,
            k=k,
            seconds=seconds,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return work.pipeline(asked, work.found(asked), name)


class _Work:
    """A step's chain, the graph of its micro-batches, and what its runs are measured with."""

    def __init__(self, graph: Graph, cluster: Cluster, batches: int | None) -> None:
        self.cluster, self.fast = cluster, accelerators(cluster)
        if len(self.fast) < 2:
            raise UsageError(f"{cluster.name} has one accelerator - a pipeline needs two; give a cluster with more")
        self.memory = min(cluster.devices[at].memory_bytes for at in self.fast.tolist())
        seen = recognised(graph) if batches is None else None
        if seen is not None:
            graph, self.parts, self.step = seen.one, seen.parts, seen.step
        else:
            self.parts = step_parts(graph)
            self.step = unroll(graph, self.parts, BATCHES if batches is None else batches)
        self.names = graph.names
        self.chain = chain_of_step(
            graph, self.parts, fold(graph, self.parts), modelled(graph, cluster), cluster, batches=self.step.batches
        )
        self.costs: Costs = modelled(self.step.graph, cluster)
        self.problem: Problem = formulate(self.step.graph, self.costs, cluster, Settings())
        self.bench = Bench.of(self.step.graph, self.problem)

    def found(self, asked: Asked) -> tuple[Laid, ...]:
        """Every schedule laid out; what the chain has within the memory and does not fit op by op, again for less."""
        laid, memory = self._all(asked), self.memory
        for _ in range(_TIGHTER):
            over = [each.candidate.short for each in laid if each.candidate and each.schedule.fits and not each.fits]
            if not over:
                break
            memory = max(0, memory - max(over))
            again = self._all(replace(asked, memory=memory))
            laid = tuple(new if new.fits and not old.fits else old for old, new in zip(laid, again, strict=True))
        return laid

    def _all(self, asked: Asked) -> tuple[Laid, ...]:
        cuts = best_cuts(asked.chain, asked.devices, asked.memory, asked.model)
        thin = best_cuts(asked.chain, asked.devices, asked.memory, asked.model, KEEPS)
        return tuple(self._laid(each) for each in schedules(asked, cuts, thin))

    def _laid(self, schedule: Schedule) -> Laid:
        if schedule.allocation is None or schedule.run is None:
            return Laid(schedule=schedule)
        device, rank = lay(
            self.step, self.parts, self.chain, (schedule.allocation, schedule.run), self.problem, self.fast
        )
        once = np.bincount(schedule.allocation.device, weights=self.chain.once).max()
        candidate = self.bench.ordered(schedule.name, f"{schedule.name} on the chain's stages", device, rank)
        return Laid(schedule=schedule, candidate=candidate, once=int(once))

    def pipeline(self, asked: Asked, laid: tuple[Laid, ...], name: str | None) -> StepPipeline:
        """The best of them, or the one of that name, as a plan."""
        chosen = self._chosen(laid, name)
        schedule, candidate = chosen.schedule, chosen.candidate
        if schedule.allocation is None or candidate is None:
            raise NothingFoundError(f"{schedule.name}: {schedule.why}")
        candidate = self.bench.priced(candidate)
        record = SolveRecord(
            graph=self.step.graph, cluster=self.cluster, costs=self.costs, settings=Settings(),
            bound=quick_bounds.best(self.problem), exact=None,
        )  # fmt: skip
        known = {each.candidate.name: each.candidate for each in laid if each.candidate}
        plan = make_plan(record, candidate, {**known, candidate.name: candidate})
        verify(plan, self.step.graph, self.problem, self.cluster)
        names = [self.cluster.devices[at].name for at in self.fast.tolist()]
        return StepPipeline(
            names=self.names, parts=self.parts, step=self.step, chain=self.chain, asked=asked, cluster=self.cluster,
            laid=tuple(replace(each, candidate=candidate) if each is chosen else each for each in laid),
            chosen=replace(chosen, candidate=candidate), plan=plan, accelerators=tuple(names),
            chain_bound=greatest(flushed_step(asked.chain, schedule.allocation, asked.batches, split=True)),
        )  # fmt: skip

    def _chosen(self, laid: tuple[Laid, ...], name: str | None) -> Laid:
        if name is not None:
            chosen = next(each for each in laid if each.schedule.name == name)
            if chosen.candidate is not None and not chosen.fits:
                raise NothingFoundError(f"{name} does not fit: {self._lack(chosen.candidate)}")
            return chosen
        quickest = best(each.candidate for each in laid if each.candidate)
        if quickest is None:
            raise self._unfit(laid)
        return next(each for each in laid if each.candidate is quickest)

    def _unfit(self, laid: tuple[Laid, ...]) -> NothingFoundError:
        tried = [each.candidate for each in laid if each.candidate]
        if not tried:
            return NothingFoundError(f"no stages fit the memory: {laid[0].schedule.why} - use more or larger devices")
        nearest = min(tried, key=lambda each: each.short)
        return NothingFoundError(
            f"no schedule fits: {nearest.name} is the nearest, {self._lack(nearest)} - use more or larger devices, or "
            "a smaller batch"
        )

    def _lack(self, candidate: Candidate) -> str:
        over: Ints = candidate.peak - self.problem.capacity
        return f"{self.cluster.devices[int(over.argmax())].name} lacks {size(int(over.max()))}"
