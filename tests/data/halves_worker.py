"""Steps in two functions: gradients accumulated by hand, and a GAN; a script, as TensorFlow's devices are set once.

Prints a JSON line for each case: its name, and what came of it; test_halves.py says what is right.
"""

import json
from collections.abc import Callable
from typing import Any

import pesto
from pesto.core.errors import PestoError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
pesto.logical_cpus(2)

X = tf.random.stateless_normal([16, 8], seed=[1, 2])


class Accumulating:
    """Two layers, gradients summed by one function and applied by another."""

    def __init__(self) -> None:
        self.weights = [tf.Variable(tf.random.stateless_normal([8, 8], seed=[3, k])) for k in range(2)]
        self.sums = [tf.Variable(tf.zeros([8, 8]), trainable=False) for _ in range(2)]

    def gradients(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ self.weights[0]) @ self.weights[1])
        return tape.gradient(loss, self.weights)

    def accumulate(self, x: Any) -> None:
        for total, gradient in zip(self.sums, self.gradients(x), strict=True):
            total.assign_add(gradient)

    def update(self) -> None:
        for weight, total in zip(self.weights, self.sums, strict=True):
            weight.assign_sub(0.1 * total)
            total.assign(tf.zeros_like(total))

    def both(self, x: Any) -> None:
        """The remedy: as many batches as are accumulated, and the update."""
        totals = [a + b for a, b in zip(*map(self.gradients, tf.split(x, 2)), strict=True)]
        for weight, total in zip(self.weights, totals, strict=True):
            weight.assign_sub(0.1 * total)


class Gan:
    """A generator and a discriminator, each trained by a function through the other's variables."""

    def __init__(self) -> None:
        self.generator = tf.Variable(tf.random.stateless_normal([8, 8], seed=[5, 0]))
        self.discriminator = tf.Variable(tf.random.stateless_normal([8, 1], seed=[5, 1]))

    def _trained(self, variable: Any, sign: float, x: Any) -> None:
        with tf.GradientTape() as tape:
            made = tf.tanh(x @ self.generator)
            loss = sign * tf.reduce_mean(tf.tanh(made @ self.discriminator) - tf.tanh(x @ self.discriminator))
        variable.assign_sub(0.1 * tape.gradient(loss, [variable])[0])

    def discriminate(self, x: Any) -> None:
        self._trained(self.discriminator, 1.0, x)

    def generate(self, x: Any) -> None:
        self._trained(self.generator, -1.0, x)

    def both(self, x: Any) -> None:
        """The remedy."""
        self.discriminate(x)
        self.generate(x)


def told(act: Callable[[], Any]) -> str:
    try:
        act()
    except PestoError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def recorded(*calls: Callable[[], Any]) -> Any:
    """The graph of what was trained."""
    with pesto.record() as found:
        for call in calls:
            call()
    return found.graph


def by_plan(made: Callable[[], Any]) -> dict[str, Any]:
    """`both` of a new object, planned as it is recorded; what it gives by the plan, and without."""
    plan = pesto.solve(recorded(lambda: tf.function(made().both)(X)), cluster="cpux2", time_limit_s=0, solver="list")
    planned, plain = made(), made()
    with pesto.apply(plan, devices="cpu") as applied:
        tf.function(planned.both)(X)
    tf.function(plain.both)(X)
    pairs = zip(vars(planned).values(), vars(plain).values(), strict=True)
    flat = [pair for a, b in pairs for pair in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)]
    return {"findings": len(applied.findings), "equal": all(bool(tf.reduce_all(a == b)) for a, b in flat)}


def watched(made: Accumulating, x: Any) -> Any:
    """Norms of gradients of inputs: no half of a step."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.tanh(x @ made.weights[0]))
    return tape.gradient(loss, x)


def main() -> None:
    a, gan = Accumulating(), Gan()
    accumulate, update = tf.function(a.accumulate), tf.function(a.update)
    plan = pesto.solve(
        recorded(lambda: tf.function(Accumulating().both)(X)), cluster="cpux2", time_limit_s=0, solver="list"
    )

    def applied(act: Callable[[], Any]) -> None:
        with pesto.apply(plan, devices="cpu"):
            act()
            tf.function(Accumulating().both)(X)

    cases = {
        "accumulation, recorded": lambda: told(lambda: recorded(lambda: accumulate(X), update)),
        "accumulation, by a plan": lambda: told(lambda: applied(lambda: tf.function(a.accumulate)(X))),
        "accumulation in one": lambda: by_plan(Accumulating),
        "gan, recorded": lambda: told(
            lambda: recorded(*(lambda f=f: tf.function(f)(X) for f in (gan.discriminate, gan.generate)))
        ),
        "gan in one": lambda: by_plan(Gan),
        "gradients of inputs": lambda: told(lambda: applied(lambda: tf.function(lambda x: watched(a, x))(X))),
        "gradients by an inner function": lambda: told(
            lambda: recorded(lambda: tf.function(_through(Accumulating()))(X))
        ),
    }
    for name, case in cases.items():
        print(json.dumps({"case": name, "found": case()}), flush=True)


def _through(made: Accumulating) -> Callable[[Any], None]:
    """A step whose gradients a tf.function of its own takes."""
    inner = tf.function(made.gradients)

    def step(x: Any) -> None:
        for weight, gradient in zip(made.weights, inner(x), strict=True):
            weight.assign_sub(gradient)

    return step


if __name__ == "__main__":
    main()
