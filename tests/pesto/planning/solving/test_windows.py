"""Windows in a solve: none makes a plan longer, what goes wrong in them loses none, and what engines did adds up."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.planning.solving import exact, search
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.exact import WindowTurns
from pesto.planning.solving.flow import solve
from pesto.planning.solving.tracker import ENGINES, ContributionLedger
from pesto.reporting.show.solve_report import contribution_keys, contribution_lines
from solvers import Limit, Progress, Result, Status
from solvers.checker import check

QUICK = Settings(time_limit_s=1, coarsen_to=20, solver="list")


@pytest.fixture
def begun(case):
    """Turns of search, and all on one GPU to begin with."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    bench = CandidateEvaluator.of(graph, problem)
    start = bench.placed("any", "", np.ones(60, dtype=np.int64)).timeline.schedule
    return WindowTurns(bench, problem, replace(QUICK, solver="cpsat", workers=1)), start


def ended(status, limit=Limit.NONE, schedule=None):
    """What an engine may come back with."""
    return Result(status=status, limit=limit, schedule=schedule, lower_bound=0, seconds=0.0, solver="x", version="")


def test_a_turn_of_windows_finds_shorter_plans(begun):
    """From all on one GPU it soon has a shorter one, which is valid and priced, however long it may go on."""
    turns, start = begun
    found = turns.turn(start, 600.0, rate=0.0)
    first = next(found)
    found.close()
    assert first.name == "windows" and first.makespan < start.makespan and first.turns is not None
    assert not check(turns.evaluator.problem, first.timeline.schedule)


def test_windows_that_gain_more_than_annealing_weigh_more(begun, monkeypatch):
    """As much more after each turn as they gained more a second."""
    turns, start = begun
    better = turns.evaluator.placed("any", "", 1 + np.arange(60) % 2).timeline.schedule

    def improve(_problem, _name, _options, report, **_told):
        report(Progress(schedule=better, lower_bound=0, seconds=0.0))
        return ended(Status.FEASIBLE, Limit.TIME, better)

    monkeypatch.setattr(exact.api, "improve", improve)
    before = turns.weight
    assert [each.name for each in turns.turn(start, 1.0, rate=0.0)] == ["windows"]
    assert better.makespan < start.makespan and turns.weight > before


def test_windows_that_gain_less_than_annealing_weigh_less(begun, monkeypatch):
    """Down to a least weight, from which they can come back."""
    turns, start = begun
    monkeypatch.setattr(exact.api, "improve", lambda *_, **__: ended(Status.FEASIBLE, Limit.TIME, start))
    weights = [turns.weight]
    for _ in range(6):
        assert not list(turns.turn(start, 1.0, rate=1.0))
        weights.append(turns.weight)
    assert weights == sorted(weights, reverse=True) and weights[1] < weights[0] and weights[-1] > 0


@pytest.mark.parametrize("status", [Status.MISSING, Status.CRASHED, Status.HUNG])
def test_an_engine_that_fails_is_a_warning_and_the_end_of_windows(begun, monkeypatch, caplog, status):
    """No package, a crash: annealing goes on alone."""
    turns, start = begun
    monkeypatch.setattr(exact.api, "improve", lambda *_, **__: ended(status))
    with caplog.at_level(logging.WARNING, logger="pesto"):
        assert not list(turns.turn(start, 1.0, rate=0.0))
    assert turns.weight == 0 and "windows by cpsat failed" in caplog.text


def test_an_interruption_of_windows_ends_the_search(begun, monkeypatch):
    """Ctrl-C, which the engine's process heard of: nothing further is begun."""
    turns, start = begun
    monkeypatch.setattr(exact.api, "improve", lambda *_, **__: ended(Status.UNKNOWN, Limit.INTERRUPT))
    with pytest.raises(KeyboardInterrupt):
        list(turns.turn(start, 1.0, rate=0.0))


