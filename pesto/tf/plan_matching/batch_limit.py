"""A batch that is larger than planned is refused before the step changes anything: a check in the step's own graph."""

import re
from typing import Any

import tensorflow as tf

from pesto.core.errors import MismatchError
from pesto.tf import private
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from pesto.tf.plan_matching.mismatch_diagnosis import describe_larger_batch
from pesto.tf.variables.function_effects import READS

_SAID = "pesto: a batch larger than planned"
_FOUND = re.compile(re.escape(_SAID) + r"\D*(\d+)\D+(\d+)")
_HOST = "/device:CPU:0"


def add_batch_checks(graph: Any, batch: int) -> None:
    """Make every state change of a FuncGraph wait for checks that its open first dimensions are within `batch`."""
    fed = _fed(graph)
    if not fed:
        return
    # Ops that produce the batch, such as IteratorGetNext, cannot wait for a check of what they produce.
    before = _needed([t.op for t in fed])
    waiting = [op for op in graph.get_operations() if _changes(op) and op.name not in before]
    with graph.as_default(), tf.control_dependencies(None), tf.name_scope("pesto_batch"):
        checks = [_check(tensor, batch) for tensor in fed]
    for op in waiting:
        private.add_controls(op, checks)


def batch_error(error: Any) -> MismatchError | None:
    """Return the error of a failed batch check; None when another op failed."""
    match = _FOUND.search(str(error))
    return MismatchError(describe_larger_batch(*match.groups())) if match else None


def _fed(graph: Any) -> list[Any]:
    """Arguments, and what iterators give, with an open first dimension."""
    captured = {inner.name for _, inner in graph.captures}
    given = [t for t in graph.inputs if t.name not in captured]
    given += [t for op in graph.get_operations() if op.type.startswith("IteratorGetNext") for t in op.outputs]
    sized = (t for t in given if t.dtype.as_datatype_enum not in (RESOURCE, VARIANT))
    return [t for t in sized if t.shape.rank and t.shape[0] is None]


def _check(tensor: Any, batch: int) -> Any:
    size = tf.raw_ops.Shape(input=tensor)  # without a device it is where the tensor is, which need not travel for it
    with tf.device(_HOST):
        first = tf.strided_slice(size, [0], [1], shrink_axis_mask=1)
        data = [tf.constant(_SAID), first, tf.constant(batch)]
        # The check is a node of the graph, since a tf.function called with a tensor or iterator does not know the size
        # in Python.
        return tf.raw_ops.Assert(condition=tf.raw_ops.LessEqual(x=first, y=batch), data=data)


def _needed(ops: list[Any]) -> set[str]:
    names, stack = set(), list(ops)
    while stack:
        op = stack.pop()
        if op.name not in names:
            names.add(op.name)
            stack += [t.op for t in op.inputs] + list(op.control_inputs)
    return names


def _changes(op: Any) -> bool:
    """Return True if an op has state other than what it reads."""
    return bool(op.op_def.is_stateful) and op.type not in READS and op.type != "Placeholder"
