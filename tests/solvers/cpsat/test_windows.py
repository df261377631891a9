"""Windows on a schedule: what is cut out and around, which tasks are drawn, and that no model cuts off an optimum."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from solvers.api import SOLVERS, solve
from solvers.base import SolverEntry
from solvers.bounds import quick_bounds
from solvers.cpsat.descent import KINDS, Neighbours, period, relatives, surroundings
from solvers.cpsat.exact import throttled
from solvers.cpsat.window import FreeTasks, ScheduleCut, network_of, timeline_of
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import chain, lstm_grid, on_equal_gpus
from solvers.instances.random import generate
from solvers.result import Limit, Options, Status
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

AGREEMENT = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "windows_agreement.py"


def scheduled(problem):
    found = ListScheduler().solve(problem, Options(), lambda _: None).schedule
    assert found is not None
    return rebuild(problem, found)


def timeline(problem):
    return timeline_of(network_of(problem), scheduled(problem))


@pytest.mark.property
def test_no_model_cuts_off_an_optimum(seeds):
    """On random problems of every feature, whole models and windows agree with exhaustive search, and repeat."""
    count = len(seeds(40))
    paths = os.pathsep.join([str(AGREEMENT.parents[3]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(AGREEMENT), "0", str(count), "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths})
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["seen"]["feasible"] == count and found["seen"]["better"] > count / 4


def split_chain():
    """Four tasks of one tick on GPUs 0, 0, 1, 1, with a transfer of two ticks in the middle."""
    none = np.zeros(0, dtype=np.int64)
    sent = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    rough = Schedule(device=[0, 0, 1, 1], start=[0, 1, 2, 3], finish=[1, 2, 3, 4], **sent)
    problem = chain(4, transfer=2)
    return timeline_of(network_of(problem), rebuild(problem, rough))


def test_tails_are_longest_paths_to_the_end():
    """0-1 task 0, 1-2 task 1, 2-4 the transfer, 4-5 task 2, 5-6 task 3: all six ticks are one path."""
    found = split_chain()
    assert found.start == [0, 1, 4, 5, 2] and found.tail == [6, 5, 2, 1, 4]
    assert found.makespan == 6 and found.critical == [0, 1, 2, 3]


def test_a_window_has_what_is_settled_before_and_what_is_later_after_it():
    """Task 1 free: task 0 is settled, tasks 2 and 3 are later, and the transfer between depends on where 1 goes."""
    found = split_chain()
    cut = ScheduleCut(found, FreeTasks(frozenset([1]), frozenset([1])))
    assert cut.begin == 1 and cut.active == {1: True} and cut.is_later(2) and not cut.is_later(0)
    # Device 0 is done with task 0 at 1; after the window GPU 1 still has 2 ticks to do, tasks 2 and 3.
    assert [cut.ready[d] for d in (0, 1)] == [1, 0] and [cut.rest[d] for d in (0, 1)] == [0, 2]
    # The transfer starts with the window's end, and task 1 may send it at another time.
    assert cut.payloads >= {1} and list(cut.amid) == [(1, 1)] and not cut.settled and not cut.later
    # Tasks 2 and 3 take two ticks whatever task 1 does; nothing else is certain.
    assert cut.floor == 2


def test_what_started_within_a_window_is_kept_in_its_order():
    """Tasks 0 and 3 free: 1 and 2, between them, keep device and order, and the transfer is open."""
    found = split_chain()
    cut = ScheduleCut(found, FreeTasks(frozenset([0, 3]), frozenset()))
    assert cut.active == {0: True, 1: False, 2: False, 3: True}
    assert cut.places(0) == [0] and cut.payloads == {0, 1, 2} and cut.floor == 0


def test_a_window_that_cannot_help_says_so():
    """A task of ten ticks beside a chain of three and two: freeing the last of the chain cannot shorten the ten.

    Freeing the ten leaves the three, which start with it but end sooner and so are settled.
    """
    found = timeline(on_equal_gpus([10, 3, 2], [1], [2], gpus=2, transfer=np.array([1, 1, 1])))
    assert found.makespan == 10
    assert ScheduleCut(found, FreeTasks(frozenset([2]), frozenset([2]))).floor == 10
    assert ScheduleCut(found, FreeTasks(frozenset([0]), frozenset([0]))).floor == 3


@pytest.mark.parametrize("draw", [period, surroundings, relatives])
def test_draws_are_of_the_size_that_is_asked_for(draw):
    """Each kind draws distinct tasks, as many as asked for; units come whole, so relatives may be more."""
    found, rng = timeline(lstm_grid(3, 6)), np.random.default_rng(0)
    for size in (1, 7, found.tasks):
        for _ in range(20):
            tasks = draw(found, size, rng)
            assert len(set(tasks)) == len(tasks) >= size and all(0 <= i < found.tasks for i in tasks)
            assert draw is relatives or len(tasks) == size


def test_relatives_come_with_their_units():
    """Whoever is drawn because of one task of a group brings the whole group, or it could not move."""
    rng, seen = np.random.default_rng(1), 0
    for _ in range(60):
        problem = generate(rng, tasks=12)
        result = ListScheduler().solve(problem, Options(), lambda _: None)
        if result.schedule is None:
            continue
        found = timeline_of(network_of(problem), rebuild(problem, result.schedule))
        tasks = set(relatives(found, 4, rng))
        units = {found.network.unit[i] for i in tasks}
        assert all(tasks.issuperset(found.network.members[u]) for u in units)
        seen += any(len(found.network.members[u]) > 1 for u in units)
    assert seen > 5


def test_kinds_that_pay_are_drawn_more_often_and_sizes_follow():
    """A kind that always finds something gets most draws; closed neighbourhoods grow, others shrink."""
    found, neighbours = timeline(lstm_grid(3, 6, gpus=3)), Neighbours(0)
    drawn: list[tuple[str, int]] = []
    for _ in range(400):
        name, free = neighbours.draw(found)
        drawn.append((name, len(free.tasks)))
        pays = name == "period"
        neighbours.kinds.learn(name, closed=pays, better=pays, effort=0.03)
    late = [name for name, _ in drawn[200:]]
    assert late.count("period") > 120 and set(late) == set(KINDS)
    assert max(size for name, size in drawn if name == "period") == found.tasks
    assert min(size for name, size in drawn if name == "surroundings") < 20


def test_equal_seeds_draw_equally():
    """Draws depend on the seed and the outcomes alone."""
    found = timeline(lstm_grid(3, 6, gpus=3))
    one, two, other = ([Neighbours(seed).draw(found) for _ in range(1)] for seed in (3, 3, 4))
    assert one == two != other


def test_the_log_is_throttled():
    """Of lines that come at once, so many are told; a second later, more."""
    told, now = [], [0.0]
    line = throttled(told.append, 3, lambda: now[0])
    for k in range(10):
        line(f"{k}\n")
    line("")
    now[0] = 1.0
    line("later")
    assert told == ["0", "1", "2", "later"]


@pytest.fixture
def windows(monkeypatch):
    row = SolverEntry(module="solvers.cpsat.solver", attribute="CpSatWindows", isolated=True, package="ortools")
    monkeypatch.setitem(SOLVERS, "cpsat-windows", row)
    return "cpsat-windows"


def test_windows_improve_on_their_start(windows):
    """A list schedule of a grid on three GPUs gets better; the bound is that of an argument, by name."""
    problem, stop = lstm_grid(3, 6, gpus=3), threading.Event()
    start = scheduled(problem)

    def report(progress):
        if progress.schedule is not None and progress.schedule.makespan < start.makespan:
            stop.set()

    result = solve(problem, windows, Options(seconds=600, start=start), report=report, stop=stop)
    assert result.schedule is not None and result.schedule.makespan < start.makespan
    assert result.bound_by and result.bound_by not in ("cpsat", windows)
    assert result.status is Status.OPTIMAL or result.limit is Limit.INTERRUPT


def test_windows_find_a_first_schedule(windows):
    """Without a start, the first schedule is CP-SAT's; four tasks in a chain take four ticks, on one GPU."""
    result = solve(chain(4), windows, Options(seconds=600))
    assert result.status is Status.OPTIMAL and result.schedule is not None and result.schedule.makespan == 4


def test_the_solver_says_whose_bound_it_is_and_passes_on_its_log():
    """On a grid whose bound without a solver is 36 and whose optimum is 38, the bound is CP-SAT's; log lines arrive."""
    heard, problem = [], lstm_grid(2, 4)
    assert quick_bounds.best(problem) == (36, "critical_path")
    result = solve(problem, "cpsat", Options(seconds=600), report=heard.append)
    assert (result.status, result.lower_bound, result.bound_by) == (Status.OPTIMAL, 38, "cpsat")
    assert any("workers" in line for progress in heard for line in progress.log)
