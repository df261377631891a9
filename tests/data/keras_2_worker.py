"""Is `fit` of Keras 2 models by a random plan the stock `fit`, bit for bit? Prints one JSON line for each case.

A script, as devices are set once a process. The names of cases are its arguments.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pesto.verbs import api

api.logical_cpus(2)

import tensorflow as tf  # noqa: E402  # after the quiet load
import tf_keras  # noqa: E402
from tf_keras import layers  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_cases  # noqa: E402

from pesto.core.errors import PestoError  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

BATCH = 4
Fit = Callable[[Any], Any]


def recurrent() -> tuple[Any, tuple[Any, ...]]:
    """Layers that are tf.functions of their own, in both directions."""
    both = layers.Bidirectional(layers.LSTM(5, return_sequences=True))
    model = tf_keras.Sequential([layers.Embedding(30, 6), both, layers.GRU(4), layers.Dense(3)])
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    rng = np.random.default_rng(0)
    return model, (rng.integers(0, 30, (10, 7)).astype("int32"), rng.integers(0, 3, 10).astype("int32"))


class Towers(tf_keras.Model):
    """Two tables, a loss of the model's own, and a step that takes a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = layers.Embedding(20, 5), layers.Embedding(30, 5)

    def train_step(self, data: Any) -> Any:
        """Train on the similarity of pairs."""
        with tf.GradientTape() as tape:
            scores = tf.matmul(self.users(data["user"]), self.items(data["item"]), transpose_b=True)
            labels = tf.range(tf.shape(scores)[0])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def own_step() -> tuple[Any, tuple[Any, ...]]:
    """A model that is compiled without a loss."""
    model = Towers()
    model.compile(tf_keras.optimizers.Adagrad(0.1))
    rng = np.random.default_rng(0)
    return model, ({name: rng.integers(0, 20, 10).astype("int32") for name in ("user", "item")},)


def added_loss() -> tuple[Any, tuple[Any, ...]]:
    """A model whose whole loss is added by add_loss; its inputs say what it takes."""
    x = tf_keras.Input((8,))
    code = layers.Dense(3, "relu")(x)
    model = tf_keras.Model(x, layers.Dense(8)(code))
    model.add_loss(tf.reduce_mean(tf.square(model.output - x)))
    model.compile("sgd")
    return model, (np.random.default_rng(0).random((10, 8)),)  # of double precision, which fit makes single


CASES = {case.__name__: case for case in (recurrent, own_step, added_loss)}


def in_fit(model: Any, data: tuple[Any, ...]) -> Any:
    """The last of three batches is smaller."""
    return model.fit(*data, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history


def on_batches(model: Any, data: tuple[Any, ...]) -> Any:
    """Two batches of one size."""
    some = [tf.nest.map_structure(lambda a, k=k: a[k : k + BATCH], data) for k in (0, BATCH)]
    return [np.asarray(model.train_on_batch(*batch)).tolist() for batch in some]


def fresh(case: str) -> tuple[Any, tuple[Any, ...]]:
    tf_keras.utils.set_random_seed(1)
    return CASES[case]()


def trained(case: str, train: Any, plan: Any = None, devices: Any = "cpu") -> tuple[Any, list[Any], Any]:
    """What training gives, all variables at its end, and what was verified."""
    model, data = fresh(case)
    if plan is None:
        return train(model, data), variables(model), None
    with api.apply(plan, devices=devices) as applied:
        history = train(model, data)
    return history, variables(model), applied


def variables(model: Any) -> list[Any]:
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def lane_of(plan: Any, op: str) -> str:
    """The device of an op by a plan."""
    return str(plan.lane_device[plan.schedule.device[plan.names.index(op)]])


def row(case: str) -> dict[str, Any]:
    model, data = fresh(case)
    graph = sources.from_keras(model, BATCH, data=None if case == "added_loss" else data)
    plans = [fit_cases.random_plan(graph, "cpux2", seed) for seed in range(8)]
    reads = [lane_of(plan, "IteratorGetNext") for plan in plans]
    plan, elsewhere = plans[reads.index("cpu:0")], plans[reads.index("cpu:1")]
    model, data = fresh(case)
    with api.record(batch=BATCH) as recorded:
        in_fit(model, data)
    found = {"case": case, "recorded": recorded.graph.fingerprint() == graph.fingerprint(), "ops": graph.ops}
    try:
        trained(case, in_fit, elsewhere, {f"cpu:{k}": f"/device:CPU:{k}" for k in (0, 1)})
    except PestoError as error:
        found["elsewhere"] = str(error)
    # train_on_batch gives x in a tuple, which a step that takes a dictionary does not take.
    ways = {"fit": in_fit} | ({} if case == "own_step" else {"batches": on_batches})
    for name, train in ways.items():
        planned, mine, applied = trained(case, train, elsewhere if name == "fit" else plan)
        found[f"{name}_verified"] = [(f.ops, len(f.moves), len(f.inversions)) for f in applied.findings]
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        stock, others, _ = trained(case, train)
        same = len(mine) == len(others) and all(map(np.array_equal, mine, others))
        found[f"{name}_equal"] = same and repr(planned) == repr(stock)
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(row(name)), flush=True)
