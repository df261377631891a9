"""Every way into the program from TensorFlow, and every way it can be wrong: one line each."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError, PestoError, UsageError
from pesto.core.graph import Graph
from pesto.core.source import Source
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import named_sources  # noqa: E402
from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.nodes.inline import find_called_functions, inline_python_calls  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load
from pesto.verbs import api  # noqa: E402


def types(graph: Graph) -> list[str]:
    return [graph.types[t] for t in graph.type_of]


def step_graph() -> Any:
    """A v1 graph with a feed, a variable, and ops `train` and `loss`."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [4, 8], name="x")
        w = v1.get_variable("w", [8, 3], use_resource=True)
        loss = tf.reduce_mean(tf.square(x @ w), name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
    return graph


def training_module() -> Any:
    """A module whose `train` calls another tf.function, under a tape, and updates its variable."""

    class Module(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable(tf.ones([8, 3]), name="w")

        @tf.function
        def product(self, x: Any) -> Any:
            return x @ self.w

        @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
        def train(self, x) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self.product(x)))
            self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
            return {"loss": loss}

    return Module()


def calling(module: Any) -> Any:
    """A function that calls the module's."""

    @tf.function
    def outer(x: Any) -> Any:
        return module.train(x)

    return outer


def test_v1_takes_ops_tensors_and_names() -> None:
    """A fetch may be an op, a tensor, or the name of either; the graph is the same."""
    graph = step_graph()
    op, tensor = graph.get_operation_by_name("train"), graph.get_tensor_by_name("loss:0")
    assert sources.from_v1(graph, [op, tensor]).names == sources.from_v1(graph, ["train", "loss:0"]).names


@pytest.mark.parametrize(("fetch", "told"), [("trian", "did you mean 'train'"), ("loss:3", "no output '3'")])
def test_unknown_fetches_get_the_nearest_name(fetch: str, told: str) -> None:
    """A misspelt op and an output that does not exist are refused with what would be right."""
    with pytest.raises(InputError, match=told):
        sources.from_v1(step_graph(), [fetch])
    with pytest.raises(InputError, match="as what to fetch"):
        sources.from_v1(step_graph(), [])


def test_nested_functions_are_inlined() -> None:
    """The inner function's product is an op of the step, forward and in the gradient; no call is left."""
    module = training_module()
    graph = sources.from_function(module.product, tf.TensorSpec([4, 8]))
    assert types(graph).count("MatMul") == 1
    graph = sources.from_function(calling(module), tf.TensorSpec([None, 8]), batch=4)
    assert types(graph).count("MatMul") == 2 and not any("PartitionedCall" in t for t in types(graph))
    assert graph.param_bytes.sum() == 8 * 3 * 4 and "AssignSubVariableOp" in types(graph)
    # The gradient of the product reads x and the loss' gradient: 2 * 8 * 3 * 4 flops, as does the product.
    products = [f for f, t in zip(graph.flops, types(graph), strict=True) if t == "MatMul"]
    assert products == [2 * 4 * 8 * 3] * 2


def test_a_calls_effects_come_before_what_waits_for_it() -> None:
    """A function assigns; what the outer function reads afterwards is ordered behind the assignment."""
    counter = tf.Variable(1.0)

    @tf.function
    def bump() -> None:
        counter.assign_add(1.0)

    @tf.function
    def outer(x: Any) -> Any:
        bump()
        return x * counter

    graph = sources.from_function(outer, tf.TensorSpec([2]))
    before = np.zeros((graph.ops, graph.ops), dtype=bool)
    for a, b in sorted(zip(graph.edge_src, graph.edge_dst, strict=True), key=lambda e: e[1]):
        before[b] |= before[a]
        before[b, a] = True
    add = types(graph).index("AssignAddVariableOp")
    read = next(i for i, t in enumerate(types(graph)) if t == "ReadVariableOp")
    assert before[read, add]


def test_nested_functions_are_traced_flat_where_that_works() -> None:
    """The ops are those of one graph, as `inline_python_calls` gives it, and the switch that it uses is put back."""
    module = training_module()
    for fn in (calling(module), module.train, lambda x: module.train(x)["loss"]):
        found = sources.capture_function(fn, *([] if fn is module.train else [tf.TensorSpec([4, 8])]), batch=4)
        names = {node.name for node in found.graph_def.node}
        assert "matmul" in names and not any("PartitionedCall" in name for name in names)
        assert not tf.config.functions_run_eagerly()
    spec = tf.TensorSpec([4, 8])
    by_hand = tf.function(inline_python_calls(calling(module).python_function)).get_concrete_function(spec).graph
    assert not find_called_functions(by_hand)
    expected = sources.from_function(calling(module), spec)
    assert build_graph(sources.capture_func_graph(by_hand, "x")).layout() == expected.layout()


def test_flat_restores_the_switch_when_the_function_raises() -> None:
    """On and off alike."""

    def wrong() -> None:
        assert tf.config.functions_run_eagerly()
        raise RuntimeError("mine")

    for before in (False, True):
        tf.config.run_functions_eagerly(before)
        try:
            with pytest.raises(RuntimeError, match="mine"):
                inline_python_calls(wrong)()
            assert tf.config.functions_run_eagerly() == before
        finally:
            tf.config.run_functions_eagerly(False)


