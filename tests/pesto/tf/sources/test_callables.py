"""`package.module:callable`: every kind that the help names is planned, and what cannot be is told what to do."""

import sys
from pathlib import Path
from typing import Any

import pytest

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.verbs import api

PROGRAM = """
import keras
import numpy as np
import tensorflow as tf

W = tf.Variable(tf.ones([8, 3]))

@tf.function
def bare(x, y):
    W.assign_sub(0.1 * tf.matmul(x, x @ W - y, transpose_a=True))

signed = tf.function(bare.python_function, input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, 3])])

def with_specs():
    return bare, tf.TensorSpec([None, 8]), tf.TensorSpec([None, 3])

def plain(x, *, rate):
    return rate * x

def without_specs():
    return bare

def optional(scale=2.0):
    return signed

class Reconstructs(keras.Model):
    def __init__(self, **how):
        super().__init__()
        self.dense = keras.layers.Dense(8)
        self.compile("sgd", jit_compile=False, **how)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - x) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, "no targets": y is None}

def one_array():
    return Reconstructs(), np.zeros([6, 8], np.float32)

def one_in_a_tuple():
    return Reconstructs(), (np.zeros([6, 8], np.float32),)

def taken_apart():
    return Reconstructs(), np.zeros([6, 8], np.float32), np.zeros([6], np.int64)

def no_data():
    return (Reconstructs(),)

def no_targets():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse", jit_compile=False)
    return model, np.zeros([6, 8], np.float32)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_program", raising=False)


def planned(name: str, batch: int | None = None) -> Graph:
    return api.load_graph(function=f"their_program:{name}", batch=batch)


@pytest.mark.parametrize(("name", "arguments"), [("bare", "x, y"), ("without_specs", "x, y"), ("plain", "x, rate")])
def test_arguments_without_types_and_shapes_are_refused_with_what_helps(name: str, arguments: str) -> None:
    """TensorFlow cannot trace them, and a call by hand changes nothing; arguments with a default are not needed."""
    with pytest.raises(InputError) as caught:
        planned(name, 4)
    text = str(caught.value)
    assert f"({arguments})" in text and "input_signature=[...]" in text and "(function, *specs)" in text


def test_both_remedies_work() -> None:
    """A signature at the function, specs beside it: one graph, of the batch that is given."""
    graphs = [planned(name, 5) for name in ("signed", "with_specs", "optional")]
    assert len({graph.fingerprint() for graph in graphs}) == 1
    assert graphs[0].batch == 5 and 5 * 8 * 4 in graphs[0].tensor_bytes


def test_a_model_with_one_array_is_a_batch_without_targets() -> None:
    """Its rows are examples, not x and y: the step is that of (x,), of 6 rows."""
    alone, in_a_tuple = planned("one_array"), planned("one_in_a_tuple")
    assert alone.fingerprint() == in_a_tuple.fingerprint()
    feeds = [i for i, t in enumerate(alone.type_of) if alone.types[t] == "Placeholder"]
    assert [int(alone.tensor_bytes[alone.tensor_op == i].sum()) for i in feeds] == [6 * 8 * 4]


@pytest.mark.parametrize(("name", "more"), [("taken_apart", "2 more"), ("no_data", "0 more")])
def test_a_model_with_anything_but_one_batch_is_told_how_to_give_it(name: str, more: str) -> None:
    """A model can be called, too, and was taken for a function of the arrays."""
    with pytest.raises(InputError, match=rf"a model and {more} - return \(model, \(x, y\)\)"):
        planned(name)


@pytest.mark.parametrize("batch", [None, 6])
def test_an_example_without_the_targets_that_a_loss_needs_is_told_so(batch: int | None) -> None:
    """Keras raises of values that are None."""
    with pytest.raises(InputError, match=r"it has a loss, and the example no targets - return \(model, \(x, y\)\)"):
        planned("no_targets", batch)


def test_a_class_of_models_is_called() -> None:
    """It has the methods of a model, and is none."""
    with pytest.raises(InputError, match="no batch size - give one"):
        planned("Reconstructs")
    with pytest.raises(InputError, match=r"its inputs are unknown - .* give \(model, \(x, y\)\)"):
        planned("Reconstructs", 4)


def test_what_a_module_hands_over_is_the_same_by_any_name(tmp_path: Path) -> None:
    """Also from a folder, by dots."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "their_other.py").write_text(PROGRAM)
    there: Any = api.load_graph(function="nets.their_other:signed", batch=5)
    assert there.fingerprint() == planned("signed", 5).fingerprint()
