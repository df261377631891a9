"""Lower bounds: never above the optimum, attained where they should be, and proofs of memory that hold."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import exhaustive

from solvers.bounds import quick_bounds
from solvers.instances.plain import chain, fork
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN

BOUNDS = (
    quick_bounds.critical_path,
    quick_bounds.device_load,
    quick_bounds.device_window,
    quick_bounds.unit_load,
    quick_bounds.link_window,
)
F = FORBIDDEN


def small(seed, most=6):
    """A random problem that the oracle can solve."""
    rng = np.random.default_rng(seed)
    return generate(rng, tasks=int(rng.integers(0, most)), gpus=int(rng.integers(1, 4)))


def loose(tasks, gpus=2):
    """Tasks of one tick without edges."""
    none = np.zeros(0, dtype=np.int64)
    return replace(chain(tasks, gpus=gpus), src=none, dst=none, payload=none)


def attains(problem, bound, expected):
    """The bound, the best of all and the optimum are the expected number."""
    assert bound(problem) == expected
    assert quick_bounds.best(problem)[0] == expected
    optimum = exhaustive(problem)
    assert optimum is not None
    assert optimum.makespan == expected


def test_no_bound_is_above_the_optimum(seeds):
    """Random small problems with every feature: each bound is at most what enumeration finds."""
    for seed in seeds(150):
        p = small(seed)
        optimum = exhaustive(p)
        assert optimum is not None
        for bound in BOUNDS:
            assert bound(p) <= optimum.makespan, (seed, bound.__name__)


def test_the_best_bound_is_the_greatest_and_named():
    """`best` returns the maximum and a function that attains it."""
    for seed in range(60):
        p = small(seed, most=30)
        value, name = quick_bounds.best(p)
        assert value == max(bound(p) for bound in BOUNDS), seed
        assert getattr(quick_bounds, name)(p) == value


def test_critical_path_of_a_chain():
    """A chain of 5 tasks of one tick takes 5, on one of the GPUs."""
    attains(chain(5), quick_bounds.critical_path, 5)


def test_critical_path_pays_for_a_transfer_that_no_placement_avoids():
    """One task on device 0 alone, its reader on device 1 alone: 1 + 4 + 1."""
    attains(replace(chain(2, transfer=4), duration=[[1, F], [F, 1]]), quick_bounds.critical_path, 6)


def test_critical_path_weighs_a_slow_device_against_a_transfer():
    """The reader takes 3 ticks beside its input, or 1 after a transfer of 4: 1 + min(3, 4 + 1)."""
    attains(replace(chain(2, transfer=4), duration=[[1, F], [3, 1]]), quick_bounds.critical_path, 4)


def test_critical_path_keeps_a_group_at_one_location():
    """Tasks 0 and 2 of 9 or 1 ticks must meet, and 1 runs on device 1 alone: together there, 1 + 1 + 9."""
    # Alone, task 0 would take 1 on device 0 and task 2 would take 9 after it on device 1: 0 + 1 + 9 with no transfer.
    p = replace(chain(3, transfer=20), duration=[[1, 1], [F, 1], [1, 9]], group=[0, -1, 0])
    # Both at 0: 1 + 20 + 1 + 20 + 1; both at 1: 1 + 1 + 9.
    attains(p, quick_bounds.critical_path, 11)


def test_device_load_rounds_up():
    """5 tasks of one tick on 2 GPUs: 5 / 2, so 3."""
    attains(loose(5), quick_bounds.device_load, 3)


def test_device_load_weighs_devices_by_speed():
    """6 tasks of 1 tick on device 0 or 2 on device 1: 4 and 2 of them, 4 ticks; spread evenly it would be 3."""
    attains(replace(loose(6), duration=[[1, 2]] * 6), quick_bounds.device_load, 4)


def test_device_load_looks_at_what_is_confined_to_a_set():
    """3 tasks of 4 ticks on device 0 alone and one anywhere: 12 on device 0, though all devices share 13 / 2."""
    attains(replace(loose(4), duration=[[4, F]] * 3 + [[1, 1]]), quick_bounds.device_load, 12)


def test_device_window_lies_between_head_and_tail():
    """A fork: 1 tick, 4 tasks on 2 GPUs, 1 tick, and transfers of none: 1 + 4 / 2 + 1."""
    p = fork(6, transfer=0)
    attains(p, quick_bounds.device_window, 4)
    # All 6 ticks on 2 GPUs give 3 only, and so does the path.
    assert quick_bounds.device_load(p) == quick_bounds.critical_path(p) == 3


def test_unit_load_keeps_a_group_on_its_device():
    """4 tasks of one group and one tick on 2 GPUs share one of them: 4."""
    p = replace(loose(4), group=[7] * 4)
    attains(p, quick_bounds.unit_load, 4)
    assert quick_bounds.device_load(p) == 2


def test_link_window_counts_transfers_that_must_happen():
    """3 producers on device 0 alone, their readers on device 1 alone: 1 + 3 x 5 on the link + 1."""
    edges = {"src": [0, 1, 2], "dst": [3, 4, 5], "payload": [0, 1, 2]}
    p = replace(chain(6, transfer=5), duration=[[1, F]] * 3 + [[F, 1]] * 3, **edges)
    attains(p, quick_bounds.link_window, 17)


def test_link_window_shares_load_over_links():
    """4 payloads of 5 ticks from device 0, at once, to readers on device 1 or 2: 4 x 5 / 2 + 1."""
    edges = {"src": [0, 1, 2, 3], "dst": [4, 5, 6, 7], "payload": [0, 1, 2, 3]}
    p = replace(chain(8, gpus=3, transfer=5), duration=[[0, F, F]] * 4 + [[F, 1, 1]] * 4, **edges)
    attains(p, quick_bounds.link_window, 11)


def test_link_window_counts_each_location_that_a_payload_must_reach():
    """One payload of 5 ticks to two readers on device 1 alone and one on device 2, by one link: 1 + 2 x 5 + 1."""
    p = replace(
        chain(4, gpus=3), duration=[[1, F, F], [F, 1, F], [F, 1, F], [F, F, 1]],
        src=[0, 0, 0], dst=[1, 2, 3], payload=[0, 0, 0], producer=[0], transfer=[[5]],
        path_links=[[[-1], [0], [0]], [[1], [-1], [2]], [[3], [4], [-1]]],
    )  # fmt: skip
    attains(p, quick_bounds.link_window, 12)
    assert quick_bounds.critical_path(p) == 7


def test_costs_times_k_give_bounds_times_k(seeds):
    """With all ticks times 7 a bound is 7 times larger, up to the rounding that 7 times finer ticks save."""
    for seed in seeds(50):
        p = small(seed, most=20)
        larger = replace(p, duration=np.where(p.allowed, 7 * p.duration, F), transfer=7 * p.transfer)
        for bound in BOUNDS:
            # ceil(7 x) lies in 7 (ceil(x) - 1) + 1 .. 7 ceil(x).
            once = bound(p)
            assert 7 * (once - 1) < bound(larger) <= 7 * once, (seed, bound.__name__)


def test_nothing_has_bound_zero():
    """No task, no tick."""
    assert quick_bounds.best(chain(0, gpus=1))[0] == 0


def test_bounds_survive_enormous_ticks():
    """Durations near 2^55 neither overflow nor lose a tick: a chain of 3 and its load."""
    tick = 2**55 + 1
    attains(replace(chain(3), duration=np.full((3, 2), tick)), quick_bounds.critical_path, 3 * tick)


def test_a_group_without_a_location_is_refused_by_name():
    """Bounds of what cannot be placed: each says which group, `best` gives 0, and the proof says why."""
    p = replace(chain(2), duration=[[1, F], [F, 1]], group=[3, 3])
    with pytest.raises(ValueError, match="task 0 and its group have no location in common"):
        quick_bounds.critical_path(p)
    assert quick_bounds.best(p) == (0, "none")
    assert quick_bounds.memory_proof(p) == "group 3: no location can run all of its tasks"


def test_memory_proofs_give_the_numbers():
    """A group above the largest capacity, tasks confined to one location, and all tasks together."""
    p = replace(chain(3), memory=[5, 5, 1], capacity=[9, 8])
    assert quick_bounds.memory_proof(p) is None
    assert (
        quick_bounds.memory_proof(replace(p, group=[2, 2, -1]))
        == "group 2 needs 10 bytes, the largest location for it has 9: 1 bytes short"
    )
    confined = quick_bounds.memory_proof(replace(p, duration=[[F, 1], [F, 1], [1, 1]]))
    assert confined == "the tasks confined to locations 1 need 10 bytes, these have 8: 2 bytes short"
    total = quick_bounds.memory_proof(replace(p, capacity=[5, 5]))
    assert total == "the tasks confined to locations 0, 1 need 11 bytes, these have 10: 1 bytes short"


def test_what_memory_proof_refuses_has_no_placement(seeds):
    """Random problems with capacities cut at random: where there is a proof, enumeration finds nothing."""
    proofs = 0
    for seed in seeds(100):
        p = small(seed)
        share = np.random.default_rng(seed).uniform(0.3, 1.0, p.locations)
        tight = replace(p, capacity=(p.capacity * share).astype(np.int64))
        if quick_bounds.memory_proof(tight) is not None:
            proofs += 1
            assert exhaustive(tight) is None, seed
    assert proofs > len(seeds(100)) / 20
