"""A loop over a dataset inside a tf.function is refused when read and when recorded, with a remedy that works."""

import numpy as np
import pytest

import pesto
from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.sources import sources  # noqa: E402

ROWS = tf.data.Dataset.from_tensor_slices(np.ones((8, 3), "f4")).batch(4, drop_remainder=True)
LOOPS = "epoch loops over a dataset.*loop over the dataset in Python"


def test_loop_over_a_dataset() -> None:
    weight = tf.Variable(tf.ones([3]))

    def step(x: object) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x * weight))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))

    @tf.function
    def epoch() -> None:
        for x in ROWS:
            step(x)

    with pytest.raises(InputError, match=LOOPS):
        sources.from_function(epoch)
    with pesto.record() as recorded:
        epoch()
    with pytest.raises(InputError, match=LOOPS):
        _ = recorded.graph
    one = tf.function(step)
    with pesto.record() as recorded:
        for x in ROWS:
            one(x)
    assert "AssignSubVariableOp" in recorded.graph.types


def test_loop_that_only_reads_a_dataset() -> None:
    """What has no variables in it is no step of its own."""

    @tf.function
    def total() -> object:
        return ROWS.reduce(0.0, lambda so_far, x: so_far + tf.reduce_sum(x))

    assert sources.from_function(total).ops
