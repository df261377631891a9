"""Keras models trained in micro-batches by plans, on three logical CPUs; a script, as devices are set once a process.

    pipelined_worker.py [PROGRAM SCHEDULE,... | PROGRAM CLUSTER OPTIMIZER [BATCHES EVERY]]

Without PROGRAM: what `pesto.pipeline` and `fit` do by one plan, a JSON line for each case. With schedules, a line for
each of them: ops that were verified, and whether every loss of 20 steps and every variable after them was that of plain
accumulation, bit for bit. With a cluster and an optimizer, of a step that updates behind every batch, or behind every
EVERY of BATCHES: whether all was that of a loop, one batch after the other, that keeps every version of every variable.
test_pipelined.py says what is right.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

from pesto.verbs import api

api.logical_cpus(3)

import keras  # noqa: E402  # after the quiet load
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402
from tensorflow.python.ops import resource_variable_ops  # noqa: E402

from pesto.core.errors import PestoError  # noqa: E402
from pesto.core.source import Cut, function_source  # noqa: E402
from pesto.inputs.cluster_file import load_cluster  # noqa: E402
from pesto.pipelining.late_pipeline import pipeline_without_flush  # noqa: E402
from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.sources.sources import capture_keras, capture_pieces  # noqa: E402
from pesto.verbs.pipeline_step import pipeline_step  # noqa: E402
from pesto.verbs.requests import Context, PipelineRequest  # noqa: E402
from pesto.verbs.verb_options import PipelineOptions  # noqa: E402

PIECES, EACH, STEPS = 3, 4, 20


def dense() -> Any:
    sizes = [layers.Dense(24, activation="relu") for _ in range(6)]
    return keras.Sequential([keras.Input((16,)), *sizes, layers.Dense(3)])


def convolution() -> Any:
    """With batch norm, whose statistics are each micro-batch's."""
    x = given = keras.Input((8, 8, 3))
    for _ in range(2):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x)))
    return keras.Model(given, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def attention() -> Any:
    """With skip connections."""
    x = given = keras.Input((6, 8))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(y, y)])
        x = layers.Add()([x, layers.Dense(8)(layers.Dense(16, activation="gelu")(x))])
    return keras.Model(given, layers.Dense(3)(layers.Flatten()(x)))


def recurrent() -> Any:
    """Two unrolled LSTMs."""
    x = given = keras.Input((5, 8))
    x = layers.LSTM(8, unroll=True)(layers.LSTM(8, return_sequences=True, unroll=True)(x))
    return keras.Model(given, layers.Dense(3)(x))


def shared() -> Any:
    """One table at both ends, read by rows at the first."""
    given = keras.Input((6,), dtype="int32")
    table = layers.Embedding(12, 8)
    x = table(given)
    for _ in range(3):
        x = layers.Dense(8, activation="relu")(x)
    return keras.Model(
        given, layers.Lambda(lambda t: keras.ops.matmul(t[:, -1], keras.ops.transpose(table.embeddings)))(x)
    )


def rows() -> Any:
    """A table at the first end alone, whose gradient is of rows."""
    given = keras.Input((6,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(100, 8)(given))
    for _ in range(2):
        x = layers.Dense(8, activation="relu")(x)
    return keras.Model(given, layers.Dense(3)(x))


def bert() -> Any:
    """Tokens and positions, attention with dropout, a head tied to the table."""
    given = keras.Input((6,), dtype="int32")
    table = layers.Embedding(12, 8)
    x = Positions()(table(given))
    x = encoder(layers.Dropout(0.1)(layers.LayerNormalization()(x)))
    return keras.Model(given, layers.Lambda(lambda t: keras.ops.matmul(t, keras.ops.transpose(table.embeddings)))(x))


class Positions(layers.Layer):
    """Adds rows of a table, one a position."""

    def build(self, shape: Any) -> None:
        self.table = layers.Embedding(shape[1], shape[2])
        self.table.build()

    def call(self, x: Any) -> Any:
        return x + self.table(keras.ops.arange(x.shape[1]))[None]


class ClassToken(layers.Layer):
    """A token of its own before those of the patches."""

    def build(self, shape: Any) -> None:
        self.token = self.add_weight(shape=(1, 1, shape[-1]), name="token")

    def call(self, x: Any) -> Any:
        return keras.ops.concatenate([keras.ops.repeat(self.token, keras.ops.shape(x)[0], 0), x], 1)


def vit() -> Any:
    """Patches and a class token, with positions of a table, attention with dropout."""
    given = keras.Input((8, 8, 3))
    x = ClassToken()(layers.Reshape((4, 8))(layers.Conv2D(8, 4, 4)(given)))
    return keras.Model(given, layers.Dense(3)(encoder(layers.Dropout(0.1)(Positions()(x)))[:, 0]))


def encoder(x: Any) -> Any:
    """A layer of a transformer."""
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    return layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.Dense(8)(layers.Dense(16, "gelu")(x))))


