"""What a fetch of a v1 graph needs, and whether a chain would drag in what it does not."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pesto.documents import shown
from pesto.errors import UsageError

_HARMLESS = frozenset((
    "ReadVariableOp", "VarHandleOp", "Variable", "VariableV2", "VarIsInitializedOp", "Placeholder", "PlaceholderV2",
))  # fmt: skip
"""Stateful by their definition, but running them changes nothing."""


def needed(fetched: Iterable[Any], fed: Collection[str], added: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Names of the ops that a run needs, without the chains' edges `added` (node -> the nodes that it waits for).

    UsageError when the chains would make the run change state that it leaves alone: it fetches a part of the step.
    """
    first = list(fetched)
    own = _closure(first, fed, added)
    dragged = [op for name, op in _closure(first, fed, {}).items() if name not in own and _changes(op)]
    if dragged:
        raise UsageError(
            f"fetching {shown(first[0].name)} runs a part of the ordered step, and its order would run "
            f"{shown(dragged[0].name)} ({dragged[0].type}) and {len(dragged) - 1} more ops with state too - fetch it "
            "together with the training op, or evaluate in a graph or session of its own outside pesto.apply"
        )
    return frozenset(own)


def _closure(first: list[Any], fed: Collection[str], skipped: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    found = {op.name: op for op in first}
    stack = list(first)
    while stack:
        op = stack.pop()
        if op.name in fed:
            continue
        without = skipped.get(op.name, ())
        before = [t.op for t in op.inputs] + [c for c in op.control_inputs if c.name not in without]
        for other in before:
            if other.name not in found:
                found[other.name] = other
                stack.append(other)
    return found


def _changes(op: Any) -> bool:
    if op.type in _HARMLESS:
        return False
    definition = op.op_def
    return bool(definition.is_stateful) or any(a.is_ref for a in definition.input_arg)
