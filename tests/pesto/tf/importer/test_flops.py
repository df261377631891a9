"""Operations and bytes of single ops, by formula."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def imported(make: Callable[[], Any], fetch: str) -> Graph:
    graph = tf.Graph()
    with graph.as_default():
        make()
    return sources.from_v1(graph, [fetch])


def of_type(graph: Graph, kind: str) -> int:
    found = [i for i in range(graph.ops) if graph.types[graph.type_of[i]] == kind]
    assert len(found) == 1, (kind, graph.types)
    return found[0]


def feed(*shape: int, dtype: Any = None) -> Any:
    return v1.placeholder(dtype or tf.float32, shape)


@pytest.mark.parametrize(
    ("make", "kind", "flops"),
    [
        # Two per multiply-add: 2 * rows * columns * depth.
        (lambda: tf.matmul(feed(4, 5), feed(5, 6)), "MatMul", 2 * 4 * 6 * 5),
        (lambda: tf.matmul(feed(5, 4), feed(5, 6), transpose_a=True), "MatMul", 2 * 4 * 6 * 5),
        (lambda: tf.matmul(feed(4, 5), feed(6, 5), transpose_b=True), "MatMul", 2 * 4 * 6 * 5),
        (lambda: tf.matmul(feed(3, 4, 5), feed(3, 5, 6)), "BatchMatMulV2", 2 * 3 * 4 * 6 * 5),
        (lambda: tf.matmul(feed(3, 5, 4), feed(3, 5, 6), transpose_a=True), "BatchMatMulV2", 2 * 3 * 4 * 6 * 5),
        # Every label once: b * q * h * d * k.
        (lambda: tf.einsum("bqd,hdk->bhqk", feed(2, 3, 4), feed(5, 4, 6)), "Einsum", 2 * 2 * 3 * 4 * 5 * 6),
        (lambda: tf.einsum("...ij,jk->...ik", feed(7, 2, 3, 4), feed(4, 6)), "Einsum", 2 * 7 * 2 * 3 * 4 * 6),
        # Output 2x8x8x5, each of 3*3*4 multiply-adds.
        (lambda: tf.nn.conv2d(feed(2, 8, 8, 4), feed(3, 3, 4, 5), 1, "SAME"), "Conv2D", 2 * (2 * 8 * 8 * 5) * 36),
        (lambda: tf.nn.conv2d(feed(2, 8, 8, 4), feed(3, 3, 4, 5), 2, "VALID"), "Conv2D", 2 * (2 * 3 * 3 * 5) * 36),
        # Two groups: each output sees half of the 4 channels.
        (lambda: tf.nn.conv2d(feed(2, 8, 8, 4), feed(3, 3, 2, 6), 1, "SAME"), "Conv2D", 2 * (2 * 8 * 8 * 6) * 18),
        (
            lambda: tf.nn.conv3d(feed(2, 4, 4, 4, 3), feed(2, 2, 2, 3, 5), [1] * 5, "SAME"),
            "Conv3D",
            2 * (2 * 64 * 5) * 24,
        ),
        # Depthwise: 3*3 multiply-adds for each of 4 * 2 output channels.
        (
            lambda: tf.nn.depthwise_conv2d(feed(2, 8, 8, 4), feed(3, 3, 4, 2), [1] * 4, "SAME"),
            "DepthwiseConv2dNative",
            2 * (2 * 8 * 8 * 8) * 9,
        ),
        (lambda: tf.nn.relu(feed(4, 5)), "Relu", 20),
        (lambda: tf.reduce_sum(feed(4, 5)), "Sum", 20),
        (lambda: feed(4, 5) + feed(5), "AddV2", 20),
        (lambda: tf.transpose(feed(4, 5)), "Transpose", 0),
        (lambda: tf.nn.max_pool2d(feed(2, 8, 8, 4), 2, 2, "VALID"), "MaxPool", 2 * 4 * 4 * 4 * 4),
    ],
)  # fmt: skip
def test_forward_ops_count_their_formula(make: Callable[[], Any], kind: str, flops: int) -> None:
    """Exact for products and convolutions, one per element for the rest, none for moves."""
    graph = imported(lambda: tf.identity(make(), name="y"), "y")
    assert graph.flops[of_type(graph, kind)] == flops


@pytest.mark.parametrize(
    ("layer", "filters", "forward", "towards"),
    [
        ("conv2d", (3, 3, 4, 5), "Conv2D", ("Conv2DBackpropInput", "Conv2DBackpropFilter")),
        (
            "depthwise_conv2d",
            (3, 3, 4, 2),
            "DepthwiseConv2dNative",
            ("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
        ),
        ("conv3d", (2, 3, 3, 4, 5), "Conv3D", ("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")),
    ],
)  # fmt: skip
def test_each_gradient_of_a_convolution_costs_the_forward_pass(
    layer: str, filters: tuple[int, ...], forward: str, towards: tuple[str, str]
) -> None:
    """Both gradients do one multiply-add for each one of the forward pass."""

    def make() -> None:
        space = len(filters) - 2
        x, w = feed(2, *[8] * space, 4), feed(*filters)
        y = getattr(tf.nn, layer)(x, w, [1, *[2] * space, 1], "SAME")
        tf.group(*v1.gradients(tf.square(y), [x, w]), name="y")

    graph = imported(make, "y")
    counts = [graph.flops[of_type(graph, kind)] for kind in (forward, *towards)]
    assert counts[0] > 0 and counts == [counts[0]] * 3


def test_lstm_blocks_count_their_products() -> None:
    """Block LSTM over 7 steps: 2 * 7 * batch 3 * (4 + 5) * 4 * 5; its gradient twice that."""

    def make() -> None:
        x, state, w, b = feed(7, 3, 4), feed(3, 5), feed(9, 20), feed(20)
        p = feed(5)
        y = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant(7, tf.int64), x=x, cs_prev=state, h_prev=state, w=w, wci=p, wcf=p, wco=p, b=b
        )
        rest = {"wci": p, "wcf": p, "wco": p, "b": b, "i": y.i, "cs": y.cs, "f": y.f, "o": y.o, "ci": y.ci}
        grad = tf.raw_ops.BlockLSTMGrad(
            seq_len_max=tf.constant(7, tf.int64), x=x, cs_prev=state, h_prev=state, w=w, co=y.co, h=y.h,
            cs_grad=y.cs, h_grad=y.h, use_peephole=False, **rest,
        )  # fmt: skip
        tf.identity(grad.x_grad, name="y")

    graph = imported(make, "y")
    forward = 2 * 7 * 3 * 9 * 20
    assert graph.flops[of_type(graph, "BlockLSTM")] == forward
    assert graph.flops[of_type(graph, "BlockLSTMGrad")] == 2 * forward


def test_bytes_are_inputs_read_and_outputs_written() -> None:
    """x + y of 5 floats each: 20 in, 20 in, 20 out; x * x fetches x once: 20 in, 20 out."""

    def make() -> None:
        x = feed(5)
        tf.multiply(tf.add(x, feed(5), name="a"), 1.0)
        tf.group(tf.add(x, feed(5), name="two"), tf.multiply(x, x, name="same"), name="y")

    graph = imported(make, "y")
    assert graph.moved_bytes[graph.names.index("two")] == 60
    assert graph.moved_bytes[graph.names.index("same")] == 40


def test_bookkeeping_starts_no_kernel_and_moves_nothing() -> None:
    """Handles, reads, constants, reshapes, shapes, and int32 arithmetic that GPUs leave to the host."""

    def make() -> None:
        w = v1.get_variable("w", [6], use_resource=True)
        x = tf.reshape(w, [2, 3], name="view")
        rows = tf.shape(x, name="shape")[0]
        tf.multiply(rows, 3, name="count")
        tf.square(tf.identity(x, name="same"), name="square")
        tf.group(v1.get_default_graph().get_operation_by_name("count"), tf.square(x, name="work"), name="y")

    graph = imported(make, "y")
    launching = {name for name, launches in zip(graph.names, graph.launches, strict=True) if launches}
    assert launching == {"work"}
    assert graph.moved_bytes[~graph.launches].sum() == graph.flops[~graph.launches].sum() == 0


def test_gathers_and_scatters_move_the_rows_they_touch() -> None:
    """4 rows of 8 floats from a table of 1 000: rows read and written, and the ids; the table stays where it is."""

    def make() -> None:
        table = v1.get_variable("table", [1000, 8], use_resource=True)
        ids = feed(4, dtype=tf.int32)
        rows = tf.raw_ops.ResourceGather(resource=table.handle, indices=ids, dtype=tf.float32, name="gather")
        put = tf.raw_ops.ResourceScatterAdd(resource=table.handle, indices=ids, updates=rows, name="scatter")
        tf.group(put, tf.gather(feed(1000, 8), ids, name="plain"), name="y")

    graph = imported(make, "y")
    rows, ids = 4 * 8 * 4, 4 * 4
    moved = dict(zip(graph.names, graph.moved_bytes.tolist(), strict=True))
    assert moved["gather"] == moved["plain"] == 2 * rows + ids
    # The update reads the new rows and the old ones, and writes the sums.
    assert moved["scatter"] == 3 * rows + ids


@pytest.mark.parametrize("resource", [True, False])
def test_adam_reads_and_writes_its_three_variables(resource: bool) -> None:
    """100 floats in variable and both slots, each read and written, and one gradient; the scalars are 4 bytes each."""

    def make() -> None:
        w = v1.get_variable("w", [100], use_resource=resource)
        v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)), name="y")

    graph = imported(make, "y")
    update = of_type(graph, "ResourceApplyAdam" if resource else "ApplyAdam")
    # beta1, beta2 and their powers, rate and epsilon: 6 scalars.
    assert graph.moved_bytes[update] == 6 * 400 + 400 + 6 * 4
    assert graph.flops[update] == 4 * 300


def test_sparse_updates_do_not_pay_for_the_table() -> None:
    """Adagrad on 4 of 1 000 rows of 8: gradient, ids, rate, and both tables' rows read and written."""

    def make() -> None:
        table, slot = (v1.get_variable(name, [1000, 8], use_resource=True) for name in ("table", "slot"))
        update = tf.raw_ops.ResourceSparseApplyAdagrad(
            var=table.handle, accum=slot.handle, lr=tf.constant(0.1), grad=feed(4, 8), indices=feed(4, dtype=tf.int32)
        )
        tf.group(update, name="y")

    graph = imported(make, "y")
    rows = 4 * 8 * 4
    assert graph.moved_bytes[of_type(graph, "ResourceSparseApplyAdagrad")] == rows + 16 + 4 + 2 * 2 * rows


def test_work_of_a_mixed_graph_is_finite_and_whole() -> None:
    """Every count is a finite number >= 0, in a graph of many kinds of op."""

    def make() -> None:
        x = feed(2, 8, 8, 3)
        y = tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), feed(3, 3, 3, 4), 1, "VALID")
        y = tf.nn.softmax(tf.reshape(tf.nn.avg_pool2d(y, 2, 2, "SAME"), [2, -1]))
        tf.concat([tf.argsort(y)[:, :2], tf.cast(tf.math.top_k(y, 2).indices, tf.int32)], 0, name="y")

    graph = imported(make, "y")
    assert np.isfinite(graph.flops).all() and (graph.flops >= 0).all() and (graph.moved_bytes >= 0).all()
    assert graph.flops.max() == 2 * (2 * 8 * 8 * 4) * 27
