"""Steps that read an iterator of their program: run with batches that are drawn or given, on stock TensorFlow."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pesto as face
from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.core.source import Source  # noqa: E402
from pesto.inputs import load as inputs  # noqa: E402
from pesto.tf import named_sources  # noqa: E402
from pesto.tf.run import planned_run, profiler  # noqa: E402
from pesto.tf.run.run_options import RunOptions  # noqa: E402  # after the quiet load
from pesto.tf.run.runnable import start_batch  # noqa: E402

_PROGRAM = """
import tensorflow as tf

table = tf.Variable(tf.random.stateless_uniform([50, 4], (1, 2)))
words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
element = ({"b": tf.TensorSpec([6, 2]), "a": tf.TensorSpec([6], tf.int32)}, tf.TensorSpec([6, 4]))


def trained(x, y):
    with tf.GradientTape() as tape:
        rows = tf.nn.embedding_lookup(table, x["a"]) * tf.reduce_sum(x["b"])
        loss = tf.reduce_mean(tf.square(rows - y))
    table.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, table)))
    return loss


@tf.function
def once(iterator):
    return trained(*next(iterator))


@tf.function
def twice(iterator):
    return trained(*next(iterator)) + trained(*next(iterator))


@tf.function
def looked_up(text, y):
    return trained({"a": words.lookup(text), "b": y}, y)


def argument():
    return once, tf.data.IteratorSpec(element)


def two_reads():
    return twice, tf.data.IteratorSpec(element)


def table_of_words():
    return looked_up, tf.TensorSpec([6], tf.string), tf.TensorSpec([6, 4])


def keras_2():
    import tf_keras

    model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def few_rows():
    layers = tf.keras.layers
    parts = [layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    model = tf.keras.Sequential([tf.keras.Input((2,), dtype="int64"), *parts])
    model.compile("rmsprop", "mse", jit_compile=False)
    return model
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """From the name of a step to its source."""
    (tmp_path / "handed_iterators.py").write_text(_PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "handed_iterators", raising=False)

    def of(step: str, batch: int | None = None) -> Source:
        return Source(function=f"handed_iterators:{step}", batch=batch)

    return of


@pytest.mark.parametrize(("step", "batch"), [("argument", None), ("two_reads", None), ("keras_2", 5)])
def test_planned_run_is_the_stock_run(step: str, batch: int | None, program: Any) -> None:
    if step == "keras_2":
        pytest.importorskip("tf_keras")
    graph, runs = named_sources.load_runnable(
        program(step, batch)
    )  # read once: Keras counts the names of what is traced again
    plan = face.solve(graph, cluster="cpux2", time_limit_s=0, solver="list")
    ran = planned_run.run_planned(plan, graph, runs, RunOptions(steps=1, devices="cpu"))
    assert ran.as_planned and ran.losses_equal and ran.variables_equal and ran.finite
    assert {feed.name.partition(":")[0] for feed in ran.feeds} >= {"IteratorGetNext"}


def test_a_branch_may_have_ops_called_as_those_behind_it(program: Any) -> None:
    """The branch of RMSprop's division has an `Identity` of the same name, and runs on another device than that."""
    graph, runs = named_sources.load_runnable(program("few_rows", 4))
    plan = face.solve(graph, cluster="cpux2", time_limit_s=0, solver="list")
    behind = np.array([name.partition("/cond/Identity")[1] != "" for name in plan.names])
    assert behind.any()
    plan = replace(plan, schedule=replace(plan.schedule, device=np.where(behind, 1, 0)))
    ran = planned_run.run_planned(plan, graph, runs, RunOptions(steps=1, devices="cpu"))
    assert ran.moves == () and ran.as_planned and ran.losses_equal and ran.variables_equal


def test_every_step_reads_the_batch_that_it_is_fed(program: Any) -> None:
    """By number in the order of the sorted keys; whole numbers are rows of the table."""
    _, step = named_sources.load_runnable(program("argument"))
    assert [(feed.name, feed.shape) for feed in step.feed_values] == [
        ("IteratorGetNext", (6,)), ("IteratorGetNext:1", (6, 2)), ("IteratorGetNext:2", (6, 4)),
    ]  # fmt: skip
    assert step.feed_values[0].high == 49
    with tf.compat.v1.Session(graph=step.graph) as session:
        session.run(step.graph.get_operation_by_name(step.init))
        for seed in (0, 1):
            drawn = step.feed(np.random.default_rng(seed))
            assert start_batch(session, step, np.random.default_rng(seed)) == {}
            read = session.run([step.graph.get_tensor_by_name(name) for name in drawn])
            assert all(map(np.array_equal, read, drawn.values()))


def test_own_batch_is_given_by_the_iterator(program: Any) -> None:
    """A batch of zeros leaves the rows that it does not name, and the loss is the mean of the squared targets."""
    source = program("argument")
    plan = face.solve(inputs.load_graph(source), cluster="cpux2", time_limit_s=0, solver="list")
    batch = {"IteratorGetNext:1": np.zeros((6, 2), "f4")}
    ran = inputs.run_plan(plan, source, RunOptions(steps=1, devices="cpu", feeds=batch))
    assert ran.as_planned
    assert [feed.file is not None for feed in ran.feeds] == [False, True, False]


def test_profile_measures_the_read(program: Any) -> None:
    graph, step = named_sources.load_runnable(program("argument"))
    measured = profiler.profile(graph, step, iterations=2, watch=DisturbanceWatch(keep=True))
    assert measured.seconds[graph.names.index("IteratorGetNext")] > 0


def test_step_that_reads_an_iterator_is_not_divided(program: Any) -> None:
    with pytest.raises(InputError, match="every worker would take another one"):
        named_sources.load_typed(program("argument"))


def test_table_of_the_program_is_refused(program: Any) -> None:
    with pytest.raises(InputError, match=r"table or another resource .* look things up before the step"):
        named_sources.load_runnable(program("table_of_words"))
