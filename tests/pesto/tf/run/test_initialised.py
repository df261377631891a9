"""Tables and iterators of version 1 are initialised before a step is run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.run.runnable import (  # noqa: E402
    explain_failure,
    make_runnable,
)
from pesto.tf.sources import sources  # noqa: E402


def iterator() -> Any:
    rows = tf.data.Dataset.from_tensor_slices(np.arange(12, dtype="f4").reshape(6, 2)).batch(3, drop_remainder=True)
    return v1.data.make_initializable_iterator(rows.map(lambda x: x + 1).repeat()).get_next()


def table() -> Any:
    words = v1.lookup.KeyValueTensorInitializer(["a", "b"], [5, 6], value_dtype=tf.int32)
    keys = tf.constant(["b", "a", "c"])
    return v1.lookup.StaticHashTable(words, 7).lookup(keys)


def table_of_two() -> Any:
    """Of several ops that could fill it, one is run."""
    made = v1.lookup.StaticHashTable(
        v1.lookup.KeyValueTensorInitializer([1, 2], [5, 6], key_dtype=tf.int64, value_dtype=tf.int64), 7
    )
    return made.lookup(tf.constant([2, 1, 9], tf.int64))


@pytest.mark.parametrize(
    ("build", "values"),
    [(iterator, [[1, 2], [3, 4], [5, 6]]), (table, [6, 5, 7]), (table_of_two, [6, 5, 7])],
)
def test_step_reads_what_its_program_puts_there(build: Callable[[], Any], values: list[Any]) -> None:
    with tf.Graph().as_default() as graph:
        out = tf.identity(build(), name="end")
    captured = sources.capture_v1(graph, [out])
    step = make_runnable(captured, resolve_shapes(captured, None))
    with v1.Session(graph=step.graph) as session:
        session.run(step.graph.get_operation_by_name(step.init))
        assert session.run("end:0", step.feed(np.random.default_rng(0))).tolist() == values


def test_iterator_whose_initialiser_needs_a_feed_is_refused() -> None:
    with tf.Graph().as_default() as graph:
        rows = tf.data.Dataset.from_tensors(v1.placeholder(tf.float32, [2], name="first"))
        out = tf.identity(v1.data.make_initializable_iterator(rows).get_next(), name="end")
    captured = sources.capture_v1(graph, [out])
    with pytest.raises(InputError, match="only its own program starts"):
        make_runnable(captured, resolve_shapes(captured, None))


def words(keys: Any, tmp_path: Any) -> Any:
    """A table of words in a program, filled from `keys`: a constant, a feed, or a file."""
    if isinstance(keys, str):
        index = tf.lookup.TextFileIndex
        return tf.lookup.TextFileInitializer(
            str(tmp_path / keys), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
        )
    return v1.lookup.KeyValueTensorInitializer(keys(), [5, 6], value_dtype=tf.int64)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            lambda: v1.placeholder(tf.string, [2], name="fed"),
            "end_lookup.* reads, is filled from the feed fed - export",
        ),
        ("no.txt", "is filled from the file .*no.txt, which is not there - put it there"),
        (None, "is filled by no op of the graph - export the program with a table that is made of constants"),
    ],
    ids=["a feed", "a file", "nothing"],
)
def test_a_table_that_nothing_fills_is_named(keys: Any, said: str, tmp_path: Any) -> None:
    with tf.Graph().as_default() as graph:
        made = v1.lookup.StaticHashTable(words(keys or (lambda: tf.constant(["a", "b"])), tmp_path), 7, name="words")
        end = tf.negative(made.lookup(tf.constant(["b"]), name="end_lookup"), name="end")
    captured = sources.capture_v1(graph, [end])
    if keys is None:
        kept = [node for node in captured.graph_def.node if not node.op.startswith("LookupTableImport")]
        program = type(captured.graph_def)()
        program.CopyFrom(captured.graph_def)
        del program.node[:]
        program.node.extend(kept)
        captured = replace(captured, graph_def=program)
    with pytest.raises(InputError, match=rf"table words \(HashTableV2\).*{said}"):
        make_runnable(captured, resolve_shapes(captured, None))


def test_a_check_of_the_program_that_refuses_the_batch_is_named() -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2], name="x")
        with tf.control_dependencies([v1.assert_greater_equal(x, 5.0, name="large")]):
            end = tf.negative(x)
        with v1.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as refused:
            session.run(end, {x: [1, 2]})
    said = str(explain_failure("run", "step", refused.value))
    assert "its own check " in said and "Assert refuses the batch" in said and "give a batch of your own" in said
