"""Fetches of a part of an ordered step: what else the order would run decides whether they are refused."""

from typing import Any

import pytest

from pesto.core.errors import UsageError
from pesto.tf.enforce.sessions import find_needed_ops, find_update
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1


def fetched_behind(kind: str) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """An op `late` of a graph that waits for an op of a kind only since the order says so, and that edge."""
    with tf.Graph().as_default():
        variable = v1.Variable(1.0, use_resource=kind == "resource", name="v")
        before = {
            "constant": lambda: tf.constant(1.0, name="before"),
            "sum": lambda: tf.add(tf.constant(1.0), 2.0, name="before"),
            "placeholder": lambda: v1.placeholder(tf.float32, (), name="before"),
            "reference": lambda: v1.assign(variable, 2.0, name="before"),
            "resource": lambda: variable.assign(2.0, read_value=False, name="before"),
        }[kind]()
        with tf.control_dependencies([before]):
            late = tf.constant(3.0, name="late")
    operation = before if isinstance(before, tf.Operation) else before.op
    return late.op, {"late": (operation.name,)}


@pytest.mark.parametrize("kind", ["constant", "sum"])
def test_ops_that_change_nothing_may_be_dragged_along(kind: str) -> None:
    """The run needs only its own ops then."""
    late, added = fetched_behind(kind)
    assert find_needed_ops([late], (), added) == {"late"}
    assert find_needed_ops([late], (), {}) >= {"late", "before"}


@pytest.mark.parametrize("kind", ["placeholder", "reference", "resource"])
def test_a_fetch_whose_order_would_need_a_feed_or_change_state_is_refused(kind: str) -> None:
    """A placeholder that the run does not feed, and assignments to variables of both kinds."""
    late, added = fetched_behind(kind)
    with pytest.raises(UsageError, match="fetching late runs a part of the ordered step"):
        find_needed_ops([late], (), added)
    if kind == "placeholder":
        assert find_needed_ops([late], {"before:0"}, added) == {"late"}


def test_an_update_reads_the_value_that_it_writes() -> None:
    """v += 1 is one; v = 2, v = its own shape's rank, and an update of the plan's own are none."""
    with tf.Graph().as_default():
        variable = v1.Variable(1.0, use_resource=False, name="v")
        add, fresh = v1.assign_add(variable, 1.0, name="add"), v1.assign(variable, 2.0, name="fresh")
        own = v1.assign(variable, variable.value() * 2.0, name="own")
        rank = v1.assign(variable, tf.cast(tf.rank(variable.value()), tf.float32), name="rank")
    for tensor, updates in ((add, True), (own, True), (fresh, False), (rank, False)):
        found = find_update([tensor.op], (), {"v"})
        assert (found is not None) == updates, tensor.op.name
    assert find_update([add.op], (), {"w"}) is None
    assert find_update([add.op], (), {"v"}, planned={"add"}) is None
