"""Placements repaired until they fit: ParDNN's figure and equations by hand, brute force, and what must always hold."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from solvers.arrays import rank_of
from solvers.checker import check
from solvers.compiled.dag import topological_order
from solvers.footprint import Footprint
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.overflow import buffers, move_out
from solvers.heuristics.overflow.buffers import (
    bytes_at,
    fronts_of,
    held_for,
    hold,
    lives_of,
    scratch_for,
    shift,
    take_back,
)
from solvers.heuristics.overflow.move_out import location_of, move_cost, relieved
from solvers.heuristics.overflow.relief import frugal_order, relieve
from solvers.instances.random import Features, generate
from solvers.memory.usage import over_time, usage
from solvers.problem import Problem
from solvers.structure.units import units_of
from solvers.timing.replay import bottom_levels, replay


def potential(problem, footprint, schedule, units, where):
    """[u] M_pot of Table 4.2 at `where` = (location, tick): the bytes that leave there with each unit."""
    place, tick = where
    lives = lives_of(problem, footprint, schedule, units.unit)
    ties = move_out.ties_of(problem, footprint, units, lives)
    state = move_out._pass_of(problem, units, ties, schedule)
    now = int(np.searchsorted(lives.ticks, tick, side="right")) - 1
    work = scratch_for(lives, state.at, problem.locations)
    move_out.potentials(lives, ties, state.at, work, (place, now), state.potential)
    return state.potential.bytes


def machine(edges, *, ticks, transfer=1, capacity=(100, 100), group=None) -> Problem:
    """Tasks of these ticks on any of several locations with a link each way; edge i -> j carries i's payload."""
    n, l_ = len(ticks), len(capacity)
    src, dst = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    path_class = np.where(np.eye(l_, dtype=bool), -1, 0)
    return Problem(
        duration=np.tile(np.array(ticks)[:, None], (1, l_)), location=np.arange(l_), capacity=capacity, src=src,
        memory=np.zeros(n, dtype=np.int64), dst=dst, payload=src, producer=np.arange(n), path_class=path_class,
        transfer=np.full((n, 1), transfer), path_links=np.arange(l_ * l_).reshape(l_, l_, 1),
        group=np.full(n, -1) if group is None else group,
    )  # fmt: skip


def outputs(p: Problem, size, **columns) -> Footprint:
    """One buffer a task, read along each edge that carries a payload."""
    read = np.flatnonzero(p.payload >= 0)
    base = {"static": np.zeros(p.tasks, dtype=np.int64), "passes": np.full(p.tasks, -1)}
    return Footprint(
        size=size, maker=np.arange(p.tasks), read_buffer=p.src[read], read_by=p.dst[read],
        read_payload=p.payload[read], **{**base, **columns},
    )  # fmt: skip


A, B, C, D, E, F, G = range(7)


@pytest.mark.parametrize(
    ("order", "peak", "at", "alive"),
    [
        ([A, C, D, E, F, B, G], 8, G, {B, F, G}),
        ([A, B, C, D, E, F, G], 11, F, {B, C, D, E, F}),
    ],
)
def test_figure_4_3(order, peak, at, alive) -> None:
    """ParDNN, Figure 4.3: the order decides the peak, 8 when G is scheduled or 11 when F is.

    The figure's graph is not in the text: this one is reconstructed, with edges and sizes that give all that the
    caption says. A 1, B 5, C 2, D 1, E 2, F 1, G 2: B + F + G = 8, and B + C + D + E + F = 11.
    """
    p = machine([(A, B), (A, C), (A, D), (C, E), (C, F), (D, F), (E, F), (B, G), (F, G)], ticks=[1] * 7)
    s = replay(p, np.zeros(7, dtype=np.int64), rank_of(np.array(order)))
    found = usage(p, outputs(p, [1, 5, 2, 1, 2, 1, 2]), s)
    assert (found.peak[0], found.when[0]) == (peak, s.start[at])
    assert set(np.flatnonzero(found.alive).tolist()) == alive


def test_equation_4_3() -> None:
    """M_cons by hand: v holds 100 for ever at 0; a (10) runs at 0 in [0, 2), b (20) at 0 in [2, 3), c (3) at 1.

    a crosses in [2, 4), so at 0 its 10 stay until 4 although b, its reader there, ended at 3; at 1 they are held
    from 2 until c, in [4, 6), has read them.
    """
    p = machine([(0, 1), (0, 2)], ticks=[2, 1, 2, 0], transfer=2)
    f = outputs(p, [10, 20, 3, 0], static=[0, 0, 0, 100])
    first, second = over_time(p, f, replay(p, np.array([0, 0, 1, 0]), np.array([1, 2, 3, 0])))
    assert [column.tolist() for column in first] == [[0, 2, 3, 4], [110, 130, 110, 100]]
    assert [column.tolist() for column in second] == [[0, 2, 4, 6], [0, 10, 13, 0]]


