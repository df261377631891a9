"""Private names of TensorFlow by which variables are read, and tapes told so: what to mend for a new release."""

import contextlib
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import resource_variable_ops as variables

from pesto.core.errors import InputError


def variable_kind() -> type:
    """The class that says how variables with handles are read: `_read_variable_op`, `sparse_read`, `gather_nd`."""
    kind: type = variables.BaseResourceVariable
    missing = [name for name in ("_read_variable_op", "sparse_read", "gather_nd") if not hasattr(kind, name)]
    if missing:
        raise InputError(
            f"tensorflow {tf.__version__}: a variable has no {missing[0]} - install tensorflow>=2.21,<2.22"
        )
    return kind


def unrecorded() -> contextlib.AbstractContextManager[None]:
    """Stop gradient tapes from recording inside the context."""
    stopped: contextlib.AbstractContextManager[None] = record.stop_recording()
    return stopped


def record_read(variable: Any, value: Any) -> None:
    """Tell the open gradient tapes that a tensor is what is read of a variable, as its own reads do."""
    variables.variable_accessed(variable)
    record.record_operation(
        "ReadVariableOp", [value], [variable.handle], lambda gradient: [gradient], lambda tangent: [tangent]
    )
