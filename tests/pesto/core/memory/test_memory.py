"""Bytes alive over a step, derived by hand."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.core.memory import footprint, measure
from pesto.core.problem import build_problem
from pesto.core.simulator import simulate


def run(graph, cluster, costs, device, scratch=None):
    p = build_problem(graph, costs, cluster, memory=graph.param_bytes)
    return measure(graph, simulate(p, np.array(device), np.arange(graph.ops)), scratch=scratch)


def typed(graph, **types):
    """The graph with op types by name; all others are MatMul, whose output is no input's."""
    names = tuple(sorted({*types.values(), "MatMul"}))
    return replace(graph, types=names, type_of=np.array([names.index(types.get(n, "MatMul")) for n in graph.names]))


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


def test_a_version_that_outlives_an_update_has_bytes(make_graph, make_cluster, make_costs) -> None:
    """v (1000) is read twice before its first update, to which only the first read leads: with b0 and b1 (10 each)
    2020, where the other is kept; 1020 where it leads there, too."""
    ops = [
        {"name": "v", "param": 1000, "launches": False},
        {"name": "r0", "bytes": 1000, "inputs": ["v"], "launches": False},
        {"name": "r1", "bytes": 1000, "inputs": ["v"], "launches": False},
        {"name": "b0", "bytes": 10, "inputs": ["r0"]},
        {"name": "b1", "bytes": 10, "inputs": ["r1"]},
        {"name": "u0", "inputs": ["v", "b0"], "control": ["r0", "r1"]},
        {"name": "u1", "inputs": ["v", "b1"], "control": ["u0"]},
    ]
    cluster = make_cluster()

    def peak(ops):
        graph = make_graph(ops)
        graph = replace(graph, tensor_op=graph.tensor_op[:5], tensor_bytes=graph.tensor_bytes[:5],
                        tensor_dtype=graph.tensor_dtype[:5])  # fmt: skip
        return run(graph, cluster, make_costs(graph, cluster), [1] * 7).peak.tolist()

    assert peak(ops) == [0, 2020, 0]
    ops[5]["inputs"] = ["v", "b0", "b1"]
    assert peak(ops) == [0, 1020, 0]


V, READ = {"name": "v", "param": 1000, "bytes": 1000, "launches": False}, {"name": "r", "bytes": 10, "inputs": ["v"]}


@pytest.mark.parametrize(
    ("ops", "types", "peak"),
    [
        ([V, READ], {}, 1010),
        ([V, {**READ, "name": "r", "inputs": ["v", "v"]}], {"v": "Variable"}, 1010),
        ([{**V, "launches": True}, READ], {"v": "VariableV2"}, 1010),  # a reference variable of TensorFlow 1
        ([{**V, "param": 3000}, READ], {}, 3010),  # with its slots
        ([{**V, "launches": True}, READ], {}, 2010),  # a kernel with weights of its own makes another tensor
        ([V, READ], {"v": "Const"}, 1010),
        ([V, {**READ, "bytes": 1000}], {"v": "Variable", "r": "Relu"}, 2000),  # it is not written over
        ([V, {**READ, "bytes": 1000, "launches": False}, {"name": "b", "bytes": 10, "inputs": ["r"]}], {}, 1010),
        ([V, {**READ, "bytes": 1000}, {"name": "b", "bytes": 10, "inputs": ["r"]}], {"r": "AssignAdd"}, 1010),
        ([V, {**READ, "bytes": 1000}, {"name": "b", "bytes": 10, "inputs": ["r"]}], {"r": "ApplyMomentum"}, 1010),
    ],
)
def test_a_variable_that_is_read_itself_has_one_copy(make_graph, make_cluster, make_costs, ops, types, peak) -> None:
    """What an op gives of the variable that it holds is the variable, as is what an update hands on."""
    graph = typed(make_graph(ops), **types)
    cluster = make_cluster()
    found = run(graph, cluster, make_costs(graph, cluster), [1] * graph.ops)
    assert found.peak.tolist() == [0, peak, 0]