PROGRAMS: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (dense, convolution, attention, recurrent, shared, rows, bert, vit)
}


def compiled(program: str, optimizer: str = "") -> Any:
    keras.utils.set_random_seed(7)
    optimizer = optimizer or ("RMSprop" if program == "rows" else "Adam")
    model = PROGRAMS[program]()
    clip = {"global_clipnorm": 1.0} if program == "recurrent" else {}
    model.compile(
        getattr(keras.optimizers, optimizer)(1e-2, **clip), keras.losses.MeanSquaredError(), jit_compile=False
    )
    return model


def batches(model: Any, pieces: int = PIECES) -> list[Any]:
    rng = np.random.default_rng(0)
    size = pieces * EACH
    shape, gives = model.inputs[0].shape[1:], model.outputs[0].shape[1:]
    whole = model.inputs[0].dtype == "int32"
    made = [
        (rng.integers(0, 12, (size, *shape)) if whole else rng.random((size, *shape)), rng.random((size, *gives)))
        for _ in range(STEPS)
    ]
    return [(x.astype(model.inputs[0].dtype), y.astype("float32")) for x, y in made]


def plain(model: Any, data: list[Any]) -> list[Any]:
    """Losses of a loop over micro-batches as a program has it, without a plan."""
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(x: Any, y: Any) -> Any:
        added, losses = None, []
        for part, wanted in zip(tf.split(x, PIECES), tf.split(y, PIECES), strict=True):
            with tf.GradientTape() as tape:
                losses.append(model.compute_loss(part, wanted, model(part, training=True)))
            found = tape.gradient(losses[-1], model.trainable_variables)
            added = found if added is None else [plus(a, b) for a, b in zip(added, found, strict=True)]
        means = [over(g) for g in added]
        model.optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
        return losses

    return [np.asarray(step(x, y)) for x, y in data]


def plus(a: Any, b: Any) -> Any:
    if isinstance(a, tf.IndexedSlices):
        return tf.IndexedSlices(tf.concat([a.values, b.values], 0), tf.concat([a.indices, b.indices], 0), a.dense_shape)
    return a + b


def over(g: Any, pieces: int = PIECES) -> Any:
    return (
        tf.IndexedSlices(g.values / pieces, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices) else g / pieces
    )


def held(model: Any) -> list[bytes]:
    """The bits of all variables but those of metrics."""
    return [np.asarray(v).tobytes() for v in (*model.variables, *model.optimizer.variables)]


def graph_of(program: str) -> Any:
    """The graph of a model's step in micro-batches, as `pesto pipeline --function` makes it."""
    model = compiled(program)
    label = function_source(f"worker:{program}", PIECES * EACH, Cut(PIECES))
    return build_graph(capture_keras(model, PIECES * EACH, data=batches(model)[0], source=label, cut=Cut(PIECES)))


