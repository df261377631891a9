"""Fix and optimise: neighbourhoods hold what they should, and a start gets better, never worse, in a repeatable way."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import lstm_grid
from solvers.milp import polishing
from solvers.milp.polishing import PolishSettings, connected, in_a_row, in_order, polish, restricted
from solvers.milp.vendor import RunRequest, VendorOutcome, left_behind
from solvers.result import Limit, Options, Status

STUB = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "polish_run.py"
MOVES = (in_a_row, in_order, connected)


@pytest.fixture(scope="module")
def ran():
    """What HiGHS makes of list schedules, in a process of its own."""
    done = subprocess.run([sys.executable, str(STUB)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def listed(problem):
    return ListScheduler().solve(problem, Options(), lambda _: None).schedule


def test_a_neighbourhood_holds_its_schedule(cases):
    """A schedule is valid for each of its neighbourhoods, which forbid devices and add edges, and that is all."""
    rng = np.random.default_rng(0)
    for problem, schedule in cases[::4]:
        for move in MOVES:
            around = move(rng, problem, schedule, min(problem.tasks, int(rng.integers(1, 6))))
            assert around.free[around.movable].all()
            small = restricted(problem, schedule, around)
            assert not check(small, schedule)
            assert (small.allowed <= problem.allowed).all()
            assert (small.allowed[around.movable] == problem.allowed[around.movable]).all()
            assert (np.count_nonzero(small.allowed[~around.movable], axis=1) == 1).all()
            assert (small.payload[problem.edges :] == -1).all()


def test_what_is_not_free_keeps_its_order():
    """Of tasks outside a neighbourhood, the ones of a device stay in a chain, and free ones stay within their span."""
    problem = lstm_grid(2, 3)
    schedule = listed(problem)
    around = in_a_row(np.random.default_rng(3), problem, schedule, 5)
    small = restricted(problem, schedule, around)
    added = set(zip(small.src[problem.edges :].tolist(), small.dst[problem.edges :].tolist(), strict=True))
    for device in range(problem.devices):
        chain = np.flatnonzero(~around.free & (schedule.device == device))
        chain = chain[np.argsort(schedule.start[chain])].tolist()
        assert added >= set(pairwise(chain))
    first, last = schedule.start[around.free].min(), schedule.finish[around.free].max()
    free = set(np.flatnonzero(around.free).tolist())
    for device in range(problem.devices):
        chain = np.flatnonzero(~around.free & (schedule.device == device))
        behind = chain[schedule.start[chain] >= last]
        if len(behind):
            assert added >= {(task, int(behind[schedule.start[behind].argmin()])) for task in free}
        before = chain[schedule.finish[chain] <= first]
        if len(before):
            assert added >= {(int(before[schedule.start[before].argmax()]), task) for task in free}
    for before, then in added:
        if around.free[then]:
            assert schedule.finish[before] <= first
        if around.free[before]:
            assert schedule.start[then] >= last


def test_units_move_as_a_whole(cases):
    """A task of a group may move only where the whole group is free."""
    rng = np.random.default_rng(1)
    grouped = [(p, s) for p, s in cases if (np.bincount(p.group[p.group >= 0] + 1, minlength=1) > 1).any()]
    assert len(grouped) > 20
    for problem, schedule in grouped:
        around = in_a_row(rng, problem, schedule, min(problem.tasks, 4))
        for group in np.unique(problem.group[around.movable & (problem.group >= 0)]):
            assert around.movable[problem.group == group].all()


@pytest.mark.slow
def test_a_grid_reaches_its_optimum(ran):
    """lstm_grid(2, 4) on two GPUs: the list schedule takes 43 ticks, the optimum 38 (CP-SAT's proof)."""
    spans, invalid = ran["grid"]
    assert not invalid
    assert spans[0] == 43
    assert spans[-1] == 38


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer(ran):
    """Effort is counted, not time."""
    assert ran["again"] == ran["grid"]


def test_any_formulation_will_do(ran):
    """The neighbourhoods are problems, so the paper's program polishes, too."""
    spans, invalid = ran["paper"]
    assert not invalid
    assert spans[-1] < spans[0]


def test_it_ends_at_the_bound(ran):
    """Told that 42 ticks are a lower bound, it stops there."""
    assert ran["least"][0] == [43, 42, 42]


def test_small_problems(ran):
    """Random problems of every feature: valid, monotone, never below the optimum; most reach it."""
    assert ran["small"]["wrong"] == []
    assert ran["small"]["reached"] >= 18


def test_a_vendor_that_finds_nothing_leaves_the_start():
    """The start comes back when the time is up, and nothing is told."""
    problem = lstm_grid(2, 3)
    start = listed(problem)
    asked = []

    def nothing(linear, ask, hear):
        asked.append(ask)
        return VendorOutcome(status=Status.UNKNOWN, limit=Limit.TIME, values=None, bound=-np.inf)

    ask = RunRequest(seconds=600.0, gap=0.1, seed=0, threads=1, start=None, effort=20.0)
    search = PolishSettings(run=nothing, formulation="tight", ask=ask, least=0)
    assert polish(problem, start, search, lambda s: pytest.fail(f"told of {s.makespan}")) is start
    assert asked
    assert all(a.effort < 20.0 and a.gap == 0.0 and a.start is None and a.seconds <= 600.0 for a in asked)


def test_a_vendor_that_is_left_behind_is_the_last():
    """Another run would go on beside it, so there is one program, however much of the limits is left."""
    problem = lstm_grid(2, 3)
    start = listed(problem)
    asked = []

    def stuck(linear, ask, hear):
        asked.append(ask)
        return left_behind(0.0)

    ask = RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None, effort=20.0)
    assert (
        polish(problem, start, PolishSettings(run=stuck, formulation="tight", ask=ask, least=0), lambda _: None)
        is start
    )
    assert len(asked) == 1


