"""What every solver of the table keeps when it is cut short, killed, stopped, or not there."""

import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from solvers import api
from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler, SingleDevice
from solvers.heuristics.methods import PLACERS
from solvers.instances.plain import lstm_grid
from solvers.process import parent
from solvers.result import Limit, Options, Status

REPRESENTATIVES = ("cpsat", "highs")
"""Of the solvers with a process of their own, those that the default run takes to keep the whole contract."""


def rows(names, mark=pytest.mark.matrix, default=REPRESENTATIVES):
    """A parameter for each solver: skipped where it is not installed, marked where it is not of the default run."""
    why_not = {row.name: row.why_not for row in api.available()}
    skipped = {name: pytest.mark.skipif(bool(why), reason=why) for name, why in why_not.items()}
    others = {name for name in names if api.SOLVERS[name].isolated and name not in default}
    return [pytest.param(name, marks=[skipped[name]] + [mark] * (name in others)) for name in names]


ISOLATED = [name for name, row in api.SOLVERS.items() if row.isolated]
MILP = [name for name in ISOLATED if api.SOLVERS[name].formulations]
LASTING = [name for name in ISOLATED if name not in PLACERS]
"""Those that go on until something ends them."""
MODULES = {
    "cbc": "pulp",
    "cpsat": "ortools",
    "cpsat-windows": "ortools",
    "search": "ortools",
    "gurobi": "gurobipy",
    "m-sct": "ortools",
    "metis": "pymetis",
    "scip": "pyscipopt",
}
"""Modules of the packages, where the solver itself is not called so; HiGHS's is highspy."""
LIMITED = ("cplex", "gurobi")
"""Their packages bring a licence for small programs."""
TINY, SMALL, LARGE = lstm_grid(1, 2), lstm_grid(2, 2), lstm_grid(2, 6)
"""Proven at once; 12 tasks, within every vendor's licence; 32 tasks, which no MILP solver solves in a second."""
LONG = lstm_grid(3, 8)
"""56 tasks, which no MILP solver solves in half a minute."""


def start_of(problem, scheduler):
    found = scheduler.solve(problem, Options(), lambda _: None).schedule
    assert found is not None and not check(problem, found)
    return found


def ran(result):
    """Whether it ran at all; a licence may be too small for the program."""
    if result.status is Status.MISSING:
        assert result.solver in LIMITED and "install" in result.detail
    return result.status is not Status.MISSING


@pytest.mark.parametrize("name", rows(api.SOLVERS))
def test_a_second_is_never_worse_than_the_start(name):
    """On 32 tasks it ends of itself after a second, and what comes back is valid and no worse than the start."""
    start = start_of(LARGE, ListScheduler())
    result = api.solve(LARGE, name, Options(seconds=1.0, start=start))
    assert result.schedule is not None and result.schedule.makespan <= start.makespan
    assert not check(LARGE, result.schedule) and result.lower_bound <= result.schedule.makespan
    if ran(result):
        assert result.status in (Status.FEASIBLE, Status.OPTIMAL)
        # A heuristic ends of itself; an exact solver says what kept it from a proof.
        exact = name not in ("list", "single", *PLACERS)
        assert not exact or result.status is Status.OPTIMAL or result.limit is not Limit.NONE


