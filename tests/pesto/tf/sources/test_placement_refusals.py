"""What pesto.apply refuses of a program is said when its step is planned, in the same words."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError, PestoError, UsageError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

import keras  # noqa: E402  # after the quiet load

import pesto  # noqa: E402
from pesto.tf import private  # noqa: E402
from pesto.tf.enforce import functions  # noqa: E402
from pesto.tf.placement_refusals import check_graph  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

SETTINGS: dict[str, dict[str, Any]] = {
    "compiled": {"jit_compile": True},
    "eager": {"jit_compile": False, "run_eagerly": True},
    "steps": {"jit_compile": False, "steps_per_execution": 2},
    "strategy": {"jit_compile": False},
}
X, Y = np.ones([8, 4], np.float32), np.ones([8, 2], np.float32)


def model(name: str, **others: Any) -> Any:
    strategy = tf.distribute.OneDeviceStrategy("CPU:0") if name == "strategy" else tf.distribute.get_strategy()
    with strategy.scope():
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        made.compile("sgd", "mse", **{**SETTINGS[name], **others})
    return made


def told(act: Callable[[], Any]) -> tuple[type[PestoError], str]:
    """The kind of the error, and what it says behind the name of the step."""
    with pytest.raises(PestoError) as caught:
        act()
    text = str(caught.value)
    shared = ("gradients of", "XLA compiles", "a tf.distribute strategy", "is called in a loop")
    return type(caught.value), text[min(text.find(words) for words in shared if words in text) :]


def when_run(name: str) -> tuple[type[PestoError], str]:
    """What is said of the program as it trains, by the hooks of pesto.apply."""
    made = model(name)

    def on_graph(graph: Any) -> None:
        if not private.is_body(graph) and functions.trains(graph):
            check_graph(graph, f"function {graph.name}")

    def run() -> None:
        with functions.require_functions(), private.watch_traces(on_graph, lambda _: None):
            made.fit(X, Y, batch_size=4, verbose=0)

    return told(run)


@pytest.mark.parametrize("name", SETTINGS)
def test_planning_says_what_running_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a Keras model, from a callable's model with and without data, from the program itself."""
    expected = when_run(name)
    assert told(lambda: sources.from_keras(model(name), 4)) == expected
    module: Any = type(sys)("their_settings")
    module.model, module.batch = (lambda: model(name)), (lambda: (model(name), (X, Y)))
    monkeypatch.setitem(sys.modules, "their_settings", module)
    assert told(lambda: pesto.load_graph(function="their_settings:model", batch=4)) == expected
    assert told(lambda: pesto.load_graph(function="their_settings:batch")) == expected

    def recorded() -> None:
        with pesto.record(batch=4):
            model(name).fit(X, Y, batch_size=4, verbose=0)

    assert told(recorded) == expected


def test_a_function_that_xla_compiles_is_refused_traced_or_not() -> None:
    """A tf.function and the concrete function that it becomes."""
    step = tf.function(lambda x: x + 1.0, jit_compile=True, input_signature=[tf.TensorSpec([4])])
    for each in (step, step.get_concrete_function()):
        assert told(lambda each=each: sources.from_function(each))[1].startswith("XLA compiles the step as one kernel")


def test_a_function_whose_variables_a_strategy_made_is_refused() -> None:
    """Traced outside of the strategy's scope, too."""
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        weight = tf.Variable(tf.ones([4]))
    with pytest.raises(InputError, match=r"a tf\.distribute strategy places its ops itself - train without"):
        sources.from_function(tf.function(lambda x: weight.assign_sub(x * 0.1)), tf.TensorSpec([4]))


def test_functions_that_run_eagerly_are_refused() -> None:
    """A setting of the whole process, which pesto.apply would meet at the first step."""
    tf.config.run_functions_eagerly(True)
    try:
        with pytest.raises(UsageError, match=r"gradients of variables are taken outside of a tf\.function"):
            sources.from_function(tf.function(lambda x: x + 1.0), tf.TensorSpec([4]))
        with pytest.raises(UsageError, match="run_functions_eagerly"), pesto.record():
            pass
    finally:
        tf.config.run_functions_eagerly(False)
    assert sources.from_function(tf.function(lambda x: x + 1.0), tf.TensorSpec([4])).ops > 1
