"""Does a traced function train? One that does runs by a plan, or not at all."""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from pesto.errors import InputError, UsageError
from pesto.tf import private

_READS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"))
_CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
_BRANCHES = ("body", "cond", "then_branch", "else_branch")


def trains(graph: Any) -> bool:
    """Whether a FuncGraph's own ops, loops and branches included, write a trainable variable that it also uses.

    Functions that it calls are traced for themselves. The trace that creates a function's variables is not one that
    runs as a step.
    """
    mine = {id(v.handle) for v in graph.variables if v.trainable}
    handles = {inner.op.name for outer, inner in graph.captures if id(outer) in mine}
    if not handles:
        return False
    operations = graph.get_operations()
    if any(op.type == "VarIsInitializedOp" for op in operations):
        return False
    return any(
        t.op.name in handles and _writes(op, position, graph)
        for op in operations
        for position, t in enumerate(op.inputs)
        if t.dtype == tf.resource
    )


def refuse_unplaceable(graph: Any, label: str) -> None:
    """InputError for a training FuncGraph that something else places, or whose rounds may overlap."""
    if tf.distribute.has_strategy() or any(private.distributed(v) for v in graph.variables):
        raise InputError(f"{label}: a tf.distribute strategy places its ops itself - train without the strategy")
    if private.compiled_by_xla(graph):
        raise InputError(
            f"{label}: XLA compiles the step as one kernel, which voids a plan - pass jit_compile=False to "
            "model.compile or tf.function"
        )
    outer = graph.outer_graph
    while isinstance(outer, type(graph)):
        if private.is_body(outer):
            raise InputError(
                f"{label} is called in a loop or branch of another function, where its runs may overlap or be left out "
                "- set steps_per_execution=1, or loop in Python"
            )
        outer = outer.outer_graph


@contextlib.contextmanager
def in_functions_only() -> Iterator[None]:
    """Refuse gradients of trainable variables outside of tf.functions: such a step runs op by op, by no plan."""
    original = tf.GradientTape.gradient

    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly() and any(getattr(s, "trainable", False) for s in tf.nest.flatten(sources)):
            raise UsageError(
                "gradients of variables are taken outside of a tf.function, where no plan holds - make the whole step "
                "one tf.function (run_eagerly=False, tf.config.run_functions_eagerly(False)), or train outside "
                "pesto.apply"
            )
        return original(self, target, sources, *args, **kwargs)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = original


def _writes(op: Any, position: int, graph: Any) -> bool:
    if op.type in _READS or op.type in _CALLS:
        return False
    bodies = [op.get_attr(name).name for name in _BRANCHES if name in op.node_def.attr]
    if not bodies:
        return True
    library = {f.signature.name: f for f in graph.as_graph_def().library.function}
    offset = 1 if op.type in ("If", "StatelessIf") else 0
    return any(_body_writes(library[name], position - offset) for name in bodies if name in library)


def _body_writes(function: Any, position: int) -> bool:
    """Whether a function's body writes the variable that is its argument `position`."""
    argument = function.signature.input_arg[position].name
    return any(
        argument in _names(node.input) and node.op not in _READS and node.op not in ("Identity", "NoOp")
        for node in function.node_def
    )


def _names(inputs: Iterable[str]) -> set[str]:
    return {text.partition(":")[0] for text in inputs}
