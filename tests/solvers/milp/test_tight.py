"""The tight program: exact on random problems, and each family of rows does what it is for."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler, SingleDevice
from solvers.instances.plain import chain, fork, lstm_grid, on_equal_gpus
from solvers.instances.random import Features, generate
from solvers.milp import formulations
from solvers.milp.formulations import FORMULATIONS, MakespanLimits, NoScheduleError, formulate
from solvers.milp.solver import Milp
from solvers.milp.tight import program as pairs
from solvers.milp.tight.program import build
from solvers.milp.tight.times import windows_of
from solvers.milp.vendor import ended
from solvers.result import Limit, Options, Status
from solvers.schedule import Schedule
from solvers.structure.symmetry import symmetry_of
from solvers.timing.rebuild import rebuild

STUB = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "tight_agreement.py"
ALIKE = Features(heterogeneous=False, holes=False, classes=False, shared_links=False, long_paths=False, memory=False)


def independent(ticks, gpus=2):
    """Tasks without edges on equal GPUs."""
    none = np.zeros(0, dtype=np.int64)
    return on_equal_gpus(np.array(ticks), none, none, gpus=gpus, transfer=np.zeros(len(ticks), dtype=np.int64))


def alone(device, start, finish):
    """A schedule without transfers."""
    none = np.zeros(0, dtype=np.int64)
    return Schedule(
        device=device, start=start, finish=finish, sent_payload=none, sent_to=none, sent_start=none, sent_finish=none
    )


def open_pairs(program):
    """The pairs that have a binary, and whether it is one for both orders."""
    return {(o.one, o.two): o.back is None for o in program.orders if o.forth is not None}


def misses(linear, values):
    """How many rows a point misses."""
    activity = linear.activity(values)
    return int(((activity < linear.row_lower - 1e-9) | (activity > linear.row_upper + 1e-9)).sum())


def test_every_schedule_is_a_point_of_its_length(cases):
    """Any valid schedule of at most `most` ticks satisfies every row and cut, and comes back no longer."""
    rng = np.random.default_rng(0)
    for problem, schedule in cases[::4]:
        most = schedule.makespan + int(rng.integers(0, 4))
        program = build(problem, MakespanLimits(least=0, most=most))
        values = program.values(schedule)
        assert program.linear.violation(values) <= 1e-9
        assert program.separated(values) is None
        assert program.linear.cost @ values == pytest.approx(schedule.makespan)
        found = rebuild(problem, program.schedule(values))
        assert not check(problem, found)
        assert found.makespan <= schedule.makespan


def test_windows_that_were_cut_short_leave_a_program_that_holds(cases):
    """Without time for tighter windows the program is looser, but a schedule is still a point of its length."""
    looser = 0
    for problem, schedule in cases[::8]:
        limits = MakespanLimits(least=0, most=schedule.makespan)
        program = build(problem, replace(limits, settle_by=-math.inf))
        values = program.values(schedule)
        assert program.linear.violation(values) <= 1e-9
        assert program.linear.cost @ values == pytest.approx(schedule.makespan)
        looser += program.linear.columns > build(problem, limits).linear.columns
    assert looser > 0


@pytest.mark.slow
def test_a_program_that_is_not_built_in_time_is_given_up(monkeypatch):
    """At its limit, and at whichever look at the clock that is, building ends; the start is the answer."""
    problem = fork(8)
    start = ListScheduler().solve(problem, Options(), lambda _: None).schedule
    limits = MakespanLimits(least=0, most=start.makespan)
    with pytest.raises(TimeoutError, match="before the program was built"):
        formulate(problem, "tight", replace(limits, build_by=-math.inf))
    for name in FORMULATIONS:
        looks = 0
        while looks < 10**4:
            monkeypatch.setattr(formulations, "time", SimpleNamespace(monotonic=count().__next__))
            try:
                formulate(problem, name, replace(limits, build_by=looks))
                break
            except TimeoutError:
                looks += 1
        assert 2 < looks < 10**4


def test_a_large_problem_does_not_overrun_a_short_limit():
    """454 tasks within 0.2 s: no vendor is asked, and the start comes back, where windows alone took seconds."""
    milp = Milp(name="highs", package="highspy", run=lambda *_: pytest.fail("asked"))
    windows_of(lstm_grid(2, 2), 100)  # loads what is compiled
    problem = lstm_grid(4, 50)
    start = SingleDevice().solve(problem, Options(), lambda _: None).schedule
    result = milp.solve(problem, Options(seconds=0.2, start=start), lambda _: None)
    assert (result.status, result.limit, result.schedule) == (Status.FEASIBLE, Limit.TIME, start)
    assert "before the program was built" in result.detail


@pytest.mark.parametrize("most", [0, 10**9])
def test_the_links_of_a_large_program_wait(most, monkeypatch):
    """Beyond so many entries the vendor gets the program without the rows of its links, else with all of them."""
    monkeypatch.setattr("solvers.milp.solver._LARGE", most)
    asked = []

    def nothing(linear, ask, hear):
        asked.append((linear.rows, linear.violation(ask.start)))
        return ended(Status.UNKNOWN, Limit.TIME, None, -math.inf)

    monkeypatch.setattr("solvers.milp.solver.polish", lambda *_: None)
    problem = lstm_grid(2, 4)
    start = ListScheduler().solve(problem, Options(), lambda _: None).schedule
    milp = Milp(name="highs", package="highspy", run=nothing)
    result = milp.solve(problem, Options(seconds=600.0, start=start), lambda _: None)
    program = build(problem, MakespanLimits(least=result.lower_bound, most=start.makespan))
    assert program.lean.rows < program.linear.rows
    assert [rows for rows, _ in asked] == [program.linear.rows if most else program.lean.rows]
    assert asked[0][1] < 1e-6 and result.schedule is start


def test_noise_does_not_turn_an_order(cases):
    """Points that are off by a vendor's tolerance still describe the same schedule."""
    rng = np.random.default_rng(1)
    for problem, schedule in cases[1::8]:
        program = build(problem, MakespanLimits(least=0, most=schedule.makespan))
        values = program.values(schedule)
        off = values + rng.uniform(-1e-6, 1e-6, len(values))
        assert rebuild(problem, program.schedule(off)).makespan <= schedule.makespan


