"""The parts of the models of ParDNN against their published equations, in plain numpy."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pesto.tf.models import char_crn, e3d, transformer, update_step, wrn
from pesto.tf.models.layers import variable

tf = importlib.import_module("tensorflow.compat.v1")

Values = NDArray[np.float32]


def run(graph: Any, tensors: Any, feed: dict[Any, Values] | None = None) -> Any:
    """The tensors' values after the graph's variables were initialised."""
    with graph.as_default(), tf.Session(graph=graph) as session:
        session.run(tf.global_variables_initializer())
        return session.run(tensors, feed)


def sigmoid(x: Values) -> Values:
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x: Values) -> Values:
    grown = np.exp(x - x.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: update_step.Adam(0.1, beta1=0.95, beta2=0.99), lambda: tf.train.AdamOptimizer(0.1, 0.95, 0.99)),
        (lambda: update_step.Nesterov(0.1), lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True)),
    ],
)
def test_elementary_updates_are_those_of_the_fused_ops(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    """Four updates of (1, -2, 3) down the slopes 2 w of |w|^2 end where TensorFlow's own optimiser ends."""
    ends = []
    for make in (ours, theirs):
        with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
            w = variable("w", [3], tf.constant_initializer([1.0, -2.0, 3.0]))
            train = make().apply_gradients([(2.0 * w.read_value(), w)])
            session.run(tf.global_variables_initializer())
            for _ in range(4):
                session.run(train)
            ends.append(session.run(w.read_value()))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)
    assert not np.allclose(ends[0], [1.0, -2.0, 3.0])