def test_an_interruption_while_an_answer_is_taken_in_ends_the_search(begun, monkeypatch):
    """The engine has ended by itself, so its result tells of none."""
    turns, start = begun

    def struck(_running):
        raise KeyboardInterrupt

    monkeypatch.setattr(exact.api, "improve", lambda *_, **__: ended(Status.FEASIBLE, Limit.TIME, start))
    monkeypatch.setattr(exact.SolverThread, "schedules", struck)
    with pytest.raises(KeyboardInterrupt):
        list(turns.turn(start, 1.0, rate=0.0))


def test_there_are_none_when_deterministic_and_the_solver_chooses_the_engine(case):
    """A clock ends them; a solver that has none of its own gets CP-SAT."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    bench = CandidateEvaluator.of(graph, problem)
    assert WindowTurns(bench, problem, replace(QUICK, deterministic=True)).weight == 0
    for solver, engine in (("list", "cpsat"), ("highs", "highs"), ("cbc", "cbc"), ("cpsat", "cpsat")):
        assert exact.engine_of(replace(QUICK, solver=solver)) == engine


def test_a_solve_alternates_and_its_plan_is_no_longer_than_any_candidate(case, monkeypatch):
    """Windows have a turn, from the best plan; what they find is a candidate of its own."""
    asked = []

    def improve(_problem, name, options, **_told):
        asked.append((name, options.start.makespan))
        return ended(Status.FEASIBLE, Limit.TIME, options.start)

    monkeypatch.setattr(exact.api, "improve", improve)
    monkeypatch.setattr(search, "walk_all", lambda *_: iter(()))
    found = solve(*case, replace(QUICK, time_limit_s=600), lambda _: None)
    others = [c.makespan for c in found.candidates.values() if c and c.fits]
    assert asked and {name for name, _ in asked} == {"cpsat"}
    assert found.plan.schedule.makespan <= min(*others, *(start for _, start in asked))
    assert any(one.engine == "windows" and one.solver == "cpsat" for one in found.contributions)


@pytest.mark.parametrize("settings", [QUICK, replace(QUICK, placement_only=True), replace(QUICK, search=False)])
def test_what_engines_gained_adds_up_to_the_plan(case, settings):
    """The first plan's ticks, less all gains, are the plan's; every engine is known, and none took time backwards."""
    found = solve(*case, replace(settings, deterministic=True), lambda _: None)
    assert found.first - sum(one.gained for one in found.contributions) == found.plan.schedule.makespan
    assert {one.engine for one in found.contributions} <= set(ENGINES)
    assert all(one.cpu_s >= 0 and (one.gained >= 0 or one.engine == "choice") for one in found.contributions)
    raised = {one.engine: one.raised for one in found.contributions}
    assert raised["bounds"] <= found.plan.provenance.lower_bound_ticks


def test_a_ledger_counts_whose_turn_it_was():
    """Seconds inside are one engine's alone; a candidate's name says whose gain it is."""
    ledger = ContributionLedger(lambda _: None)
    with ledger.at("search"):
        with ledger.at("windows"):
            ledger.found("list", 100)
            ledger.found("windows", 90)
        ledger.found("search", 70)
    ledger.raised("bounds", 5)
    found = {one.engine: one for one in ledger.of(71, {"windows": "cbc"})}
    assert ledger.first == 100
    gained = {name: one.gained for name, one in found.items()}
    assert gained == {"list": 0, "windows": 10, "annealing": 20, "choice": -1, "bounds": 0}
    assert found["bounds"].raised == 5 and found["windows"].solver == "cbc"
    keys = contribution_keys(100, list(found.values()))
    assert keys["first_s"] == 100 * TICK_S
    assert keys["engines"][1] == {
        "engine": "annealing", "solver": None, "gained_s": 20 * TICK_S, "bound_raised_s": 0.0,
        "cpu_s": pytest.approx(0, abs=1),
    }  # fmt: skip
    gains, spent = (" ".join(line.split()) for line in contribution_lines(100, list(found.values())))
    assert "gained from 0.10 µs on: annealing 0.02 µs, windows (cbc) 0.01 µs" in gains and "choice -0.00 µs" in gains
    assert "windows (cbc) 0.0" in spent and spent.startswith("CPU seconds")
