"""The statements of Pesto's section 3.3, as printed and as corrected, and the batches that rest on them."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from pesto.planning.coarsen.coarsening import Quotient, quotient
from pesto.planning.coarsen.merge import (
    WHOLE,
    Joining,
    MergeLimits,
    UniteLimits,
    along_edges,
    among_siblings,
    earliest_levels,
    latest_levels,
    longest_paths,
    match,
    phased_levels,
)
from solvers.compiled.dag import heights, topological_order
from solvers.problem import FORBIDDEN, Problem


def problem_of(nodes, edges, *, kind=None, ticks=None, transfer=None):
    """Tasks on two devices; kind 0 runs on the first alone, kind 1 on the second, kind 2 on either."""
    src, dst = (np.array([e[k] for e in edges], dtype=np.int64) for k in (0, 1))
    duration = np.repeat(np.array(ticks if ticks is not None else [1] * nodes)[:, None], 2, axis=1)
    for task, k in enumerate(kind if kind is not None else [2] * nodes):
        if k < 2:
            duration[task, 1 - k] = FORBIDDEN
    sent = np.array(transfer if transfer is not None else [1] * len(edges), dtype=np.int64)
    return Problem(
        duration=duration.reshape(nodes, 2), location=[0, 1], memory=np.zeros(nodes, np.int64), capacity=[0, 0],
        src=src, dst=dst, payload=np.arange(len(edges)), producer=src, transfer=sent[:, None],
        path_class=[[-1, 0], [0, -1]], path_links=[[[-1], [0]], [[1], [-1]]], group=np.full(nodes, -1),
    )  # fmt: skip


def random_edges(rng, nodes, density):
    """Edges of a random DAG whose indices are shuffled."""
    at = np.argwhere(np.triu(rng.random((nodes, nodes)) < density, 1))
    return [(int(a), int(b)) for a, b in rng.permutation(nodes)[at]]


def unlimited(q: Quotient) -> tuple[MergeLimits, UniteLimits]:
    whole = np.full(int(q.nodes.kind.max(initial=0)) + 1, WHOLE)
    limits = MergeLimits(
        time=WHOLE, members=WHOLE, path=WHOLE, mean=1.0, loss=WHOLE, unit_time=whole, unit_memory=whole
    )
    return limits, UniteLimits(int(Joining.UNITE), WHOLE, whole, whole)


def edge_mates(problem, levels=earliest_levels):
    q, units = quotient(problem)
    limits, bounds = unlimited(q)
    level = levels(q)
    return match(q, units, level, along_edges(q, level, longest_paths(q), limits), bounds)


def quotient_has_cycle(nodes, edges, pairs):
    label = list(range(nodes))
    for u, v in pairs:
        label[v] = label[u]
    kept = [(label[a], label[b]) for a, b in edges if label[a] != label[b]]
    return not nx.is_directed_acyclic_graph(nx.DiGraph(kept))


def neighbours(nodes, edges):
    succ, pred = [set() for _ in range(nodes)], [set() for _ in range(nodes)]
    for a, b in edges:
        succ[a].add(b)
        pred[b].add(a)
    return succ, pred


def condition_two(edges, height, around, edge):
    """(ii) of Theorem 3.5, which the paper prints correctly."""
    (succ, pred), (u, v) = around, edge
    others_higher = all(height[w] > height[v] for w in succ[u] - {v})
    return len(succ[u]) == 1 or len(pred[v]) == 1 or height[v] == height[u] + 1 or others_higher


def printed(edges, height, u_i, pair):
    """(iii) as printed: H(u_i) != H(v_j) + d_j or no edge u_i -> v_j."""
    u_j, v_j = pair
    return (u_i, v_j) not in edges or height[u_i] != height[v_j] + (height[v_j] - height[u_j])


def corrected(edges, height, u_i, pair):
    """(iii) corrected: H(u_i) != H(v_j) - d_j = H(u_j) or no edge u_i -> v_j."""
    u_j, v_j = pair
    return (u_i, v_j) not in edges or height[u_i] != height[u_j]


def batch(nodes, edges, third, order):
    """A maximal set that satisfies (i), (ii) and a form of (iii), taking edges in `order`."""
    height = heights(nodes, np.array([e[0] for e in edges]), np.array([e[1] for e in edges]))
    around, known = neighbours(nodes, edges), set(edges)
    chosen, used = [], set()
    for k in order:
        u, v = edges[k]
        if used & {u, v} or not condition_two(edges, height, around, (u, v)):
            continue
        if all(third(known, height, u, p) and third(known, height, p[0], (u, v)) for p in chosen):
            chosen.append((u, v))
            used |= {u, v}
    return chosen


BIPARTITE = [(0, 2), (0, 3), (1, 2), (1, 3)]
"""Figure 6: A = 0 and B = 1 feed C = 2 and D = 3; the pairs (A, C) and (B, D) point at each other."""


def test_printed_theorem_merges_figure_six_into_a_cycle():
    """Theorem 3.5 as printed admits (A, C) and (B, D) of Figure 6, whose nodes then point at each other."""
    # H = 1, 1, 2, 2, d = 1: (iii) compares H(u_i) = 1 with H(v_j) + d_j = 3, which can never be equal.
    chosen = batch(4, BIPARTITE, printed, [0, 3])
    assert chosen == [(0, 2), (1, 3)]
    assert quotient_has_cycle(4, BIPARTITE, chosen)


def test_corrected_theorem_refuses_figure_six():
    """Theorem 3.5 as corrected admits one pair of Figure 6, and so does the batch of the code, in every edge order."""
    for order in itertools.permutations(range(4)):
        assert len(batch(4, BIPARTITE, corrected, order)) == 1
        transfer = [order.index(k) for k in range(4)]
        assert np.count_nonzero(edge_mates(problem_of(4, BIPARTITE, transfer=transfer)) >= 0) == 2


def test_figure_six_with_a_detour_is_refused():
    """The cycle of Figure 6 is refused as well where A, B, C and D are amid other tasks at greater heights."""
    # 4 -> A, 4 -> B, C -> 5 and D -> 5 around Figure 6. A batch may hold 3 pairs only if it holds (A, C), (B, D) or
    # (A, D), (B, C) or an outer pair with each; two inner pairs of one kind must never be chosen together.
    edges = [*BIPARTITE, (4, 0), (4, 1), (2, 5), (3, 5)]
    for seed in range(50):
        transfer = np.random.default_rng(seed).integers(0, 100, len(edges))
        mate = edge_mates(problem_of(6, edges, transfer=transfer))
        assert not (mate[0] in (2, 3) and mate[1] in (2, 3))


def test_one_bipartite_edge_less_can_be_merged_whole():
    """Without B -> C the pairs (A, C) and (B, D) do not point at each other, and both are merged."""
    # (A, C): C has one predecessor; (B, D): B has one successor. Two pairs are all four nodes.
    assert (edge_mates(problem_of(4, [(0, 2), (0, 3), (1, 3)], transfer=[9, 1, 9])) >= 0).all()


def test_theorem_3_2_against_all_paths():
    """Contracting an edge leaves a DAG exactly when it is the only path between its ends (Theorem 3.2)."""
    rng = np.random.default_rng(32)
    seen = set()
    for _ in range(150):
        nodes = int(rng.integers(3, 9))
        edges = random_edges(rng, nodes, 0.4)
        graph = nx.DiGraph(edges)
        for u, v in edges:
            only = len(list(nx.all_simple_paths(graph, u, v))) == 1
            assert quotient_has_cycle(nodes, edges, [(u, v)]) != only
            seen.add(only)
    assert seen == {True, False}


def test_corollary_3_3_and_eligibility():
    """Edges by Corollary 3.3 are eligible, and every eligible edge is the only path between its ends."""
    rng = np.random.default_rng(33)
    for _ in range(200):
        nodes = int(rng.integers(3, 10))
        edges = random_edges(rng, nodes, 0.4)
        if not edges:
            continue
        q, _ = quotient(problem_of(nodes, edges))
        pairs = along_edges(q, q.height, longest_paths(q), unlimited(q)[0])
        eligible = set(zip(pairs.u.tolist(), pairs.v.tolist(), strict=True))
        around, graph = neighbours(nodes, edges), nx.DiGraph(edges)
        assert eligible == {e for e in edges if condition_two(edges, q.height, around, e)}
        assert eligible >= {(u, v) for u, v in edges if len(around[0][u]) == 1 or len(around[1][v]) == 1}
        assert all(len(list(nx.all_simple_paths(graph, u, v))) == 1 for u, v in eligible)


def test_heights_are_longest_paths():
    """Levels from the roots are Definition 3.4, and those from the leaves its mirror image."""
    rng = np.random.default_rng(34)
    for _ in range(100):
        nodes = int(rng.integers(2, 12))
        edges = random_edges(rng, nodes, 0.3)
        q, _ = quotient(problem_of(nodes, edges))
        graph = nx.DiGraph(edges)
        graph.add_nodes_from(range(nodes))
        deepest = nx.dag_longest_path_length(graph) + 1
        for node in range(nodes):
            above = graph.subgraph(nx.ancestors(graph, node) | {node})
            below = graph.subgraph(nx.descendants(graph, node) | {node})
            assert earliest_levels(q)[node] == nx.dag_longest_path_length(above) + 1
            assert latest_levels(q)[node] == deepest - nx.dag_longest_path_length(below)


def test_longest_paths_against_enumeration():
    """The longest path through an edge, by time and without the edge's own ends, equals enumeration."""
    # 0 (3) -> 2 (1), 1 (5) -> 2: task 2 starts after 1 at 5, and without 1 at 3; 3 (7) and 4 (2) follow it.
    q, _ = quotient(problem_of(5, [(0, 2), (1, 2), (2, 3), (2, 4)], ticks=[3, 5, 1, 7, 2]))
    paths = longest_paths(q)
    assert (paths.start[2], paths.before[2], paths.start_else[2]) == (5, 1, 3)
    assert (paths.tail[2], paths.after[2], paths.tail_else[2]) == (7, 3, 2)
    assert paths.start.tolist() == [0, 0, 5, 6, 6]
    assert paths.tail.tolist() == [8, 8, 7, 0, 0]


