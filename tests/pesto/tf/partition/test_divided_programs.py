"""Small programs with ops that are easily divided wrongly: in parts they compute what the whole step does."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.split.geometry import WHOLE
from pesto.split.op_strategy import cut_ops
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.partition.partition_run import run_parts  # noqa: E402
from pesto.tf.run.runnable import make_runnable  # noqa: E402
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

IDS = 12


def fed(step):
    """The step, fed numbers of both signs, and ids below IDS."""
    values = [
        replace(v, low=0, high=IDS - 1, specials=()) if "int" in v.dtype else replace(v, low=-1, high=1)
        for v in step.feed_values
    ]
    return replace(step, feed_values=tuple(values))


def program(loss, optimizer=lambda: v1.train.GradientDescentOptimizer(0.1)):
    """The captured step that trains whatever `loss` makes."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(2)
        value = tf.identity(loss(), name="loss")
        optimizer().minimize(value, name="train")
    captured = sources.capture_v1(graph, ["loss", "train"], source="a step")
    return captured, shape(captured)[1], fed(make_runnable(captured, resolve_shapes(captured, None)))


def ran(captured, shaped, step, workers):
    """The division, whose run is as the whole step's."""
    found = divide(shaped, (workers,), "exact", Rules(), seconds=60).division
    run = run_parts(captured, shaped, found, step, steps=3)
    assert run.as_whole and run.finite, run
    assert any(cut_ops(found.strategies))
    return found


def variable(name, *extents):
    return v1.get_variable(name, extents, use_resource=True)


def inputs(*extents):
    return v1.placeholder(tf.float32, extents, name="x")


@pytest.mark.parametrize(("batch", "workers"), [(2, 2), (4, 2), (3, 3)])
def test_squeeze_without_axes(batch, workers):
    """A batch of as many rows as workers: each part has one row, which is not removed."""

    def loss():
        w, u = variable("w", 1, 63, 1), variable("u", 5, 3)
        squeezed = tf.squeeze(tf.matmul(inputs(batch, 5, 63), tf.tile(w, [batch, 1, 1])))
        return tf.reduce_mean(tf.square(tf.tanh(squeezed @ u)))

    ran(*program(loss), workers)


@pytest.mark.parametrize("removed", [True, False])
def test_squeeze_that_is_cut(removed):
    """One that removes a dimension is cut; one that removes nothing is whole, as its parts could not say so."""

    def loss():
        h = inputs(2, 64) @ variable("a", 64, 65)
        return tf.reduce_mean(tf.square(tf.squeeze(tf.reshape(h, [2, 1, 65]) if removed else h)))

    captured, shaped, step = program(loss)
    division = ran(captured, shaped, step, 2)
    (squeeze,) = [op for op in range(shaped.ops) if shaped.signature(op).type == "Squeeze"]
    assert (division.strategies[squeeze].names[-1] != "whole") == removed


def test_means_of_integers():
    """The mean of all is rounded, not the means of parts."""

    def loss():
        h = inputs(4, 63) @ variable("a", 63, 63)
        mean = tf.reduce_mean(tf.cast(h * 2, tf.int32), 0)
        return tf.reduce_mean(tf.square(h - tf.cast(mean, tf.float32)))

    ran(*program(loss), 2)


@pytest.mark.parametrize("reduce", [tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_prod, tf.argmax])
def test_other_reductions_of_integers(reduce):
    """Along the dimension that is cut, as the parts are put together."""

    def loss():
        h = inputs(4, 63) @ variable("a", 63, 63)
        return tf.reduce_mean(h * tf.cast(reduce(tf.cast(tf.stop_gradient(h) * 2, tf.int32), 0), tf.float32))

    ran(*program(loss), 2)


OPTIMIZERS = {
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1), "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.1), "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_updates_without_a_description(name):
    """Ids come more than once in a batch: their rows are summed, and there are fewer of them than ids."""

    def loss():
        ids = v1.placeholder(tf.int32, [16], name="ids")
        return tf.reduce_mean(tf.square(tf.gather(variable("e", IDS, 16), ids) @ variable("w", 16, 16)))

    ran(*program(loss, OPTIMIZERS[name]), 2)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_table_at_both_ends(workers):
    """Three divides its rows alone, along which a gather cannot be cut: it lies whole, all else is cut."""

    def loss():
        ids = v1.placeholder(tf.int32, [12], name="ids")
        table, w, u = variable("e", 30, 20), variable("w", 20, 24), variable("u", 24, 20)
        logits = tf.matmul(tf.nn.relu(tf.gather(table, ids) @ w) @ u, table, transpose_b=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits))

    captured, shaped, step = program(loss)
    division = ran(captured, shaped, step, workers)
    lies = {shaped.names[op]: division.variables[v] for v, op in enumerate(shaped.handle.tolist())}
    assert (lies["e"] == (WHOLE,)) == (workers == 3) and np.all([lies["w"] != (WHOLE,), lies["u"] != (WHOLE,)])
