"""Keras programs inside pesto.apply; a script, as TensorFlow's devices are set once a process.

Prints a JSON line for each function: its name, and what it returned or raised; test_fit.py says what is right.
"""

import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.errors import PestoError
from pesto.verbs import api

api.logical_cpus(2)

import keras  # noqa: E402  # after the quiet load
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_cases  # noqa: E402

from pesto.tf.sources import sources  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
X = np.random.default_rng(0).random((20, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, 20)


def made(hidden: int = 5, **how: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(hidden, "relu"), layers.Dropout(0.3), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, **{"jit_compile": False, **how})
    return model


def fit(model: Any, **how: Any) -> Any:
    return model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, **how).history


def planned(hidden: int = 5) -> Any:
    """A random plan on two devices."""
    graph = sources.from_keras(made(hidden), 8, data=(X, Y))
    return fit_cases.random_plan(graph, "cpux2", 0)


def places(model: Any) -> list[str]:
    every = [*model.variables, *model.optimizer.variables]
    return sorted({v.value.handle.device[-1] for v in every})


def state(model: Any) -> list[list[float]]:
    return [np.ravel(v.numpy()).tolist() for v in [*model.variables, *model.optimizer.variables]]


def settings() -> Any:
    """What a context changes in the process."""
    options = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    return [options, tf.config.get_soft_device_placement(), tf.GradientTape.gradient.__qualname__]


def applied(*plans: Any) -> Any:
    return api.apply(*(plans or (PLAN,)), devices="cpu")


def refused(action: Callable[[Any], Any], **how: Any) -> Any:
    """What stops `action` on a model in a context, and whether the model is as it was."""
    before, model = settings(), made(**how)
    weights = model.get_weights()
    try:
        with applied():
            action(model)
    except PestoError as error:
        trained = any((a != b).any() for a, b in zip(weights, model.get_weights(), strict=True))
        undone = settings() == before and places(model) == ["0"]
        return {"error": type(error).__name__, "text": str(error), "undone": undone, "trained": trained}
    return {"error": None}


def everything_of_fit() -> Any:
    """Validation, callbacks that save, stop and change the rate; evaluate and predict."""

    def run() -> Any:
        model = made()
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "x.weights.h5"
            watch = [
                keras.callbacks.ModelCheckpoint(kept, save_weights_only=True),
                keras.callbacks.EarlyStopping("loss", patience=1, min_delta=10.0),
                keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / (epoch + 1)),
            ]
            history = fit(model, epochs=5, validation_data=(X, Y), callbacks=watch)
            fresh = made()
            fresh.load_weights(kept)
        last = [model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0).tolist()]
        return [history, last, state(model), [w.tolist() for w in fresh.get_weights()]], places(model)

    before, _ = run()
    with applied() as found:
        inside, where = run()
    return {
        "equal": before == inside, "epochs": len(inside[0]["loss"]), "findings": len(found.findings), "where": where
    }  # fmt: skip


def accumulation() -> Any:
    """An optimizer that writes the variables in a branch only, every other step."""

    def run() -> Any:
        model = made()
        model.compile(keras.optimizers.Adam(gradient_accumulation_steps=2), model.loss, jit_compile=False)
        return [fit(model), fit(model), state(model)]

    with api.record(batch=8) as recorded:
        before = run()
    with applied(fit_cases.random_plan(recorded.graph, "cpux2", 0)) as found:
        inside = run()
    return {"equal": before == inside, "findings": len(found.findings)}


def loss_scaling(**accumulated: Any) -> Any:
    """An optimizer in a branch of loss scaling: some steps overflow and are left out, and the scale grows after two."""
    x, y = np.repeat(X, 2, axis=0), np.random.default_rng(1).random((40, 1)).astype("float32")
    y[20] = y[33] = 3e3

    def model() -> Any:
        keras.utils.set_random_seed(1)
        keras.config.set_dtype_policy("mixed_float16")
        given = keras.Input((6,))
        towers = [layers.Dense(5)(layers.Dense(12, "relu")(given)) for _ in range(2)]
        made = keras.Model(given, layers.Dense(1, dtype="float32")(layers.Add()(towers)))
        inner = keras.optimizers.Adam(global_clipnorm=0.5, **accumulated)
        scaled = keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=2)
        made.compile(scaled, "mse", jit_compile=False)
        return made

    def run() -> Any:
        made, losses, scales = model(), [], []
        for start in range(0, 40, 4):
            losses.append(float(made.train_on_batch(x[start : start + 4], y[start : start + 4])))
            scales.append(float(made.optimizer.dynamic_scale))
        return [losses, scales, state(made)]

    try:
        plan = fit_cases.random_plan(sources.from_keras(model(), 4, static=True), "cpux2", 0)
        before = run()
        with applied(plan) as found:
            inside = run()
    finally:
        keras.config.set_dtype_policy("float32")
    where = {
        plan.lane_device[d] for name, d in zip(plan.names, plan.schedule.device, strict=True) if "/pesto_part_" in name
    }
    grew = [b > a for a, b in itertools.pairwise(before[1])]
    fell = [b < a for a, b in itertools.pairwise(before[1])]
    return {
        "equal": before == inside,
        "findings": len(found.findings),
        "both": any(grew) and any(fell),
        "devices": len(where),
    }


