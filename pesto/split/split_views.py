"""Views of a division: its variables, one op of it, and its layouts as programs for JAX and Keras.

In programs a cut is an axis of the mesh: c0, c1, .., outermost first, so that worker w is device w. They say only
where variables lie; what they cannot say is told in comments.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from math import prod
from typing import NamedTuple

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.quantities import plural
from pesto.split.division import Division, item_bytes, parameter_bytes
from pesto.split.geometry import (
    ONE,
    PARTIAL,
    Box,
    Layouts,
    Rims,
    Shape,
    elements_to_fetch,
    elements_to_store,
    worker_boxes,
)
from pesto.split.op_strategy import NO_CUT, OpStrategy
from pesto.split.ops.op_types import coverage, strategies
from pesto.split.regions import Strategies
from pesto.split.typed_graph import TypedGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableRow:
    """A variable, or an optimizer's slot of one."""

    name: str
    shape: Shape
    dtype: str
    layouts: Layouts
    worker_bytes: int
    """Bytes that one worker holds."""


def variable_rows(shaped: TypedGraph, division: Division) -> list[VariableRow]:
    """Return all variables that an op uses and whose shape is known, those with most bytes on a worker first."""
    held, result = parameter_bytes(shaped, division), dict[int, VariableRow]()
    for op, at, v in shaped.uses:
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None and v not in result:
            result[v] = VariableRow(
                name=shaped.names[shaped.handle[v]],
                shape=operand.shape,
                dtype=operand.dtype.removeprefix("resource:"),
                layouts=division.variables[v],
                worker_bytes=int(held[v]),
            )
    return sorted(result.values(), key=lambda row: (-row.worker_bytes, row.name))


class DivisionTables(NamedTuple):
    """A division by classes of op types, by op types and by variables."""

    classes: list[tuple[str, int, int]]
    """Class, number of ops and number of ops that some cut divides, the commonest class first."""
    types: list[tuple[str, int, str]]
    """Op type, number of ops and their commonest strategies, the commonest type first."""
    variables: list[VariableRow]
    """Rows of variables, in the form of `variable_rows`."""


_STRATEGIES = 3
"""Maximum number of an op type's strategies in its row."""


def division_tables(shaped: TypedGraph, division: Division) -> DivisionTables:
    """Count the ops of a division by class and by type, and list its variables."""
    class_of = {row.type: row.kind or "none" for row in coverage({s.type for s in shaped.signatures})}
    ops, cut, by_type = Counter[str](), Counter[str](), defaultdict[str, Counter[str]](Counter)
    for op, strategy in enumerate(division.strategies):
        op_type = shaped.signature(op).type
        ops[class_of[op_type]] += 1
        cut[class_of[op_type]] += not {*strategy.names} <= NO_CUT
        by_type[op_type][" ".join(strategy.names)] += 1
    types = []
    for op_type, counts in by_type.items():
        words = [f"{name} {count}" for name, count in counts.most_common(_STRATEGIES)]
        if len(counts) > _STRATEGIES:
            words.append(plural(len(counts) - _STRATEGIES, "other way"))
        types.append((op_type, sum(counts.values()), ", ".join(words)))
    return DivisionTables(
        classes=[(name, count, cut[name]) for name, count in sorted(ops.items(), key=lambda row: (-row[1], row[0]))],
        types=sorted(types, key=lambda row: (-row[1], row[0])),
        variables=variable_rows(shaped, division),
    )


def whole_bytes(row: VariableRow) -> int:
    """Return the bytes of all of a variable."""
    return item_bytes(row.dtype) * prod(row.shape)


def layout_words(layouts: Layouts, factors: Shape) -> str:
    """Return a layout in words: `dimension 0 in 2x2`, `dimension 1 in 2`, `whole`."""
    cuts: dict[int, list[int]] = {}
    for layout, k in zip(layouts, factors, strict=True):
        cuts.setdefault(layout, []).append(k)
    if ONE in cuts:
        return "on worker 0 alone"
    words = [f"dimension {d} in {'x'.join(map(str, result))}" for d, result in cuts.items() if d >= 0]
    if PARTIAL in cuts:
        words.append(f"partial results of {'x'.join(map(str, cuts[PARTIAL]))}")
    return ", ".join(words) or "whole"


