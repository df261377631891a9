"""Groups first, then acyclic batch merging, until the target or until nothing can be merged."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pesto.planning.coarsen.coarsening import Caps, Coarsening, Round, ranks
from pesto.planning.coarsen.match import (
    Joining,
    MergeLimits,
    Pairs,
    UniteLimits,
    along_edges,
    among_siblings,
    match,
    roots,
)
from pesto.planning.coarsen.quotient import Quotient, UnitForest, places, quotient
from pesto.planning.coarsen.topological_levels import earliest_levels, latest_levels, longest_paths, phased_levels
from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import topological_order

# How far merging may go at each stage: caps that start tight and grow geometrically, the last stage without any.

WHOLE = int(np.iinfo(np.int64).max)
"""No cap."""
_MOST = 0.75
"""Until the last stage a united group stays below this part of a fair share, so that the rest can balance it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scale:
    """What the caps are measured in."""

    caps: Caps
    target: int
    tasks: int
    total: int
    """Ticks of all tasks."""
    critical: int
    """Ticks of the critical path."""
    locations: Ints
    """[kinds] locations where nodes of a kind can run."""
    capacity: Ints
    """[kinds] bytes of the largest location of each kind."""
    fair: float
    """Total time over the locations of the kind with most time."""

    @property
    def stages(self) -> int:
        """Stages until the cap on time is the total, and the last one, without caps."""
        return 1 + max(1, math.ceil(math.log(max(1.0, self.target / self.caps.time), self.caps.growth)))

    def limits(self, stage: int) -> MergeLimits:
        """The caps of one stage, 0..stages-1."""
        mean = max(1.0, self.total / self.target)
        if stage == self.stages - 1:
            whole = np.full(len(self.locations), WHOLE)
            return MergeLimits(
                time=WHOLE,
                members=WHOLE,
                path=WHOLE,
                mean=mean,
                loss=WHOLE,
                unit_time=whole,
                unit_memory=self._unit_memory(1.0),
            )
        caps, grown = self.caps, self.caps.growth**stage
        group = caps.group * math.sqrt(grown)
        free = self.locations <= 1
        fair = self.total / np.maximum(1, self.locations)
        return MergeLimits(
            time=_ticks(caps.time * grown * self.total / self.target),
            members=_ticks(max(2.0, caps.members * grown * self.tasks / self.target)),
            path=_ticks(max(self.critical, caps.path * self.fair) * math.sqrt(grown)),
            mean=mean,
            loss=_ticks(caps.loss * (grown - 1) * self.total / self.target),
            unit_time=np.where(free, WHOLE, (min(group, _MOST) * fair).astype(np.int64)),
            unit_memory=self._unit_memory(min(group, 1.0)),
        )

    def _unit_memory(self, share: float) -> Ints:
        # What is scarce is room at a location, unless that is so ample that only balance matters.
        return np.where(self.locations <= 1, WHOLE, (self.capacity * share).astype(np.int64))


def scale(problem: Problem, q: Quotient, caps: Caps, target: int) -> Scale:
    """Measure the finest quotient of a problem."""
    kinds = int(q.nodes.kind.max(initial=-1)) + 1
    first = np.zeros(kinds, dtype=np.int64)
    first[q.nodes.kind] = np.arange(q.size)
    may = places(problem)[first]
    time = np.bincount(q.nodes.kind, weights=q.nodes.time, minlength=kinds)
    locations = may.sum(axis=1)
    total = int(q.nodes.time.sum())
    return Scale(
        caps=caps,
        target=target,
        tasks=q.size,
        total=total,
        critical=longest_paths(q).longest,
        locations=locations,
        capacity=np.where(may, problem.capacity, 0).max(axis=1, initial=0),
        fair=total / max(1, int(locations[np.argmax(time)])) if kinds else 0.0,
    )


def _ticks(value: float) -> int:
    return min(WHOLE, math.ceil(value))


Levels = Callable[[Quotient], Ints]

_FEW = 0.02
"""A pass that merges a smaller part of the nodes counts as stuck: the next kind of merge has more to offer."""


def coarsen(problem: Problem, target: int = 200, *, caps: Caps | None = None) -> Coarsening:
    """Merge tasks into at most `target` nodes if that is feasible (Pesto, section 3.3; docs/internals/coarsening.md).

    Only tasks with the same allowed devices meet in a node, the graph over the nodes is acyclic, and tasks of one
    group stay in groups: `contract` gives the nodes the groups that follow. Every batch is asserted to be acyclic.
    ValueError when `target` is not positive; RuntimeError when a batch made a cycle, which is a bug.
    """
    if target < 1:
        raise ValueError(f"target {target} must be positive")
    work = _Merging(problem, target, caps or Caps())
    reason = work.run()
    q = work.quotient
    # Nodes numbered in topological order: whoever sorts them by time and then by index keeps to the precedence.
    node_of = rank_of(topological_order(q.size, q.src, q.dst))[work.node_of]
    inner = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return Coarsening(
        node_of=node_of,
        nodes=q.size,
        rank=ranks(node_of, inner),
        target=target,
        reason=reason,
        rounds=tuple(work.rounds),
        largest_group_share=work.largest_group_share(),
    )


