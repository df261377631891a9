"""Versions of weights: each pass reads trained variables as they were some updates ago."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import resource_variable_ops as variables

from pesto.core.errors import InputError
from pesto.core.source import READ_SCOPE, Cut
from pesto.tf.private import replace_attributes

# Private names of TensorFlow by which variables are read, and tapes told so: what to mend for a new release.


def variable_kind() -> type:
    """The class that says how variables with handles are read: `_read_variable_op`, `sparse_read`, `gather_nd`."""
    kind: type = variables.BaseResourceVariable
    missing = [name for name in ("_read_variable_op", "sparse_read", "gather_nd") if not hasattr(kind, name)]
    if missing:
        raise InputError.build(
            f"tensorflow {tf.__version__}: a variable has no {missing[0]}", remedy="install tensorflow>=2.21,<2.22"
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


class WeightVersions:
    """Versions of trained variables that the passes of a step read, each a given number of updates late.

    A read is a tensor that no update changes, as updates copy a variable that somebody has yet to read: the tensor that
    a batch's forward half reads is the version that its backward half needs (weight stashing, PipeDream). Each variable
    is read once for the passes of each update, behind the update of so many before as it is late, and one more; the
    control edges that TensorFlow gives reads and updates of a variable then order them in whatever order a plan has all
    else.
    """

    def __init__(self, cut: Cut, late: tuple[int, ...]) -> None:
        """late: as `pesto.core.source.Cut.late`."""
        self.updates, self._every, self._late = cut.batches // cut.every, cut.every, late
        self._variables, self._known = list[Any](), dict[int, int]()
        self._reads = dict[tuple[int, int], Any]()
        self._turn, self._serving = 0, False
        self._graph: Any = None
        self._read: Any = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Make passes read these versions inside the context."""
        kind: Any = variable_kind()
        self._read = kind._read_variable_op
        rows, points = kind.sparse_read, kind.gather_nd

        def read(variable: Any, *args: Any, **kwargs: Any) -> Any:
            return self._served(variable) if self._late_here(variable) else self._read(variable, *args, **kwargs)

        def sparse_read(variable: Any, indices: Any, name: str | None = None) -> Any:
            late = self._late_here(variable)
            return tf.gather(self._served(variable), indices) if late else rows(variable, indices, name)

        def gather_nd(variable: Any, indices: Any, name: str | None = None) -> Any:
            late = self._late_here(variable)
            return tf.gather_nd(self._served(variable), indices) if late else points(variable, indices, name)

        with replace_attributes(kind, {"_read_variable_op": read, "sparse_read": sparse_read, "gather_nd": gather_nd}):
            yield

    def begin(self, batch: int) -> None:
        """The pass of a batch begins: until `end` it reads versions."""
        self._turn, self._serving, self._graph = batch // self._every, True, tf.compat.v1.get_default_graph()

    def end(self) -> None:
        """The gradients of this pass are there, and an update follows, which reads what is the latest."""
        self._serving = False
        # Versions are read before the update that follows, since afterwards the old value is gone; the read tensor
        # keeps it alive.
        for k, by in enumerate(self._late[: len(self._variables)]):
            first = 1 if self._turn == 0 else self._turn + by
            for turn in range(first, min(self._turn + by, self.updates - 1) + 1):
                self._made(k, turn)

    def _late_here(self, variable: Any) -> bool:
        return self._serving and bool(variable.trainable)

    def _served(self, variable: Any) -> Any:
        k = self._known.setdefault(id(variable), len(self._variables))
        if k == len(self._variables):
            self._variables.append(variable)
        value = self._made(k, self._turn)
        record_read(variable, value)
        return value

    def _made(self, k: int, turn: int) -> Any:
        """The read of a variable for the passes of an update; it is made here where there is none yet."""
        if (k, turn) not in self._reads:
            with self._graph.as_default(), tf.name_scope(f"{READ_SCOPE}{k}/"), unrecorded():
                self._reads[k, turn] = self._read(self._variables[k])
        return self._reads[k, turn]
