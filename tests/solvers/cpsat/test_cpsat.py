"""CP-SAT finds what enumeration finds, and its adapter's parts do what they say. OR-Tools runs in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solvers.api import solve
from solvers.checker import check
from solvers.cpsat.exact import scale, serial
from solvers.cpsat.model import pools
from solvers.instances.plain import fork, layered
from solvers.instances.random import Features, generate
from solvers.problem import Problem
from solvers.result import Options, Status
from solvers.schedule import Schedule
from solvers.structure.symmetry import Symmetry, interchangeable
from solvers.timing.rebuild import rebuild

AGREEMENT = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "agreement.py"
EXACT = 10**9


def agreement(first, count, tasks, horizon):
    paths = os.pathsep.join([str(AGREEMENT.parents[3]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(AGREEMENT), *map(str, (first, count, tasks, horizon))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths})
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("first", "count", "tasks", "horizon"),
    [
        pytest.param(0, 50, 5, EXACT, id="five tasks", marks=pytest.mark.slow),
        pytest.param(0, 10, 6, EXACT, id="six tasks", marks=pytest.mark.slow),
        pytest.param(0, 20, 5, 8, id="rounded"),
    ],
)
def test_agrees_with_enumeration(first, count, tasks, horizon, seeds):
    """On random problems of every feature, the optimum, validity and every bound agree with exhaustive search.

    The horizon of 8 ticks forces coarse ticks: the answer may then be off by the rounding, the claims may not.
    """
    count = len(seeds(count))
    found = agreement(first, count, tasks, horizon)
    assert found["wrong"] == []
    assert sum(found["seen"].values()) == count and min(found["seen"][k] for k in ("start", "cold")) > count / 5


ALONE = """
import numpy as np
from solvers import api
from solvers.cpsat import exact, solver
from solvers.instances.plain import layered
from solvers.result import Options

told = []
ended = exact.RunOutcome(complete=False, infeasible=False, effort=0.0, clocked=True)
solver.exact = lambda watch, scaled, leg: told.append((watch.options.workers, leg.hint)) or ended
problem = layered(np.random.default_rng(0), 5, 5, transfer=9, longest=9)
start = api.solve(problem, "list", Options(seconds=1)).schedule
for asked, bound in ((8, 0), (2, start.makespan - 1)):
    options = Options(seconds=1, workers=asked, start=start, lower_bound=bound)
    solver.CpSat(windows=0.0, workers=4, near=0.05).solve(problem, options, lambda _: None)
print(told)
"""


def test_alone_it_has_few_threads_and_a_hint_only_near_the_bound():
    """Eight threads are asked for and four are had, two are two; a start far above the bound is no hint."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(4, False), (2, True)]"


def test_scaled_times_are_exact_where_they_have_a_common_divisor():
    """Times that are all multiples of 7 are divided by 7 without rounding, however far the horizon."""
    problem = fork(6, transfer=2)
    sevenfold = Problem(**{n: getattr(problem, n) for n in NAMES} | {
        "duration": problem.duration * 7, "transfer": problem.transfer * 7})  # fmt: skip
    found = scale(sevenfold, None, EXACT)
    assert (found.factor, found.rounding) == (7, 0)
    assert (found.problem.duration == problem.duration).all() and (found.problem.transfer == problem.transfer).all()
    # 6 tasks of 1 tick; the source is read by 4 tasks, but there is one other GPU: 1 crossing of 2 ticks for each of
    # the 5 payloads that are read.
    assert serial(found.problem) == 6 + 5 * 2


NAMES = (
    "duration", "location", "memory", "capacity", "src", "dst", "payload", "producer", "transfer", "path_class",
    "path_links", "group",
)  # fmt: skip


