"""A step divided among K workers: the way of every op, where tensors and variables are kept, what workers send."""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pesto.split import geometry
from pesto.split.geometry import Layouts, Need, Shape
from pesto.split.op_strategy import OpStrategy
from pesto.split.pieces import Box, worker_boxes
from pesto.split.typed_graph import TypedGraph

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "half": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes of an element; what is not here, such as strings and handles, is not cut and counts none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """One step, divided."""

    factors: Shape
    """Parts of each cut, outermost first; their product is K."""
    ways: tuple[OpStrategy, ...]
    """[n] how each op is divided."""
    kept: tuple[tuple[Layouts, ...], ...]
    """[n] the layout in which each output is kept."""
    variables: tuple[Layouts, ...]
    """[v] the layout of each variable."""
    places: tuple[int, ...] = ()
    """[p] the device of each of its parts (`pesto.split.worker_parts`), which a partial split has; else worker w is on
    device w."""

    @property
    def workers(self) -> int:
        """K."""
        return prod(self.factors)

    @property
    def devices(self) -> int:
        """How many devices it is for: K, or with `places` as many as these name."""
        return max(self.workers, 1 + max(self.places, default=0))


def item_bytes(dtype: str) -> int:
    """Bytes of an element; 0 for handles and strings."""
    return ITEM_BYTES.get(dtype.removeprefix("resource:"), 0)


def readers(shaped: TypedGraph) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(op, output) -> the (op, input) that read its elements; not of handles, nor where the input is a constant."""
    result: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    edges = zip(shaped.src.tolist(), shaped.output.tolist(), shaped.dst.tolist(), shaped.input.tolist(), strict=True)
    for p, output, i, at in edges:
        signature = shaped.signature(i)
        operand = signature.inputs[at]
        constant = operand.value is not None or operand.dtype.startswith("resource")
        if not constant and not signature.reads_shapes_alone:
            result[p, output].append((i, at))
    return result


def moved_bytes(shaped: TypedGraph, division: Division) -> int:
    """Bytes that all workers receive in a step: each part of a tensor once, however many ops of a worker need it."""
    return sum(
        tensor_bytes(
            *_tensor(shaped, p, k), division.ways[p].gives[k], division.kept[p][k],
            frozenset(division.ways[i].need(at) for i, at in result), division.factors,
        )
        for (p, k), result in readers(shaped).items()
    )  # fmt: skip


def _tensor(shaped: TypedGraph, op: int, output: int) -> tuple[Shape | None, int]:
    shape, dtype = shaped.signature(op).outputs[output]
    return shape, item_bytes(dtype)


@lru_cache(maxsize=1 << 16)
def tensor_bytes(
    shape: Shape | None, item: int, gives: Layouts, kept_layouts: Layouts, needs: frozenset[Need], factors: Shape
) -> int:
    """Bytes that workers receive to keep a tensor, and to have the parts of it that their ops need.

    Two layouts that are one part to a worker are received once by it.
    """
    if shape is None or not item:
        return 0
    have = worker_boxes(shape, kept_layouts, factors)
    received = [0] * prod(factors)
    parts = [worker_boxes(shape, need.layouts, factors, need.rims) for need in needs]
    for w in range(prod(factors)):
        for box in {part[w] for part in parts} - {None}:
            received[w] += _missing(have[w], box)
    return item * (geometry.elements_to_store(shape, gives, kept_layouts, factors) + sum(received))


def _missing(have: Box | None, need: Box | None) -> int:
    """Elements of a part that a worker does not hold."""
    if need is None:
        return 0
    if have is None:
        return prod(need[1])
    sides = zip(*have, *need, strict=True)
    return prod(need[1]) - prod(max(0, min(a + n, b + m) - max(a, b)) for a, n, b, m in sides)


def cut_though_small(shaped: TypedGraph, tiny: int, share: float) -> frozenset[int]:
    """Ties whose variables are all of less than `tiny` bytes, and that are cut even so: the largest of them, where all
    that is small is more than a share of all variables, until the rest is no more."""
    largest, held = dict[int, int](), defaultdict[int, int](int)
    whole = parameter_bytes(shaped, None)
    for tie, size in zip(shaped.tie.tolist(), whole.tolist(), strict=True):
        largest[tie] = max(largest.get(tie, 0), size)
        held[tie] += size
    small = sorted((tie for tie, size in largest.items() if size < tiny), key=lambda tie: (-held[tie], tie))
    left, result = sum(held[tie] for tie in small), set[int]()
    for tie in small:
        if left <= share * int(whole.sum()):
            break
        result.add(tie)
        left -= held[tie]
    return frozenset(result)


def parameter_bytes(shaped: TypedGraph, division: Division | None) -> np.ndarray:
    """[v] bytes of each variable that one worker holds; of all of it without a division."""
    result = np.zeros(len(shaped.handle), dtype=np.int64)
    for u in range(len(shaped.use_op)):
        variable = shaped.use_variable[u]
        operand = shaped.signature(int(shaped.use_op[u])).inputs[shaped.use_input[u]]
        if operand.shape is not None:
            part = operand.shape
            if division is not None:
                part = geometry.part_shape(part, division.variables[variable], division.factors)
            result[variable] = prod(part) * item_bytes(operand.dtype)
    return result