def test_the_moving_average_follows_the_updated_weights() -> None:
    """From zero, with decay 3/4: a quarter of the weights as they are after the first update."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        w = variable("w", [2], tf.constant_initializer([1.0, -2.0]))
        train = update_step.Adam(0.5, average=0.75).apply_gradients([(w.read_value(), w)])
        session.run(tf.global_variables_initializer())
        session.run(train)
        average = next(v for v in tf.global_variables() if v.op.name == "w/average")
        np.testing.assert_allclose(session.run(average.read_value()), session.run(w.read_value()) / 4.0, rtol=1e-6)
        # The first step of Adam is the rate times the gradient's sign.
        np.testing.assert_allclose(session.run(w.read_value()), [0.5, -1.5], rtol=1e-5)


def test_batch_normalisation_from_elementary_ops() -> None:
    """Mean 0 and variance 1 per channel, and averages that move a tenth of the way from 0 and 1."""
    x = np.random.default_rng(0).normal(2.0, 3.0, (4, 5, 5, 2)).astype(np.float32)
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        y = wrn.batch_norm("norm", tf.constant(x))
        session.run(tf.global_variables_initializer())
        normalised, *_ = session.run([y, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)])
        moved = {v.op.name: session.run(v.read_value()) for v in tf.global_variables()}
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    np.testing.assert_allclose(normalised, (x - mean) / np.sqrt(variance + 1e-5), atol=1e-4)
    np.testing.assert_allclose(moved["norm/mean"], 0.1 * mean, rtol=1e-4)
    np.testing.assert_allclose(moved["norm/variance"], 0.9 + 0.1 * variance, rtol=1e-4)


def test_an_eidetic_step_is_the_published_recurrence() -> None:
    """Equations (3) and (4) of Wang et al. 2019, with kernels of one pixel, so that a convolution is a product."""
    rng = np.random.default_rng(0)
    x, hidden, cell, memory = rng.normal(size=(4, 1, 2, 2, 2, 3)).astype(np.float32)
    past = rng.normal(size=(1, 4, 2, 2, 3)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        layer = e3d.eidetic("layer_0", 3, 3, (1, 1, 1))
        before = e3d.EideticState(hidden=tf.constant(hidden), cell=tf.constant(cell), history=tf.constant(past))
        after, mixed = e3d.advance(layer, 0, tf.constant(x), before, tf.constant(memory))
        names = ("hidden", "inputs", "memory", "cell_gate", "memory_gate", "joined")
        kernels = {name: getattr(layer, name).kernel for name in names}
        got, kernel = run(graph, ([after.hidden, after.cell, after.history, mixed], kernels))

    def product(value: Values, name: str) -> Values:
        return value @ kernel[name][0, 0, 0]

    def normal(value: Values) -> Values:
        return (value - value.mean()) / value.std()

    of_hidden = np.split(normal(product(hidden, "hidden")), 4, axis=-1)
    of_input = np.split(normal(product(x, "inputs")), 7, axis=-1)
    of_memory = np.split(normal(product(memory, "memory")), 4, axis=-1)
    history = np.concatenate([past, cell], axis=1)
    recall = sigmoid(of_input[2] + of_hidden[2]).reshape(-1, 3)
    share = softmax(recall @ history.reshape(-1, 3).T)
    new = normal(cell + (share @ history.reshape(-1, 3)).reshape(cell.shape))
    new = new + sigmoid(of_input[0] + of_hidden[0]) * np.tanh(of_input[1] + of_hidden[1])
    kept = sigmoid(of_input[6] + of_memory[1] + 1.0) * np.tanh(of_memory[3])
    stored = kept + sigmoid(of_input[4] + of_memory[0]) * np.tanh(of_input[5] + of_memory[2])
    gate = of_input[3] + of_hidden[3] + product(new, "cell_gate") + product(stored, "memory_gate")
    shown = sigmoid(np.tanh(gate)) * np.tanh(product(np.concatenate([new, stored], axis=-1), "joined"))
    for value, wanted in zip(got, (shown, new, history, stored), strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-4)


def test_heads_apart_are_attention_of_the_paper() -> None:
    """Concat(head_1, head_2) with head_i = softmax(Q W_q (K W_k)^T / sqrt(d_k)) V W_v, the last word masked."""
    config = transformer.TransformerConfig(layers=1, heads=2, hidden=4, batch=1, length=3, dropout=0.0, apart=True)
    words = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    bias = np.array([[[0.0, 0.0, transformer.MASKED]]], np.float32)
    with tf.Graph().as_default() as graph:
        x = tf.constant(words)
        mixed = transformer._attention(config, "attention", (x, x), tf.constant(bias))
        weights = {v.op.name: v.read_value() for v in tf.trainable_variables()}
        got, weight = run(graph, (mixed, weights))
    heads = []
    for path in ("attention/head_0", "attention/head_1"):
        query, key, value = (words @ weight[f"{path}/{name}/kernel"] for name in ("query", "key", "value"))
        heads.append(softmax(query @ key.T / np.sqrt(2.0) + bias[0]) @ value)
    np.testing.assert_allclose(got, np.concatenate(heads, axis=1), atol=1e-5)
    assert "attention/head_0/key/bias" not in weight


def test_a_words_features_are_its_largest_responses() -> None:
    """For every kernel of width k: the largest tanh of its products with k letters in a row."""
    config = char_crn.CONFIGS["tiny"]
    letters = np.random.default_rng(0).integers(0, config.alphabet, (2, config.steps, config.letters), np.int32)
    with tf.Graph().as_default() as graph:
        features = char_crn._convolve(config, tf.constant(letters))
        weights = {v.op.name: v.read_value() for v in tf.trainable_variables()}
        got, weight = run(graph, (features, weights))
    words = weight["embedding/table"][letters].reshape(-1, config.letters, config.embedded)
    wanted = []
    for k in range(1, len(config.features) + 1):
        kernel = weight[f"embedding/width_{k}/kernel"][0]
        places = range(config.letters - k + 1)
        wanted.append(np.max([np.tanh(np.einsum("wle,lef->wf", words[:, p : p + k], kernel)) for p in places], axis=0))
    np.testing.assert_allclose(got, np.concatenate(wanted, axis=1), atol=1e-5)
