"""A Keras step as it is imported is the step that fit, and train_on_batch, trace."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked
import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

import keras  # noqa: E402  # after the quiet load
from keras import layers  # noqa: E402
from tensorflow.python.eager.polymorphic_function import transform  # noqa: E402

from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.nodes import shape_inference  # noqa: E402
from pesto.tf.nodes.shape_inference import infer_shapes  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402
from pesto.verbs import api  # noqa: E402

BATCH = 8
Data = tuple[np.ndarray, np.ndarray]


def mlp() -> Any:
    return keras.Sequential([keras.Input((12,)), layers.Dense(16, "relu"), layers.Dropout(0.3), layers.Dense(5)])


def cnn() -> Any:
    parts = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    return keras.Sequential([keras.Input((8, 8, 3)), *parts, layers.Dropout(0.2), layers.Flatten(), layers.Dense(5)])


def attention() -> Any:
    x = keras.Input((6, 8))
    y = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    return keras.Model(x, layers.Dense(5)(layers.GlobalAveragePooling1D()(y)))


def lstm(unroll: bool) -> Callable[[], Any]:
    def build_lstm() -> Any:
        parts = [layers.Embedding(20, 8), layers.LSTM(7, unroll=unroll, use_cudnn=False), layers.Dense(5)]
        return keras.Sequential([keras.Input((6,), dtype="int32"), *parts])

    return build_lstm


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": mlp,
    "cnn": cnn,
    "attention": attention,
    "lstm unrolled": lstm(True),
    "lstm loop": lstm(False),
}
SOME = [name if name == "mlp" else pytest.param(name, marks=pytest.mark.matrix) for name in MODELS]
"""In a default run a plain network, and one with a loop and so functions inside the step."""


def compiled(name: str) -> Any:
    model = MODELS[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    return model


def examples(model: Any, count: int) -> Data:
    rng = np.random.default_rng(0)
    (entry,) = model.inputs
    x, y = rng.integers(0, 20, (count, *entry.shape[1:])), rng.integers(0, 5, count)
    return x.astype(entry.dtype), y.astype("int32")


@pytest.fixture
def traced() -> Iterator[Callable[[], list[Any]]]:
    """The FuncGraphs of one_step_on_data so far, without the first, which also creates variables."""
    seen: list[Any] = []
    transform.FUNC_GRAPH_TRANSFORMS.append(seen.append)

    def steps() -> list[Any]:
        own = [g for g in seen if g.name == "one_step_on_data"]
        seen.clear()
        return [g for g in own if not any(op.type == "VarIsInitializedOp" for op in g.get_operations())]

    yield steps
    transform.FUNC_GRAPH_TRANSFORMS.remove(seen.append)


def imported(traces: list[Any]) -> Graph:
    (one,) = traces
    return build_graph(sources.capture_func_graph(one, "fit"), batch=BATCH)


def assert_same(a: Graph, b: Graph) -> None:
    assert (a.layout(), a.fingerprint(), a.batch) == (b.layout(), b.fingerprint(), b.batch)


@pytest.mark.parametrize("name", SOME)
def test_arrays_that_the_batch_does_not_divide(name: str, traced: Callable[[], list[Any]]) -> None:
    """20 examples in batches of 8 leave the batch open; before and after fit the import is what fit traces."""
    model = compiled(name)
    before = sources.from_keras(model, BATCH)
    assert before.batch == BATCH
    traced()
    model.fit(*examples(model, 20), batch_size=BATCH, verbose=0)
    assert_same(before, imported(traced()))
    assert_same(before, sources.from_keras(model, BATCH))
    fresh = compiled(name)
    fresh.fit(*examples(fresh, 20), batch_size=BATCH, verbose=0)
    assert_same(before, imported(traced()))


@pytest.mark.parametrize("name", SOME)
def test_batches_of_one_size(name: str, traced: Callable[[], list[Any]]) -> None:
    """drop_remainder and train_on_batch fix the batch: the static import; the open one is another graph."""
    model, other = compiled(name), compiled(name)
    x, y = examples(model, 16)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    model.fit(data, verbose=0)
    fitted = imported(traced())
    other.train_on_batch(x[:BATCH], y[:BATCH])
    assert_same(fitted, imported(traced()))
    fresh = sources.from_keras(compiled(name), BATCH, static=True)
    assert_same(fitted, fresh)
    assert fresh.batch is None
    assert fresh.layout() != sources.from_keras(model, BATCH).layout()


def test_record_names_a_step_by_its_model() -> None:
    """As reading the model does; twins that train by turns are two steps."""
    twins = [compiled("mlp") for _ in range(2)]
    twins[1].name = "twin"
    with api.record(batch=BATCH) as step:
        for model in twins:
            model.train_on_batch(*examples(model, BATCH))
    with pytest.raises(InputError, match=f"found keras {twins[0].name}, keras twin - record each in a context of its"):
        _ = step.graph
    for model in twins:
        with api.record(batch=BATCH) as step:
            model.fit(*examples(model, BATCH), batch_size=BATCH, verbose=0)
        assert step.graph.source == sources.from_keras(model, BATCH).source == f"keras {model.name}"


def test_arrays_that_the_batch_divides_and_datasets(traced: Callable[[], list[Any]]) -> None:
    """16 examples in batches of 8 fix the batch; a dataset without drop_remainder leaves it open all the same."""
    model, other = compiled("mlp"), compiled("mlp")
    model.fit(*examples(model, 16), batch_size=BATCH, verbose=0)
    assert_same(imported(traced()), sources.from_keras(model, BATCH, static=True))
    traced()
    other.fit(tf.data.Dataset.from_tensor_slices(examples(other, 16)).batch(BATCH), verbose=0)
    assert_same(imported(traced()), sources.from_keras(other, BATCH))


@pytest.mark.parametrize("weighted", [False, True])
def test_data_says_which_types_fit_gets(weighted: bool, traced: Callable[[], list[Any]]) -> None:
    """Class indices of another type, and weights of the examples: another step, found from an example or specs."""
    model = compiled("mlp")
    x, y = examples(model, 20)
    data = (x, y.astype("int64")) + ((np.ones(20, "float32"),) if weighted else ())
    specs = tuple(tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in data)
    found = sources.from_keras(model, BATCH, data=data)
    assert_same(found, sources.from_keras(model, BATCH, data=specs))
    assert found.fingerprint() != sources.from_keras(model, BATCH).fingerprint()
    traced()
    model.fit(data[0], data[1], sample_weight=data[2] if weighted else None, batch_size=BATCH, verbose=0)
    assert_same(found, imported(traced()))


def test_a_model_without_inputs_is_built_by_the_import_as_by_fit(traced: Callable[[], list[Any]]) -> None:
    """Layers, optimizer and metrics do not exist before: an example of a batch is enough."""

    def unbuilt() -> Any:
        model = keras.Sequential([layers.Dense(6, "relu"), layers.BatchNormalization(), layers.Dense(2)])
        model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
        return model

    x, y = np.ones((20, 4), "float32"), np.ones((20, 2), "float32")
    model, other = unbuilt(), unbuilt()
    assert not model.built
    found = sources.from_keras(model, BATCH, data=(x, y))
    traced()
    other.fit(x, y, batch_size=BATCH, verbose=0)
    assert_same(found, imported(traced()))


@pytest.mark.parametrize("built_so", [True, False])
def test_a_step_is_traced_once(built_so: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots and metrics are made before, as by fit; a model that cannot be built so is traced twice, to the same."""
    model, traces = compiled("cnn"), []
    train_step = model.train_step
    monkeypatch.setattr(model, "train_step", lambda data: traces.append(data) or train_step(data))
    if not built_so:
        monkeypatch.setattr(model, "_symbolic_build", lambda **_: 1 / 0)
    found = sources.from_keras(model, BATCH)
    assert len(traces) == (1 if built_so else 2)
    assert_same(found, sources.from_keras(compiled("cnn"), BATCH))


