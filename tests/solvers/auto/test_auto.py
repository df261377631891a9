"""The portfolio: engines share what they find, failures are dropped and named, and it ends when it should."""

import os
import signal
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from exhaustive import exhaustive

from solvers import api, base
from solvers.auto import portfolio
from solvers.auto.portfolio import Auto
from solvers.base import Progress, SolveMonitor
from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import lstm_grid
from solvers.instances.random import generate
from solvers.result import Limit, Options, Result, Status

GRID = lstm_grid(2, 3)  # 17 tasks of 3 ticks on two GPUs


def answer(options, **fields):
    """What an engine gives back that found nothing new within its limit."""
    status = Status.FEASIBLE if options.start else Status.UNKNOWN
    given = {"status": status, "limit": Limit.TIME, "schedule": options.start, "lower_bound": options.lower_bound}
    return Result(**(given | {"seconds": 0.0, "solver": "fake", "version": "1", "bound_by": "given"} | fields))


class Clock:
    """A second goes by where an engine takes one."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock of the race; that which ends what ignores its limit is far off."""
    clock = Clock()
    monkeypatch.setattr(portfolio, "time", clock)
    monkeypatch.setattr(base, "time", clock)
    monkeypatch.setattr(portfolio, "_GRACE_S", 3600.0)
    return clock


@pytest.fixture
def engines(monkeypatch, clock):
    """Engines that are functions of their options, in place of the real ones; all legs are recorded."""
    legs, table = [], {}

    def solve(problem, name, options, *, report, stop):
        legs.append((name, options))
        return table[name](problem, options, report, stop)

    monkeypatch.setattr(portfolio.api, "solve", solve)
    monkeypatch.setattr(portfolio, "_LEAST_S", 0.1)
    monkeypatch.setattr(portfolio, "arguments", lambda _, options, **__: answer(options, limit=Limit.OTHER))
    return legs, table


@pytest.fixture
def says(clock):
    """Makes an engine that answers the same in every leg, after a tenth of a second."""

    def engine(given, problem, options, report, stop):
        clock.now += 0.1
        return answer(options, **given)

    return lambda **given: partial(engine, given)

    return engine


def nothing(told):
    """Hears, or does, nothing."""


def run(names, problem=GRID, report=None, **options):
    """The portfolio's own result for engines of these names, on two lanes' worth of engines and one lane."""
    told = [] if report is None else report
    return Auto(engines=names, cores=2).solve(problem, Options(**({"seconds": 2.0} | options)), told.append)


def test_it_agrees_with_the_oracle():
    """On random problems of five tasks the real portfolio proves the optimum that exhaustive search finds."""
    for seed in range(3):
        problem = generate(np.random.default_rng(seed), tasks=5)
        best, found = exhaustive(problem), api.solve(problem, "auto", Options(seconds=600))
        assert best is not None and found.schedule is not None and not check(problem, found.schedule)
        assert (found.status, found.schedule.makespan) == (Status.OPTIMAL, best.makespan)


def test_every_leg_starts_with_the_best_of_all(engines, says, monkeypatch):
    """One engine finds a schedule, the other a bound; the next legs of both are given both."""
    legs, table = engines
    better = ListScheduler().solve(GRID, Options(), nothing).schedule
    monkeypatch.setattr(portfolio, "_first_schedule", nothing)
    assert better is not None
    bound = better.makespan - 1
    table |= {"finds": says(schedule=better, status=Status.FEASIBLE), "proves": says(lower_bound=bound, bound_by="it")}
    found = run(("finds", "proves"))
    assert (found.schedule, found.lower_bound, found.bound_by) == (better, bound, "it")
    assert {name for name, _ in legs[:2]} == {"finds", "proves"} and len(legs) > 2
    assert all(o.start is better and o.lower_bound == bound for _, o in legs[2:])


def test_the_last_seed_is_followed_by_the_first(engines, says):
    """Every leg has a seed of its own, and each of them is one that a solver can be given."""
    legs, table = engines
    table["finds"] = says(status=Status.FEASIBLE)
    run(("finds",), seed=2**31 - 1)
    assert [options.seed for _, options in legs[:2]] == [2**31 - 1, 0]


def test_news_within_a_leg_end_all_once_the_gap_is_closed(engines):
    """A bound that meets the best schedule stops the engine that waits in the other lane, within a moment."""
    _, table = engines

    def proves(problem, options, report, stop):
        assert options.start is not None
        return answer(options, lower_bound=options.start.makespan, bound_by="proof")

    def waits(problem, options, report, stop):
        assert stop.wait(600)
        return answer(options, limit=Limit.INTERRUPT)

    table |= {"waits": waits, "proves": proves}
    found = Auto(engines=("waits", "proves"), cores=4).solve(GRID, Options(seconds=20), nothing)
    assert (found.status, found.bound_by) == (Status.OPTIMAL, "proof")


def test_failed_engines_are_dropped_and_named(engines, says):
    """One crashes and one is missing: neither runs again, the list schedule stands, the detail names both."""
    legs, table = engines
    table["bad"] = says(status=Status.CRASHED, limit=Limit.OTHER, detail="boom")
    table["gone"] = says(status=Status.MISSING, limit=Limit.OTHER, detail="needs gone")
    found = run(("bad", "gone"))
    assert [name for name, _ in legs] == ["bad", "gone"]
    assert found.status is Status.FEASIBLE and found.detail == "bad crashed: boom; gone missing: needs gone"


