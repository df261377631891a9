"""Tracing with nested tf.functions run inline, so that every op of the step is an op of the one graph."""

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from pesto.tf.private import TraceRequest, autograph_of

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
"""Types of the ops that run another function."""

_log = logging.getLogger("pesto")


def with_inline_calls(python_function: Callable[..., Any]) -> Callable[..., Any]:
    """`python_function`, calling the tf.functions inside it as plain Python while it is traced.

    Give it to `tf.function` in place of `python_function`: the trace then has no calls, and ops of nested functions
    can be placed. A nested function's own autograph does not run; one that branches on a tensor in Python raises.
    """

    @functools.wraps(python_function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with _inline():
            return python_function(*args, **kwargs)

    return traced


def called_functions(func_graph: Any) -> tuple[str, ...]:
    """Names of the functions, each once, that ops of a FuncGraph run and that could have been traced inline."""
    return tuple({op.get_attr("f").name: None for op in func_graph.get_operations() if op.type in CALLS})


def has_calls(func_graph: Any) -> bool:
    """Return True if an op of a FuncGraph calls another function that could have been traced inline."""
    return bool(called_functions(func_graph))


def retrace_inline(function: Any, specs: Sequence[Any]) -> Any | None:
    """The FuncGraph of a `tf.function` traced flat with `specs`; None where that fails or calls are left."""
    again = tf.function(
        with_inline_calls(function.python_function),
        input_signature=function.input_signature,
        autograph=autograph_of(function),
    )
    try:
        graph = again.get_concrete_function(*specs).graph
    except Exception as error:  # the user's code may rely on a nested function's own autograph
        _log.debug("a flat trace failed: %s", error)
        return None
    return None if has_calls(graph) else graph


@contextmanager
def inline_keras_2(tracing: TraceRequest) -> Iterator[None]:
    """Trace inline what a function of Keras 2 (tf_keras) calls: its recurrent layers are tf.functions of their own."""
    with _inline() if tracing.module.startswith("tf_keras.") else nullcontext():
        yield


@contextmanager
def _inline() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
