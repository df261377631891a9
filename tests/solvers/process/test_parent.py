"""Solvers that crash, hang, lie and leave children: each gives exactly its status, and nothing is left running."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from solvers.base import SolverEntry
from solvers.checker import check
from solvers.instances.plain import fork
from solvers.process import parent as process
from solvers.process import wire
from solvers.process.judge import Judge
from solvers.result import NOT_BEGUN, Limit, Options, Status
from solvers.schedule import Schedule

STUBS = Path(__file__).resolve().parents[1] / "stubs"

# fork(6): task 0, four tasks, a join, one tick each. On one GPU it takes 6 ticks, on two 5: three of the four beside
# the first (until 4), the fourth on the other GPU (sent 1-2, run 2-3, sent back 3-4), the join 4-5.
SERIAL = 6
PROBLEM = fork(6)


def serial() -> Schedule:
    at = np.arange(6)
    none = np.zeros(0, dtype=np.int64)
    empty = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    return Schedule(device=at * 0, start=at, finish=at + 1, **empty)


class Clock:
    """Stands still, so that nothing is hung because the machine is busy, until so much goes by at every look."""

    def __init__(self):
        self.now, self.step = 0.0, 0.0

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """What patience is counted by."""
    monkeypatch.setattr(process, "GRACE_S", 5.0)
    monkeypatch.setattr(process, "CLOCK", clock := Clock())
    return clock


@pytest.fixture
def groups(monkeypatch, clock):
    """The process groups that were started; the stubs can be imported there, and what is to be killed is so at once."""
    started = []
    popen = subprocess.Popen

    def recording(*args, **kwargs):
        child = popen(*args, **kwargs)
        started.append(child.pid)
        return child

    monkeypatch.setattr(process.subprocess, "Popen", recording)
    monkeypatch.setattr(process, "TERM_GRACE_S", 0.05)
    monkeypatch.setenv("PYTHONPATH", str(STUBS))
    return started


def run(stub, options=None, memory_bytes=None, report=None, module="bad_solvers"):
    options = options or Options(seconds=5.0)
    judge = Judge(PROBLEM, options, report or [].append, solver="stub", version="1")
    return process.run(PROBLEM, SolverEntry(module=module, attribute=stub, isolated=True), options, judge, memory_bytes)


def alive(group):
    """The processes of a group, zombies aside."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except (OSError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def state(pid):
    """The letter of /proc, "Z" also for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def running(pid):
    return state(pid) != "Z"


TABLE = [
    ("Honest", Status.FEASIBLE, ""),
    ("Segfaults", Status.CRASHED, "killed by SIGSEGV: about to fall"),
    ("Aborts", Status.CRASHED, "killed by SIGABRT"),
    ("Killed", Status.CRASHED, "killed by SIGKILL"),
    ("Raises", Status.CRASHED, "exit code 1: ZeroDivisionError: the vendor's bug"),
    ("ExitsSilently", Status.CRASHED, "exit code 0, without an answer"),
    ("Prints", Status.FEASIBLE, ""),
    ("WritesGarbage", Status.INVALID, "malformed output"),
    ("Overlaps", Status.INVALID, "an invalid schedule"),
    ("StreamsOverlap", Status.INVALID, "an invalid schedule"),
    ("BoundTooHigh", Status.INVALID, "a lower bound of 7 above the makespan 6"),
    ("StreamsBoundTooHigh", Status.INVALID, "a lower bound of 1000000000 above the makespan 6"),
    ("FalselyOptimal", Status.INVALID, "optimal with makespan 6 but lower bound 1"),
    ("AnswersNothing", Status.INVALID, 'status "feasible" without a schedule'),
]


@pytest.mark.parametrize(("stub", "status", "detail"), TABLE)
def test_each_failure_has_its_status(groups, stub, status, detail):
    """Every stub streams the serial schedule before it fails: its status is the table's, the schedule is kept."""
    result = run(stub)
    assert (result.status, result.detail[: len(detail)]) == (status, detail)
    assert result.schedule is not None and result.schedule.makespan == SERIAL
    assert not check(PROBLEM, result.schedule)
    assert alive(groups[0]) == []


def hung(clock, stub, **given):
    """The result of a stub whose patience is over once it was heard."""
    return run(stub, report=lambda _: setattr(clock, "step", 1.0), **given)


