"""What a branch returns has a size in planning, also where that depends on the data."""

import pytest

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

import keras  # noqa: E402  # after the quiet load
from keras import layers  # noqa: E402

from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

BATCH, IDS, ROWS, WIDTH = 4, 5, 1000, 8


def shapes_of(captured, batch=None):
    """{op type: upper bounds of the shapes of the outputs of each such op}."""
    nodes = resolve_shapes(captured, batch)
    found = {}
    for i, node in enumerate(nodes.defs):
        found.setdefault(node.op, []).append(tuple(nodes.upper_bounds(i)))
    return found


def embedding(optimizer):
    """A step that updates the rows of a table that its ids name."""
    parts = [layers.Embedding(ROWS, WIDTH), layers.GlobalAveragePooling1D(), layers.Dense(3)]
    model = keras.Sequential([keras.Input((IDS,), dtype="int32"), *parts])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return sources.capture_keras(model, BATCH)


@pytest.mark.parametrize("optimizer", ["adagrad", "adadelta", "rmsprop"])
def test_a_sparse_update_has_at_most_as_many_rows_as_ids(optimizer, caplog):
    """Keras divides slices inside a cond; the branch that looks for zeros in all of a table is not what is planned."""
    step = embedding(optimizer)
    found = shapes_of(step, BATCH)
    build_graph(step, batch=BATCH)
    branches = [shapes for op in ("If", "StatelessIf") for shapes in found.get(op, ())]
    assert all(shape is not None and -1 not in shape for shapes in branches for shape in shapes)
    assert all(shapes[:2] == ((BATCH * IDS, WIDTH), (BATCH * IDS,)) for shapes in branches)
    assert (optimizer == "rmsprop") or branches
    assert ("of branches without what they search for" in caplog.text) == bool(branches)


def test_sizes_that_depend_on_data_are_warned_of_in_one_line(caplog):
    """Three tables with Adagrad have an `If` with searches each: three ops, named by one of them, in one line."""
    ids = [keras.Input((1,), dtype="int32") for _ in range(3)]
    rows = [layers.Flatten()(layers.Embedding(ROWS, WIDTH)(i)) for i in ids]
    model = keras.Model(ids, layers.Dense(1)(layers.Concatenate()(rows)))
    model.compile("adagrad", "mse", jit_compile=False)
    graph = build_graph(sources.capture_keras(model, BATCH), batch=BATCH)
    branches = [name for i, name in enumerate(graph.names) if graph.types[graph.type_of[i]] in ("If", "StatelessIf")]
    assert len(branches) == 3
    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert "sizes of 3 ops depend on the data" in line
    assert f"as of op {branches[0]};" in line


def test_ops_of_unknown_size_in_branches_are_counted_in_one_line(caplog):
    """Nothing limits what decoding a string in a branch gives; both branches count in one line."""

    @tf.function(autograph=False)
    def step(flag, table):
        def some():
            found = tf.io.decode_raw(tf.constant(["abcd"]), tf.float32)
            return tf.reduce_sum(table) + tf.reduce_sum(tf.boolean_mask(found, found > 0.0))

        return [tf.cond(flag, some, lambda: 0.0), tf.cond(flag, some, lambda: 1.0)]

    specs = [tf.TensorSpec([], tf.bool), tf.TensorSpec([10, 2], tf.float32)]
    build_graph(sources.capture_function(step, *specs))
    (line,) = (r.getMessage() for r in caplog.records if "unknown shapes" in r.getMessage())
    assert "as of cond, have unknown shapes" in line


def choice(one, other):
    """A step of ids, [6], and a table, [10, 2], that returns what `one` or `other` makes of them."""

    @tf.function(autograph=False)
    def step(flag, ids, table):
        return tf.cond(flag, lambda: one(ids, table), lambda: other(ids, table))

    specs = [tf.TensorSpec([], tf.bool), tf.TensorSpec([6], tf.int32), tf.TensorSpec([10, 2], tf.float32)]
    return sources.capture_function(step, *specs)


def unique(ids, table):
    """At most 6 rows."""
    return tf.gather(table, tf.unique(ids)[0])


def all_rows(ids, table):
    """10 rows."""
    return tf.boolean_mask(table, tf.fill([10], value=True))


def test_the_larger_of_two_branches():
    """Six rows or three of ten: six."""
    found = shapes_of(choice(unique, lambda _, table: table[:3]))
    assert found["StatelessIf"] == [((6, 2),)]


def test_a_search_counts_where_all_branches_search():
    """Then what is found may be all there is: ten rows."""
    found = shapes_of(choice(all_rows, all_rows))
    assert found["StatelessIf"] == [((10, 2),)]


def test_what_every_branch_hands_on_is_known_by_its_value():
    """The length, a constant outside, comes out of a branch and is a size behind it."""

    @tf.function(autograph=False)
    def step(flag, x):
        size = tf.constant([7])
        size, y = tf.cond(flag, lambda: (tf.identity(size), x), lambda: (size, x * 2.0))
        return tf.fill(size, 1.0), y

    captured = sources.capture_function(step, tf.TensorSpec([], tf.bool), tf.TensorSpec([2], tf.float32))
    assert shapes_of(captured)["Fill"] == [((7,),)]
