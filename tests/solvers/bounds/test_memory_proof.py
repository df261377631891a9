"""Proofs that memory cannot suffice: never of what has a placement, always of what is small and has none."""

from dataclasses import replace
from itertools import product

import numpy as np
from exhaustive import exhaustive

from solvers.bounds import quick_bounds
from solvers.instances.plain import chain
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN

F = FORBIDDEN


def holding(sizes, capacity, **fields):
    """Tasks of these bytes, and a GPU for each capacity."""
    p = chain(len(sizes), gpus=len(capacity), transfer=0)
    return replace(p, memory=sizes, capacity=capacity, **fields)


def test_what_has_no_placement_is_proven_and_nothing_else(seeds):
    """Random small problems with tight capacities: a proof exactly where enumeration finds no placement."""
    infeasible = 0
    for seed in seeds(100):
        rng = np.random.default_rng(seed)
        p = generate(rng, tasks=int(rng.integers(1, 7)), gpus=int(rng.integers(1, 4)))
        sizes = rng.integers(0, 60, p.tasks)
        room = sizes.sum() / p.locations * rng.uniform(0.6, 2.2, p.locations)
        tight = replace(p, memory=sizes, capacity=room.astype(np.int64))
        impossible = exhaustive(tight) is None
        assert (quick_bounds.memory_proof(tight) is not None) == impossible, seed
        infeasible += impossible
    assert 0.2 * len(seeds(100)) < infeasible < 0.93 * len(seeds(100))


def test_tasks_are_packed_whole():
    """3 tasks of 6 bytes and 2 locations of 10: 18 bytes into 20, but each location holds one."""
    assert (
        quick_bounds.memory_proof(holding([6, 6, 6], [10, 10]))
        == "the tasks confined to locations 0, 1 need 18 bytes, these have 20, but packed whole they fill 3 of 10 bytes"
    )
    # 8 alone in 10, so both 4 in 7: the 3 that the smaller location lacks of 10 is a task too, and fits nowhere.
    assert (
        quick_bounds.memory_proof(holding([8, 4, 4], [10, 7]))
        == "the tasks confined to locations 0, 1 need 16 bytes, these have 17, "
        "but packed whole they fill 3 of 10 bytes, with what the smaller ones lack of that"
    )
    assert quick_bounds.memory_proof(holding([8, 4, 3], [10, 7])) is None


def test_what_fills_a_location_leaves_it_to_nobody():
    """Task 0 runs on device 0 alone and leaves 3 bytes there; location 1 has no room for both others."""
    p = holding([9, 5, 5], [12, 9], duration=[[1, F], [1, 1], [1, 1]])
    assert (
        quick_bounds.memory_proof(p)
        == "task 1 needs 5 bytes, what can only be elsewhere leaves at most 4: 1 bytes short"
    )
    assert quick_bounds.memory_proof(replace(p, capacity=[12, 10])) is None


def test_all_packings_are_looked_at():
    """3 of 5 and 3 of 3 bytes would have to fill two locations of 12 exactly, and no sum of some is 12."""
    found = quick_bounds.memory_proof(holding([5, 5, 5, 3, 3, 3], [12, 12]))
    assert found is not None
    assert found.startswith("no packing of 6 tasks and groups of 24 bytes into 2 locations: none of ")
    assert quick_bounds.memory_proof(holding([5, 5, 5, 3, 3, 3], [13, 12])) is None


def test_groups_and_devices_confine_what_is_packed():
    """A group is packed whole, and where a device can run all of it."""
    # 4 + 4 in a group and 4 alone: with the group at one location of 8, the other has room; without devices there, not.
    p = holding([4, 4, 4], [8, 8], group=[0, 0, -1])
    assert quick_bounds.memory_proof(p) is None
    assert quick_bounds.memory_proof(replace(p, duration=[[1, 1], [1, F], [1, F]])) is not None


def test_bins_are_never_more_than_needed(seeds):
    """Random items: at most what enumeration finds, at least the sum; and more than the sum for items above half."""
    for seed in seeds(50):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(0, 13, int(rng.integers(1, 7)))
        places = np.array(list(product(range(len(sizes)), repeat=len(sizes))))
        held = np.stack([(sizes * (places == bin_)).sum(axis=1) for bin_ in range(len(sizes))], axis=1)
        used = (held > 0).sum(axis=1)[(held <= 12).all(axis=1)].min()
        assert -(-int(sizes.sum()) // 12) <= quick_bounds.packed_bins(sizes, 12) <= used, sizes
    assert quick_bounds.packed_bins(np.array([7, 7, 7]), 12) == 3
    # Above half: 8 and 8, with room for 4 each; 5 and 5 do not fit there, and make a third.
    assert quick_bounds.packed_bins(np.array([8, 8, 5, 5]), 12) == 3


def test_a_large_problem_that_fits_is_quickly_left_alone():
    """More units than are searched: no proof, and none of what does not fit by sum is missed."""
    p = holding(np.full(3000, 3), [4500, 4500])
    assert quick_bounds.memory_proof(p) is None
    assert "1 bytes short" in quick_bounds.memory_proof(replace(p, capacity=[4500, 4499]))
