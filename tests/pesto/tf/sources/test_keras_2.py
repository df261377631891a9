"""Steps of Keras 2 (tf_keras) models: planned as `fit` runs them, or refused with a remedy."""

import json
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
tf_keras = pytest.importorskip("tf_keras")

from pesto.tf.enforce import plan_matching  # noqa: E402
from pesto.tf.sources import callables, sources  # noqa: E402

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    "case", ["own_step", *(pytest.param(case, marks=pytest.mark.slow) for case in ("recurrent", "added_loss"))]
)
def test_fit_by_a_random_plan_is_fit(case: str) -> None:
    """So is train_on_batch, by the plan for an open batch; the recorded step is the one that was read.

    The plan of `fit` reads the batch on its second device, which is then the first logical CPU.
    """
    done = forked.run("tests/data/keras_2_worker.py", case, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    row = json.loads(done.stdout)
    assert row["recorded"]
    assert "iterators are on /device:CPU:0" in row["elsewhere"]
    for way in ("fit",) if case == "own_step" else ("fit", "batches"):
        assert row[f"{way}_equal"], row
        ((ops, moves, inversions),) = row[f"{way}_verified"]
        assert ops > 0.8 * row["ops"] and moves == inversions == 0


def dense(**how: Any) -> Any:
    model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
    model.compile("sgd", "mse", **how)
    return model


def test_plain_model_needs_no_example() -> None:
    graph = sources.from_keras(dense(), 6)
    assert graph.batch == 6
    assert "IteratorGetNext" in graph.types


def test_static_batch_is_fixed() -> None:
    assert sources.from_keras(dense(), 6, static=True).batch is None


def test_recurrent_layer_has_its_ops_in_the_graph() -> None:
    """Of an open batch, too: how many elements are stacked is known from the layer alone."""
    model = tf_keras.Sequential([tf_keras.Input((5, 2)), tf_keras.layers.LSTM(3, return_sequences=True)])
    model.compile("sgd", "mse")
    graph = sources.from_keras(model, 6)
    assert "StatelessWhile" in graph.types and "PartitionedCall" not in graph.types


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"steps_per_execution": 2}, "steps_per_execution=1"),
        ({"steps_per_execution": "auto"}, "steps_per_execution=1"),
        ({"jit_compile": True}, "jit_compile=False"),
    ],
)
def test_refused_settings(how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sources.from_keras(dense(**how), 6)


def test_optimizer_that_xla_compiles_is_refused() -> None:
    model = dense()
    model.optimizer.jit_compile = True  # as on a machine with GPUs
    with pytest.raises(InputError, match=r"model\.optimizer\.jit_compile = False"):
        sources.from_keras(model, 6)
    model.optimizer.jit_compile = False
    assert sources.from_keras(model, 6).ops


def test_model_that_is_not_compiled() -> None:
    with pytest.raises(InputError, match="not compiled"):
        sources.from_keras(tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)]), 6)


def test_missing_targets_are_named_as_keras_names_them() -> None:
    with pytest.raises(InputError, match="Target data is missing"):
        callables.capture_object((dense(), np.zeros((6, 4), "f4")), "mine:model", 6)


def test_train_function_of_its_own_is_recorded_instead() -> None:
    class Own(tf_keras.Sequential):
        def make_train_function(self, force: bool = False) -> Any:
            del force
            return lambda iterator: self.train_step(next(iterator))

    model = Own([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match=r"with pesto\.record\(batch=32\) as step"):
        sources.from_keras(model, 6)


def test_micro_batches_are_refused() -> None:
    from pesto.core.source import Cut

    with pytest.raises(InputError, match=r"Keras 2 \(tf_keras\) model cannot be cut"):
        callables.capture_object(dense(), "mine:model", 6, cut=Cut(2))


def _next(iterator: Any) -> Any:
    return next(iterator)


def test_types_of_what_an_iterator_gives_can_be_changed() -> None:
    """So the cause is found for which a plan is not for a step: an open batch, weights, another dtype."""
    element = (tf.TensorSpec([8, 3]), {"y": tf.TensorSpec([8], tf.int64)})
    kind = tf.function(_next).get_concrete_function(tf.data.IteratorSpec(element))
    signature = kind.function_type
    assert sorted(plan_matching.tensor_specs(signature)) == ["iterator[0]", "iterator[1]['y']"]
    found = plan_matching.open_batch(signature)
    assert found is not None
    size, opened = found
    assert size == 8
    assert [spec.shape.as_list() for spec in plan_matching.tensor_specs(opened).values()] == [[None, 3], [None]]
    assert plan_matching.describe_argument("iterator[0]", "train_function") == "iterator[0] (x of fit)"
