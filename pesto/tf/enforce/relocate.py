"""Variables of TF2 live where they were created; a plan wants them elsewhere."""

from collections.abc import Iterator, Sequence
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
        wanted = list(_elsewhere(graph, placement))
        if not wanted:
            return
        self.origin.extend((variable, outer.device) for variable, outer, _ in wanted)
        _move([(variable, target) for variable, _, target in wanted])
        private.replace_captures(graph, [(outer, variable.handle) for variable, outer, _ in wanted])

    def undo(self) -> None:
        """Move everything back."""
        first: dict[int, tuple[Any, str]] = {}
        for variable, device in self.origin:
            first.setdefault(id(variable), (variable, device))
        _move(list(first.values()))
        self.origin.clear()


def _elsewhere(graph: Any, placement: Placement) -> Iterator[tuple[Any, Any, str]]:
    """(variable, captured handle, planned device) of each variable that is not where it should be."""
    index = {name: i for i, name in enumerate(placement.graph.names)}
    variables = {id(v.handle): v for v in graph.variables}
    for outer, inner in graph.captures:
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
        yield variable, outer, target


def _move(wanted: Sequence[tuple[Any, str]]) -> None:
    """Put each variable on a device; all at once, as finding the functions that hold a handle takes a while."""
    moved = []
    for variable, device in wanted:
        # Not tf.Variable: a tf.function that is on its first call around this one would take it for its own.
        with tf.init_scope(), tf.device(device):
            value = private.new_variable(variable)
        moved.append((variable, value))
    if moved:
        private.move_variables(moved)
