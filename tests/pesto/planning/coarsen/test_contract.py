"""The coarse problem: sums, groups, edges and bundled payloads against a plain dictionary."""

from collections import defaultdict

import networkx as nx
import numpy as np
import pytest

from pesto.planning.coarsen import coarsen, contract
from pesto.planning.coarsen.coarsening import Caps, Coarsening
from solvers.instances.plain import chain
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN, Problem


def partition(rng, problem):
    """A random partition whose quotient is acyclic: runs of a topological order."""
    n = problem.tasks
    graph = nx.DiGraph(zip(problem.src.tolist(), problem.dst.tolist(), strict=True))
    graph.add_nodes_from(range(n))
    at = np.cumsum(rng.random(n) < 0.4)
    node_of = np.empty(n, np.int64)
    node_of[list(nx.topological_sort(graph))] = at
    return rng.permutation(int(at.max()) + 1)[np.unique(node_of, return_inverse=True)[1]] if n else node_of


def compact(node_of):
    return np.unique(node_of, return_inverse=True)[1]


def bundles(problem, node_of):
    """{(producer node, consumer nodes): transfer sums} by dictionaries."""
    consumers = defaultdict(set)
    for task, payload in zip(problem.dst.tolist(), problem.payload.tolist(), strict=True):
        if payload >= 0 and node_of[task] != node_of[problem.producer[payload]]:
            consumers[payload].add(int(node_of[task]))
    sums = defaultdict(lambda: np.zeros(problem.transfer.shape[1], np.int64))
    for payload, nodes in consumers.items():
        sums[int(node_of[problem.producer[payload]]), frozenset(nodes)] += problem.transfer[payload]
    return {key: value.tolist() for key, value in sums.items()}


def found_bundles(coarse):
    consumers = defaultdict(list)
    for task, payload in zip(coarse.dst.tolist(), coarse.payload.tolist(), strict=True):
        if payload >= 0:
            consumers[payload].append(task)
    assert sorted(consumers) == list(range(coarse.payloads))
    assert all(len(set(nodes)) == len(nodes) for nodes in consumers.values())
    keys = {p: (int(coarse.producer[p]), frozenset(nodes)) for p, nodes in consumers.items()}
    assert len(set(keys.values())) == coarse.payloads
    return {keys[p]: coarse.transfer[p].tolist() for p in keys}


def check_sums(problem, node_of, coarse):
    for node in range(coarse.tasks):
        members = node_of == node
        assert coarse.memory[node] == problem.memory[members].sum()
        for device in range(problem.devices):
            ticks = problem.duration[members, device]
            assert coarse.duration[node, device] == (FORBIDDEN if (ticks < 0).any() else ticks.sum())


def check_edges(problem, node_of, coarse):
    ends = list(zip(node_of[problem.src].tolist(), node_of[problem.dst].tolist(), strict=True))
    found = list(zip(coarse.src.tolist(), coarse.dst.tolist(), strict=True))
    assert set(found) == {(a, b) for a, b in ends if a != b}
    carried = {e for e, p in zip(ends, problem.payload.tolist(), strict=True) if p >= 0 and e[0] != e[1]}
    bare = [e for e, p in zip(found, coarse.payload.tolist(), strict=True) if p < 0]
    assert len(set(bare)) == len(bare)
    assert set(bare) == set(found) - carried


def check_groups(problem, node_of, coarse):
    together = nx.Graph()
    together.add_nodes_from(range(coarse.tasks))
    for task, group in enumerate(problem.group.tolist()):
        if group >= 0:
            together.add_edge(int(node_of[task]), f"group {group}")
    held = {int(node_of[t]) for t in np.flatnonzero(problem.group >= 0)}
    expected = {frozenset(x for x in part if x in held) for part in nx.connected_components(together)} - {frozenset()}
    found = defaultdict(set)
    for node, group in enumerate(coarse.group.tolist()):
        if group >= 0:
            found[group].add(node)
    assert {frozenset(nodes) for nodes in found.values()} == expected
    assert sorted(found) == list(range(len(expected)))


def merged_randomly(rng, problem):
    """The problem contracted over a random acyclic partition that respects the allowed devices, or None."""
    node_of = partition(rng, problem)
    allowed = np.stack([(problem.allowed[node_of == k]).all(axis=0) for k in range(int(node_of.max(initial=-1)) + 1)])
    # Nodes whose members share no device are taken apart again, which may make a cycle: then there is no example.
    alone = ~allowed.any(axis=1)[node_of]
    node_of = compact(np.where(alone, node_of.max() + 1 + np.arange(problem.tasks), node_of))
    try:
        return node_of, contract(problem, node_of)
    except ValueError:
        return None


def test_contraction_equals_dictionaries(seeds):
    """Sums, edges, groups and bundled payloads of random partitions equal those counted by hand."""
    rng = np.random.default_rng(41)
    bundled, done, cases = 0, 0, seeds(150)
    for _ in cases:
        problem = generate(rng, tasks=int(rng.integers(1, 30)))
        found = merged_randomly(rng, problem)
        if found is None:
            continue
        node_of, coarse = found
        check_sums(problem, node_of, coarse)
        check_edges(problem, node_of, coarse)
        check_groups(problem, node_of, coarse)
        assert found_bundles(coarse) == bundles(problem, node_of)
        bundled += coarse.payloads < problem.payloads
        done += 1
    assert done > 0.2 * len(cases)
    assert bundled > 0.12 * len(cases)


