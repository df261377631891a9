"""One op of a division: strategies and refusals, where each of its tensors is, what is brought, whose part is which."""

from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from pesto.core.errors import UsageError
from pesto.split import geometry
from pesto.split.division import Division, item_bytes
from pesto.split.geometry import Layouts, Shape
from pesto.split.layouts import Rims, Strategies
from pesto.split.op_strategy import OpStrategy
from pesto.split.ops.op_types import coverage, strategies
from pesto.split.pieces import Box, worker_boxes
from pesto.split.typed_graph import TypedGraph

_NEAREST = 3
_LONGEST, _SHOWN = 200, 80
"""Characters of names that are looked for, and that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTensor:
    """A tensor that the op reads or makes."""

    tensor: str
    """op:output, of the op that makes it; a variable's handle stands for its value."""
    shape: Shape | None
    dtype: str
    found: Layouts
    """An input: as it is kept; an output: as it is computed."""
    wanted: Layouts
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
    """Its class, as `coverage` has it."""
    way: OpStrategy
    strategies: tuple[tuple[int, Strategies], ...]
    """For each number of parts that a cut is in."""
    inputs: tuple[OpTensor, ...]
    outputs: tuple[OpTensor, ...]


def explain_op(shaped: TypedGraph, division: Division, name: str, *, halo: bool = False) -> ExplainedOp:
    """One op by its name or the end of it; UsageError, with names near it, where there is none or more than one.

    halo: whether its strategies may read windows.
    """
    op = find_op(shaped.names, name)
    signature, way = shaped.signature(op), division.ways[op]
    return ExplainedOp(
        name=shaped.names[op],
        type=signature.type,
        kind=coverage([signature.type])[0].kind,
        way=way,
        strategies=tuple((k, strategies(signature, k, halo=halo)) for k in dict.fromkeys(division.factors)),
        inputs=tuple(_input(shaped, division, op, at) for at in range(len(signature.inputs))),
        outputs=tuple(_output(shaped, division, op, k) for k in range(len(signature.outputs))),
    )


def find_op(names: tuple[str, ...], name: str) -> int:
    """The op of that name, or the only one whose name ends in it after a slash; UsageError for none or several."""
    if name in names:
        return names.index(name)
    ends = [n for n in names if n.endswith(f"/{name}")]
    if len(ends) == 1:
        return names.index(ends[0])
    near = ends or [n for n in names if name and name in n]
    if not near and len(name) <= _LONGEST:
        near = get_close_matches(name, names, n=_NEAREST)
    told = ", ".join(n[:_SHOWN] for n in near[:_NEAREST])
    many = f"{len(ends)} ops end in" if ends else "the step has no op"
    raise UsageError.build(
        f"{many} {name[:_SHOWN]!r}", remedy=f"{f'give one: {told}' if told else 'give the name of one'}"
    )


def _input(shaped: TypedGraph, division: Division, op: int, at: int) -> OpTensor:
    """An input: kept where its maker's output, or its variable, is kept."""
    operand, (needed, rims) = shaped.signature(op).inputs[at], division.ways[op].need(at)
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
        moved = geometry.elements_to_fetch(operand.shape, result, needed, division.factors, rims) * item_bytes(
            operand.dtype
        )
    return OpTensor(
        tensor=tensor, shape=operand.shape, dtype=operand.dtype, found=result, wanted=needed, moved_bytes=moved,
        parts=_parts(operand.shape, needed, division.factors, rims), rims=rims,
    )  # fmt: skip


def _output(shaped: TypedGraph, division: Division, op: int, output: int) -> OpTensor:
    shape, dtype = shaped.signature(op).outputs[output]
    gives, kept = division.ways[op].gives[output], division.kept[op][output]
    moved = 0 if shape is None else item_bytes(dtype) * geometry.elements_to_store(shape, gives, kept, division.factors)
    return OpTensor(
        tensor=f"{shaped.names[op]}:{output}", shape=shape, dtype=dtype, found=gives, wanted=kept, moved_bytes=moved,
        parts=_parts(shape, kept, division.factors),
    )  # fmt: skip


def _parts(shape: Shape | None, layouts: Layouts, factors: Shape, rims: Rims = ()) -> tuple[Box | None, ...]:
    return () if shape is None else worker_boxes(shape, layouts, factors, rims)
