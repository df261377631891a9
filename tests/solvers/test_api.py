"""The table of solvers and its one entrance: every solver of the table keeps the same contract."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exhaustive import exhaustive

from solvers import api
from solvers.base import SolverEntry
from solvers.checker import check
from solvers.heuristics.methods import PLACERS
from solvers.instances.plain import chain, fork
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Limit, Options, Status
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

STUBS = Path(__file__).resolve().parents[2] / "tests" / "solvers" / "stubs"
WHY_NOT = {row.name: row.why_not for row in api.available() if row.name not in PLACERS}
"""Placement methods promise no optimum, not even of a chain: test_methods.py says what they keep."""
EVERY = [pytest.param(n, marks=pytest.mark.skipif(bool(why), reason=why)) for n, why in WHY_NOT.items()]
REPRESENTATIVES = ("auto", "cpsat", "highs", "list", "single")
"""Those that every contract is held against by default; the others by what they all must prove, and by `matrix`."""
SOME = [
    p if p.values[0] in REPRESENTATIVES else pytest.param(*p.values, marks=[*p.marks, pytest.mark.matrix])
    for p in EVERY
]
HEURISTICS = ["list", "single"]
LONG = Options(seconds=600)
"""For what is proven in moments, however busy the machine is."""


def edited(problem, **fields):
    names = ("duration", "location", "memory", "capacity", "src", "dst", "payload", "producer", "transfer")
    names += ("path_class", "path_links", "group")
    return Problem(**({name: getattr(problem, name) for name in names} | fields))


def all_on(problem, device):
    """Everything on one device."""
    none = np.zeros(0, dtype=np.int64)
    at = np.full(problem.tasks, device)
    sent = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    return rebuild(problem, Schedule(device=at, start=at * 0, finish=at * 0, **sent))


@pytest.mark.parametrize("name", SOME)
def test_a_chain_stays_on_one_device(name):
    """A chain of 4 tasks of 1 tick takes 4 ticks, which the critical path proves for every solver."""
    result = api.solve(chain(4), name, LONG)
    assert result.schedule is not None and not check(chain(4), result.schedule)
    assert (result.status, result.schedule.makespan, result.lower_bound, result.gap) == (Status.OPTIMAL, 4, 4, 0.0)
    assert result.solver == name


@pytest.mark.parametrize("name", SOME)
def test_one_task(name):
    """One task takes its own duration on its faster device: 3 of (5, 3)."""
    result = api.solve(edited(chain(1), duration=[[5, 3]]), name, LONG)
    assert result.schedule is not None
    assert (result.status, result.schedule.makespan, result.schedule.device[0]) == (Status.OPTIMAL, 3, 1)


@pytest.mark.parametrize("name", SOME)
def test_no_task(name):
    """A problem without tasks has an empty optimal schedule of 0 ticks."""
    result = api.solve(chain(0), name, LONG)
    assert result.schedule is not None and (result.status, result.schedule.makespan) == (Status.OPTIMAL, 0)


@pytest.mark.parametrize("name", EVERY)
def test_no_edges(name):
    """Independent tasks of 3, 3, 2, 2, 2 ticks: 12 in all, so 6 on each of two devices is optimal, 12 on one."""
    none = np.zeros(0, dtype=np.int64)
    problem = edited(
        chain(5), duration=np.array([[3, 3], [3, 3], [2, 2], [2, 2], [2, 2]]), src=none, dst=none, payload=none
    )
    result = api.solve(problem, name, LONG)
    assert result.schedule is not None and not check(problem, result.schedule) and 6 <= result.schedule.makespan <= 12
    assert name in HEURISTICS or (result.status, result.schedule.makespan) == (Status.OPTIMAL, 6)


@pytest.mark.parametrize("name", SOME)
def test_forbidden_devices(name):
    """Tasks 0 and 2 of a chain need device 0, task 1 device 1: 1 + 1 + 1 ticks and two transfers of 2."""
    duration = np.array([[1, FORBIDDEN], [FORBIDDEN, 1], [1, FORBIDDEN]])
    problem = edited(chain(3, transfer=2), duration=duration)
    result = api.solve(problem, name, LONG)
    if result.schedule is None:
        # "single" has no answer where no location can hold everything.
        assert name == "single" and result.status is Status.UNKNOWN
    else:
        assert (result.status, result.schedule.makespan) == (Status.OPTIMAL, 7)


@pytest.mark.parametrize("name", SOME)
def test_infeasible_memory(name):
    """Three tasks of 4 bytes do not fit two locations of 5 bytes: infeasible for all, and the detail says why."""
    problem = edited(chain(3), memory=[4, 4, 4], capacity=[5, 5])
    result = api.solve(problem, name, LONG)
    assert (result.status, result.schedule) in ((Status.INFEASIBLE, None), (Status.UNKNOWN, None))
    assert result.status is Status.INFEASIBLE or name == "single"
    assert result.detail


@pytest.mark.parametrize("name", SOME)
def test_zero_time(name):
    """With no time at all, the start is returned; without one, a schedule or nothing, but no failure."""
    problem = fork(6)
    assert api.solve(problem, name, Options(seconds=0)).status in (Status.OPTIMAL, Status.FEASIBLE, Status.UNKNOWN)
    result = api.solve(problem, name, Options(seconds=0, start=all_on(problem, 0)))
    assert result.schedule is not None and result.schedule.makespan <= 6


@pytest.mark.parametrize("name", SOME)
def test_never_worse_than_the_start_nor_better_than_the_optimum(name):
    """On random problems the result lies between the optimum and the start, and reports only improve on the start."""
    for seed in range(3):
        problem = generate(np.random.default_rng(seed), tasks=5)
        start = exhaustive(problem)
        assert start is not None
        heard = []
        result = api.solve(problem, name, Options(seconds=1, start=start), report=heard.append)
        assert result.schedule is not None and result.schedule.makespan == start.makespan
        assert all(p.schedule is None for p in heard) and all(p.lower_bound <= start.makespan for p in heard)


def test_unknown_name_is_an_error_with_a_suggestion():
    """A misspelt name is answered with the names there are and the nearest of them."""
    with pytest.raises(ValueError, match=r"'cp-sat'; there are .*cpsat, .*did you mean cpsat"):
        api.solve(chain(1), "cp-sat", LONG)


def test_an_invalid_start_is_an_error():
    """A start that overlaps is refused before anything runs."""
    good = all_on(chain(3), 0)
    bad = replace(good, start=good.start * 0, finish=good.finish * 0 + 1)
    with pytest.raises(ValueError, match=r"options.start is not a valid schedule"):
        api.solve(chain(3), "cpsat", Options(start=bad))


def test_available_names_versions_and_remedies(monkeypatch):
    """Every row is listed with its version; one whose package is missing with the command that installs it."""
    monkeypatch.setitem(
        api.SOLVERS, "gone", SolverEntry(module="x", attribute="X", isolated=True, package="no-such-vendor")
    )
    found = {row.name: row for row in api.available()}
    assert list(found) == list(api.SOLVERS)
    assert found["cpsat"].version is not None and found["cpsat"].version.startswith("9.")
    assert (found["gone"].version, found["gone"].why_not) == (
        None, "gone needs the package no-such-vendor - pip install no-such-vendor",
    )  # fmt: skip
    missing = api.solve(chain(3), "gone", Options(start=all_on(chain(3), 0)))
    assert (missing.status, missing.schedule is not None) == (Status.MISSING, True)
    assert api.solve(chain(3), "gone", LONG).schedule is None


@pytest.fixture
def here(monkeypatch):
    """Adds a stub to the table, to be run in this process."""
    monkeypatch.syspath_prepend(str(STUBS))

    def add(stub):
        monkeypatch.setitem(api.SOLVERS, "stub", SolverEntry(module="bad_solvers", attribute=stub, isolated=False))

    return add


def test_an_interruption_within_compiled_code_is_no_crash(here):
    here("Struck")
    result = api.solve(fork(6), "stub", Options(seconds=1, start=all_on(fork(6), 0)))
    assert (result.limit, result.status) == (Limit.INTERRUPT, Status.FEASIBLE)


@pytest.mark.parametrize(
    ("stub", "status", "detail"),
    [
        ("Honest", Status.FEASIBLE, ""),
        ("Raises", Status.CRASHED, "ZeroDivisionError: the vendor's bug"),
        ("Overlaps", Status.INVALID, "an invalid schedule: "),
        ("BoundTooHigh", Status.INVALID, "a lower bound of 7 above"),
        ("FalselyOptimal", Status.INVALID, "optimal with makespan 6 but lower bound 1"),
        ("MissingPackage", Status.CRASHED, "ModuleNotFoundError: No module named 'no_such_vendor'"),
    ],
)
def test_solvers_in_this_process_are_judged_the_same(here, stub, status, detail):
    """The project's own solvers run without a process; what they claim is checked all the same."""
    here(stub)
    start = all_on(fork(6), 0)
    result = api.solve(fork(6), "stub", Options(seconds=1, start=start))
    assert (result.status, result.detail[: len(detail)]) == (status, detail)
    assert result.schedule is not None and result.schedule.makespan == 6


def test_an_interrupt_keeps_the_best_of_a_solver_in_this_process(here, monkeypatch):
    """Ctrl-C during a heuristic is a result with what was streamed before."""
    here("Raises")
    import bad_solvers

    def interrupted(self, problem, report):
        raise KeyboardInterrupt

    monkeypatch.setattr(bad_solvers.Raises, "fail", interrupted)
    result = api.solve(fork(6), "stub", LONG)
    assert (result.status, result.limit) == (Status.FEASIBLE, Limit.INTERRUPT)
    assert result.schedule is not None and result.schedule.makespan == 6


def test_what_the_callers_report_raises_is_the_callers(here):
    """An exception of the caller's own report is not taken for a crash of the solver."""
    here("Honest")

    def report(progress):
        raise BrokenPipeError("nobody listens")

    with pytest.raises(BrokenPipeError, match="nobody listens"):
        api.solve(fork(6), "stub", LONG, report=report)
    with pytest.raises(BrokenPipeError, match="nobody listens"):
        api.solve(fork(6), "cpsat", LONG, report=report)
