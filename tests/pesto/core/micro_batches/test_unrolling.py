"""The graph of several micro-batches: copies, sums and their order."""

import numpy as np
import pytest
from training_steps import BACKWARD, FORWARD, SOURCE, training_step

from pesto.core.errors import UsageError
from pesto.core.micro_batches import MOST_OPS, unroll
from pesto.core.step_parts import step_parts


def edges(graph):
    """Names of tail and head of each data edge, with the carried bytes."""
    rows = zip(graph.src.tolist(), graph.dst.tolist(), graph.tensor_bytes[graph.tensor].tolist(), strict=True)
    return sorted((graph.names[a], graph.names[b], size) for a, b, size in rows)


@pytest.mark.parametrize("seed", range(4))
def test_one_micro_batch_is_the_step(make_graph, seed):
    """Nothing is added, nothing lost."""
    graph = make_graph(training_step(seed, momentum=True, clipped=True).ops)
    assert unroll(graph, step_parts(graph), 1).graph.fingerprint() == graph.fingerprint()


@pytest.mark.parametrize("batches", [2, 3, 5])
def test_copies_and_sums(make_graph, batches):
    """Each batch reads its own copies and what there is once; the update reads the last sum, the sums in order."""
    step = training_step(3, momentum=True)
    graph = make_graph(step.ops)
    found = unroll(graph, step_parts(graph), batches)
    many = {name for name, kind in step.kind.items() if kind in (SOURCE, FORWARD, BACKWARD)}
    expected = []
    for tail, head, size in edges(graph):
        if head in many:
            tails = [f"{tail}/batch{b}" if tail in many else tail for b in range(batches)]
            expected += [(name, f"{head}/batch{b}", size) for b, name in enumerate(tails)]
        else:
            expected.append((f"{tail}/sum0.{batches - 1}" if tail in many else tail, head, size))
    for k in range(6):
        for b in range(1, batches):
            before = f"dw{k}/batch0" if b == 1 else f"dw{k}/sum0.{b - 1}"
            expected += [(name, f"dw{k}/sum0.{b}", 1000 + 8 * k) for name in (before, f"dw{k}/batch{b}")]
    assert edges(found.graph) == sorted(expected)
    assert found.graph.ops == len(many) * batches + graph.ops - len(many) + 6 * (batches - 1)
    sums = found.sums
    assert (found.graph.moved_bytes[sums] == 3 * graph.tensor_bytes[found.op[sums]]).all()
    assert [found.graph.names[at] for at in np.flatnonzero(sums)[: batches - 1]][-1].endswith(f".{batches - 1}")


def test_rows_are_put_behind_each_other(make_graph):
    """All batches' rows are one tensor, as large as all of them."""
    ops = training_step(0, layers=2).ops
    update = next(op for op in ops if op["name"] == "u0")
    rows = {"name": "rows", "inputs": ["x"], "bytes": 40}
    graph = make_graph([*ops[:-2], rows, {**update, "inputs": ["w0", "rows"]}, ops[-1]])
    found = unroll(graph, step_parts(graph), 3).graph
    into = [(a, size) for a, b, size in edges(found) if b == "rows/sum0.2"]
    assert into == [(f"rows/batch{b}", 40) for b in range(3)]
    assert ("rows/sum0.2", "u0", 120) in edges(found)


def test_waits_are_copied(make_graph):
    """Of one batch for the same; of an update for all batches."""
    ops = training_step(2, layers=2).ops
    last = {**ops[-1], "control": ["f0"]}
    other = [{**op, "control": ["f0"]} if op["name"] == "dw1" else op for op in ops[:-1]]
    found = unroll(graph := make_graph([*other, last]), step_parts(graph), 2).graph
    waits = zip(found.control_src.tolist(), found.control_dst.tolist(), strict=True)
    names = sorted((found.names[a], found.names[b]) for a, b in waits)
    assert names == [("f0/batch0", "dw1/batch0"), ("f0/batch0", "u1"), ("f0/batch1", "dw1/batch1"), ("f0/batch1", "u1")]


@pytest.mark.parametrize(("batches", "told"), [(0, "give 1 or more"), (MOST_OPS, "or fewer")])
def test_too_few_and_too_many_are_refused(make_graph, batches, told):
    """With a number that works."""
    graph = make_graph(training_step(0).ops)
    with pytest.raises(UsageError, match=told):
        unroll(graph, step_parts(graph), batches)
