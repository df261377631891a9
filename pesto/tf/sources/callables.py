"""`package.module:callable`: a step that the user's own Python code hands over."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.files.reading import report_phase
from pesto.core.source import Cut, function_source
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.sources.keras_step import check_compiled, is_keras_2
from pesto.tf.sources.sources import capture_function, capture_keras, capture_pieces, capture_v1, describe_exception

_TAKES = "a tf.function, a compiled Keras model, (model, (x, y)), (function, *specs) or (tf.Graph, fetches)"


def capture_callable(
    reference: str, batch: int | None = None, *, open_batch: bool = False, cut: Cut | None = None
) -> CapturedStep:
    """Return the step of what `step_object` finds. Raise what it and `capture_object` raise."""
    return capture_object(step_object(reference), reference, batch, open_batch=open_batch, cut=cut)


def step_object(reference: str) -> Any:
    """Import the module, from the current folder too, and take what has its step.

    The object may be a `tf.function` with an input signature, a concrete function or a compiled Keras model; anything
    else is called without arguments and must return one of those, `(model, (x, y))` with an example batch,
    `(function, *specs)` with `tf.TensorSpec`s, or `(tf.Graph, fetches)`. Raise UsageError for an unknown name,
    InputError for what the user's code raises and for arguments of which nothing says types and shapes.
    """
    module_name, _, attribute = reference.partition(":")
    report_phase(f"importing {shown(module_name)}")
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        with _shorten_errors(reference, "importing it"):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError.build(
            f"function {shown(reference)}: no module {error.name!r}", remedy="check the name, or set PYTHONPATH"
        ) from error
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)
    step: Any = module
    for part in attribute.split("."):
        near = get_close_matches(part, dir(step), n=1)
        step = getattr(step, part, None)
        if step is None:
            fault = f"function {shown(reference)}: module {module_name} has no {shown(attribute)}"
            remedy = f"did you mean {near[0]}?" if near else "give a name that is defined there"
            raise UsageError.build(fault, remedy=remedy)
    if not _is_step(step):
        if not callable(step):
            raise UsageError.build(
                f"function {shown(reference)}: {type(step).__name__} is not callable", remedy=f"name {_TAKES}"
            )
        _check_arguments(step, reference)
        report_phase(f"calling {shown(reference)}")
        with _shorten_errors(reference, "calling it"):
            step = step()
    return step


def capture_object(
    value: Any, reference: str, batch: int | None = None, *, open_batch: bool = False, cut: Cut | None = None
) -> CapturedStep:
    """Return the step of what a reference names.

    With `open_batch` a Keras model needs no batch size, which building its graph does. `cut` is how a model or a
    function is to cut its batch. Raise InputError for what is no step, and what capturing it raises.
    """
    where = f"function {shown(reference)}"
    if _is_model(value):
        check_compiled(value)
        if batch is None and not open_batch:
            raise InputError.build(f"{where}: a Keras model has no batch size", remedy="give one (batch=32)")
    report_phase(f"tracing {shown(reference)}")
    source = function_source(reference, batch, cut)
    if _is_model(value):
        return capture_keras(value, batch, source=source, cut=cut)
    first, *rest = value if isinstance(value, tuple) and value else (value,)
    if _is_model(first):
        if len(rest) != 1:
            raise InputError.build(f"{where}: it gave a model and {len(rest)} more", remedy="return (model, (x, y))")
        (data,) = rest
        try:
            return _capture_example(first, data, batch, source, cut)
        except InputError as error:
            # A model with a loss and data without targets: these are asked for.
            if first.loss is None or is_keras_2(first) or (isinstance(data, tuple | list) and len(data) > 1):
                raise
            raise InputError.build(
                "it has a loss, and the example no targets", where=source, remedy="return (model, (x, y))"
            ) from error
    if isinstance(first, tf.Graph) and len(rest) == 1:
        if cut is not None:
            raise InputError.build(
                f"{where}: a tf.Graph is made already, and cannot be done with pieces of its batch",
                remedy="leave out the micro-batches, or plan its GraphDef, which they repeat",
            )
        return capture_v1(first, rest[0], source=source)
    if _is_step(first) or (isinstance(value, tuple) and callable(first)):
        if not rest and not hasattr(first, "structured_outputs"):
            _check_arguments(first, reference)
        if cut is not None:
            return capture_pieces(first, *rest, batch=batch, cut=cut, source=source)
        return capture_function(first, *rest, batch=batch, source=source)
    raise InputError.build(f"{where}: it gave a {type(value).__name__}", remedy=f"return {_TAKES}")


def _capture_example(model: Any, data: Any, batch: int | None, source: str, cut: Cut | None) -> CapturedStep:
    """Capture a model with an example batch: of open size where a batch is given, else of the example's own."""
    if batch is not None:
        return capture_keras(model, batch, data=data, source=source, cut=cut)
    sizes = {int(value.shape[0]) for value in tf.nest.flatten(data) if len(getattr(value, "shape", ()))}
    if len(sizes) != 1:
        raise InputError.build(
            f"the example data have {len(sizes)} batch sizes", where=source, remedy="give arrays of one length"
        )
    return capture_keras(model, sizes.pop(), static=True, data=data, source=source, cut=cut)


def _is_step(value: Any) -> bool:
    return hasattr(value, "get_concrete_function") or hasattr(value, "structured_outputs") or _is_model(value)


def _is_model(value: Any) -> bool:
    return hasattr(value, "train_step") and hasattr(value, "compile") and not isinstance(value, type)


def _check_arguments(function: Any, reference: str) -> None:
    """Raise InputError for a function that needs arguments of which nothing says types and shapes."""
    try:
        taken = (getattr(function, "function_type", None) or signature(function)).parameters.values()
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    rest = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    names = [p.name for p in taken if p.default is p.empty and p.kind not in rest]
    if names and getattr(function, "input_signature", None) is None:
        raise InputError.build(
            f"function {shown(reference)}: nothing says which types and shapes its arguments ({', '.join(names)}) have",
            remedy="decorate it with @tf.function(input_signature=[...]), of a tf.TensorSpec([None, 8], tf.float32) or "
            "the like for each, or name a function without arguments that returns (function, *specs)",
        )


@contextmanager
def _shorten_errors(reference: str, act: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one line."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError.build(
            f"function {shown(reference)}: {act} raised {describe_exception(error)}", remedy="run it on its own first"
        ) from error
