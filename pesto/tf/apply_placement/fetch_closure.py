"""The ops that a fetch of a v1 graph needs, and the ops kept out of the chains because fetches run without them."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.tf.apply_placement.branches import conditional_ops
from pesto.tf.apply_placement.step_graph import StepTrace
from pesto.tf.nodes.unordered_ops import shared_ops
from solvers.arrays import Bools, bools


def ops_outside_chains(program: Any, trace: StepTrace) -> Bools:
    """[n] ops that stay out of the chains of a step in a v1 program, a tf.Graph or flat GraphDef.

    Other fetches need them without the step's rest (`pesto.tf.nodes.unordered_ops`), or they are in branches.
    """
    return bools(shared_ops(program, trace.graph) | conditional_ops(trace))


_HARMLESS = frozenset((
    "ReadVariableOp", "VarHandleOp", "Variable", "VariableV2", "VarIsInitializedOp",
))  # fmt: skip
"""Stateful by their definition, but running them changes nothing."""
_FEEDS = ("Placeholder", "PlaceholderV2")
_UPDATES = re.compile(r"Apply|^Assign(Add|Sub)|^(Resource)?Scatter")
_ASSIGNS = ("Assign", "AssignVariableOp")
_PASSED = ("Switch", "RefSwitch", "Enter", "RefEnter")
"""Op types that pass a variable's reference into a branch or loop."""
_NO_VALUE = frozenset((
    "IsVariableInitialized", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "VarIsInitializedOp", "VariableShape",
    "ZerosLike",
))  # fmt: skip
"""Op types that read metadata of a variable, but not its value."""


def ops_needed(fetched: Iterable[Any], fed: Collection[str], added: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Names of the ops that a run needs, without the chains' edges `added` (node -> the nodes that it waits for).

    `fed` are names of tensors. UsageError when the chains would make the run change state that it leaves alone, or
    need a feed that it does not give: it fetches a part of the step.
    """
    first = list(fetched)
    # The run without the chains' edges is what the program asked for; everything else that the full closure contains is
    # there only because of the order.
    own = _closure(first, fed, added)
    dragged = [op for name, op in _closure(first, fed, {}).items() if name not in own and _changes(op)]
    if dragged:
        raise UsageError.build(
            f"fetching {shown(first[0].name)} runs a part of the ordered step, and its order would run "
            f"{shown(dragged[0].name)} ({dragged[0].type}) and {len(dragged) - 1} more ops with state or "
            "feeds too",
            remedy=(
                "fetch it together with the training op, or evaluate in a graph or session of its own "
                "outside pesto.apply"
            ),
        )
    return frozenset(own)


def closure(ops: Iterable[Any]) -> frozenset[str]:
    """Names of all ops that running `ops` would run, chains included."""
    return frozenset(_closure(list(ops), (), {}))


def _closure(first: list[Any], fed: Collection[str], skipped: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the ops that run, by name: a fed tensor needs no op, but a control input runs even where it is fed."""
    closure = {op.name: op for op in first}
    stack = list(first)
    while stack:
        op = stack.pop()
        without = skipped.get(op.name, ())
        # TensorFlow prunes data edges into fed tensors, but keeps control edges from the ops that make them.
        before = [t.op for t in op.inputs if t.name not in fed]
        before += [
            c
            for c in op.control_inputs
            if c.name not in without and not (c.type in _FEEDS and c.outputs[0].name in fed)
        ]
        for other in before:
            if other.name not in closure:
                closure[other.name] = other
                stack.append(other)
    return closure


def find_update(
    fetched: Iterable[Any], fed: Collection[str], variables: Collection[str], planned: Collection[str] = ()
) -> Any | None:
    """An op of a run, not of `planned`, that updates one of `variables` by what it held; None when none does.

    `variables` and `planned` are names of ops. Initialisers and restores assign what they did not read.
    """
    for op in _closure(list(fetched), fed, {}).values():
        if op.name in planned or not (_UPDATES.search(op.type) or op.type in _ASSIGNS) or not len(op.inputs):
            continue
        # Initialisers and restores assign values that do not depend on the variable; training updates read what they
        # write.
        variable = _source(op.inputs[0])
        if variable.name in variables and (op.type not in _ASSIGNS or _depends(op.inputs[1], variable, fed)):
            return op
    return None


def _source(tensor: Any) -> Any:
    """The op that makes a variable's handle or reference."""
    while tensor.op.type in _PASSED:
        tensor = tensor.op.inputs[0]
    return tensor.op


def _depends(tensor: Any, variable: Any, fed: Collection[str]) -> bool:
    """Return True if a value is computed from the value of a variable."""
    seen: set[str] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if current.op.name == variable.name:
            return True
        if current.name not in fed and current.op.name not in seen and current.op.type not in _NO_VALUE:
            seen.add(current.op.name)
            stack += current.op.inputs
    return False


def _changes(op: Any) -> bool:
    if op.type in _FEEDS:
        return True
    if op.type in _HARMLESS:
        return False
    definition = op.op_def
    return bool(definition.is_stateful) or any(a.is_ref for a in definition.input_arg)
