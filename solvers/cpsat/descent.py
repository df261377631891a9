"""Large-neighbourhood search: neighbourhoods of a schedule are searched by CP-SAT, better schedules are kept.

Several neighbourhoods are searched at a time, one a thread, and their outcomes are taken in in the order in which they
were drawn, so a number of rounds does the same on every machine, however fast its cores. Source: Shaw, "Using
Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems" (1998), for the scheme; the choice of
kinds follows Ropke and Pisinger (2006).

`Neighbours` chooses the tasks to set free next: kinds of neighbourhoods, their sizes, and how often each is drawn.
"""

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from solvers.base import AdaptiveKinds
from solvers.cpsat.exact import solve_small
from solvers.cpsat.window import ActivityTimeline, FreeTasks, ScheduleCut, Window, network_of, timeline_of
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

_FIRST, _LEAST = 20.0, 4.0
"""Tasks of a neighbourhood, at first and at least."""
_GROW, _SHRINK = 1.04, 0.96
"""How the size of a kind follows each of its neighbourhoods that was searched to its end, and each that was not."""
_EVEN = 0.2
"""Share of the draws that all kinds divide evenly."""
_NEAR = 4
"""Steps along edges up to which tasks are near each other."""

Draw = Callable[[ActivityTimeline, int, np.random.Generator], list[int]]
"""Chooses about so many tasks."""


class NeighbourhoodKind(NamedTuple):
    """One way to choose tasks."""

    draw: Draw
    moving: bool = True
    """True if their units may move, or only their order change."""
    pair: bool = False
    """True if only units at two of the locations may move, and only between these."""


