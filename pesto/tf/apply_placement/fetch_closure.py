"""Ops that a fetch of a v1 graph needs, and ops that stay out of the chains because other fetches need them alone."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.tf.apply_placement.placement import StepTrace, conditional_ops
from pesto.tf.nodes.unordered_ops import shared_ops
from solvers.arrays import Bools, bools


def ops_outside_chains(program: Any, trace: StepTrace) -> Bools:
    """Return [n] True for ops outside of the chains of a step in a v1 program, a tf.Graph or flat GraphDef.

    Other fetches need them without the step's rest (`pesto.tf.nodes.unordered_ops`), or they are in branches.
    """
    return bools(shared_ops(program, trace.graph) | conditional_ops(trace))


_HARMLESS = frozenset((
    "ReadVariableOp", "VarHandleOp", "Variable", "VariableV2", "VarIsInitializedOp",
))  # fmt: skip
"""Op types that are stateful by their definition, but change nothing."""
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
    """Return the names of the ops that a run needs without the chains' edges `added` (node -> nodes it waits for).

    fed: names of tensors. Raise UsageError for a fetch of a part of the step, where the chains would make the run
    change state that it leaves alone, or need a feed that it does not give.
    """
    first = list(fetched)
    # The run without the chains' edges is what the program asked for; everything else that the full closure contains is
    # there only because of the order.
    own = _closure(first, fed, added)
    dragged = []
    for name, op in _closure(first, fed, {}).items():
        if name in own or op.type in _HARMLESS:
            continue
        if op.type in _FEEDS or op.op_def.is_stateful or any(a.is_ref for a in op.op_def.input_arg):
            dragged.append(op)
    if dragged:
        raise UsageError.build(
            f"fetching {shown(first[0].name)} runs a part of the ordered step, and its order would run "
            f"{shown(dragged[0].name)} ({dragged[0].type}) and {len(dragged) - 1} more ops with state or feeds too",
            remedy="fetch it together with the training op, or evaluate in a graph or session of its own outside "
            "pesto.apply",
        )
    return frozenset(own)


def closure(ops: Iterable[Any]) -> frozenset[str]:
    """Return the names of all ops that running `ops` would run, chains included."""
    return frozenset(_closure(list(ops), (), {}))


def _closure(first: list[Any], fed: Collection[str], skipped: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
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
    """Return an op of a run, not of `planned`, that updates one of `variables` by its own value; None without one.

    variables, planned: names of ops.
    """
    for op in _closure(list(fetched), fed, {}).values():
        if op.name in planned or not (_UPDATES.search(op.type) or op.type in _ASSIGNS) or not len(op.inputs):
            continue
        # Initialisers and restores assign values that do not depend on the variable; training updates read what they
        # write.
        reference = op.inputs[0]
        while reference.op.type in _PASSED:
            reference = reference.op.inputs[0]
        variable = reference.op
        if variable.name in variables and (op.type not in _ASSIGNS or _depends(op.inputs[1], variable, fed)):
            return op
    return None


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
