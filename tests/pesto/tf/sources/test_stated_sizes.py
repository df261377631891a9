"""Largest sizes that the user gives for ops whose size nothing limits; every remedy for these can be followed."""

import re
from pathlib import Path
from typing import Any

import pytest

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.core.source import Cut, Source, function_source, saved_model_source
from pesto.inputs.load import load_graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.nodes.captured import set_feed_shapes  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

v1 = tf.compat.v1
raw = tf.raw_ops


@pytest.fixture
def step(tmp_path: Path) -> Any:
    """Write what a function builds as a GraphDef that ends with op `end`; plan it with shapes."""
    file = tmp_path / "step.pb"

    def planned(build: Any, *shapes: str, batch: int | None = None) -> Graph:
        with tf.Graph().as_default() as graph:
            tf.identity(build(), name="end")
        file.write_bytes(graph.as_graph_def().SerializeToString())
        return load_graph(Source(file=file, fetch=("end",), shape=shapes, batch=batch).checked(), quiet=True)

    return planned


def sizes(graph: Graph, name: str) -> list[int]:
    op = graph.names.index(name)
    return graph.tensor_bytes[graph.tensor_op == op].tolist()


def numbers() -> Any:
    """As many numbers as a feed says."""
    return tf.range(v1.placeholder(tf.int32, [], name="n"), name="numbers") * 2


def named() -> Any:
    """The length of each word of a text, whose words are strings, which have no bytes of their own."""
    words = raw.StringSplitV2(input=v1.placeholder(tf.string, [1], name="x"), sep="", name="words")
    return tf.strings.length(words.values, name="lengths")


def listed() -> Any:
    """What a v2 loop puts into a list, of a size that the data tell."""
    x = v1.placeholder(tf.float32, [None], name="x")
    return tf.map_fn(tf.range, x)


def searched() -> Any:
    """Elements that are above 0: at most 8."""
    x = v1.placeholder(tf.float32, [8], name="x")
    return tf.where(x > 0, name="places")


@pytest.mark.parametrize(
    ("build", "says", "given", "op", "most"),
    [
        (numbers, "shape numbers=N", "numbers=100", "numbers", 400),
        (named, "shape words:1=N", "words:1=9", "lengths", 36),
        (listed, "shape map/TensorArrayV2Stack/TensorListStack=6,N", "{}=6,50", "{}", 1200),
    ],
)
def test_a_file_names_what_to_state(step: Any, build: Any, says: str, given: str, op: str, most: int) -> None:
    """The remedy does not ask for a change of the program, which the user of a file may not have."""
    name = "map/TensorArrayV2Stack/TensorListStack"
    with pytest.raises(InputError, match=rf"- give the largest that it can have \({re.escape(says)}\)$"):
        step(build, batch=6)
    graph = step(build, given.format(name), batch=6)
    assert sizes(graph, op.format(name)) == [most]
    assert graph.feed_shapes == (given.format(name),)


def normed() -> Any:
    """An op with an output of which TensorFlow knows no rank, and planning a bound."""
    none = tf.zeros([0])
    x = v1.placeholder(tf.float32, [8, 6, 6, 4], name="x")
    found = raw.FusedBatchNormV3(x=x, scale=tf.ones([4]), offset=tf.zeros([4]), mean=none, variance=none, name="norm")
    return found.reserve_space_3


@pytest.mark.parametrize(
    ("build", "given", "error"),
    [
        (normed, "norm:5=1,1", r"op norm: its output 5 is at most \[1\], but the shape given for it is \[1, 1\]"),
        (numbers, "numbers=3,4", r"op numbers: its output 0 is \[\?\], but .* is \[3, 4\] - give 1 sizes that agree"),
        (searched, "places=8,2", r"is \[\?, 1\], but the shape given for it is \[8, 2\]"),
        (searched, "places=9,1", r"is at most \[8, 1\], but the shape given for it is \[9, 1\] - give one within that"),
        (searched, "end=9,1", r"op end: its output 0 is at most \[8, 1\]"),
        (lambda: v1.placeholder(tf.float32, [8], name="x") * 2, "mul=7", r"op mul: its output 0 is \[8\], but"),
        (searched, "place=8,1", "place is neither a feed nor an op of the step - .* its feeds: x"),
        (searched, "places:1=8,1", "places:1 is no tensor with a size - op places has places"),
    ],
)
def test_what_contradicts_the_graph_is_refused(step: Any, build: Any, given: str, error: str) -> None:
    """A rank, a size that is known, a bound that is less, and names of nothing."""
    with pytest.raises(InputError, match=error):
        step(build, given)


def test_less_than_what_is_inferred_is_taken(step: Any) -> None:
    """The user knows the data."""
    assert sizes(step(searched), "places") == [64]
    assert sizes(step(searched, "places=3,1"), "places") == [24]