_NEAREST = 3
_LONGEST, _SHOWN = 200, 80
"""Maximum characters of names to look for, and of names in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTensor:
    """A tensor that the op reads or makes."""

    tensor: str
    """op:output, of the op that makes it; a variable's handle stands for its value."""
    shape: Shape | None
    dtype: str
    source_layouts: Layouts
    """An input: as it is kept; an output: as it is computed."""
    target_layouts: Layouts
    """An input: as it is needed; an output: as it is kept."""
    moved_bytes: int
    """Bytes that all workers receive between both layouts; for an input alone, though other ops may need the same."""
    parts: tuple[Box | None, ...]
    """[K] the part of each worker, as wanted; None where it has none."""
    rims: Rims = ()
    """Rims of an input: the dimensions along which its parts are windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedOp:
    """How one op is divided, and why not otherwise."""

    name: str
    type: str
    kind: str
    """Class of its op type, as of `coverage`."""
    strategy: OpStrategy
    strategies: tuple[tuple[int, Strategies], ...]
    """For each number of parts that a cut is in."""
    inputs: tuple[OpTensor, ...]
    outputs: tuple[OpTensor, ...]


def explain_op(shaped: TypedGraph, division: Division, name: str, *, halo: bool = False) -> ExplainedOp:
    """Return how an op is divided, found by its name or the end of it; with `halo` its strategies may read windows.

    Raise UsageError, with names near it, if there is no such op or more than one.
    """
    op = find_op(shaped.names, name)
    signature, strategy = shaped.signature(op), division.strategies[op]
    return ExplainedOp(
        name=shaped.names[op],
        type=signature.type,
        kind=coverage([signature.type])[0].kind,
        strategy=strategy,
        strategies=tuple((k, strategies(signature, k, halo=halo)) for k in dict.fromkeys(division.factors)),
        inputs=tuple(_input(shaped, division, op, at) for at in range(len(signature.inputs))),
        outputs=tuple(_output(shaped, division, op, k) for k in range(len(signature.outputs))),
    )


def find_op(names: tuple[str, ...], name: str) -> int:
    """Return the op of that name, or the only one whose name ends in it after a slash; else raise UsageError."""
    if name in names:
        return names.index(name)
    ends = [n for n in names if n.endswith(f"/{name}")]
    if len(ends) == 1:
        return names.index(ends[0])
    near = ends or [n for n in names if name and name in n]
    if not near and len(name) <= _LONGEST:
        near = get_close_matches(name, names, n=_NEAREST)
    names_near = ", ".join(n[:_SHOWN] for n in near[:_NEAREST])
    many = f"{len(ends)} ops end in" if ends else "the step has no op"
    raise UsageError.build(
        f"{many} {name[:_SHOWN]!r}", remedy=f"give one: {names_near}" if names_near else "give the name of one"
    )


def _input(shaped: TypedGraph, division: Division, op: int, at: int) -> OpTensor:
    """Return an input, kept as its maker's output, or its variable, is."""
    operand, (needed, rims) = shaped.signature(op).inputs[at], division.strategies[op].need(at)
    edges = np.flatnonzero((shaped.dst == op) & (shaped.input == at))
    uses = np.flatnonzero((shaped.use_op == op) & (shaped.use_input == at))
    known = operand.value is not None or shaped.signature(op).reads_shapes_alone  # nothing is brought
    tensor, result = f"input {at}", needed
    if len(edges):
        maker, output = int(shaped.src[edges[0]]), int(shaped.output[edges[0]])
        tensor, result = f"{shaped.names[maker]}:{output}", division.kept[maker][output]
    if len(uses):
        variable = int(shaped.use_variable[uses[0]])
        tensor, result = f"{shaped.names[shaped.handle[variable]]}:0", division.variables[variable]
    elif known:
        result = needed
    moved = 0
    if operand.shape is not None and (len(edges) or len(uses)) and not known:
        moved = elements_to_fetch(operand.shape, result, needed, division.factors, rims) * item_bytes(operand.dtype)
    return OpTensor(
        tensor=tensor, shape=operand.shape, dtype=operand.dtype, source_layouts=result, target_layouts=needed,
        moved_bytes=moved, parts=_parts(operand.shape, needed, division.factors, rims), rims=rims,
    )  # fmt: skip


def _output(shaped: TypedGraph, division: Division, op: int, output: int) -> OpTensor:
    shape, dtype = shaped.signature(op).outputs[output]
    gives, kept = division.strategies[op].gives[output], division.kept[op][output]
    moved = 0 if shape is None else item_bytes(dtype) * elements_to_store(shape, gives, kept, division.factors)
    return OpTensor(
        tensor=f"{shaped.names[op]}:{output}", shape=shape, dtype=dtype, source_layouts=gives, target_layouts=kept,
        moved_bytes=moved, parts=_parts(shape, kept, division.factors),
    )  # fmt: skip