def test_equation_4_5() -> None:
    """move_cost = ticks + those of the edges to neighbours at the same location: of b, 5 + a's 3; c's is elsewhere."""
    p = machine([(0, 1), (1, 2)], ticks=[2, 5, 7], transfer=3)
    assert move_cost(p, units_of(p), np.array([0, 0, 1])).tolist() == [2 + 3, 5 + 3, 7]


def test_potential_of_table_4_2() -> None:
    """a (10) is read by b (4), then by c (2), all at 0. While a runs it keeps its 10; while b runs, both b and c keep
    them, so they leave with neither, and b keeps the 4 that it makes; while c runs, it keeps 10 + 4 + 2."""
    p = machine([(0, 1), (0, 2), (1, 2)], ticks=[1, 1, 1])
    s = replay(p, np.zeros(3, dtype=np.int64), np.arange(3))
    found = [potential(p, outputs(p, [10, 4, 2]), s, units_of(p), (0, tick)).tolist() for tick in range(3)]
    assert found == [[10, 0, 0], [0, 4, 0], [0, 0, 16]]


def knapsack(cost, gain, over, *, printed):
    """Least cost of a set that satisfies (4.4): as printed, gains <= overflow; as it must be, >= overflow."""
    sets = itertools.product([0, 1], repeat=len(cost))
    sums = [(np.dot(cost, x), np.dot(gain, x), x) for x in sets]
    return min((c, x) for c, g, x in sums if (g <= over if printed else g >= over))


def test_the_constraint_of_4_4_is_at_least_the_overflow() -> None:
    """Four loose tasks make 5, 6, 7 and 8 bytes for one reader each; 26 alive, 20 fit: 6 too many.

    As printed (sum <= O) the empty set is optimal and nothing is ever relieved. With sum >= O the optimum is to move
    one unit alone, and the repair moves that one.
    """
    p = machine([(0, 4), (1, 4), (2, 4), (3, 4)], ticks=[9, 3, 4, 5, 1], transfer=2, capacity=(20, 100))
    f, device, rank = outputs(p, [5, 6, 7, 8, 0]), np.zeros(5, dtype=np.int64), np.arange(5)
    # The reader cannot leave: only makers of buffers move.
    p = replace(p, duration=np.where(np.arange(10).reshape(5, 2) == 9, -1, p.duration))
    units, s = units_of(p), replay(p, device, rank)
    gain, cost = np.array([5, 6, 7, 8]), move_cost(p, units, np.zeros(5, dtype=np.int64))[:4]
    assert cost.tolist() == [11, 5, 6, 7]
    assert usage(p, f, s).peak[0] - p.capacity[0] == 6
    assert knapsack(cost, gain, 6, printed=True) == (0, (0, 0, 0, 0))
    assert knapsack(cost, gain, 6, printed=False) == (5, (0, 1, 0, 0))


def pair(capacity):
    """Two variables, one dear and one cheap to move, each with its reader in its group; all at location 0."""
    p = machine([(0, 1), (2, 3)], ticks=[0, 90, 0, 10], capacity=capacity, group=[0, 0, 1, 1])
    return p, outputs(p, [0] * 4, static=[50, 0, 50, 0])


def test_the_cheaper_of_two_moves() -> None:
    """Both are 50 and 60 fit: the unit of 10 ticks goes, not the one of 90; its reader goes with it."""
    p, f = pair((60, 60))
    found = relieve(p, f, np.zeros(4, dtype=np.int64), order=np.arange(4))
    assert found.fits
    assert (found.device.tolist(), found.moved, found.peak.tolist()) == ([0, 0, 1, 1], 1, [50, 50])


def test_what_fits_nowhere_is_said_in_bytes() -> None:
    """Two units of 50, room for one at location 0 and none at 1: at best, 1 lacks 10 bytes, not 0 40."""
    p, f = pair((60, 40))
    found = relieve(p, f, np.zeros(4, dtype=np.int64))
    assert not found.fits
    assert found.shortfall == "10 bytes too many at location 1"
    assert found.short.tolist() == [0, 10]


def test_what_fits_is_left_alone() -> None:
    """Peaks within the capacity, though not within 90 % of it: the same placement, order and peaks."""
    p, f = pair((105, 0))
    found = relieve(p, f, np.zeros(4, dtype=np.int64), order=np.arange(4))
    assert (found.device.tolist(), found.moved, found.shortfall, found.rank.tolist()) == ([0] * 4, 0, "", [0, 1, 2, 3])


