"""Moves of local search against brute force: placements, orders, times and the ends of early runs."""

import numpy as np
import pytest

from solvers.arrays import rank_of
from solvers.checker import check
from solvers.compiled.kernels import kernel
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.random import Features, generate
from solvers.problem import Problem
from solvers.result import Options
from solvers.search.annealing import Orders, PointValue, Temperature, Walk, WalkBudget, walk_all
from solvers.search.simulation import NEVER, STOPPED, RunBounds, simulate
from solvers.search.walk_state import (
    BALL,
    BEST,
    CLUSTER,
    COST,
    FAMILY,
    KINDS,
    MOVED,
    SHIFTED,
    SLID,
    SOONER,
    STATES,
    SWAP,
    TAKEN,
    Cooling,
    anneal,
    begin_at,
    holder,
    lane_for,
    overload,
    propose,
    undo,
)
from solvers.search.workspace import Workspace, clusters_of, network_of
from solvers.structure.units import placeable_units, units_of
from solvers.timing.replay import bottom_levels, replay
from tests.oracles.exhaustive import exhaustive

EVERYTHING = Features()
EVEN = np.cumsum(np.full(KINDS, 1 / KINDS))
UNLIMITED = Features(memory=False)


@kernel
def run_trial(net, lane, limit):
    """Run the pending change with a limit of its makespan, resuming where it departs."""
    every = max(lane.tally[COST] // (STATES + 1), 1)
    return simulate(net, lane.choice, lane.trial, lane.work, lane.saved, RunBounds(limit, lane.departs[0], every))


@kernel
def held_up_by(net, lane, task):
    return holder(net, lane, task)


@kernel
def bytes_over(lane):
    return overload(lane)


def walks(count, tasks=24, features=EVERYTHING):
    """Random problems with a workspace and a lane that starts at a list schedule, where there is something to move."""
    for seed in range(count):
        rng = np.random.default_rng([23, seed])
        p = generate(rng, tasks=int(rng.integers(3, tasks)), gpus=int(rng.integers(2, 5)), features=features)
        schedule = ListScheduler().solve(p, Options(seconds=1), lambda _: None).schedule
        if schedule is None:
            continue
        workspace = Workspace.of(p, [np.arange(p.tasks) // 4])
        if len(workspace.network.choice):
            start = workspace.solution_of(schedule)
            yield rng, p, workspace, lane_for(workspace.network, start.at, start.order, workspace.capacity, seed)


def current(workspace, lane):
    """The lane's decision as a schedule, by the full replay."""
    return workspace.run(workspace.devices(np.int64(lane.choice.at)), np.int64(lane.choice.place))


@pytest.mark.slow
def test_no_move_makes_an_invalid_schedule(seeds):
    """Every kind of move, proposed on top of accepted ones: whatever fits the memory is valid by the checker."""
    checked = 0
    for _, p, workspace, lane in walks(len(seeds(12))):
        for k in range(6 * KINDS):
            if propose(workspace.network, workspace.clusters, lane, k % KINDS, k % 2):
                schedule = current(workspace, lane)
                wrong = {violation.kind for violation in check(p, schedule)}
                assert wrong <= ({"memory"} if bytes_over(lane) else set())
                checked += 1
            if k % 3:
                undo(workspace.network, lane)
            else:
                at, order = lane.choice.at.copy(), lane.choice.order.copy()
                begin_at(workspace.network, lane, at, order)
    assert checked > 20 * len(seeds(12))


def test_a_pending_change_takes_the_ticks_of_the_full_replay(seeds):
    """Resumed where the change departs; with a limit below its makespan it is given up, and never above."""
    for rng, _, workspace, lane in walks(len(seeds(12))):
        for k in range(4 * KINDS):
            if propose(workspace.network, workspace.clusters, lane, k % KINDS, 0):
                ticks = current(workspace, lane).makespan
                assert run_trial(workspace.network, lane, NEVER) == ticks
                assert run_trial(workspace.network, lane, ticks) == ticks
                below = run_trial(workspace.network, lane, int(rng.integers(ticks)))
                assert below in (STOPPED, ticks)
            undo(workspace.network, lane)


def test_a_change_makes_no_difference_before_it_departs(seeds):
    """Whatever begins before the noted tick begins then in both runs, on the same device."""
    for _, _, workspace, lane in walks(len(seeds(12))):
        before = current(workspace, lane)
        for k in range(4 * KINDS):
            if propose(workspace.network, workspace.clusters, lane, k % KINDS, 1):
                after, departs = current(workspace, lane), lane.departs[0]
                early = np.flatnonzero((before.start < departs) & (before.finish <= departs))
                assert np.array_equal(before.start[early], after.start[early])
            undo(workspace.network, lane)


@pytest.mark.parametrize("kind", [CLUSTER, BALL, FAMILY, SWAP])
def test_moves_of_location_keep_the_order_and_units_whole(kind):
    """Only locations change, to allowed ones, and tasks of one unit never part."""
    for _, p, workspace, lane in walks(8):
        units = units_of(p)
        order = lane.choice.order.copy()
        for _ in range(6):
            propose(workspace.network, workspace.clusters, lane, kind, 0)
            assert np.array_equal(lane.choice.order, order)
            at = np.int64(lane.choice.at)
            assert units.allowed[units.unit, at].all()
            for unit in range(len(units.allowed)):
                assert len(set(at[units.unit == unit].tolist())) == 1
            undo(workspace.network, lane)


@pytest.mark.parametrize("kind", [SOONER, SHIFTED])
def test_moves_of_order_keep_the_locations_and_the_precedence(kind):
    """Only the order changes, and each task stays after what it depends on."""
    for _, p, workspace, lane in walks(8):
        at = lane.choice.at.copy()
        for _ in range(6):
            propose(workspace.network, workspace.clusters, lane, kind, 0)
            assert np.array_equal(lane.choice.at, at)
            assert sorted(lane.choice.order.tolist()) == list(range(p.tasks))
            assert (lane.choice.place[p.src] < lane.choice.place[p.dst]).all()
            undo(workspace.network, lane)


def test_every_kind_of_move_finds_something_to_do():
    """So that the tests above are of moves that are made."""
    made = np.zeros(KINDS, dtype=int)
    for _, _, workspace, lane in walks(12):
        for k in range(6 * KINDS):
            made[k % KINDS] += propose(workspace.network, workspace.clusters, lane, k % KINDS, 0)
            undo(workspace.network, lane)
            assert lane.tally[MOVED] == lane.tally[SLID] == 0
    assert (made > 5).all()


def test_the_critical_chain_holds_up_the_end():
    """It leads back from the last task to one that starts at 0, each task no sooner than the next ends."""
    for _, _, workspace, lane in walks(12):
        run, task = current(workspace, lane), int(np.argmax(lane.base.end))
        assert run.finish[task] == run.makespan
        while (held := held_up_by(workspace.network, lane, task)) >= 0:
            assert run.finish[held] <= run.start[task]
            task = held
        assert run.start[task] == 0 or not (workspace.problem.dst == task).any()


def test_annealing_is_never_better_than_the_optimum_and_reaches_it():
    """Enumeration of tiny problems: no makespan is below the optimum, and most are it."""
    reached = count = 0
    for _, p, workspace, lane in walks(16, tasks=6, features=UNLIMITED):
        anneal(workspace.network, workspace.clusters, lane, Cooling(1500, 10.0, 0.5, EVEN, np.array([0.5, 1.0])))
        best = exhaustive(p)
        assert best.makespan <= lane.tally[BEST]
        reached += best.makespan == lane.tally[BEST]
        count += 1
    assert reached >= 0.6 * count > 4


def test_the_least_ticks_after_a_task_are_those_of_the_longest_path():
    """What gives a run up: no task of any schedule ends later than the makespan less these."""
    for _, p, workspace, lane in walks(10):
        rest = workspace.network.rest
        least = np.where(p.allowed, p.duration, 2**62).min(axis=1)
        assert np.array_equal(rest + least, bottom_levels(p, mean=False, communication=0.0))
        run = current(workspace, lane)
        assert (run.finish + rest <= run.makespan).all()


def test_the_same_seed_gives_the_same_plan():
    """Two lanes of one seed take the same changes to the same decision; another seed takes others."""

    def annealed(seed):
        rng = np.random.default_rng(7)
        p = generate(rng, tasks=30, gpus=3, features=UNLIMITED)
        workspace = Workspace.of(p, [])
        start = workspace.solution_of(ListScheduler().solve(p, Options(seconds=1), lambda _: None).schedule)
        lane = lane_for(workspace.network, start.at, start.order, workspace.capacity, seed)
        anneal(workspace.network, workspace.clusters, lane, Cooling(400, 20.0, 1.0, EVEN, np.ones(1)))
        return lane

    one, two, other = annealed(3), annealed(3), annealed(4)
    assert np.array_equal(one.choice.at, two.choice.at) and np.array_equal(one.choice.order, two.choice.order)
    assert one.tally[TAKEN] == two.tally[TAKEN] and one.tally[BEST] == two.tally[BEST]
    assert not np.array_equal(one.choice.order, other.choice.order)


def test_without_heat_nothing_gets_longer():
    """At hardly any temperature the current makespan only falls."""
    for _, _, workspace, lane in walks(8, features=UNLIMITED):
        before = lane.tally[COST]
        for _ in range(4):
            anneal(workspace.network, workspace.clusters, lane, Cooling(50, 1e-9, 1e-9, EVEN, np.array([0.5, 1.0])))
            assert lane.tally[COST] <= before
            before = lane.tally[COST]


def test_clusters_are_the_coarsest_partitions_that_keep_units_whole():
    """Brute force: two tasks share a cluster where a chain of shared labels and shared units joins them."""
    for rng, p, _, _ in walks(12, tasks=12):
        units, label = placeable_units(p), rng.integers(0, (p.tasks + 2) // 3, p.tasks)
        clusters = clusters_of(units, [label])
        joined = (label[:, None] == label) | (units.unit[:, None] == units.unit)
        for _ in range(p.tasks):
            joined = joined | (joined.astype(int) @ joined.astype(int) > 0)
        assert np.array_equal(clusters.label[0][:, None] == clusters.label[0], joined)
        assert np.array_equal(clusters.label[1], units.unit)
        for k in range(2):
            assert sorted(clusters.member[k].tolist()) == list(range(p.tasks))
            for cluster in range(clusters.sizes[k]):
                inside = clusters.member[k][clusters.first[k, cluster] : clusters.first[k, cluster + 1]]
                assert set(inside.tolist()) == set(np.flatnonzero(clusters.label[k] == cluster).tolist())


def test_the_tables_of_search_say_what_the_problem_says():
    """Devices at locations can run their tasks, and are there; edges are the problem's, both ways."""
    for _, p, _, _ in walks(12):
        net = network_of(p, placeable_units(p))
        for task, place in zip(*np.nonzero(net.device_at >= 0), strict=True):
            device = net.used[net.device_at[task, place]]
            assert p.location[device] == place and p.allowed[task, device]
            assert net.took_at[task, place] == p.duration[task, device]
        out = [
            (t, int(net.head[k]), int(net.carried[k])) for t in range(p.tasks) for k in range(*net.offset[t : t + 2])
        ]
        assert sorted(out) == sorted(zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True))
        back = [(int(net.tail_of[k]), t) for t in range(p.tasks) for k in range(*net.behind[t : t + 2])]
        sends = np.where(p.payload >= 0, p.src, -1 - p.src)
        assert sorted(back) == sorted(zip(sends.tolist(), p.dst.tolist(), strict=True))


def test_better_orders_keep_the_placement(seeds):
    """The same locations, a topological order, the replay's ticks, and never more of them."""
    for _, p, workspace, lane in walks(len(seeds(10))):
        start = workspace.solution(np.int64(lane.choice.at), np.int64(lane.choice.order))
        better = Orders.of(workspace).improve(start)
        rank = rank_of(better.order)
        assert np.array_equal(better.at, start.at) and (rank[p.src] < rank[p.dst]).all()
        assert replay(p, workspace.devices(better.at), rank).makespan == better.makespan <= start.makespan


def evaluate_in(workspace):
    """Every solution fits, and is worth its own makespan."""
    none = np.zeros(workspace.problem.locations, dtype=np.int64)
    return lambda one: PointValue(
        makespan=one.makespan, device=workspace.devices(one.at), rank=rank_of(one.order), over=none
    )


def test_an_error_in_one_walk_ends_all_and_is_raised():
    """What an evaluation raises comes out of the generator; the walks beside it end."""
    for _, _, workspace, lane in walks(1):
        start = workspace.solution(np.int64(lane.choice.at), np.int64(lane.choice.order))
        walk = Walk(workspace, start, Temperature(0.1, 0.01), evaluate_in(workspace), 0)

        def fail(*_):
            raise ArithmeticError("no value")

        walk.stretch = fail
        calm = Walk(workspace, start, Temperature(0.1, 0.01), evaluate_in(workspace), 1)
        with pytest.raises(ArithmeticError, match="no value"):
            list(walk_all([calm, walk], WalkBudget(seconds=30.0), lambda: False))


def test_walks_end_when_asked():
    """`over` ends walks long before their budget; the best of each is returned, best first."""
    for _, _, workspace, lane in walks(1):
        start = workspace.solution(np.int64(lane.choice.at), np.int64(lane.choice.order))
        both = [Walk(workspace, start, Temperature(0.1, 0.01), evaluate_in(workspace), k) for k in range(2)]
        values = list(walk_all(both, WalkBudget(seconds=600.0), lambda: True))
        assert min(value.makespan for value in values) <= start.makespan


def test_temperatures_are_multiplied():
    assert Temperature(0.2, 0.1).times(2.0) == Temperature(0.4, 0.2)


def test_a_problem_without_a_choice_is_not_searched():
    """One location: every task stays, and the walk gives its start back."""
    p = Problem(
        duration=[[2], [3]], location=[0], memory=[0, 0], capacity=[0], src=[0], dst=[1], payload=[-1], producer=[],
        transfer=np.zeros((0, 1)), path_class=[[-1]], path_links=np.full((1, 1, 1), -1), group=[-1, -1],
    )  # fmt: skip
    workspace = Workspace.of(p, [])
    walk = Walk(
        workspace,
        workspace.solution(np.zeros(2, dtype=int), np.arange(2)),
        Temperature(1, 0.1),
        evaluate_in(workspace),
        0,
    )
    assert not walk.stretch(0.0) and walk.kept.makespan == walk.best.makespan == 5
