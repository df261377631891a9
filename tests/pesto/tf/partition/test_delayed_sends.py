"""What is sent late: shortly before its use, for whom the reader waits anyhow, and never in a circle."""

from graphlib import TopologicalSorter

import pytest

from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.worker_parts import CLONE, build_worker_parts
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.nodes.needed_nodes import producer  # noqa: E402
from pesto.tf.partition import partitioned  # noqa: E402
from pesto.tf.partition.partitioned import (  # noqa: E402
    AHEAD,
    GAP,
    delay_sends,
    levels,
    partition,
)
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


@pytest.fixture(scope="module")
def long():
    """A step whose first tensor is used again, otherwise cut, after many others."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [64, 64], name="x")
        w, u = (v1.get_variable(name, [64, 64], use_resource=True) for name in "wu")
        first = hidden = tf.tanh(x @ w)
        for _ in range(2 * GAP):
            hidden = tf.tanh(hidden)
        again = tf.linalg.matmul(first, hidden, transpose_a=True) @ u
        for _ in range(GAP):
            again = tf.tanh(again)
        tf.reduce_sum(again @ tf.transpose(first), name="loss")
    captured = sources.capture_v1(graph, ["loss"], source="a long step")
    shaped = shape(captured)[1]
    return captured, shaped, divide(shaped, (2, 2), "exact", Rules(), seconds=60).division


def test_late_is_shortly_before_its_use(long):
    """Who is waited for is of the reader's worker, before its op, and long after what is sent was made."""
    _, shaped, division = long
    parts = build_worker_parts(shaped, division)
    level, before = levels(parts)
    found = delay_sends(parts)
    assert found
    for wait in found:
        after = parts.parts[wait.after]
        assert (after.kind, after.worker) == (CLONE, wait.reader)
        assert parts.parts[wait.part].worker != wait.reader
        uses = reached(parts, wait)
        assert all(wait.after in ancestors(before, use) for use in uses[:1])
        assert AHEAD <= level[uses[0]] - level[wait.after] <= 2 * AHEAD
        assert level[wait.after] - level[wait.part] > GAP // 2


def reached(parts, wait):
    """Clones of the reader that take what is sent, perhaps put together with other blocks."""
    found, at = [], {wait.part}
    for src, dst in zip(parts.src.tolist(), parts.dst.tolist(), strict=True):
        if src in at and parts.parts[dst].worker == wait.reader:
            if parts.parts[dst].kind == CLONE:
                found.append(dst)
            else:
                at.add(dst)
    return sorted(found)


def ancestors(before, part):
    found, stack = set(), [part]
    while stack:
        for p in before[stack.pop()]:
            if p not in found:
                found.add(p)
                stack.append(p)
    return found


def test_graphs_have_no_circle(long, monkeypatch):
    """Also where nearly all that is sent waits, the graph has an order."""
    captured, shaped, division = long
    monkeypatch.setattr(partitioned, "delay_sends", lambda parts: delay_sends(parts, gap=2, ahead=1))
    made = partition(captured.graph_def, shaped, division, captured.fetches)
    assert made.late >= len(delay_sends(made.parts)) > 0
    given = {node.name: {producer(text) for text in node.input} for node in made.graph_def.node}
    assert len(list(TopologicalSorter(given).static_order())) == len(given)


def test_short_steps_send_at_once(long):
    """What is used within the gap does not wait."""
    _, shaped, division = long
    assert delay_sends(build_worker_parts(shaped, division), gap=1000) == ()
