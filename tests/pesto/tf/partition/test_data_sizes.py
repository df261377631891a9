"""Sizes that depend on the data: a divided step computes what the whole step does, whatever the data leave."""

from dataclasses import replace

import pytest

from pesto.core.errors import InputError, VerificationError
from pesto.split.files.recount import strategy_fault
from pesto.split.files.split_check import verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.files.typed_graph_file import dumps_typed_graph, loads_typed_graph
from pesto.split.op_strategy import OpStrategy, cut_ops
from pesto.split.program import CutGain, Rules
from pesto.split.split_search import divide, divide_partly
from pesto.split.typed_graph import RANK
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.nodes.needed_nodes import BoundedShape, KnownShape  # noqa: E402
from pesto.tf.partition.partition_run import run_parts  # noqa: E402
from pesto.tf.run.runnable import make_runnable  # noqa: E402
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

ROWS, WIDTH, CLASSES = 16, 64, 8


def fed(step, high):
    """The step, fed normal-sized numbers of both signs, and whole numbers up to `high`."""
    values = [
        replace(v, low=0, high=high, specials=()) if "int" in v.dtype else replace(v, low=-1, high=1)
        for v in step.feed_values
    ]
    return replace(step, feed_values=tuple(values))


def captured_step(loss):
    """A step that trains two weights by a loss of (mask, hidden [ROWS, CLASSES], wide [ROWS, WIDTH], weights)."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [ROWS, WIDTH], name="x")
        mask = v1.placeholder(tf.int32, [ROWS], name="mask")
        a = v1.get_variable("a", [WIDTH, WIDTH], use_resource=True)
        b = v1.get_variable("b", [WIDTH, CLASSES], use_resource=True)
        wide = tf.nn.relu(x @ a)
        value = tf.identity(loss(mask, wide @ b, wide, b), name="loss")
        v1.train.GradientDescentOptimizer(0.05).minimize(value, name="train")
    captured = sources.capture_v1(graph, ["loss", "train"], source="a step")
    return captured, shape(captured)[1], fed(make_runnable(captured, resolve_shapes(captured, None)), 3)


def check(shaped, split):
    """What `pesto check` says of it, kept in a file."""
    verify_split(loads_split(dumps_split(shaped, split, time_limit_s=1.0), "a split"), shaped)


def left(mask):
    """The number of rows that a mask leaves."""
    return tf.shape(tf.where(mask > 0))[0]


def mean_over_counted(mask, h, wide, b):
    """A sum over a counted number of rows."""
    return tf.reduce_sum(h**2) / tf.maximum(tf.cast(left(mask), tf.float32), 1.0)


def rows_of_a_mask(mask, h, wide, b):
    """Matmuls of masked rows, whose mean divides by their number."""
    return tf.reduce_mean(tf.square(tf.boolean_mask(h, mask > 0) @ tf.transpose(b) - 1))


def cross_entropy_of_a_mask(mask, h, wide, b):
    """Labels and logits that a mask leaves."""
    labels, logits = tf.boolean_mask(mask, mask > 0), tf.boolean_mask(h, mask > 0)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def number_of_unique(mask, h, wide, b):
    """A value made of how many different numbers there are."""
    return tf.reduce_sum(h) / tf.cast(tf.size(tf.unique(mask)[0]), tf.float32)


def rank_of_squeezed(mask, h, wide, b):
    """A rank that depends on how many rows there are: 0 for one, else 1."""
    rank = tf.rank(tf.squeeze(tf.boolean_mask(h[:, :1], mask > 2)))
    return tf.reduce_sum(h) / (1.0 + tf.cast(rank, tf.float32))


def segments_of_unique(mask, h, wide, b):
    """As many segments as there are different numbers."""
    values, numbers = tf.unique(mask)
    return tf.reduce_mean(tf.square(tf.math.unsorted_segment_sum(h, numbers, tf.size(values))))


def padded_to_all(mask, h, wide, b):
    """Rows of a mask, and zeros for all others: the fewer of the one, the more of the other."""
    zeros = tf.zeros([ROWS - left(mask), CLASSES])
    return tf.reduce_mean(tf.square(tf.concat([tf.boolean_mask(h, mask > 0), zeros], 0) @ tf.transpose(b)))


def reshaped_and_back(mask, h, wide, b):
    """Rows of a mask in another shape, cut along what is known of it."""
    apart = tf.reshape(tf.boolean_mask(wide, mask > 0), [-1, 4, WIDTH // 4])
    return tf.reduce_mean(tf.square(tf.reshape(apart, [-1, WIDTH]) @ b))


def top_of_a_mask(mask, h, wide, b):
    """The two largest of what a mask leaves, or fewer."""
    found = tf.boolean_mask(tf.reduce_sum(h, 1), mask > 0)
    return tf.reduce_sum(tf.math.top_k(found, k=tf.minimum(2, tf.size(found)))[0])


def partitioned_rows(mask, h, wide, b):
    """Rows in two tensors by a mask, without a gradient of their own."""
    parts = tf.dynamic_partition(tf.stop_gradient(h), tf.cast(mask > 0, tf.int32), 2)
    return tf.reduce_sum(h**2) / tf.cast(1 + tf.shape(parts[1])[0], tf.float32)


LOSSES = [
    mean_over_counted, rows_of_a_mask, cross_entropy_of_a_mask, number_of_unique, rank_of_squeezed, segments_of_unique,
    padded_to_all, reshaped_and_back, top_of_a_mask, partitioned_rows,
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_a_divided_step_has_the_sizes_of_the_data(loss):
    """Losses and variables are the whole step's; ops are cut all the same, and the check has no objection."""
    captured, shaped, step = captured_step(loss)
    found = divide(shaped, (2,), "exact", Rules(), seconds=60)
    assert any(signature.bounded for signature in shaped.signatures)
    assert sum(cut_ops(found.division.strategies)) >= 10
    check(shaped, found)
    ran = run_parts(captured, shaped, found.division, step, steps=4)
    assert ran.as_whole and ran.finite and ran.losses, ran


