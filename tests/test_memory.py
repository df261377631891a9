"""Bytes alive over a step, derived by hand."""

import numpy as np
import pytest

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
    assert found.static.tolist() == [0, 1000, 0]
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


def random_run(rng, make_graph, make_cluster, make_costs, *, per_edge):
    """A random graph with views, several readers and variables, on random GPUs, in index order."""
    ops = []
    for k in range(int(rng.integers(2, 14))):
        before = sorted({f"op{b}" for b in rng.integers(0, k, rng.integers(0, 3))}) if k else []
        view = bool(before) and rng.random() < 0.3
        size = (
            int(rng.integers(0, 50))
            if not view or rng.random() < 0.3
            else max(ops[int(b[2:])]["bytes"] for b in before)
        )
        ops.append(
            {
                "name": f"op{k}",
                "inputs": before,
                "bytes": size,
                "launches": not view,
                "s": 1e-9 * int(rng.integers(1, 9)),
            }
        )
    graph, cluster = make_graph(ops), make_cluster(gpus=3)
    p = build(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes, per_edge=per_edge)
    line = simulate(p, rng.integers(1, 4, graph.ops), np.arange(graph.ops))
    return graph, line


def peaks_by_dict(graph, line, *, per_edge):
    """The same rules read slowly: a dict of buffers, and the live bytes summed at every tick that matters."""
    s = line.schedule
    at = line.problem.location[s.device].tolist()
    used = sorted(set(graph.tensor.tolist()))
    sent = {pair: k for k, pair in enumerate(zip(s.sent_payload.tolist(), s.sent_to.tolist(), strict=True))}
    spans, size, place = {}, {}, {}
    source = {}  # op -> key of the buffer that its output is
    for op in range(graph.ops):
        reads = [e for e in range(len(graph.src)) if graph.dst[e] == op]
        keys = {}
        for e in reads:
            producer = int(graph.src[e])
            if at[producer] == at[op]:
                keys[e] = source[producer]
            else:
                payload = e if per_edge else used.index(int(graph.tensor[e]))
                k = sent[payload, at[op]]
                keys[e] = ("copy", k)
                size[keys[e]], place[keys[e]] = int(graph.tensor_bytes[graph.tensor[e]]), at[op]
                spans.setdefault(keys[e], [int(s.sent_start[k]), int(s.sent_finish[k])])
                spans[source[producer]][1] = max(spans[source[producer]][1], int(s.sent_finish[k]))
            spans[keys[e]][1] = max(spans[keys[e]][1], int(s.finish[op]))
        largest = max(reads, key=lambda e: (graph.tensor_bytes[graph.tensor[e]], e), default=None)
        mine = int(graph.tensor_bytes[op])
        if (
            not graph.launches[op]
            and largest is not None
            and graph.tensor_bytes[graph.tensor[largest]] == mine
            and mine
        ):
            source[op] = keys[largest]
        else:
            source[op] = ("made", op)
            size[source[op]], place[source[op]] = mine, at[op]
            spans[source[op]] = [int(s.start[op]), int(s.finish[op])]
    peak = [0] * line.problem.locations
    for tick in {begin for begin, _ in spans.values()}:
        for location in range(line.problem.locations):
            alive = sum(size[k] for k, (b, e) in spans.items() if place[k] == location and b <= tick < e)
            peak[location] = max(peak[location], alive)
    return peak


@pytest.mark.parametrize("per_edge", [False, True])
def test_equals_a_slow_reading_of_the_rules(per_edge, make_graph, make_cluster, make_costs) -> None:
    """Random graphs with views and copies across three GPUs, in both modes of transfer."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        graph, line = random_run(rng, make_graph, make_cluster, make_costs, per_edge=per_edge)
        assert measure(graph, line, per_edge=per_edge).peak.tolist() == peaks_by_dict(graph, line, per_edge=per_edge)


def test_a_shape_is_no_view_of_what_it_measures(make_graph, make_cluster, make_costs) -> None:
    """The 4 bytes of a shape keep nothing else alive: a's 100 are gone when c makes its 90."""
    graph = make_graph(
        [
            {"name": "a", "bytes": 100},
            {"name": "shape", "bytes": 4, "inputs": ["a"], "launches": False},
            {"name": "c", "bytes": 90, "control": ["shape"]},
            {"name": "d", "inputs": ["shape", "c"]},
        ]
    )
    cluster = make_cluster()
    assert run(graph, cluster, make_costs(graph, cluster), [1, 1, 1, 1]).peak.tolist() == [0, 104, 0]
