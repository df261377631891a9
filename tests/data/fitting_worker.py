"""Programs that are, or nearly are, the ones that their plans are for; a script, as TensorFlow's devices are set once.

Prints a JSON line for each case: its name, and what came of it; test_fitting.py says what is right.
"""

import json
import sys
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


def data(rows: int, labels: str = "int32", features: str = "float32") -> tuple[Any, Any]:
    x = np.linspace(-1, 1, rows * 6).reshape(rows, 6)
    return x.astype(features), (np.arange(rows) % 3).astype(labels)


def made(optimizer: Any = "adam", hidden: int = 5) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(hidden, "relu"), layers.Dropout(0.3), layers.Dense(3)])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def planned(**how: Any) -> Any:
    return fit_cases.random_plan(sources.from_keras(made(), 32, **how), "cpux2", 0)


def fit(rows: int, batch: int = 32, model: Any = None, **how: Any) -> Any:
    model = model or made()
    history = model.fit(*data(rows), batch_size=batch, verbose=0, shuffle=False, **how).history
    return [history["loss"], [np.ravel(w).tolist() for w in model.get_weights()]]


def by(plan: Any, act: Callable[[], Any], devices: Any = "cpu") -> dict[str, Any]:
    """What a program gives by a plan: as without one, or what it is refused for."""
    try:
        with api.apply(plan, devices=devices) as applied:
            inside = act()
    except PestoError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"equal": inside == act(), "findings": len(applied.findings), "ops": applied.ops}


def trained(model: Any, x: Any, y: Any, **how: Any) -> Any:
    """`fit` on batches of 32, the last smaller."""
    return model.fit(x, y, batch_size=32, verbose=0, shuffle=False, **how).history["loss"]


def named(rows: int) -> dict[str, Any]:
    """A model whose inputs have names, in whole batches: a dict of them is traced with an open batch, too."""
    x, y = data(rows)
    parts = {"left": x[:, :2], "right": x[:, 2:]}

    def made_of_two() -> Any:
        keras.utils.set_random_seed(1)
        inputs = {name: keras.Input((part.shape[1],), name=name) for name, part in parts.items()}
        model = keras.Model(inputs, layers.Dense(3)(layers.Concatenate()(list(inputs.values()))))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        return model

    plan = fit_cases.random_plan(sources.from_keras(made_of_two(), 32, data=(parts, y)), "cpux2", 0)
    return by(plan, lambda: trained(made_of_two(), parts, y))


def stepped(rows: int) -> Any:
    """A loop of one's own, with a step that takes an iterator: the batch is no argument of it."""
    weight = tf.Variable(tf.ones([6, 1]))

    @tf.function
    def step(batches: Any) -> Any:
        x = next(batches)
        loss = tf.reduce_mean(tf.square(x @ weight))
        weight.assign_sub(tf.transpose(x[:1]) * loss)
        return loss

    def run(rows: int) -> Any:
        step(iter(tf.data.Dataset.from_tensor_slices(data(40)[0]).batch(rows)))
        return weight.numpy().tolist()

    with api.record(batch=32) as recorded:
        run(32)
    before = weight.numpy().tolist()
    plan = fit_cases.random_plan(recorded.graph, "cpux2", 0)

    def act() -> Any:
        weight.assign(before)
        return run(rows)

    # An iterator's ops are where it is.
    return {**by(plan, act, {"cpu:0": "CPU:0", "cpu:1": "CPU:0"}), "untouched": weight.numpy().tolist() == before}


def larger_later() -> Any:
    """A batch that is larger, once the step has been verified: nothing of it is trained."""
    model = made()
    weights: list[Any] = []

    def act() -> Any:
        trained(model, *data(200))
        weights.extend(model.get_weights())
        return model.fit(*data(200), batch_size=64, verbose=0)

    found = by(OPEN, act)
    if len(weights) != len(model.get_weights()):
        return found
    same = all((a == b).all() for a, b in zip(weights, model.get_weights(), strict=True))
    return {**found, "untouched": same and len(weights) > 0}


def placed(rows: int) -> Any:
    """`pesto.place`, on a function of open batch."""
    weight = tf.Variable(tf.ones([6, 1]))

    def step(x: Any) -> Any:
        loss = tf.reduce_mean(tf.square(x @ weight))
        weight.assign_sub(tf.transpose(x[:1]) * loss)
        return loss

    traced = tf.function(step, input_signature=[tf.TensorSpec([None, 6])])
    with api.record(batch=32) as recorded:
        traced(data(32)[0])
    plan = fit_cases.random_plan(recorded.graph, "cpux2", 0)
    try:
        loss = api.place(step, plan, devices="cpu")(tf.constant(data(rows)[0]))
    except PestoError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"loss": float(loss)}