def test_scaled_bounds_hold():
    """A bound of the scaled problem is lowered by the rounding of every activity, and times are rounded up."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        problem = generate(rng, tasks=7)
        found = scale(problem, None, 10)
        allowed = problem.allowed
        up = found.problem.duration[allowed] * found.factor - problem.duration[allowed]
        assert ((up >= 0) & (up < found.factor)).all() and (found.problem.allowed == allowed).all()
        assert found.bound(found.horizon) <= serial(problem)
        assert found.at_least(serial(problem)) <= found.horizon


def test_pools_are_the_cores():
    """Equal devices of one location are one pool; equal devices of two locations are not."""
    # Two cores and a slower one at location 0, two equal GPUs at locations 1 and 2.
    found = pools(machine([[3, 3, 4, 1, 1]], location=[0, 0, 0, 1, 2]))
    assert [(p.location, p.devices) for p in found] == [(0, (0, 1)), (0, (2,)), (1, (3,)), (2, (4,))]


def test_devices_with_tasks_of_no_time_are_no_pool():
    """A cumulative constraint would let a task of no time lie inside others on every core, which no device may."""
    assert [p.devices for p in pools(machine([[0, 0], [2, 2]], location=[0, 0]))] == [(0,), (1,)]


def machine(duration, location, links=None, capacity=None):
    """Tasks without edges; a link for each ordered pair of locations unless given."""
    count = max(location) + 1
    default = np.arange(count * count).reshape(count, count, 1)
    duration = np.asarray(duration)
    return Problem(
        duration=duration, location=location, memory=np.zeros(len(duration), dtype=int),
        capacity=capacity or [10] * count, src=np.zeros(0, dtype=int), dst=np.zeros(0, dtype=int),
        payload=np.zeros(0, dtype=int), producer=np.zeros(0, dtype=int), transfer=np.zeros((0, 1), dtype=int),
        path_class=np.where(np.eye(count, dtype=bool), -1, 0), path_links=default if links is None else links,
        group=np.full(len(duration), -1),
    )  # fmt: skip


def test_interchangeable_locations():
    """Equal GPUs can be swapped unless their capacity, a duration or the sharing of links tells them apart."""
    location = [0, 1, 2, 3]
    assert interchangeable(machine([[9, 1, 1, 1]], location)) == [(1, 2, 3)]
    assert interchangeable(machine([[9, 1, 2, 1]], location)) == [(1, 3)]
    assert interchangeable(machine([[9, 1, 1, 1]], location, capacity=[10, 10, 10, 5])) == [(1, 2)]
    # GPUs 2 and 3 share the link from the host, GPU 1 has its own: 1 is alone.
    links = np.arange(16).reshape(4, 4, 1)
    links[0, 3] = links[0, 2]
    assert interchangeable(machine([[9, 1, 1, 1]], location, links)) == [(2, 3)]
    # A chain of links 0 - 1 - 2 (both directions one link): its ends can be swapped, its middle not.
    chain = np.full((3, 3, 2), -1)
    for a, b, path in ((0, 1, [0, -1]), (1, 2, [1, -1]), (0, 2, [0, 1])):
        chain[a, b] = chain[b, a] = path
    assert interchangeable(machine([[1, 1, 1]], [0, 1, 2], chain)) == [(0, 2)]


def test_locations_are_named_by_first_use():
    """The first breaker's location becomes the first of its class; others and unused ones keep a place."""
    # Tasks 0 and 1 break the symmetry of locations 1, 2, 3; they are at 3 and 1, which become 1 and 2.
    problem = machine([[1, 1, 1, 1]] * 3, location=[0, 1, 2, 3])
    symmetry = Symmetry(problem=problem, locations=(((1, 2, 3), (0, 1)),), devices=())
    assert symmetry.named(np.array([3, 1, 0])).tolist() == [0, 2, 3, 1]