def period(timeline: ActivityTimeline, size: int, rng: np.random.Generator) -> list[int]:
    """Return tasks that start one after the other, whatever their device."""
    order = sorted(range(timeline.tasks), key=timeline.rank)
    # As often at either end as anywhere else.
    first = int(rng.integers(-(size // 2), len(order) - size // 2))
    first = max(0, min(first, len(order) - size))
    return order[first : first + size]


def surroundings(timeline: ActivityTimeline, size: int, rng: np.random.Generator) -> list[int]:
    """Return tasks near a critical one, in time and along edges, by weights drawn anew each time."""
    n, centre = timeline.tasks, int(rng.choice(timeline.critical))
    middle = (np.array(timeline.start[:n]) + np.array(timeline.finish[:n])) / 2
    apart = np.abs(middle - middle[centre]) / max(1, timeline.makespan)
    steps = np.full(n, 2.0 * _NEAR)
    network, ring, seen = timeline.network, [centre], {centre}
    for step in range(_NEAR + 1):
        steps[ring] = step
        around = {j for i in ring for j, _ in (*network.inputs[i], *network.outputs[i])}
        ring = sorted(around - seen)
        seen.update(ring)
    score = rng.uniform(5.0, 40.0) * apart + rng.uniform(0.0, 1.0) * steps + 0.5 * rng.random(n)
    return np.argsort(score, kind="stable")[:size].tolist()


def relatives(timeline: ActivityTimeline, size: int, rng: np.random.Generator) -> list[int]:
    """Return all tasks of some units that exchange payloads, whenever they run: the way to move a group of tasks."""
    network = timeline.network
    seeds = timeline.critical if rng.random() < 0.5 else range(timeline.tasks)
    unit = network.unit[int(rng.choice(seeds))]
    found, units, border = list[int](), {unit}, [unit]
    while border and len(found) < size:
        unit = border.pop(int(rng.integers(len(border))))
        found += network.members[unit]
        around = {network.unit[j] for i in network.members[unit] for j, _ in (*network.inputs[i], *network.outputs[i])}
        border += sorted(around - units)
        units |= around
    return found


KINDS = {
    "period": NeighbourhoodKind(period),
    "pair": NeighbourhoodKind(period, pair=True),
    "order": NeighbourhoodKind(period, moving=False),
    "surroundings": NeighbourhoodKind(surroundings),
    "relatives": NeighbourhoodKind(relatives),
}


class Neighbours:
    """Draws neighbourhoods, more often of kinds that pay. The same seed and outcomes give the same draws."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        rates = (_GROW, _SHRINK)
        self.kinds = AdaptiveKinds(KINDS, self._rng, first=_FIRST, sizes=(_LEAST, math.inf), rates=rates, even=_EVEN)

    def draw(self, timeline: ActivityTimeline) -> tuple[str, FreeTasks]:
        """Return a kind and what it sets free; the timeline has a task."""
        places = sorted(set(timeline.at))
        name, size = self.kinds.draw([name for name in KINDS if len(places) > 2 or not KINDS[name].pair])
        kind = KINDS[name]
        tasks = frozenset(kind.draw(timeline, min(size, timeline.tasks), self._rng))
        if not kind.moving:
            return name, FreeTasks(tasks, frozenset())
        # The units that have a choice, and all of whose tasks are among these.
        network = timeline.network
        touched = {network.unit[i] for i in tasks}
        units = frozenset(u for u in touched if len(network.places[u]) > 1 and tasks.issuperset(network.members[u]))
        if not kind.pair:
            return name, FreeTasks(tasks, units)
        two = frozenset(self._rng.choice(places, 2, replace=False).tolist())
        there = frozenset(u for u in units if timeline.at[network.members[u][0]] in two)
        return name, FreeTasks(tasks, there, two)


EFFORT = 0.03
"""Deterministic seconds of CP-SAT a neighbourhood."""
_OVERHEAD = 0.003
"""Overhead of a neighbourhood beside CP-SAT, in CP-SAT's deterministic seconds."""

_LEAST_S = 0.02
"""Seconds that are too few for a search: CP-SAT has been seen to abort when it is stopped as it begins."""


class NeighbourhoodResult(NamedTuple):
    """The outcome of the search of one neighbourhood."""

    schedule: Schedule | None
    """A valid schedule, None where no better one was found."""
    closed: bool
    """True if the neighbourhood holds nothing better than this."""
    effort: float
    """Deterministic seconds that the search took."""


class Descent:
    """A search that starts at a valid schedule; `best` is the best so far, `effort` what it took."""

    def __init__(self, problem: Problem, start: Schedule, *, seed: int, lanes: int) -> None:
        self.best = rebuild(problem, start)
        self.effort, self.rounds, self.idle = 0.0, 0, 0
        self._problem, self._seed, self._lanes = problem, seed, lanes
        self._neighbours = Neighbours(seed)
        self._timeline = timeline_of(network_of(problem), self.best)

    def run(
        self,
        found: Callable[[Schedule], None],
        clock: Callable[[], float],
        over: Callable[[], bool] = lambda: False,
        rounds: int | None = None,
    ) -> None:
        """Search until `clock()`, in seconds, is used up, `over()`, or so many rounds are; `found` hears of the better.

        `idle` counts the rounds since the last that was better. `over` is asked by this thread alone and between rounds
        that are taken in order, so that it may look at `effort` and `idle` and still give the same answer again.
        """
        last = None if rounds is None else self.rounds + rounds
        pending: deque[tuple[str, Future[NeighbourhoodResult]]] = deque()
        with ThreadPoolExecutor(self._lanes) as lanes:
            while pending or (clock() > 0 and not over() and self.rounds != last):
                while len(pending) < self._lanes and clock() > 0 and not over() and self.rounds != last:
                    name, free = self._neighbours.draw(self._timeline)
                    seed = (self._seed + self.rounds) % 2**31
                    pending.append((name, lanes.submit(search, self._timeline, free, seed, clock)))
                    self.rounds += 1
                if not pending:  # the clock has run out meanwhile
                    break
                name, future = pending.popleft()
                outcome = future.result()
                better = outcome.schedule is not None and outcome.schedule.makespan < self.best.makespan
                self.idle = 0 if better else self.idle + 1
                self.effort += outcome.effort
                self._neighbours.kinds.learn(name, closed=outcome.closed, better=better, effort=outcome.effort)
                if outcome.schedule is not None and better:
                    self.best = outcome.schedule
                    self._timeline = timeline_of(self._timeline.network, self.best)
                    found(self.best)


def search(timeline: ActivityTimeline, free: FreeTasks, seed: int, clock: Callable[[], float]) -> NeighbourhoodResult:
    """Look for a schedule in a neighbourhood that is shorter than its centre."""
    cut, seconds = ScheduleCut(timeline, free), clock()
    if cut.floor >= timeline.makespan:
        return NeighbourhoodResult(None, True, _OVERHEAD)
    if seconds < _LEAST_S:
        return NeighbourhoodResult(None, False, 0.0)
    try:
        window = Window(cut, timeline.makespan - 1, clock)
    except TimeoutError:
        return NeighbourhoodResult(None, False, 0.0)
    limit_s = max(_LEAST_S, min(seconds, clock()))
    solver, status = solve_small(window.cp, effort=EFFORT, seconds=limit_s, seed=seed)
    schedule = None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        schedule = rebuild(timeline.network.problem, window.answer(solver.value))
    effort = _OVERHEAD + float(solver.deterministic_time)
    return NeighbourhoodResult(schedule, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE), effort)
