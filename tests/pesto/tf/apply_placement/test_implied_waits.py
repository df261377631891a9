"""Waits for another device that a chain implies are left out, and nothing runs earlier than before."""

from typing import Any

import numpy as np
import pytest

from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()

from pesto.tf.apply_placement.placement import place_with_relays, trace_step  # noqa: E402
from pesto.tf.apply_placement.targets import device_targets  # noqa: E402
from pesto.tf.enforce.edits import apply_edits, compute_function_edits, find_chain_waits  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402


@pytest.mark.parametrize(
    ("waits", "others", "gone"),
    [
        ("abc", "", "ab"),
        ("ab", "d", "ab"),
        ("cd", "", ""),
        ("ad", "b", "a"),
        ("az", "z", ""),
        ("", "b", ""),
    ],
)
def test_the_last_of_each_chain_is_enough(waits: str, others: str, gone: str) -> None:
    """a, b and c follow each other on one processor and d comes first on another; z has no place in a chain."""
    ranks = {"a": (0, 1), "b": (0, 4), "c": (0, 5), "d": (1, 0)}
    if "d" in others:
        ranks["d"] = (0, 9)
    assert find_chain_waits(waits, others, ranks) == list(gone)


def traced() -> Any:
    """A FuncGraph that updates eight variables and gives a number that waits for them, and the variables."""
    weights = [tf.Variable(tf.ones([2, 2]) * k, name=f"w{k}") for k in range(8)]

    @tf.function
    def step(x: Any) -> Any:
        losses, updates = [], []
        for w in weights:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(x @ w))
            updates.append(w.assign_sub(0.1 * tape.gradient(loss, w), read_value=False))
            losses.append(loss)
        with tf.control_dependencies([*updates, *losses]):
            return tf.zeros([], name="total")

    return step.get_concrete_function(tf.TensorSpec([2, 2])).graph, weights


def before(graph: Any) -> dict[str, set[str]]:
    """All that each op waits for, directly or not."""
    found: dict[str, set[str]] = {}
    left = list(graph.get_operations())
    while left:
        later = []
        for op in left:
            near = {other.name for other in (*(t.op for t in op.inputs), *op.control_inputs)}
            if near <= found.keys():
                found[op.name] = near.union(*(found[name] for name in near))
            else:
                later.append(op)
        assert len(later) < len(left)
        left = later
    return found


def controls(graph: Any) -> dict[str, list[str]]:
    """The control inputs of each op, and the control outputs of the function."""
    found = {op.name: sorted(c.name for c in op.control_inputs) for op in graph.get_operations()}
    return found | {"function": [op.name for op in graph.control_outputs]}


def test_a_function_waits_for_all_as_before_by_fewer_edges() -> None:
    """Outputs wait for one op of each chain; what they waited for comes before them all the same; undone, all is."""
    graph, _weights = traced()
    step = trace_step(sources.capture_func_graph(graph, "step"), None)
    plan = api.solve(step.graph, cluster="cpux3", time_limit_s=0, solver="list")
    placement = place_with_relays(plan, step, device_targets(plan, "cpu"))
    assert len(set(placement.device.tolist())) > 1
    old, needed = controls(graph), before(graph)
    ends = set(old["function"]).union(*(needed[end] for end in old["function"]))
    undo = apply_edits(graph, compute_function_edits(placement, step, step.nodes.defs))
    new, reached = controls(graph), before(graph)
    lane = {name: placement.lane[i] for i, name in enumerate(step.graph.names)}
    constants = {op.name for op in graph.get_operations() if op.type == "Const"}  # devices have copies
    assert all(needed[name] <= reached[name] | constants for name in needed)
    assert ends <= set(new["function"]).union(*(reached[end] for end in new["function"]))
    assert len(new["function"]) == len({lane[name] for name in new["function"]}) < len(old["function"])
    chained = {name: lane[name] for name, on in zip(step.graph.names, placement.chained, strict=True) if on}
    far_old, far_new = (
        sum(chained[c] != lane["total"] for c in found["total"] if c in chained) for found in (old, new)
    )
    assert far_new <= 2 < far_old
    undo()
    again = controls(graph)
    assert {name: again[name] for name in old} == old


def test_only_ops_of_a_chain_that_certainly_run_imply_others() -> None:
    """An argument has no place in a chain; nothing waits for a constant itself that other devices have copies of."""
    graph, _weights = traced()
    step = trace_step(sources.capture_func_graph(graph, "step"), None)
    plan = api.solve(step.graph, cluster="cpux3", time_limit_s=0, solver="list")
    arguments = {tensor.op.name for tensor in graph.inputs}
    out = np.isin(step.graph.names, list(arguments))
    placement = place_with_relays(plan, step, device_targets(plan, "cpu"), out)
    ranks = compute_function_edits(placement, step, step.nodes.defs).ranks
    copied = {copy.constant for copy in placement.copies}
    chained = {name for name, on in zip(step.graph.names, placement.chained.tolist(), strict=True) if on}
    assert copied and arguments & set(step.graph.names) and not arguments & chained
    assert set(ranks) == chained - copied
