"""Variables of TF2 live where they were created; a plan wants them elsewhere."""

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pesto.documents import shown
from pesto.errors import InputError
from pesto.tf import private
from pesto.tf.enforce.placement import Placement
from pesto.tf.enforce.targets import covers


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Variables that were moved, and where they came from."""

    origin: list[tuple[Any, str]] = field(default_factory=list)
    """(variable, its first device)."""

    def settle(self, graph: Any, placement: Placement) -> None:
        """Move what the FuncGraph captures to where the placement has it, slots and counters included.

        A moved variable keeps its identity, value and name; checkpoints do not change. InputError for a table or other
        resource that is elsewhere and cannot be moved.
        """
        index = {name: i for i, name in enumerate(placement.graph.names)}
        variables = {id(v.handle): v for v in graph.variables}
        for outer, inner in list(graph.captures):
            i = index.get(inner.op.name)
            if i is None or outer.dtype != tf.resource:
                continue
            target = placement.device_of(i)
            if covers(target, tf.DeviceSpec.from_string(outer.device)):
                continue
            variable = variables.get(id(outer))
            if variable is None:
                raise InputError(
                    f"{shown(inner.op.name)} is a table or iterator on {outer.device}, planned on {target}: only "
                    f"variables can be moved - create it under tf.device({target!r})"
                )
            private.replace_capture(graph, outer, self._move(variable, target))

    def undo(self) -> None:
        """Move everything back."""
        for variable, device in reversed(self.origin):
            _moved(variable, device)
        self.origin.clear()

    def _move(self, variable: Any, target: str) -> Any:
        self.origin.append((variable, variable.handle.device))
        return _moved(variable, target)


def _moved(variable: Any, device: str) -> Any:
    """The variable's handle after it was moved."""
    with tf.init_scope(), tf.device(device):
        value = tf.Variable(
            tf.identity(variable.read_value()), trainable=False, shape=variable.shape, dtype=variable.dtype
        )
    private.move_variable(variable, value)
    return variable.handle
