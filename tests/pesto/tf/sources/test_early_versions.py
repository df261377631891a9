"""Files of older programs: what TensorFlow's shape inference leaves open in them, and SavedModels that do not load."""

from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.core.source import Source
from pesto.inputs.load import load_graph
from pesto.tf.importer.shapes import resolve_shapes
from pesto.tf.nodes.needed_nodes import KnownShape
from pesto.tf.sources.sources import capture_file
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

SCALAR = """
node { name: "v" op: "Variable" attr { key: "shape" value { shape { } } }
  attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "first" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 2 } } } }
node { name: "init" op: "Assign" input: "v" input: "first" attr { key: "T" value { type: DT_FLOAT } } VALIDATES }
node { name: "read" op: "Identity" input: "v" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "x" op: "Placeholder" attr { key: "shape" value { shape { } } }
  attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "Mul" input: "read" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "end" op: "Neg" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
versions { producer: 16 }
"""
"""A program of TensorFlow 0.12, in which a shape without dimensions may also be one that is not known."""


def file_of(folder: Path, build: Any) -> Path:
    """A GraphDef as `build` makes it, without recorded shapes."""
    with tf.Graph().as_default() as graph:
        build()
    (folder / "step.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder / "step.pb"


def planned(file: Path, *shapes: str, fetch: str = "end") -> Graph:
    return load_graph(Source(file=file, fetch=(fetch,), shape=shapes), quiet=True)


def sizes(graph: Graph, name: str) -> list[int]:
    return graph.tensor_bytes[graph.tensor_op == graph.names.index(name)].tolist()


def test_a_scalar_variable_of_tensorflow_0(tmp_path: Path) -> None:
    """Its shape is known, and so are those of what reads it, unless an Assign says that it was open."""
    file = tmp_path / "step.pbtxt"
    file.write_text(SCALAR.replace("VALIDATES", ""))
    assert sizes(planned(file, "x=5"), "y") == [20]
    file.write_text(SCALAR.replace("VALIDATES", 'attr { key: "validate_shape" value { b: false } }'))
    with pytest.raises(InputError, match=r"op v .*of unknown rank"):
        planned(file, "x=5")


def test_a_feed_of_strings_without_rank(tmp_path: Path) -> None:
    """It is named, although its own bytes are not asked for, in a version in which [] says no rank."""

    def build() -> None:
        examples = v1.placeholder(tf.string, name="examples")
        parsed = v1.parse_example(examples, {"x": v1.FixedLenFeature([3], tf.float32)})
        tf.negative(tf.nn.relu(parsed["x"]), name="end")

    program = graph_pb2.GraphDef.FromString(file_of(tmp_path, build).read_bytes())
    program.versions.producer = 16
    for node in program.node:
        if node.name == "examples":
            node.attr["shape"].shape.Clear()
    file = tmp_path / "older.pb"
    file.write_bytes(program.SerializeToString())
    with pytest.raises(InputError, match=r"op examples \(Placeholder\).*shape examples=16,40"):
        planned(file)
    assert planned(file, "examples=7").tensor_bytes.max() == 7 * 3 * 4


@pytest.mark.parametrize("take", ["dequeue_many", "dequeue_up_to", "dequeue"])
@pytest.mark.parametrize("kind", [v1.FIFOQueue, v1.RandomShuffleQueue])
def test_a_queue_states_the_shapes_of_its_elements(tmp_path: Path, kind: Any, take: str) -> None:
    def build() -> None:
        more = {"min_after_dequeue": 1} if kind is v1.RandomShuffleQueue else {}
        queue = kind(capacity=9, dtypes=[tf.float32, tf.int32], shapes=[[3, 4], []], **more)
        rows, _ = queue.dequeue() if take == "dequeue" else getattr(queue, take)(5)
        tf.nn.relu(tf.nn.relu(rows, name="middle"), name="end")

    graph = planned(file_of(tmp_path, build))
    assert sizes(graph, "middle") == [3 * 4 * 4 * (1 if take == "dequeue" else 5)]


def test_a_queue_without_shapes(tmp_path: Path) -> None:
    def build() -> None:
        tf.negative(tf.nn.relu(v1.FIFOQueue(9, [tf.float32]).dequeue()), name="end")

    with pytest.raises(InputError, match=r"\(shape fifo_queue_Dequeue=16,40\)$"):
        planned(file_of(tmp_path, build))


def test_a_table_gives_a_value_for_each_key(tmp_path: Path) -> None:
    """Exactly, not at most: the size of what it gives may be computed with."""

    def build() -> None:
        keys = tf.constant(["a", "b"])
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [0, 1]), -1)
        values = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0, 0.0])
        words = v1.placeholder(tf.string, [6, 2])
        tf.negative(tf.fill(tf.shape(table.lookup(words)), 1.0, name="filled"), name="twice")
        tf.negative(tf.nn.relu(values.lookup(words), name="rows"), name="end")

    file = file_of(tmp_path, build)
    assert sizes(planned(file), "rows") == [6 * 2 * 3 * 4]
    nodes = resolve_shapes(capture_file(file, ["end"]), None)
    assert nodes.size([node.name for node in nodes.defs].index("rows"), 0) == KnownShape((6, 2, 3))
    nodes = resolve_shapes(capture_file(file, ["twice"]), None)
    assert nodes.size([node.name for node in nodes.defs].index("filled"), 0) == KnownShape((6, 2))


def test_savers_are_not_proposed_as_a_step(tmp_path: Path) -> None:
    def build() -> None:
        x = v1.get_variable("x", [4], use_resource=True)
        tf.negative(x, name="end")
        v1.train.Saver([x])

    file = file_of(tmp_path, build)
    with pytest.raises(InputError, match=r"such as (?!save/)"):
        load_graph(Source(file=file), quiet=True)


def test_the_graph_of_a_saved_model_that_does_not_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TensorFlow refuses a version that it cannot read, and variables that are not there."""
    signature = 'signature_def { key: "serving_default" value { outputs { key: "y" value { name: "end:0" } } } }'
    head = 'saved_model_schema_version: 1 meta_graphs { meta_info_def { tags: "serve" tensorflow_version: "0.12.head" }'
    text = f"{head} graph_def {{ {SCALAR.replace('VALIDATES', '')} }} {signature} }}"
    (tmp_path / "saved_model.pbtxt").write_text(text)
    graph = load_graph(Source(saved_model=tmp_path, shape=("x=5",)), quiet=True)
    assert sizes(graph, "y") == [20] and "TensorFlow does not load it" in caplog.text
    with pytest.raises(InputError, match="give its folder as the SavedModel"):
        load_graph(Source(file=tmp_path / "saved_model.pbtxt"), quiet=True)
    (tmp_path / "saved_model.pbtxt").write_text("meta_graphs {")
    with pytest.raises(InputError, match="not a SavedModel that loads"):
        load_graph(Source(saved_model=tmp_path), quiet=True)
