"""A step divided among K workers: the strategy of every op, where tensors and variables are kept, what workers send."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import prod

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.quantities import percent, plural
from pesto.split.geometry import PARTIAL, Layouts, Shape, elements_received, part_shape
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
    strategies: tuple[OpStrategy, ...]
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
    for p, output, i, at in shaped.edges:
        signature = shaped.signature(i)
        operand = signature.inputs[at]
        constant = operand.value is not None or operand.dtype.startswith("resource")
        if not constant and not signature.reads_shapes_alone:
            result[p, output].append((i, at))
    return result


def step_bytes(shaped: TypedGraph, division: Division) -> tuple[int, int]:
    """Return the bytes that all workers receive in a step, and those of all variables that one worker holds."""
    return moved_bytes(shaped, division), int(parameter_bytes(shaped, division).sum())


def moved_bytes(shaped: TypedGraph, division: Division) -> int:
    """Return the bytes that all workers receive in a step: each part of a tensor once, however many ops need it."""
    total = 0
    for (p, k), read_by in readers(shaped).items():
        shape, dtype = shaped.signature(p).outputs[k]
        item = item_bytes(dtype)
        if shape is not None and item:
            needs = frozenset(division.strategies[i].need(at) for i, at in read_by)
            gives, kept = division.strategies[p].gives[k], division.kept[p][k]
            total += item * elements_received(shape, gives, kept, needs, division.factors)
    return total


def parameter_bytes(shaped: TypedGraph, division: Division | None) -> np.ndarray:
    """Return [v] bytes of each variable that one worker holds; without a division the bytes of all of it."""
    result = np.zeros(len(shaped.handle), dtype=np.int64)
    for op, at, variable in shaped.uses:
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None:
            part = operand.shape
            if division is not None:
                part = part_shape(part, division.variables[variable], division.factors)
            result[variable] = prod(part) * item_bytes(operand.dtype)
    return result


def reduction_warnings(shaped: TypedGraph, division: Division) -> list[str]:
    """Return one line for each data type of few bits whose values are reduced from parts."""
    summed: Counter[str] = Counter()
    for op, strategy in enumerate(division.strategies):
        for (_, dtype), gives in zip(shaped.signature(op).outputs, strategy.gives, strict=True):
            if PARTIAL in gives and strategy.reducer in ("sum", "prod"):
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
