"""A limit is a limit: no engine is begun without need, none is waited for past its time, and annealing comes first."""

import math
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pesto.core.settings import Settings
from pesto.planning.solving import background_compiler, exact, flow, quick_candidates, search, tracker
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.exact import SolverThread, WindowTurns
from pesto.planning.solving.flow import EarlierPlans, solve
from pesto.planning.solving.tracker import Deadlines
from solvers import Limit, Options, Progress, Result, Status
from solvers.bounds.evidence import FullBound
from solvers.result import NOT_BEGUN

SETTINGS = Settings(time_limit_s=600, coarsen_to=20)


@pytest.fixture
def engines(monkeypatch):
    """Who was begun, in order; exact engines and walks find nothing and take no time."""
    begun = []

    def engine(name):
        def run(_problem, _solver, options, **_told):
            begun.append(name)
            return answer(Status.FEASIBLE, Limit.TIME, options.start)

        return run

    def walk(*_):
        begun.append("walks")
        return iter(())

    monkeypatch.setattr(exact.api, "solve", engine("exact"))
    monkeypatch.setattr(exact.api, "solve_whole", engine("exact"))
    monkeypatch.setattr(exact.api, "improve", engine("windows"))
    monkeypatch.setattr(search, "walk_all", walk)
    return begun


@pytest.fixture
def quick_methods(monkeypatch):
    """`quick_candidates.run_heuristic` as it is, whatever `engines` does to the table's `solve`."""
    found = quick_candidates.api.solve
    for room in (quick_candidates,):
        monkeypatch.setattr(
            room, "run_heuristic", lambda problem, name, **seconds: found(problem, name, Options(**seconds))
        )


def answer(status, limit=Limit.NONE, schedule=None, detail=""):
    """What an engine may come back with."""
    return Result(
        status=status, limit=limit, schedule=schedule, lower_bound=0, seconds=0.0, solver="x", version="", detail=detail
    )


def nobody(incumbent):
    """Watch when nobody does."""


def test_no_engine_is_begun_once_the_gap_is_met(case, quick_methods, engines, monkeypatch):
    """At a gap of 99 % every plan is good enough: no exact solver, no walk, no stronger bound."""
    monkeypatch.setattr(exact, "full_bound", lambda *_, **__: engines.append("bounds"))
    for settings in (SETTINGS, replace(SETTINGS, coarsen_to=200), replace(SETTINGS, deterministic=True)):
        found = solve(*case, replace(settings, gap=0.99), nobody)
        assert engines == [] and found.exact is None


@pytest.mark.parametrize("coarsen_to", [20, 200], ids=["coarse", "whole"])
def test_annealing_has_its_share_before_the_exact_solver(case, quick_methods, engines, coarsen_to):
    """Then the exact solver, then the other rounds; counted work keeps the order that its plans were made in."""
    solve(*case, replace(SETTINGS, coarsen_to=coarsen_to), nobody)
    assert engines[:3] == ["walks", "exact", "walks"]
    engines.clear()
    solve(*case, replace(SETTINGS, coarsen_to=coarsen_to, deterministic=True), nobody)
    assert engines[:2] == ["exact", "walks"]


def test_an_engine_that_never_began_is_not_begun_again(case, quick_methods, engines, monkeypatch):
    """Windows would ask for the same process once more."""
    late = answer(Status.UNKNOWN, Limit.INTERRUPT, detail=NOT_BEGUN)
    monkeypatch.setattr(
        exact.SolverThread, "schedules", lambda running: setattr(running, "_cut", Limit.TIME) or iter(())
    )
    monkeypatch.setattr(exact.api, "solve", lambda *_, **__: late)
    found = solve(*case, SETTINGS, nobody)
    assert found.exact is not None and found.exact.useless and found.exact.result.limit is Limit.TIME
    assert "windows" not in engines and engines.count("walks") > 1 and not found.interrupted


