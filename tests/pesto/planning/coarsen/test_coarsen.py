"""Coarsening as a whole: what holds for every result, and what real training steps need."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pesto.planning.coarsen import coarsen, contract
from solvers.compiled.dag import heights
from solvers.instances.plain import chain, fork, layered
from solvers.instances.random import Features, generate
from solvers.problem import FORBIDDEN, Problem


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark's module, for its unrolled LSTM."""
    path = Path(__file__).resolve().parents[4] / "benchmarks" / "coarsen.py"
    spec = importlib.util.spec_from_file_location("benchmark_coarsen", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def check(problem, found):
    """Everything that holds for any coarsening of any problem; the coarse problem."""
    coarse = contract(problem, found.node_of)  # raises on a cycle and on a node that can run nowhere
    members = np.bincount(found.node_of, minlength=found.nodes)
    assert found.nodes == coarse.tasks == len(members)
    assert (members > 0).all()
    assert coarse.memory.sum() == problem.memory.sum()
    for device in range(problem.devices):
        runs = coarse.allowed[:, device]
        assert coarse.duration[runs, device].sum() == problem.duration[runs[found.node_of], device].sum()
    assert (coarse.allowed[found.node_of] == problem.allowed).all()
    grouped = problem.group >= 0
    assert (coarse.group[found.node_of[grouped]] >= 0).all()
    pairs = np.stack([problem.group[grouped], coarse.group[found.node_of[grouped]]], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(np.unique(pairs[:, 0]))
    assert (found.rank[problem.src] < found.rank[problem.dst]).all()
    assert (coarse.src < coarse.dst).all()
    order = np.argsort(found.rank)
    assert 1 + np.count_nonzero(np.diff(found.node_of[order])) == found.nodes
    assert found.nodes == problem.tasks - sum(r.merged for r in found.rounds)
    assert all(a.nodes - a.merged == b.nodes for a, b in zip(found.rounds, found.rounds[1:], strict=False))
    assert found.nodes >= min(found.target, problem.tasks)
    return coarse


@pytest.mark.slow
def test_invariants_on_random_problems(seeds):
    """No cycle, sums conserved, each task in one node, kinds apart and groups kept, whatever the problem and target."""
    rng = np.random.default_rng(51)
    merges, reached, cases = 0, 0, seeds(200)
    for _ in cases:
        tasks = int(rng.integers(1, 80))
        problem = generate(rng, tasks=tasks, gpus=int(rng.integers(1, 4)))
        found = coarsen(problem, int(rng.integers(1, tasks + 2)))
        check(problem, found)
        merges += problem.tasks - found.nodes
        reached += found.nodes <= found.target
        assert found.reason.startswith("no feasible") == (found.nodes > found.target)
    assert merges > 8 * len(cases)
    assert reached > 0.15 * len(cases)


def test_connected_tasks_of_one_kind_reach_one_node():
    """A graph of equal tasks reaches any target down to 1: a chain, a fork and a layered graph (Corollary 3.6)."""
    rng = np.random.default_rng(52)
    for problem in (chain(100), fork(100), layered(rng, 10, 10)):
        for target in (1, 2, 7, 50):
            found = coarsen(problem, target)
            check(problem, found)
            assert (found.nodes, found.reason) == (target, f"reached {target}")


def test_disconnected_tasks_reach_the_target():
    """Without edges Theorem 3.5 merges nothing (Corollary 3.6 fails); siblings still reach the target."""
    problem = fork(100)
    alone = replace(problem, src=[], dst=[], payload=[], producer=[], transfer=np.zeros((0, 1), np.int64))
    found = coarsen(alone, 8)
    check(alone, found)
    assert found.nodes == 8
    assert all("siblings" in r.step for r in found.rounds)
    # 100 tasks in 8 nodes: under a cap of 2 x 100 / 8 = 25 ticks none is larger than that.
    assert np.bincount(found.node_of).max() <= 25


def alternating(pairs):
    """A path on which tasks of two kinds alternate."""
    problem = chain(2 * pairs)
    duration = problem.duration.copy()
    duration[::2, 0], duration[1::2, 1] = FORBIDDEN, FORBIDDEN
    return replace(problem, duration=duration)


def test_alternating_kinds_stop_coarsening():
    """On a path of alternating kinds every merge makes a cycle, and the reason says so."""
    found = coarsen(alternating(10), 5)
    check(alternating(10), found)
    assert found.nodes == 20
    assert (
        found.reason
        == "no feasible pair left at 20 nodes: tasks of 2 kinds of allowed devices alternate along its paths"
    )


def test_parallel_alternating_paths_meet_in_phases():
    """Shifted alternating paths, whose equal kinds have unequal heights, still collapse to one node a phase."""
    # Path A: 1 0 1 0 1 0; path B: 0 1 0 1 0 1, so kinds of one height always differ. Phases 0, 1, 0, ... exhaust
    # B's first 0, then 1 of both, and so on: 7 phases.
    a, b = alternating(3), alternating(3)
    duration = np.concatenate([a.duration, b.duration[:, ::-1]])
    problem = replace(
        a, duration=duration, memory=np.ones(12, np.int64), group=np.full(12, -1),
        src=np.concatenate([a.src, b.src + 6]), dst=np.concatenate([a.dst, b.dst + 6]),
        payload=np.concatenate([a.payload, b.payload + 6]), producer=np.arange(12),
        transfer=np.ones((12, 1), np.int64),
    )  # fmt: skip
    found = coarsen(problem, 1)
    check(problem, found)
    assert found.nodes == 7


def test_a_group_is_merged_before_it_meets_others():
    """Two groups of four siblings become two nodes, one a group, when the target is two."""
    base = fork(8)
    problem = replace(
        base, src=[], dst=[], payload=[], producer=[], transfer=np.zeros((0, 1), np.int64),
        group=[5, 6, 5, 6, 5, 6, 5, 6],
    )  # fmt: skip
    found = coarsen(problem, 2)
    assert found.node_of[::2].tolist() == [found.node_of[0]] * 4
    assert found.node_of[1::2].tolist() == [found.node_of[1]] * 4
    assert found.largest_group_share == 0.5
    assert contract(problem, found.node_of).group.tolist() == [0, 1]


def test_groups_are_not_united_beyond_the_memory_of_a_location():
    """Groups whose bytes exceed a location together stay apart, and the reason says so."""
    # Four tasks of 6 bytes, a group each, on two GPUs of 10 bytes: no two fit one location.
    problem = replace(chain(4), group=[0, 1, 2, 3], memory=[6] * 4, capacity=[10, 10])
    found = coarsen(problem, 2)
    assert found.nodes == 4
    assert found.reason.endswith("uniting more would exceed the memory of a location")


def test_groups_do_not_gather_on_one_device():
    """Groups chained to each other stay below three quarters of a fair share as long as the target allows it."""
    # 64 chains of 4 tasks, a group each, chained; two GPUs: a fair share is 128 ticks, three quarters of it 96.
    problem = replace(chain(256), group=np.arange(256) // 4)
    found = coarsen(problem, 16)
    check(problem, found)
    assert found.nodes == 16
    assert found.largest_group_share <= 96 / 256


def test_a_group_confined_to_the_host_is_not_joined():
    """A task that could run anywhere does not join a group that can run on one location only."""
    # Task 0 runs on the first device alone and shares a group with task 1; tasks 2 and 3 run anywhere.
    base = chain(4)
    duration = base.duration.copy()
    duration[0, 1] = FORBIDDEN
    found = coarsen(replace(base, duration=duration, group=[0, 0, -1, -1]), 1)
    assert found.node_of[2] == found.node_of[3]
    assert found.node_of[1] != found.node_of[2]


def test_the_largest_transfer_is_merged_first():
    """Of a path's edges the one with the largest transfer goes first."""
    # Edge 3 -> 4 carries payload 3 with 50 ticks, all others 1; one merge reaches the target.
    transfer = np.ones((8, 1), np.int64)
    transfer[3] = 50
    found = coarsen(replace(chain(9), transfer=transfer), 8)
    assert found.node_of[3] == found.node_of[4]
    assert np.bincount(found.node_of).tolist().count(2) == 1


def test_determinism():
    """Two runs agree in every number."""
    problem = generate(np.random.default_rng(53), tasks=2000)
    one, other = coarsen(problem, 50), coarsen(problem, 50)
    assert (one.node_of == other.node_of).all()
    assert (one.rank == other.rank).all()
    assert (one.rounds, one.reason) == (other.rounds, other.reason)


@pytest.mark.parametrize(("layers", "steps"), [(2, 35), (8, 20)])
def test_a_training_step_reaches_200_balanced_nodes(benchmark, layers, steps):
    """An unrolled LSTM's step reaches 200 nodes that keep its parallelism, and no group dominates."""
    problem = benchmark.unrolled(layers, steps)
    found = coarsen(problem)
    coarse = check(problem, found)
    assert found.nodes == 200
    time = np.where(coarse.allowed, coarse.duration, np.iinfo(np.int64).max).min(axis=1)
    # Under the first two stages: 2 mean node times, times 1.5; tiny nodes may exceed it by a 64th each.
    assert time.max() <= 2 * 1.5 * 1.1 * time.sum() / 200
    assert found.largest_group_share < 0.25
    # Were the nodes in one line, two GPUs could share nothing; 100 levels are what two equal lines would have.
    assert heights(coarse.tasks, coarse.src, coarse.dst).max() < 100


def test_kernel_lanes_and_every_feature():
    """Problems with lanes, hosts, holes and shared links keep every kind apart at any size."""
    rng = np.random.default_rng(54)
    for tasks in (200, 1000):
        problem: Problem = generate(rng, tasks=tasks, gpus=4, features=Features())
        check(problem, coarsen(problem, 30))