def test_what_cannot_be_traced_flat_is_inlined() -> None:
    """A nested function that branches on a tensor needs its own autograph: its body takes the place of the call."""

    @tf.function
    def branch(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:  # noqa: SIM108  # autograph sees statements
            y = x * 2.0
        else:
            y = -x
        return y

    graph = sources.from_function(lambda x: branch(x) + 1.0, tf.TensorSpec([4]))
    assert "StatelessIf" in types(graph) and not any("PartitionedCall" in t for t in types(graph))
    assert any(name.startswith("PartitionedCall/") for name in graph.names)


def test_functions_concrete_functions_and_plain_ones_agree() -> None:
    """Three ways to hand over one function give one fingerprint."""
    w = tf.Variable(tf.ones([8, 3]))

    def plain(x: Any) -> Any:
        return tf.reduce_sum(x @ w)

    spec = tf.TensorSpec([4, 8])
    found = [
        sources.from_function(plain, spec),
        sources.from_function(tf.function(plain), spec),
        sources.from_function(tf.function(plain).get_concrete_function(spec)),
    ]
    assert len({graph.fingerprint() for graph in found}) == 1


def test_functions_that_fail_or_that_xla_compiles_are_refused() -> None:
    """What tracing raises becomes one line; jit_compile=True cannot be placed op by op, inside a call either."""

    def wrong(x: Any) -> Any:
        raise ValueError("first line\nmine")

    with pytest.raises(InputError, match="ValueError"):
        sources.from_function(wrong, tf.TensorSpec([2]))
    compiled = tf.function(lambda x: x + 1.0, jit_compile=True)
    with pytest.raises(InputError, match="jit_compile=False"):
        sources.from_function(compiled, tf.TensorSpec([2]))
    with pytest.raises(InputError, match="jit_compile=False"):
        sources.from_function(lambda x: compiled(x) * 2.0, tf.TensorSpec([2]))


def keras_model(**options: Any) -> Any:
    import keras

    model = keras.Sequential([keras.Input((6,)), keras.layers.Embedding(20, 8), keras.layers.LSTM(5, **options)])
    model.add(keras.layers.Dense(3))
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    return model


def test_a_keras_step_has_forward_gradients_and_updates() -> None:
    """Every weight is read, its gradient taken and its slots updated; targets of a sparse loss are class indices."""
    model = keras_model()
    graph = sources.from_keras(model, 4)
    weights = sum(int(np.prod(w.shape)) for w in model.trainable_variables)
    # Adam keeps two slots a weight; beside them are counters of a few bytes each.
    assert 3 * 4 * weights <= graph.param_bytes.sum() <= 3 * 4 * weights + 100
    feeds = {graph.names[i]: i for i, t in enumerate(types(graph)) if t == "Placeholder"}
    sizes = sorted(int(graph.tensor_bytes[graph.tensor_op == i].sum()) for i in feeds.values())
    assert sizes == [4 * 4, 4 * 6 * 4]


def test_rolled_and_unrolled_rnns_do_about_the_same_work() -> None:
    """A While is one op with the work of its 6 trips: within a tenth of the unrolled network's."""
    rolled, unrolled = (sources.from_keras(keras_model(unroll=unroll), 4) for unroll in (False, True))
    assert sum("While" in t for t in types(rolled)) == 2 and not any("While" in t for t in types(unrolled))
    assert rolled.flops.sum() == pytest.approx(unrolled.flops.sum(), rel=0.1)


def test_keras_models_that_are_not_ready_are_refused() -> None:
    """Not compiled, or without inputs: one line with the remedy."""
    import keras

    with pytest.raises(InputError, match="compile"):
        sources.from_keras(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), 4)
    unbuilt = keras.Sequential([keras.layers.Dense(2)])
    unbuilt.compile("sgd", "mse", jit_compile=False)
    with pytest.raises(InputError, match="Input layer"):
        sources.from_keras(unbuilt, 4)


def test_keras_models_with_several_inputs_and_outputs() -> None:
    """Two named inputs and two outputs with a loss each."""
    import keras

    a, b = keras.Input((4,), name="a"), keras.Input((5,), name="b")
    both = keras.layers.Concatenate()([a, b])
    outputs = [keras.layers.Dense(2, name="p")(both), keras.layers.Dense(3, name="q")(both)]
    model = keras.Model({"a": a, "b": b}, outputs)
    model.compile("sgd", ["mse", "mae"], jit_compile=False)
    assert types(sources.from_keras(model, 2)).count("Placeholder") == 4


def test_saved_models(tmp_path: Path) -> None:
    """The only signature is the default; an open batch needs one; another name is refused with those there are."""
    module = training_module()
    tf.saved_model.save(module, str(tmp_path), signatures={"train": module.train})
    graph = sources.from_saved_model(tmp_path, batch=4)
    assert types(graph).count("MatMul") == 2 and graph.param_bytes.sum() == 96
    with pytest.raises(InputError, match="give a batch size"):
        sources.from_saved_model(tmp_path)
    with pytest.raises(InputError, match="no signature 'serve' - it has train"):
        sources.from_saved_model(tmp_path, "serve")
    with pytest.raises(InputError, match="not a SavedModel"):
        sources.from_saved_model(tmp_path / "nowhere")


