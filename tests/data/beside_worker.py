"""Small GANs whose two steps run under two plans, the second made beside the first; a script of its own.

Prints a JSON line for each case: what of the plans agrees, and whether training equals that without plans.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np

import pesto
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
pesto.logical_cpus(5)

import keras  # noqa: E402

from pesto.tf import sources  # noqa: E402

X = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")
NOISE = np.random.default_rng(1).normal(size=(8, 3)).astype("float32")
ONES = np.ones((8, 1), "float32")
SPECS = (tf.TensorSpec([8, 6]), tf.TensorSpec([8, 3]))


def parts() -> tuple[Any, Any]:
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    dense = keras.layers.Dense
    generator = keras.Sequential([keras.Input((3,)), dense(8, "relu"), dense(6)], name="generator")
    critic = keras.Sequential([keras.Input((6,)), dense(8, "relu"), dense(1)], name="critic")
    return generator, critic


class Gan(keras.Model):
    """Two train functions of one object."""

    def __init__(self) -> None:
        super().__init__(name="gan")
        self.generator, self.critic = parts()
        self.first, self.second = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)
        self.first.build(self.critic.trainable_variables)
        self.second.build(self.generator.trainable_variables)

    def train_critic(self, x: Any, noise: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.critic(self.generator(noise)) - self.critic(x))
        weights = self.critic.trainable_variables
        self.first.apply(tape.gradient(loss, weights), weights)
        return loss

    def train_generator(self, x: Any, noise: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self.critic(self.generator(noise)) + 0.0 * tf.reduce_mean(x))
        weights = self.generator.trainable_variables
        self.second.apply(tape.gradient(loss, weights), weights)
        return loss


def by_functions(plans: Callable[..., Any]) -> tuple[list[Any], int]:
    gan = Gan()
    critic, generator = tf.function(gan.train_critic), tf.function(gan.train_generator)
    with plans() as applied:
        for _ in range(2):
            critic(X, NOISE)
            generator(X, NOISE)
    return [v.numpy() for v in (*gan.critic.variables, *gan.generator.variables)], len(applied.findings)


def compiled() -> tuple[Any, Any]:
    generator, critic = parts()
    critic.compile("sgd", "mse", jit_compile=False)
    critic.trainable = False
    noise = keras.Input((3,))
    both = keras.Model(noise, critic(generator(noise)), name="both")
    both.compile("sgd", "mse", jit_compile=False)
    critic.trainable = True
    return critic, both


def by_batches(plans: Callable[..., Any]) -> tuple[list[Any], int]:
    critic, both = compiled()
    with plans() as applied:
        for _ in range(2):
            critic.train_on_batch(X, ONES)
            both.train_on_batch(NOISE, ONES)
    return [v.numpy() for v in both.variables], len(applied.findings)


class NoPlan:
    """A context like that of `pesto.apply`, without a plan."""

    findings = ()

    def __enter__(self) -> "NoPlan":
        return self

    def __exit__(self, *_: object) -> None:
        return None


def case(name: str, graphs: tuple[Any, Any], run: Callable[..., Any]) -> None:
    options = {"cluster": "cpux2", "time_limit_s": 0, "solver": "list"}
    first = spread(graphs[0], options)
    second = pesto.solve(graphs[1], beside=first, **options)
    pesto.check(second, graphs[1])
    a, b = first.variable_devices(), second.variable_devices()
    shared = a.keys() & b.keys()
    planned, findings = run(lambda: pesto.apply(first, second, devices="cpu"))
    plain, _ = run(NoPlan)
    row = {
        "case": name, "shared": len(shared), "same places": all(a[v] == b[v] for v in shared),
        "devices": len({a[v] for v in shared}), "findings": findings,
        "equal": all(np.array_equal(x, y) for x, y in zip(planned, plain, strict=True)),
        "unchanged": second.provenance.graph_fingerprint == graphs[1].fingerprint(),
        "sources": [plan.provenance.graph_source for plan in (first, second)],
        "bound": second.provenance.lower_bound_name,
    }  # fmt: skip
    print(json.dumps(row), flush=True)


def spread(graph: Any, options: Any) -> Any:
    """A plan that has the shared variables on both devices, whatever is shortest: made beside one that says so."""
    from dataclasses import replace

    plan = pesto.solve(graph, **options)
    lanes = plan.schedule.device.copy()
    cpus = [plan.lane_device.index(name) for name in dict.fromkeys(plan.lane_device)]
    for k, op in enumerate(plan.held.op):
        lanes[op] = cpus[k % 2]
    moved = replace(plan, schedule=replace(plan.schedule, device=lanes))
    return pesto.solve(graph, beside=moved, **options)


def example(critic_graph: Any, generator_graph: Any) -> None:
    """Run the example of the documentation with a quick search, on logical CPUs; its dots train."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "enforce.md").read_text(encoding="utf-8")
    begin = page.index("    critic = pesto.solve(")
    code = dedent(page[begin : page.index("\n\n", begin)])
    found = []

    @contextmanager
    def apply(*plans: Any) -> Iterator[Any]:
        with pesto.apply(*plans, devices="cpu") as applied:
            yield applied
            found.append(len(applied.findings))

    def train() -> None:
        gan = Gan()
        for step in (gan.train_critic, gan.train_generator):
            tf.function(step)(X, NOISE)

    quick = SimpleNamespace(solve=partial(pesto.solve, time_limit_s=0, solver="list"), apply=apply)
    given = {"pesto": quick, "critic_graph": critic_graph, "generator_graph": generator_graph, "train": train}
    exec(code.replace("...", "train()"), given)  # noqa: S102  # the documentation's own code
    print(json.dumps({"case": "example", "findings": found[0], "beside": len(given["generator"].pins)}), flush=True)


def recorded() -> tuple[Any, ...]:
    """The steps that two models run by train_on_batch, each taken in a context of its own."""
    found = []
    for model, x in zip(compiled(), (X, NOISE), strict=True):
        with pesto.record() as step:
            model.train_on_batch(x, ONES)
        found.append(step.graph)
    return tuple(found)


def main() -> None:
    gan = Gan()
    functions = tuple(sources.from_function(f, *SPECS) for f in (gan.train_critic, gan.train_generator))
    example(*functions)
    case("functions", functions, by_functions)
    models = tuple(sources.from_keras(model, 8, static=True) for model in compiled())
    case("train_on_batch", models, by_batches)
    case("recorded", recorded(), by_batches)


if __name__ == "__main__":
    main()
