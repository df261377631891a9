"""Training programs as people write them, small enough for two slow cores; `programs.py` measures them."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 8
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """A program that has been started: a model on its first day."""

    train: Callable[[int], list[float]]
    """Takes some steps, each on its own batch from the first on; returns their losses."""
    values: Callable[[], Arrays]
    """All that training changed, by name."""


def data(kind: str, rows: int) -> tuple[Any, Any]:
    """Examples of one kind, each with one of ten labels; the same each time."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 10, rows).astype("int32")
    if kind.startswith("image"):
        side = int(kind[5:])
        return rng.random((rows, side, side, 3), dtype="float32"), labels
    if kind == "words":
        return np.array([[f"w{k}"] * 4 for k in rng.integers(0, 60, rows)]), labels
    if kind == "rows":
        return rng.random((rows, 64), dtype="float32"), labels
    return rng.integers(0, 500, (rows, 16)).astype("int32"), labels


def batches(kind: str, steps: int) -> Iterator[tuple[Any, Any]]:
    """Whole batches, one a step."""
    x, y = data(kind, steps * BATCH)
    for k in range(0, len(x), BATCH):
        yield x[k : k + BATCH], y[k : k + BATCH]


def first_day() -> Any:
    """Keras without a past, its seeds set."""
    import keras

    keras.backend.clear_session()
    keras.mixed_precision.set_global_policy("float32")
    keras.utils.set_random_seed(1)
    return keras


def fitted(build: Callable[[Any], Any], kind: str, optimizer: Callable[[Any], Any] | None = None) -> Training:
    """A model that `fit` trains."""
    keras = first_day()
    model = build(keras)
    chosen = optimizer(keras) if optimizer else "adam"
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(chosen, loss, metrics=["accuracy"], jit_compile=False)

    def train(steps: int) -> list[float]:
        losses: list[float] = []
        watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: losses.append(logs["loss"]))
        x, y = data(kind, steps * BATCH)
        if kind == "words":
            import tensorflow as tf

            x = tf.constant(x)
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[watch])
        return losses

    return Training(train, lambda: numbered([*model.variables, *model.optimizer.variables]))


def numbered(variables: list[Any]) -> Arrays:
    """Values of distinct variables by their place and path."""
    distinct = {id(v): v for v in variables}.values()
    return {f"{k} {v.path}": np.asarray(v.numpy()) for k, v in enumerate(distinct)}


def written(step: Any, kind: str, variables: list[Any]) -> Training:
    """A step of one's own, in a Python loop."""
    import tensorflow as tf

    compiled = tf.function(step)
    return Training(
        lambda steps: [float(compiled(tf.constant(x), tf.constant(y))) for x, y in batches(kind, steps)],
        lambda: numbered(variables),
    )


def cnn(keras: Any) -> Any:
    """Blocks of convolution, batch norm and pooling."""
    parts = [
        layer
        for width in (16, 32, 64)
        for layer in (
            keras.layers.Conv2D(width, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
        )
    ]
    return keras.Sequential([keras.Input((32, 32, 3)), *parts, keras.layers.Flatten(), keras.layers.Dense(10)])


def application(name: str) -> Callable[[Any], Any]:
    """A network of keras.applications on images of 64 x 64."""

    def build(keras: Any) -> Any:
        made = getattr(keras.applications, name)
        return made(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)

    return build


def encoder(keras: Any) -> Any:
    """Two layers of a Transformer's encoder, in mixed_float16."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    layers = keras.layers
    tokens = keras.Input((16,), dtype="int32")
    x = layers.Embedding(500, 64)(tokens)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, "relu")(x)))
    return keras.Model(tokens, layers.Dense(10, dtype="float32")(layers.GlobalAveragePooling1D()(x)))


def towers(keras: Any) -> Any:
    """Two towers of dense layers."""
    x = keras.Input((64,))
    ends = []
    for _ in range(2):
        y = x
        for _ in range(3):
            y = keras.layers.Dense(256, "relu")(y)
        ends.append(y)
    return keras.Model(x, keras.layers.Dense(10)(keras.layers.Concatenate()(ends)))


def lstm(keras: Any) -> Any:
    """Two LSTMs, each a while loop."""
    cells = [keras.layers.LSTM(32, return_sequences=k == 0, use_cudnn=False) for k in range(2)]
    first = [keras.Input((16,), dtype="int32"), keras.layers.Embedding(500, 32)]
    return keras.Sequential([*first, *cells, keras.layers.Dense(10)])


def embedding(keras: Any) -> Any:
    """An embedding with a sparse gradient, for Adagrad."""
    first = [keras.Input((16,), dtype="int32"), keras.layers.Embedding(500, 64)]
    return keras.Sequential([*first, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(10)])


def lookup(keras: Any) -> Any:
    """Words, looked up in a table of the model."""
    words = keras.Input((4,), dtype="string")
    ids = keras.layers.StringLookup(vocabulary=[f"w{k}" for k in range(50)])(words)
    x = keras.layers.Flatten()(keras.layers.Embedding(51, 32)(ids))
    return keras.Model(words, keras.layers.Dense(10)(keras.layers.Dense(64, "relu")(x)))


def custom(keras: Any) -> Any:
    """A model whose train_step clips the gradients by their common norm."""
    import tensorflow as tf

    class Clipped(keras.Model):  # type: ignore[misc, name-defined]
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape() as tape:
                result = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=result)
            gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 1.0)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {**self.compute_metrics(x, y, result), "loss": loss, "norm": norm}

    plain = towers(keras)
    return Clipped(plain.inputs, plain.outputs)


def accumulated() -> Training:
    """Gradients of the batch's halves, added up and applied in one function."""
    import tensorflow as tf

    keras = first_day()
    model, optimizer = towers(keras), keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = model.trainable_variables
    optimizer.build(weights)

    def step(x: Any, y: Any) -> Any:
        total, losses = [tf.zeros_like(w) for w in weights], []
        for part, labels in zip(tf.split(x, 2), tf.split(y, 2), strict=True):
            with tf.GradientTape() as tape:
                losses.append(loss_of(labels, model(part, training=True)))
            total = [a + b for a, b in zip(total, tape.gradient(losses[-1], weights), strict=True)]
        optimizer.apply([g / 2.0 for g in total], weights)
        return tf.add_n(losses) / 2.0

    return written(step, "rows", [*model.variables, *optimizer.variables])


def gan() -> Training:
    """A generator and a discriminator, both trained in one function."""
    import tensorflow as tf

    keras = first_day()
    dense = keras.layers.Dense
    generator = keras.Sequential([keras.Input((64,)), dense(256, "relu"), dense(256, "relu"), dense(64, "sigmoid")])
    judge = keras.Sequential([keras.Input((64,)), dense(256, "relu"), dense(256, "relu"), dense(1)])
    optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]
    for optimizer, model in zip(optimizers, (generator, judge), strict=True):
        optimizer.build(model.trainable_variables)
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def step(x: Any, y: Any) -> Any:
        noise = x[::-1] * tf.cast(y, tf.float32)[:, None]
        with tf.GradientTape(persistent=True) as tape:
            made = generator(noise, training=True)
            true, false = judge(x, training=True), judge(made, training=True)
            judged = loss_of(tf.ones_like(true), true) + loss_of(tf.zeros_like(false), false)
            fooled = loss_of(tf.ones_like(false), false)
        for optimizer, model, loss in zip(optimizers, (generator, judge), (fooled, judged), strict=True):
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return judged + fooled

    variables = [v for part in (generator, judge, *optimizers) for v in part.variables]
    return written(step, "rows", variables)


