"""The bridge in: seconds and bytes become ticks, kinds become allowed devices."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.core.cluster import Path
from pesto.core.errors import InputError
from pesto.core.graph import BOUND, BRANCHED, FREE, FUNCTION, SESSION, SHARED
from pesto.core.problem import build_problem, lanes
from pesto.planning.solving.colocation_ties import kept_edges
from solvers.problem import FORBIDDEN


def pair(make_graph, **second):
    return make_graph([{"name": "a", "bytes": 1000, "s": 2e-6}, {"name": "b", "inputs": ["a"], "s": 3e-6, **second}])


def test_times_round_up_to_ticks_of_a_nanosecond(make_graph, make_cluster, make_costs) -> None:
    """2 µs is 2000 ticks; 1 µs + 1000 bytes at 1 ns/byte is 2000 ticks; 1.2 ns is 2."""
    graph, cluster = pair(make_graph, s=1.2e-9), make_cluster()
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    assert p.duration[:, 1].tolist() == [2000, 2]
    assert p.transfer.tolist() == [[2000]]


def test_the_floor_of_a_path_holds(make_graph, make_cluster, make_costs) -> None:
    """A path with a floor of 15 µs takes at least that (the paper's PCIe box)."""
    graph, cluster = pair(make_graph), make_cluster(path=Path(latency_s=5e-6, s_per_byte=1e-9, floor_s=15e-6))
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    assert p.transfer.tolist() == [[15000]]


def test_an_op_with_a_gpu_kernel_stays_off_the_cpu(make_graph, make_cluster, make_costs) -> None:
    """Both ops have CPU kernels, but only the one without a GPU kernel runs on the host, on any of its cores."""
    graph, cluster = pair(make_graph, kinds=("cpu",)), make_cluster(cores=2)
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    assert [name for name, _ in lanes(cluster)] == ["cpu:0/0", "cpu:0/1", "gpu:0", "gpu:1"]
    assert p.allowed.tolist() == [[False, False, True, True], [True, True, False, False]]
    assert p.duration[0, 0] == FORBIDDEN
    assert p.location.tolist() == [0, 0, 1, 2]


def test_a_group_goes_where_all_its_members_can(make_graph, make_cluster, make_costs) -> None:
    """One CPU-only member keeps the whole group on the host."""
    graph = make_graph([{"name": "a", "group": "v"}, {"name": "b", "group": "v", "kinds": ("cpu",)}])
    cluster = make_cluster()
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
    assert p.allowed.tolist() == [[True, False, False], [True, False, False]]


def test_a_group_that_no_kind_can_run_is_refused(make_graph, make_cluster, make_costs) -> None:
    """A GPU-only and a CPU-only op in one group cannot share a device."""
    graph = make_graph([{"name": "a", "group": "v", "kinds": ("gpu",)}, {"name": "b", "group": "v", "kinds": ("cpu",)}])
    cluster = make_cluster()
    with pytest.raises(InputError, match="must share a device"):
        build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)


def test_a_cluster_without_the_right_device_is_refused(make_graph, make_cluster, make_costs) -> None:
    """A GPU-only op on a cluster of one host runs nowhere."""
    graph, cluster = pair(make_graph, kinds=("gpu",)), make_cluster(gpus=0)
    with pytest.raises(InputError, match="op b runs on no device"):
        build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)


def test_one_payload_a_tensor_or_one_an_edge(make_graph, make_cluster, make_costs) -> None:
    """Two readers of one tensor share a payload; the paper's mode gives each edge its own."""
    graph = make_graph(
        [{"name": "a", "bytes": 8}, {"name": "b", "inputs": ["a"]}, {"name": "c", "inputs": ["a"], "control": ["b"]}]
    )
    cluster = make_cluster()
    costs = make_costs(graph, cluster)
    shared = build_problem(graph, costs, cluster, memory=graph.param_bytes)
    assert (shared.payloads, shared.payload.tolist()) == (1, [0, 0, -1])
    each = build_problem(graph, costs, cluster, memory=graph.param_bytes, per_edge=True)
    assert (each.payloads, each.payload.tolist()) == (2, [0, 1, -1])
    assert np.array_equal(each.producer, [0, 0])


def test_small_constants_are_never_sent(make_graph, make_cluster, make_costs) -> None:
    """Each device that reads one has a copy; not of larger ones, nor of what waits, or runs on one kind."""
    ops = [
        {"name": "small", "bytes": 128},
        {"name": "large", "bytes": 129},
        {"name": "late", "bytes": 8, "control": ["small"]},
        {"name": "host", "bytes": 8, "kinds": ["cpu"]},
        {"name": "reader", "inputs": ["small", "large", "late", "host"]},
    ]
    graph = make_graph(ops)
    graph = replace(graph, types=("Const", "Add"), type_of=np.array([0, 0, 0, 0, 1]))
    cluster = make_cluster()
    costs = make_costs(graph, cluster)
    found = build_problem(graph, costs, cluster, memory=graph.param_bytes)
    assert (found.src.tolist(), found.payload.tolist()) == ([1, 2, 3, 0], [0, 1, 2, -1])
    assert kept_edges(graph, found).tolist() == [1, 2, 3] and not (found.duration[0] > 0).any()
    assert build_problem(graph, costs, cluster, memory=graph.param_bytes, per_edge=True).payload.tolist() == [
        0,
        1,
        2,
        3,
        -1,
    ]


def test_what_runs_beside_the_order_takes_no_time(make_graph, make_cluster, make_costs) -> None:
    """Handles and feeds, and in a session what others share and starts no kernel; its only reader goes with a feed."""
    ops = [{"name": "x"}, {"name": "cast", "inputs": ["x"]}, {"name": "y", "inputs": ["cast"]}, {"name": "late"}]
    graph = replace(make_graph(ops), loose=np.array([FREE, SHARED, BOUND, BRANCHED]))
    cluster = make_cluster()
    light = np.array([True, False, True, True])
    first, two = [True, False, False, False], [True, True, False, False]
    for way, launches, beside in ((SESSION, light, two), (SESSION, light | True, first), (FUNCTION, light, first)):
        meant = replace(graph, way=way, launches=launches)
        found = build_problem(meant, make_costs(meant, cluster), cluster, memory=graph.param_bytes)
        assert [not (row > 0).any() for row in found.duration] == beside
        assert found.group.tolist() == [0, 0, -1, -1]