@pytest.mark.parametrize(("asked", "goes", "stays"), [({}, 20, 85), ({"headroom": 0.0}, 6, 99)])
def test_what_is_spared_decides_what_goes(asked, goes, stays) -> None:
    """105 of 100 bytes: moving 6 would do, but section 5.1 spares 10 %, so 15 are too many, and the unit of 20 goes."""
    p = machine([], ticks=[3, 2, 9], capacity=(100, 100))
    f = outputs(p, [0] * 3, static=[20, 6, 79])
    found = relieve(p, f, np.zeros(3, dtype=np.int64), order=np.arange(3), **asked)
    assert (found.fits, found.peak.tolist(), found.moved) == (True, [stays, goes], 1)


def test_a_frameworks_order_is_not_replaced() -> None:
    """`schedule_of` alone makes schedules, and is asked for the placement that is returned."""
    p, f = pair((60, 60))
    asked = []

    def schedule_of(device):
        asked.append(device.tolist())
        return replay(p, device, np.arange(4), strict=False)

    found = relieve(p, f, np.zeros(4, dtype=np.int64), order=schedule_of)
    assert found.fits
    assert found.rank is None
    assert found.device.tolist() in asked


def test_an_order_that_frees_early() -> None:
    """Four pairs x (9 bytes) -> y (1 byte), whose x have the higher levels: by level all x come first, 36 bytes alive.

    Frugally each y follows its x: at most three y and an x while the fourth y is made, 9 + 1 + 3.
    """
    p = machine([(0, 4), (1, 5), (2, 6), (3, 7)], ticks=[5] * 4 + [1] * 4, capacity=(13,))
    f = outputs(p, [9] * 4 + [1] * 4)
    late = replace(f, read_buffer=np.append(f.read_buffer, [4, 5, 6, 7]), read_by=np.append(f.read_by, [8] * 4),
                   read_payload=np.append(f.read_payload, [4, 5, 6, 7]), static=[0] * 9, scratch=[0] * 9)  # fmt: skip
    p = machine([*zip(p.src, p.dst, strict=True), (4, 8), (5, 8), (6, 8), (7, 8)], ticks=[5] * 4 + [1] * 5,
                capacity=(13,))  # fmt: skip
    found = relieve(p, late, np.zeros(9, dtype=np.int64))
    assert found.fits
    assert found.peak[0] == 13
    assert found.rank is not None


def instance(rng, tasks, gpus, *, host=True):
    """A random problem with a random footprint, a placement that respects kinds and groups, and a topological rank."""
    p = generate(rng, tasks=tasks, gpus=gpus, features=Features(memory=False, host=host, lanes=host))
    maker = p.producer
    read = np.flatnonzero(p.payload >= 0)
    sweep = np.full(len(maker), -1)
    for b in range(len(maker)):
        mine = np.flatnonzero(p.dst[read] == maker[b])
        if len(mine) and rng.random() < 0.3:
            sweep[b] = rng.choice(mine)
    reuses = np.where(rng.random(len(maker)) < 0.5, sweep, -1)
    f = Footprint(
        static=rng.integers(0, 20, p.tasks) * (rng.random(p.tasks) < 0.3), maker=maker,
        size=rng.choice([0, 4, 8, 8, 15], len(maker)),
        passes=np.where(reuses >= 0, -1, sweep), reuses=reuses, scratch=rng.integers(0, 4, p.tasks),
        read_buffer=p.payload[read], read_by=p.dst[read], read_payload=p.payload[read],
    )  # fmt: skip
    units = units_of(p)
    at = np.array([rng.choice(np.flatnonzero(row)) for row in units.allowed], dtype=np.int64)
    return p, f, devices_at(p, at[units.unit]), rank_of(topological_order(p.tasks, p.src, p.dst))


def held(lives, at, locations, static):
    """[l, k] bytes by adding up what every family, running task and unit holds with each unit `at` its location."""
    level = np.zeros((locations, len(lives.ticks)), dtype=np.int64)
    rows = held_for(len(lives.maker) * (1 + locations) + len(lives.reader))
    nobody = scratch_for(lives, at, locations)
    for family in range(len(lives.family) - 1):
        for k in range(hold(lives, at, family, nobody, (rows, 0))):
            level[rows.location[k], rows.low[k] : rows.high[k]] += rows.size[k]
    for task, unit in enumerate(lives.unit):
        level[at[unit], lives.begin[task] : lives.gone[task]] += lives.scratch[task]
    np.add.at(level, at, static[:, None])
    return level