def versioned(program: str, cluster: str, optimizer: str, pieces: str = "6", turn: str = "1") -> None:
    """Two calls of a step of late weights against a loop that numbers versions."""
    source, model, other = [compiled(program, optimizer) for _ in range(3)]
    many, every = int(pieces), int(turn)
    data = batches(model, many)[:2]

    def trace(late: tuple[int, ...]) -> Any:
        cut = Cut(many, late, every)
        label = function_source(f"worker:{program}", many * EACH, cut)
        return build_graph(capture_keras(source, many * EACH, data=data[0], source=label, cut=cut))

    found = pipeline_without_flush(trace, load_cluster(cluster))
    late, flight = found.staged.late or (), found.chosen.schedule.in_flight
    step = api.pipeline(model, found.plan, devices="cpu")
    gave = [np.asarray(step(x, y)) for x, y in data]
    losses = by_versions(other, data, late, (many, every))
    plain = compiled(program, optimizer)
    by_versions(plain, data, (0,) * len(late), (many, every))
    tell(
        late=sorted(set(late)), flight=[] if flight is None else sorted({*flight.tolist()}), given=len(late),
        weights=len(model.trainable_variables), devices=len({*found.plan.schedule.device.tolist()}),
        moved=sum(len(one.moves) + len(one.inversions) for one in step.applied.findings),
        verified=len(step.applied.findings), losses=gave == losses, variables=held(model) == held(other),
        plain=held(model) == held(plain),
    )  # fmt: skip


