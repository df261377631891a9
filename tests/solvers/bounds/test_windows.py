"""What must hold in every schedule of some ticks does hold, and lengths that are refuted have no schedule."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
from exhaustive import exhaustive

from solvers.bounds import windows as bounding_windows
from solvers.bounds.windows import dense, informed
from solvers.instances.plain import chain, fork, layered
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN

F = FORBIDDEN


def small(seed):
    """A random problem that the oracle can solve, with long transfers or memory that binds in some."""
    rng = np.random.default_rng(seed)
    gpus, kind = int(rng.integers(1, 4)), seed % 4
    if kind == 0:
        p = layered(rng, int(rng.integers(2, 4)), 2, gpus=gpus, transfer=int(rng.integers(0, 9)), longest=6)
        memory, capacity = rng.integers(0, 5, p.tasks), rng.integers(4, 12, p.locations)
        return replace(p, memory=memory, capacity=capacity, group=rng.integers(-2, 2, p.tasks).clip(-1))
    p = generate(rng, tasks=int(rng.integers(1, 7)), gpus=gpus)
    return replace(p, transfer=p.transfer * kind)


def holds(known, p, schedule):
    """Every claim, for one schedule."""
    at = p.location[schedule.device]
    assert (schedule.start >= known.head).all()
    assert (schedule.finish <= known.upper - known.tail).all()
    assert (schedule.finish - schedule.start >= known.took).all()
    assert known.able[np.arange(p.tasks), at].all()
    assert (at[:, None] == at[None, :])[known.unit[:, None] == known.unit[None, :]].all()
    assert (schedule.finish[known.problem.src] <= schedule.start[known.problem.dst]).all()
    if len(known.apart):
        assert (at[:, None] != at[None, :])[known.apart].all()


def test_optimal_schedules_keep_what_is_known(seeds):
    """Random small problems: at the optimum, and a little above, everything known holds in the optimal schedule."""
    apart = orders = units = 0
    for seed in seeds(60):
        p = small(seed)
        schedule = exhaustive(p)
        if schedule is None:
            continue
        for upper in {schedule.makespan + more for more in (0, 1, seed % 7)}:
            known = informed(p, upper)
            assert known is not None, (seed, upper)
            holds(known, p, schedule)
            apart += known.apart.any()
            orders += known.problem is not p
            units += len(np.unique(known.unit)) < len(np.unique(p.group[p.group >= 0])) + np.count_nonzero(p.group < 0)
    # None of these is idle.
    assert min(apart, orders, units) > len(seeds(60)) / 40


def test_any_schedule_keeps_the_windows_of_its_makespan(cases):
    """Random valid schedules of up to 14 tasks, transfers and idle time included."""
    for p, schedule in cases[:100]:
        known = informed(p, schedule.makespan)
        assert known is not None
        holds(known, p, schedule)


def test_what_is_known_when_the_time_is_up_holds(cases, monkeypatch):
    """Cut short at any look at the clock (one second each here), what was found holds, and more time tells more."""
    told = set()
    for p, schedule in cases[:20]:
        least = 0
        for looks in (0, 1, 2, 4, 8, 100):
            monkeypatch.setattr(bounding_windows, "time", SimpleNamespace(monotonic=count().__next__))
            known = informed(p, schedule.makespan, looks)
            assert known is not None
            none = np.zeros((p.tasks, p.tasks), dtype=bool)
            holds(known if len(known.apart) else replace(known, apart=none), p, schedule)
            ticks = int(known.head.sum() + known.tail.sum())
            assert ticks >= least
            told.add((looks, ticks > least > 0))
            least = ticks
    # Time is of use beyond the first look, so that it was indeed cut short.
    assert {looks for looks, more in told if more} >= {2}


def test_most_lengths_below_the_optimum_are_refuted(seeds):
    """Nothing is found only where there is nothing; and there, mostly."""
    refuted = below = 0
    for seed in seeds(60):
        p = small(seed)
        schedule = exhaustive(p)
        if schedule is not None and schedule.makespan > 0:
            below += 1
            refuted += informed(p, schedule.makespan - 1) is None
    assert refuted > 0.85 * below


def test_windows_of_a_fork_count_the_work_before_and_after():
    """A task, 6 in the middle, a task, all of one tick on 2 GPUs without transfers: 1 + 3 + 1 = 5.

    The last starts after 1 + 6 / 2; the first must be finished 6 / 2 + 1 before the end; the others are between.
    """
    p = fork(8, transfer=0)
    found = informed(p, 6)
    assert found is not None
    assert found.head.tolist() == [0, *[1] * 6, 4]
    assert (6 - found.tail).tolist() == [2, *[5] * 6, 6]
    assert informed(p, 4) is None


def test_a_transfer_without_time_joins_and_a_device_without_time_parts():
    """A chain of 2 tasks of 3 ticks with a transfer of 2 beside one of 3, on 2 GPUs, within 7 ticks.

    The transfer has no time (3 + 2 + 3 > 7), so both are on one device, which has no time for the third (9 > 7).
    """
    p = replace(chain(3, transfer=2), duration=[[3, 3]] * 3, src=[0], dst=[1], payload=[0])
    known = informed(p, 7)
    assert known is not None
    assert known.unit[0] == known.unit[1] != known.unit[2]
    assert known.apart.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    wide = informed(p, 9)
    assert wide is not None
    assert len(set(wide.unit.tolist())) == 3
    assert not wide.apart.any()


def test_of_two_orders_on_a_device_the_only_one_with_time_is_kept():
    """On one device, task 0 of 4 ticks must end 3 ticks before the end, task 1 of 2 ticks can start at 2 only.

    Task 0 feeds one of 3 ticks elsewhere, task 1 follows one of 2 ticks elsewhere; transfers take none. Within 7 ticks
    task 0 ends by 4, so it starts at 0, before task 1.
    """
    p = replace(
        chain(4, transfer=0),
        duration=[[4, F], [2, F], [F, 3], [F, 2]], src=[0, 3], dst=[2, 1], payload=[0, 2], producer=[0, 1, 3],
    )  # fmt: skip
    known = informed(p, 7)
    assert known is not None
    assert (0, 1) in set(zip(known.problem.src.tolist(), known.problem.dst.tolist(), strict=True))
    assert known.head.tolist() == [0, 4, 4, 0]


def test_memory_confines():
    """Of two locations, one has no room for a task; what is there for sure leaves no room for another."""
    p = replace(chain(3, transfer=0), memory=[9, 5, 5], capacity=[9, 8])
    known = informed(p, 3)
    # Task 0 fits at location 0 alone and fills it; at location 1 there is room for one of the others.
    assert known is None
    known = informed(replace(p, memory=[9, 5, 3]), 3)
    assert known is not None
    assert known.able.tolist() == [[True, False], [False, True], [False, True]]


def test_large_problems_have_windows_of_their_paths():
    """More tasks than pairs are looked at for: heads and tails of a chain."""
    p = chain(2000)
    assert not dense(p)
    found = informed(p, 2003)
    assert found is not None
    assert (found.head == np.arange(2000)).all()
    assert (2003 - found.tail == np.arange(2000) + 4).all()
    assert informed(p, 1999) is None


def test_no_task_has_no_window():
    """Nothing to place within nothing."""
    found = informed(chain(0), 0)
    assert found is not None
    assert len(found.head) == len(found.tail) == 0