def test_a_variable_is_copied_to_who_reads_it_elsewhere(make_graph, make_cluster, make_costs) -> None:
    """Its 1000 bytes are received, and stay where they are held."""
    graph = make_graph([V, READ])
    cluster = make_cluster()
    assert run(graph, cluster, make_costs(graph, cluster), [1, 2]).peak.tolist() == [0, 1000, 1010]


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
    p = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes, per_edge=per_edge)
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


def peaks(make_cluster, make_costs, graph, device):
    cluster = make_cluster()
    return run(graph, cluster, make_costs(graph, cluster), device).peak.tolist()


def test_an_elementwise_op_writes_into_its_input(make_graph, make_cluster, make_costs) -> None:
    """t takes a's 100 bytes over; had it been a MatMul there would be 200."""
    ops = [{"name": "a", "bytes": 100}, {"name": "t", "bytes": 100, "inputs": ["a"]}]
    graph = make_graph(ops)
    assert peaks(make_cluster, make_costs, typed(graph, t="Tanh"), [1, 1]) == [0, 100, 0]
    assert peaks(make_cluster, make_costs, typed(graph), [1, 1]) == [0, 200, 0]


def test_what_is_needed_later_is_not_written_into(make_graph, make_cluster, make_costs) -> None:
    """g reads a after t: t needs 100 bytes of its own. When g comes first it does not."""
    ops = [{"name": "a", "bytes": 100}, {"name": "t", "bytes": 100, "inputs": ["a"]}, {"name": "g", "inputs": ["a"]}]
    assert peaks(make_cluster, make_costs, typed(make_graph(ops), t="Tanh"), [1, 1, 1]) == [0, 200, 0]
    ops = [ops[0], ops[2], ops[1]]
    assert peaks(make_cluster, make_costs, typed(make_graph(ops), t="Tanh"), [1, 1, 1]) == [0, 100, 0]


def test_of_two_inputs_the_one_that_nobody_else_reads_is_written_into(make_graph, make_cluster, make_costs) -> None:
    """a is read by z, at the end, too; the sum goes into b: a and b, 200 bytes, where 300 would be if into neither."""
    ops = [
        {"name": "a", "bytes": 100},
        {"name": "b", "bytes": 100},
        {"name": "sum", "bytes": 100, "inputs": ["a", "b"]},
        {"name": "z", "inputs": ["a", "sum"]},
    ]
    assert peaks(make_cluster, make_costs, typed(make_graph(ops), sum="AddV2"), [1] * 4) == [0, 200, 0]
    assert peaks(make_cluster, make_costs, typed(make_graph(ops)), [1] * 4) == [0, 300, 0]


def test_neither_a_variable_nor_a_constant_is_written_into(make_graph, make_cluster, make_costs) -> None:
    """t of the value that r reads from v, and u of the constant c, need 100 bytes of their own beside 200 for ever."""
    ops = [
        {"name": "v", "param": 100, "launches": False},
        {"name": "r", "bytes": 100, "inputs": ["v"], "launches": False},
        {"name": "c", "bytes": 100, "launches": False},
        {"name": "t", "bytes": 100, "inputs": ["r"]},
        {"name": "u", "bytes": 100, "inputs": ["c"]},
    ]
    graph = typed(make_graph(ops), v="VarHandleOp", r="ReadVariableOp", c="Const", t="Tanh", u="Tanh")
    assert peaks(make_cluster, make_costs, graph, [1] * 5) == [0, 300, 0]