def two_models() -> Any:
    """Two plans in one context; the models train by turns."""

    def run() -> Any:
        one, two = made(5), made(7)
        losses = [fit(one), fit(two), fit(one), fit(two)]
        return [losses, state(one), state(two)]

    before = run()
    with applied(PLAN, planned(7)) as found:
        inside = run()
    return {"equal": before == inside, "findings": len(found.findings)}


def few_rows() -> Any:
    """A table of fewer rows than a batch has ids, by a plan of an open batch and by one of a fixed size."""

    def run() -> Any:
        model = made_of_table()
        return [model.fit(data, verbose=0).history, state(model)]

    def made_of_table() -> Any:
        keras.utils.set_random_seed(1)
        parts = [layers.Embedding(5, 4), layers.Flatten(), layers.Dense(3)]
        model = keras.Sequential([keras.Input((1,), dtype="int64"), *parts])
        model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        return model

    ids = np.random.default_rng(2).integers(0, 5, (16, 1))
    data = tf.data.Dataset.from_tensor_slices((ids, Y[:16])).batch(8, drop_remainder=True)
    before, inside, found = run(), [], []
    for static in (False, True):
        graph = sources.from_keras(made_of_table(), 8, static=static, data=(ids, Y[:16]))
        with applied(fit_cases.random_plan(graph, "cpux2", 0)) as context:
            inside.append(run())
        found.append(len(context.findings))
    return {"equal": all(one == before for one in inside), "findings": found}


class _Gan(keras.Model):
    """A generator and a discriminator, whose steps are one."""

    def __init__(self, generator: Any, discriminator: Any) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.second = keras.optimizers.SGD(0.1)
        self.second.build(discriminator.trainable_variables)
        self.compile("sgd", jit_compile=False)
        self.optimizer.build(generator.trainable_variables)

    def train_step(self, data: Any) -> Any:
        noise, real, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            lost = tf.reduce_mean(self.discriminator(self.generator(noise)) - self.discriminator(real))
        weights = self.discriminator.trainable_variables
        self.second.apply(tape.gradient(lost, weights), weights)
        with tf.GradientTape() as tape:
            won = -tf.reduce_mean(self.discriminator(self.generator(noise)))
        weights = self.generator.trainable_variables
        self.optimizer.apply(tape.gradient(won, weights), weights)
        return {"discriminator": lost, "generator": won}


def both_of_gan() -> Any:
    """Two models that share weights, by a plan of each and by one of a model whose train_step does both."""

    def parts() -> Any:
        keras.utils.set_random_seed(1)
        generator = keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu"), layers.Dense(6)])
        discriminator = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)], name="critic")
        return generator, discriminator

    def apart() -> Any:
        generator, discriminator = parts()
        discriminator.compile("sgd", "mse", jit_compile=False)
        discriminator.trainable = False
        noise = keras.Input((3,))
        both = keras.Model(noise, discriminator(generator(noise)), name="both")
        both.compile("sgd", "mse", jit_compile=False)
        discriminator.trainable = True
        return discriminator, both

    def run() -> Any:
        model = _Gan(*parts())
        losses = [model.train_on_batch(X[:8, :3], X[8:16], return_dict=True) for _ in range(2)]
        return [{name: float(loss) for name, loss in row.items()} for row in losses], state(model)

    plans = [fit_cases.random_plan(sources.from_keras(model, 8), "cpux2", k) for k, model in enumerate(apart())]
    discriminator, both = apart()
    try:
        with applied(*plans):
            discriminator.train_on_batch(X[:8], X[:8, :1])
            both.train_on_batch(X[:8, :3], X[:8, :1])
        text = None
    except PestoError as error:
        text = str(error)
    before = run()
    plan = fit_cases.random_plan(sources.from_keras(_Gan(*parts()), 8, data=(X[:8, :3], X[:8])), "cpux2", 0)
    with applied(plan) as found:
        inside = run()
    return {"equal": before == inside, "findings": len(found.findings), "text": text}