class Patient:
    """An engine that ends when it is told to, and says as what."""

    def __init__(self):
        self.told = False

    def __call__(self, _problem, _solver, _options, *, stop, report):
        report(Progress(schedule=None, lower_bound=1, seconds=0.0))
        self.told = stop.wait(600)
        return answer(Status.UNKNOWN, Limit.INTERRUPT)


@pytest.fixture
def problem(case):
    graph, cluster, costs = case
    return formulate(graph, costs, cluster, SETTINGS)


def test_an_engine_is_ended_once_the_gap_is_met(problem):
    """Which no interruption is: a solve goes on."""
    engine = Patient()
    with SolverThread(problem, "x", Options(seconds=600), by=engine, enough=lambda: True) as running:
        assert not list(running.schedules())
    assert engine.told and not running.interrupted
    assert (running.result().limit, running.result().status) == (Limit.GAP, Status.UNKNOWN)


def test_an_engine_is_ended_when_its_time_is_over(problem, monkeypatch):
    """A second after it should have ended by itself; a deterministic one is waited for."""
    now = iter([0.0, 10.0, 10.9, 11.0])
    monkeypatch.setattr(exact, "CLOCK", lambda: next(now, 11.0))
    engine = Patient()
    with SolverThread(problem, "x", Options(seconds=10), by=engine) as running:
        assert not list(running.schedules())
    assert engine.told and running.result().limit is Limit.TIME
    monkeypatch.setattr(exact, "CLOCK", lambda: 1e9)
    ended = answer(Status.UNKNOWN, Limit.TIME)
    with SolverThread(problem, "x", Options(seconds=10, deterministic=True), by=lambda *_, **__: ended) as running:
        assert not list(running.schedules())
    assert running.result() is ended


def test_an_engine_without_a_process_that_does_not_end_is_left(problem, monkeypatch):
    """No one can end it; it is as good as hung, and what comes after it begins."""
    clock, gone = iter(range(0, 10_000, 5)), threading.Event()
    monkeypatch.setattr(exact, "CLOCK", lambda: float(next(clock)))
    monkeypatch.setattr(exact, "_GRACE_S", 0.01)

    def deaf(*_, **__):
        gone.wait(600)
        return answer(Status.UNKNOWN)

    with SolverThread(problem, "x", Options(seconds=10), by=deaf) as running:
        assert not list(running.schedules())
    assert (running.result().status, running.result().detail) == (Status.HUNG, "no answer within 10 s")
    gone.set()


def test_windows_end_once_the_gap_is_met(case, problem, monkeypatch):
    """The engine is told to end, and search is not interrupted."""
    bench = CandidateEvaluator.of(case[0], problem)
    start = bench.placed("any", "", np.ones(60, dtype=np.int64)).timeline.schedule
    engine = Patient()
    monkeypatch.setattr(exact.api, "improve", engine)
    turns = WindowTurns(bench, problem, SETTINGS, lambda: True)
    assert not list(turns.turn(start, 600.0, rate=0.0)) and engine.told and turns.weight > 0


def test_a_bound_that_is_late_is_neither_waited_for_nor_taken(case, problem, make_tracker, monkeypatch):
    """The time is over: the plan is written with the bound that there is, and no other comes afterwards."""
    go, there = threading.Event(), threading.Event()

    def slow(*_, **__):
        go.wait(600)
        return FullBound(10**6, "late")

    kept = make_tracker(CandidateEvaluator.of(case[0], problem), SETTINGS)
    kept.deadlines = Deadlines(SETTINGS, spent_s=600.0)
    monkeypatch.setattr(exact, "full_bound", slow)
    monkeypatch.setattr(kept, "strengthen", lambda *_, **__: there.set())
    with exact.strengthen_bound(kept):
        pass
    go.set()
    while any(thread.name == "bounds" for thread in threading.enumerate()):
        time.sleep(0.01)
    assert not there.is_set()


