"""The Expert rule, read from scopes."""

import numpy as np

from pesto.core.problem import build_problem
from pesto.planning.solving.quick_candidates import expert


def placed(graph, cluster, costs) -> list[int]:
    p = build_problem(graph, costs, cluster, memory=graph.param_bytes)
    return p.location[expert(graph, p, cluster).device].tolist()


def test_layers_in_order_and_the_ends_with_their_neighbours(make_graph, make_cluster, make_costs) -> None:
    """4 layers on 2 GPUs: 0 and 1 on the first with the embedding, 2 and 3 on the second with the softmax."""
    names = ["embedding/x", "layer_0/a", "layer_1/a", "layer_2/a", "layer_3/a", "attention/q", "softmax/y"]
    ops = [{"name": n, "inputs": names[i - 1 : i] if i else []} for i, n in enumerate(names)]
    graph, cluster = make_graph(ops), make_cluster()
    assert placed(graph, cluster, make_costs(graph, cluster)) == [1, 1, 1, 2, 2, 2, 2]


def test_gradients_and_updates_sit_with_their_layer(make_graph, make_cluster, make_costs) -> None:
    """A scope inside a longer name counts; what has no scope follows what feeds it."""
    ops = [
        {"name": "gradients/decoder/layer_0/mul"},
        {"name": "gradients/decoder/layer_1/mul"},
        {"name": "AddN", "inputs": ["gradients/decoder/layer_1/mul"]},
        {"name": "update_layer_1/kernel/Apply", "inputs": ["AddN"]},
    ]
    graph, cluster = make_graph(ops), make_cluster()
    assert placed(graph, cluster, make_costs(graph, cluster)) == [1, 2, 2, 2]


def test_branches_of_a_cell_are_split_evenly(make_graph, make_cluster, make_costs) -> None:
    """NASNet: branches of 4, 1, 1, 2 us in each cell: 4 | 2 + 1 + 1, the longest first."""
    seconds = [4e-6, 1e-6, 1e-6, 2e-6]
    ops = [{"name": f"cell_{c}/branch_{b}/conv", "s": seconds[b]} for c in range(2) for b in range(4)]
    graph, cluster = make_graph(ops), make_cluster()
    assert placed(graph, cluster, make_costs(graph, cluster)) == [1, 2, 2, 2] * 2


def test_without_layers_consecutive_pieces_of_equal_time(make_graph, make_cluster, make_costs) -> None:
    """Times 3, 1, 1, 1 in a chain: half of the 6 is reached after the first op."""
    ops = [
        {"name": n, "inputs": [chr(ord(n) - 1)] if n > "a" else [], "s": s}
        for n, s in zip("abcd", [3, 1, 1, 1], strict=True)
    ]
    graph, cluster = make_graph(ops), make_cluster()
    assert placed(graph, cluster, make_costs(graph, cluster)) == [1, 2, 2, 2]


def test_a_group_goes_where_most_of_its_time_wants(make_graph, make_cluster, make_costs) -> None:
    """Layer 1's op is the longer half of the group, so layer 0's op follows it; CPU-only ops stay on the host."""
    ops = [
        {"name": "layer_0/a", "group": "v", "s": 1e-6},
        {"name": "layer_1/b", "group": "v", "s": 2e-6},
        {"name": "layer_0/c", "kinds": ("cpu",)},
    ]
    graph, cluster = make_graph(ops), make_cluster()
    assert placed(graph, cluster, make_costs(graph, cluster)) == [2, 2, 0]


def test_host_ops_in_the_majority_change_nothing(make_graph, make_cluster, make_costs) -> None:
    """Twenty ops that only the host can run do not make the host an accelerator, and share its cores."""
    host = [{"name": f"read{k}", "kinds": ("cpu",), "s": 1e-3} for k in range(20)]
    layers = [{"name": f"layer_{k}/a"} for k in range(2)]
    graph, cluster = make_graph([*host, *layers]), make_cluster(cores=4)
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    device = expert(graph, p, cluster).device
    assert p.location[device].tolist() == [0] * 20 + [1, 2]
    assert np.bincount(device[:20]).tolist() == [5, 5, 5, 5]


def test_deterministic_on_random_names(make_graph, make_cluster, make_costs) -> None:
    """Whatever the names, every op lands on a device that can run it."""
    rng = np.random.default_rng(3)
    parts = ["layer_0", "layer_7", "cell_1", "branch_2", "softmax", "x", "gradients", "embedding"]
    names = [f"{'/'.join(rng.choice(parts, 3))}/{i}" for i in range(60)]
    graph = make_graph([{"name": n, "kinds": ("cpu",) if i % 7 == 0 else ("cpu", "gpu")} for i, n in enumerate(names)])
    cluster = make_cluster(gpus=3)
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    assert p.allowed[np.arange(60), expert(graph, p, cluster).device].all()