def test_what_is_stated_is_a_bound_and_no_value() -> None:
    """A size that the data tell never becomes a shape of the graph, so no op computes with it."""

    def program(n: Any) -> Any:
        found = tf.range(n, name="numbers")
        return tf.zeros([tf.shape(found, name="size")[0] + 1])

    captured = sources.capture_function(program, tf.TensorSpec([], tf.int32))
    nodes = resolve_shapes(set_feed_shapes(captured, {"numbers": (5,)}), None)
    place = {node.op: i for i, node in enumerate(nodes.defs)}
    assert nodes.shapes[place["Range"]] == ((-1,),)
    assert nodes.upper_bound(place["Range"], 0) == (5,)
    assert nodes.upper_bound(place["Fill"], 0) == (6,)


def sparse() -> Any:
    """A sparse feed of a program of version 1."""
    x = v1.sparse_placeholder(tf.float32, shape=[8, 6], name="in/sparse")
    return tf.sparse.sparse_dense_matmul(x, tf.ones([6, 2]))


def ragged() -> Any:
    """A ragged feed of a program of version 1."""
    x = v1.ragged.placeholder(tf.float32, 1, value_shape=[3], name="ragged")
    return tf.reduce_sum(x.values) + tf.reduce_sum(tf.cast(x.row_splits, tf.float32))


@pytest.mark.parametrize("build", [sparse, ragged])
def test_sparse_and_ragged_feeds_of_a_file(step: Any, build: Any) -> None:
    """Both feeds are named; with their shapes, and what is asked for then, the step is planned."""
    shapes: list[str] = []
    refused = ""
    for _ in range(3):
        try:
            graph = step(build, *shapes, batch=8)
        except InputError as error:
            refused += str(error)
            shapes += [shape.replace("N", "5") for shape in re.findall(r"shape (\S+=[\dN,]+)", str(error))]
    assert graph.ops
    assert refused.count("give the shapes of both its feeds") == 1
    assert len(shapes) <= 3


def program(x: Any) -> Any:
    return tf.range(tf.cast(x[0], tf.int32))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            function_source("module:step", None, None),
            r"tf.range\(tf.minimum\(n, 100\)\); or give the largest .* \(shape range=N\)$",
        ),
        (function_source("module:step", None, Cut(4)), r"tf.range\(tf.minimum\(n, 100\)\)$"),
        ("function step", r"tf.range\(tf.minimum\(n, 100\)\)$"),
        ("keras model", r"tf.range\(tf.minimum\(n, 100\)\)$"),
        (saved_model_source("there", "serving_default"), r"- give the largest that it can have \(shape range=N\)$"),
    ],
)
def test_a_shape_is_asked_for_where_one_can_be_given(source: str, says: str) -> None:
    """Not of a step whose batch is cut, nor of one that Python gives."""
    captured = sources.capture_function(program, tf.TensorSpec([4]), source=source)
    with pytest.raises(InputError, match=says):
        resolve_shapes(captured, None)


AXES = {
    "Transpose": tf.transpose,
    "ConcatV2": lambda x, k: tf.concat([x, x], k[0]),
    "GatherV2": lambda x, k: tf.gather(x, [0], axis=k[0]),
    "ExpandDims": lambda x, k: tf.expand_dims(x, k[0]),
    "ArgMax": lambda x, k: tf.argmax(x, k[0]),
    "Split": lambda x, k: tf.split(x, 2, k[0])[0],
    "MatrixDiagPartV3": lambda x, k: tf.linalg.diag_part(x, k=k[0]),
}


@pytest.mark.parametrize("op", AXES)
def test_axes_as_constants(op: str) -> None:
    """The remedy of ops whose axes are data, done."""

    def of(constant: bool) -> Any:
        def run(x: Any, axes: Any) -> Any:
            return tf.identity(AXES[op](x, tf.constant([1, 0]) if constant else axes))

        captured = sources.capture_function(run, tf.TensorSpec([4, 6]), tf.TensorSpec([2], tf.int32))
        return resolve_shapes(captured, None)

    with pytest.raises(InputError, match="give its axes, diagonals or paddings as constants"):
        of(constant=False)
    assert of(constant=True).defs


def test_a_queue_with_shapes(step: Any) -> None:
    """A file of a program whose queue has none takes them for what it gives; the program with them needs none."""

    def dequeued(**shapes: Any) -> Any:
        queue = tf.queue.FIFOQueue(9, [tf.float32], **shapes)
        return tf.identity(queue.dequeue(name="taken"), name="used")

    with pytest.raises(InputError, match=r"shape \S+=16,40\)$") as refused:
        step(dequeued)
    given = re.findall(r"shape (\S+=16,40)", str(refused.value))
    assert sizes(step(dequeued, *given), "used") == [16 * 40 * 4]
    assert sizes(step(lambda: dequeued(shapes=[[3]])), "used") == [12]
