"""Models, ways to train them, and random plans for them: what the benchmarks and tests of enforcement run."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.inputs import load as inputs
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import formulate
from pesto.verbs import api
from solvers.instances.random import random_order

BATCH = 8
PART = 13
"""Examples of each of the two parts of the data: the last batch is smaller, so that `fit` leaves the size open."""
STEPS = 4
"""Batches of both parts."""
Train = Callable[[int], list[float]]
"""Trains on one part of the data; returns the loss of each batch."""


def mlp() -> Any:
    """Dense layers and dropout."""
    from keras import Input, Sequential, layers

    return Sequential([Input((12,)), layers.Dense(16, "relu"), layers.Dropout(0.3), layers.Dense(5)])


def cnn() -> Any:
    """Convolution, batch norm, dropout."""
    from keras import Input, Sequential, layers

    parts = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    return Sequential([Input((8, 8, 3)), *parts, layers.Dropout(0.2), layers.Flatten(), layers.Dense(5)])


def attention() -> Any:
    """Multi-head attention with dropout."""
    from keras import Input, Model, layers

    x = Input((6, 8))
    y = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    return Model(x, layers.Dense(5)(layers.GlobalAveragePooling1D()(y)))


def lstm(*, unroll: bool) -> Any:
    """An LSTM, unrolled or as a while loop."""
    from keras import Input, Sequential, layers

    cell = layers.LSTM(7, unroll=unroll, use_cudnn=False)
    return Sequential([Input((6,), dtype="int32"), layers.Embedding(20, 8), cell, layers.Dense(5)])


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": mlp,
    "cnn": cnn,
    "attention": attention,
    "lstm-unrolled": functools.partial(lstm, unroll=True),
    "lstm-loop": functools.partial(lstm, unroll=False),
}


def made(name: str) -> Any:
    """A model as on its first day: the same weights and seeds each time."""
    import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = MODELS[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    return model


def examples(model: Any, part: int) -> tuple[Any, Any]:
    """One part of the data."""
    rng = np.random.default_rng(part)
    (entry,) = model.inputs
    x = rng.integers(0, 20, (PART, *entry.shape[1:]))
    return x.astype(entry.dtype), rng.integers(0, 5, PART).astype("int32")


def batches(model: Any, part: int, *, whole: bool) -> Iterator[tuple[Any, Any]]:
    """A part in batches; with `whole` all of one size."""
    x, y = examples(model, part)
    for start in (0, PART - BATCH if whole else BATCH):
        yield x[start : start + BATCH], y[start : start + BATCH]


def fit(model: Any, _: Plan | None) -> Train:
    """One epoch of `model.fit`."""
    import keras

    def train(part: int) -> list[float]:
        losses: list[float] = []
        watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: losses.append(logs["loss"]))
        x, y = examples(model, part)
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[watch])
        return losses

    return train


def on_batches(model: Any, _: Plan | None) -> Train:
    """`model.train_on_batch`."""
    return lambda part: [float(model.train_on_batch(x, y)[0]) for x, y in batches(model, part, whole=True)]


def step_of(model: Any, *, nested: bool) -> Any:
    """A step of one's own: a tf.function with a tape and a Keras optimizer."""
    import tensorflow as tf

    optimizer, loss_of = model.optimizer, model.loss
    optimizer.build(model.trainable_variables)

    def forward(x: Any, y: Any) -> Any:
        return loss_of(y, model(x, training=True))

    inner = tf.function(forward) if nested else forward

    @tf.function(input_signature=specs(model))
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = inner(x, y)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))  # noqa: B905
        return loss

    return step


def specs(model: Any) -> list[Any]:
    """The types of a batch of any size."""
    import tensorflow as tf

    return [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in examples(model, 0)]


def loop(model: Any, plan: Plan | None, *, nested: bool) -> Train:
    """A training loop of one's own, by a plan with `pesto.place`.

    That traces through inner functions, and the gradient of a call adds up in another order than that of its ops: what
    it is held against is the step without inner functions.
    """
    step = step_of(model, nested=nested and plan is not None)
    if plan is not None:
        step = api.place(step, plan, devices="cpu")

    def train(part: int) -> list[float]:
        return [float(step(x, y)) for x, y in batches(model, part, whole=False)]

    train.applied = getattr(step, "applied", None)
    return train


def from_keras(name: str, *, static: bool) -> Graph:
    """The graph of `fit`, or with `static` of `train_on_batch`."""
    from pesto.tf.sources import sources

    model = made(name)
    return sources.from_keras(model, BATCH, static=static, data=examples(model, 0))


def from_record(name: str) -> Graph:
    """What the program itself traced."""
    model = made(name)
    with api.record(batch=BATCH) as recorded:
        fit(model, None)(0)
    return recorded.graph


def from_step(name: str, *, nested: bool) -> Graph:
    """The graph of a step of one's own."""
    from pesto.tf.sources import sources

    model = made(name)
    return sources.from_function(step_of(model, nested=nested), *specs(model), batch=BATCH)


@dataclass(frozen=True)
class TrainingWay:
    """One way to train, and to get the graph that is planned."""

    graph: Callable[[str], Graph]
    train: Callable[[Any, Plan | None], Train]
    placed: bool = False
    """By `pesto.place`, whose variables stay where they were moved to; else in `pesto.apply`."""


WAYS = {
    "fit": TrainingWay(functools.partial(from_keras, static=False), fit),
    "batches": TrainingWay(functools.partial(from_keras, static=True), on_batches),
    "record": TrainingWay(from_record, fit),
    "place": TrainingWay(
        functools.partial(from_step, nested=False), functools.partial(loop, nested=False), placed=True
    ),
    "place-nested": TrainingWay(
        functools.partial(from_step, nested=True), functools.partial(loop, nested=True), placed=True
    ),
}


def random_plan(graph: Graph, cluster: str, seed: int | list[int], like: Plan | None = None) -> Plan:
    """Any devices and any order that are allowed; all else is as in the plan `like`."""
    machine, rng = load_cluster(cluster), np.random.default_rng(seed)
    problem = formulate(graph, inputs.load_costs(graph, machine, None), machine, Settings())
    device, rank = _anywhere(rng, problem), random_order(problem, rng)
    like = like or api.solve(graph, cluster=cluster, time_limit_s=0, solver="list")
    return replace(like, rank=rank, schedule=simulate(problem, device, rank).schedule)


def _anywhere(rng: np.random.Generator, problem: Any) -> Any:
    device = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed])
    for group in range(problem.group.max() + 1):
        member = problem.group == group
        device[member] = rng.choice(np.flatnonzero(problem.allowed[member].all(axis=0)))
    return device