@pytest.mark.parametrize("stub", ["Hangs", "IgnoresTerm"])
def test_what_gives_no_answer_is_hung(groups, clock, stub):
    """After the limit of 5 s and 5 s of grace it is ended, however it takes that; what it streamed is kept."""
    result = hung(clock, stub)
    assert (result.status, result.detail) == (Status.HUNG, "no answer within 10 s")
    assert result.schedule is not None and result.schedule.makespan == SERIAL
    assert alive(groups[0]) == []


def test_compiling_is_not_the_solvers_time(groups, monkeypatch):
    """100 s go by between loaded and ready, with a limit of 5 s; and it solves only what it has compiled."""
    clock = Clock()
    monkeypatch.setattr(process, "CLOCK", clock)
    take = process._Conversation._take

    def compiled_meanwhile(self, message, schedule):
        taken = take(self, message, schedule)
        clock.now += 100.0 * isinstance(message, wire.LoadedFrame)
        return taken

    monkeypatch.setattr(process._Conversation, "_take", compiled_meanwhile)
    result = run("Compiles")
    assert (result.status, result.detail) == (Status.FEASIBLE, "")


def loads(clock, tmp_path):
    """Lets time go by once the stub is loading."""

    class Late(Clock):
        def __call__(self):
            clock.step = float((tmp_path / "loads").exists())
            return clock()

    return Late()


