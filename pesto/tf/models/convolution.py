"""Convolutions as NASNet uses them: no bias, batch normalisation behind, weight decay kept for the loss (NHWC)."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import scope, state, weight

NORM_DECAY = 0.9997  # of the moving averages of batch normalisation
NORM_EPSILON = 1e-3


def channels(x: tf.Tensor) -> int:
    """Number of feature maps of x [batch, height, width, channels]."""
    return int(x.shape[3])


def convolve(path: str, x: tf.Tensor, filters: int, size: int, *, stride: int = 1, padding: str = "SAME") -> tf.Tensor:
    """A plain convolution with a square kernel."""
    kernel = _kernel(f"{path}/kernel", [size, size, channels(x), filters])
    with scope(path):
        return tf.nn.conv2d(x, kernel, [1, stride, stride, 1], padding)


def separable(path: str, x: tf.Tensor, filters: int, size: int, stride: int) -> tf.Tensor:
    """A convolution per feature map, then one by one across them."""
    depthwise = _kernel(f"{path}/depthwise", [size, size, channels(x), 1])
    pointwise = _kernel(f"{path}/pointwise", [1, 1, channels(x), filters])
    with scope(path):
        return tf.nn.separable_conv2d(x, depthwise, pointwise, [1, stride, stride, 1], "SAME")


def batch_norm(path: str, x: tf.Tensor) -> tf.Tensor:
    """Fused batch normalisation (Ioffe and Szegedy 2015); its moving averages join the graph's update ops."""
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
    """The rectifier, in the scope `path`."""
    with scope(path):
        return tf.nn.relu(x)


def halve(path: str, x: tf.Tensor, filters: int) -> tf.Tensor:
    """Half the height and width without losing every other row: two shifted strided paths (`factorized reduction`)."""
    with scope(path):
        even = tf.nn.avg_pool2d(x, 1, 2, "VALID")
        odd = tf.nn.avg_pool2d(tf.pad(x, [[0, 0], [0, 1], [0, 1], [0, 0]])[:, 1:, 1:, :], 1, 2, "VALID")
    even = convolve(f"{path}/even", even, filters // 2, 1)
    odd = convolve(f"{path}/odd", odd, filters - filters // 2, 1)
    with scope(path):
        joined = tf.concat([even, odd], axis=3)
    return batch_norm(f"{path}/norm", joined)


def _kernel(name: str, shape: list[int]) -> tf.Tensor:
    """A convolution's weights; half their squared length goes to the graph's regularisation losses."""
    kernel = weight(name, shape, tf.variance_scaling_initializer(mode="fan_out"))
    with scope(f"{name}/decay"):
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, tf.nn.l2_loss(kernel))
    return kernel
