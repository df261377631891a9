"""A long short-term memory layer, unrolled step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import dropout, scope, state, weight

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
    """A layer with one kernel for the four gates and dropout at `rate` on its input (Zaremba et al. 2014)."""
    return Lstm(
        path=path,
        kernel=weight(f"{path}/kernel", [inputs + units, 4 * units], initializer),
        bias=weight(f"{path}/bias", [4 * units], tf.zeros_initializer()),
        rate=rate,
    )


def advance(layer: Lstm, x: tf.Tensor, before: State, forget_bias: float = 1.0) -> State:
    """The state after input x [batch, inputs]; ops go to the open scope (Gers et al. 2000, no peepholes)."""
    cell, output = before
    joined = tf.concat([dropout(x, layer.rate), output], axis=1)
    gates = tf.nn.bias_add(tf.matmul(joined, layer.kernel), layer.bias)
    write, fresh, keep, show = tf.split(gates, 4, axis=1)
    cell = cell * tf.sigmoid(keep + forget_bias) + tf.sigmoid(write) * tf.tanh(fresh)
    return cell, tf.tanh(cell) * tf.sigmoid(show)


def zero_state(path: str, batch: int, units: int) -> State:
    """The state before the first step: one tensor of zeros for cell and output."""
    with scope(path):
        zeros = tf.zeros([batch, units], name="zeros")
    return zeros, zeros


def unroll(layer: Lstm, inputs: Sequence[tf.Tensor], start: State) -> tuple[list[tf.Tensor], State]:
    """Outputs of every step and the last state."""
    after, outputs = start, []
    for t, x in enumerate(inputs):
        with scope(f"{layer.path}/step_{t}"):
            after = advance(layer, x, after)
            outputs.append(after[1])
    return outputs, after


def unroll_carried(stack: Stack, inputs: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Operation]]:
    """Outputs [batch, hidden] of the last layer by step, and the ops that carry the states to the next batch.

    The last state of a training step is the first one of the next (truncated back-propagation through time).
    """
    outputs, carried = list(inputs), []
    for k in range(stack.layers):
        path = f"layer_{k}"
        batch, width = (int(n) for n in outputs[0].shape)
        rate = stack.rate if k else stack.first_rate
        layer = lstm(path, width, stack.hidden, rate=rate, initializer=stack.initializer)
        shape = [batch, stack.hidden]
        kept = [state(f"{path}/{name}", shape, tf.zeros_initializer()) for name in ("cell", "output")]
        with scope(path):
            start = kept[0].read_value(), kept[1].read_value()
        outputs, last = unroll(layer, outputs, start)
        with scope(path):
            carried += [v.assign(value, read_value=False) for v, value in zip(kept, last, strict=True)]
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
