"""Shapes that the user gives for feeds, and files of kinds that are read since."""

from pathlib import Path
from typing import Any

import pytest

from pesto.core.errors import InputError, UsageError
from pesto.core.graph import Graph
from pesto.core.source import Source
from pesto.inputs.load import load_graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1


def written(folder: Path, build: Any) -> Path:
    with tf.Graph().as_default() as graph:
        build()
    file = folder / "step.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    return file


def planned(file: Path, *shapes: str, fetch: str = "end", batch: int | None = None) -> Graph:
    return load_graph(Source(file=file, fetch=(fetch,), shape=shapes, batch=batch), quiet=True)


def sizes(graph: Graph, name: str) -> list[int]:
    op = graph.names.index(name)
    return graph.tensor_bytes[graph.tensor_op == op].tolist()


def without_rank() -> None:
    x = v1.placeholder(tf.float32, name="x")
    tf.nn.relu(tf.nn.relu(x, name="middle"), name="end")


def test_placeholder_without_rank(tmp_path: Path) -> None:
    file = written(tmp_path, without_rank)
    with pytest.raises(InputError, match=r"give its shape \(shape x=16,40\)"):
        planned(file)
    assert sizes(planned(file, "x=16,40"), "middle") == [16 * 40 * 4]
    assert sizes(planned(file, "x:0="), "middle") == [4]


def recurrent() -> None:
    """A loop over a list of the times of a feed, and its gradient, which stacks a list of as many elements."""
    v1.enable_control_flow_v2()
    x = v1.placeholder(tf.float32, [None, None, 3], name="x")
    times = tf.transpose(x, [1, 0, 2])
    number = tf.shape(times)[0]
    read = tf.TensorArray(tf.float32, number).unstack(times)

    def step(time: Any, state: Any) -> Any:
        return time + 1, tf.tanh(state + read.read(time))

    _, state = tf.while_loop(lambda time, _: time < number, step, (0, tf.zeros_like(x[:, 0])))
    tf.negative(v1.gradients(state, times)[0], name="end")


def test_a_stacked_list_has_as_many_rows_as_the_feed_that_it_was_made_of(tmp_path: Path) -> None:
    """Its elements are counted, of a loop's gradient too: nobody states what follows from a feed."""
    graph = planned(written(tmp_path, recurrent), "x=5,7,3")
    stacks = [name for name in graph.names if name.endswith("TensorListStack")]
    assert [sizes(graph, name) for name in stacks] == [[7 * 5 * 3 * 4]]


@pytest.mark.parametrize("changed", [False, True])
def test_a_list_that_a_loop_changes_is_not_counted(changed: bool, tmp_path: Path) -> None:
    """Its size depends on how often the loop runs."""

    def build() -> None:
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.int32, [2], name="x")
        made = tf.raw_ops.TensorListReserve(element_shape=[3], num_elements=4, element_dtype=tf.float32)

        def longer(time: Any, listed: Any) -> Any:
            size = tf.raw_ops.TensorListLength(input_handle=listed) + 1
            more = tf.raw_ops.TensorListResize(input_handle=listed, size=size) if changed else listed
            return time + 1, tf.raw_ops.TensorListSetItem(input_handle=more, index=0, item=tf.ones(3))

        _, listed = tf.while_loop(lambda time, _: time < x[0], longer, (0, made))
        stacked = tf.raw_ops.TensorListStack(
            input_handle=listed, element_shape=[3], element_dtype=tf.float32, name="stacked"
        )
        tf.negative(stacked, name="end")

    file = written(tmp_path, build)
    if changed:
        with pytest.raises(InputError, match=r"op stacked \(TensorListStack\) is \[\?, 3\]: .* nothing limits it"):
            planned(file)
    else:
        assert sizes(planned(file), "stacked") == [4 * 3 * 4]


def test_open_sizes(tmp_path: Path) -> None:
    """Of an image, whose batch is not all that is open; a size that is declared stays."""

    def image() -> None:
        x = v1.placeholder(tf.float32, [None, None, None, 3], name="x")
        tf.nn.relu(tf.nn.relu(x, name="middle"), name="end")

    file = written(tmp_path, image)
    with pytest.raises(InputError, match=r"even with batch 2, .* - give its shape \(shape x=2,N,N,3 with a number for"):
        planned(file, batch=2)
    assert sizes(planned(file, "x=2,8,9,3"), "middle") == [2 * 8 * 9 * 3 * 4]
    with pytest.raises(InputError, match=r"has the shape \[\?, \?, \?, 3\] - give 4 sizes"):
        planned(file, "x=2,8,9,4")
    with pytest.raises(InputError, match="give 4 sizes"):
        planned(file, "x=2,8")
    with pytest.raises(
        InputError,
        match="y is neither a feed nor an op of the step - give the name of an op, or of one of its feeds: x",
    ):
        planned(file, "y=2")


@pytest.mark.parametrize("text", ["x", "x=4,", "x=-1", "=4", "x=a"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(UsageError, match="give NAME=16,40"):
        Source(file=Path("a.pb"), shape=(text,)).checked()


def test_two_shapes_of_one_feed_and_of_another_graph() -> None:
    with pytest.raises(UsageError, match="second shape"):
        Source(file=Path("a.pb"), shape=("x=4", "x=5")).checked()
    with pytest.raises(UsageError, match="shapes go with"):
        Source(model="nmt", shape=("x=4",)).checked()


def dynamic() -> None:
    """A loop of version 1 over time, as dynamic_rnn writes it: rows of an open batch in a TensorArray."""
    x = v1.placeholder(tf.float32, [None, 5, 3], name="x")
    rows = tf.transpose(x, [1, 0, 2])
    array = tf.TensorArray(tf.float32, 5, element_shape=[None, 3])
    _, array = v1.while_loop(lambda t, _: t < 5, lambda t, a: (t + 1, a.write(t, rows[t])), [0, array])
    tf.nn.relu(array.stack(name="stacked"), name="end")


@pytest.mark.parametrize(("shapes", "batch"), [(("x=4,5,3",), None), ((), 4)])
def test_loop_of_version_1_over_an_open_batch(tmp_path: Path, shapes: tuple[str, ...], batch: int | None) -> None:
    before = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        file = written(tmp_path, dynamic)
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()
    graph = planned(file, *shapes, batch=batch)
    assert max(graph.tensor_bytes.tolist()) == 4 * 5 * 3 * 4


def test_function_with_an_open_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import tensorflow as tf\n@tf.function(input_signature=[tf.TensorSpec([None, None])])\ndef f(x): return x + 1\n"
    )
    (tmp_path / "open_sizes.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    graph = load_graph(Source(function="open_sizes:f", shape=("x=6,7",)).checked(), quiet=True)
    assert 6 * 7 * 4 in graph.tensor_bytes.tolist()


def test_meta_graph_is_the_graph_in_it(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        without_rank()
        v1.train.export_meta_graph(str(tmp_path / "step.meta"), graph=graph)
    (tmp_path / "step.pb").write_bytes(graph.as_graph_def().SerializeToString())
    found, same = (planned(tmp_path / f"step.{ending}", "x=3,4") for ending in ("meta", "pb"))
    assert found.fingerprint() == same.fingerprint()
    (tmp_path / "text.meta").write_text("meta_info_def {}")
    with pytest.raises(InputError, match="not a MetaGraphDef in binary"):
        planned(tmp_path / "text.meta")


def test_onnx_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    with pytest.raises(UsageError, match="ONNX model"):
        load_graph(Source(file=tmp_path / "m.onnx"))