def test_a_constant_lives_for_ever_where_it_was_made(make_graph, make_cluster, make_costs) -> None:
    """c's 200 bytes are there beside z's 60, long after b; the copy on gpu:1 is gone when b has run."""
    ops = [
        {"name": "c", "bytes": 200, "launches": False},
        {"name": "b", "bytes": 1, "inputs": ["c"]},
        {"name": "z", "bytes": 60, "control": ["b"]},
        {"name": "far", "bytes": 70, "control": ["b"]},
    ]
    graph = typed(make_graph(ops), c="Const")
    assert peaks(make_cluster, make_costs, graph, [1, 2, 1, 2]) == [0, 260, 201]
    cluster = make_cluster()
    assert run(graph, cluster, make_costs(graph, cluster), [1, 2, 1, 2]).static.tolist() == [0, 200, 0]
    assert peaks(make_cluster, make_costs, typed(make_graph(ops)), [1, 2, 1, 2]) == [0, 200, 201]


def test_a_small_constant_is_never_sent(make_graph, make_cluster, make_costs) -> None:
    """Each device that reads it has a copy of its own, whose few bytes do not count; nothing is written into it."""
    ops = [
        {"name": "c", "bytes": 100, "launches": False},
        {"name": "same", "bytes": 100, "inputs": ["c"], "launches": False},
        {"name": "t", "bytes": 1, "inputs": ["same"]},
    ]
    graph = typed(make_graph(ops), c="Const", same="Identity")
    assert peaks(make_cluster, make_costs, graph, [1, 2, 2]) == [0, 100, 101]


def test_a_received_copy_is_written_into(make_graph, make_cluster, make_costs) -> None:
    """t on gpu:1 takes the copy of a over, whatever still reads a on gpu:0."""
    ops = [
        {"name": "a", "bytes": 100},
        {"name": "t", "bytes": 100, "inputs": ["a"]},
        {"name": "late", "inputs": ["a"], "s": 1e-3},
    ]
    assert peaks(make_cluster, make_costs, typed(make_graph(ops), t="Tanh"), [1, 2, 1]) == [0, 100, 100]


def test_scratch_is_there_while_a_kernel_runs(make_graph, make_cluster, make_costs) -> None:
    """b needs 500 bytes beside a's 100 and its own 10; they are gone when c makes 300."""
    ops = [
        {"name": "a", "bytes": 100},
        {"name": "b", "bytes": 10, "inputs": ["a"]},
        {"name": "c", "bytes": 300, "inputs": ["b"]},
    ]
    graph, cluster = make_graph(ops), make_cluster()
    found = run(graph, cluster, make_costs(graph, cluster), [1, 1, 1], scratch=np.array([0, 500, 0]))
    assert found.peak.tolist() == [0, 610, 0]


def test_an_output_reuses_an_edge_of_its_own_op_and_size(make_graph) -> None:
    """On random graphs of elementwise ops, each reuse names a read of the output's own op, as large, not a constant."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        ops = [
            {
                "name": f"op{k}",
                "bytes": int(rng.integers(0, 3)),
                "inputs": sorted({f"op{b}" for b in rng.integers(0, k, 2)} if k else ()),
            }
            for k in range(12)
        ]
        types = {op["name"]: str(rng.choice(["AddN", "Const", "MatMul"])) for op in ops}
        graph = typed(make_graph(ops), **types)
        found = footprint(graph)
        for buffer in np.flatnonzero(found.reuses >= 0).tolist():
            read = int(found.reuses[buffer])
            maker, source = int(found.maker[buffer]), int(found.read_buffer[read])
            assert types[f"op{maker}"] == "AddN" and found.read_by[read] == maker
            assert found.size[source] == found.size[buffer] > 0 and types[f"op{found.maker[source]}"] != "Const"
        alike = [
            any(graph.tensor_bytes[s] == graph.tensor_bytes[k] > 0 and types[f"op{s}"] != "Const" for s in
                graph.src[graph.dst == k]) for k in range(12)
        ]  # fmt: skip
        expected = [types[f"op{k}"] == "AddN" and alike[k] for k in range(12)]
        assert (found.reuses[:12] >= 0).tolist() == expected
