"""The list scheduler and its kin: valid always, no worse than one location, honest when memory defeats them."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import exhaustive

from solvers.bounds import quick_bounds
from solvers.checker import check
from solvers.compiled.dag import topological_order
from solvers.heuristics.eft_pass import board_of, clusters_of, earliest_finish, guided, unguided
from solvers.heuristics.list_solver import ListScheduler, SingleDevice, packings
from solvers.instances.plain import chain, fork, layered
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN
from solvers.result import Limit, Options, Status
from solvers.structure.units import units_of
from solvers.timing.replay import prepare

F = FORBIDDEN


def answer(solver, problem, **options):
    """The result of a solver, and all that it reported."""
    told = []
    return solver.solve(problem, Options(**options), told.append), told


def some(seed, most=40):
    """A random problem with every feature."""
    rng = np.random.default_rng(seed)
    return generate(rng, tasks=int(rng.integers(0, most)), gpus=int(rng.integers(1, 4)))


@pytest.mark.parametrize("solver", [ListScheduler(), SingleDevice()], ids=["list", "single"])
def test_answers_are_valid_and_within_the_bound(solver, seeds):
    """Every schedule passes the checker; without one the status is unknown and the line names bytes."""
    answered = 0
    for seed in seeds(100):
        p = some(seed)
        result, told = answer(solver, p)
        if result.schedule is None:
            assert result.status is Status.UNKNOWN, seed
            assert "bytes" in result.detail
            continue
        answered += 1
        assert not check(p, result.schedule), seed
        assert result.lower_bound == quick_bounds.best(p)[0]
        spans = [t.schedule.makespan for t in told if t.schedule is not None]
        assert spans == sorted(spans, reverse=True)
        assert spans[-1] == result.schedule.makespan
    # Half of the problems have barely enough memory, where one location seldom has room for all.
    assert answered > len(seeds(100)) / 3


def test_no_answer_beats_the_optimum_and_most_meet_it(seeds):
    """Against enumeration on small problems: never below, and equal in nine of ten."""
    met = total = 0
    for seed in seeds(100):
        p = some(seed, most=6)
        optimum = exhaustive(p)
        result, _ = answer(ListScheduler(), p)
        assert optimum is not None
        if result.schedule is not None:
            assert result.schedule.makespan >= optimum.makespan, seed
            total += 1
            met += result.schedule.makespan == optimum.makespan
    assert met >= 0.9 * total > 0


def test_list_never_loses_to_one_location_of_equal_gpus():
    """Layered graphs with transfers from cheap to ruinous: never longer than all tasks one after another."""
    for transfer in (0, 1, 3, 10, 100):
        p = layered(np.random.default_rng(transfer), 20, 6, gpus=3, transfer=transfer)
        result, _ = answer(ListScheduler(), p)
        assert result.schedule is not None
        # 120 tasks of one tick.
        assert result.schedule.makespan <= 120


def test_a_chain_stays_on_one_gpu_and_is_proven():
    """Any transfer only delays a chain: its 50 ticks meet the critical path."""
    result, _ = answer(ListScheduler(), chain(50, transfer=1))
    assert result.status is Status.OPTIMAL
    assert result.schedule is not None
    assert result.schedule.makespan == result.lower_bound == 50
    assert len(result.schedule.sent_payload) == 0


def test_a_fork_is_spread():
    """1 + 20 / 2 + 1 ticks with transfers of none, twice as fast as one GPU's 22."""
    result, _ = answer(ListScheduler(), fork(22, transfer=0))
    assert result.schedule is not None
    assert result.schedule.makespan == 12


def test_links_are_taken_into_account():
    """Two readers of 5 ticks and a bus of 20: sharing would take 1 + 20 + 5, one GPU takes 1 + 5 + 5."""
    p = replace(chain(3, transfer=20), duration=[[1, 1], [5, 5], [5, 5]], src=[0, 0], dst=[1, 2], payload=[0, 0])
    result, _ = answer(ListScheduler(), p)
    assert result.schedule is not None
    assert result.schedule.makespan == 11