@pytest.mark.parametrize(("names", "status"), [(("one", "two"), Status.INFEASIBLE), (("one",), Status.UNKNOWN)])
def test_infeasible_needs_two_engines(engines, says, monkeypatch, names, status):
    """One engine's word alone leaves it unknown; two of them are believed."""
    _, table = engines
    monkeypatch.setattr(portfolio, "_first_schedule", nothing)
    denies = says(status=Status.UNKNOWN, limit=Limit.UNCONFIRMED, schedule=None)
    table |= {"one": denies, "two": denies}
    assert run(names).status is status


def test_ctrl_c_stops_every_engine(engines):
    """KeyboardInterrupt leaves the portfolio only after its engines were told to stop."""
    _, table = engines
    stopped = threading.Event()

    def waits(problem, options, report, stop):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        if stop.wait(600):
            stopped.set()
        return answer(options)

    table["waits"] = waits
    with pytest.raises(KeyboardInterrupt):
        run(("waits",), seconds=20)
    assert stopped.is_set()


def test_whoever_gave_it_an_event_can_end_it(engines):
    """Once the event is set every engine is told to stop, long before the limit; the best schedule is kept."""
    _, table = engines
    stop, stopped = threading.Event(), threading.Event()

    def waits(problem, options, report, told):
        stop.set()
        if told.wait(600):
            stopped.set()
        return answer(options, limit=Limit.INTERRUPT)

    table["waits"] = waits
    found = Auto(engines=("waits",), cores=2).until(stop).solve(GRID, Options(seconds=600), nothing)
    assert stopped.is_set() and found.schedule is not None


def test_the_callers_own_error_ends_it(engines):
    """What the caller's report raises comes back to the caller, after the race has stopped."""
    _, table = engines

    def proves(problem, options, report, stop):
        report(Progress(schedule=options.start, lower_bound=0, seconds=0.0, log=("x",)))
        return answer(options)

    def report(told):
        if told.log:
            raise ZeroDivisionError

    table["proves"] = proves
    with pytest.raises(ZeroDivisionError):
        Auto(engines=("proves",), cores=2).solve(GRID, Options(seconds=2), report)


def test_who_runs_next(engines, says):
    """Those without a leg first; then the one that gained most in a second; deterministic runs take turns instead."""
    _, table = engines
    for options, second in ((Options(seconds=9), "slow"), (Options(seconds=9, deterministic=True), "quick")):
        watch = SolveMonitor(GRID, options, nothing, solver="auto", version="1")
        runs = portfolio.EngineRace(watch, ("quick", "slow"))
        table |= {"quick": says(), "slow": says()}
        assert [runs._take(), runs._take()] == ["quick", "slow"]
        runs._idle += ["quick", "slow"]
        for name, seconds, gain in (("quick", 1.0, 0.1), ("slow", 2.0, 0.4)):
            runs._legs.append(portfolio.EngineRun(engine=name, allowed=seconds, seconds=seconds, gain=gain))
        assert runs._take() == second


def test_a_stop_from_another_thread_interrupts_a_process():
    """The event that is set half a second after the start ends a run of ten minutes, with the start kept."""
    grid, stop = lstm_grid(4, 10, gpus=4), threading.Event()
    start = api.solve(grid, "list", Options()).schedule
    assert start is not None
    threading.Timer(0.5, stop.set).start()
    found = api.solve(grid, "cpsat", replace(Options(seconds=600), start=start), stop=stop)
    assert found.limit is Limit.INTERRUPT and found.schedule is not None


def test_the_bound_of_an_engine_that_fails_is_not_shared(engines, says):
    """One streams a bound that would end all, and crashes; the other is given the bound of before."""
    legs, table = engines

    def lies(problem, options, report, stop):
        report(Progress(schedule=None, lower_bound=options.start.makespan, seconds=0.0, bound_by="lies"))
        return answer(options, status=Status.CRASHED, limit=Limit.OTHER, lower_bound=options.start.makespan)

    table |= {"lies": lies, "honest": says()}
    found = run(("lies", "honest"))
    assert found.bound_by != "lies" and found.status is Status.FEASIBLE and "lies crashed" in found.detail
    assert len({options.lower_bound for _, options in legs}) == 1 and legs[-1][0] == "honest"


def test_an_engine_that_hangs_leaves_time_for_the_next(engines, says):
    """The first leg of six seconds gets half of what is left while another engine has not run."""
    legs, table = engines
    table |= {"one": says(), "two": says()}
    run(("one", "two"), seconds=0.4)
    assert legs[0][1].seconds == pytest.approx(0.2, rel=0.5) and {name for name, _ in legs[:2]} == {"one", "two"}


def test_the_clock_stops_what_ignores_its_limit(engines, monkeypatch):
    """An engine that waits for ever is stopped a moment after the limit of the whole."""
    _, table = engines
    monkeypatch.setattr(portfolio, "_GRACE_S", 0.1)

    def deaf(problem, options, report, stop):
        assert stop.wait(600)
        return answer(options, limit=Limit.INTERRUPT)

    table["deaf"] = deaf
    assert run(("deaf",), seconds=0.2).limit is Limit.TIME