def _parts(shape: Shape | None, layouts: Layouts, factors: Shape, rims: Rims = ()) -> tuple[Box | None, ...]:
    return () if shape is None else worker_boxes(shape, layouts, factors, rims)


Axes = tuple[str | tuple[str, ...] | None, ...]
"""For each dimension the axis that it is cut along: several if cuts are nested, None if it is not cut."""


def jax_text(shaped: TypedGraph, division: Division) -> str:
    """Return Python that sets `mesh_shape`, `axis_names` and `specs`, from a variable's name to its PartitionSpec."""
    names = [f"c{cut}" for cut in range(len(division.factors))]
    rows = [
        f"    {_quoted(row.name)}: P({', '.join(map(_axis, _axes(row.layouts, names, row.shape)))}),"
        for row in _by_name(shaped, division)
    ]
    return "\n".join(
        [
            *_head(shaped, division),
            "from jax.sharding import PartitionSpec as P",
            "",
            f"mesh_shape = {_tuple(map(str, division.factors))}",
            f"axis_names = {_tuple(map(_quoted, names))}",
            "specs = {",
            *rows,
            "}",
            "",
        ]
    )


def keras_text(shaped: TypedGraph, division: Division) -> str:
    """Return Python that makes `layout_map`, a keras.distribution.LayoutMap from patterns of variables' paths to axes.

    A dimension has one axis at most there: neighbouring cuts that cut all variables alike are one axis, and a variable
    whose cuts of one dimension are nested still is left whole, with a comment.
    """
    rows = _by_name(shaped, division)
    groups = _joined([row.layouts for row in rows], len(division.factors))
    names = ["".join(f"c{cut}" for cut in group) for group in groups]
    sizes = [prod(division.factors[cut] for cut in group) for group in groups]
    lines = []
    for row in rows:
        axes = _axes(tuple(row.layouts[group[0]] for group in groups), names, row.shape)
        if any(isinstance(axis, tuple) for axis in axes):
            lines.append(f"# {_quoted(row.name)}: cuts of one dimension are nested: left whole")
        else:
            # The pattern matches no other variable; leading folders are allowed if no other name ends in this one.
            folders = "" if any(other.name.endswith(f"/{row.name}") for other in rows) else "(.*/)?"
            lines.append(f"layout_map[{_quoted(folders + re.escape(row.name))}] = {_tuple(map(_axis, axes))}")
    return "\n".join(
        [
            *_head(shaped, division),
            "from keras.distribution import DeviceMesh, LayoutMap",
            "",
            f'devices = [f"gpu:{{worker}}" for worker in range({division.workers})]',
            f"device_mesh = DeviceMesh({_tuple(map(str, sizes))}, {json.dumps(names)}, devices)",
            "layout_map = LayoutMap(device_mesh)",
            *lines,
            "",
        ]
    )


EXPORTS: dict[str, Callable[[TypedGraph, Division], str]] = {"jax": jax_text, "keras": keras_text}
"""Framework -> function that returns the program."""


def _head(shaped: TypedGraph, division: Division) -> list[str]:
    source = " ".join(shaped.source.split())
    return [
        f"# {source} cut for {division.workers} workers: where its variables lie, slots of the optimizer among them.",
        "# Not said here: how activations and gradients lie, which results are partial and summed, and what worker 0",
        "# alone does.",
    ]


def _by_name(shaped: TypedGraph, division: Division) -> list[VariableRow]:
    return sorted(variable_rows(shaped, division), key=lambda row: row.name)


def _axes(layouts: Layouts, names: Sequence[str], shape: Shape) -> Axes:
    cut: list[list[str]] = [[] for _ in shape]
    for layout, name in zip(layouts, names, strict=True):
        if layout >= 0:
            cut[layout].append(name)
    return tuple(None if not result else result[0] if len(result) == 1 else tuple(result) for result in cut)


def _joined(all_layouts: Sequence[Layouts], cuts: int) -> list[list[int]]:
    """Return the runs of neighbouring cuts that cut each variable along one dimension, or not at all."""
    alike = [tuple(layouts[cut] for layouts in all_layouts) for cut in range(cuts)]
    return [list(run) for _, run in groupby(range(cuts), key=lambda cut: alike[cut])]


def _quoted(text: str) -> str:
    return json.dumps(text)


def _axis(axis: str | tuple[str, ...] | None) -> str:
    if axis is None:
        return "None"
    return _quoted(axis) if isinstance(axis, str) else _tuple(map(_quoted, axis))


def _tuple(items: Iterable[str]) -> str:
    result = list(items)
    return f"({', '.join(result)}{',' if len(result) == 1 else ''})"
