"""E3D: the Eidetic 3D LSTM (Wang et al. 2019) on Moving MNIST, at the sizes of ParDNN.

Frames of 64 x 64 pixels come as patches in the channels. Each step reads the last two frames (a zero frame before the
first) and draws the next one; past the given frames a step reads either the true frame or the one drawn (scheduled
sampling; the feed `sampled` decides). Unrolled over all frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import placeholders, scope, weight
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import Adam, finish, minimize, new_graph

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
    """Create a layer of `filters` channels on `inputs` channels, with kernels of `size`."""
    return Eidetic(
        path=path,
        hidden=convolution(f"{path}/hidden", size, filters, 4 * filters),
        inputs=convolution(f"{path}/inputs", size, inputs, 7 * filters),
        memory=convolution(f"{path}/memory", size, filters, 4 * filters),
        cell_gate=convolution(f"{path}/cell_gate", size, filters, filters),
        memory_gate=convolution(f"{path}/memory_gate", size, filters, filters),
        joined=convolution(f"{path}/joined", (1, 1, 1), 2 * filters, filters),
        hidden_norm=_make_norm(f"{path}/hidden_norm", 4 * filters),
        inputs_norm=_make_norm(f"{path}/inputs_norm", 7 * filters),
        memory_norm=_make_norm(f"{path}/memory_norm", 4 * filters),
        recall_norm=_make_norm(f"{path}/recall_norm", filters),
    )


def convolution(path: str, size: tuple[int, int, int], inputs: int, filters: int) -> Convolution:
    """Create a kernel and a bias, both read once for all steps."""
    kernel = weight(f"{path}/kernel", [*size, inputs, filters])
    return Convolution(kernel, weight(f"{path}/bias", [filters], tf.zeros_initializer()))


def convolve(x: tf.Tensor, by: Convolution, window_stride: int = 1) -> tf.Tensor:
    """Apply a convolution and its bias; ops go to the open scope."""
    y = tf.nn.conv3d(x, by.kernel, [1, window_stride, 1, 1, 1], "SAME")
    return tf.nn.bias_add(y, by.bias)


def advance(
    layer: Eidetic, t: int, x: tf.Tensor, before: EideticState, memory: tf.Tensor
) -> tuple[EideticState, tf.Tensor]:
    """Return the layer's state and the memory after input x of step t."""
    with scope(f"{layer.path}/step_{t}"):
        history = before.cell if before.history is None else tf.concat([before.history, before.cell], axis=1)
        i_h, g_h, r_h, o_h = tf.split(_normalise(convolve(before.hidden, layer.hidden), layer.hidden_norm), 4, axis=-1)
        of_input = _normalise(convolve(x, layer.inputs), layer.inputs_norm)
        i_x, g_x, r_x, o_x, i_mx, g_mx, f_mx = tf.split(of_input, 7, axis=-1)
        # RECALL: attention of every position of the gate over every position of all past cells.
        gate = tf.sigmoid(r_x + r_h)
        batch, *_, depth = (int(n) for n in gate.shape)
        query = tf.reshape(gate, [batch, -1, depth])
        past = tf.reshape(history, [batch, -1, depth])
        share = tf.nn.softmax(tf.matmul(query, past, transpose_b=True))
        recall = tf.reshape(tf.matmul(share, past), gate.shape)
        recalled = before.cell + recall
        cell = _normalise(recalled, layer.recall_norm) + tf.sigmoid(i_x + i_h) * tf.tanh(g_x + g_h)

        of_memory = _normalise(convolve(memory, layer.memory), layer.memory_norm)
        i_m, f_m, g_m, m_m = tf.split(of_memory, 4, axis=-1)
        memory_part = tf.sigmoid(f_mx + f_m + 1.0) * tf.tanh(m_m)
        memory = memory_part + tf.sigmoid(i_mx + i_m) * tf.tanh(g_mx + g_m)

        output = o_x + o_h + convolve(cell, layer.cell_gate) + convolve(memory, layer.memory_gate)
        joined = convolve(tf.concat([cell, memory], axis=-1), layer.joined)
        hidden = tf.sigmoid(tf.tanh(output)) * tf.tanh(joined)
    return EideticState(hidden=hidden, cell=cell, history=history), memory