def test_printed_rule_makes_cycles_and_corrected_rule_none(seeds):
    """On random DAGs, maximal batches by the printed rule have cycles, by the corrected rule never."""
    rng = np.random.default_rng(35)
    cyclic = {printed: 0, corrected: 0}
    cases = seeds(800)
    for _ in cases:
        nodes = int(rng.integers(4, 14))
        edges = random_edges(rng, nodes, rng.uniform(0.1, 0.5))
        if edges:
            order = rng.permutation(len(edges))
            for third in cyclic:
                cyclic[third] += quotient_has_cycle(nodes, edges, batch(nodes, edges, third, order))
    assert cyclic[corrected] == 0
    assert cyclic[printed] >= 0.02 * len(cases)


def loose(q):
    """Random levels that rise along every edge, with gaps and ties: all that the proof uses."""
    rng = np.random.default_rng(q.size + len(q.src))
    level = rng.integers(0, 3, q.size)
    order = topological_order(q.size, q.src, q.dst)
    for node in order:
        for head in q.dst[q.src == node]:
            level[head] = max(level[head], level[node] + int(rng.integers(1, 3)))
    return level


@pytest.mark.parametrize("levels", [earliest_levels, latest_levels, phased_levels, loose])
def test_batches_along_edges_never_make_a_cycle(levels, seeds):
    """Batch after batch over any rising levels leaves a DAG, and a batch merges something while an edge is left."""
    rng = np.random.default_rng(36)
    merges, cases = 0, seeds(150)
    for _ in cases:
        nodes = int(rng.integers(2, 40))
        edges = random_edges(rng, nodes, rng.uniform(0.02, 0.4))
        transfer = rng.integers(0, 5, len(edges))
        q, units = quotient(problem_of(nodes, edges, kind=rng.integers(0, 3, nodes), transfer=transfer))
        limits, bounds = unlimited(q)
        while True:
            level = levels(q)
            assert (level[q.dst] > level[q.src]).all()
            mate = match(q, units, level, along_edges(q, level, longest_paths(q), limits), bounds)
            chosen = np.flatnonzero(mate > np.arange(q.size))
            assert (mate[mate[chosen]] == chosen).all()
            assert (q.nodes.kind[mate[chosen]] == q.nodes.kind[chosen]).all()
            if len(chosen) == 0:
                break
            first = np.arange(q.size)
            first[mate[chosen]] = chosen
            label = np.unique(first, return_inverse=True)[1]
            q = q.merged(label, q.size - len(chosen))  # raises on a cycle
            merges += len(chosen)
    assert merges > 5 * len(cases)


