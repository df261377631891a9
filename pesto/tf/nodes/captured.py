"""One training step as TensorFlow gave it, before it becomes a `Graph`."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pesto.errors import InputError
from pesto.tf.nodes.barriers import around, barriers
from pesto.tf.nodes.inference import copied, infer
from pesto.tf.nodes.inline import flatten


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Captured:
    """A flat GraphDef and what to fetch from it.

    `graph_def` comes from TensorFlow itself (defaults filled in, `_output_shapes` on every node) and has no calls of
    functions but the bodies of loops and branches; nothing waits at a barrier. `values` are the tensors that the step
    closed over, by the name of the node that stands for each: a VarHandleOp for a variable, a Placeholder for anything
    else.
    """

    graph_def: Any
    fetches: tuple[str, ...]
    """Names of ops."""
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Barriers that the step goes around, and the tensors that each passes (`pesto.tf.nodes.barriers`)."""


def captured(program: Any, fetches: tuple[str, ...], source: str, values: Mapping[str, Any] | None = None) -> Captured:
    """The step that `fetches` run in a GraphDef with `_output_shapes`: calls inlined, barriers gone around."""
    flat = flatten(program)
    graph_def = program if flat is program else infer(flat)
    passed = barriers(graph_def)
    if passed:
        graph_def = copied(graph_def) if graph_def is program else graph_def
        around(graph_def, passed)
    return Captured(graph_def=graph_def, fetches=fetches, source=source, values=values or {}, passed=passed)


def op_name(tensor: str) -> str:
    """The op of a tensor name `op:k`, a control input `^op`, or an op's own name."""
    return tensor.removeprefix("^").partition(":")[0]


def checked_fetches(fetches: Iterable[Any], outputs: Mapping[str, int], where: str) -> tuple[str, ...]:
    """Names of the ops to fetch, each once, from tensors, ops, variables or names of any.

    `outputs` maps op names to their number of outputs. InputError for a name that the graph lacks, with the nearest.
    """
    found: dict[str, None] = {}
    for fetch in fetches:
        name = fetch if isinstance(fetch, str) else str(getattr(fetch, "name", fetch))
        op = op_name(name)
        if op not in outputs:
            near = difflib.get_close_matches(op, outputs, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]!r}?" if near else "name an op of the graph"
            raise InputError(f"{where}: no op is named {op!r} - {remedy}")
        index = name.partition(":")[2]
        if index and not (index.isdigit() and int(index) < outputs[op]):
            raise InputError(f"{where}: op {op!r} has no output {index!r} - it has {outputs[op]}")
        found[op] = None
    if not found:
        raise InputError(f"{where}: nothing to fetch - name the training op and the loss as what to fetch")
    return tuple(found)
