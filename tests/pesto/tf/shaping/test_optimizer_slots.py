"""Which variables lie alike: a weight with its slots, however its optimizer is written; never two weights."""

import pytest

from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def tied(shaped):
    """Variables that lie alike, as sets of numbers; those of one number alone are left out."""
    found = {}
    for v, tie in enumerate(shaped.tie.tolist()):
        found.setdefault(tie, set()).add(v)
    return [alike for alike in found.values() if len(alike) > 1]


def of_function(step, *shapes):
    """The step of a function, of tensors of some shapes."""
    specs = [tf.TensorSpec(each) for each in shapes]
    return shape(sources.capture_function(tf.function(step), *specs))[1]


@pytest.mark.parametrize("optimizer", ["Adam", "RMSprop"])
def test_slots_of_keras_lie_as_their_weights(optimizer):
    """Of three kernels of one shape each has its own slots; a split cuts all of them alike, and holds half of each."""
    import keras

    layers = [keras.layers.Dense(96, use_bias=False) for _ in range(3)]
    model = keras.Sequential([keras.Input((96,)), *layers])
    chosen = {"momentum": 0.9} if optimizer == "RMSprop" else {}
    model.compile(getattr(keras.optimizers, optimizer)(**chosen), "mse", jit_compile=False)
    shaped = shape(sources.capture_keras(model, 64), batch=64)[1]
    assert [len(alike) for alike in tied(shaped)] == [3, 3, 3]
    division = divide(shaped, (2,), "exact", Rules(), seconds=30).division
    for alike in tied(shaped):
        assert len({division.variables[v] for v in alike}) == 1


def test_two_weights_are_never_tied():
    """Where the gradient of one is the other, by plain arithmetic and with momentum; a slot stays with its own."""
    one, other, speed = (tf.Variable(tf.ones([8, 8]), name=name) for name in ("one", "other", "speed"))

    def step(x):
        loss = tf.reduce_sum(tf.matmul(x, one)) + tf.reduce_sum(tf.matmul(x, other)) + tf.reduce_sum(one * other)
        grown = 0.9 * speed + other * 2.0
        with tf.control_dependencies([loss]):
            speed.assign(grown)
            one.assign_sub(0.1 * grown)
            other.assign_sub(0.1 * one)
        return loss

    shaped = of_function(step, [4, 8])
    (alike,) = tied(shaped)
    assert len(alike) == 2
    reads = {v: [op for op, w in zip(shaped.use_op, shaped.use_variable, strict=True) if w == v] for v in alike}
    types = [{shaped.signature(op).type for op in ops} for ops in reads.values()]
    assert {"AssignVariableOp", "ReadVariableOp"} in types and {"AssignSubVariableOp", "ReadVariableOp"} in types


def test_an_average_lies_as_its_weight():
    """A moving average is a slot; a sum over all of it is none, as it is of no element."""
    weight, average, total = (
        tf.Variable(tf.ones(extent), name=name) for extent, name in (([8, 8], "w"), ([8, 8], "a"), ([8, 8], "t"))
    )

    def step(x):
        loss = tf.reduce_sum(tf.matmul(x, weight))
        average.assign(0.9 * average + 0.1 * weight)
        total.assign(total + tf.ones([8, 8]) * tf.reduce_sum(weight))
        return loss

    (alike,) = tied(of_function(step, [4, 8]))
    assert len(alike) == 2
