"""Versions of weights: each batch's pass reads trained variables as they were some updates ago."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from pesto.source import READ_SCOPE
from pesto.tf.pipelined.read_hooks import record_read, unrecorded, variable_kind
from pesto.tf.private import replaced


class Versions:
    """What the passes of a step read of its trained variables, each pass with an update behind it.

    A read is a tensor that no update changes, as updates copy a variable that somebody has yet to read: the tensor that
    a batch's forward half reads is the version that its backward half needs (weight stashing, PipeDream). Each variable
    is read once for each batch, behind the update of so many batches before as it is late, and one more; the control
    edges that TensorFlow gives reads and updates of a variable then order them in whatever order a plan has all else.
    """

    def __init__(self, batches: int, late: tuple[int, ...]) -> None:
        """late: as `pesto.source.Cut.late`."""
        self.batches, self._late = batches, late
        self._variables, self._known = list[Any](), dict[int, int]()
        self._reads = dict[tuple[int, int], Any]()
        self._batch, self._serving = 0, False
        self._graph: Any = None
        self._read: Any = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside: passes read these versions."""
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

        with replaced(kind, {"_read_variable_op": read, "sparse_read": sparse_read, "gather_nd": gather_nd}):
            yield

    def begin(self, batch: int) -> None:
        """The pass of a batch begins: until `end` it reads versions."""
        self._batch, self._serving, self._graph = batch, True, tf.compat.v1.get_default_graph()

    def end(self) -> None:
        """The gradients of this pass are there, and its update follows, which reads what is the latest."""
        self._serving = False
        for k, by in enumerate(self._late[: len(self._variables)]):
            first = 1 if self._batch == 0 else self._batch + by
            for batch in range(first, min(self._batch + by, self.batches - 1) + 1):
                self._made(k, batch)

    def _late_here(self, variable: Any) -> bool:
        return self._serving and bool(variable.trainable)

    def _served(self, variable: Any) -> Any:
        k = self._known.setdefault(id(variable), len(self._variables))
        if k == len(self._variables):
            self._variables.append(variable)
        value = self._made(k, self._batch)
        record_read(variable, value)
        return value

    def _made(self, k: int, batch: int) -> Any:
        """The read of a variable for a batch; it is made here where there is none yet."""
        if (k, batch) not in self._reads:
            with self._graph.as_default(), tf.name_scope(f"{READ_SCOPE}{k}/"), unrecorded():
                self._reads[k, batch] = self._read(self._variables[k])
        return self._reads[k, batch]
