"""Bodies of branches that differ in names only are inferred once, and all others by themselves."""

import pytest

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

import keras  # noqa: E402  # after the quiet load
from keras import layers  # noqa: E402

from pesto.tf.importer import branch_shapes, opcosts  # noqa: E402
from pesto.tf.importer.branch_shapes import FunctionKeys  # noqa: E402
from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

BATCH = 4


def key_of(fn, *specs):
    """The key of a traced function."""
    made = tf.function(fn, autograph=False).get_concrete_function(*specs)
    library = {f.signature.name: f for f in made.graph.as_graph_def().library.function}
    return FunctionKeys().key(made.function_def, library)


def pair(*shape):
    """Two arguments of one shape."""
    return tf.TensorSpec(shape, tf.float32), tf.TensorSpec(shape, tf.float32)


def subtract(a, b):
    """a - b, by names of its own."""
    return tf.square(tf.subtract(a, b, name="less"), name="twice")


def test_names_and_variables_make_no_other_key():
    """Nodes, arguments and functions that are called otherwise, and another variable of the same shape."""
    one, other = (tf.Variable(tf.zeros([3, 2]), name=name) for name in ("one", "other"))
    assert key_of(subtract, *pair(2)) == key_of(lambda x, y: tf.square(x - y), *pair(2))
    assert key_of(lambda: one * 2.0) == key_of(lambda: tf.multiply(other, 2.0, name="doubled"))
    assert key_of(conditional(2.0), *pair()) == key_of(conditional(2.0), *pair())  # traced anew, under other names


def conditional(factor):
    """A function that holds two more."""
    return lambda a, b: tf.cond(a > b, lambda: a * factor, lambda: b)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: tf.square(b - a),
        lambda a, b: tf.abs(a - b),
        lambda a, b: (tf.square(a - b), a),
    ],
)
def test_what_is_computed_makes_another_key(fn):
    """The order of arguments, an op's type and what is returned."""
    assert key_of(fn, *pair(2)) != key_of(subtract, *pair(2))


def test_an_inner_function_makes_another_key():
    """A constant in a branch counts."""
    assert key_of(conditional(2.0), *pair()) != key_of(conditional(3.0), *pair())


def tables(*widths):
    """A step with an embedding table of each width, trained by Adagrad, which divides in branches."""
    ids = [keras.Input((1,), dtype="int32") for _ in widths]
    rows = [layers.Flatten()(layers.Embedding(100, width)(i)) for i, width in zip(ids, widths, strict=True)]
    model = keras.Model(ids, layers.Dense(1)(layers.Concatenate()(rows)))
    model.compile("adagrad", "mse", jit_compile=False)
    return sources.capture_keras(model, BATCH)


@pytest.mark.slow
def test_equal_tables_take_no_more_inferences(monkeypatch):
    """Six tables are read with as many inferences of bodies as two; of other widths each has its own."""
    calls = []
    for module in (branch_shapes, opcosts):
        monkeypatch.setattr(
            module, "infer_shapes", lambda graph_def, plain=module.infer_shapes: calls.append(1) or plain(graph_def)
        )

    def inferred(*widths):
        calls.clear()
        build_graph(tables(*widths), batch=BATCH)
        return len(calls)

    assert inferred(8, 8) == inferred(*[8] * 6) > 0
    assert inferred(8, 16) == 2 * inferred(8, 8)


def test_tables_of_other_widths_have_their_own_sizes():
    """What a branch returns is as wide as its table: at most one row an id, of 4-byte floats."""
    graph = build_graph(tables(8, 16, 8), batch=BATCH)
    branches = [i for i, kind in enumerate(graph.type_of) if graph.types[kind] in ("If", "StatelessIf")]
    rows = [max(graph.tensor_bytes[graph.tensor_op == i]) for i in branches]
    assert sorted(rows) == [BATCH * 8 * 4, BATCH * 8 * 4, BATCH * 16 * 4]
