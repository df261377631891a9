"""Forms and sizes of kernels, from TensorFlow's ops: they multiply to the flops that formulas give."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pesto.core.costs.kernel_times import gpu_op_times
from pesto.core.costs.presets import preset
from pesto.core.graph import (
    CONV,
    CONV_FILTER,
    CONV_INPUT,
    DEPTHWISE,
    DEPTHWISE_FILTER,
    DEPTHWISE_INPUT,
    LOOP,
    MATMUL,
    PASSES,
    Graph,
)
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def imported(make: Callable[[], Any]) -> tuple[Graph, int]:
    """The graph of what `make` gives, and its last op."""
    graph = tf.Graph()
    with graph.as_default():
        made = make()
    found = sources.from_v1(graph, [made.op.name])
    return found, found.names.index(made.op.name)


def feed(*shape: int, dtype: Any = None) -> Any:
    return v1.placeholder(dtype or tf.float32, shape)


def gradient(make: Callable[[Any, Any], Any], image: Any, kernel: Any, of: int) -> Any:
    """The gradient of a convolution towards its image (0) or its filter (1)."""
    return tf.gradients(make(image, kernel), [image, kernel])[of]


def conv2d(stride: int, layout: str = "NHWC") -> Callable[[Any, Any], Any]:
    return lambda x, w: tf.nn.conv2d(x, w, stride, "SAME", data_format=layout)


def depthwise(x: Any, w: Any) -> Any:
    return tf.nn.depthwise_conv2d(x, w, [1, 2, 2, 1], "SAME")


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (lambda: tf.matmul(feed(4, 5), feed(5, 6)), [MATMUL, 4, 6, 5, 1, 0, 0]),
        (lambda: tf.matmul(feed(5, 4), feed(5, 6), transpose_a=True), [MATMUL, 4, 6, 5, 1, 1, 0]),
        (lambda: tf.matmul(feed(4, 5), feed(6, 5), transpose_b=True), [MATMUL, 4, 6, 5, 1, 0, 1]),
        (lambda: tf.matmul(feed(3, 2, 4, 5), feed(3, 2, 6, 5), adjoint_b=True), [MATMUL, 4, 6, 5, 6, 0, 1]),
        (lambda: tf.einsum("bqd,hdk->bhqk", feed(2, 3, 4), feed(5, 4, 6)), [MATMUL, 6, 30, 4, 1, 0, 0]),
        (lambda: tf.einsum("bqhd,bkhd->bhqk", feed(2, 3, 5, 4), feed(2, 7, 5, 4)), [MATMUL, 3, 7, 4, 10, 0, 0]),
        (lambda: tf.einsum("...ij,jk->...ik", feed(7, 2, 3, 4), feed(4, 6)), [MATMUL, 3, 6, 4, 14, 0, 0]),
        (lambda: conv2d(2)(feed(2, 9, 8, 4), feed(3, 1, 4, 5)), [CONV, 2, 4, 9, 8, 5, 3, 1, 2, 2, 5, 4]),
        (lambda: conv2d(1, "NCHW")(feed(2, 4, 9, 8), feed(3, 3, 4, 5)), [CONV, 2, 4, 9, 8, 5, 3, 3, 1, 1, 9, 8]),
        # Two groups: a filter of half of the channels.
        (lambda: conv2d(1)(feed(2, 8, 8, 4), feed(3, 3, 2, 6)), [CONV, 2, 2, 8, 8, 6, 3, 3, 1, 1, 8, 8]),
        (
            lambda: gradient(conv2d(2), feed(2, 8, 8, 4), feed(3, 3, 4, 5), 0),
            [CONV_INPUT, 2, 4, 8, 8, 5, 3, 3, 2, 2, 4, 4],
        ),
        (
            lambda: gradient(conv2d(1), feed(2, 8, 8, 4), feed(1, 1, 4, 5), 1),
            [CONV_FILTER, 2, 4, 8, 8, 5, 1, 1, 1, 1, 8, 8],
        ),
        # Of a volume the output's depth counts as batch, the filter's as channels.
        (
            lambda: tf.nn.conv3d(feed(2, 6, 8, 9, 3), feed(2, 3, 3, 3, 5), [1] * 5, "SAME"),
            [CONV, 12, 6, 8, 9, 5, 3, 3, 1, 1, 8, 9],
        ),
        (lambda: depthwise(feed(2, 8, 8, 4), feed(3, 3, 4, 2)), [DEPTHWISE, 2, 4, 8, 8, 8, 3, 3, 2, 2, 4, 4]),
        (
            lambda: gradient(depthwise, feed(2, 8, 8, 4), feed(3, 3, 4, 2), 0),
            [DEPTHWISE_INPUT, 2, 4, 8, 8, 8, 3, 3, 2, 2, 4, 4],
        ),
        (
            lambda: gradient(depthwise, feed(2, 8, 8, 4), feed(3, 3, 4, 2), 1),
            [DEPTHWISE_FILTER, 2, 4, 8, 8, 8, 3, 3, 2, 2, 4, 4],
        ),
        (lambda: tf.nn.softmax(feed(8, 100)), [PASSES, 2, 2 * 8 * 100 * 4]),
        (lambda: tf.nn.relu(feed(8, 100)), [0]),
    ],
)  # fmt: skip
def test_sizes(make: Callable[[], Any], row: list[int]) -> None:
    """As TensorFlow's shapes and attributes say; of products they multiply to the op's flops."""
    graph, op = imported(make)
    assert graph.kernels[op].tolist() == row + [0] * (12 - len(row))
    if row[0] == MATMUL:
        assert graph.flops[op] == 2 * np.prod(row[1:5])
    elif row[0] in (CONV, CONV_INPUT, CONV_FILTER):
        n, c, _, _, k, r, s, _, _, high, wide = row[1:]
        assert graph.flops[op] == 2 * n * high * wide * k * c * r * s


def test_a_loop_launches_its_body_every_trip() -> None:
    """Five trips of a product and a Tanh, and the condition's and counter's ops beside: at least ten launches."""
    weights = np.ones((4, 4), np.float32)

    def make() -> Any:
        body = lambda i, x: (i + 1, tf.tanh(tf.matmul(x, weights)))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 5, body, (0, feed(4, 4)), maximum_iterations=5)[1]

    for control_flow in (v1.enable_control_flow_v2, v1.disable_control_flow_v2):
        control_flow()
        try:
            graph, _ = imported(lambda: tf.identity(make()))
        finally:
            v1.enable_control_flow_v2()
        loops = np.flatnonzero(graph.kernels[:, 0] == LOOP)
        assert len(loops) == 1 and 10 <= graph.kernels[loops[0], 1] <= 60
        took = gpu_op_times(graph, preset("V100")).seconds[loops[0]]
        assert took >= graph.kernels[loops[0], 1] * 5e-6