def _make_norm(path: str, filters: int) -> Norm:
    scale = weight(f"{path}/scale", [filters], tf.ones_initializer())
    return Norm(scale, weight(f"{path}/offset", [filters], tf.zeros_initializer()))


def _normalise(x: tf.Tensor, norm: Norm) -> tf.Tensor:
    """Layer normalisation (Ba et al. 2016) over everything but the batch."""
    mean, variance = tf.nn.moments(x, [1, 2, 3, 4], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, norm.offset, norm.scale, NORM_EPSILON)


WINDOW = 2  # frames that a step sees


@dataclass(frozen=True, slots=True, kw_only=True)
class E3dConfig:
    """Sizes and rates; of `frames` frames the first `given` are always read, a patch has `patch` x `patch` pixels."""

    hidden: int
    patch: int
    batch: int
    layers: int = 4
    filter: int = 5
    image: int = 64
    frames: int = 20
    given: int = 10
    learning_rate: float = 1e-3
    average: float = 0.9995
    norm: float = 10.0

    @property
    def frame(self) -> tuple[int, int, int]:
        """Height, width and channels of a frame in patches."""
        side = self.image // self.patch
        return side, side, self.patch**2


CONFIGS: dict[str, E3dConfig] = {
    "320": E3dConfig(hidden=320, patch=4, batch=16),
    "512": E3dConfig(hidden=512, patch=8, batch=8),
    "tiny": E3dConfig(hidden=4, patch=2, batch=2, layers=2, filter=3, image=8, frames=3, given=1),
}


def construct(config: E3dConfig) -> ModelStep:
    """Build one step of Adam, with moving averages of all weights, on a batch of videos."""
    sampled_shape = (config.batch, config.frames - config.given - 1)
    feeds = (
        ModelFeed(name="video", shape=(config.batch, config.frames, *config.frame), dtype="float32", low=0.0, high=1.0),
        ModelFeed(name="sampled", shape=sampled_shape, dtype="int32", low=0, high=2),
    )
    with new_graph().as_default():
        video, sampled = placeholders(feeds)
        # The frames drawn after each step, [batch, height, width, channels].
        widths, size = [config.frame[-1]] + [config.hidden] * config.layers, (WINDOW, config.filter, config.filter)
        layers = [eidetic(f"layer_{k}", widths[k], config.hidden, size) for k in range(config.layers)]
        head = convolution("head", (WINDOW, 1, 1), config.hidden, config.frame[-1])
        with scope("stem"):
            true = tf.unstack(video, axis=1)
            truth = tf.unstack(tf.cast(tf.reshape(sampled, [config.batch, -1, 1, 1, 1]), tf.float32), axis=1)
            last = tf.zeros([config.batch, *config.frame])
            zeros = tf.zeros([config.batch, WINDOW, *config.frame[:2], config.hidden])
        states, memory = [EideticState(hidden=zeros, cell=zeros, history=None)] * config.layers, zeros
        drawn: list[tf.Tensor] = []
        for t in range(config.frames - 1):
            now = true[t]
            if t >= config.given:  # the true frame where `share` is one, the drawn frame where it is zero
                share = truth[t - config.given]
                with scope(f"stem/step_{t}"):
                    now = share * now + (1.0 - share) * drawn[-1]
            with scope(f"stem/step_{t}"):
                x = tf.stack([last, now], axis=1)
            for k, layer in enumerate(layers):
                states[k], memory = advance(layer, t, x, states[k], memory)
                x = states[k].hidden
            with scope(f"head/step_{t}"):
                drawn.append(tf.squeeze(convolve(x, head, window_stride=WINDOW), axis=1))
            last = now
        # Half the squared and the absolute errors of all frames drawn, averaged over the batch.
        with scope("loss"):
            error = tf.stack(drawn, axis=1) - video[:, 1:]
            loss = (tf.nn.l2_loss(error) + tf.reduce_sum(tf.abs(error))) / config.batch
        optimizer = Adam(config.learning_rate, beta1=0.95, beta2=0.9995, average=config.average)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm)], feeds)