def saved(folder: Path, **signatures: Any) -> Path:
    """A SavedModel of a module that trains and infers, under these names."""
    module = training_module()
    infer = tf.function(lambda x: x @ module.w, input_signature=[tf.TensorSpec([None, 8])])
    module.infer = infer
    tf.saved_model.save(module, str(folder), signatures={k: getattr(module, v) for k, v in signatures.items()})
    return folder


def test_a_saved_model_of_several_signatures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The default one with a word of the others and of inference; the one that is named; or which there are."""
    folder = saved(tmp_path / "both", serving_default="infer", train="train")
    served = api.load_graph(saved_model=folder, batch=4)
    said = [record.getMessage() for record in caplog.records]
    assert served.source.endswith("serving_default") and types(served).count("MatMul") == 1
    assert any("serving_default is planned, of the signatures serving_default, train" in line for line in said)
    assert any("updates no variable: inference is planned" in line for line in said)
    caplog.clear()
    trained = api.load_graph(saved_model=folder, signature="train", batch=4)
    assert trained.source.endswith("train") and types(trained).count("MatMul") == 2 and not caplog.records
    with pytest.raises(InputError, match="no signature 'eval' - it has serving_default, train"):
        api.load_graph(saved_model=folder, signature="eval", batch=4)
    with pytest.raises(InputError, match="has the signatures infer, train - name one of them"):
        api.load_graph(saved_model=saved(tmp_path / "neither", infer="infer", train="train"), batch=4)
    with pytest.raises(UsageError, match="signature is 3 - give"):
        api.load_graph(saved_model=folder, signature=3)  # type: ignore[arg-type]


MODULE = """
import keras
import tensorflow as tf
def graph():
    found = tf.Graph()
    with found.as_default():
        tf.square(tf.compat.v1.placeholder(tf.float32, [3]), name="y")
    return found, ["y"]
@tf.function(input_signature=[tf.TensorSpec([3], name="x")])
def decorated(x):
    return x * 2.0
def pair():
    return (lambda x: x * 2.0), tf.TensorSpec([None])
def model():
    found = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    found.compile("sgd", "mse", jit_compile=False)
    return found
def uncompiled():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
def wrong():
    return 3
def raises():
    raise RuntimeError("mine")
def leaves():
    raise SystemExit(1)
constant = 3
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the current folder."""
    (tmp_path / "users_steps.py").write_text(MODULE)
    (tmp_path / "users_broken.py").write_text("import users_steps\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    for name in ("users_steps", "users_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "users_steps"


def test_callables_may_be_or_return_any_step(user_module: str) -> None:
    """A graph with fetches, a decorated function, a function with specs, a model."""
    assert "Square" in types(api.load_graph(function=f"{user_module}:graph"))
    assert "Mul" in types(api.load_graph(function=f"{user_module}:decorated"))
    assert "Mul" in types(api.load_graph(function=f"{user_module}:pair", batch=5))
    assert types(api.load_graph(function=f"{user_module}:model", batch=5)).count("MatMul") >= 2
    assert str(Path.cwd()) not in sys.path


@pytest.mark.parametrize(
    ("reference", "error", "told"),
    [
        ("users_steps", UsageError, "package.module:callable"),
        ("users_nowhere:f", UsageError, "no module 'users_nowhere'"),
        ("users_steps:nothing", UsageError, "has no nothing - give a name that is"),
        ("users_steps:constant", UsageError, "not callable"),
        ("users_steps:wrong", InputError, "gave a int"),
        ("users_steps:raises", InputError, "RuntimeError: mine"),
        ("users_steps:leaves", InputError, "SystemExit"),
        ("users_steps:model", InputError, "has no batch size - give one"),
        ("users_steps:uncompiled", InputError, r"is not compiled - call model\.compile"),
        ("users_broken:f", InputError, "ZeroDivisionError"),
    ],
)
def test_callables_that_are_wrong_get_one_line(
    user_module: str, reference: str, error: type[PestoError], told: str
) -> None:
    """Malformed names are UsageErrors, what the user's code raises is an InputError; never a traceback."""
    with pytest.raises(error, match=told) as caught:
        api.load_graph(function=reference)
    assert "\n" not in str(caught.value)


def test_built_in_models_are_known_by_name() -> None:
    """A tiny model imports, and another name or variant is a UsageError with what exists."""
    graph = named_sources.load_graph(Source(model="rnnlm", variant="tiny"))
    assert graph.source == "model rnnlm tiny" and types(graph).count("MatMul") > 10
    for model, variant in (("rnnlmm", "tiny"), ("rnnlm", "tinny")):
        with pytest.raises(UsageError, match="did you mean"):
            named_sources.load_graph(Source(model=model, variant=variant))