def test_a_variable_goes_to_its_reader():
    """A source just before its first reader in the order, and guided by it; others guide themselves."""
    # 0 -> 1 -> 3 and 2 -> 3: by index 2 comes after 1; source 0 is guided by 1, source 2 by 3.
    p = replace(chain(4), src=[0, 1, 2], dst=[1, 3, 3], payload=[0, 1, 2])
    found = guided(prepare(p), units_of(p).unit, np.array([2, 0, 1, 3]))
    assert found.order.tolist() == [0, 1, 2, 3]
    assert found.guide.tolist() == [1, 1, 3, 3]
    # With 0 and 1 of one group, 1 reads its own variable out: both are sources and belong to 3.
    p = replace(p, group=[5, 5, -1, -1])
    found = guided(prepare(p), units_of(p).unit, np.array([2, 0, 1, 3]))
    assert found.order.tolist() == [2, 0, 1, 3]
    assert found.guide.tolist() == [3, 3, 3, 3]


def test_guided_orders_are_topological(seeds):
    """On random problems each edge goes forward in the guided order."""
    for seed in seeds(100):
        p = some(seed)
        order = guided(prepare(p), units_of(p).unit, topological_order(p.tasks, p.src, p.dst)).order
        place = np.argsort(order)
        assert np.array_equal(np.sort(order), np.arange(p.tasks))
        assert (place[p.src] < place[p.dst]).all(), seed


def test_a_group_finds_room_as_a_whole():
    """A group of 6 bytes must go where 6 are left, though its first task alone would fit elsewhere."""
    p = replace(chain(3), memory=[3, 3, 4], capacity=[5, 9], group=[0, 0, -1])
    result, _ = answer(ListScheduler(), p)
    assert result.schedule is not None
    assert p.location[result.schedule.device].tolist() == [1, 1, 0]


def test_memory_first_where_tasks_in_order_run_out_of_room():
    """The two long tasks come first and spread over both locations; then the third finds no 10 bytes anywhere."""
    none = np.zeros(0, dtype=np.int64)
    p = replace(chain(3), src=none, dst=none, payload=none, memory=[4, 4, 10], capacity=[10, 10])
    p = replace(p, duration=[[5, 5], [5, 5], [1, 1]])
    order = unguided(np.arange(3))
    assert all(earliest_finish(board_of(p), clusters_of(units_of(p)), order, bias)[1] == 2 for bias in (0.0, 1.0, 4.0))
    result, _ = answer(ListScheduler(), p)
    assert result.schedule is not None
    assert not check(p, result.schedule)
    # Only {10} and {4, 4} fit: 5 + 5 ticks.
    assert result.schedule.makespan == 10


def test_packings_name_what_finds_no_room(monkeypatch):
    """Three units of 6 bytes on 10 + 10: one always finds no room, which is said where no proof is found."""
    monkeypatch.setattr("solvers.heuristics.list_solver.memory_proof", unproven)
    p = replace(chain(3), memory=[6, 6, 6], capacity=[10, 10])
    assert {short for _, short in packings(p, units_of(p))} == {6}
    result, _ = answer(ListScheduler(), p)
    assert result.status is Status.UNKNOWN
    assert result.detail == "memory: 6 bytes found no room in the best packing"


def test_what_no_greedy_packing_holds_is_packed_by_looking_at_all():
    """3, 3, 2 and 2 bytes on 4 + 6: the largest first, 3 and 3 go apart or 2 joins a 3; only {3, 3} and {2, 2} fit."""
    p = replace(chain(4, transfer=0), memory=[3, 3, 2, 2], capacity=[4, 6])
    *greedy, (whole, short) = packings(p, units_of(p))
    assert [lacks for _, lacks in greedy] == [2] * 9
    assert (whole.tolist(), short) == ([1, 1, 0, 0], 0)
    result, _ = answer(ListScheduler(), p)
    assert result.schedule is not None
    assert not check(p, result.schedule)


