"""Layers that the families share: scopes, variables, dense layers, LSTMs, and convolutions (NHWC) of NASNet's kind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.step import ModelFeed


def scope(path: str) -> AbstractContextManager[str]:
    """Open the name scope `path` counted from the root, and again under the same name if it was open before."""
    return tf.name_scope(f"{path}/")


def placeholders(feeds: Sequence[ModelFeed]) -> list[tf.Tensor]:
    """Return one placeholder per feed, in order."""
    return [tf.placeholder(feed.dtype, feed.shape, feed.name) for feed in feeds]


def variable(name: str, shape: Sequence[int], initializer: object = None) -> tf.Variable:
    """Create a trainable resource variable; the default initialiser is Glorot's uniform one."""
    return tf.get_variable(name, shape, tf.float32, initializer, use_resource=True)


def state(name: str, shape: Sequence[int], initializer: object, dtype: object = tf.float32) -> tf.Variable:
    """Create a resource variable without gradients: a counter, a moving average, a carried state."""
    return tf.get_variable(name, shape, dtype, initializer, trainable=False, use_resource=True)


def weight(name: str, shape: Sequence[int], initializer: object = None) -> tf.Tensor:
    """Create a trainable variable and read it once: all unrolled steps share the tensor, sent once a device."""
    handle = variable(name, shape, initializer)
    with scope(name):
        return handle.read_value()


def dropout(x: tf.Tensor, rate: float) -> tf.Tensor:
    """Apply inverted dropout (Srivastava et al. 2014); none at rate 0."""
    return tf.nn.dropout(x, rate=rate) if rate > 0 else x


def embedding(path: str, ids: tf.Tensor, shape: tuple[int, int], initializer: object = None) -> tf.Tensor:
    """Look up rows of the table `path/table` of `shape` (vocabulary, hidden): [...] ids to [..., hidden]."""
    table = variable(f"{path}/table", shape, initializer)
    with scope(path):
        return tf.nn.embedding_lookup(table, ids)


def layer_norm(path: str, x: tf.Tensor, epsilon: float = 1e-6) -> tf.Tensor:
    """Apply layer normalisation over the last axis (Ba et al. 2016)."""
    hidden = int(x.shape[-1])
    scale = weight(f"{path}/scale", [hidden], tf.ones_initializer())
    offset = weight(f"{path}/offset", [hidden], tf.zeros_initializer())
    with scope(path):
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True)
        return (x - mean) * tf.rsqrt(variance + epsilon) * scale + offset


def dense(path: str, x: tf.Tensor, units: int, *, bias: bool, initializer: object = None) -> tf.Tensor:
    """Multiply x [n, inputs] by a kernel [inputs, units], and add a bias if `bias`."""
    kernel = weight(f"{path}/kernel", [int(x.shape[-1]), units], initializer)
    offset = weight(f"{path}/bias", [units], tf.zeros_initializer()) if bias else None
    with scope(path):
        product = tf.matmul(x, kernel)
        return product if offset is None else tf.nn.bias_add(product, offset)


def softmax_entropy(
    path: str, x: tf.Tensor, labels: tf.Tensor, classes: int, *, bias: bool = True, initializer: object = None
) -> tf.Tensor:
    """Return the cross entropy [n] of `labels` [n] and a softmax of x [n, inputs] over `classes`, through `dense`."""
    logits = dense(path, x, classes, bias=bias, initializer=initializer)
    with scope(path):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(labels, [-1]), logits=logits)