@pytest.mark.parametrize("levels", [earliest_levels, latest_levels, phased_levels, loose])
def test_any_partition_of_equal_levels_is_acyclic(levels, seeds):
    """Merging whole sets of equal level, as sibling batches do again and again, never makes a cycle."""
    rng = np.random.default_rng(37)
    for _ in seeds(150):
        nodes = int(rng.integers(2, 30))
        q, _ = quotient(problem_of(nodes, random_edges(rng, nodes, rng.uniform(0.02, 0.4))))
        sets = levels(q) * 3 + rng.integers(0, 3, nodes)
        label = np.unique(sets, return_inverse=True)[1]
        assert q.merged(label, int(label.max()) + 1).size == len(np.unique(sets))  # raises on a cycle


def test_siblings_are_of_equal_level_kind_and_neighbourhood():
    """Sibling candidates never differ in level, kind or the neighbour that they are asked to share."""
    rng = np.random.default_rng(38)
    found = 0
    for _ in range(200):
        nodes = int(rng.integers(2, 30))
        edges = random_edges(rng, nodes, 0.1)
        q, _ = quotient(problem_of(nodes, edges, kind=rng.integers(0, 3, nodes)))
        near = rng.integers(0, 2, nodes)
        u, v, _ = among_siblings(q, q.height, longest_paths(q), unlimited(q)[0], near)
        for values in (q.height, q.nodes.kind, near):
            assert (values[u] == values[v]).all()
        found += len(u)
    assert found > 200