def test_what_was_used_before_is_of_the_limit(monkeypatch):
    """10 s before it began and 10 since then; then what the end takes is kept."""
    clock = [100.0]
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])
    kept = Deadlines(replace(SETTINGS, time_limit_s=70.0), spent_s=10.0)
    clock[0] = 110.0
    assert (kept.left_s, kept.used_s) == (50.0, 20.0)
    kept.measure_closing()
    kept.keep_closing()
    assert kept.left_s == 40.0
    clock[0] = 145.0
    kept.keep_closing()
    assert kept.left_s == 1.0
    clock[0] = 200.0
    assert kept.left_s == 0.0
    kept.keep_closing()
    assert kept.left_s == 1.0


class Compiler:
    """Compiles a part each time that somebody looks, a minute after the one before."""

    standing = ""

    def __init__(self, clock, parts):
        self.clock, self._todo, self.done = clock, list(parts), set()

    def need(self, *parts, late=lambda: False):
        """Let time go by until parts are there, or it is late."""
        while not self.done.issuperset(parts):
            if late():
                return False
            self.clock[0] += 60.0
            self.done.add(self._todo.pop(0))
        return True

    def lacks(self, *parts):
        """Return whether one of them is not there."""
        return not self.done.issuperset(parts)


PARTS = (
    *background_compiler.FIRST,
    "metis",
    "list",
    "pardnn",
    "etf",
    "m-etf",
    *background_compiler.COARSE,
    *background_compiler.SEARCH,
)
RULES = {"single", "expert", "layer-balanced"}


@pytest.fixture
def compiler(monkeypatch):
    """A compiler of PARTS whose clock is the solve's."""
    clock = [0.0]
    found = Compiler(clock, PARTS)
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])
    monkeypatch.setattr(tracker, "HURRY_S", 1.0)
    for room in (tracker, quick_candidates):
        monkeypatch.setattr(room, "shared_compiler", lambda: found)
    return found


@pytest.mark.parametrize(
    ("minutes", "made"),
    [
        (3, RULES),
        (8, RULES | {"list", "pardnn"}),
        (10, RULES | {"list", "pardnn", "levels"}),
        (40, RULES | {"list", *quick_candidates.RIVALS, "levels", "coarse"}),
    ],
)
def test_nothing_is_compiled_past_its_share_of_the_limit(case, quick_methods, engines, compiler, minutes, made):
    """What the first plan needs comes before the limit, a minute a part; methods that would be late are left out."""
    found = solve(*case, replace(SETTINGS, time_limit_s=60.0 * minutes), nobody)
    assert {name for name, candidate in found.candidates.items() if candidate is not None} == made
    assert "compiling" in found.stages_s and compiler.clock[0] <= 60.0 * (len(background_compiler.FIRST) + minutes)
    assert found.compiled == bool(engines) == ("coarse" in made)
    assert any("compiling took" in remark for remark in found.remarks) != found.compiled


def test_what_is_not_compiled_is_said_also_where_no_time_is_left(case, compiler):
    """One GPU, and the next solve has more."""
    found = solve(*case, SETTINGS, nobody, EarlierPlans(spent_s=math.inf))
    assert not found.compiled and compiler.done == set(background_compiler.FIRST)


def test_compiling_is_waited_for_without_a_plan(case, quick_methods, compiler, make_cluster):
    """However late it is: nothing fits one GPU, and what could fit is still to be compiled."""
    graph, cluster, costs = case[0], make_cluster(memory=5 * 10**6), case[2]
    bench = CandidateEvaluator.of(graph, formulate(graph, costs, cluster, SETTINGS))
    found = list(quick_candidates.baselines(bench, cluster, tracker.BaselineLimits(late=lambda: True)))
    assert [c.name for c in found if c.name == "single"] and not any(c.fits for c in found if c.name == "single")
    assert "list" in compiler.done and "pardnn" not in compiler.done


@pytest.mark.slow
def test_quick_candidates_leave_time_to_engines(case, quick_methods, engines, monkeypatch):
    """Their share is over at once: what a solve needs is made, nothing else; with counted work, or no time, all is."""
    monkeypatch.setattr(Deadlines, "past", lambda _deadlines, share: share < 1)
    found = solve(*case, SETTINGS, nobody)
    made = {name for name, candidate in found.candidates.items() if candidate is not None}
    assert made == {"single", "list", "levels", "coarse"} and "walks" in engines
    monkeypatch.undo()
    for settings in (replace(SETTINGS, deterministic=True, time_limit_s=1), replace(SETTINGS, time_limit_s=0)):
        found = solve(*case, replace(settings, search=False, solver="list"), nobody)
        assert all(found.candidates[name] is not None for name in quick_candidates.RIVALS)