def test_shapes_are_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only axes to sum over stay open, their bound is all that is to be learnt."""
    passes = []
    monkeypatch.setattr(
        shape_inference, "infer_shapes", lambda graph_def: passes.append(graph_def) or infer_shapes(graph_def)
    )
    found = sources.from_keras(compiled("attention"), BATCH)
    assert len(passes) == 1
    axes = np.flatnonzero(found.type_of[found.tensor_op] == found.types.index("BroadcastGradientArgs"))
    read = np.intersect1d(axes, found.tensor)
    assert len(read) and (found.tensor_bytes[read] > 0).all()


def test_a_callable_may_give_a_model_with_example_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """--function returning (model, (x, y)) plans the data's types, and their own batch size unless --batch opens it."""
    model = compiled("mlp")
    x, y = examples(model, BATCH)
    labels = y.astype("int64")
    monkeypatch.setitem(sys.modules, "told", SimpleNamespace(step=lambda: (model, (x, labels))))
    opened = sources.from_keras(model, BATCH, data=(x, labels))
    assert api.load_graph(function="told:step", batch=BATCH).fingerprint() == opened.fingerprint()
    fixed = sources.from_keras(model, BATCH, static=True, data=(x, labels))
    assert api.load_graph(function="told:step").fingerprint() == fixed.fingerprint()
    uneven = SimpleNamespace(step=lambda: (model, (x, labels[:-1])))
    monkeypatch.setitem(sys.modules, "uneven", uneven)
    with pytest.raises(InputError, match="batch sizes"):
        api.load_graph(function="uneven:step")


