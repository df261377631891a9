"""Large-neighbourhood search: neighbourhoods of a schedule are searched by CP-SAT, better schedules are kept.

Several neighbourhoods are searched at a time, one a thread, and their outcomes are taken in in the order in which they
were drawn, so a number of rounds does the same on every machine, however fast its cores. Source: Shaw, "Using
Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems" (1998), for the scheme; the choice of
kinds follows Ropke and Pisinger (2006).
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from solvers.cpsat.cut import FreeTasks, ScheduleCut
from solvers.cpsat.neighbours import Neighbours
from solvers.cpsat.timeline import ActivityTimeline, network_of, timeline_of
from solvers.cpsat.window import Window
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

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
                self._take(name, future.result(), found)

    def _take(self, name: str, outcome: NeighbourhoodResult, found: Callable[[Schedule], None]) -> None:
        better = outcome.schedule is not None and outcome.schedule.makespan < self.best.makespan
        self.idle = 0 if better else self.idle + 1
        self.effort += outcome.effort
        self._neighbours.learn(name, closed=outcome.closed, better=better, effort=outcome.effort)
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
    solver = _solver(seed, max(_LEAST_S, min(seconds, clock())))
    found = solver.solve(window.cp)
    if found == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {window.cp.validate()}")
    schedule = None
    if found in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        schedule = rebuild(timeline.network.problem, window.answer(solver.value))
    effort = _OVERHEAD + float(solver.deterministic_time)
    return NeighbourhoodResult(schedule, found in (cp_model.OPTIMAL, cp_model.INFEASIBLE), effort)


def _solver(seed: int, seconds: float) -> Any:
    solver = cp_model.CpSolver()
    p = solver.parameters
    p.num_workers = 1
    p.random_seed = seed
    p.max_deterministic_time = EFFORT
    p.max_time_in_seconds = seconds
    # Measured on 50 neighbourhoods of five problems at equal effort: 36 are searched to their end, 27 by default.
    p.linearization_level = 0
    p.cp_model_probing_level = 0
    p.use_precedences_in_disjunctive_constraint = False
    return solver
