"""Every adapter of a MILP vendor on programs with known answers; each vendor in a process of its own."""

import functools
import importlib.util
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solvers.milp.linear import INFINITY, LinearBuilder
from solvers.milp.program_text import mps_file, write_mps
from solvers.milp.vendor import CallbackRelay, RunRequest
from solvers.milp.vendors import cbc
from solvers.milp.vendors.cbc import CbcLog

CASES = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "vendor_cases.py"
MODULES = {
    "cbc": "pulp", "cplex": "cplex", "gurobi": "gurobipy", "highs": "highspy", "scip": "pyscipopt",
}  # fmt: skip


@functools.cache
def cases(name):
    """What the vendor found in every case; one process for all tests."""
    paths = os.pathsep.join([str(CASES.parents[3]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(CASES), name, str(25)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths})
    return json.loads(done.stdout)


@pytest.fixture(params=[pytest.param(n, marks=[pytest.mark.matrix] * (n not in ("highs", "scip"))) for n in MODULES])
def found(request):
    """Each vendor that is installed."""
    if importlib.util.find_spec(MODULES[request.param]) is None:
        pytest.skip(f"{request.param} is not installed")
    return cases(request.param)


def test_agrees_with_enumeration(found):
    """Optimum, bounds and points of random programs: fixed, free and unbounded columns, ranges, empty rows."""
    assert found["disagreements"] == []


def test_no_bound_is_above_a_feasible_point(found):
    """On a program that HiGHS's presolve solves to 105.04: a schedule of 103 ticks is feasible, and so the bound."""
    point, run = found["presolve"]["point"], found["presolve"]["run"]
    assert (point["violation"], point["objective"]) == (0.0, 103.0)
    assert run["status"] == "optimal" and run["objective"] == pytest.approx(103.0, abs=1e-4)
    assert max([run["bound"], *run["bounds"]]) <= 103.0 + 1e-4


def test_relaxations_and_programs_without_rows(found):
    """A program of real columns alone, and one without rows, have their optimum, too."""
    assert found["real"] == [[], []]


def test_infeasible_and_unbounded_are_told_apart(found):
    """Infeasible in whole numbers only, infeasible in reals, and a cost that falls for ever, which is neither."""
    assert found["infeasible"] == ["infeasible", "infeasible"]
    assert found["unbounded"]["status"] == "unknown" and "no least value" in found["unbounded"]["detail"]


def test_a_warm_start_takes(found):
    """On a job shop of 10 x 8 that takes minutes, a moment's work is never worse than the start, and reaches it.

    Without the start, none but CPLEX and Gurobi comes near: its use is not an accident.
    """
    started, start = found["started"], found["start"]
    assert (started["status"], started["limit"]) == ("feasible", "time")
    assert started["objective"] <= start + 1e-6 and started["violation"] < 1e-5


def test_the_limit_is_said_and_the_bound_holds(found):
    """After a moment's work the bound is below the best known point, positive, and streamed before the end.

    So it is after half a second, whatever was found by then.
    """
    for run in (found["cold"], found["started"]):
        assert run["limit"] == "time"
        assert 490 < run["bound"] <= found["started"]["objective"]
        assert run["bounds"] and max(run["bounds"]) <= run["bound"] + 1e-2
    late = found["late"]
    assert late["limit"] == "time" and (late["bound"] or 0.0) <= found["started"]["objective"]


def test_the_gap_limit_ends_a_run(found):
    """The relaxation's bound of 493 is within 60 % of the start of 789, so nothing is left to do."""
    run = found["gap"]
    assert run["status"] == "optimal" or run["limit"] == "gap"
    assert 0 < run["objective"] - run["bound"] <= 0.6 * run["objective"]


def test_a_run_ends_when_enough_was_heard(found):
    """A listener that is content with the first news has a run of ten minutes end before them."""
    assert found["enough"]["seconds"] < 600.0
    assert found["enough"]["status"] in ("feasible", "unknown")


def test_two_runs_of_the_same_effort_are_the_same(found):
    """Half a second's work, measured without a clock, gives the same point and the same bound."""
    one, two = found["twice"]
    assert (one["status"], one["values"], one["bound"]) == (two["status"], two["values"], two["bound"])
    assert one["seconds"] < 600.0


def test_log_lines_arrive_whole(found):
    """The vendor's own lines are told, each by itself."""
    assert found["cold"]["lines"] > 5 and found["cold"]["multiline"] == 0


def test_what_a_listener_raises_is_raised_beyond_the_vendor(found):
    """An exception of the listener passes through no native code: it ends the run, and then is raised."""
    assert found["deaf"] == "BrokenPipeError: nobody listens"


@pytest.mark.parametrize("name", ["cplex", "gurobi"])
def test_a_licence_that_is_too_small_is_named_with_the_remedy(name):
    """The licence in the package takes 1000 or 2000 rows; beyond, one line says so before anything is solved."""
    pytest.importorskip(MODULES[name])
    text = cases(name)["large"]
    if not text:
        pytest.skip(f"{name} has a full licence here")
    assert text.startswith("UnavailableError: ") and "2560 rows" in text and "install a" in text


def test_incumbents_are_streamed(found):
    """What is found is told as it is found; CBC tells the point at its end only, and SCIP nothing of the start."""
    if found["vendor"] != "cbc":
        assert found["started"]["incumbents"] or found["cold"]["incumbents"]
        for run in (found["started"], found["cold"]):
            assert all(b <= a + 1e-6 for a, b in itertools.pairwise(run["incumbents"]))


def test_mps_names_bounds_and_ranges(tmp_path):
    """Markers around whole columns, explicit bounds, ranges, nothing for rows without bounds; exact numbers."""
    rows = LinearBuilder()
    x, y = rows.column(-INFINITY, 5.0, cost=1.0 / 3.0, integer=True), rows.column(-INFINITY, INFINITY)
    z, _ = rows.column(0.0, INFINITY), rows.column(2.0, 2.0)
    rows.row([(x, 1.0), (y, 0.1)], at_least=-1.0, at_most=3.0)
    rows.row([(z, 1.0)])
    rows.row([(z, 2.0), (x, 1.0)], at_most=4.0)
    rows.row([(y, 1.0)], at_least=2.5, at_most=2.5)
    write_mps(rows.linear(), tmp_path / "a.mps")
    assert (tmp_path / "a.mps").read_text().splitlines() == [
        "NAME program FREE",
        "ROWS", " N cost", " G r0", " L r2", " E r3",
        "COLUMNS",
        " m0 'MARKER' 'INTORG'", " c0 cost 0.3333333333333333", " c0 r0 1.0", " c0 r2 1.0", " m1 'MARKER' 'INTEND'",
        " c1 cost 0.0", " c1 r0 0.1", " c1 r3 1.0", " c2 cost 0.0", " c2 r2 2.0", " c3 cost 0.0",
        "RHS", " rhs r0 -1.0", " rhs r2 4.0", " rhs r3 2.5",
        "RANGES", " range r0 4.0",
        "BOUNDS", " MI b c0", " UP b c0 5.0", " FR b c1", " FX b c3 2.0",
        "ENDATA",
    ]  # fmt: skip


def test_the_folder_of_a_program_is_removed(tmp_path, monkeypatch):
    """Also when what used it fails."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = LinearBuilder()
    rows.binary()
    with pytest.raises(ZeroDivisionError), mps_file(rows.linear()) as file:
        assert file.exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def log_of(*lines):
    log = CbcLog()
    for line in lines:
        log.read(line)
    return log


def test_cbcs_bounds_are_read_without_what_rounding_added():
    """Bounds are printed rounded, maybe up: what is believed is less by a unit of the last digit, and no more."""
    log = log_of("Continuous objective value is 686.123 - 0.00 seconds")
    assert 686.123 - 0.01 < log.bound < 686.123 - 0.0005
    log.read("Cbc0010I After 0 nodes, 1 on tree, 6281 best solution, best possible 715.99959 (5.61 seconds)")
    assert 715.9995 < log.bound < 715.999585
    assert log_of("Lower bound:                    716.000").bound == pytest.approx(715.999, abs=1e-9)
    log.read("Lower bound:                    716.000")
    assert log.bound > 715.9995
    for none in ("1e+50 best solution, best possible 1e+50 (0.1 seconds)", "best possible -1.79769e+308 (0.1 seconds)"):
        assert log_of(f"Cbc0010I After 0 nodes, 1 on tree, {none}").bound == -math.inf


def test_cbcs_bounds_beyond_its_best_point_are_not_believed():
    """Once a cutoff is set, what CBC calls a bound holds for better points only."""
    log = log_of("Cbc0013I At root node, 0 cuts changed objective from 25 to 30 in 1 passes")
    assert log.bound == -math.inf
    log.read(
        "Cbc0005I Partial search - best objective 28 (best possible 30), took 5 iterations and 3 nodes (1 seconds)"
    )
    assert 27.99 < log.bound <= 28


def test_cbcs_end_is_read():
    """The start that was taken, the limit that ended the run, the proof, the last words."""
    log = log_of("Cbc0045I MIPStart provided solution with cost 6281", "Cbc0020I Exiting on maximum time", "")
    assert (log.start, log.stopped, log.proven, log.last) == (6281.0, True, False, "Cbc0020I Exiting on maximum time")
    assert log_of("Result - Optimal solution found").proven
    assert not log_of("Result - Optimal solution found (within gap tolerance)").stopped


@pytest.mark.parametrize("said", ["Integer infeasible - objective value 18.0", "Infeasible - objective value 18.0"])
def test_cbcs_infeasible_is_not_believed_at_its_limit(said, tmp_path):
    """Early in the limit it is; near its end, however short the limit, and beside a start, it may mean anything."""
    rows = LinearBuilder()
    rows.column(0.0, 1.0, cost=1.0, integer=True)
    (tmp_path / "solution.txt").write_text(f"{said}\n")

    def status(seconds, start):
        ask = RunRequest(seconds=seconds, gap=0.0, seed=0, threads=1, start=start)
        return cbc._outcome(rows.linear(), ask, tmp_path, cbc._CbcRun(CallbackRelay(ask, Ear()), CbcLog(), 0)).status

    assert status(600.0, None) == "infeasible"
    assert [status(0.003, None), status(0.0, None), status(600.0, np.zeros(1))] == ["unknown"] * 3


class Ear:
    """Hears lines and bounds."""

    enough = False

    def __init__(self):
        self.lines, self.bounds = [], []

    def incumbent(self, values):
        raise AssertionError(values)

    def bound(self, objective):
        self.bounds.append(objective)

    def line(self, text):
        self.lines.append(text)


def test_cbc_that_closes_its_output_and_stays_is_ended(tmp_path, monkeypatch):
    """What has nothing more to say but does not end is waited for a while, then killed, and no exception escapes."""
    monkeypatch.setattr("solvers.milp.vendors.cbc._KILL_S", 0.2)
    relay = CallbackRelay(RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None), Ear())
    patience = cbc._StopPolicy(relay, CbcLog(), by_clock=True)
    assert cbc._follow(["sh", "-c", "exec >/dev/null 2>&1; exec sleep 60"], tmp_path, patience).code == -signal.SIGKILL
    assert relay.remaining > 100


def test_cbc_that_does_not_start_leaves_no_terminal_open(tmp_path):
    """Both ends of the terminal are closed when there is no such program."""
    relay = CallbackRelay(RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None), Ear())
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    with pytest.raises(FileNotFoundError):
        cbc._follow(["/nowhere/cbc"], tmp_path, cbc._StopPolicy(relay, CbcLog(), by_clock=True))
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def test_highs_does_not_run_beside_one_that_was_left_behind():
    """While another run holds HiGHS's threads, one of 0.2 s never begins and is left behind; the next one is well."""
    assert cases("highs")["beside"] == [[True, "unknown"], [False, "optimal"]]


def test_a_relay_cuts_lines_and_keeps_only_better_bounds():
    """Pieces become lines, an unfinished one is told at the end; bounds only rise, infinite ones are none."""
    ear = Ear()
    relay = CallbackRelay(RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None), ear)
    assert [relay.write(text) for text in ("one\ntw", "o", "\n\nth")] == [["one"], [], ["two", ""]]
    for bound in (-math.inf, 3.0, 2.0, 1e20, math.nan, 4.0):
        relay.bound(bound)
    relay.check()
    assert (ear.lines, ear.bounds, relay.best_bound) == (["one", "two", "", "th"], [3.0, 4.0], 4.0)
    relay.incumbent(np.zeros(1))
    assert relay.done and relay.stop and relay.remaining > 100
    with pytest.raises(AssertionError):
        relay.check()


def test_a_vendor_that_ignores_its_limit_is_left_behind(monkeypatch):
    """A call that sleeps past the limit is no longer waited for, nor heard."""
    monkeypatch.setattr("solvers.milp.vendor.GRACE_S", 0.1)
    import threading

    ear, woken = Ear(), threading.Event()
    relay = CallbackRelay(RunRequest(seconds=0.1, gap=0.0, seed=0, threads=1, start=None), ear)
    assert not relay.ends(lambda: woken.wait(600))
    relay.bound(1.0)
    woken.set()
    assert ear.bounds == []
    prompt = CallbackRelay(RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None), ear)
    assert prompt.ends(lambda: prompt.bound(2.0)) and ear.bounds == [2.0]
    with pytest.raises(ZeroDivisionError):
        prompt.ends(lambda: 1 / 0)
