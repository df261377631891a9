"""Adjacency, orders, heights and cycles of directed graphs, against networkx."""

import networkx as nx
import numpy as np
import pytest

from solvers.compiled.dag import adjacency, find_cycle, heights, topological_order


def random_edges(rng, acyclic):
    """Up to 12 nodes and 30 edges with repetitions (and, unless acyclic, loops), under random labels."""
    nodes = int(rng.integers(1, 13))
    ends = rng.integers(0, nodes, (int(rng.integers(0, 31)), 2))
    if acyclic:
        ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    label = rng.permutation(nodes)
    return nodes, label[ends[:, 0]], label[ends[:, 1]]


def as_networkx(nodes, src, dst):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
    return graph


def test_adjacency_lists_the_edges_of_each_node_in_order():
    """Edges 0, 2 and 3 leave node 1, edge 1 leaves node 0, none leaves node 2."""
    offset, edge = adjacency(3, np.array([1, 0, 1, 1]))
    assert offset.tolist() == [0, 1, 4, 4]
    assert edge.tolist() == [1, 0, 2, 3]


def test_topological_order_holds_exactly_for_graphs_without_a_cycle(seeds):
    """Every edge leads forward in the order, which is complete exactly where networkx finds no cycle."""
    rng = np.random.default_rng(0)
    for index in seeds(100):
        nodes, src, dst = random_edges(rng, acyclic=index % 2 == 0)
        order = topological_order(nodes, src, dst)
        assert (len(order) == nodes) == nx.is_directed_acyclic_graph(as_networkx(nodes, src, dst))
        assert len(set(order.tolist())) == len(order)
        place = np.full(nodes, nodes)
        place[order] = np.arange(len(order))
        assert (place[src] < place[dst])[place[dst] < nodes].all()


def test_topological_order_leaves_out_what_a_cycle_holds_up():
    """Of 0 -> 1 -> 2 -> 1 and 3, only 0 and 3 come free; roots go by index."""
    assert topological_order(4, np.array([0, 1, 2]), np.array([1, 2, 1])).tolist() == [0, 3]


def test_topological_order_is_first_in_first_out():
    """0 frees 3 and then 1 (order of the edges) after the root 2: 0, 2, 3, 1."""
    assert topological_order(4, np.array([0, 0]), np.array([3, 1])).tolist() == [0, 2, 3, 1]


def test_heights_count_the_vertices_of_the_longest_path(seeds):
    """The height of a node is one more than the longest path (in edges) from any ancestor, by networkx."""
    rng = np.random.default_rng(1)
    for _ in seeds(100):
        nodes, src, dst = random_edges(rng, acyclic=True)
        graph = as_networkx(nodes, src, dst)
        height = heights(nodes, src, dst)
        for node in range(nodes):
            above = graph.subgraph(nx.ancestors(graph, node) | {node})
            assert height[node] == nx.dag_longest_path_length(nx.DiGraph(above)) + 1


def test_heights_of_a_cycle_are_refused():
    """Where there is a cycle there is no longest path."""
    with pytest.raises(ValueError, match="cycle"):
        heights(2, np.array([0, 1]), np.array([1, 0]))


def test_find_cycle_finds_one_exactly_where_there_is_one(seeds):
    """What it finds is a closed walk over distinct nodes along edges; it finds nothing only where networkx does."""
    rng = np.random.default_rng(2)
    found = 0
    for index in seeds(100):
        nodes, src, dst = random_edges(rng, acyclic=index % 4 == 0)
        graph = as_networkx(nodes, src, dst)
        cycle = find_cycle(nodes, src, dst)
        found += bool(cycle)
        assert bool(cycle) != nx.is_directed_acyclic_graph(graph)
        assert len(set(cycle)) == len(cycle)
        assert all(graph.has_edge(u, v) for u, v in zip(cycle, cycle[1:] + cycle[:1], strict=True))
    assert 0 < found < len(seeds(100))


def test_a_loop_is_a_cycle_of_one():
    """The edge 1 -> 1 is the cycle [1]."""
    assert find_cycle(2, np.array([1]), np.array([1])) == [1]


def test_graphs_of_nothing_have_empty_answers():
    """Without nodes there is no order, no height and no cycle."""
    none = np.zeros(0, dtype=np.int64)
    assert topological_order(0, none, none).tolist() == []
    assert heights(0, none, none).tolist() == []
    assert find_cycle(0, none, none) == []


def test_a_long_chain_and_a_wide_star():
    """A chain of 100 000 has heights 1..100 000; a star of as many has a root of height 1 and leaves of height 2."""
    n = 100_000
    assert heights(n, np.arange(n - 1), np.arange(1, n)).tolist() == list(range(1, n + 1))
    assert heights(n, np.zeros(n - 1, dtype=np.int64), np.arange(1, n)).tolist() == [1] + [2] * (n - 1)
