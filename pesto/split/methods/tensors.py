"""The variables of a cut's problem as tensors and ops: which is what, and how many bytes."""

from dataclasses import dataclass
from math import prod

import numpy as np

from pesto.split.division import item_bytes
from pesto.split.geometry import Layouts, Shape
from pesto.split.program import CutProgram
from pesto.split.typed_graph import TypedGraph
from solvers.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensors:
    """Ties, tensors and ops among the first variables of a problem."""

    count: int
    """How many there are."""
    layouts: dict[int, tuple[Layouts, ...]]
    """Variable -> the layouts of a tie or a tensor."""
    size: Ints
    """[count] bytes of ties and tensors; 0 of ops."""
    rank_first: dict[int, Shape]
    """Variable -> shape of the tensor, or of the tie's variable."""
    ops: dict[int, int]
    """Variable -> op."""


def tensors_of(shaped: TypedGraph, program: CutProgram) -> Tensors:
    """Describe the variables of a problem."""
    layouts: dict[int, tuple[Layouts, ...]] = {}
    sizes: dict[int, int] = {}
    shapes: dict[int, Shape] = {}
    for v, at in enumerate(program.tie):
        layouts[at] = program.tied[v]
    for u in range(len(shaped.use_op)):
        operand = shaped.signature(int(shaped.use_op[u])).inputs[int(shaped.use_input[u])]
        at = program.tie[int(shaped.use_variable[u])]
        _larger(sizes, shapes, at, operand.shape, operand.dtype)
    for op in range(shaped.ops):
        for output, at in enumerate(program.tensor[op]):
            if at >= 0 and at not in set(program.tie):
                layouts[at] = program.layouts[op][output]
                _larger(sizes, shapes, at, *shaped.signature(op).outputs[output])
    ops = {at: op for op, at in enumerate(program.op) if at >= 0}
    count = 1 + max([*layouts, *ops], default=-1)
    size = np.array([sizes.get(v, 0) for v in range(count)], dtype=np.int64)
    return Tensors(count=count, layouts=layouts, size=size, rank_first=shapes, ops=ops)


def _larger(sizes: dict[int, int], shapes: dict[int, Shape], at: int, shape: Shape | None, dtype: str) -> None:
    size = prod(shape) * item_bytes(dtype) if shape is not None else 0
    if size >= sizes.get(at, 0):
        sizes[at], shapes[at] = size, shape or ()