def test_the_optimum_is_that_of_enumeration(seeds):
    """On HiGHS, on problems of every feature: same optimum, a valid schedule of it, and nothing below it."""
    count = len(seeds(80))
    done = subprocess.run([sys.executable, str(STUB), "0", str(count), "5"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    for what in ("orders", "waiting", "crossings", "units of time", "interchangeable", "closed by windows"):
        assert found["seen"][what] > count / 6, what


def test_what_precedence_orders_needs_no_binary():
    """A chain has no open pair; independent tasks have one a pair, and one binary where they share a device anyway."""
    assert open_pairs(build(chain(5), MakespanLimits(least=0, most=9))) == {}
    single = build(independent([2, 2, 2], gpus=1), MakespanLimits(least=0, most=6))
    assert open_pairs(single) == {(0, 1): True, (0, 2): True, (1, 2): True}
    pair = build(independent([2, 2, 2], gpus=2), MakespanLimits(least=0, most=6))
    assert open_pairs(pair) == {(0, 1): False, (0, 2): False, (1, 2): False}


def test_windows_order_tasks_and_exclude_devices():
    """Two GPUs 5 ticks apart; 0 -> 2 and 1 -> 3, of 4 ticks each, fit 8 ticks only without a transfer."""
    problem = on_equal_gpus([4, 4, 4, 4], [0, 1], [2, 3], gpus=2, transfer=np.full(4, 5))
    windows = windows_of(problem, 8)
    unit = windows.paths.units.unit
    assert unit[0] == unit[2] != unit[1] == unit[3]
    assert windows_of(problem, 7) is None
    with pytest.raises(NoScheduleError, match="at most 7 ticks"):
        build(problem, MakespanLimits(least=0, most=7))
    # On one GPU within 16 ticks, 0 is first when it must be followed by 12 ticks of others.
    line = on_equal_gpus([4, 4, 4, 4], [0, 2], [2, 3], gpus=1, transfer=np.zeros(4, dtype=np.int64))
    assert windows_of(line, 16).after.sum() == 3
    late = replace(line, duration=np.array([[4], [9], [4], [4]]))
    # Task 1 of 9 ticks is behind all three, before them, or between; 21 ticks in all leave all of these open.
    assert windows_of(late, 20) is None or windows_of(late, 20).after.sum() > 3
    assert windows_of(late, 21).after.sum() == 3


def test_load_cuts_hold_where_disjunctions_do_not():
    """Four tasks of 3 ticks, half on each GPU and all at once: only the load says that 5 ticks are too few."""
    problem = independent([3, 3, 3, 3])
    program = build(problem, MakespanLimits(least=0, most=12))
    values = np.full(program.linear.columns, 0.5)
    values[program.draft.start] = 0.0
    values[program.draft.makespan] = 6.0
    # The first task is on the first GPU: the symmetry is broken.
    for task, on in enumerate(program.draft.places.on):
        for device, column in on.items():
            values[column] = {0: (1.0, 0.0), 1: (0.0, 1.0)}.get(task, (0.5, 0.5))[device]
    assert misses(program.linear, values) == 0
    values[program.draft.makespan] = 5.0
    assert misses(program.linear, values) > 0


def test_a_payload_crosses_once_for_all_readers_of_a_location():
    """A fork over two GPUs: one crossing for each GPU that is not the root's, however many read it."""
    program = build(fork(6), MakespanLimits(least=0, most=6))
    sent = [c for c in program.crossings if c.producer == 0]
    assert len({c.to for c in sent}) == len(sent)
    assert max(len(c.late) for c in sent) > 1


def sending(readers, transfer=1):
    """Task 0 of a tick on two unlike GPUs, read once a payload by `readers`, lists of tasks that are numbered on."""
    dst = [task for payload in readers for task in payload]
    n = max(dst) + 1
    payload = [k for k, tasks in enumerate(readers) for _ in tasks]
    machine = on_equal_gpus([1] * n, [0] * len(dst), dst, gpus=2, transfer=np.full(n, transfer))
    return replace(
        machine, duration=[[1, 2]] * n, src=[0] * len(dst), dst=dst, payload=payload, producer=[0] * len(readers),
        transfer=np.full((len(readers), 1), transfer),
    )  # fmt: skip


def sent(device, times, transfers):
    """A schedule by (start, finish) of tasks and (payload, to, start, finish) of transfers."""
    start, finish = zip(*times, strict=True)
    payload, to, begin, end = zip(*transfers, strict=True)
    return Schedule(
        device=device, start=start, finish=finish, sent_payload=payload, sent_to=to, sent_start=begin, sent_finish=end
    )


def test_a_reader_elsewhere_does_not_wait():
    """A transfer as late as can be for its reader, task 1, while task 2 reads the same at home as early as can be."""
    problem = sending([[1, 2]])
    schedule = sent([0, 1, 0], [(0, 1), (8, 10), (1, 2)], [(0, 1, 7, 8)])
    assert not check(problem, schedule)
    program = build(problem, MakespanLimits(least=0, most=10))
    assert program.linear.violation(program.values(schedule)) <= 1e-9
    # Task 2 beside task 1 reads what arrives at 8, so it cannot start at 6.
    early = sent([0, 1, 1], [(0, 1), (8, 10), (6, 8)], [(0, 1, 7, 8)])
    assert [v.kind for v in check(problem, early)] == ["arrival"]
    assert program.linear.violation(program.values(early)) > 1e-6


def test_transfers_are_in_order_only_where_all_readers_say_so():
    """Payload 0 of task 0 is for 1 and 2; task 1 sends on to 3, though payload 0 may then still be on its way to 2."""
    base = sending([[1, 2]])
    problem = replace(
        base, duration=[[1, 2]] * 4, memory=[0] * 4, group=[-1] * 4, src=[0, 0, 1], dst=[1, 2, 3], payload=[0, 0, 1],
        producer=[0, 1], transfer=[[1], [1]],
    )  # fmt: skip
    schedule = sent([0, 0, 1, 1], [(0, 1), (1, 2), (8, 10), (4, 6)], [(0, 1, 6, 7), (1, 1, 3, 4)])
    assert not check(problem, schedule)
    program = build(problem, MakespanLimits(least=0, most=12))
    meet = {(o.one - 4, o.two - 4) for o in program.waiting}
    ends = {(program.crossings[a].payload, program.crossings[a].to, program.crossings[b].payload) for a, b in meet}
    assert (0, 1, 1) in ends


def test_transfers_that_overlap_are_separated():
    """Two payloads to one GPU at once: the first program lets them, the separated one does not, and then no pair is."""
    problem = sending([[1], [2]], transfer=3)
    apart = sent([0, 1, 1], [(0, 1), (4, 6), (7, 9)], [(0, 1, 1, 4), (1, 1, 4, 7)])
    atonce = sent([0, 1, 1], [(0, 1), (4, 6), (6, 8)], [(0, 1, 1, 4), (1, 1, 1, 4)])
    assert not check(problem, apart)
    assert [v.kind for v in check(problem, atonce)] == ["contention"]
    program = build(problem, MakespanLimits(least=0, most=12))
    point = program.values(atonce)
    assert program.lean.violation(point) <= 1e-9 < program.linear.violation(point)
    tighter = program.separated(point)
    assert tighter.lean.violation(point) > 1e-6
    assert tighter.linear.rows == program.linear.rows
    assert tighter.linear.violation(tighter.values(apart)) <= 1e-9
    assert tighter.separated(point) is None
    assert len(tighter.waiting) == len(program.waiting) - 1


def test_zero_ticks_touch_but_do_not_overlap():
    """A task of no ticks may start where another does, or ends, but not strictly inside it."""
    problem = independent([0, 4], gpus=1)
    program = build(problem, MakespanLimits(least=0, most=8))
    for at, feasible in ((2, True), (6, True), (4, False)):
        # Task 1 runs from 2 to 6.
        schedule = alone([0, 0], [at, 2], [at, 6])
        assert bool(check(problem, schedule)) is not feasible
        assert (program.linear.violation(program.values(schedule)) <= 1e-9) is feasible
    assert open_pairs(build(independent([0, 0], gpus=1), MakespanLimits(least=0, most=3))) == {}


def test_memory_is_exact_to_the_byte():
    """Two tasks fill a GPU of 32 GiB + 1 to the last byte; where there is one byte less, they do not fit."""
    memory = [2**34, 2**34, 2**34, 2**34 + 1]
    unlike = replace(independent([1, 1, 1, 1]), duration=[[1, 2]] * 4, memory=memory)
    schedule = alone([0, 0, 1, 1], [0, 1, 0, 2], [1, 2, 2, 4])
    for capacity, fits in ((2**35 + 1, True), (2**35, False)):
        problem = replace(unlike, capacity=[2**40, capacity])
        program = build(problem, MakespanLimits(least=0, most=4))
        assert bool(check(problem, schedule)) is not fits
        assert (program.linear.violation(program.values(schedule)) <= 1e-6) is fits


def test_more_pairs_than_are_given_rows(monkeypatch):
    """Beyond the limit the pairs with least room are kept: tasks 1 and 3 on one GPU leave none of 7 ticks."""
    problem = independent([1, 5, 4, 2])
    schedule = alone([1, 0, 1, 0], [4, 0, 0, 5], [5, 5, 4, 7])
    limits = MakespanLimits(least=0, most=7)
    assert open_pairs(build(problem, limits)).keys() > {(1, 3)}
    monkeypatch.setattr(pairs, "MOST", 1)
    program = build(problem, limits)
    assert open_pairs(program).keys() == {(1, 3)}
    assert program.linear.violation(program.values(schedule)) <= 1e-9


def test_equal_locations_and_devices_are_named_by_first_use():
    """Three equal GPUs: the longest task is on the first, the second longest on one of the first two."""
    problem = independent([1, 5, 4, 3], gpus=3)
    symmetry = symmetry_of(problem)
    assert symmetry.locations == (((0, 1, 2), (1, 2)),)
    assert symmetry.broken().allowed.tolist() == [
        [True, True, True], [True, False, False], [True, True, False], [True, True, True],
    ]  # fmt: skip
    named = symmetry.renamed(alone([0, 2, 1, 0], [0, 0, 0, 1], [1, 5, 4, 4]))
    assert named.device.tolist() == [2, 0, 1, 2]
    # Two cores of one host are devices of one location.
    host = replace(problem, location=[0, 0, 0], capacity=[0], path_class=[[-1]], path_links=np.full((1, 1, 1), -1))
    assert symmetry_of(host).devices == (((0, 1, 2), (1, 2)),)
    # A GPU with less memory, or a slower one, is not like the others.
    assert symmetry_of(replace(problem, capacity=[1, 0, 0])).locations == (((1, 2), (1,)),)


def test_a_renamed_schedule_is_valid_without_what_symmetry_leaves_out(cases):
    """On random problems with equal GPUs, cores and lanes."""
    some = [(p, s) for p, s in cases[::2] if symmetry_of(p).locations or symmetry_of(p).devices]
    assert len(some) > 20
    for problem, schedule in some:
        symmetry = symmetry_of(problem)
        assert not check(symmetry.broken(), symmetry.renamed(schedule))


def test_symmetry_survives_kernel_lanes():
    """A lane follows its GPU when the GPU is renamed."""
    for seed in range(40):
        problem = generate(np.random.default_rng(seed), tasks=6, gpus=3, features=ALIKE)
        symmetry = symmetry_of(problem)
        for members, _ in symmetry.locations:
            counts = np.bincount(problem.location, minlength=problem.locations)[list(members)]
            assert len(set(counts.tolist())) == 1