def test_a_share_of_the_limit_is_past_when_more_of_it_is_over(monkeypatch):
    """26 of 100 s are more than a quarter; of no seconds nothing is ever over."""
    clock = [0.0]
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])
    monkeypatch.setattr(tracker, "HURRY_S", 1.0)
    limits = (100.0, SETTINGS), (0.0, SETTINGS), (100.0, replace(SETTINGS, deterministic=True))
    kept, none, counted = (Deadlines(replace(settings, time_limit_s=limit_s)) for limit_s, settings in limits)
    clock[0] = 26.0
    assert kept.past(0.25) and not kept.past(0.5)
    monkeypatch.setattr(tracker, "HURRY_S", 27.0)
    assert not kept.past(0.25)
    clock[0] = 50.0
    assert kept.past(0.25) and not none.past(0.25) and not counted.past(0.25)


def test_a_limit_that_is_over_ends_a_solve_with_a_plan(case, quick_methods, engines, monkeypatch):
    """The clock is hours further after the first rule: nothing follows, no engine, no draws of errors."""
    clock, rule = [0.0], quick_candidates.expert
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])

    def slow(*given):
        clock[0] = 36000.0
        return rule(*given)

    monkeypatch.setattr(quick_candidates, "expert", slow)
    found = solve(*case, SETTINGS, nobody)
    made = {name for name, candidate in found.candidates.items() if candidate is not None}
    assert made == {"single", "expert"} and engines == [] and "coarsen" not in found.stages_s
    assert found.plan.makespan_s > 0 and found.trust is None


@pytest.mark.parametrize(("used_s", "least_s"), [(10.0, 45.0), (20.0, 40.0), (50.0, 25.0), (100.0, 0.0)])
def test_a_list_schedule_has_half_of_what_is_left_of_the_limit(
    case, quick_methods, engines, monkeypatch, used_s, least_s
):
    """Its passes end then, and all are made where work is counted."""
    clock, given = [0.0], []
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])
    monkeypatch.setattr(tracker, "HURRY_S", 1.0)
    whole = quick_candidates.run_heuristic

    def noted(problem, name, **options):
        given.extend([options["seconds"]] if name == "list" and options else [])
        return whole(problem, name, **options)

    monkeypatch.setattr(quick_candidates, "run_heuristic", noted)
    solve(*case, replace(SETTINGS, time_limit_s=100.0), nobody, EarlierPlans(spent_s=used_s))
    assert given[0] == least_s
    solve(*case, replace(SETTINGS, deterministic=True, time_limit_s=1.0), nobody)
    assert given[-1] == math.inf


def test_a_few_draws_are_made_where_little_time_is_left(case, quick_methods, engines, monkeypatch):
    """Less than half of what was kept for the end."""
    monkeypatch.setattr(Deadlines, "is_hurried", True)
    found = solve(*case, SETTINGS, nobody)
    assert found.trust is not None and found.trust.draws == 32


@pytest.mark.parametrize("fits", [False, True])
def test_a_repair_counts_the_processors_time_where_no_plan_fits(case, make_cluster, monkeypatch, fits):
    """However much time passes on a busy machine; where a plan fits, what is left of the limit ends it."""
    graph, cluster, costs = case[0], make_cluster(memory=4 * 10**6), case[2]
    bench = CandidateEvaluator.of(graph, formulate(graph, costs, cluster, SETTINGS))
    over = replace(next(quick_candidates.baselines(bench, cluster)), name="list")
    assert not over.fits
    best = SimpleNamespace(makespan=math.inf) if fits else None
    deadlines = SimpleNamespace(left_s=0.0, spent=lambda _: False)
    solving = SimpleNamespace(
        best=best, candidates={"list": over}, deadlines=deadlines, settings=SETTINGS, evaluator=bench
    )
    asked = []
    monkeypatch.setattr(time, "perf_counter", lambda: 1e3 * len(asked))
    monkeypatch.setattr(quick_candidates, "relieve", lambda *_, late, **__: asked.append(late) or StopIteration)
    with pytest.raises(AttributeError):  # nothing is repaired
        next(quick_candidates.repairs(solving))
    assert asked[0]() == fits


