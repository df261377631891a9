"""The eidetic 3D LSTM layer (Wang et al. 2019, section 3.2): a convolutional LSTM that recalls its past cells.

Tensors are [batch, window, height, width, channels]. Besides hidden state and cell there is the memory of the
spatio-temporal LSTM, which passes through all layers of a step and then on to the next step.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import scope, weight

NORM_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class Convolution:
    """Weights of a 3D convolution: kernel [window, height, width, inputs, filters] and bias [filters]."""

    kernel: tf.Tensor
    bias: tf.Tensor


@dataclass(frozen=True, slots=True)
class Norm:
    """Scale and offset per channel of a layer normalisation over all of an example."""

    scale: tf.Tensor
    offset: tf.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Eidetic:
    """Weights of one layer and the scope of its steps."""

    path: str
    hidden: Convolution
    inputs: Convolution
    memory: Convolution
    cell_gate: Convolution
    memory_gate: Convolution
    joined: Convolution
    hidden_norm: Norm
    inputs_norm: Norm
    memory_norm: Norm
    recall_norm: Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class EideticState:
    """Hidden state and cell after a step, and all cells so far, one behind the other along the window."""

    hidden: tf.Tensor
    cell: tf.Tensor
    history: tf.Tensor | None


def eidetic(path: str, inputs: int, filters: int, size: tuple[int, int, int]) -> Eidetic:
    """A layer of `filters` channels on `inputs` channels, with kernels of `size`."""
    return Eidetic(
        path=path,
        hidden=convolution(f"{path}/hidden", size, filters, 4 * filters),
        inputs=convolution(f"{path}/inputs", size, inputs, 7 * filters),
        memory=convolution(f"{path}/memory", size, filters, 4 * filters),
        cell_gate=convolution(f"{path}/cell_gate", size, filters, filters),
        memory_gate=convolution(f"{path}/memory_gate", size, filters, filters),
        joined=convolution(f"{path}/joined", (1, 1, 1), 2 * filters, filters),
        hidden_norm=_norm(f"{path}/hidden_norm", 4 * filters),
        inputs_norm=_norm(f"{path}/inputs_norm", 7 * filters),
        memory_norm=_norm(f"{path}/memory_norm", 4 * filters),
        recall_norm=_norm(f"{path}/recall_norm", filters),
    )


def convolution(path: str, size: tuple[int, int, int], inputs: int, filters: int) -> Convolution:
    """A kernel and a bias, both read once for all steps."""
    kernel = weight(f"{path}/kernel", [*size, inputs, filters])
    return Convolution(kernel, weight(f"{path}/bias", [filters], tf.zeros_initializer()))


def convolve(x: tf.Tensor, by: Convolution, window_stride: int = 1) -> tf.Tensor:
    """The convolution with its bias; ops go to the open scope."""
    y = tf.nn.conv3d(x, by.kernel, [1, window_stride, 1, 1, 1], "SAME")
    return tf.nn.bias_add(y, by.bias)


def advance(
    layer: Eidetic, t: int, x: tf.Tensor, before: EideticState, memory: tf.Tensor
) -> tuple[EideticState, tf.Tensor]:
    """The layer's state and the memory after input x of step t."""
    with scope(f"{layer.path}/step_{t}"):
        history = before.cell if before.history is None else tf.concat([before.history, before.cell], axis=1)
        i_h, g_h, r_h, o_h = tf.split(_normalised(convolve(before.hidden, layer.hidden), layer.hidden_norm), 4, axis=-1)
        of_input = _normalised(convolve(x, layer.inputs), layer.inputs_norm)
        i_x, g_x, r_x, o_x, i_mx, g_mx, f_mx = tf.split(of_input, 7, axis=-1)
        # RECALL: attention of every position of the gate over every position of all past cells.
        gate = tf.sigmoid(r_x + r_h)
        batch, *_, depth = (int(n) for n in gate.shape)
        query = tf.reshape(gate, [batch, -1, depth])
        past = tf.reshape(history, [batch, -1, depth])
        share = tf.nn.softmax(tf.matmul(query, past, transpose_b=True))
        recall = tf.reshape(tf.matmul(share, past), gate.shape)
        recalled = before.cell + recall
        cell = _normalised(recalled, layer.recall_norm) + tf.sigmoid(i_x + i_h) * tf.tanh(g_x + g_h)

        of_memory = _normalised(convolve(memory, layer.memory), layer.memory_norm)
        i_m, f_m, g_m, m_m = tf.split(of_memory, 4, axis=-1)
        kept = tf.sigmoid(f_mx + f_m + 1.0) * tf.tanh(m_m)
        memory = kept + tf.sigmoid(i_mx + i_m) * tf.tanh(g_mx + g_m)

        output = o_x + o_h + convolve(cell, layer.cell_gate) + convolve(memory, layer.memory_gate)
        joined = convolve(tf.concat([cell, memory], axis=-1), layer.joined)
        hidden = tf.sigmoid(tf.tanh(output)) * tf.tanh(joined)
    return EideticState(hidden=hidden, cell=cell, history=history), memory


def _norm(path: str, filters: int) -> Norm:
    scale = weight(f"{path}/scale", [filters], tf.ones_initializer())
    return Norm(scale, weight(f"{path}/offset", [filters], tf.zeros_initializer()))


def _normalised(x: tf.Tensor, norm: Norm) -> tf.Tensor:
    """Layer normalisation (Ba et al. 2016) over everything but the batch."""
    mean, variance = tf.nn.moments(x, [1, 2, 3, 4], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, norm.offset, norm.scale, NORM_EPSILON)