def test_data_without_a_batch_dimension_is_refused() -> None:
    """A number is no example."""
    with pytest.raises(InputError, match="without a batch dimension"):
        sources.from_keras(compiled("mlp"), BATCH, data=(np.ones((8, 12)), 3))


def test_python_control_flow_in_a_train_step_is_as_in_fit(traced: Callable[[], list[Any]]) -> None:
    """fit runs train_step without autograph, and so does the import: a branch on a tensor is refused by both."""

    class Branching(keras.Model):
        def train_step(self, data: Any) -> Any:
            if tf.reduce_sum(data[0]) > 0:
                return super().train_step(data)
            return {}

    x = keras.Input((4,))
    model = Branching(x, layers.Dense(2)(x))
    model.compile("sgd", "mse", jit_compile=False)
    with pytest.raises(Exception, match="symbolic"):
        model.fit(np.ones((3, 4), "float32"), np.ones((3, 2), "float32"), batch_size=2, verbose=0)
    with pytest.raises(InputError, match="OperatorNotAllowed"):
        sources.from_keras(model, 2)


@pytest.mark.parametrize("name", ["lstm unrolled", "lstm loop"])
def test_an_open_batch_has_about_the_work_of_a_fixed_one(name: str) -> None:
    """The ops that an open batch adds do little; in loops too the batch is put in, without a warning."""
    opened, fixed = (sources.from_keras(compiled(name), BATCH, static=static) for static in (False, True))
    assert fixed.flops.sum() <= opened.flops.sum() <= 1.15 * fixed.flops.sum()
    assert fixed.moved_bytes.sum() <= opened.moved_bytes.sum() <= 1.5 * fixed.moved_bytes.sum()


def test_work_in_loops_is_known_with_an_open_batch(caplog: pytest.LogCaptureFixture) -> None:
    """No op of the loop's body is left without a size."""
    sources.from_keras(compiled("lstm loop"), BATCH)
    assert "unknown shapes" not in caplog.text


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import test_keras as t
model = t.compiled("cnn")
if sys.argv[2] == "fit":
    model.fit(*t.examples(model, 20), batch_size=t.BATCH, verbose=0)
print("layout", t.sources.from_keras(model, t.BATCH).layout())
"""


@pytest.mark.parametrize("first", ["import", pytest.param("fit", marks=pytest.mark.matrix)])
def test_processes_agree(first: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A fresh process, with and without a fit before the import, finds the layout of this one."""
    (tmp_path / "first.py").write_text(SCRIPT)
    here = request.path.parent
    expected = f"layout {sources.from_keras(compiled('cnn'), BATCH).layout()}"
    done = forked.run("first.py", here, first, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
