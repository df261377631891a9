"""Coarse schedules expanded to the full graph: of three orders the best, each of which is needed. Times in ms."""

import numpy as np
import pytest

from pesto.core.settings import Settings
from pesto.planning.coarsen import Coarsening, contract
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from solvers.arrays import rank_of
from solvers.timing.replay import replay


def rows(*ops):
    """Ops (name, ms, inputs) for GPUs."""
    return [{"name": name, "s": ms * 1e-3, "inputs": inputs, "kinds": ("gpu",)} for name, ms, *inputs in ops]


CASES = [
    # y waits 0.5 ms for z, and t on the other GPU for y. What serves ready ops gives gpu:1 the loose b when x ends.
    ("nodes one after another", rows(("z", 1.5), ("x", 1), ("y", 0.1, "x", "z"), ("t", 20, "y"), ("b", 10)),
     [0, 1, 1, 2, 3], [2, 1, 2, 1], 1.5 + 0.1 + 20),
    # q feeds r on the other GPU, so it goes first although p is longer than q, r and y; p does not wait for y.
    ("ready ops in coarse order", rows(("q", 1), ("r", 3.9, "q"), ("y", 0.1, "r"), ("p", 6)),
     [0, 1, 2, 2], [1, 2, 1], 1 + 6 + 0.1),
    # The coarse order has p before q, which the long r on the other GPU waits for.
    ("ready ops by bottom level", rows(("p", 5), ("q", 1), ("r", 10, "q")), [0, 1, 2], [1, 1, 2], 1 + 10),
]  # fmt: skip
"""(rule, ops, node of each, device of each node, ms of the step without transfers)."""


@pytest.mark.parametrize(("rule", "ops", "node_of", "device", "took"), CASES, ids=[case[0] for case in CASES])
def test_the_best_of_three_orders(make_graph, make_cluster, make_costs, rule, ops, node_of, device, took) -> None:
    """The paper's order (Pesto, 3.3: a node's members one after another), and two in which ready ops are served."""
    graph, cluster = make_graph(ops), make_cluster()
    problem = formulate(graph, make_costs(graph, cluster), cluster, Settings())
    node_of, nodes = np.array(node_of), len(device)
    coarsening = Coarsening(
        node_of=node_of, nodes=nodes, rank=np.arange(len(ops)), target=nodes, reason="by hand", rounds=(),
        largest_group_share=0.0,
    )  # fmt: skip
    coarse = replay(contract(problem, node_of), np.array(device), np.arange(nodes))
    where, rank, said = CandidateEvaluator.of(graph, problem).expand(coarsening, coarse)
    assert (said, where.tolist()) == (rule, np.array(device)[node_of].tolist())
    assert replay(problem, where, rank).makespan * 1e-6 == pytest.approx(took, abs=0.003)  # transfers take 1 us each


def test_nodes_of_no_time_keep_their_order(make_graph, make_cluster, make_costs) -> None:
    """Nodes that start and end in one tick, numbered at random: what follows another does so in the full graph, too."""
    rng = np.random.default_rng(3)
    before = [[f"{j}" for j in (k - 1, k - 3) if j >= 0] for k in range(12)]
    graph, cluster = make_graph(rows(*((f"{k}", k % 4 == 0, *before[k]) for k in range(12)))), make_cluster()
    problem = formulate(graph, make_costs(graph, cluster), cluster, Settings())
    bench = CandidateEvaluator.of(graph, problem)
    for _ in range(5):
        node_of = rng.permutation(12)
        coarsening = Coarsening(
            node_of=node_of, nodes=12, rank=np.arange(12), target=12, reason="by hand", rounds=(),
            largest_group_share=0.0,
        )  # fmt: skip
        device = np.empty(12, np.int64)
        device[node_of] = 1
        coarse = replay(contract(problem, node_of), device, rank_of(node_of))
        where, rank, _ = bench.expand(coarsening, coarse)
        assert (rank[problem.src] < rank[problem.dst]).all()
        assert bench.ordered("by hand", "", where, rank).makespan == coarse.makespan
