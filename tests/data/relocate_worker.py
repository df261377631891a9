"""What holds variables that a plan moves; a script, as TensorFlow's devices are set once a process.

Prints a JSON line for each function: its name, and what it returned; test_relocate.py says what is right.
"""

import gc
import json
import sys
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.errors import PestoError
from pesto.verbs import api

api.logical_cpus(2)

import tensorflow as tf  # noqa: E402  # after the quiet load

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_cases  # noqa: E402

from pesto.tf.sources import sources  # noqa: E402

X = tf.ones([3, 4])


def weights() -> list[Any]:
    return [tf.Variable(np.full((4, 4), 0.1 * (k + 1), np.float32), name=f"w{k}") for k in range(2)]


def step(ws: list[Any]) -> Callable[[Any], Any]:
    def trained(x: Any) -> Any:
        with tf.GradientTape() as tape:
            for w in ws:
                x = tf.tanh(x @ w)
            loss = tf.reduce_sum(x)
        for w, gradient in zip(ws, tape.gradient(loss, ws), strict=True):
            w.assign_sub(0.1 * gradient)
        return loss

    return trained


def plan(fn: Callable[[Any], Any], device: int) -> Any:
    """All of a step on one of two devices."""
    found = fit_cases.random_plan(sources.from_function(tf.function(fn), tf.TensorSpec([3, 4])), "cpux2", 0)
    return replace(found, schedule=replace(found.schedule, device=np.full_like(found.schedule.device, device)))


def applied(*plans: Any) -> Any:
    return api.apply(*(plans or (plan(step(weights()), 1),)), devices="cpu")


def total(w: Any) -> float:
    return float(tf.reduce_sum(w))


def error(action: Callable[[], Any]) -> list[str]:
    try:
        action()
    except PestoError as found:
        return [type(found).__name__, str(found)]
    return ["", ""]


def where(ws: list[Any]) -> list[str]:
    return [w.handle.device[-1] for w in ws]


def outer_function_read_before() -> Any:
    """An outer function that captured a variable before the step inside it moved it."""

    def run() -> list[list[float]]:
        ws = weights()
        inner = tf.function(step(ws))
        outer = tf.function(lambda x: (tf.reduce_sum(ws[0]), inner(x)))
        return [[float(t) for t in outer(X)] for _ in range(4)]

    before = run()
    with applied():
        inside = run()
    return before, inside


def wrapped_function() -> Any:
    """A subclass of ConcreteFunction."""
    ws = weights()
    reads = tf.compat.v1.wrap_function(lambda: tf.reduce_sum(ws[0]), [])
    trained = tf.function(step(ws))
    with applied():
        trained(X)
        trained(X)
        inside = float(reads()), total(ws[0])
    trained(X)
    return inside, (float(reads()), total(ws[0]))


def loaded_model() -> Any:
    """A loaded SavedModel that is trained on: its function and its signature."""
    module = tf.Module()
    module.ws = weights()
    module.predict = tf.function(lambda x: x @ module.ws[0] @ module.ws[1], input_signature=[tf.TensorSpec([3, 4])])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
    served, ws = loaded.signatures["serving_default"], list(loaded.ws)

    def three() -> list[float]:
        return [total(loaded.predict(X)), total(next(iter(served(X).values()))), total(X @ ws[0] @ ws[1])]

    before = three()
    with applied():
        tf.function(step(ws))(X)
        inside = three()
    return before, inside, three()


def pipeline_that_reads() -> Any:
    """Refused before anything moves; not by a pipeline that is gone."""
    ws = weights()
    data = tf.data.Dataset.range(2).map(lambda _: tf.reduce_sum(ws[0]))
    with applied() as found:
        refused = error(lambda: tf.function(step(ws))(X))
        moved = where(ws)
        del data
        tf.function(step(ws))(X)
        data = tf.data.Dataset.range(2).map(lambda _: tf.reduce_sum(ws[0]))
        tf.function(step(ws))(X)
        reads = [float(next(iter(data))), total(ws[0])]
    return {"error": refused, "moved": moved, "findings": len(found.findings), "reads": reads}


def two_plans_in_one_context() -> Any:
    """They disagree about a variable; one after the other they may."""
    ws = weights()
    here, there = plan(step(ws), 0), plan(step(ws[:1]), 1)
    one, other = tf.function(step(ws)), tf.function(step(ws[:1]))
    with applied(here, there):
        one(X)
        refused = error(lambda: other(X))
        places = where(ws)
    with applied(there):
        other(X)
        after = where(ws)
    with applied(plan(step(ws[:1]), 0), here):
        other_again = tf.function(step(ws[:1]))
        agreed = error(lambda: (one(X), other_again(X)))
    return {"error": refused, "places": places, "after": after, "agreed": agreed}


def two_placed_steps() -> Any:
    """`place` has no end: refused while the other step exists."""
    ws = weights()
    first = api.place(step(ws), plan(step(ws), 0), devices="cpu")
    second = api.place(step(ws[:1]), plan(step(ws[:1]), 1), devices="cpu")
    first(X)
    refused = error(lambda: second(X))
    places = where(ws)
    del first
    freed = error(lambda: second(X))
    return {"error": refused, "places": places, "freed": freed, "after": where(ws)}


def traced_before() -> Any:
    """Refused before and after its variables have moved."""
    ws = weights()
    early = tf.function(step(ws)).get_concrete_function(tf.TensorSpec([3, 4]))
    with applied():
        first = error(lambda: early(X))
        tf.function(step(ws))(X)
        second = error(lambda: early(X))
    return first, second


def old_copies() -> Any:
    """Handles that still exist: the first one while it is moved away, then each context's."""
    ws = weights()
    predict, trained = tf.function(lambda x: x @ ws[0]), tf.function(step(ws))
    predict(X)
    first = weakref.ref(ws[0].handle)
    inside: list[Any] = []
    kept: list[Any] = []
    alive = []
    planned = plan(step(weights()), 1)
    for _ in range(3):
        with applied(planned) as found:
            trained(X)
            kept += [found, tf.function(step(ws))]
            kept[-1](X)
            inside.append(weakref.ref(ws[0].handle))
            gc.collect()
            alive.append(first() is not None)
        gc.collect()
    return alive, sum(handle() is not None for handle in inside)


def open_tape() -> Any:
    """Gradients through what was read before `place` moved the variable, and after."""
    ws = weights()
    placed = api.place(step(ws), plan(step(ws), 1), devices="cpu")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(X @ ws[0])
        placed(X)
        loss += tf.reduce_sum(X @ ws[0])
    gradient = tape.gradient(loss, ws[0])
    return where(ws), None if gradient is None else total(gradient)


def only_written() -> Any:
    """A variable that is assigned and never read, and a table, which cannot move."""
    ws, last = weights(), tf.Variable(0.0)

    def made(ws: list[Any], last: Any) -> Callable[[Any], Any]:
        def trained(x: Any) -> Any:
            loss = step(ws)(x)
            last.assign(loss, read_value=False)
            return loss

        return trained

    with applied(plan(made(weights(), tf.Variable(0.0)), 1)):
        loss = float(tf.function(made(ws, last))(X))
        inside = where([last])
    return inside, where([last]), loss == float(last)


for case in (
    outer_function_read_before, wrapped_function, loaded_model, pipeline_that_reads, two_plans_in_one_context,
    two_placed_steps, traced_before, old_copies, open_tape, only_written,
):  # fmt: skip
    try:
        said = case()
    except Exception as failed:  # told as a failure of this case alone
        said = {"raised": f"{type(failed).__name__}: {failed}"}
    print(json.dumps([case.__name__, said]), flush=True)