def offered(q, paths, limits, *, siblings):
    """Candidates as {(u, v): longest path through the merged node in the graph with only this pair merged}."""
    near = np.zeros(q.size, dtype=np.int64)
    pairs = among_siblings(q, q.height, paths, limits, near) if siblings else along_edges(q, q.height, paths, limits)
    found = {}
    for u, v in zip(pairs.u.tolist(), pairs.v.tolist(), strict=True):
        label = np.arange(q.size)
        label[v] = u
        label = np.unique(label, return_inverse=True)[1]
        merged = q.merged(label, q.size - 1)
        after, node = longest_paths(merged), label[u]
        found[u, v] = int(after.start[node] + merged.nodes.time[node] + after.tail[node])
    return found


@pytest.mark.parametrize("siblings", [False, True])
def test_caps_are_kept_exactly(siblings):
    """Under a cap, exactly those pairs are offered whose merged node keeps it, as merging each of them shows."""
    rng = np.random.default_rng(39)
    kept = refused = 0
    for _ in range(60):
        nodes = int(rng.integers(4, 16))
        q, _ = quotient(problem_of(nodes, random_edges(rng, nodes, 0.2), ticks=rng.integers(1, 30, nodes)))
        paths, (free, _) = longest_paths(q), unlimited(q)
        time, through = q.nodes.time, paths.start + q.nodes.time + paths.tail
        everything = offered(q, paths, free, siblings=siblings)
        path, ticks = int(rng.integers(30, 120)), int(rng.integers(2, 64))
        # A cap below 64 ticks leaves nothing tiny, so that it is kept by all.
        limits = replace(free, path=path, time=ticks)
        fits = {e for e, length in everything.items() if time[list(e)].sum() <= ticks}
        fits = {e for e in fits if everything[e] <= max(path, *through[list(e)])}
        assert set(offered(q, paths, limits, siblings=siblings)) == fits
        assert set(offered(q, paths, replace(free, members=1), siblings=siblings)) == set()
        kept, refused = kept + len(fits), refused + len(everything) - len(fits)
    assert kept > 50
    assert refused > 50


def test_payloads_count_once_between_two_nodes():
    """A payload with two consumers in one node weighs once, and different payloads add up."""
    # 0 -> {1, 2} by one payload of 10, 0 -> 1 by another of 3; 3 -> 4 and 3 -> 5 by payloads of 6. With {1, 2} and
    # {4, 5} merged the two edges weigh 10 + 3 and 6 + 6.
    problem = problem_of(6, [(0, 1), (0, 2), (0, 1), (3, 4), (3, 5)])
    problem = replace(problem, payload=[0, 0, 1, 2, 3], producer=[0, 0, 3, 3], transfer=[[10], [3], [6], [6]])
    q = quotient(problem)[0].merged(np.array([0, 1, 1, 2, 3, 3]), 4)
    assert sorted(zip(q.src.tolist(), q.dst.tolist(), q.weight.tolist(), strict=True)) == [(0, 1, 13), (2, 3, 12)]


def test_a_cycle_is_reported_as_a_bug():
    """Merging the ends of a path of three raises, whatever asked for it."""
    q, _ = quotient(problem_of(3, [(0, 1), (1, 2)]))
    with pytest.raises(RuntimeError, match="cycle: this is a bug"):
        q.merged(np.array([0, 1, 0]), 2)