@pytest.mark.slow
def test_potentials_are_what_leaves() -> None:
    """Random problems: bytes by family equal those of `usage`'s rows; and at random ticks, M_pot of each unit is what a
    location holds less without it, when all else stays at its place and time. (All but 2 of 144: there a copy that
    would come back meets a transfer's wait for its link.) Sizes are equal and transfers take no time."""
    rng, some, same, total = np.random.default_rng(8), 0, 0, 0
    for _ in range(60):
        p, f, device, rank = instance(rng, int(rng.integers(4, 12)), 2)
        p = replace(p, transfer=0 * p.transfer)
        f = replace(f, size=np.full(len(f.size), 8))
        units, s = units_of(p), replay(p, device, rank)
        lives, at = lives_of(p, f, s, units.unit), location_of(p, units, device)
        static = np.bincount(units.unit, f.static, len(at)).astype(np.int64)
        level = held(lives, at, p.locations, static)
        assert level.tolist() == bytes_at(p, f, s, lives.ticks).tolist()
        now, place = int(rng.integers(len(lives.ticks))), int(rng.integers(p.locations))
        found = potential(p, f, s, units, (place, int(lives.ticks[now])))
        for unit in np.flatnonzero(at == place):
            there = np.where(np.arange(len(at)) == unit, (place + 1) % p.locations, at)
            gain = level[place, now] - held(lives, there, p.locations, static)[place, now]
            same += found[unit] == gain
            total += 1
            some += gain > 0
        assert not found[at != place].any()
    assert same >= 0.95 * total
    assert some > 30