def test_the_target_is_made_in_one_step_where_time_is_short(problem, monkeypatch):
    """From the largest size; those between are left out."""
    monkeypatch.setattr(quick_candidates, "SIZES", (50, 40, 30))
    made = [(stepwise, each.target) for stepwise, each in quick_candidates._ladder(problem, SETTINGS, lambda: True)]
    assert made == [(True, 50), (True, 20)]


def test_what_is_kept_for_the_end_is_not_used(monkeypatch):
    """Seconds that are used are those since the limit began, whatever is kept."""
    clock = [0.0]
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])
    monkeypatch.setattr(tracker, "HURRY_S", 1.0)
    kept = Deadlines(replace(SETTINGS, time_limit_s=100.0))
    clock[0] = 45.0
    kept.measure_closing()
    kept.keep_closing()
    assert (kept.used_s, kept.left_s) == (45.0, 15.0) and not kept.past(0.5)
    clock[0] = 101.0
    assert kept.past(1.0)
    kept.keep_closing()
    assert (kept.used_s, kept.left_s) == (101.0, 1.0)


def test_an_exact_solver_that_nothing_follows_leaves_time_to_end_it(case, quick_methods, monkeypatch):
    """Of ten minutes without search it has a second less."""
    asked = []

    def engine(_problem, _solver, options, **_):
        asked.append(options.seconds)
        return answer(Status.FEASIBLE, Limit.TIME, options.start)

    monkeypatch.setattr(tracker, "CLOCK", lambda: 0.0)
    monkeypatch.setattr(exact.api, "solve", engine)
    solve(*case, replace(SETTINGS, search=False), nobody)
    assert asked == [600.0 - exact.LATE_S]


def test_a_plan_alone_is_made_where_all_time_was_used_before(case, quick_methods, engines):
    """The plan that is given, carried over, and one GPU."""
    first = solve(*case, replace(SETTINGS, time_limit_s=0), nobody)
    engines.clear()
    found = solve(*case, SETTINGS, nobody, EarlierPlans(start=first.plan, spent_s=math.inf))
    assert {name for name, candidate in found.candidates.items() if candidate is not None} == {"start", "single"}
    assert engines == [] and found.plan.schedule.makespan <= first.plan.schedule.makespan


@pytest.mark.parametrize(("solver", "begun"), [("cpsat", []), ("list", ["exact"])])
def test_no_engine_is_begun_where_it_would_hardly_start(case, quick_methods, engines, monkeypatch, solver, begun):
    """Coarse graphs took 400 of 600 s to make, so neither a process nor walks are; a heuristic needs no process."""
    clock = [0.0]
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])
    monkeypatch.setattr(tracker, "HURRY_S", 1.0)

    def slow(*given):
        made = yield from quick_candidates.multilevel(*given)
        clock[0] += 400.0
        return made

    monkeypatch.setattr(flow, "multilevel", slow)
    found = solve(*case, replace(SETTINGS, solver=solver), nobody)
    assert engines == begun and found.stages_s["coarsen"] == 400.0


def test_no_walk_begins_once_its_start_took_the_time(case, quick_methods, engines, monkeypatch):
    """The graphs to walk on took ten hours to make."""
    clock, make = [0.0], search.SearchGraphs
    monkeypatch.setattr(tracker, "CLOCK", lambda: clock[0])

    def slow(*given):
        clock[0] += 36000.0
        return make(*given)

    monkeypatch.setattr(search, "SearchGraphs", slow)
    solve(*case, SETTINGS, nobody)
    assert "walks" not in engines
