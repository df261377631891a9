"""Loops and branches: one op each, with the work of their bodies."""

from typing import Any

import pytest

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer import importer  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.nodes.trip_counts import LOOPS  # noqa: E402
from pesto.tf.nodes.trip_counts import trip_count as trips_of  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def counting_loop(*, new: bool) -> tuple[Any, list[Any]]:
    """y = tanh(y @ w) ten times, and its gradient step."""
    graph = tf.Graph()
    with graph.as_default():
        (v1.enable_control_flow_v2 if new else v1.disable_control_flow_v2)()
        x = v1.placeholder(tf.float32, [4, 8], name="x")
        w = v1.get_variable("w", [8, 8], use_resource=True)
        _, y = tf.while_loop(lambda i, _: i < 10, lambda i, y: (i + 1, tf.tanh(y @ w)), [0, x], name="loop")
        loss = tf.reduce_sum(y)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        v1.enable_control_flow_v2()
    return graph, [train, loss]


@pytest.mark.parametrize("new", [True, False])
def test_a_while_loop_is_one_op_with_the_work_of_its_trips(new: bool) -> None:
    """Ten trips of 2*4*8*8 flops forward; two products of that size a trip in the gradient's loop."""
    graph = sources.from_v1(*counting_loop(new=new))
    loops = [i for i in range(graph.ops) if "While" in graph.types[graph.type_of[i]]]
    assert len(loops) == 2
    product = 2 * 4 * 8 * 8
    # Beside the products: tanh, counters and comparisons, 32 or fewer elements each.
    assert 10 * product <= graph.flops[loops[0]] <= 10 * (product + 100)
    assert 20 * product <= graph.flops[loops[1]] <= 10 * (2 * product + 200)
    assert graph.launches[loops].all() and (graph.edge_src < graph.edge_dst).all()


@pytest.mark.parametrize("new", [True, False])
def test_loops_from_a_graph_def_are_those_of_the_graph(new: bool) -> None:
    """A GraphDef loses the shapes behind handles that a loop hands on; the import finds them again."""
    graph, fetches = counting_loop(new=new)
    captured = sources.capture_graph_def(graph.as_graph_def(add_shapes=True), ["train"], "test")
    wanted = sources.from_v1(graph, fetches[:1])
    found = importer.build_graph(captured)
    assert found.fingerprint() == wanted.fingerprint() and found.flops.tolist() == wanted.flops.tolist()


def test_trips_that_depend_on_data_count_once_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A loop until a sum exceeds a feed: one trip is assumed, and the log says so."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [4], name="x")
        tf.while_loop(lambda y: tf.reduce_sum(y) < x[0], lambda y: (y * 2.0,), [x], name="loop")
    found = sources.from_v1(graph, [op.name for op in graph.get_operations() if op.type in ("While", "StatelessWhile")])
    assert "number of trips is not known" in caplog.text and "tf.map_fn and tf.scan go by" in caplog.text
    assert found.flops.max() < 100