def test_rebuilding_a_schedule_never_delays_it():
    """A rebuilt valid schedule is valid and nothing in it is later; scrambled times still give a valid one."""
    rng = np.random.default_rng(1)
    for _ in range(150):
        problem = generate(rng, tasks=12, features=Features(memory=False))
        valid = one_location_each(problem, rng)
        again = rebuild(problem, valid)
        assert not check(problem, again) and (again.start <= valid.start).all() and (again.device == valid.device).all()
        assert sorted(zip(again.sent_payload, again.sent_to, strict=True)) == sorted(
            zip(valid.sent_payload, valid.sent_to, strict=True)
        )


def one_location_each(problem, rng):
    """A valid schedule of random placement, stretched; on the way, the rebuild of a scrambled one is checked."""
    device = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed])
    for group in np.unique(problem.group[problem.group >= 0]):
        members = np.flatnonzero(problem.group == group)
        shared = set.intersection(*(set(problem.location[problem.allowed[i]]) for i in members))
        place = rng.choice(sorted(shared))
        for i in members:
            device[i] = rng.choice(np.flatnonzero(problem.allowed[i] & (problem.location == place)))
    none, scrambled = np.zeros(0, dtype=np.int64), rng.integers(0, 50, problem.tasks)
    sent = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    tight = rebuild(problem, Schedule(device=device, start=scrambled, finish=scrambled, **sent))
    assert not check(problem, tight)
    stretch = int(rng.integers(1, 4))
    sent_start = stretch * tight.sent_start + 5
    return Schedule(
        device=device, start=stretch * tight.start + 5, finish=stretch * tight.start + 5 + tight.finish - tight.start,
        sent_payload=tight.sent_payload, sent_to=tight.sent_to, sent_start=sent_start,
        sent_finish=sent_start + tight.sent_finish - tight.sent_start,
    )  # fmt: skip


def test_rebuild_refuses_what_is_no_placement():
    """A device out of range, or one that cannot run the task, is an error that says so."""
    problem = machine([[3, -1]], location=[0, 1])
    none = np.zeros(0, dtype=np.int64)
    sent = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    for device, text in (([2], "must hold a device"), ([1], "cannot run it")):
        with pytest.raises(ValueError, match=text):
            rebuild(problem, Schedule(device=device, start=[0], finish=[3], **sent))


def test_deterministic_solves_repeat():
    """With `deterministic`, two runs give the same schedule, tick by tick, of the many that are optimal."""
    problem = layered(np.random.default_rng(3), 4, 4, transfer=2)
    one, two = (solve(problem, "cpsat", Options(seconds=60, deterministic=True, seed=5)) for _ in range(2))
    assert one.status is two.status is Status.OPTIMAL
    assert one.schedule is not None and two.schedule is not None
    assert (one.schedule.start == two.schedule.start).all() and (one.schedule.device == two.schedule.device).all()


def test_work_and_not_the_clock_ends_a_deterministic_run():
    """A limit far below the time that its work takes is not one of time: the run is not cut off, and repeats."""
    problem = layered(np.random.default_rng(3), 6, 6, transfer=2)
    options = Options(seconds=0.2, deterministic=True, seed=5, workers=2)
    one, two = (solve(problem, "cpsat", options) for _ in range(2))
    assert "not repeatable" not in one.detail + two.detail
    assert (one.status, one.lower_bound) == (two.status, two.lower_bound)


def test_optimum_of_a_fork():
    """Four tasks between a first and a last on two GPUs take 5 ticks, as derived in test_parent."""
    result = solve(fork(6), "cpsat", Options(seconds=600))
    assert result.status is Status.OPTIMAL and result.schedule is not None and result.schedule.makespan == 5


def test_cores_of_a_host_work_side_by_side():
    """Five tasks of 2 ticks on a host with three cores: three at once, then two, 4 ticks; two of 3 ticks go first."""
    for ticks, optimum in (([2] * 5, 4), ([2, 2, 3, 3, 2], 5)):
        result = solve(machine(np.tile(np.array(ticks)[:, None], 3), [0, 0, 0]), "cpsat", Options(seconds=600))
        assert (result.status, result.schedule.makespan) == (Status.OPTIMAL, optimum)
