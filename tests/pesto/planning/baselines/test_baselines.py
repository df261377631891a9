"""Placements by hand: TensorFlow's own, and layers cut where their times balance."""

from itertools import combinations

import numpy as np
import pytest

from pesto.core.problem import build_problem
from pesto.planning.solving.quick_candidates import balanced_cut, framework_default, layer_balanced, layers_of


def locations(rule, graph, cluster, costs) -> list[int]:
    p = build_problem(graph, costs, cluster, memory=graph.param_bytes)
    return p.location[rule(graph, p, cluster).device].tolist()


def layered_ops(scopes, seconds):
    """For each scope a variable and an op that reads it and the op before; then the gradients in reverse."""
    ops, last = [], None
    for scope, s in zip(scopes, seconds, strict=True):
        ops.append({"name": f"{scope}/kernel", "param": 8, "s": 0.0})
        ops.append({"name": f"{scope}/mul", "inputs": [f"{scope}/kernel", *([last] if last else [])], "s": s})
        last = f"{scope}/mul"
    for scope, s in zip(scopes[::-1], seconds[::-1], strict=True):
        ops.append({"name": f"gradients/{scope}/grad", "inputs": [last, f"{scope}/kernel"], "s": 2 * s})
        last = f"gradients/{scope}/grad"
    return ops


def test_tensorflow_puts_everything_on_the_first_gpu(make_graph, make_cluster, make_costs) -> None:
    """What has no GPU kernel stays on the host."""
    graph = make_graph([{"name": "a"}, {"name": "b", "kinds": ("cpu",)}, {"name": "c", "inputs": ["a", "b"]}])
    cluster = make_cluster(gpus=3)
    assert locations(framework_default, graph, cluster, make_costs(graph, cluster)) == [1, 0, 1]


def test_layers_are_cut_where_their_times_balance(make_graph, make_cluster, make_costs) -> None:
    """Layers of 3, 1, 1, 1 (twice that backward) on two GPUs: 3 | 1 + 1 + 1, where Expert has 3 + 1 | 1 + 1."""
    scopes = [f"net/layer_{k}" for k in range(4)]
    graph, cluster = make_graph(layered_ops(scopes, [3e-6, 1e-6, 1e-6, 1e-6])), make_cluster()
    forward = [1, 1, 2, 2, 2, 2, 2, 2]
    backward = [2, 2, 2, 1]
    assert locations(layer_balanced, graph, cluster, make_costs(graph, cluster)) == forward + backward


def test_layers_come_in_the_order_in_which_they_run(make_graph, make_cluster, make_costs) -> None:
    """An encoder's layers run before the decoder's of the same numbers, whatever their names sort like."""
    scopes = ["zenc/layer_0", "zenc/layer_1", "dec/layer_0", "dec/layer_1"]
    graph, cluster = make_graph(layered_ops(scopes, [1e-6] * 4)), make_cluster(gpus=4)
    found = locations(layer_balanced, graph, cluster, make_costs(graph, cluster))
    assert found == [1, 1, 2, 2, 3, 3, 4, 4, 4, 3, 2, 1]


def test_a_layer_is_a_scope_that_holds_a_variable(make_graph) -> None:
    """Gradients and updates are known by the path inside their names; what has no numbered scope is in no layer."""
    names = ["a/block_1/kernel", "grad/a/block_1/mul", "update_a/block_1/x", "b/block_1/mul", "loss"]
    graph = make_graph([{"name": n, "param": 4 if n.endswith("kernel") else 0} for n in names])
    assert layers_of(graph).tolist() == [0, 0, -1, -1, -1]


def test_without_layers_pieces_of_equal_time(make_graph, make_cluster, make_costs) -> None:
    """A chain of eight equal ops on two GPUs: four and four."""
    ops = [{"name": f"op{k}", "inputs": [f"op{k - 1}"] if k else []} for k in range(8)]
    graph, cluster = make_graph(ops), make_cluster()
    assert locations(layer_balanced, graph, cluster, make_costs(graph, cluster)) == [1] * 4 + [2] * 4


@pytest.mark.parametrize("seed", range(60))
def test_the_cut_is_the_best_of_all(seed) -> None:
    """Against all ways to cut up to 8 layers into up to 4 pieces."""
    rng = np.random.default_rng(seed)
    time, pieces = rng.integers(0, 9, int(rng.integers(1, 9))), int(rng.integers(1, 5))
    found = balanced_cut(time, pieces)
    assert (np.diff(found) >= 0).all() and found.max() < pieces
    longest = np.bincount(found, weights=time).max()
    cuts = (c for k in range(pieces) for c in combinations(range(1, len(time)), k))
    assert longest == min(max(part.sum() for part in np.split(time, list(c))) for c in cuts)