def test_small_problems_have_a_schedule_where_the_oracle_finds_one(seeds):
    """Random problems with tight memory: the list scheduler finds a schedule exactly where enumeration does."""
    feasible, count = 0, len(seeds(100))
    for seed in seeds(100):
        p = some(seed, most=7)
        share = p.memory.sum() / p.locations * np.random.default_rng(seed).uniform(0.7, 1.8, p.locations)
        tight = replace(p, capacity=share.astype(np.int64))
        found = answer(ListScheduler(), tight)[0].schedule is not None
        assert found == (exhaustive(tight) is not None), seed
        feasible += found
    assert 0.2 * count < feasible < 0.9 * count


def unproven(problem):
    """Finds no proof."""


def test_infeasible_only_with_a_proof():
    """Four units of 6 bytes on 10 + 10 exceed the total, and the answer is the proof."""
    p = replace(chain(4), memory=[6] * 4, capacity=[10, 10])
    for solver in (ListScheduler(), SingleDevice()):
        result, told = answer(solver, p)
        assert result.status is Status.INFEASIBLE
        assert result.detail == quick_bounds.memory_proof(p)
        assert not told


def test_single_says_how_many_bytes_are_missing():
    """12 bytes on a location of 7 or of 10: the second lacks least."""
    result, _ = answer(SingleDevice(), replace(chain(3), memory=[4, 4, 4], capacity=[7, 10]))
    assert result.status is Status.UNKNOWN
    assert result.detail == "memory: 2 bytes missing at the location that lacks least"


def test_single_takes_the_better_location():
    """GPU 1 is twice as fast; the task that it cannot run goes to GPU 0."""
    p = replace(chain(3, transfer=1), duration=[[2, F], [4, 2], [4, 2]])
    result, _ = answer(SingleDevice(), p)
    assert result.schedule is not None
    # At 1: 2 + transfer 1 + 2 + 2; at 0: 2 + 4 + 4.
    assert result.schedule.makespan == 7
    assert result.schedule.device.tolist() == [0, 1, 1]


def test_a_start_is_never_made_worse(seeds):
    """Whatever schedule the options bring, the answer is at most as long."""
    for seed in seeds(40):
        p = some(seed, most=6)
        optimum = exhaustive(p)
        result, _ = answer(SingleDevice(), p, start=optimum)
        assert optimum is not None
        assert result.schedule is not None
        assert result.schedule.makespan == optimum.makespan
        assert not check(p, result.schedule), seed


def test_no_time_still_gives_a_schedule():
    """One pass runs whatever the limit, and the result says that time stopped the rest."""
    p = layered(np.random.default_rng(1), 10, 5, transfer=2)
    result, told = answer(ListScheduler(), p, seconds=0.0)
    assert result.schedule is not None
    assert (result.status, result.limit) == (Status.FEASIBLE, Limit.TIME)
    assert told


def test_the_same_problem_gives_the_same_schedule():
    """Two runs agree in every column."""
    p = some(3)
    one, two = (answer(ListScheduler(), p, deterministic=True)[0].schedule for _ in range(2))
    assert one is not None
    assert two is not None
    for column in ("device", "start", "sent_payload", "sent_to", "sent_start"):
        assert np.array_equal(getattr(one, column), getattr(two, column))


def test_extremes():
    """No task, one task, a chain of 20 000, a star of 20 000 readers and a join of 20 000 sources."""
    for p, least in ((chain(0, gpus=1), 0), (chain(1), 1), (chain(20_000), 20_000)):
        result, _ = answer(ListScheduler(), p)
        assert result.schedule is not None
        assert result.schedule.makespan == least
    star = replace(chain(20_001), src=[0] * 20_000, dst=np.arange(1, 20_001), payload=[0] * 20_000)
    result, _ = answer(ListScheduler(), star)
    assert result.schedule is not None
    # The centre at 1, the payload at 2: 10 000.5 ticks each, so 10 001 on one GPU and 9 999 on the other at best.
    assert result.schedule.makespan in (10_001, 10_002)
    join = replace(chain(20_001, transfer=0), src=np.arange(20_000), dst=[20_000] * 20_000, payload=np.arange(20_000))
    result, _ = answer(ListScheduler(), join)
    assert result.schedule is not None
    # Half of the sources on each GPU, payloads of no ticks, then the join.
    assert result.schedule.makespan == 10_001