def the_same_plan_again() -> Any:
    """Context after context around one model, and a model left alone in between."""
    alone, model = made(), made()
    before = [fit(alone) for _ in range(4)]
    inside, where, found = [], [], []
    for k in range(4):
        with applied() if k != 2 else contextlib.nullcontext() as context:
            inside.append(fit(model))
            where.append(places(model))
        found.append(len(context.findings) if context else 0)
    return {"equal": before == inside and state(alone) == state(model), "where": where, "findings": found}


def interrupted() -> Any:
    """Ctrl-C in the middle of fit: everything is undone, and training goes on outside."""

    def stop(batch: int, logs: Any) -> None:
        if batch == 1:
            raise KeyboardInterrupt

    def run(context: Any) -> Any:
        model = made()
        with contextlib.suppress(KeyboardInterrupt), context:
            fit(model, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stop)])
        return [places(model), settings(), fit(model), state(model)]

    return {"equal": run(contextlib.nullcontext()) == run(applied())}


def rate_schedule() -> Any:
    """A learning rate that the step computes: another graph, recorded from the program."""

    def run() -> Any:
        rate = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
        model = made()
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), model.loss, jit_compile=False)
        return [fit(model), state(model)]

    with api.record(batch=8) as recorded:
        before = run()
    plan = fit_cases.random_plan(recorded.graph, "cpux2", 0)
    with applied(plan) as found:
        inside = run()
    return {"equal": before == inside, "findings": len(found.findings)}


def tape_outside() -> Any:
    """A tape around tf.functions: gradients that no plan sees."""

    def action(model: Any) -> None:
        forward = tf.function(lambda x, y: model.loss(y, model(x, training=True)))
        with tf.GradientTape() as tape:
            loss = forward(X, Y)
        model.optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )

    return refused(action)


def tape_on_inputs() -> Any:
    """Gradients of inputs train nothing: they are let through."""
    model, x = made(), tf.constant(X)
    with applied():
        fit(model)
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = model(x)
        return {"shape": tape.gradient(out, x).shape.as_list()}


def eager_after_planned() -> Any:
    """A second model that runs eagerly, after the planned one."""

    def action(model: Any) -> None:
        fit(model)
        fit(made(7, run_eagerly=True))

    return {**refused(action), "trained": False}


def traced_before() -> Any:
    """A concrete function from before the context."""
    model = made()
    model.optimizer.build(model.trainable_variables)
    concrete = fit_cases.step_of(model, nested=False).get_concrete_function()
    return refused(lambda _: concrete(tf.constant(X), tf.constant(Y, tf.int32)))


def mirrored() -> Any:
    """A distribution strategy."""
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = made()
    return refused(lambda _: fit(model))


def clustering() -> Any:
    """XLA for the whole program."""
    tf.config.optimizer.set_jit(True)
    try:
        return refused(fit)
    finally:
        tf.config.optimizer.set_jit(False)


CASES = {
    "everything": everything_of_fit,
    "two models": two_models,
    "few rows": few_rows,
    "both of a GAN": both_of_gan,
    "again": the_same_plan_again,
    "interrupted": interrupted,
    "rate": rate_schedule,
    "accumulation": accumulation,
    "loss scaling": loss_scaling,
    "loss scaling and accumulation": lambda: loss_scaling(gradient_accumulation_steps=2),
    "eager": lambda: refused(fit, run_eagerly=True),
    "eager later": eager_after_planned,
    "tape": tape_outside,
    "tape on inputs": tape_on_inputs,
    "steps": lambda: refused(fit, steps_per_execution=2),
    "compiled": lambda: refused(fit, jit_compile=True),
    "mirrored": mirrored,
    "clustering": clustering,
    "traced before": traced_before,
    "other model": lambda: refused(fit, hidden=9),
    "nothing": lambda: refused(lambda _: None),
}

if __name__ == "__main__":
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    PLAN = planned()
    for name in sys.argv[1:] or CASES:
        try:
            result = CASES[name]()
        except Exception as error:  # a test says what it should have been
            result = {"raised": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": name, **result}), flush=True)
