"""The nodes of TensorFlow's graph behind each op of a placement: one, or all of a v1 loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto.tf.nodes.frames import closes_loop, outermost
from pesto.tf.nodes.needed_nodes import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A v1 loop that the graph has as one op."""

    nodes: tuple[str, ...]
    """All of its nodes."""
    entries: tuple[str, ...]
    """Nodes through which everything enters: what waits when the loop waits."""
    exits: tuple[str, ...]
    """Nodes that are done when the loop is done."""


def loops(nodes: Nodes) -> dict[str, Loop]:
    """The v1 loops by the name of the op that stands for each (see `pesto.tf.nodes.frames`)."""
    label = outermost(nodes)
    found = {}
    for first in np.unique(label[label >= 0]).tolist():
        inside = np.flatnonzero(label == first).tolist()
        found[str(nodes.defs[first].name)] = _loop(nodes, inside)
    return found


def _loop(nodes: Nodes, inside: Sequence[int]) -> Loop:
    members = set(inside)
    leads: set[int] = set()
    entries = []
    for i in inside:
        before = [p for p, _ in nodes.inputs[i] if not closes_loop(nodes, p, i)] + nodes.controls[i]
        leads.update(p for p in before if p in members)
        if not any(p in members for p in before):
            entries.append(i)
    exits = [i for i in inside if i not in leads and nodes.defs[i].op in ("Exit", "RefExit")]
    names = [str(node.name) for node in nodes.defs]
    return Loop(
        nodes=tuple(names[i] for i in inside),
        entries=tuple(names[i] for i in entries),
        exits=tuple(names[i] for i in exits),
    )
