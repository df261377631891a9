"""The strong bound: never above the optimum, attained where it should be, and independent of names."""

from dataclasses import replace

import numpy as np
from exhaustive import exhaustive

from solvers.bounds import quick_bounds
from solvers.bounds.strong import ANCESTORS, TRANSFERS, segments, strong
from solvers.checker import check
from solvers.instances.plain import chain, fork, layered, lstm_grid, series_parallel
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN, Problem
from solvers.timing.replay import replay

F = FORBIDDEN
LONG = 1e9
"""Seconds that no clock ends."""


def small(seed):
    """A random problem that the oracle can solve: every feature, or long transfers in some structure."""
    rng = np.random.default_rng(seed)
    gpus, transfer, kind = int(rng.integers(1, 4)), int(rng.integers(0, 9)), seed % 5
    if kind == 0:
        return layered(rng, int(rng.integers(2, 5)), 2, gpus=gpus, transfer=transfer, longest=6)
    if kind == 1:
        return series_parallel(rng, int(rng.integers(3, 8)), gpus=gpus, transfer=transfer, longest=6)
    p = generate(rng, tasks=int(rng.integers(0, 7)), gpus=gpus)
    return replace(p, transfer=p.transfer * kind)


def diamond(middle, *, gpus=2, transfer=0, ticks=1):
    """A task of one tick, `middle` tasks of `ticks`, a task of one tick that reads them all."""
    p = fork(middle + 2, gpus=gpus, transfer=transfer)
    return replace(p, duration=np.repeat([[1], *[[ticks]] * middle, [1]], gpus, axis=1))


def beads(*sizes):
    """Diamonds of `sizes` unit tasks on 2 GPUs without transfers, each starting at the end of the one before."""
    src, dst, end = [], [], 0
    for size in sizes:
        middle = list(range(end + 1, end + 1 + size))
        src += [end] * size + middle
        end = end + 1 + size
        dst += [*middle, *[end] * size]
    return replace(
        chain(end + 1, transfer=0), src=src, dst=dst, payload=np.minimum(src, end - 1), producer=np.arange(end)
    )


def relabelled(p, rng):
    """The same problem with tasks, devices, locations, payloads and edges in another order."""
    task, device, place = rng.permutation(p.tasks), rng.permutation(p.devices), rng.permutation(p.locations)
    edge, payload = rng.permutation(p.edges), rng.permutation(p.payloads)
    new = np.argsort(task)
    return Problem(
        duration=p.duration[task][:, device], location=np.argsort(place)[p.location[device]], memory=p.memory[task],
        capacity=p.capacity[place], src=new[p.src[edge]], dst=new[p.dst[edge]],
        payload=np.append(np.argsort(payload), -1)[p.payload[edge]], producer=new[p.producer[payload]],
        transfer=p.transfer[payload], path_class=p.path_class[np.ix_(place, place)],
        path_links=p.path_links[np.ix_(place, place)], group=p.group[task],
    )  # fmt: skip


def test_no_bound_is_above_the_optimum(seeds):
    """Random small problems, with and without a schedule known: every idea says at most what enumeration finds."""
    better = proven = 0
    for seed in seeds(40):
        p = small(seed)
        optimum = exhaustive(p)
        assert optimum is not None
        known, free = strong(p, upper=optimum.makespan + seed % 4, seconds=LONG), strong(p, seconds=LONG)
        for bound in (known, free):
            assert bound.ticks == max((tried.ticks for tried in bound.tried), default=0)
            for tried in bound.tried:
                assert tried.ticks <= optimum.makespan, (seed, tried)
        better += free.ticks > quick_bounds.best(p)[0]
        proven += free.ticks == optimum.makespan
    assert better > 0.15 * len(seeds(40))
    assert proven > 0.8 * len(seeds(40))