State = tuple[tf.Tensor, tf.Tensor]  # cell and output, both [batch, units]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lstm:
    """Weights of one layer: kernel [inputs + units, 4 * units] and bias [4 * units], and the scope of its steps."""

    path: str
    kernel: tf.Tensor
    bias: tf.Tensor
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Layers `layer_0`, `layer_1`, ... of one width; `first_rate` is the dropout on the input of the first."""

    layers: int
    hidden: int
    rate: float = 0.0
    first_rate: float = 0.0
    initializer: object = None


def lstm(path: str, inputs: int, units: int, *, rate: float, initializer: object = None) -> Lstm:
    """Create a layer with one kernel for the four gates and dropout at `rate` on its input (Zaremba et al. 2014)."""
    return Lstm(
        path=path,
        kernel=weight(f"{path}/kernel", [inputs + units, 4 * units], initializer),
        bias=weight(f"{path}/bias", [4 * units], tf.zeros_initializer()),
        rate=rate,
    )


def advance(layer: Lstm, x: tf.Tensor, before: State, forget_bias: float = 1.0) -> State:
    """Return the state after input x [batch, inputs]; ops go to the open scope (Gers et al. 2000, no peepholes)."""
    cell, output = before
    joined = tf.concat([dropout(x, layer.rate), output], axis=1)
    gates = tf.nn.bias_add(tf.matmul(joined, layer.kernel), layer.bias)
    write, fresh, keep, show = tf.split(gates, 4, axis=1)
    cell = cell * tf.sigmoid(keep + forget_bias) + tf.sigmoid(write) * tf.tanh(fresh)
    return cell, tf.tanh(cell) * tf.sigmoid(show)


def zero_state(path: str, batch: int, units: int) -> State:
    """Return the state before the first step: one tensor of zeros for cell and output."""
    with scope(path):
        zeros = tf.zeros([batch, units], name="zeros")
    return zeros, zeros


def unroll(layer: Lstm, inputs: Sequence[tf.Tensor], start: State) -> tuple[list[tf.Tensor], State]:
    """Return the outputs of every step and the last state."""
    after, outputs = start, []
    for t, x in enumerate(inputs):
        with scope(f"{layer.path}/step_{t}"):
            after = advance(layer, x, after)
            outputs.append(after[1])
    return outputs, after


def unroll_carried(stack: Stack, inputs: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Operation]]:
    """Return outputs [batch, hidden] of the last layer by step, and the ops that carry the states to the next batch.

    The last state of a training step is the first one of the next (truncated back-propagation through time).
    """
    outputs, carried = list(inputs), []
    for k in range(stack.layers):
        path = f"layer_{k}"
        batch, width = (int(n) for n in outputs[0].shape)
        rate = stack.rate if k else stack.first_rate
        layer = lstm(path, width, stack.hidden, rate=rate, initializer=stack.initializer)
        shape = [batch, stack.hidden]
        variables = [state(f"{path}/{name}", shape, tf.zeros_initializer()) for name in ("cell", "output")]
        with scope(path):
            start = variables[0].read_value(), variables[1].read_value()
        outputs, last = unroll(layer, outputs, start)
        with scope(path):
            carried += [v.assign(value, read_value=False) for v, value in zip(variables, last, strict=True)]
    return outputs, carried


def unroll_masked(
    layer: Lstm, inputs: Sequence[tf.Tensor], start: State, inside: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], State]:
    """Unroll sequences of unequal length from zeros; inside[t] [batch] is true where step t is a real one.

    Past its end a sequence keeps its state and puts out zeros, as TensorFlow's dynamic_rnn does.
    """
    after, outputs = start, []
    for t, x in enumerate(inputs):
        with scope(f"{layer.path}/step_{t}"):
            cell, output = advance(layer, x, after)
            outputs.append(tf.where(inside[t], output, start[1]))
            after = tf.where(inside[t], cell, after[0]), tf.where(inside[t], output, after[1])
    return outputs, after


NORM_DECAY = 0.9997  # of the moving averages of batch normalisation
NORM_EPSILON = 1e-3


def channels(x: tf.Tensor) -> int:
    """Return the number of feature maps of x [batch, height, width, channels]."""
    return int(x.shape[3])


def convolve(path: str, x: tf.Tensor, filters: int, size: int, *, stride: int = 1, padding: str = "SAME") -> tf.Tensor:
    """Apply a plain convolution with a square kernel."""
    kernel = _kernel(f"{path}/kernel", [size, size, channels(x), filters])
    with scope(path):
        return tf.nn.conv2d(x, kernel, [1, stride, stride, 1], padding)


def separable(path: str, x: tf.Tensor, filters: int, size: int, stride: int) -> tf.Tensor:
    """Apply a convolution per feature map, then a 1 x 1 convolution across them."""
    depthwise = _kernel(f"{path}/depthwise", [size, size, channels(x), 1])
    pointwise = _kernel(f"{path}/pointwise", [1, 1, channels(x), filters])
    with scope(path):
        return tf.nn.separable_conv2d(x, depthwise, pointwise, [1, stride, stride, 1], "SAME")


def batch_norm(path: str, x: tf.Tensor) -> tf.Tensor:
    """Apply fused batch normalisation (Ioffe and Szegedy 2015); its moving averages join the graph's update ops."""
    scale, offset, moving = norm_variables(path, channels(x))
    with scope(path):
        # Not tf.nn.fused_batch_norm: version 3 has an output whose shape is not known before it runs.
        none = tf.constant([], tf.float32)
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV2(
            x=x, scale=scale, offset=offset, mean=none, variance=none, epsilon=NORM_EPSILON
        )
        follow(moving, (mean, variance), NORM_DECAY)
    return y


def norm_variables(path: str, size: int) -> tuple[tf.Tensor, tf.Tensor, tuple[tf.Variable, tf.Variable]]:
    """Return scale and offset of batch normalisation of `size` feature maps, and its moving mean and variance."""
    scale = weight(f"{path}/scale", [size], tf.ones_initializer())
    offset = weight(f"{path}/offset", [size], tf.zeros_initializer())
    mean = state(f"{path}/mean", [size], tf.zeros_initializer())
    return scale, offset, (mean, state(f"{path}/variance", [size], tf.ones_initializer()))


def follow(moving: tuple[tf.Variable, tf.Variable], moments: tuple[tf.Tensor, tf.Tensor], decay: float) -> None:
    """Update the moving averages by a batch's mean and variance, among the graph's update ops."""
    for average, now in zip(moving, moments, strict=True):
        change = (average.read_value() - now) * (1.0 - decay)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.assign_sub(change, read_value=False))


def relu(path: str, x: tf.Tensor) -> tf.Tensor:
    """Apply the rectifier in the scope `path`."""
    with scope(path):
        return tf.nn.relu(x)


def halve(path: str, x: tf.Tensor, filters: int) -> tf.Tensor:
    """Halve height and width without losing every other row: two shifted strided paths (`factorized reduction`)."""
    with scope(path):
        even = tf.nn.avg_pool2d(x, 1, 2, "VALID")
        odd = tf.nn.avg_pool2d(tf.pad(x, [[0, 0], [0, 1], [0, 1], [0, 0]])[:, 1:, 1:, :], 1, 2, "VALID")
    even = convolve(f"{path}/even", even, filters // 2, 1)
    odd = convolve(f"{path}/odd", odd, filters - filters // 2, 1)
    with scope(path):
        joined = tf.concat([even, odd], axis=3)
    return batch_norm(f"{path}/norm", joined)


def _kernel(name: str, shape: list[int]) -> tf.Tensor:
    # Half the squared length of the weights goes to the graph's regularisation losses.
    kernel = weight(name, shape, tf.variance_scaling_initializer(mode="fan_out"))
    with scope(f"{name}/decay"):
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, tf.nn.l2_loss(kernel))
    return kernel