@pytest.mark.slow
def test_wide_bundles_are_read_by_their_fronts(monkeypatch, seeds) -> None:
    """The same repair whether each bundle is walked or known by its two first readers a location, which moves keep."""
    rng, moved, shifts = np.random.default_rng(12), 0, 0
    for _ in seeds(5):
        p, f, device, rank = instance(rng, int(rng.integers(5, 40)), 3)
        s, units = replay(p, device, rank), units_of(p)
        p = replace(p, capacity=np.maximum((usage(p, f, s).peak * rng.uniform(0.5, 1.1)).astype(np.int64), 1))
        found = []
        for wide in (10**9, 0):
            monkeypatch.setattr(buffers, "_WIDE", wide)
            found.append(relieve(p, f, device, order=rank))
        assert found[0].device.tolist() == found[1].device.tolist()
        assert found[0].peak.tolist() == found[1].peak.tolist()
        moved += found[0].moved > 0
        v, at = lives_of(p, f, s, units.unit), location_of(p, units, device)
        fronts = fronts_of(v, at, p.locations)
        for _ in range(30 * (len(at) > 1 and p.locations > 1)):
            unit, place = int(rng.integers(len(at))), int(rng.integers(p.locations))
            if (before := int(at[unit])) != place:
                shift(v, at, fronts, unit, place)
                if rng.random() < 0.5:
                    take_back(v, at, fronts, unit, before)
                anew = fronts_of(v, at, p.locations)
                assert fronts.first.tolist() == anew.first.tolist()
                assert fronts.second.tolist() == anew.second.tolist()
                shifts += len(fronts.first) > 1
    assert min(moved, shifts // 40) > len(seeds(5)) / 8


def hub(readers: int, capacity: int) -> tuple[Problem, Footprint]:
    """A scalar of 4 bytes, read by tasks with a variable of 100 bytes each; all fit location 1, some location 0."""
    p = machine([(0, k + 1) for k in range(readers)], ticks=[1] * (1 + readers), capacity=(capacity, 10**6))
    return p, outputs(p, [4] + [0] * readers, static=[0] + [100] * readers)


def test_the_smallest_buffers_do_not_count_for_moves() -> None:
    """A hub of 4 bytes at two locations is left out when 8 bytes are negligible, and not when 7 are."""
    p, f = hub(3, 1000)
    s = replay(p, np.zeros(4, dtype=np.int64), np.arange(4))
    assert [len(lives_of(p, f, s, np.arange(4), spare).maker) for spare in (0, 7, 8)] == [1, 1, 0]


def test_time_is_looked_at_between_few_steps(monkeypatch) -> None:
    """Room for 20 of 60 variables. Paused after every move, the repair still ends, and fits; without time, what was
    given comes back; with time for three looks, three have moved."""
    p, f = hub(60, 2004)
    device = np.zeros(61, dtype=np.int64)
    monkeypatch.setattr(move_out, "_CHUNK", 1)
    monkeypatch.setattr(move_out, "_LISTS", 0)
    assert relieve(p, f, device).fits
    idle = relieve(p, f, device, late=lambda: True)
    assert (idle.fits, idle.moved, idle.short.tolist()) == (False, 0, [4000, 0])
    looks = iter([False] * 3)
    s, units = replay(p, device, np.arange(61)), units_of(p)
    _, moved = relieved(p, f, s, units, p.capacity, late=lambda: next(looks, True))
    assert moved == 3


def literal_frugal(p: Problem, f: Footprint, device: np.ndarray) -> list[int]:
    """What each ready task would free summed anew for each step."""
    root = np.arange(len(f.size))
    for b in np.argsort(np.argsort(topological_order(p.tasks, p.src, p.dst))[f.maker], kind="stable").tolist():
        if f.passes[b] >= 0:
            root[b] = root[f.read_buffer[f.passes[b]]]
    piles = [(int(root[b]), int(p.location[device[t]])) for b, t in zip(f.read_buffer, f.read_by, strict=True)]
    level, order, left = bottom_levels(p, device=device), [], set(range(p.tasks))
    made = np.bincount(f.maker[f.passes < 0], f.size[f.passes < 0], p.tasks)
    while left:
        open_reads = [(pile, int(t)) for pile, t in zip(piles, f.read_by, strict=True) if int(t) in left]
        count = Counter(pile for pile, _ in open_reads)
        freed = np.zeros(p.tasks)
        for (b, place), t in open_reads:
            freed[t] += f.size[b] * (count[b, place] == 1)
        ready = [t for t in left if not left & set(p.src[p.dst == t].tolist())]
        order.append(min(ready, key=lambda t: (freed[t] < made[t], -int(level[t]), t)))
        left.remove(order[-1])
    return order


def test_the_frugal_order_is_its_definition() -> None:
    """Random problems: bytes that are freed, kept up to date, give the order of bytes that are summed at each step."""
    rng = np.random.default_rng(6)
    for _ in range(30):
        p, f, device, _ = instance(rng, int(rng.integers(2, 25)), 2)
        assert frugal_order(p, f, device).tolist() == literal_frugal(p, f, device)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_comes_back_is_valid_and_true(seed, seeds) -> None:
    """Random problems with capacities between what is hopeless and what fits: units whole and where they may be, the
    schedule valid, peaks and shortfall those of the schedule, never worse than before; orders topological."""
    rng = np.random.default_rng(seed)
    repaired = failed = 0
    for _ in seeds(10):
        p, f, device, rank = instance(rng, int(rng.integers(5, 50)), int(rng.integers(1, 4)))
        before = usage(p, f, replay(p, device, rank)).peak
        p = replace(p, capacity=np.maximum(before * rng.uniform(0.4, 1.5, p.locations), 1).astype(np.int64))
        found = relieve(p, f, device, order=rank)
        assert not check(p, found.schedule)
        assert (found.schedule.device == found.device).all()
        assert found.peak.tolist() == usage(p, f, found.schedule).peak.tolist()
        assert found.short.tolist() == np.maximum(found.peak - p.capacity, 0).tolist()
        assert found.short.sum() <= np.maximum(before - p.capacity, 0).sum()
        assert found.fits == (not found.shortfall) == (found.peak <= p.capacity).all()
        order = np.argsort(frugal_order(p, f, found.device))
        assert (order[p.src] < order[p.dst]).all()
        repaired += found.fits and found.moved > 0
        failed += not found.fits
    assert repaired
    assert failed


def test_against_all_placements(seeds) -> None:
    """Problems of up to six tasks, all placements in the given order: where none fits, none is claimed (but in another
    order); where some do, the repair finds one nearly always (of 52 such cases, it missed 3)."""
    rng, missed, possible = np.random.default_rng(1), 0, 0
    for _ in seeds(50):
        p, f, device, rank = instance(rng, int(rng.integers(3, 7)), 2, host=False)
        before = usage(p, f, replay(p, device, rank)).peak
        p = replace(p, capacity=np.full(p.locations, max(int(before.max() * rng.uniform(0.5, 1.0)), 1)))
        units, fits = units_of(p), False
        for at in itertools.product(*(np.flatnonzero(row) for row in units.allowed)):
            schedule = replay(p, devices_at(p, np.array(at)[units.unit]), rank)
            fits = fits or bool((usage(p, f, schedule).peak <= p.capacity).all())
        found = relieve(p, f, device, order=rank)
        assert fits or not found.fits or found.rank.tolist() != rank.tolist()
        possible += fits
        missed += fits and not found.fits
    assert possible > len(seeds(50)) / 6
    assert missed <= possible / 8
