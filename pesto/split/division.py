"""A step divided among K workers: the strategy of every op, where tensors and variables are kept, what workers send."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.quantities import percent, plural
from pesto.split.geometry import PARTIAL, Layouts, Need, Shape, elements_to_store, part_shape, worker_boxes
from pesto.split.op_strategy import OpStrategy
from pesto.split.ops.op_types import coverage
from pesto.split.typed_graph import TypedGraph

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "half": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Data type -> bytes of an element; other types, such as strings and handles, are not cut and count none."""
ROUNDED = frozenset(("float16", "bfloat16", "half"))
"""Data types in which the order of a sum is seen."""
MATTERS = 0.01
"""Share of the bytes of all outputs of a step. What is done whole is read whole by every worker, so with 8 of them a
hundredth is sent as 8 hundredths at most; less is lost among tensors that are small anyway."""


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
        """Number of workers, K."""
        return prod(self.factors)

    @property
    def devices(self) -> int:
        """Number of devices that it is for: K, or with `places` as many as these name."""
        return max(self.workers, 1 + max(self.places, default=0))


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element; 0 for handles and strings."""
    return ITEM_BYTES.get(dtype.removeprefix("resource:"), 0)


def readers(shaped: TypedGraph) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Map (op, output) to the (op, input) that read its elements; without handles and inputs that are constants."""
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
    """Return the bytes that all workers receive in a step: each part of a tensor once, however many ops need it."""
    total = 0
    for (p, k), read_by in readers(shaped).items():
        shape, dtype = shaped.signature(p).outputs[k]
        needs = frozenset(division.ways[i].need(at) for i, at in read_by)
        gives, kept = division.ways[p].gives[k], division.kept[p][k]
        total += tensor_bytes(shape, item_bytes(dtype), gives, kept, needs, division.factors)
    return total


@lru_cache(maxsize=1 << 16)
def tensor_bytes(
    shape: Shape | None, item: int, gives: Layouts, kept_layouts: Layouts, needs: frozenset[Need], factors: Shape
) -> int:
    """Return the bytes that workers receive to keep a tensor, and to have the parts of it that their ops need.

    Two layouts that are one part to a worker are received once by it.
    """
    if shape is None or not item:
        return 0
    have = worker_boxes(shape, kept_layouts, factors)
    received = 0
    parts = [worker_boxes(shape, need.layouts, factors, need.rims) for need in needs]
    for w, own in enumerate(have):
        for box in {part[w] for part in parts} - {None}:
            if box is None:
                continue
            received += prod(box[1])
            if own is not None:
                sides = zip(*own, *box, strict=True)
                received -= prod(max(0, min(a + n, b + m) - max(a, b)) for a, n, b, m in sides)
    return item * (elements_to_store(shape, gives, kept_layouts, factors) + received)


def cut_though_small(shaped: TypedGraph, tiny: int, share: float) -> frozenset[int]:
    """Return the ties of tiny variables that are cut nevertheless, because tiny variables together weigh too much.

    The variables of these ties are all of less than `tiny` bytes. The largest ties are taken until the tiny variables
    that are left make up at most `share` of all variables.
    """
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
    """Return [v] bytes of each variable that one worker holds; without a division the bytes of all of it."""
    result = np.zeros(len(shaped.handle), dtype=np.int64)
    for u in range(len(shaped.use_op)):
        variable = shaped.use_variable[u]
        operand = shaped.signature(int(shaped.use_op[u])).inputs[shaped.use_input[u]]
        if operand.shape is not None:
            part = operand.shape
            if division is not None:
                part = part_shape(part, division.variables[variable], division.factors)
            result[variable] = prod(part) * item_bytes(operand.dtype)
    return result


def reduction_warnings(shaped: TypedGraph, division: Division) -> list[str]:
    """Return one line for each data type of few bits whose values are reduced from parts."""
    summed: Counter[str] = Counter()
    for op, way in enumerate(division.ways):
        for (_, dtype), gives in zip(shaped.signature(op).outputs, way.gives, strict=True):
            if PARTIAL in gives and way.reducer in ("sum", "prod"):
                summed[dtype] += dtype in ROUNDED
    return [
        f"{plural(many, 'op')} add{'s' if many == 1 else ''} up parts of {dtype}: the order of sums changes the result"
        for dtype, many in sorted(summed.items())
        if many
    ]


def undescribed_types(shaped: TypedGraph) -> list[str]:
    """Return the op types of a step without a description, whose ops every worker does whole."""
    types = {signature.type for signature in shaped.signatures}
    return [row.type for row in coverage(types) if not row.kind]


def undescribed_shares(shaped: TypedGraph) -> dict[str, float]:
    """Map each op type without a description to the share of the step's tensor bytes that its ops read and make.

    The largest share comes first. Ops that must run once are left out.
    """

    def size(shape: Shape | None, dtype: str) -> int:
        return 0 if shape is None else prod(shape) * item_bytes(dtype)

    missing = set(undescribed_types(shaped))
    touched, total = Counter[str](), 0
    for op in range(shaped.ops):
        signature = shaped.signature(op)
        made = sum(size(*output) for output in signature.outputs)
        total += made
        if signature.type in missing and not shaped.once[op]:
            touched[signature.type] += made + sum(size(o.shape, o.dtype) for o in signature.inputs)
    return {op_type: weight / max(1, total) for op_type, weight in touched.most_common()}


def refuse_undescribed(shaped: TypedGraph, remedy: str) -> None:
    """Raise UsageError, naming the op type that weighs most, if a type without a description matters."""
    for op_type, share in undescribed_shares(shaped).items():
        if share > MATTERS:
            raise UsageError.build(
                f"no description of {op_type}, whose ops read and make {percent(share)} of the bytes "
                "of all tensors: every worker would do them whole",
                where=shaped.source,
                remedy=f"describe it by pesto.split.ops.op_types.register, or {remedy}",
            )