def test_segments_at_a_barrier_add_up():
    """Diamonds of 3, 3 and 5 unit tasks on 2 GPUs: 1 + 2 + 1 + 2 + 1 + 3 + 1 ticks, each segment rounded up alone."""
    p = beads(3, 3, 5)
    assert segments(p, None, ANCESTORS) == 11
    # All of it at once: 1 + ceil((3 + 1 + 3 + 1 + 5) / 2) + 1, and the path has 7.
    assert quick_bounds.best(p)[0] == 9
    assert replay(p, np.array([0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0]), np.arange(15)).makespan == 11


def test_what_has_no_time_to_cross_shares_a_device():
    """Two tasks of 3 ticks in a diamond, transfers of 2: one more transfer than paths see, or one device for both.

    All on one device: 1 + 3 + 3 + 1 = 8. With the ends on two devices and a task beside each: 1 + 3 + 2 + 1 = 7.
    """
    p = diamond(2, ticks=3, transfer=2)
    assert segments(p, None, TRANSFERS) == exhaustive(p).makespan == 7
    # Each path alone avoids its transfers, and the work fits: 1 + 3 + 1.
    assert segments(p, None, ANCESTORS) == quick_bounds.best(p)[0] == 5


def test_a_task_is_beside_one_of_two_tasks_that_are_apart():
    """Two tasks of 3 ticks that no location has the memory for meet in a third: 3 + 4 + 1, wherever that is."""
    edges = {"src": [0, 1], "dst": [2, 2], "payload": [0, 1], "producer": [0, 1]}
    p = replace(chain(3, transfer=4), duration=[[3, 3], [3, 3], [1, 1]], memory=[5, 5, 0], capacity=[9, 9], **edges)
    assert strong(p).ticks == exhaustive(p).makespan == 8
    # With the memory, all on one device would take 7.
    assert strong(replace(p, capacity=[10, 10])).ticks == 7


def test_other_devices_start_later_than_the_first():
    """16 unit tasks between a source and a sink on 4 GPUs with transfers of 1.

    The device of both ends can work for D ticks in between, the others for D - 2: D + 3 (D - 2) >= 16, so D = 6, and 8
    in all. Without the transfers D would be 4.
    """
    p = diamond(16, gpus=4, transfer=1)
    assert segments(p, None, TRANSFERS) == 8
    assert segments(p, None, ANCESTORS) == 6
    # In 6 ticks, 5 tasks stay and 11 go to the 3 others; the last of those sends its result in the sixth tick.
    device = np.array([0, *[0] * 5, *[1] * 4, *[2] * 4, *[3] * 3, 0])
    assert replay(p, device, np.arange(18)).makespan == 8


def test_what_one_location_has_no_memory_for_crosses():
    """A chain of 1, 3 and 1 ticks, transfers of 4, and memory for two of the three: one transfer, 1 + 3 + 4 + 1."""
    p = replace(chain(3, transfer=4), duration=[[1, 1], [3, 3], [1, 1]], memory=[4, 4, 4], capacity=[8, 8])
    assert segments(p, None, TRANSFERS) == exhaustive(p).makespan == 9
    assert segments(p, None, TRANSFERS._replace(memory=False)) == 5


def test_an_interval_holds_what_windows_force_into_it():
    """Two cores run two tasks of 4 ticks and two of 2, each of which has a tick elsewhere before it and after it.

    Within 6 ticks the short ones run in 1..5, and the long ones for 3 ticks there: 2 x 2 + 2 x 3 > 2 x 4. So 7. Spread
    over both cores the work has room: 12 = 2 x 6.
    """
    long, short, end = [4, 4, F, F], [2, 2, F, F], [F, F, 1, 1]
    p = replace(
        chain(8, transfer=0),
        duration=[long, long, short, short, end, end, end, end], location=[0, 0, 1, 1],
        src=[4, 5, 2, 3], dst=[2, 3, 6, 7], payload=[0, 1, 2, 3], producer=[4, 5, 2, 3], transfer=[[0]] * 4,
    )  # fmt: skip
    found = {tried.name: tried.ticks for tried in strong(p, seconds=LONG).tried}
    assert found["refuted"] == 6
    assert found["energetic"] == exhaustive(p).makespan == 7


