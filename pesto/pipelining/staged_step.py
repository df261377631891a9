"""A training step in stages: folded, cut into a chain, and a chain's schedule laid over the ops of all micro-batches.

A schedule gives each op a device, and one order of all.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import InputError, UsageError
from pesto.core.graph import Graph
from pesto.core.micro_batches import MicroBatched, recognise_micro_batches, unroll
from pesto.core.settings import Settings
from pesto.core.step_parts import AFTER, BACKWARD, BEFORE, StepParts, step_parts
from pesto.pipelining.schedules import ChainSchedule
from pesto.pipelining.step_chain import StepChain, accelerators, add_weight_versions, build_step_chain, fold
from pesto.pipelining.unrolled import Unrolled
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.flow import formulate
from solvers import Problem
from solvers.arrays import Ints, bools, ints, rank_of
from solvers.compiled.dag import after_all, topological_order
from solvers.heuristics.devices_of_location import devices_at
from solvers.pipelining.chain import BACKWARD as WHOLE
from solvers.pipelining.chain import FORWARD, INPUT_GRADIENT, KINDS, WEIGHT_GRADIENT


class OncePlacement(NamedTuple):
    """Where what is done once for all batches is."""

    device: Ints
    """[L] the device of each layer's variables."""
    sums: bool = False
    """True if gradients are added up there, and not where they are made."""


def op_devices(
    step: MicroBatched, parts: StepParts, chain: StepChain, schedule: tuple[OncePlacement, Unrolled], problem: Problem,
    accelerators: Ints,
) -> Ints:  # fmt: skip
    """Return [n'] the device of each op.

    Variables and their updates are on the device of their layer, a sum where its gradient is made, or with its
    variable. What is of a batch is where its block is done.
    """
    homes, run = schedule
    part, batch = parts.part[step.op], np.maximum(step.batch, 0)
    blocks = np.zeros((chain.chain.layers, run.batches), dtype=np.int64)
    done = run.kind == FORWARD
    blocks[run.layer[done], run.batch[done]] = run.resource[done]
    own = (step.batch >= 0) & (part != BEFORE) & ((part != AFTER) | step.sums) & ~(step.sums & homes.sums)
    home = chain.home[step.op]
    at = np.where(own, blocks[home, batch], homes.device[home])
    # [n'] the location of each group's variable, or first op, for all of the group.
    location = accelerators[at]
    grouped = np.flatnonzero(problem.group >= 0)
    held = step.graph.param_bytes[grouped] > 0
    listed = grouped[np.argsort(~held, kind="stable")]
    group, first = np.unique(problem.group[listed], return_index=True)
    of = np.zeros(int(problem.group.max(initial=-1)) + 1, dtype=np.int64)
    of[group] = location[listed[first]]
    result = location.copy()
    result[grouped] = of[problem.group[grouped]]
    together = ints(result)
    return devices_at(problem, together)


def _rank(step: MicroBatched, parts: StepParts, chain: StepChain, run: Unrolled, problem: Problem) -> Ints:
    """Return [n'] places in one order of all ops: updates last, or, where they are of a batch, in its backward block.

    With an update behind several batches they follow the last backward half of their batch on their device, so that
    gradients on their way to other devices do not wait for them; until then the sums are held anyway.
    """
    start = np.full((len(KINDS), chain.chain.layers, run.batches), run.step, dtype=np.int64)
    start[run.kind, run.layer, run.batch] = run.start
    split = bool((run.kind == WEIGHT_GRADIENT).any())
    part = parts.part[step.op]
    kind = np.where(part == BACKWARD, WHOLE, FORWARD)
    if split:
        apart = np.where(chain.weight[step.op], WEIGHT_GRADIENT, INPUT_GRADIENT)
        kind = np.where(step.sums, WEIGHT_GRADIENT, np.where(part == BACKWARD, apart, kind))
    key = start[kind, chain.layer[step.op], np.maximum(step.batch, 0)]
    each = (part == AFTER) & (step.batch >= 0) & (step.updates_each > 0)
    key = 2 * key
    if step.updates_each:
        updates = 2 * start[WHOLE]
        if step.updates_each > 1:
            done = run.kind == WHOLE
            device = np.zeros(updates.shape, dtype=np.int64)
            device[run.layer[done], run.batch[done]] = run.resource[done]
            latest = np.zeros((int(device.max()) + 1, run.batches), dtype=np.int64)
            np.maximum.at(latest, (run.resource[done], run.batch[done]), run.start[done])
            updates = 2 * latest[device, np.arange(run.batches)] + 1
        key = np.where(each, updates[chain.home[step.op], np.maximum(step.batch, 0)], key)
    last = (part == AFTER) & ~step.sums & ~each
    key = np.where(last, 2 * run.step, np.where(part == BEFORE, -1, key))
    order = topological_order(problem.tasks, problem.src, problem.dst)
    key = after_all(order, problem.src, problem.dst, ints(key))
    if step.updates_each:
        # [n'] keys; what is done `once` comes right before the first op that needs it: versions of weights are held.
        once = bools(part == BEFORE)
        by = np.argsort(problem.src, kind="stable")
        first = np.searchsorted(problem.src[by], np.arange(problem.tasks + 1))
        result = key.copy()
        for op in order[::-1].tolist():
            if once[op] and first[op] < first[op + 1]:
                result[op] = result[problem.dst[by[first[op] : first[op + 1]]]].min()
        key = ints(result)
    return rank_of(ints(np.lexsort((rank_of(order), key))))


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
        cut = graph.origin.cut_function
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
        """Lay a schedule over all ops of all micro-batches, blocks in its order, ops inside as they follow; run it."""
        homes = None if schedule.allocation is None else OncePlacement(schedule.allocation.device)
        if schedule.shared is not None:
            homes = OncePlacement(schedule.shared.homes, schedule.shared.sums)
        if homes is None or schedule.run is None:
            return MappedSchedule(schedule=schedule)
        device = op_devices(self.step, self.parts, self.chain, (homes, schedule.run), self.problem, self.fast)
        rank = _rank(self.step, self.parts, self.chain, schedule.run, self.problem)
        once = np.bincount(homes.device, weights=self.chain.once).max()
        candidate = self.bench.ordered(schedule.name, f"{schedule.name} on the chain's stages", device, rank)
        return MappedSchedule(schedule=schedule, candidate=candidate, once=int(once))