def test_payloads_to_the_same_nodes_become_one():
    """Two payloads of one node that go to the same nodes are one, one that goes elsewhere is another."""
    # Tasks 0, 1 in node A; 2 in B; 3, 4 in C. Payloads: 0: 0 -> 2, 3; 1: 1 -> 2, 4 (both to {B, C}: 5 + 7 ticks);
    # 2: 1 -> 3 (to {C}: 11); 3: 0 -> 1 (inside A: dropped); 3 -> 4 stays inside C; 2 -> 3 is precedence alone.
    problem = Problem(
        duration=np.ones((5, 1)).astype(int), location=[0], memory=[1, 2, 4, 8, 16], capacity=[99],
        src=[0, 0, 1, 1, 1, 0, 2], dst=[2, 3, 2, 4, 3, 1, 3], payload=[0, 0, 1, 1, 2, 3, -1],
        producer=[0, 1, 1, 0], transfer=[[5], [7], [11], [13]], path_class=[[-1]], path_links=[[[-1]]],
        group=[-1, 3, 3, -1, -1],
    )  # fmt: skip
    coarse = contract(problem, np.array([0, 0, 1, 2, 2]))
    assert found_bundles(coarse) == {(0, frozenset({1, 2})): [12], (0, frozenset({2})): [11]}
    assert coarse.memory.tolist() == [3, 4, 24]
    assert coarse.duration[:, 0].tolist() == [2, 1, 2]
    assert coarse.group.tolist() == [0, 0, -1]
    edges = sorted(zip(coarse.src.tolist(), coarse.dst.tolist(), (coarse.payload < 0).tolist(), strict=True))
    assert edges == [(0, 1, False), (0, 2, False), (0, 2, False), (1, 2, True)]


def test_one_node_a_task_keeps_the_problem():
    """The finest partition changes nothing but the bundling of payloads with equal consumers."""
    rng = np.random.default_rng(42)
    for _ in range(30):
        problem = generate(rng, tasks=12)
        coarse = contract(problem, np.arange(12))
        assert (coarse.duration == problem.duration).all()
        assert found_bundles(coarse) == bundles(problem, np.arange(12))


@pytest.mark.parametrize("node_of", [[0, 1], [0, 2, 2], [0, 0, -1]])
def test_a_partition_that_does_not_fit_is_refused(node_of):
    """Too few entries, an unused node and a negative node are errors."""
    with pytest.raises(ValueError, match=r"node_of|negative"):
        contract(chain(3), np.array(node_of))


def test_a_cyclic_partition_is_refused():
    """The ends of a chain of three cannot be one node."""
    with pytest.raises(ValueError, match="cycle"):
        contract(chain(3), np.array([0, 1, 0]))


def test_no_tasks():
    """A problem without tasks coarsens to no nodes."""
    problem = chain(0)
    found = coarsen(problem)
    assert (found.nodes, found.rounds, found.reason) == (0, (), "0 tasks are no more than 200")
    assert contract(problem, found.node_of).tasks == 0


@pytest.mark.slow
def test_then_composes():
    """Coarsening to 20 and then to 5 is a coarsening to 5 of the first problem, with the same coarse problem."""
    rng = np.random.default_rng(43)
    for _ in range(30):
        problem = generate(rng, tasks=60)
        first = coarsen(problem, 20)
        middle = contract(problem, first.node_of)
        second = coarsen(middle, 5)
        both = first.then(second)
        assert (both.node_of == second.node_of[first.node_of]).all()
        assert (both.nodes, both.target, both.reason) == (second.nodes, 5, second.reason)
        assert both.rounds == first.rounds + second.rounds
        assert (both.rank[problem.src] < both.rank[problem.dst]).all()
        once, twice = contract(problem, both.node_of), contract(middle, second.node_of)
        assert (once.duration == twice.duration).all()
        assert found_bundles(once) == found_bundles(twice)
        check_groups(problem, both.node_of, twice)


def test_then_refuses_another_size():
    """Only a coarsening of this one's nodes can follow."""
    with pytest.raises(ValueError, match="4 nodes here, 9 tasks there"):
        coarsen(chain(9), 4).then(coarsen(chain(9), 4))


@pytest.mark.parametrize(
    ("node_of", "nodes", "rank"),
    [([0, 1, 0], 2, [0, 1, 2]), ([0, 0, 2], 3, [0, 1, 2]), ([0, 0, 1], 2, [0, 1, 1]), ([0, 0, 2], 2, [0, 1, 2])],
)
def test_a_coarsening_validates_itself(node_of, nodes, rank):
    """Members that are not contiguous, an empty node, ranks that repeat and a node out of range are errors."""
    with pytest.raises(ValueError, match=r"rank|node"):
        Coarsening(
            node_of=node_of, nodes=nodes, rank=rank, target=2, reason="", rounds=(), largest_group_share=0.0
        )  # fmt: skip


@pytest.mark.parametrize("caps", [{"time": 0.0}, {"growth": 1.0}, {"path": float("nan")}, {"group": -1.0}])
def test_caps_validate_themselves(caps):
    """Factors must be positive and finite, and caps must grow."""
    with pytest.raises(ValueError, match="caps: "):
        Caps(**caps)


def test_a_target_must_be_positive():
    """No coarsening has fewer than one node."""
    with pytest.raises(ValueError, match="target 0"):
        coarsen(chain(3), 0)