def test_a_branch_costs_its_heavier_side() -> None:
    """If: a product on one side, nothing on the other: at least the product's 2*4*4*4 flops."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [4, 4], name="x")
        tf.identity(tf.cond(tf.reduce_sum(x) > 0, lambda: x @ x, lambda: x), name="y")
    found = sources.from_v1(graph, ["y"])
    branch = next(i for i in range(found.ops) if found.types[found.type_of[i]] in ("If", "StatelessIf"))
    assert found.flops[branch] == 2 * 4 * 4 * 4


def test_nested_ranges_multiply() -> None:
    """3 x 4 trips of a product of 2*5*5*5 flops, though the body runs in a loop within a loop."""

    @tf.function
    def step(x: Any) -> Any:
        total = 0.0
        for _ in tf.range(3):
            for _ in tf.range(0, 8, 2):
                total += tf.reduce_sum(x @ x)
        return total

    graph = sources.from_function(step, tf.TensorSpec([5, 5]))
    # Beside the product: a sum of 25 elements and counters.
    assert 12 * 250 <= graph.flops.max() <= 12 * (250 + 40)


@pytest.mark.parametrize(("axis", "trips"), [(0, 4), (1, 6), (-1, 6)])
def test_a_range_over_a_dimension_of_known_size(axis: int, trips: int) -> None:
    """As many trips of a product of 2*5*5*5 flops; also beside an open batch, and over it where its size is given."""

    @tf.function
    def step(x: Any, w: Any) -> Any:
        for _ in tf.range(tf.shape(x)[axis]):
            w = w @ w
        return w, tf.reduce_sum(x)

    for first in (4, None):
        traced = step.get_concrete_function(tf.TensorSpec([first, 6]), tf.TensorSpec([5, 5]))
        graph = sources.from_function(traced, batch=4)
        assert trips * 250 <= graph.flops.max() <= trips * (250 + 40)


def test_v1_branches_stay_ops() -> None:
    """Switch and Merge of a v1 cond are no loop: they stay as they are."""
    graph = tf.Graph()
    with graph.as_default():
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [4, 4], name="x")
        tf.identity(tf.cond(tf.reduce_sum(x) > 0, lambda: x @ x, lambda: x), name="y")
        v1.enable_control_flow_v2()
    graph = sources.from_v1(graph, ["y"])
    assert {"Switch", "Merge", "MatMul"} <= set(graph.types)


def _ctc_step() -> Any:
    """The loss of CTC, which scans 12 times forward, and back with a counter that goes down to 0."""
    logits, labels = v1.placeholder(tf.float32, [4, 12, 5], name="logits"), tf.ones([4, 3], tf.int32)
    lengths = (tf.fill([4], 3), tf.fill([4], 12))
    return tf.reduce_sum(tf.nn.ctc_loss(labels, logits, *lengths, logits_time_major=False, blank_index=0))


def _by_array_length() -> Any:
    """A loop over a TensorArray whose condition asks for its length, 12."""
    rows = tf.TensorArray(tf.float32, size=12, element_shape=[4]).unstack(v1.placeholder(tf.float32, [12, 4]))
    return tf.while_loop(lambda i, _: i < rows.size(), lambda i, y: (i + 1, y + rows.read(i)), [0, tf.zeros([4])])[1]


def _down(last: int, step: int, greater: Any) -> Any:
    return tf.while_loop(
        lambda i, _: greater(i, last), lambda i, y: (i - step, tf.tanh(y)), [23, v1.placeholder(tf.float32, [4])]
    )[1]


@pytest.mark.parametrize(
    ("made", "trips"),
    [
        (_ctc_step, [12, 12]),
        (_by_array_length, [12]),
        (lambda: tf.map_fn(tf.tanh, v1.placeholder(tf.float32, [12, 4])), [12]),
        (lambda: _down(0, 2, tf.greater_equal), [12]),
        (lambda: _down(0, 2, tf.greater), [12]),
        (lambda: _down(1, 2, tf.greater), [11]),
        (lambda: _down(30, 2, tf.greater), [0]),
    ],
)
def test_trips_are_known_from_shapes_lengths_and_counters_down(
    made: Any, trips: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """As many as run: a dimension, a TensorArray's length, or a counter on its way down."""
    graph = tf.Graph()
    with graph.as_default():
        made()
    loops = [op.name for op in graph.get_operations() if op.type in LOOPS]
    captured = sources.capture_v1(graph, loops)
    nodes, known = resolve_shapes(captured, None), {}
    for i, node in enumerate(nodes.defs):
        if node.op in LOOPS:
            known[i] = trips_of(nodes, i, known)
    assert list(known.values()) == trips
    assert "number of trips" not in caplog.text


def test_a_loop_down_to_a_dimension_has_no_known_trips() -> None:
    """A dimension is known by its upper bound, from which a counter on its way down would take too few trips."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [6], name="x")
        last = tf.shape(tf.boolean_mask(x, x > 0))[0]
        tf.while_loop(lambda i, _: i > last, lambda i, y: (i - 1, tf.tanh(y)), [23, x], name="loop")
    loops = [op.name for op in graph.get_operations() if op.type in LOOPS]
    nodes = resolve_shapes(sources.capture_v1(graph, loops), None)
    (loop,) = [i for i, node in enumerate(nodes.defs) if node.op in LOOPS]
    assert trips_of(nodes, loop, {}) is None