@pytest.mark.parametrize(
    ("stub", "limit", "within"),
    [
        ("LoadsForever", 7.0, 7),
        ("LoadsForever", 2.0, 5),
        pytest.param("CompilesForever", 7.0, 127, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_has_not_begun_by_its_limit_is_given_up(
    groups, clock, tmp_path, monkeypatch, stub, limit, within
):
    """At the limit, or after the grace of 5 s where that is longer; compiling has two minutes more."""
    monkeypatch.setenv("TOLD", str(tmp_path))
    monkeypatch.setattr(process, "CLOCK", loads(clock, tmp_path))
    result = run(stub, Options(seconds=limit, start=serial()))
    assert (result.status, result.detail) == (Status.HUNG, f"its process had not begun to solve within {within} s")
    assert result.schedule is not None and result.schedule.makespan == SERIAL
    assert alive(groups[0]) == []


def test_a_process_that_is_stopped_before_it_began_says_so(groups, clock, tmp_path, monkeypatch):
    """What it was given to start from is kept; it ignores SIGTERM, and does not survive."""
    monkeypatch.setenv("TOLD", str(tmp_path))
    stop = threading.Event()
    threading.Thread(target=lambda: wait_for((tmp_path / "loads").exists) and stop.set(), daemon=True).start()
    options = Options(seconds=600.0, start=serial())
    judge = Judge(PROBLEM, options, [].append, solver="stub", version="1")
    entry = SolverEntry(module="bad_solvers", attribute="LoadsForever", isolated=True)
    result = process.run(PROBLEM, entry, options, judge, stop=stop)
    assert (result.status, result.limit, result.detail) == (Status.FEASIBLE, Limit.INTERRUPT, NOT_BEGUN)
    assert alive(groups[0]) == []


@pytest.mark.parametrize(("deterministic", "seconds"), [(False, range(97)), (True, [100])])
def test_loading_is_of_the_limit_where_that_is_one_of_time(groups, monkeypatch, deterministic, seconds):
    """Begun 4 s ago: of 100 s at most 96 are left; where they are a measure of work, all of them."""
    request = wire.RequestFrame

    def begun_earlier(**given):
        return request(**given | {"begun": given["begun"] - 4.0})

    monkeypatch.setattr(process.wire, "RequestFrame", begun_earlier)
    result = run("TellsSeconds", Options(seconds=100.0, deterministic=deterministic))
    assert int(result.detail) in seconds


def test_what_improves_a_start_is_not_started_without_time(groups):
    """The start is the answer."""
    options = Options(seconds=0.0, start=serial())
    judge = Judge(PROBLEM, options, [].append, solver="stub", version="1")
    entry = SolverEntry(module="bad_solvers", attribute="Aborts", isolated=True, polishes=True)
    result = process.run(PROBLEM, entry, options, judge)
    assert (result.status, result.limit) == (Status.FEASIBLE, Limit.TIME) and not groups


def test_a_lie_takes_the_bounds_with_it(groups):
    """A crash keeps the streamed bound of 2 or better; after a lie only bounds that need no solver are left."""
    # Task 0, one of the four and the join are a chain of 3; the load is 6 ticks on 2 GPUs: bounds.best is at least 3.
    assert 3 <= run("Aborts").lower_bound <= 5
    assert 3 <= run("StreamsBoundTooHigh").lower_bound <= 5


@pytest.mark.parametrize(
    ("stub", "without", "given", "detail"),
    [
        ("FalselyInfeasible", Status.UNKNOWN, Status.INVALID, "infeasible, though"),
        ("GivesUp", Status.UNKNOWN, Status.FEASIBLE, ""),
        ("MissingPackage", Status.MISSING, Status.MISSING, "No module named 'no_such_vendor'"),
    ],
)
def test_the_start_is_kept(groups, stub, without, given, detail):
    """A solver that answers nothing leaves nothing without a start, and exactly the start with one."""
    alone = run(stub)
    assert (alone.status, alone.schedule) == (without, None)
    result = run(stub, Options(seconds=5.0, start=serial()))
    assert (result.status, result.detail[: len(detail)]) == (given, detail)
    assert result.schedule is not None and result.schedule.makespan == SERIAL


def test_false_optimality_below_a_better_start(groups):
    """Optimal at 6 ticks is a lie where a valid schedule of 5 ticks is known, and that schedule is the result."""
    # As derived above: tasks 0..3 on GPU 0, task 4 on GPU 1, and the join 5 on GPU 0.
    better = Schedule(
        device=[0, 0, 0, 0, 1, 0], start=[0, 1, 2, 3, 2, 4], finish=[1, 2, 3, 4, 3, 5],
        sent_payload=[0, 4], sent_to=[1, 0], sent_start=[1, 3], sent_finish=[2, 4],
    )  # fmt: skip
    assert not check(PROBLEM, better)
    result = run("WorseThanStart", Options(seconds=5.0, start=better))
    assert result.status is Status.INVALID and result.schedule is not None and result.schedule.makespan == 5


def test_memory_limit(groups):
    """An allocation of 32 TiB under an address space of 8 GiB is a crash that says what it was."""
    result = run("EatsMemory", memory_bytes=1 << 33)
    assert (result.status, result.detail) == (Status.CRASHED, "exit code 1: MemoryError")


@pytest.mark.parametrize(
    ("stub", "status"),
    [("ForksAndHangs", Status.HUNG), ("ForksAndAnswers", Status.FEASIBLE), ("ForksAndCrashes", Status.CRASHED)],
)
def test_no_child_of_a_solver_survives(groups, clock, stub, status, tmp_path, monkeypatch):
    """Children that ignore SIGTERM end with the solver, even one that left its process group."""
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))

    def report(_):
        assert wait_for((tmp_path / "pids").exists)
        clock.step = float(status is Status.HUNG)

    assert run(stub, report=report).status is status
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4 and not any(running(pid) for pid in pids)


@pytest.mark.parametrize("stub", ["KilledWithFiles", "StaysWithFiles"])
def test_no_file_of_a_killed_solver_survives(groups, clock, stub, tmp_path, monkeypatch):
    """The folder of a program is removed for one that cannot any more; that of another process stays."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    other = tmp_path / "pesto-milp-0123456789abcdef-other"
    other.mkdir()

    def report(_):
        if stub == "StaysWithFiles":
            assert wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
            clock.step = 1.0

    assert run(stub, module="leaves_files", report=report).status in (Status.CRASHED, Status.HUNG)
    assert list(tmp_path.iterdir()) == [other]


PARENT = """
import sys
from test_parent import *
def report(progress):
    print(json.dumps({"makespan": progress.schedule.makespan if progress.schedule else None}), flush=True)
options = Options(seconds=600)
judge = Judge(PROBLEM, options, report, solver="stub", version="1")
result = process.run(PROBLEM, SolverEntry(module="bad_solvers", attribute=sys.argv[1], isolated=True), options, judge)
print(json.dumps({"limit": result.limit, "status": result.status, "makespan": result.schedule.makespan}), flush=True)
"""


def parent(stub, tmp_path):
    """A process that runs a stub for ten minutes, after its first report."""
    paths = os.pathsep.join([str(STUBS), str(Path(__file__).parent), str(STUBS.parents[2])])
    environment = os.environ | {"PYTHONPATH": paths, "PIDS": str(tmp_path / "pids")}
    command = [sys.executable, "-c", PARENT, stub]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True)
    assert json.loads(child.stdout.readline()) == {"makespan": SERIAL}
    return child


def wait_for(condition):
    """Whether it came to be, within ten minutes: a busy machine needs some of them."""
    deadline = time.monotonic() + 600
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_interrupt_keeps_the_best(tmp_path):
    """Ctrl-C reaches only the parent, which ends the solver and returns what it has heard."""
    child = parent("ForksAndHangs", tmp_path)
    assert wait_for((tmp_path / "pids").exists)
    os.killpg(child.pid, signal.SIGINT)
    answer = json.loads(child.communicate()[0])
    assert answer == {"limit": Limit.INTERRUPT, "status": Status.FEASIBLE, "makespan": SERIAL}
    assert not any(running(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_kill_of_the_parent_leaves_no_orphan(tmp_path):
    """After kill -9 of the parent, the solver, its guard and its children end by themselves."""
    child = parent("ForksAndHangs", tmp_path)
    assert wait_for((tmp_path / "pids").exists)
    child.kill()
    child.communicate()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4 and wait_for(lambda: not any(running(pid) for pid in pids))


@pytest.mark.parametrize(
    "stopped",
    [
        pytest.param((0,), id="solver", marks=pytest.mark.kill),
        pytest.param((1,), id="guard"),
        pytest.param((0, 1, 2, 3), id="all", marks=pytest.mark.kill),
    ],
)
def test_what_is_stopped_does_not_outlive_the_parent(stopped, tmp_path):
    """SIGSTOP, as a debugger or a batch system sends it, then kill -9 of the parent: what cannot run cannot stay."""
    child = parent("ForksAndHangs", tmp_path)
    assert wait_for((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    for which in stopped:
        os.kill(pids[which], signal.SIGSTOP)
        assert wait_for(lambda which=which: state(pids[which]) == "T")
    child.kill()
    child.communicate()
    assert wait_for(lambda: not any(running(pid) for pid in pids))


@pytest.mark.kill
def test_a_stopped_solver_is_ended_in_time(groups, clock, tmp_path, monkeypatch):
    """Stopped with its guard, it is hung when its time is over; it wakes to be told, and leaves nothing."""
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setattr(process, "_GUARD_S", 600.0)

    def report(_):
        assert wait_for((tmp_path / "pids").exists)
        for pid in (tmp_path / "pids").read_text().split():
            os.kill(int(pid), signal.SIGSTOP)
        clock.step = 1.0

    assert run("ForksAndHangs", report=report).status is Status.HUNG
    assert not any(running(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_reports_are_only_improvements(groups):
    """A streamed schedule is reported once, not again when the result repeats it."""
    reports = []
    run("Honest", report=reports.append)
    assert [p.schedule.makespan for p in reports if p.schedule] == [SERIAL]


def test_a_slow_report_is_not_the_solvers_time(groups, clock, tmp_path, monkeypatch):
    """A caller takes an hour for the first report: it hears the newest only, and the solver's answer is still its own.

    Meanwhile SERIAL + 1 and SERIAL are queued, and the solver waits for room in the pipe.
    """
    monkeypatch.setenv("TOLD", str(tmp_path))
    heard = []

    def report(progress):
        heard.append(progress.schedule.makespan)
        if len(heard) == 1:
            (tmp_path / "heard").touch()
            assert wait_for((tmp_path / "queued").exists)
            clock.now += 3600.0

    result = run("Floods", report=report)
    assert (result.status, result.detail) == (Status.FEASIBLE, "")
    assert heard[-1] == SERIAL and SERIAL + 1 not in heard


def test_an_answer_that_lies_in_the_pipe_came_in_time(groups, clock):
    """The solver has ended when its patience is found to be over."""

    def report(_):
        assert wait_for(lambda: os.waitid(os.P_PID, groups[0], os.WEXITED | os.WNOHANG | os.WNOWAIT))
        clock.step = 3600.0

    result = run("Honest", report=report)
    assert (result.status, result.detail) == (Status.FEASIBLE, "")


def test_frames_arrive_in_any_pieces():
    """Frames cut at every byte decode to the same messages; a wrong magic number or an absurd length is refused."""
    message = wire.ImprovedFrame(lower_bound=2**62, seconds=1.5)
    data = wire.encode(wire.ReadyFrame()) + wire.encode(message, b"body")
    for cut in range(len(data) + 1):
        frames = wire.Frames()
        assert [*frames.feed(data[:cut]), *frames.feed(data[cut:])] == [(wire.ReadyFrame(), b""), (message, b"body")]
    for bad in (b"X" + data[1:], data[:4] + b"\xff" * 12, data[:16] + b"[" + data[17:]):
        with pytest.raises(ValueError, match="frame"):
            list(wire.Frames().feed(bad))
