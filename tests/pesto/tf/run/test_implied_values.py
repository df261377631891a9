"""Ranges of whole numbers that a step's ops imply for its feeds, and runs of such steps with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pesto.tf.feed_values import FeedValues
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.run.runnable import CapturedRunnable, make_runnable  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

ROWS, WIDTH, CLASSES = 40, 6, 5
TABLE = tf.Variable(tf.ones([ROWS, WIDTH]))
HEAD = tf.Variable(tf.ones([WIDTH, CLASSES]))
Case = tuple[Callable[..., Any], tuple[Any, ...], list[tuple[float, float] | None]]


def spec(shape: list[int], dtype: Any = tf.int32) -> Any:
    return tf.TensorSpec(shape, dtype)


def step(function: Callable[..., Any], *specs: Any) -> CapturedRunnable:
    """A step that trains with the loss that `function` gives, with values for its feeds."""

    def train(*batch: Any) -> Any:
        loss = function(*batch)
        TABLE.assign_sub(TABLE * loss)
        HEAD.assign_sub(HEAD * loss)
        return loss

    captured = sources.capture_function(tf.function(train), *specs)
    return make_runnable(captured, resolve_shapes(captured, None))


def mean_of(ids: Any) -> Any:
    return tf.reduce_mean(tf.nn.embedding_lookup(TABLE, ids))


def logits(rows: int) -> Any:
    return tf.tile(HEAD[:1] * TABLE[0, 0], [rows, 1])


def cross_entropy(labels: Any, rows: int = 4) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits(rows)))


def looped(ids: Any) -> Any:
    total = tf.zeros([WIDTH])
    for t in tf.range(3):
        total += tf.reduce_sum(tf.gather(TABLE, ids[:, t] + 1), 0)
    return tf.reduce_mean(total)


def branched(ids: Any, use: Any) -> Any:
    return tf.cond(use, lambda: mean_of(ids), lambda: tf.reduce_mean(TABLE))


def counted_down(ids: Any) -> Any:
    """The fed numbers are shifted, divided and packed on their way."""
    return mean_of(tf.stack([ids - 3, ids // 2], 1))


def placed(columns: Any) -> Any:
    picked = tf.gather_nd(logits(4), tf.stack([tf.range(4), columns], 1))
    return tf.reduce_mean(picked)


def lengths(n: Any) -> Any:
    return tf.reduce_mean(tf.sequence_mask(n, 7, dtype=tf.float32)) * TABLE[0, 0]


def stepped(n: Any) -> Any:
    """A recurrent layer that keeps its state behind the end of each example."""
    state = tf.zeros([4, WIDTH])
    for t in tf.range(6):
        state = tf.where((t >= n)[:, None], state, tf.tanh(state + TABLE[0]))
    return tf.reduce_mean(state)


def reversed_rows(n: Any) -> Any:
    return tf.reduce_mean(tf.reverse_sequence(tf.ones([4, 9]) * TABLE[0, 0], n, seq_axis=1))


def counts_of(ids: Any) -> Any:
    return tf.reduce_mean(tf.math.unsorted_segment_sum(logits(4), ids, 3))


CASES: dict[str, Case] = {
    "rows of a table": (mean_of, (spec([4, 3]),), [(0, ROWS - 1)]),
    "classes": (cross_entropy, (spec([4], tf.int64),), [(0, CLASSES - 1)]),
    "behind casts and shapes": (
        lambda y: cross_entropy(tf.cast(tf.squeeze(tf.expand_dims(y, 0)[:, :, 0], 0), tf.int64)),
        (spec([4, 1], tf.float32),),
        [(0, CLASSES - 1)],
    ),
    "the smallest of two": (lambda i: mean_of(i) + cross_entropy(i), (spec([4]),), [(0, CLASSES - 1)]),
    "depth": (lambda i: tf.reduce_mean(tf.one_hot(i, 9) * TABLE[0, 0]), (spec([4]),), [(0, 8)]),
    "offsets into one table": (
        lambda i: mean_of(i + tf.constant([0, 10, 20])), (spec([4, 3]),), [(0, ROWS - 1 - 20)]
    ),
    "raised": (lambda i: mean_of(tf.nn.relu(i)), (spec([4]),), [(0, ROWS - 1)]),
    "negative indices moved up": (
        lambda i: mean_of(tf.where(i < 0, i + ROWS, i)), (spec([4]),), [(0, ROWS - 1)]
    ),
    "modulo": (lambda i: mean_of(i % ROWS), (spec([4]),), [(0, 4 * ROWS - 1)]),
    "shifted and divided": (counted_down, (spec([4]),), [(3, ROWS + 2)]),
    "in a loop": (looped, (spec([4, 3]),), [(-1, ROWS - 2)]),
    "in a branch": (branched, (spec([4]), spec([], tf.bool)), [(0, ROWS - 1), None]),
    "a column of indices": (placed, (spec([4]),), [(0, CLASSES - 1)]),
    "lengths of a mask": (lengths, (spec([4]),), [(1, 7)]),
    "lengths that a loop compares": (stepped, (spec([4]),), [(1, 6)]),
    "lengths": (reversed_rows, (spec([4], tf.int64),), [(1, 9)]),
    "segments": (counts_of, (spec([4]),), [(0, 2)]),
    "a mask": (lambda m: tf.reduce_mean(tf.cast(m > 0, tf.float32)) * TABLE[0, 0], (spec([4]),), [(0, 1)]),
    "a mask as truth": (
        lambda m: tf.reduce_mean(tf.where(tf.cast(m, tf.bool), 1.0, 2.0)) * TABLE[0, 0], (spec([4]),), [(0, 1)]
    ),
    "compared with the best class": (
        lambda y: tf.reduce_mean(tf.cast(tf.equal(y, tf.argmax(logits(4), -1)), tf.float32)) * TABLE[0, 0],
        (spec([4], tf.int64),),
        [(0, CLASSES - 1)],
    ),
    "nothing": (lambda i: tf.cast(tf.reduce_sum(i), tf.float32) * TABLE[0, 0], (spec([4]),), [(0, 1)]),
    "pixels": (lambda i: tf.reduce_mean(tf.cast(i, tf.float32)) * TABLE[0, 0], (spec([4], tf.uint8),), [(0, 255)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_whole_numbers_have_the_range_that_the_ops_imply(case: str) -> None:
    """The range by hand; every step runs with what is drawn, and the ends of the range are drawn."""
    function, specs, wanted = CASES[case]
    made = step(function, *specs)
    for values, ends in zip(made.feed_values, wanted, strict=True):
        assert ends is None or (values.whole and (values.low, values.high) == ends), str(values)
        assert ends is None or values.why
    with v1.Session(graph=made.graph) as session:
        session.run(made.graph.get_operation_by_name(made.init))
        rng, fetched = np.random.default_rng(0), [made.graph.get_operation_by_name(name) for name in made.fetches]
        for _ in range(20):
            session.run(fetched, made.feed(rng))
    for values in made.feed_values:
        drawn = {v for _ in range(400) for v in np.ravel(values.draw(rng)).tolist()}
        assert values.dtype == "bool" or {values.low, values.high} <= drawn or values.high - values.low > 200
        assert len(drawn) > 1


def test_numbers_that_ops_compare_with_are_drawn_too() -> None:
    """Padding in tokens, labels that are left out though they are below every class, and steps of reals to mask."""

    def masked(tokens: Any, labels: Any, x: Any) -> Any:
        kept = tf.cast(labels != -100, tf.float32) * tf.cast(tf.not_equal(tokens, 0), tf.float32)
        rows = tf.reduce_any(tf.not_equal(x, 0.5), axis=-1)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.maximum(labels, 0), logits=logits(4))
        return tf.reduce_mean(loss * kept) + mean_of(tokens) + tf.reduce_mean(tf.cast(rows, tf.float32))

    made = step(masked, spec([4]), spec([4]), spec([4, 3, 2], tf.float32))
    tokens, labels, x = made.feed_values
    assert (tokens.low, tokens.high, tokens.specials) == (0, ROWS - 1, (0,))
    assert (labels.low, labels.high, labels.specials) == (0, CLASSES - 1, (-100,))
    rng = np.random.default_rng(0)
    drawn = np.concatenate([labels.draw(rng) for _ in range(100)])
    assert {-100, 0, CLASSES - 1} <= set(drawn.tolist()) and drawn.max() == CLASSES - 1
    rows = np.concatenate([x.draw(rng) for _ in range(100)]).reshape(-1, 2)
    masked_rows = (rows == 0.5).all(axis=1).mean()
    assert 0.1 < masked_rows < 0.5 and not x.whole


def test_ids_that_a_v1_loop_and_a_reference_read() -> None:
    """Loops of v1 are ops of the graph; a table may be a reference."""
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int64, [4, 3], name="ids")
        labels = v1.placeholder(tf.int32, [4], name="labels")
        table = v1.get_variable("table", [ROWS, CLASSES], use_resource=False)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=labels, logits=tf.reduce_sum(tf.gather(table, ids), 1)
            )
        )
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    captured = sources.capture_v1(graph, ["train"])
    found = {
        values.name: (values.low, values.high)
        for values in make_runnable(captured, resolve_shapes(captured, None)).feed_values
    }
    assert found == {"ids": (0, ROWS - 1), "labels": (0, CLASSES - 1)}


def test_indices_of_a_sparse_tensor_ascend_and_differ() -> None:
    """What TensorFlow asks of them; as many different rows as the shape has room for."""
    values = FeedValues(name="i", shape=(6, 2), dtype="int64", low=0, high=3, whole=True, distinct=True)
    for seed in range(20):
        rows = [tuple(row) for row in values.draw(np.random.default_rng(seed)).tolist()]
        assert rows == sorted(set(rows)) and all(0 <= k <= 3 for row in rows for k in row)
    one = FeedValues(name="i", shape=(4,), dtype="int64", low=0, high=3, whole=True, distinct=True)
    assert one.draw(np.random.default_rng(0)).tolist() == [0, 1, 2, 3]
    ids = FeedValues(name="i", shape=(9,), dtype="int32", low=0, high=5, whole=True, ordered=True)
    assert (np.diff(ids.draw(np.random.default_rng(1))) >= 0).all()


def test_other_types_are_random_too() -> None:
    """Truths, complex numbers and texts differ from entry to entry; equal seeds draw equal values."""
    for dtype in ("bool", "complex64", "object", "float32"):
        values = FeedValues(name="x", shape=(64,), dtype=dtype)
        one, two = (values.draw(np.random.default_rng(3)) for _ in range(2))
        assert one.dtype == dtype and len(set(one.tolist())) > 1
        assert one.tolist() == two.tolist()
    assert all(
        text.isdigit() for text in FeedValues(name="x", shape=(9,), dtype="object").draw(np.random.default_rng())
    )


def test_variables_of_one_shape_begin_with_different_values() -> None:
    """Else two that were exchanged would train alike."""
    graph = tf.Graph()
    with graph.as_default():
        w, u = (v1.get_variable(name, [3, 3], use_resource=True) for name in "wu")
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean((w - u) ** 2), name="train")
    captured = sources.capture_v1(graph, ["train"])
    made = make_runnable(captured, resolve_shapes(captured, None))
    with made.graph.as_default(), v1.Session() as session:
        names = [op.name for op in made.graph.get_operations() if op.type == "VarHandleOp"]
        handles = [made.graph.get_tensor_by_name(f"{name}:0") for name in names]
        read = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) for handle in handles]
        session.run(made.graph.get_operation_by_name(made.init))
        one, two = session.run(read)
    assert len(names) == 2 and not np.array_equal(one, two)
