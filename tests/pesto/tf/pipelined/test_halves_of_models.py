"""Micro-batches of traced Keras models: each has the first one's ops, and halves are those that TensorFlow names so."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, optimizers

from pesto.core.micro_batches import RecognisedStep, recognise_micro_batches
from pesto.core.source import Cut, function_source
from pesto.core.step_parts import BACKWARD, FORWARD
from pesto.tf.importer.importer import build_graph
from pesto.tf.sources.sources import capture_keras

BATCH, PIECES, IDS, ROWS = 12, 3, 6, 20


def table(optimizer: Any, loss: Any = None) -> Any:
    """A table, whose gradient is of rows, and a head."""
    keras.utils.set_random_seed(5)
    given = keras.Input((IDS,), dtype="int32")
    x = layers.Dense(20)(layers.Flatten()(layers.Embedding(ROWS, 8)(given)))
    return compiled(given, x, optimizer, loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def pooled() -> Any:
    """The mean of rows, and a loss of numbers."""
    keras.utils.set_random_seed(5)
    given = keras.Input((IDS,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(ROWS, 8)(given))
    return compiled(given, layers.Dense(3)(x), "sgd", "mse")


def shared() -> Any:
    """Two inputs that read one table, and a metric besides the loss."""
    keras.utils.set_random_seed(5)
    given, other, rows = keras.Input((IDS,), dtype="int32"), keras.Input((3,), dtype="int32"), layers.Embedding(ROWS, 8)
    x = layers.Concatenate()([layers.Flatten()(rows(given)), layers.Flatten()(rows(other))])
    model = keras.Model([given, other], layers.Dense(1, activation="sigmoid")(layers.Dense(8)(x)))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"], jit_compile=False)
    return model


def dense() -> Any:
    """No table, two metrics."""
    keras.utils.set_random_seed(5)
    given = keras.Input((IDS,))
    model = keras.Model(given, layers.Dense(3)(layers.Dense(8, activation="relu")(given)))
    model.compile("adam", "mse", metrics=["mae", "mse"], jit_compile=False)
    return model


def compiled(given: Any, gives: Any, optimizer: Any, loss: Any) -> Any:
    model = keras.Model(given, gives)
    model.compile(optimizer, loss, jit_compile=False)
    return model


MODELS = {
    "sgd": lambda: table("sgd"),
    "momentum": lambda: table(optimizers.SGD(0.1, momentum=0.9)),
    "adam": lambda: table("adam"),
    "adagrad": lambda: table("adagrad"),
    "rmsprop": lambda: table("rmsprop"),
    "lion, whose slots are updated beside its variables": lambda: table("lion"),
    "clipped": lambda: table(optimizers.Adam(global_clipnorm=1.0)),
    "averaged": lambda: table(optimizers.SGD(0.1, use_ema=True)),
    "scaled": lambda: table(optimizers.LossScaleOptimizer(optimizers.Adam())),
    "a mean of rows": pooled,
    "one table at two inputs": shared,
    "no table": dense,
}


def found(name: str) -> RecognisedStep:
    label = function_source(f"model:{name}", BATCH, Cut(PIECES))
    graph = build_graph(capture_keras(MODELS[name](), BATCH, source=label, cut=Cut(PIECES)))
    known = recognise_micro_batches(graph)
    assert known is not None
    return known


@pytest.mark.parametrize("name", MODELS)
def test_halves_are_those_that_tensorflow_names(name: str) -> None:
    """A gradient tape names its ops; other ops of a micro-batch are its forward half, but for sums of gradients."""
    known = found(name)
    one, part = known.one, known.parts.part
    inner = np.isin(part, (FORWARD, BACKWARD))
    assert (part == BACKWARD).sum() >= 3
    for op in np.flatnonzero(inner).tolist():
        # A tape adds up gradients, and puts rows together, outside its scope.
        if one.types[one.type_of[op]] != "AddN" and not one.names[op].startswith("concat"):
            assert ("gradient_tape/" in one.names[op]) == (part[op] == BACKWARD), one.names[op]


@pytest.mark.parametrize("name", MODELS)
def test_micro_batches_have_the_firsts_ops(name: str) -> None:
    """Also those that updates read, as the last pass's shape of a table; what is of all is done once, after them."""
    step = found(name).step
    counts = [int(((step.batch == b) & ~step.sums).sum()) for b in range(PIECES)]
    assert len({*counts}) == 1 and counts[0] >= 40
    each = [np.sort(step.op[(step.batch == b) & ~step.sums]).tolist() for b in range(PIECES)]
    assert each[0] == each[1] == each[2]
