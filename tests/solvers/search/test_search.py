"""Local search: its event loop is the replay's, its changes can be taken back, its answers are valid and repeatable."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from solvers import api
from solvers.arrays import rank_of
from solvers.bounds import quick_bounds
from solvers.checker import check
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import fork, lstm_grid
from solvers.instances.random import generate
from solvers.result import Options, Status
from solvers.search.annealing import Orders, PointValue, Temperature, Walk, WalkBudget, walk_all
from solvers.search.solver import LocalSearch
from solvers.search.walk_state import BEST, COST, KINDS, MOVED, SLID, TAKEN, Cooling, anneal, lane_for, propose, undo
from solvers.search.workspace import Solution, Workspace
from solvers.timing.replay import replay

HOT = 50.0
AGREEMENT = Path(__file__).resolve().parents[1] / "stubs" / "search_agreement.py"


def problems(count, most=40, gpus=4):
    """Random problems with every feature and some schedule."""
    for seed in range(count):
        rng = np.random.default_rng([11, seed])
        p = generate(rng, tasks=int(rng.integers(2, most)), gpus=int(rng.integers(1, gpus + 1)))
        first = ListScheduler().solve(p, Options(seconds=1), lambda _: None)
        if first.schedule is not None:
            yield seed, p, first.schedule


def lane_of(arena, schedule, seed=0):
    spot = arena.solution_of(schedule)
    return spot, lane_for(arena.network, spot.at, spot.order, arena.capacity, seed)


def agrees(arena, lane):
    """The current choice's trace is the replay's to the tick, and what follows from the choice is right."""
    c = lane.choice
    assert np.array_equal(np.asarray(c.order)[c.place], np.arange(len(c.place)))
    run = arena.run(arena.devices(np.int64(c.at)), np.int64(c.place))
    assert np.array_equal(run.start, lane.base.start)
    assert np.array_equal(run.finish, lane.base.end)
    assert run.makespan == lane.tally[COST]
    chains = [c.order[c.device[c.order] == d].tolist() for d in range(len(arena.network.used))]
    for d, chain in enumerate(chains):
        task, seen = c.first[d], []
        while task >= 0:
            seen.append(task)
            task = c.after[task]
        assert seen == chain
        assert c.load[d] == c.took[chain].sum()
    for place, held in enumerate(lane.choice.held):
        assert held == arena.problem.memory[np.asarray(c.at) == place].sum()


def test_the_event_loop_is_the_replay_s_whatever_was_changed_and_resumed(seeds):
    """After hundreds of accepted and refused changes, incrementally run, the trace is that of a fresh strict replay."""
    taken = 0
    for seed, p, start in problems(len(seeds(30))):
        arena = Workspace.of(p, [np.arange(p.tasks) // 4])
        spot, lane = lane_of(arena, start, seed)
        agrees(arena, lane)
        if not len(arena.network.choice):
            continue
        kinds, levels = np.cumsum(np.full(KINDS, 1 / KINDS)), np.array([0.5, 1.0])
        for _ in range(6):
            anneal(arena.network, arena.clusters, lane, Cooling(40, HOT, 1.0, kinds, levels))
            agrees(arena, lane)
        taken += lane.tally[TAKEN]
        assert lane.tally[BEST] <= spot.makespan
        best = arena.solution(np.int64(lane.best_at), np.int64(lane.best_order))
        assert best.makespan == lane.tally[BEST]
        assert (rank_of(best.order)[p.src] < rank_of(best.order)[p.dst]).all()
    assert taken > 15 * len(seeds(30))


def test_every_kind_of_change_can_be_taken_back():
    """A change, undone, leaves the choice as it was; some of each kind change something."""
    changed = np.zeros(KINDS, dtype=int)
    for seed, p, start in problems(12):
        arena = Workspace.of(p, [np.arange(p.tasks) // 3])
        _, lane = lane_of(arena, start, seed)
        if not len(arena.network.choice):
            continue
        before = [np.array(field) for field in lane.choice]
        for k in range(KINDS * 10):
            changed[k % KINDS] += propose(arena.network, arena.clusters, lane, k % KINDS, k % 2)
            undo(arena.network, lane)
            assert lane.tally[MOVED] == lane.tally[SLID] == 0
            for name, old, new in zip(lane.choice._fields, before, lane.choice, strict=True):
                assert np.array_equal(old, new), (seed, k, name)
    assert (changed > 20).all()


def test_moved_tasks_keep_kinds_units_and_memory():
    """Whatever is accepted runs where it can, groups whole, and holds no more than the capacity or the start did."""
    for seed, p, start in problems(40):
        arena = Workspace.of(p, [np.arange(p.tasks) // 5])
        spot, lane = lane_of(arena, start, seed)
        if not len(arena.network.choice):
            continue
        room = np.zeros(p.locations, dtype=np.int64)
        np.add.at(room, spot.at, p.memory)
        kinds, levels = np.cumsum(np.full(KINDS, 1 / KINDS)), np.array([0.5, 1.0])
        anneal(arena.network, arena.clusters, lane, Cooling(300, HOT, 1.0, kinds, levels))
        at = np.asarray(lane.best_at)
        assert p.allowed[np.arange(p.tasks), arena.devices(np.int64(at))].all()
        for group in range(int(p.group.max(initial=-1)) + 1):
            assert len(set(at[p.group == group].tolist())) <= 1
        held = np.zeros(p.locations, dtype=np.int64)
        np.add.at(held, at, p.memory)
        assert (held <= np.maximum(room, p.capacity)).all()


def test_other_orders_are_valid_and_never_worse():
    """Forward and backward listing of a placement: topological, on the same devices, and timed by the replay."""
    better = 0
    for _, p, start in problems(40):
        arena = Workspace.of(p, [])
        spot = arena.solution(arena.problem.location[start.device], np.argsort(arena.topological))
        found = Orders.of(arena).improve(spot)
        assert (rank_of(found.order)[p.src] < rank_of(found.order)[p.dst]).all()
        assert np.array_equal(found.at, spot.at)
        assert arena.solution(found.at, found.order).makespan == found.makespan <= spot.makespan
        better += found.makespan < spot.makespan
    assert better > 10


def weigher(arena):
    def weigh(spot):
        none = np.zeros(arena.problem.locations, dtype=np.int64)
        return PointValue(makespan=spot.makespan, device=arena.devices(spot.at), rank=rank_of(spot.order), over=none)

    return weigh


def walked(seed):
    p = lstm_grid(layers=3, steps=8, gpus=2)
    arena = Workspace.of(p, [])
    start = arena.solution_of(ListScheduler().solve(p, Options(seconds=1), lambda _: None).schedule)
    walks = [Walk(arena, start, Temperature(0.02, 0.001), weigher(arena), seed + lane) for lane in range(2)]
    kept = []

    def told():
        kept.extend((yield from walk_all(walks, WalkBudget(seconds=0, stretches=32), lambda: False)))

    heard = list(told())
    return p, start, kept, heard


def test_a_number_of_stretches_gives_the_same_plan_again():
    """Two walks side by side, counted and not timed: the same seed the same points, another seed others."""
    p, start, kept, heard = walked(1)
    again, other = walked(1)[2], walked(5)[2]
    assert any(not np.array_equal(a.rank, b.rank) for a, b in zip(kept, other, strict=True))
    assert [k.makespan for k in kept] == [k.makespan for k in again]
    assert all(np.array_equal(a.device, b.device) for a, b in zip(kept, again, strict=True))
    assert kept[0].makespan <= start.makespan
    assert heard and min(h.makespan for h in heard) == kept[0].makespan
    assert replay(p, kept[0].device, kept[0].rank).makespan == kept[0].makespan
    assert not check(p, replay(p, kept[0].device, kept[0].rank))


def test_what_does_not_fit_is_forgotten():
    """A weigher that refuses more than 60 % of the tasks at one location: what is kept has no more there."""
    p = lstm_grid(layers=3, steps=8, gpus=2)
    p = p.holding(memory=np.ones(p.tasks, dtype=np.int64), capacity=np.full(p.locations, p.tasks))
    arena = Workspace.of(p, [])
    most = 6 * p.tasks // 10

    def weigh(spot: Solution) -> PointValue:
        over = np.maximum(np.bincount(spot.at, minlength=p.locations) - most, 0)
        return PointValue(makespan=spot.makespan, device=arena.devices(spot.at), rank=rank_of(spot.order), over=over)

    start = arena.solution(np.full(p.tasks, int(p.location[np.argmax(p.allowed[0])])), np.argsort(arena.topological))
    walk = Walk(arena, start, Temperature(0.05, 0.005), weigh, 3)
    assert not walk.pause()  # all at one location
    assert walk.kept is None
    for k in range(64):
        walk.stretch(k / 64)
    assert walk.kept is not None
    assert np.bincount(p.location[walk.kept.device], minlength=p.locations).max() <= most


def test_search_reaches_the_optimum_of_small_problems(seeds):
    """Annealing and exact windows against the oracle, whose optimum ends the run: it is reached."""
    command = [sys.executable, str(AGREEMENT), "5", str(len(seeds(4)))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    count, reached = map(int, done.stdout.split())
    assert reached == count > len(seeds(4)) / 2


def test_search_is_a_solver_like_any_other():
    """In a process of its own, from a start that it never loses."""
    p = lstm_grid(layers=2, steps=6, gpus=2)
    start = ListScheduler().solve(p, Options(seconds=1), lambda _: None).schedule
    result = api.solve(p, "search", Options(seconds=1, start=start, workers=4))
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE), result.detail
    assert result.schedule.makespan <= start.makespan


def test_its_walks_are_deterministic_when_asked():
    """Twice the same schedule; windows, whose effort the clock may cut short, have no share of the limit here."""
    p = lstm_grid(layers=2, steps=6, gpus=2)
    options = Options(seconds=2, deterministic=True, workers=4)
    one, two = (LocalSearch(walking=1.0).solve(p, options, lambda _: None) for _ in range(2))
    assert np.array_equal(one.schedule.start, two.schedule.start)


def test_a_bound_that_windows_find_is_its_own():
    """Two tasks of 3 ticks in a diamond, transfers of 2: 1 + 3 + 2 + 1 is proved there; the quick bounds say 5."""
    p = replace(fork(4, transfer=2), duration=[[1, 1], [3, 3], [3, 3], [1, 1]])
    assert quick_bounds.best(p)[0] == 5
    progress = []
    result = LocalSearch(walking=1 / 6000).solve(p, Options(seconds=600, workers=1), progress.append)
    assert result.status is Status.OPTIMAL
    assert result.schedule.makespan == result.lower_bound == 7
    assert max(each.lower_bound for each in progress) == 7