def v1_graph() -> Any:
    """Two towers in a v1 graph, with Adam."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(7)
        x = v1.placeholder(tf.float32, [BATCH, 64], name="x")
        y = v1.placeholder(tf.int32, [BATCH], name="y")
        ends = []
        for k in range(2):
            end = x
            for depth, width in enumerate((64, 256, 256)):
                weight = v1.get_variable(f"w{k}_{depth}", [width, 256])
                end = tf.nn.relu(end @ weight + v1.get_variable(f"b{k}_{depth}", [256]))
            ends.append(end)
        logits = tf.concat(ends, 1) @ v1.get_variable("out", [512, 10])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        loss = tf.reduce_mean(losses, name="loss")
        v1.train.AdamOptimizer(0.001).minimize(loss, name="train")
        v1.global_variables_initializer()
    return graph


def v1_session() -> Training:
    """A session on it, with TensorFlow's settings for v1 as those of the process for functions."""
    import tensorflow as tf

    v1, graph, config = tf.compat.v1, v1_graph(), tf.compat.v1.ConfigProto()
    config.intra_op_parallelism_threads = tf.config.threading.get_intra_op_parallelism_threads()
    if tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer"):
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    with graph.as_default():
        variables = {v.op.name: v for v in v1.global_variables()}

    @functools.cache
    def opened() -> Any:
        session = v1.Session(graph=graph, config=config)
        session.run("init")
        return session

    def train(steps: int) -> list[float]:
        session = opened()
        feeds = [{"x:0": x, "y:0": y} for x, y in batches("rows", steps)]
        return [float(session.run(["loss:0", "train"], feed)[0]) for feed in feeds]

    return Training(train, lambda: opened().run(variables))


def saved_model(folder: Path) -> None:
    """Write a SavedModel whose signature `train` takes one step of SGD with momentum on two towers."""
    import tensorflow as tf

    keras = first_day()
    model, optimizer = towers(keras), keras.optimizers.SGD(0.1, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)
    kept = tf.Module()
    kept.variables_of = [v.value for v in (*model.variables, *optimizer.variables)]

    @tf.function(input_signature=[tf.TensorSpec([BATCH, 64]), tf.TensorSpec([BATCH], tf.int32)])
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return {"loss": loss}

    tf.saved_model.save(kept, str(folder), signatures={"train": train})


SAVED, SESSION = "SavedModel", "v1 session"
PROGRAMS: dict[str, Callable[[], Training] | None] = {
    "CNN": lambda: fitted(cnn, "image32"),
    "ResNet50": lambda: fitted(application("ResNet50"), "image64"),
    "MobileNetV2": lambda: fitted(application("MobileNetV2"), "image64"),
    "encoder, mixed_float16": lambda: fitted(encoder, "tokens"),
    "accumulation, Keras'": lambda: fitted(
        towers, "rows", lambda keras: keras.optimizers.Adam(gradient_accumulation_steps=2)
    ),
    "accumulation by hand": accumulated,
    "GAN": gan,
    "LSTM loop": lambda: fitted(lstm, "tokens"),
    "Embedding + Adagrad": lambda: fitted(embedding, "tokens", lambda keras: keras.optimizers.Adagrad(0.01)),
    "custom train_step": lambda: fitted(custom, "rows"),
    "StringLookup": lambda: fitted(lookup, "words"),
    SESSION: v1_session,
    SAVED: None,
}
"""How each is started; a SavedModel is no program that runs, and goes the way of `pesto run`."""
