"""Windows: their problems say what is left of a plan, their answers make it no longer, and what is outside stays."""

from dataclasses import replace

import numpy as np
import pytest

from solvers import Limit, Options, Status, api
from solvers.base import SolveMonitor
from solvers.checker import check
from solvers.instances.random import EVERYTHING, Features, generate
from solvers.timing.replay import replay
from solvers.windows import solver as windows
from solvers.windows.excerpt import Span, excerpt_of, standing_of, tables_of
from solvers.windows.solver import Choices, Engine, WindowResult
from tests.oracles.exhaustive import exhaustive

ENGINES = ("cpsat", "highs", "cbc")
ONE_A_PLACE = Features(host=False, cores=False, lanes=False, memory=False)
"""Without cores to choose among, nor memory."""
WORSE = 7
"""A seed of a problem whose list schedule is not optimal."""


def listed(problem):
    """A plan to begin with."""
    return api.solve(problem, "list").schedule


def standing(problem):
    """The list schedule as it stands, first come, first served."""
    tables, start = tables_of(problem), listed(problem)
    return standing_of(tables, start.device, np.lexsort((tables.topological, start.finish, start.start)))


def apart(problem, start, seconds, seed):
    """CP-SAT on a window in a process of its own: this one may have TensorFlow, and OR-Tools dies beside it."""
    found = api.solve(problem, "cpsat", Options(seconds=seconds, workers=1, seed=seed, start=start))
    better = found.schedule if found.schedule.makespan < start.makespan else None
    return WindowResult(better, found.status is Status.OPTIMAL)


@pytest.fixture
def _apart(monkeypatch):
    monkeypatch.setattr(windows, "engine", lambda *_: Engine(apart, 5, 1))


def searched(problem, name, most):
    """The result of so many windows; the clock ends none of these."""
    told = []
    found = windows.WindowSearch(name, api.WINDOWS[name].package, most, 5).solve(
        problem, Options(seconds=600.0, workers=1, start=listed(problem)), told.append
    )
    return found, told


def without_links(seed, tasks, features):
    """A random problem where first come, first served costs nothing."""
    problem = generate(np.random.default_rng(seed), tasks=tasks, features=features)
    return replace(problem, path_links=np.full_like(problem.path_links, -1))


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_finds_the_optimum_in_a_window_of_all_tasks(name):
    """What enumeration finds; a list schedule is longer. It ends by itself, long before its limit."""
    problem = without_links(WORSE, 5, ONE_A_PLACE)
    start = listed(problem)
    found = api.improve(problem, name, Options(seconds=300.0, workers=1, start=start))
    assert found.schedule.makespan == exhaustive(problem).makespan < start.makespan


@pytest.mark.parametrize("seed", range(10))
def test_a_window_of_all_tasks_has_the_optimum(seed):
    """What is around it adds nothing and takes nothing: the way there and back is the optimum of the plan."""
    problem = without_links(seed, 5, ONE_A_PLACE)
    now = standing(problem)
    excerpt = excerpt_of(now, Span(np.arange(problem.tasks)))
    found = apart(excerpt.problem, excerpt.start, 60.0, 0)
    assert found.closed and excerpt.start.makespan == now.makespan
    best = excerpt.start if found.schedule is None else found.schedule
    assert best.makespan == exhaustive(problem).makespan
    device, order = excerpt.back(best, now)
    assert standing_of(now.tables, device, order).makespan == best.makespan


@pytest.mark.parametrize("seed", range(20))
def test_a_window_says_what_is_left_of_the_plan(seed):
    """Its own part of the plan is a schedule of it, as long as the plan from there on where a critical task is free."""
    problem = without_links(seed, 30, EVERYTHING)
    now = standing(problem)
    assert int((now.schedule.start + now.tail[: problem.tasks]).max()) == now.makespan
    for _ in range(4):
        _, span = Choices(seed, 8).draw(now)
        excerpt = excerpt_of(now, span)
        assert not check(excerpt.problem, excerpt.start)
        begin = int(now.schedule.start[excerpt.tasks].min())
        assert excerpt.start.makespan + begin <= now.makespan
        if np.isin(now.order[span.free], now.critical).any():
            assert excerpt.start.makespan + begin == now.makespan


@pytest.mark.parametrize("seed", range(10))
def test_what_is_outside_a_window_stays(seed):
    """Its tasks alone change place or device, whatever the engine says of them."""
    rng = np.random.default_rng(seed)
    problem = generate(rng, tasks=24)
    now = standing(problem)
    free = np.arange(8, 16)
    excerpt = excerpt_of(now, Span(free))
    found = api.solve(excerpt.problem, "single").schedule or excerpt.start
    device, order = excerpt.back(found, now)
    others = np.setdiff1d(np.arange(problem.tasks), now.order[free])
    assert (device[others] == now.schedule.device[others]).all()
    assert (order[:8] == now.order[:8]).all() and (order[16:] == now.order[16:]).all()
    assert sorted(order.tolist()) == list(range(problem.tasks))


@pytest.mark.usefixtures("_apart")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_plans_become_no_longer_and_are_runs(seed):
    """Each that is told is valid, shorter than the one before, within the memory, and what replaying it gives."""
    problem = generate(np.random.default_rng(100 + seed), tasks=40, gpus=3)
    start = listed(problem)
    found, told = searched(problem, "cpsat", 6)
    lengths = [progress.schedule.makespan for progress in told if progress.schedule is not None]
    assert found.schedule.makespan == lengths[-1] <= start.makespan
    assert lengths == sorted(set(lengths), reverse=True)
    assert not check(problem, found.schedule)
    order = np.lexsort((tables_of(problem).topological, found.schedule.finish, found.schedule.start))
    rank = np.argsort(order)
    if found.schedule.makespan < start.makespan:
        assert replay(problem, found.schedule.device, rank).makespan == found.schedule.makespan


def test_an_answer_that_a_later_plan_contradicts_is_left_out():
    """Two windows that overlap: the order of the second may wait for itself in what became of the first."""
    problem = generate(np.random.default_rng(5), tasks=12)
    watch = SolveMonitor(problem, Options(start=listed(problem)), lambda _: None, solver="x", version="")
    descent = windows._Descent(watch, Engine(apart, 5, 1), listed(problem), 5)
    before = descent._best
    backwards = before.order[::-1].copy()
    assert not descent._keep(before.schedule.device, backwards)
    assert descent._best is before


def test_windows_run_in_a_process_of_their_own_and_say_what_they_lack():
    """A start, an engine that there is; the result is a valid schedule that is no longer."""
    problem = generate(np.random.default_rng(1), tasks=30)
    start = listed(problem)
    found = api.improve(problem, "cpsat", Options(seconds=0.2, workers=1, start=start))
    assert found.status in (Status.FEASIBLE, Status.OPTIMAL) and found.schedule.makespan <= start.makespan
    assert found.limit in (Limit.TIME, Limit.GAP, Limit.NONE)
    for name, options in (("cpsat", Options()), ("list", Options(start=start))):
        with pytest.raises(ValueError, match="windows need a start and one of"):
            api.improve(problem, name, options)
