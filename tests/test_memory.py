"""Bytes alive over a step, derived by hand."""

import numpy as np

from pesto.memory import measure
from pesto.problem import build
from pesto.simulate import simulate


def run(graph, cluster, costs, device):
    p = build(graph, costs, cluster, memory=graph.param_bytes)
    return measure(graph, simulate(p, np.array(device), np.arange(graph.ops)))


def test_a_tensor_dies_with_its_last_reader(make_graph, make_cluster, make_costs) -> None:
    """a (100) and b (10) overlap while b runs; c (1) overlaps b only: the peak is 110."""
    graph = make_graph(
        [
            {"name": "a", "bytes": 100},
            {"name": "b", "bytes": 10, "inputs": ["a"]},
            {"name": "c", "bytes": 1, "inputs": ["b"]},
        ]
    )
    cluster = make_cluster()
    found = run(graph, cluster, make_costs(graph, cluster), [1, 1, 1])
    assert found.peak.tolist() == [0, 110, 0]
    assert found.alive.tolist() == [100, 10, 0]


def test_a_received_copy_counts_where_it_lies(make_graph, make_cluster, make_costs) -> None:
    """a's 100 bytes lie on both GPUs during the send; gpu:1 then holds the copy and b's 10."""
    graph = make_graph([{"name": "a", "bytes": 100}, {"name": "b", "bytes": 10, "inputs": ["a"]}])
    cluster = make_cluster()
    found = run(graph, cluster, make_costs(graph, cluster), [1, 2])
    assert found.peak.tolist() == [0, 100, 110]


def test_variables_live_for_ever(make_graph, make_cluster, make_costs) -> None:
    """1000 bytes of a variable add to whatever else is alive."""
    graph = make_graph([{"name": "v", "param": 1000, "launches": False}, {"name": "b", "bytes": 10, "inputs": ["v"]}])
    cluster = make_cluster()
    found = run(graph, cluster, make_costs(graph, cluster), [1, 1])
    assert found.persistent.tolist() == [0, 1000, 0]
    assert found.peak.tolist() == [0, 1010, 0]


def test_a_reshape_copies_nothing_but_keeps_its_input_alive(make_graph, make_cluster, make_costs) -> None:
    """a's 100 bytes live on through r until d reads them, over c's 50: 150, not 250."""
    graph = make_graph(
        [
            {"name": "a", "bytes": 100},
            {"name": "r", "bytes": 100, "inputs": ["a"], "launches": False},
            {"name": "c", "bytes": 50, "control": ["r"]},
            {"name": "d", "inputs": ["r", "c"]},
        ]
    )
    cluster = make_cluster()
    assert run(graph, cluster, make_costs(graph, cluster), [1, 1, 1, 1]).peak.tolist() == [0, 150, 0]
