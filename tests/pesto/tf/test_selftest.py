"""The private names of TensorFlow: one self-test, and a clear error when a release lacks or changes one."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf import private  # noqa: E402
from pesto.tf.selftest import self_test  # noqa: E402
from pesto.tf.variables import handles  # noqa: E402  # after the quiet load

MISSING = (
    ("framework.op_def_registry", "get"),
    ("framework.kernels", "get_all_registered_kernels"),
    ("framework.tensor_util", "try_evaluate_constant"),
    ("grappler.tf_optimizer", "OptimizeGraph"),
    ("client.session", "BaseSession"),
    ("eager.polymorphic_function.transform", "FUNC_GRAPH_TRANSFORMS"),
    ("eager.polymorphic_function.transform", "CONCRETE_FUNCTION_CALLBACKS"),
    ("eager.polymorphic_function.function_context", "make_function_context"),
    ("eager.polymorphic_function.concrete_function", "ConcreteFunction"),
    ("ops.control_flow_util", "GraphOrParentsInXlaContext"),
    ("eager.context", "executing_eagerly"),
    ("ops.control_flow_v2_func_graphs", "WhileBodyFuncGraph"),
    ("ops.resource_variable_ops", "ResourceVariable"),
    ("ops.resource_variable_ops", "BaseResourceVariable"),
    ("ops.resource_variable_ops", "_UnreadVariable"),
    ("framework.func_graph", "FuncGraph"),
    ("eager.record", "record_operation"),
)


@pytest.fixture(scope="module", autouse=True)
def whole() -> Iterator[None]:
    """What the tests broke is whole again after them."""
    yield
    self_test.cache_clear()
    self_test()


def test_the_private_names_of_this_release_are_as_expected() -> None:
    """All checks pass on the pinned release, and are not run twice in a process."""
    self_test.cache_clear()
    self_test()
    assert self_test.cache_info().misses == 1
    self_test()
    assert self_test.cache_info().hits == 1


@pytest.mark.parametrize(("module", "name"), MISSING)
def test_a_missing_name_is_named_with_the_version(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release may lack any of them: the error says which, in which version, and what to install."""
    found = getattr(importlib.import_module(f"tensorflow.python.{module}"), name)
    monkeypatch.setattr(private, "_import_module", _without(module, name))
    self_test.cache_clear()
    with pytest.raises(InputError, match=rf"tensorflow {tf.__version__}.*{name} is missing.*install tensorflow"):
        self_test()
    assert found is not None


def _without(module: str, name: str) -> Any:
    original = private._import_module

    class Lacking:
        def __getattr__(self, asked: str) -> Any:
            if asked == name:
                raise AttributeError(asked)
            return getattr(original(module), asked)

    return lambda asked: Lacking() if asked == module else original(asked)


@pytest.mark.parametrize("name", ["_do_run", "_make_callable_from_options"])
def test_a_renamed_method_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that sessions have no more is found before a program runs unwatched."""
    monkeypatch.delattr(importlib.import_module("tensorflow.python.client.session").BaseSession, name)
    self_test.cache_clear()
    with pytest.raises(InputError, match="BaseSession"):
        self_test()


def _nothing(*args: Any) -> None:
    """What a broken part does."""


@pytest.mark.parametrize(
    ("module", "part"),
    [
        (handles, "replace_captures"),
        (private, "is_recording"),
        (private, "get_captured_inputs"),
        (private, "handle_of"),
    ],
)
def test_a_move_that_leaves_a_holder_behind_is_caught(module: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs, tapes, functions and the variables themselves."""
    monkeypatch.setattr(module, part, (lambda _: ()) if part == "get_captured_inputs" else _nothing)
    self_test.cache_clear()
    with pytest.raises(InputError, match=r"(tf\.function|GradientTape) .* changed"):
        self_test()


@pytest.mark.parametrize(
    ("module", "kind", "name"),
    [
        ("ops.resource_variable_ops", "BaseResourceVariable", "_distribute_strategy"),
        ("eager.polymorphic_function.polymorphic_function", "Function", "_autograph"),
    ],
)
def test_a_renamed_attribute_is_caught(module: str, kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy or an option that could no longer be seen would be taken for none."""
    theirs = getattr(importlib.import_module(f"tensorflow.python.{module}"), kind)
    original = theirs.__getattribute__

    def renamed(self: Any, asked: str) -> Any:
        if asked == name:
            raise AttributeError(asked)
        return original(self, asked)

    asks = {"_distribute_strategy": lambda: private.is_distributed(tf.Variable(1.0))}
    ask = asks.get(name, lambda: private.autograph_of(tf.function(abs)))
    monkeypatch.setattr(theirs, "__getattribute__", renamed)
    with pytest.raises(InputError, match=f"{name} is missing"):
        ask()


def test_a_missing_module_is_named() -> None:
    """A module that moved gives the same kind of message, not an ImportError."""
    with pytest.raises(InputError, match=r"tensorflow\.python\.no\.such is missing"):
        private._import_module("no.such")
