"""Annealing walks over placements and orders: better orders of a placement, and walks side by side.

A lane cools while its budget is spent, in stretches between which it can be stopped.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.problem import Problem
from solvers.search.simulation import NEVER
from solvers.search.walk_state import BEST, COST, Cooling, anneal, begin_at, lane_for
from solvers.search.workspace import Solution, Workspace
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, prepare, replay

_KINDS = np.cumsum((0.35, 0.2, 0.05, 0.1, 0.15, 0.15))
"""Shares of the kinds of moves, in the order of `solvers.search.walk_state`."""
_STRETCH, _CHANGES = 2_000_000, 2_000
"""Tasks times changes of one stretch, and the greatest number of changes: some 30 ms or less."""
_PAUSE = 16
"""Stretches after which other orders of the current placement are tried, and the best solution is evaluated."""
_LESS = 1.02
"""Bytes that a placement may hold less, for each byte that it was over."""
_POLL_S = 0.1
"""Seconds between looks of the caller's thread for news, and for Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orders:
    """Improves the order of a placement by list scheduling, forwards and backwards."""

    workspace: Workspace
    mirror: Problem
    """The problem in reverse, without links: each edge carries a payload of its own."""
    backward: Prepared

    @classmethod
    def of(cls, workspace: Workspace) -> "Orders":
        """Prepare everything that does not depend on the placement."""
        # Time runs backwards; a payload is sent back by each of its readers, whatever the others do.
        p = workspace.problem
        carried = np.flatnonzero(p.payload >= 0)
        payload = np.full(p.edges, -1, dtype=np.int64)
        payload[carried] = np.arange(len(carried))
        mirror = Problem(
            duration=p.duration,
            location=p.location,
            memory=p.memory,
            capacity=p.capacity,
            src=p.dst,
            dst=p.src,
            payload=payload,
            producer=p.dst[carried],
            transfer=p.transfer[p.payload[carried]],
            path_class=p.path_class.T,
            path_links=np.full_like(p.path_links, -1),
            group=p.group,
        )
        return cls(workspace=workspace, mirror=mirror, backward=prepare(mirror))

    def improve(self, solution: Solution) -> Solution:
        """Return the best of a placement's own order and four others.

        Idle devices start, of their ready tasks, the first by the order as it is, by bottom level under the placement,
        or by a schedule made backwards from the end ("forward-backward improvement", Li and Willis 1992; Tormos and
        Lova 2001), the latter twice.
        """
        workspace = self.workspace
        device, place = workspace.devices(solution.at), rank_of(solution.order)
        level = bottom_levels(workspace.problem, device=device)
        best = solution
        for priority in (place, rank_of(np.lexsort((workspace.topological, -level)))):
            best = min(best, self._listed(solution.at, device, priority), key=lambda one: one.makespan)
        for _ in range(2):
            # How late each task can start when all is listed from the end.
            finish, place = workspace.schedule(best).finish, rank_of(best.order)
            rank = rank_of(np.lexsort((-place, -finish)))
            late = replay(self.mirror, device, rank, strict=False, prepared=self.backward)
            priority = ints(rank_of(np.lexsort((place, -late.finish))))
            best = min(best, self._listed(best.at, device, priority), key=lambda one: one.makespan)
        return best

    def _listed(self, at: Ints, device: Ints, priority: Ints) -> Solution:
        order = self.workspace.order_of(self.workspace.run(device, priority, strict=False))
        return Solution(at=at, order=order, makespan=self.workspace.run(device, rank_of(order)).makespan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointValue:
    """Evaluation of a solution, possibly on another problem than the one that is annealed."""

    makespan: int
    device: Ints
    """[n] device of each task of the problem on which the solution was evaluated."""
    rank: Ints
    """[n] place of each task of that problem in its order."""
    over: Ints
    """[l] bytes beyond each location's capacity at the worst moment, 0 where it fits."""
    rule: str = ""
    """How the schedule was made, in a few words."""


class Temperature(NamedTuple):
    """Shares of the makespan: what is worse by as much is accepted with probability 1/e."""

    hot: float
    """Share of the makespan at the start of a run."""
    cold: float
    """Share of the makespan at the end of a run."""

    def times(self, factor: float) -> "Temperature":
        """Return a temperature that is hotter by a factor."""
        return Temperature(self.hot * factor, self.cold * factor)


class Walk:
    """Anneals from a solution. `kept` is the best evaluation of all that fit; None before any did.

    Not for use by two threads at once. What fits is seen between stretches: a best solution that does not is forgotten,
    and placements may hold less from then on.
    """

    def __init__(
        self,
        workspace: Workspace,
        start: Solution,
        heat: Temperature,
        evaluate: Callable[[Solution], PointValue],
        seed: int,
    ) -> None:
        self.kept: PointValue | None = None
        self._workspace, self._heat, self._evaluate = workspace, heat, evaluate
        self._lane = lane = lane_for(workspace.network, start.at, start.order, workspace.capacity, seed)
        self._orders, self._stretches, self._seen = Orders.of(workspace), 0, NEVER
        self._home: Solution | None = None
        self._steps = min(max(16, _STRETCH // max(workspace.problem.tasks, 1)), _CHANGES)
        levels = len(workspace.clusters.sizes)
        self._levels = np.cumsum(np.full(levels, 1.0 / levels))
        # The capacities allow at least the bytes of a start that fits, and less than those of one that does not.
        value = evaluate(start)
        if (value.over > 0).any():
            held = np.where(value.over > 0, np.minimum(lane.capacity, lane.choice.held), lane.capacity)
            self._shrink(held, value.over)
        else:
            self.kept, self._home, self._seen = value, start, start.makespan
            lane.capacity[:] = np.maximum(lane.capacity, lane.choice.held)
        self._go(start)

    @property
    def best(self) -> Solution:
        """The best solution since the last that did not fit; the current one where none held little enough since."""
        lane = self._lane
        if lane.tally[BEST] == NEVER:
            return self._current()
        return Solution(at=ints(lane.best_at), order=ints(lane.best_order), makespan=int(lane.tally[BEST]))

    def _go(self, solution: Solution) -> None:
        """Make a solution the current one."""
        begin_at(self._workspace.network, self._lane, solution.at.astype(np.int32), solution.order.astype(np.int32))

    def _current(self) -> Solution:
        lane = self._lane
        return Solution(at=ints(lane.choice.at), order=ints(lane.choice.order), makespan=int(lane.tally[COST]))

    def stretch(self, progress: float, rarer: int = 1) -> bool:
        """Try changes for a moment, as hot as it is after this share of the budget; return True if `kept` is better.

        rarer: pauses come after so many times as many stretches.
        """
        if not len(self._workspace.network.choice):
            return self.pause()
        heat = self._heat.hot * (self._heat.cold / self._heat.hot) ** min(progress, 1.0)
        ticks = heat * float(self._lane.tally[COST]) + 1e-9
        self._sort()
        cooling = Cooling(self._steps, ticks, ticks, _KINDS, self._levels)
        anneal(self._workspace.network, self._workspace.clusters, self._lane, cooling)
        self._stretches += 1
        if self._stretches % (_PAUSE * rarer):
            return False
        current = self._current()
        better = self._orders.improve(current)
        if better.makespan < current.makespan:
            self._go(better)
        return self.pause()

    def pause(self) -> bool:
        """Evaluate the best solution, if it is new; return True if `kept` is better."""
        best = self.best
        if best.makespan >= self._seen:
            return False
        value = self._evaluate(best)
        if (value.over > 0).any():
            # The current solution, in place of a best one, says nothing: it may hold more than is allowed anyway.
            if self._lane.tally[BEST] < NEVER:
                self._shrink(self._lane.capacity, value.over)
                if self._home is not None:
                    self._go(self._home)
                else:
                    self._sort()
            return False
        self._seen, self._home = best.makespan, best
        if self.kept is not None and self.kept.makespan <= value.makespan:
            return False
        self.kept = value
        return True

    def _shrink(self, capacity: Ints, over: Ints) -> None:
        """Allow less where there was too much, but not so little that it could not hold all: estimates may be high."""
        lane = self._lane
        less = capacity - np.int64(_LESS * over) - (over > 0)
        if less.min(initial=0) >= 0 and less.sum() >= _LESS * lane.choice.held.sum():
            lane.capacity[:] = less
        lane.tally[BEST] = NEVER

    def _sort(self) -> None:
        """Number the tasks by when they run, so that moved tasks find their place by time.

        The same run, but for ties among what ends at once: where these make it longer, the order stays.
        """
        lane, current = self._lane, self._current()
        order = np.lexsort((lane.choice.place, lane.base.end, lane.base.start))
        self._go(Solution(at=current.at, order=order, makespan=0))
        if lane.tally[COST] > current.makespan:
            self._go(current)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkBudget:
    """How long each walk goes on."""

    seconds: float
    stretches: int | None = None
    """Stretches in place of seconds, for the same result on every machine; improvements are told only at the end."""
    rarer: int = 1
    """Factor on the number of stretches between two pauses."""


def walk_all(
    walks: Sequence[Walk], budget: WalkBudget, over: Callable[[], bool]
) -> Generator[PointValue, None, list[PointValue]]:
    """Run all walks, a thread each, and yield improvements as they are found; return each walk's best, best first.

    All end when `over()`, which the caller's thread calls between looks, returns True, or when the caller closes the
    generator. An error in one walk ends the others, and is raised. Of equals the first walk's comes first. Raise
    KeyboardInterrupt once all have ended and every improvement was yielded.
    """
    stop, news = threading.Event(), SimpleQueue[PointValue]()
    with ThreadPoolExecutor(len(walks)) as pool:
        running: list[Future[None]] = []
        try:
            running += [pool.submit(_run_walk, walk, budget, stop, news) for walk in walks]
            while wait(running, timeout=_POLL_S).not_done:
                if budget.stretches is None:
                    yield from _best_of(news)
                if over() or any(one.done() and one.exception() is not None for one in running):
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
            wait(running)
            yield from _best_of(news)
            raise
        finally:
            stop.set()
    for future in running:
        future.result()
    kept = sorted((walk.kept for walk in walks if walk.kept is not None), key=lambda value: value.makespan)
    yield from kept[:1]
    return kept


def _run_walk(walk: Walk, budget: WalkBudget, stop: threading.Event, news: "SimpleQueue[PointValue]") -> None:
    began, done, progress = time.perf_counter(), 0, 0.0
    while progress < 1.0 and not stop.is_set():
        if walk.stretch(progress, budget.rarer) and walk.kept is not None:
            news.put(walk.kept)
        done += 1
        if budget.stretches is not None:
            progress = done / max(budget.stretches, 1)
        else:
            progress = (time.perf_counter() - began) / budget.seconds if budget.seconds > 0 else 1.0
    if walk.pause() and walk.kept is not None:
        news.put(walk.kept)


def _best_of(news: "SimpleQueue[PointValue]") -> list[PointValue]:
    """Take everything out of the queue; return the best of it, if there was anything."""
    values: list[PointValue] = []
    try:
        while True:
            values.append(news.get_nowait())
    except Empty:
        return sorted(values, key=lambda value: value.makespan)[:1]