class _Merging:
    """The one mutable thing: the current quotient and what has been done to reach it."""

    def __init__(self, problem: Problem, target: int, caps: Caps) -> None:
        self.target = target
        self.quotient, self.units = quotient(problem)
        self.scale = scale(problem, self.quotient, caps, target)
        self.paths = longest_paths(self.quotient)
        self.limits = self.scale.limits(0)
        self.node_of = np.arange(problem.tasks)
        self.rounds: list[Round] = []

    def run(self) -> str:
        """Merge; returns why it stopped."""
        last = self.scale.stages - 1
        for stage in range(self.scale.stages):
            self.limits = self.scale.limits(stage)
            for joining in Joining:
                while self.left > 0 and self._pass(joining, last=stage == last):
                    pass
        size = self.quotient.size
        if self.left <= 0:
            return f"reached {self.target}" if self.rounds else f"{size} tasks are no more than {self.target}"
        return f"no feasible pair left at {size} nodes: {self._obstacle()}"

    @property
    def left(self) -> int:
        """Merges that are missing."""
        return self.quotient.size - self.target

    def largest_group_share(self) -> float:
        """Time of the largest united group that has a choice of locations, as a share of the total."""
        root = roots(self.units)[self.quotient.nodes.unit]
        choice = self.units.grouped[root] & (self.scale.locations[self.quotient.nodes.kind] > 1)
        return int(self.units.time[root[choice]].max(initial=0)) / max(1, self.scale.total)

    def _pass(self, joining: Joining, *, last: bool) -> bool:
        """Edges while they yield, then siblings; whether it merged enough to try again."""
        few = 0.0 if last else _FEW
        before = self.quotient.size
        while True:
            size = self.quotient.size
            for levels in (earliest_levels, latest_levels):
                self._edges(levels, joining)
            if size - self.quotient.size <= few * size:
                break
        for levels in (earliest_levels, latest_levels):
            self._siblings(levels, joining, related=True)
        if joining == Joining.UNITE:
            for levels in (earliest_levels, latest_levels):
                self._siblings(levels, joining, related=False)
        if joining == Joining.UNITE and last:
            self._edges(phased_levels, joining)
            self._siblings(phased_levels, joining, related=False)
        return before - self.quotient.size > few * before

    def _edges(self, levels: Levels, joining: Joining) -> None:
        q = self.quotient
        if self.left > 0:
            level = levels(q)
            pairs = along_edges(q, level, self.paths, self.limits)
            self._batch(f"edges, {levels.__name__} levels, {joining.name.lower()}", level, pairs, joining)

    def _siblings(self, levels: Levels, joining: Joining, *, related: bool) -> None:
        q = self.quotient
        if self.left <= 0:
            return
        level = levels(q)
        near = np.zeros(q.size, dtype=np.int64)
        if related and joining == Joining.WITHIN:
            near = roots(self.units)[q.nodes.unit]
        elif related:
            # [n] the predecessor (or successor) with the largest transfer; -1 - node where there is none, to keep it
            # apart.
            after = levels is latest_levels
            near = -1 - np.arange(q.size)
            order = np.argsort(q.weight, kind="stable")
            one, other = (q.src, q.dst) if after else (q.dst, q.src)
            near[one[order]] = other[order]
        pairs = among_siblings(q, level, self.paths, self.limits, near)
        name = "related siblings" if related else "siblings"
        self._batch(f"{name}, {levels.__name__} levels, {joining.name.lower()}", level, pairs, joining)

    def _batch(self, step: str, level: Ints, pairs: Pairs, joining: Joining) -> None:
        q = self.quotient
        mate = match(q, self.units, level, pairs, self._bounds(joining))
        merged = int(np.count_nonzero(mate >= 0)) // 2
        if merged:
            cap = -1 if self.limits.time == WHOLE else self.limits.time
            self.rounds.append(Round(step=step, nodes=q.size, edges=len(q.src), merged=merged, cap=cap))
            # [n] new node of each node when partners become one, in the order of their first members.
            own = np.arange(len(mate))
            first = np.where(mate >= 0, np.minimum(mate, own), own)
            label = (np.cumsum(first == own) - 1)[first]
            self.quotient = q.merged(label, q.size - merged)
            self.paths = longest_paths(self.quotient)
            self.node_of = label[self.node_of]

    def _bounds(self, joining: Joining) -> UniteLimits:
        return UniteLimits(int(joining), self.left, self.limits.unit_time, self.limits.unit_memory)

    def _obstacle(self) -> str:
        """What would have to be different for one more merge."""
        q, limits = self.quotient, self.limits
        parent, time, memory, grouped = self.units
        units = UnitForest(parent.copy(), time.copy(), memory.copy(), grouped.copy())
        bounds = self._bounds(Joining.UNITE)._replace(budget=1, memory=np.full_like(limits.unit_memory, WHOLE))
        pairs = along_edges(q, q.height, self.paths, limits)
        if (match(q, units, q.height, pairs, bounds) >= 0).any():
            return "uniting more would exceed the memory of a location"
        kinds = len(np.unique(q.nodes.kind))
        return f"tasks of {kinds} kinds of allowed devices alternate along its paths"