def test_what_a_vendor_told_before_it_was_left_behind_counts(monkeypatch):
    """Its outcome has no point: the last that it told of is rebuilt, and makes the answer."""
    problem = lstm_grid(2, 3)
    start = listed(problem)
    shorter = replace(start, finish=start.finish - 1)
    rebuilt = []
    monkeypatch.setattr(polishing, "rebuild", lambda _problem, rough: rebuilt.append(rough) or shorter)

    def talks(linear, ask, hear):
        hear.incumbent(np.zeros(linear.columns))
        return left_behind(0.0)

    ask = RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None, effort=20.0)
    told = []
    best = polish(problem, start, PolishSettings(run=talks, formulation="tight", ask=ask, least=0), told.append)
    assert len(rebuilt) == 1 and told == [shorter] and best is shorter


def test_windows_of_a_small_program_have_their_share_of_the_clock(monkeypatch):
    """On 200 tasks they took all of the limit: now a part of a slice, unless effort is counted."""
    asked = []

    def never(problem, most, ends):
        asked.append(ends)

    monkeypatch.setattr(polishing, "windows_of", never)
    monkeypatch.setattr(polishing, "time", SimpleNamespace(monotonic=lambda: 1000.0 + len(asked)))
    problem = lstm_grid(2, 3)
    ask = RunRequest(seconds=30.0, gap=0.0, seed=0, threads=1, start=None)
    for effort in (math.inf, 5.0):
        search = PolishSettings(run=never, formulation="tight", ask=replace(ask, effort=effort), least=0)
        assert polish(problem, listed(problem), search, lambda _: None)
        assert asked
        begun = [1000.0 + k for k in range(len(asked))]
        waits = [ends - now for ends, now in zip(asked, begun, strict=True)]
        if effort == math.inf:
            assert all(0 < wait < 1.0 for wait in waits)
        else:
            assert waits[0] == 30.0
        asked.clear()


@pytest.mark.parametrize("effort", [math.inf, 30.0])
def test_patience_by_the_clock_leaves_some_tries(effort, monkeypatch):
    """Programs that each take a seventh of the limit: all of it is used, where two of five would have been the end."""
    now = [1000.0]
    monkeypatch.setattr(polishing, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(linear, ask, hear):
        now[0] += 0.0 if math.isfinite(effort) else 30.0 / 7
        return VendorOutcome(status=Status.UNKNOWN, limit=Limit.TIME, values=None, bound=-np.inf)

    spent = polishing._EffortSpent(RunRequest(seconds=30.0, gap=0.0, seed=0, threads=1, start=None, effort=effort))
    runs = 0
    while not spent.over:
        spent.count(slow(None, None, None))
        runs += 1
    assert runs == (7 if math.isinf(effort) else 9)


def test_an_answer_that_is_no_better_is_dropped():
    """A vendor that puts everything on one GPU in any order: rebuilt, it is a schedule, but a longer one."""
    problem = lstm_grid(2, 3)
    start = listed(problem)
    seen = []

    def anything(linear, ask, hear):
        seen.append(linear)
        return VendorOutcome(status=Status.FEASIBLE, limit=Limit.TIME, values=np.zeros(linear.columns), bound=0.0)

    ask = RunRequest(seconds=600.0, gap=0.0, seed=0, threads=1, start=None, effort=20.0)
    best = polish(problem, start, PolishSettings(run=anything, formulation="tight", ask=ask, least=0), lambda _: None)
    assert seen
    assert best.makespan <= start.makespan


def test_no_time_asks_for_nothing():
    """Without time, not even one program is made."""
    problem = lstm_grid(2, 3)
    start = listed(problem)
    ask = RunRequest(seconds=0.0, gap=0.0, seed=0, threads=1, start=None)
    search = PolishSettings(run=lambda *_: pytest.fail("asked"), formulation="tight", ask=ask, least=0)
    assert polish(problem, start, search, lambda _: None) is start