@pytest.mark.parametrize("formulation", ["tight", pytest.param("paper", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", rows(MILP))
def test_schedules_bounds_and_lines_are_streamed(name, formulation):
    """Reports improve: shorter schedules, higher bounds with a name, and the vendor's own lines."""
    start, heard, stop = start_of(SMALL, SingleDevice()), [], threading.Event()

    def report(progress):
        heard.append(progress)
        if sum(len(p.log) for p in heard) > 100 and any(p.schedule for p in heard):
            stop.set()  # or else when it is solved

    options = Options(seconds=20.0, start=start, formulation=formulation)
    result = api.solve(SMALL, name, options, report=report, stop=stop)
    assert ran(result) and result.schedule is not None and result.schedule.makespan <= start.makespan
    schedules = [p.schedule for p in heard if p.schedule]
    assert all(not check(SMALL, s) for s in schedules)
    lengths = [s.makespan for s in schedules]
    assert lengths == sorted(lengths, reverse=True) and all(length < start.makespan for length in lengths)
    bounds = [p.lower_bound for p in heard]
    assert bounds == sorted(bounds) and bounds[-1] <= result.lower_bound <= result.schedule.makespan
    assert all(p.bound_by for p in heard if p.lower_bound)
    lines = [line for p in heard for line in p.log]
    assert len(lines) > 5 and all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", rows(["cpsat", *MILP], default=()))
def test_deterministic_runs_are_the_same(name):
    """The same seed and the same effort give the same devices, starts and bound, whether proven or not."""
    options = Options(seconds=8.0, deterministic=True, seed=3, start=start_of(SMALL, SingleDevice()))
    one, two = (api.solve(SMALL, name, options) for _ in range(2))
    if "not repeatable" in one.detail + two.detail:  # it owns up where the clock was first: then what is proven at once
        options = Options(seconds=600.0, deterministic=True, seed=3)
        one, two = (api.solve(TINY, name, options) for _ in range(2))
        assert one.status is Status.OPTIMAL
    assert (one.status, one.lower_bound) == (two.status, two.lower_bound)
    assert one.schedule is not None and two.schedule is not None
    for field in ("device", "start", "sent_payload", "sent_start"):
        assert np.array_equal(getattr(one.schedule, field), getattr(two.schedule, field))


@pytest.fixture
def guards(monkeypatch):
    """The processes that were started."""
    started, popen = [], subprocess.Popen

    def recording(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(parent.subprocess, "Popen", recording)
    return started


class Clock:
    """Stands still until it is told to run; then an hour goes by at every look."""

    def __init__(self):
        self.now, self.hours = 0.0, 0

    def __call__(self):
        self.now += 3600.0 * self.hours
        return self.now


def child_of(guard):
    """The process that solves: the one child of the one that cleans up."""
    (child,) = Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
    return int(child)


def left(group):
    """What runs in a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except (OSError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize(
    ("signum", "status", "detail"),
    [(signal.SIGKILL, Status.CRASHED, "killed by SIGKILL"), (signal.SIGSTOP, Status.HUNG, "no answer within")],
    ids=["crash", "hang"],
)
@pytest.mark.parametrize("name", rows(LASTING, pytest.mark.kill, default=["cpsat"]))
def test_a_crash_and_a_hang_have_their_status(name, signum, status, detail, guards, tmp_path, monkeypatch):
    """Killed or stopped at its first report, a solver leaves its status and the start, no process and no file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    clock = Clock()
    monkeypatch.setattr(parent, "CLOCK", clock)
    problem = SMALL if name in LIMITED else LARGE
    start = start_of(problem, SingleDevice())

    def report(_progress):
        if not clock.hours:
            os.kill(child_of(guards[0]), signum)
            clock.hours = signum == signal.SIGSTOP

    result = api.solve(problem, name, Options(seconds=600.0, start=start), report=report)
    assert (result.status, result.detail[: len(detail)]) == (status, detail)
    assert result.schedule is not None and result.schedule.makespan <= start.makespan
    assert left(guards[0].pid) == []


@pytest.mark.parametrize("name", rows([n for n in LASTING if n not in LIMITED], pytest.mark.kill, default=["cpsat"]))
def test_an_interrupted_run_leaves_no_process_and_no_file(name, guards, tmp_path, monkeypatch):
    """Ended early in a long run, CBC while its files are there: they are gone with it, and the best so far is kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    start, stop, files = start_of(LONG, SingleDevice()), threading.Event(), set()

    def report(progress):
        files.update(file.name for file in tmp_path.rglob("*"))
        if name != "cbc" or any("Continuous objective" in line for line in progress.log):
            stop.set()

    result = api.solve(LONG, name, Options(seconds=60.0, start=start), report=report, stop=stop)
    assert (result.limit, result.schedule is not None) == (Limit.INTERRUPT, True)
    assert result.schedule.makespan <= start.makespan
    assert name != "cbc" or {"program.mps", "start.txt"} <= files
    assert left(guards[0].pid) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [n for n, entry in api.SOLVERS.items() if entry.package])
def test_a_package_that_is_not_installed_is_named(name, monkeypatch):
    """Nothing is started; the detail is the command that installs it, and the start is the result's schedule."""
    package, version = api.SOLVERS[name].package, importlib.metadata.version

    def missing(distribution):
        if distribution == package:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return version(distribution)

    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.metadata.version", missing)
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None if module == package else found(module))
    monkeypatch.setenv("PATH", "/nowhere")  # CBC may lie there without a package
    start = start_of(SMALL, SingleDevice())
    result = api.solve(SMALL, name, Options(seconds=1.0, start=start))
    assert (result.status, result.schedule) == (Status.MISSING, start)
    assert result.detail == f"{name} needs the package {package} - pip install {package}"


@pytest.mark.parametrize("name", rows(ISOLATED, default=["cbc", "cpsat"]))
def test_a_package_that_does_not_load_is_missing(name, tmp_path, monkeypatch):
    """A package whose import fails has the same status, with what the import said."""
    module = MODULES.get(name, "highspy" if name == "highs" else name)
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('{module} needs libmissing.so')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    result = api.solve(SMALL, name, Options(seconds=600.0))
    assert (result.status, result.schedule) == (Status.MISSING, None)
    assert ("libmissing.so" if name != "cbc" else "no CBC for this machine - pip install") in result.detail
