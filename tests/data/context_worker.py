"""Borders of `pesto.apply` and `pesto.place`, in a process of its own: two logical CPUs. Prints one JSON object."""

import gc
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pesto
from pesto.core.errors import PestoError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
pesto.logical_cpus(2)

from pesto.tf.sources import sources  # noqa: E402

W, B = tf.Variable(tf.ones([8, 8])), tf.Variable(tf.ones([8]))
X = tf.ones([4, 8])


@tf.function
def step(x: Any) -> Any:
    """One update by gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(x @ W) + B)
    for variable, gradient in zip((W, B), tape.gradient(loss, [W, B]), strict=True):
        variable.assign_sub(0.01 * gradient)
    return loss


def planned(fn: Callable[..., Any]) -> Any:
    """A plan of a step on two logical CPUs."""
    return pesto.solve(sources.from_function(fn, tf.TensorSpec([4, 8])), cluster="cpux2", time_limit_s=0, solver="list")


PLAN = planned(step)
SCALE = tf.constant(0.5)


@tf.function
def scaled(x: Any) -> Any:
    """A step that reads an eager constant, which the trace has as an op and TensorFlow as an argument."""
    loss = tf.reduce_sum(x @ W * SCALE * tf.square(SCALE))
    W.assign_sub(SCALE * loss * tf.ones_like(W))
    return loss


def constants() -> list[int]:
    """[findings, inversions] of a step with a captured constant."""
    plan = pesto.solve(
        sources.from_function(scaled, tf.TensorSpec([4, 8])), cluster="cpux2", time_limit_s=0, solver="list"
    )
    with pesto.apply(plan) as applied:
        scaled(X)
    return [len(applied.findings), sum(len(f.inversions) for f in applied.findings)]


def told(act: Callable[[], Any]) -> str:
    """The kind and last line of what is raised, or 'done'."""
    try:
        act()
    except PestoError as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    return "done"


def contexts() -> list[int]:
    """Findings of contexts one after the other, which leave nothing behind that the next could take for its own."""
    found = []
    for _ in range(5):
        with pesto.apply(PLAN) as applied:
            step(X)
        found.append(len(applied.findings))
        del applied
        gc.collect()
    return found


def applied(act: Callable[[], Any], **how: Any) -> Callable[[], Any]:
    """`act` inside a context."""

    def inside() -> None:
        with pesto.apply(PLAN, **how):
            act()

    return inside


def retuned() -> None:
    """Grappler back on between two steps."""
    step(X)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    step(X)


def shorter() -> None:
    """A plan without its last op."""
    s = PLAN.schedule
    cut = {name: getattr(s, name)[:-1] for name in ("device", "start", "finish")}
    plan = replace(PLAN, names=PLAN.names[:-1], rank=PLAN.rank[:-1], schedule=replace(s, **cut))
    with pesto.apply(plan):
        step(X)


def twice(make: Callable[[], Any]) -> None:
    """A context that is entered again."""
    context = make()
    for _ in range(2):
        with context:
            step(X)


def mirrored() -> None:
    """A step under a strategy, recorded."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weight = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def everywhere() -> Any:
        return strategy.run(lambda: weight.assign_sub(tf.ones([8, 8])))

    with pesto.record():
        everywhere()


def threads() -> list[str]:
    """Two placed steps called from two threads."""
    placed = [pesto.place(step, PLAN), pesto.place(step, PLAN)]
    found: list[str] = []

    def work(one: Callable[..., Any]) -> None:
        found.append(told(lambda: [one(X) for _ in range(5)]))

    workers = [threading.Thread(target=work, args=(one,)) for one in placed]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def main() -> None:
    """All of it."""
    data = tf.data.Dataset.range(2)
    compiled = tf.function(step.python_function, jit_compile=True)
    extra = {"cpu:0": "CPU:0", "cpu:1": "CPU:1", "gpu:9": "CPU:1"}
    found = {
        "contexts": contexts(),
        "constants": constants(),
        "data": told(applied(lambda: data.reduce(tf.constant(0.0), lambda s, _: s + step(X)))),
        "retuned": told(applied(retuned)),
        "traced only": told(applied(lambda: step.get_concrete_function(X))),
        "traced times": told(applied(lambda: step(X), trace=True)),
        "inside a function": told(lambda: tf.function(pesto.place(step, PLAN), autograph=False)(X)),
        "compiled": told(lambda: pesto.place(compiled, PLAN)),
        "concrete": told(lambda: pesto.place(step.get_concrete_function(X), PLAN)),
        "no step": told(lambda: pesto.place(None, PLAN)),
        "no plan": [told(lambda bad=bad: pesto.apply(bad)) for bad in (None, [PLAN], 3)],
        "order": told(lambda: pesto.apply(PLAN, order="no")),
        "devices": told(lambda: pesto.apply(PLAN, devices=3)),
        "strange device": told(lambda: pesto.apply(PLAN, devices=extra)),
        "not entered": told(pesto.apply),
        "not called": told(lambda: pesto.place(step, PLAN, devices="tpu")),
        "no such device": told(lambda: pesto.place(step, PLAN, devices={"cpu:0": "CPU:0", "cpu:1": "GPU:7"})),
        "lacking device": told(lambda: pesto.place(step, PLAN, devices={"cpu:0": "CPU:0"})),
        "an op taken out": told(shorter),
        "applied twice": told(lambda: twice(lambda: pesto.apply(PLAN))),
        "recorded twice": told(lambda: twice(pesto.record)),
        "mirrored": told(mirrored),
        "short names": told(applied(lambda: step(X), devices={"cpu:0": "CPU:1", "cpu:1": "/cpu:0"})),
        "counts": [told(lambda bad=bad: pesto.logical_cpus(bad)) for bad in ("2", 0, 2.0)],
        "batches": [told(lambda bad=bad: pesto.record(batch=bad)) for bad in (-1, "a")],
        "threads": threads(),
        "nested": told(applied(lambda: pesto.place(step, PLAN)(X))),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
