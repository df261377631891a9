"""Turns: random merges keep what is enforced, reach the worst that there is, and are not drawn where nothing ties."""

from itertools import combinations, permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solvers.compiled.dag import topological_order
from solvers.instances.random import generate
from solvers.problem import Problem
from solvers.timing.replay import prepare, replay
from solvers.timing.turns import contenders, draw_merges


def case(seed, most):
    """A random problem of fewer than `most` tasks on up to four GPUs, devices that can run them, and an order."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(1, most)), gpus=int(rng.integers(2, 5)))
    device = np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed], dtype=np.int64)
    rank = np.empty(p.tasks, dtype=np.int64)
    rank[topological_order(p.tasks, p.src, p.dst)] = np.arange(p.tasks)
    return p, device, rank


def contends(p, schedule):
    """Whether two devices ask for a link in one tick."""
    return len(contenders(p, schedule)) > 0


def keeps(p, device, rank, merge):
    """Whether a merge has each device's sequence and the precedence."""
    alike = all(
        (np.argsort(rank[device == d]) == np.argsort(merge[device == d])).all() for d in np.unique(device).tolist()
    )
    return alike and bool((merge[p.src] < merge[p.dst]).all())


def merges(p, device, rank):
    """Every merge, as ranks."""
    for order in permutations(range(p.tasks)):
        merge = np.argsort(order)
        if keeps(p, device, rank, merge):
            yield merge


def bus(duration, edges, transfer):
    """Three devices at a place each, joined by one link; each task has one payload for all that read it."""
    off, (src, dst) = ~np.eye(3, dtype=bool), np.array(edges, dtype=np.int64).reshape(-1, 2).T
    producer, payload = np.unique(src, return_inverse=True)
    return Problem(
        duration=np.repeat(np.array(duration, dtype=np.int64)[:, None], 3, axis=1),
        location=np.arange(3),
        memory=np.zeros(len(duration), dtype=np.int64),
        capacity=np.zeros(3, dtype=np.int64),
        src=src,
        dst=dst,
        payload=payload,
        producer=producer,
        transfer=np.array(transfer, dtype=np.int64)[producer, None],
        path_class=np.where(off, 0, -1),
        path_links=np.where(off, 0, -1)[:, :, None],
        group=np.full(len(duration), -1),
    )


def small(seed):
    """Six tasks of 0 to 2 ticks on three devices; transfers take 1 to 4, and four in ten pairs have an edge."""
    rng = np.random.default_rng(seed)
    edges = [(a, b) for a, b in combinations(range(6), 2) if rng.random() < 0.4]
    p = bus(rng.integers(0, 3, 6), edges, rng.integers(1, 5, 6))
    return p, rng.integers(0, 3, 6), np.arange(6)


def test_two_devices_that_ask_at_once_are_served_in_both_ways():
    """Two tasks of 5 ticks send for 10: one is there at 15 and the other at 25, and the step ends 21 ticks later.

    Where the second takes a tick more, the first is first.
    """
    device, rank = np.array([0, 1, 2, 2]), np.arange(4)
    tied, late = (bus([5, took, 20, 1], [(0, 2), (1, 3)], [10] * 4) for took in (5, 6))
    assert replay(tied, device, rank).makespan == 36 and contends(tied, replay(tied, device, rank))
    assert {ticks for ticks, _ in draw_merges(prepare(tied), device, rank, count=20)} == {36, 46}
    assert not contends(late, replay(late, device, rank))
    assert {ticks for ticks, _ in draw_merges(prepare(late), device, rank, count=20)} == {36}


@given(st.integers(0, 2**32 - 1))
def test_what_is_drawn_keeps_every_sequence_and_the_precedence(seed):
    """And a replay by the ranks that are drawn takes what was said, which only ties over links can change."""
    p, device, rank = case(seed, 40)
    run, prepared = replay(p, device, rank), prepare(p)
    for ticks, merge in draw_merges(prepared, device, rank, count=5, seed=seed):
        assert np.array_equal(np.sort(merge), np.arange(p.tasks)) and keeps(p, device, rank, merge)
        again = replay(p, device, merge, prepared=prepared)
        assert again.makespan == ticks
        if not contends(p, run):
            assert np.array_equal(again.start, run.start)


def test_what_is_drawn_is_as_long_and_as_short_as_all_merges(seeds):
    """Every merge is enumerated; where no devices tie, all give one makespan, and of some that tie they differ."""
    ties = differ = 0
    for seed in seeds(100):
        p, device, rank = small(seed)
        prepared, tied = prepare(p), contends(p, replay(p, device, rank))
        every = {replay(p, device, merge, prepared=prepared).makespan for merge in merges(p, device, rank)}
        found = {ticks for ticks, _ in draw_merges(prepared, device, rank, count=200)}
        assert found == every
        assert tied or len(every) == 1
        ties, differ = ties + tied, differ + (len(every) > 1)
    assert len(seeds(100)) / 30 < differ < ties < len(seeds(100)) / 2


def test_the_same_seed_draws_the_same():
    """So that a deterministic solve is one."""
    p, device, rank = case(3, 40)
    one, two = (
        [merge.tolist() for _, merge in draw_merges(prepare(p), device, rank, count=4, seed=7)] for _ in range(2)
    )
    assert one == two and len(one) == 4
