"""A step in stages: its chain, its micro-batches and the event loop that every schedule of it is measured with."""

from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import InputError, UsageError
from pesto.core.graph import Graph
from pesto.core.micro_batches.recognition import recognise_micro_batches
from pesto.core.micro_batches.step_parts import StepParts, step_parts
from pesto.core.micro_batches.unrolling import MicroBatched, unroll
from pesto.core.settings import Settings
from pesto.core.source import cut_by
from pesto.pipelining.folding import fold
from pesto.pipelining.schedules import ChainSchedule
from pesto.pipelining.step_chain import StepChain, accelerators, build_step_chain
from pesto.pipelining.step_mapping import OncePlacement, map_schedule
from pesto.pipelining.weight_staleness import add_weight_versions
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.flow import formulate
from solvers import Problem
from solvers.arrays import Ints

BATCHES = 8
"""Micro-batches where nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedSchedule:
    """One schedule on a step's stages."""

    schedule: ChainSchedule
    """Schedule of the chain; without a run if there is none."""
    candidate: Candidate | None = None
    """All micro-batches, op by op, as the event loop ran them; None where there is no run."""
    once: int = 0
    """Ticks of the updates on the device that has most of them."""

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the search for it."""
        return self.schedule.interrupted

    @property
    def fits(self) -> bool:
        """True if the step, op by op, is within the memory."""
        return self.candidate is not None and self.candidate.fits

    @property
    def predicted(self) -> int:
        """Ticks of the step as the chain has it: its schedule, then the updates."""
        return (self.schedule.step or 0) + self.once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagedStep:
    """One step, of so many micro-batches, on one cluster; all on modelled costs."""

    cluster: Cluster
    fast: Ints
    """The accelerators' places in the cluster, neighbours near each other."""
    names: tuple[str, ...]
    """[n] the ops of the step as it was given."""
    parts: StepParts
    step: MicroBatched
    chain: StepChain
    costs: Costs
    """Modelled costs of the step's ops."""
    problem: Problem
    bench: CandidateEvaluator
    one: Graph
    """The step of one micro-batch."""
    late: tuple[int, ...] | None = None
    """Updates by which each variable is late, as `pesto.core.source.Cut.late`; None for a step with a flush."""
    every: int = 1
    """Batches between updates, as `pesto.core.source.Cut.every`; None for a step with a flush."""

    @classmethod
    def of(cls, graph: Graph, cluster: Cluster, batches: int | None) -> "StagedStep":
        """Fold it, cut it into layers, unroll it; batches: None for a step that loops itself, else for BATCHES.

        UsageError for a cluster of one accelerator, or of different ones; InputError for a graph that is no training
        step; InfeasibleError where the variables cannot fit.
        """
        fast = accelerators(cluster)
        if len(fast) < 2:
            raise UsageError.build(
                f"{cluster.name} has one accelerator", remedy="a pipeline needs two; give a cluster with more"
            )
        cut = cut_by(graph.source)
        every = cut.every if cut is not None and cut.late is not None else None
        seen = recognise_micro_batches(graph, every=every) if batches is None else None
        if seen is None and cut is not None:
            raise InputError.build(
                "most of it needs more than one piece of the batch, as examples that are mixed do",
                where=graph.source,
                remedy="do with each example what does not need the others",
            )
        if seen is not None:
            graph, parts, step = seen.one, seen.parts, seen.step
        else:
            parts = step_parts(graph)
            step = unroll(graph, parts, BATCHES if batches is None else batches)
        chain = build_step_chain(
            graph, parts, fold(graph, parts), model_costs(graph, cluster), cluster, batches=step.batches
        )
        if every is not None:
            chain = add_weight_versions(chain, graph, every)
        costs = model_costs(step.graph, cluster)
        problem = formulate(step.graph, costs, cluster, Settings())
        return cls(
            cluster=cluster, fast=fast, names=graph.names, parts=parts, step=step, chain=chain, costs=costs,
            problem=problem, bench=CandidateEvaluator.of(step.graph, problem), one=graph, every=every or 1,
        )  # fmt: skip

    @property
    def memory(self) -> int:
        """Bytes of the accelerator that has fewest."""
        return min(self.cluster.devices[at].memory_bytes for at in self.fast.tolist())

    def map_schedule(self, schedule: ChainSchedule) -> MappedSchedule:
        """A schedule laid over all ops of all micro-batches, and run."""
        homes = _homes(schedule)
        if homes is None or schedule.run is None:
            return MappedSchedule(schedule=schedule)
        device, rank = map_schedule(self.step, self.parts, self.chain, (homes, schedule.run), self.problem, self.fast)
        once = np.bincount(homes.device, weights=self.chain.once).max()
        candidate = self.bench.ordered(schedule.name, f"{schedule.name} on the chain's stages", device, rank)
        return MappedSchedule(schedule=schedule, candidate=candidate, once=int(once))


def _homes(schedule: ChainSchedule) -> OncePlacement | None:
    if schedule.shared is not None:
        return OncePlacement(schedule.shared.homes, schedule.shared.sums)
    return None if schedule.allocation is None else OncePlacement(schedule.allocation.device)
