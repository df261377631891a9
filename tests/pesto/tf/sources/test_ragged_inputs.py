"""Ragged and sparse inputs are refused by name, whatever the batch: no type says how many values a batch holds."""

from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

import keras  # noqa: E402  # after the quiet load

from pesto.tf.enforce import context  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

RAGGED, SPARSE = tf.RaggedTensorSpec([None, None], tf.int32), tf.SparseTensorSpec([8, 6], tf.float32)
PAD = r"is a RaggedTensor, .* - pad it before the step \(x\.to_tensor"
DENSE = r"is a SparseTensor, .* - make it dense before the step \(tf\.sparse\.to_dense"


def step(scale: Any, x: Any, dense: Any) -> Any:
    """A sum of the values."""
    return scale * tf.cast(tf.reduce_sum(x.values), tf.float32) + tf.reduce_sum(dense["b"])


@pytest.mark.parametrize("batch", [None, 8])
@pytest.mark.parametrize(("spec", "said"), [(RAGGED, PAD), (SPARSE, DENSE)])
def test_arguments_of_functions(spec: Any, said: str, batch: int | None) -> None:
    """By the argument's name, behind one that is no tensor."""
    with pytest.raises(InputError, match=f"input x {said}"):
        sources.from_function(tf.function(step), 2.0, spec, {"b": tf.TensorSpec([4])}, batch=batch)


def test_what_is_behind_other_arguments_has_its_name() -> None:
    """A dict of tensors: its sparse one is the third of the function's inputs."""
    specs = {"b": tf.TensorSpec([4]), "a": SPARSE}
    with pytest.raises(InputError, match=f"input dense_1 {DENSE}"):
        sources.from_function(
            tf.function(lambda x, dense: x + tf.sparse.reduce_sum(dense["a"])), tf.TensorSpec([]), specs
        )


def test_placeholders_of_v1_graphs() -> None:
    """Where they are needed, and only there; a batch size does not stand for the number of their values."""
    with tf.Graph().as_default() as graph:
        sparse = v1.sparse_placeholder(tf.float32, shape=[8, 6], name="in/sparse")
        ragged = v1.ragged.placeholder(tf.float32, 1, name="ragged")
        dense = v1.placeholder(tf.float32, [None, 4], name="dense/values")
        v1.placeholder(tf.int64, [None, 2], name="dense/indices")
        tf.sparse.reduce_sum(sparse, name="sum")
        tf.add(tf.reduce_sum(ragged.values), tf.cast(tf.reduce_sum(ragged.row_splits), tf.float32), name="both")
        tf.reduce_sum(dense, name="of_dense")
    for batch in (None, 8):
        with pytest.raises(InputError, match=f"input in/sparse {DENSE}"):
            sources.from_v1(graph, ["sum"], batch=batch)
        with pytest.raises(InputError, match=f"input ragged {PAD}"):
            sources.from_v1(graph, ["both"], batch=batch)
    assert sources.from_v1(graph, ["of_dense"], batch=8).batch == 8


def test_keras_models() -> None:
    """Their inputs, the data given for them, and what `fit` is recorded on."""
    model = keras.Sequential([keras.Input((6,), sparse=True, name="words"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x, y = tf.sparse.from_dense(np.eye(8, 6, dtype=np.float32)), np.ones((8, 1), np.float32)
    with pytest.raises(InputError, match=f"keras .*: input words {DENSE}"):
        sources.from_keras(model, 8)
    for data, said in (((x, y), DENSE), ((tf.ragged.constant([[1], [2, 3]]), y[:2]), PAD)):
        with pytest.raises(InputError, match=f"input data {said}"):
            sources.from_keras(model, 8, data=data)
    with context.record(8), pytest.raises(InputError, match=f"input data {DENSE}"):
        model.fit(x, y, batch_size=4, verbose=0)


def test_an_open_batch_asks_for_the_argument_by_its_name() -> None:
    """What Python gives, and no option of the command line."""
    with pytest.raises(InputError, match=r"give a batch size \(batch=32\), or static shapes"):
        sources.from_function(lambda x: x + 1.0, tf.TensorSpec([None, 6]))