def by_versions(model: Any, data: Any, late: tuple[int, ...], turns: tuple[int, int]) -> list[Any]:
    """The mean loss of each call; a batch's gradients are of the weights of so many updates ago, and update the latest.

    Versions are numbered from each call on, as a call ends when all its updates are done. turns: batches, and how many
    of them are added up, in their order, for each update.
    """
    many, every = turns
    model.optimizer.build(model.trainable_variables)
    weights, means = in_order(model), list[Any]()

    @tf.function(autograph=False)
    def gradients(part: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(part, wanted, model(part, training=True))
        return loss, tape.gradient(loss, [w.value for w in model.trainable_variables])

    @tf.function(autograph=False)
    def update(*found: Any) -> None:
        model.optimizer.apply(found, model.trainable_variables)

    for x, y in data:
        kept, losses = [[w.numpy()] for w in weights], list[Any]()
        added: Any = None
        for at, (part, wanted) in enumerate(zip(tf.split(x, many), tf.split(y, many), strict=True)):
            for weight, versions, by in zip(weights, kept, late, strict=True):
                weight.assign(versions[max(0, len(versions) - 1 - by)])
            loss, found = gradients(part, wanted)
            losses.append(loss)
            for weight, versions in zip(weights, kept, strict=True):
                weight.assign(versions[-1])
            added = found if added is None else [plus(a, b) for a, b in zip(added, found, strict=True)]
            if (at + 1) % every:
                continue
            update(*(added if every == 1 else [over(g, every) for g in added]))
            added = None
            for weight, versions in zip(weights, kept, strict=True):
                versions.append(weight.numpy())
        means.append(mean(losses))
    return means


def in_order(model: Any) -> list[Any]:
    """Trained variables, in the order in which a call reads them."""
    seen = list[Any]()
    kind: Any = resource_variable_ops.BaseResourceVariable
    original = kind._read_variable_op

    def read(variable: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend([variable] if variable.trainable and all(variable is not one for one in seen) else [])
        return original(variable, *args, **kwargs)

    kind._read_variable_op = read
    try:
        model(batches(model, 1)[0][0], training=False)
    finally:
        kind._read_variable_op = original
    return [next(w for w in model.trainable_variables if w.value is one) for one in seen]


def mean(losses: Any) -> Any:
    """As Keras' metric of the loss adds it up: each weighed by its examples."""
    total = np.float32(0)
    for loss in losses:
        total += np.float32(loss) * np.float32(EACH)
    return total / np.float32(len(losses) * EACH)


def by_schedules(program: str, schedules: str) -> None:
    model = compiled(program)
    data = batches(model)
    losses, after = [mean(each) for each in plain(model, data)], held(model)
    graph = graph_of(program)
    for schedule in schedules.split(","):
        found = pipelined(graph, "cpux3", schedule)
        model = compiled(program)
        step = api.pipeline(model, found.plan, devices="cpu")
        gave = [np.asarray(step(x, y)) for x, y in data]
        tell(
            schedule=schedule, ops=step.applied.ops, verified=len(step.applied.findings),
            devices=len({*found.plan.schedule.device.tolist()}), losses=gave == losses, variables=held(model) == after,
        )  # fmt: skip


def by_one_plan() -> None:
    """`pesto.pipeline` of a model and of a function, and `fit`, by plans of two micro-batches; and what is refused."""
    x, y = np.arange(96, dtype=np.float64).reshape(24, 4) / 96, np.ones((24, 2))
    plan = planned(capture_keras(small(), 12, cut=Cut(2), source=function_source("worker:small", 12, Cut(2))))
    by_hand, by_fit = small(), small()
    step = api.pipeline(by_hand, plan, devices="cpu")
    gave = [float(step(x[k : k + 12], y[k : k + 12])) for k in (0, 12)]
    with api.apply(plan, devices="cpu") as applied:
        told = by_fit.fit(x, y, batch_size=12, shuffle=False, verbose=0).history["loss"]
        by_fit.train_on_batch(np.float32(x[:12]), np.float32(y[:12]))
        step_again = by_fit.evaluate(x, y, verbose=0)
    by_hand.train_on_batch(np.float32(x[:12]), np.float32(y[:12]))
    tell(
        case="fit", equal=bool(np.allclose(told[0], np.mean(gave))), verified=len(applied.findings),
        after=bool(np.allclose(by_hand.evaluate(x, y, verbose=0), step_again)),
    )  # fmt: skip
    refused("open", lambda: by_fit.fit(x[:20], y[:20], batch_size=12, verbose=0), plan)
    refused("size", lambda: by_fit.fit(x[:16], y[:16], batch_size=8, verbose=0), plan)
    refused("cut", lambda: api.pipeline(small(), plan, devices="cpu")(x[:11], y[:11]))
    whole = planned(capture_keras(small(), 12, static=True))
    refused("whole", lambda: api.pipeline(small(), whole, devices="cpu"))
    refused("mixed", lambda: None, plan, whole)
    refused("step", lambda: stepping(small())(np.float32(x[:12]), np.float32(y[:12])), plan)
    given = [tf.TensorSpec([12, 4]), tf.TensorSpec([12, 2])]
    made = capture_pieces(
        stepping(small()), *given, batch=None, cut=Cut(2), source=function_source("worker:f", None, Cut(2))
    )
    again = small()
    called = api.pipeline(stepping(again), planned(made), devices="cpu")
    x, y = tf.constant(x, tf.float32), tf.constant(y, tf.float32)
    losses = [float(called(x[k : k + 12], y[k : k + 12])) for k in (0, 12)]
    tell(case="function", equal=bool(np.allclose(losses, gave)), verified=len(called.applied.findings))


def small() -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((4,)), *[layers.Dense(4, activation="relu") for _ in range(4)], layers.Dense(2)]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], jit_compile=False)
    return model


def stepping(model: Any) -> Any:
    """A step as a program writes one, with control flow that AutoGraph converts."""
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - model(x, training=True)))
        found = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
        return loss

    return step


def pipelined(graph: Any, cluster: str, schedule: str) -> Any:
    asked = PipelineRequest(source=graph, cluster=cluster, options=PipelineOptions(schedule=schedule))
    return pipeline_step(asked, Context()).pipeline


def planned(captured: Any) -> Any:
    return pipelined(build_graph(captured), "cpux2", "1f1b").plan


def refused(case: str, act: Callable[[], Any], *plans: Any) -> None:
    try:
        if plans:
            with api.apply(*plans, devices="cpu"):
                act()
        else:
            act()
    except PestoError as error:
        tell(case=case, error=type(error).__name__, text=str(error))


def tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if len(sys.argv) > 3:
        versioned(*sys.argv[1:])
    else:
        by_schedules(*sys.argv[1:]) if len(sys.argv) > 1 else by_one_plan()