def fed(rows: int) -> Any:
    """A v1 session, whose placeholder leaves the batch open."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 6], name="x")
        weight = tf.compat.v1.get_variable("w", [6, 1], use_resource=True)
        loss = tf.reduce_mean(tf.square(x @ weight))
        tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf.compat.v1.global_variables_initializer()
    plan = api.solve(sources.from_v1(graph, ["train"], batch=32), cluster="cpux2", time_limit_s=0, solver="list")
    try:
        with api.apply(plan) as applied, tf.compat.v1.Session(graph=graph) as session:
            session.run("init")
            session.run("train", {"x:0": data(32)[0]})
            session.run("train", {"x:0": data(rows)[0]})
    except PestoError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"findings": len(applied.findings)}


def ids(dtype: str) -> tuple[Any, Any, Any]:
    """An embedding, and whole numbers as its features and labels."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(9, 4), layers.Flatten()])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model, np.arange(240).reshape(40, 6).astype(dtype) % 9, (np.arange(40) % 3).astype(dtype)


def whole_numbers() -> Any:
    """Features and labels of another dtype, both."""
    model, *batch = ids("int32")
    plan = fit_cases.random_plan(sources.from_keras(model, 32, data=batch), "cpux2", 0)
    return by(plan, lambda: trained(*ids("int64")))


def halved(x: Any) -> Any:
    """A step of one function."""
    loss = tf.reduce_mean(tf.square(x @ WEIGHT))
    WEIGHT.assign_sub(tf.transpose(x[:1]) * loss)
    return loss


def in_a_function(rows: int, *, twice: bool) -> Any:
    """A tf.function without a signature, planned for 12 rows, that calls another or is called by eager code."""
    step = tf.function(halved)

    @tf.function
    def both(x: Any) -> Any:
        return step(x) + step(2 * x)

    called = both if twice else step
    plan = fit_cases.random_plan(sources.from_function(called, tf.TensorSpec([None, 6]), batch=12), "cpux2", 0)
    return by(plan, lambda: called(tf.constant(data(rows)[0])))


CASES: dict[str, Callable[[], Any]] = {
    "remainder": lambda: by(OPEN, lambda: fit(200)),
    "whole": lambda: by(OPEN, lambda: fit(96)),
    "whole, by name": lambda: named(96),
    "smaller": lambda: by(OPEN, lambda: fit(96, 8)),
    "whole, fixed": lambda: by(FIXED, lambda: fit(96)),
    "remainder, fixed": lambda: by(FIXED, lambda: fit(200)),
    "other size, fixed": lambda: by(FIXED, lambda: fit(96, 16)),
    "larger": lambda: by(OPEN, lambda: fit(200, 64)),
    "larger, whole": lambda: by(OPEN, lambda: fit(128, 64)),
    "larger later": larger_later,
    "larger, iterator": lambda: stepped(40),
    "as planned, iterator": lambda: stepped(32),
    "larger, placed": lambda: placed(40),
    "smaller, placed": lambda: placed(8),
    "larger, fed": lambda: fed(40),
    "smaller, fed": lambda: fed(8),
    "labels": lambda: by(OPEN, lambda: trained(made(), *data(200, "int64"))),
    "labels, whole": lambda: by(OPEN, lambda: trained(made(), *data(96, "int64"))),
    "labels, fixed": lambda: by(FIXED, lambda: trained(made(), *data(96, "int64"))),
    "ids and labels": whole_numbers,
    "class_weight": lambda: by(OPEN, lambda: fit(200, class_weight={0: 1.0, 1: 2.0, 2: 1.0})),
    "sample_weight, whole": lambda: by(OPEN, lambda: fit(96, sample_weight=np.ones(96, "float32"))),
    "no weights": lambda: by(planned(data=(*data(32), np.ones(32, "float32"))), lambda: fit(200)),
    "optimizer": lambda: by(OPEN, lambda: fit(200, model=made("sgd"))),
    "clipnorm": lambda: by(OPEN, lambda: fit(200, model=made(keras.optimizers.Adam(clipnorm=1.0)))),
    "weight decay": lambda: by(OPEN, lambda: fit(96, model=made(keras.optimizers.Adam(weight_decay=0.1)))),
    "hidden": lambda: by(OPEN, lambda: fit(200, model=made(hidden=7))),
    "function, other size": lambda: in_a_function(11, twice=False),
    "function in a function": lambda: in_a_function(12, twice=True),
    "strangers": lambda: by(OPEN, lambda: trained(*ids("int32"))),
}

if __name__ == "__main__":
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    WEIGHT = tf.Variable(tf.ones([6, 1]))
    OPEN, FIXED = planned(), planned(static=True)
    for case in sys.argv[1:] or CASES:
        try:
            result = CASES[case]()
        except Exception as error:  # a test says what it should have been
            result = {"raised": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": case, **result}), flush=True)