def test_a_partial_split_has_the_sizes_of_the_data():
    """The same where some ops are cut and the rest is whole on one device."""
    captured, shaped, step = captured_step(reshaped_and_back)
    found = divide_partly(shaped, 2, CutGain(worth=[1 << 30] * shaped.ops), seconds=60)
    assert found is not None and any(cut_ops(found.division.strategies))
    ran = run_parts(captured, shaped, found.division, step, steps=4)
    assert ran.as_whole and ran.losses, ran


def test_masked_rows_are_cut_along_what_is_known_of_them():
    """The rows of a mask are never cut, their elements are."""
    _, shaped, _ = captured_step(reshaped_and_back)
    division = divide(shaped, (2,), "exact", Rules(), seconds=60).division
    masked = [op for op in range(shaped.ops) if shaped.signature(op).bounded_output(0) == (0,)]
    lies = {division.kept[op][0][0] for op in masked}
    assert 0 not in lies and lies & {1, 2}


def test_no_bound_is_a_value():
    """Sizes made of a search are not constants; those of what it searches are."""
    captured, shaped, _ = captured_step(mean_over_counted)
    nodes = resolve_shapes(captured, None)
    where = next(i for i, node in enumerate(nodes.defs) if node.op == "Where")
    assert nodes.size(where, 0) == BoundedShape((ROWS, 1), (-1, 1))
    assert nodes.size(*nodes.inputs[where][0]) == KnownShape((ROWS,))
    assert nodes.shapes[where] == ((-1, 1),) and nodes.upper_bound(where, 0) == (ROWS, 1)
    count = next(s for s in shaped.signatures if s.type == "StridedSlice" and s.outputs[0][0] == ())
    assert count.inputs[0].value is None and not shaped.signature(where).inputs[0].bounded


def test_a_rank_that_depends_on_the_data_is_no_value():
    """It is the rank of what TensorFlow makes; the bound has one dimension."""
    _, shaped, _ = captured_step(rank_of_squeezed)
    (rank,) = [s for s in shaped.signatures if s.type == "Rank"]
    assert rank.inputs[0].bounded == (RANK,) and not rank.reads_shapes_alone


def test_bounds_are_kept_in_files():
    """A step read from its file is divided as the step itself; a bound of no dimension is refused."""
    _, shaped, _ = captured_step(rows_of_a_mask)
    data = dumps_typed_graph(shaped)
    again = loads_typed_graph(data, "a file")
    assert again.signatures == shaped.signatures and dumps_typed_graph(again) == data
    with pytest.raises(InputError, match="no dimensions of it in ascending order"):
        loads_typed_graph(data.replace(b'"bounded":[0]', b'"bounded":[7]', 1), "a file")
    with pytest.raises(InputError, match="is not what input"):
        loads_typed_graph(data.replace(b'"bounded":[0]', b'"bounded":[]', 1), "a file")


def test_a_split_along_a_size_of_the_data_is_refused():
    """The check says so of an op, and of a tensor that lies so."""
    _, shaped, _ = captured_step(reshaped_and_back)
    found = divide(shaped, (2,), "exact", Rules(), seconds=60)
    division = found.division
    op = next(op for op in range(shaped.ops) if shaped.signature(op).bounded_output(0) == (0,))
    kept = list(division.kept)
    kept[op] = ((0,), *kept[op][1:])
    with pytest.raises(VerificationError, match="along a dimension whose extent"):
        check(shaped, replace(found, division=replace(division, kept=tuple(kept))))
    square = next(
        op
        for op in range(shaped.ops)
        if shaped.signature(op).type in ("Square", "Sub", "Mul") and shaped.signature(op).bounded_output(0) == (0,)
    )
    signature = shaped.signature(square)
    way = OpStrategy(("i0",), ((0,),) * len(signature.inputs), ((0,),))
    assert "extent depends on the data" in strategy_fault(signature, way, (2,), once=False)


def test_a_tensor_of_no_elements_is_brought_in_parts():
    """Zeros of no rows, which a concatenation is cut with."""

    def loss(mask, h, wide, b):
        return tf.reduce_mean(tf.concat([wide, tf.stop_gradient(wide[:0])], 0) @ b)

    captured, shaped, step = captured_step(loss)
    division = divide(shaped, (2,), "exact", Rules(), seconds=60).division
    assert run_parts(captured, shaped, division, step, steps=2).as_whole