def test_probing_tells_where_both_cases_fail():
    """Layers of 4 tasks and transfers longer than any task: 47 is optimal, 41 where links take any number at once."""
    p = layered(np.random.default_rng(4), 5, 4, gpus=2, transfer=12, longest=5)
    found = {tried.name: tried.ticks for tried in strong(p, upper=47, seconds=LONG).tried}
    assert found["device_load"] < found["transfers"] < found["refuted"] < found["probed"] <= 41


def test_the_large_lstm_grid_is_solved_by_a_layer_a_device():
    """4 layers x 20 steps, backward twice as long, 4 devices: 219 is the optimum; the bounds without transfers say 213.

    Layer l starts 4 l ticks after layer 0 (3 and a transfer of 1) and its forward cells end at 60 + 4 l, so the last
    at 72; its loss takes 3; then 20 x 6 ticks a layer, each 7 after the one above: 141; an update of 3. The other
    losses run where devices wait: layer 0's has 60..96, room for 12, layer 1's 64..89, for 8.
    """
    p = lstm_grid(4, 20, gpus=4, backward=2)
    cell, depth = np.tile(np.arange(4), 20), np.repeat(np.arange(20), 4)
    loss = [2, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 3]
    device = np.concatenate([cell, loss, cell, np.arange(4)])
    forward, backward = 3 * depth + 4 * cell, 75 + 6 * (19 - depth) + 7 * (3 - cell)
    rank = np.concatenate([100 * forward, 6600 + 16 * (19 - np.arange(20)), 100 * backward, [10**6] * 4])
    schedule = replay(p, device, rank, strict=False)
    assert not check(p, schedule)
    assert schedule.makespan == 219
    assert strong(p, upper=219, seconds=LONG).ticks == 219
    assert quick_bounds.best(p)[0] == 213


def test_names_do_not_matter(seeds):
    """Tasks, devices, locations, payloads and edges in another order: the same bound."""
    for seed in seeds(12):
        p = small(seed)
        other = relabelled(p, np.random.default_rng(seed))
        assert strong(p, seconds=LONG).ticks == strong(other, seconds=LONG).ticks, seed


def test_costs_times_k_give_at_most_bounds_times_k(seeds):
    """With all ticks times 7, no idea proves more than 7 times as much; paths and fast bounds no less but rounding."""
    for seed in seeds(12):
        p = small(seed)
        larger = replace(p, duration=np.where(p.allowed, 7 * p.duration, F), transfer=7 * p.transfer)
        once, times = strong(p, seconds=LONG).ticks, strong(larger, seconds=LONG).ticks
        assert quick_bounds.best(larger)[0] <= times <= 7 * once, seed


def test_the_same_input_gives_the_same_bound():
    """Twice the same, but for the seconds."""
    p = lstm_grid(2, 6, gpus=2, transfer=6)
    one, two = (strong(p, upper=75, seconds=LONG) for _ in range(2))
    assert [t[:2] for t in one.tried] == [t[:2] for t in two.tried]
    assert (one.ticks, one.name) == (two.ticks, two.name)


def test_no_idea_is_begun_without_time_or_need():
    """Nothing within 0 seconds; nothing more once the bound is the makespan of a schedule."""
    assert strong(fork(6), seconds=0.0).tried == ()
    assert [tried.name for tried in strong(chain(5), upper=5).tried] == ["critical_path"]


def test_what_cannot_be_placed_has_bound_zero():
    """A group without a common location, no task, and a problem too large for pairs."""
    nowhere = replace(chain(2), duration=[[1, F], [F, 1]], group=[3, 3])
    assert (strong(nowhere).ticks, strong(nowhere).name) == (0, "none")
    assert strong(chain(0)).ticks == 0
    assert strong(chain(3000)).ticks == 3000


def test_enormous_ticks_are_left_to_the_fast_bounds():
    """Ticks near 2^55 neither overflow nor lose a tick."""
    tick = 2**55 + 1
    p = replace(chain(3), duration=np.full((3, 2), tick))
    assert strong(p).ticks == 3 * tick
