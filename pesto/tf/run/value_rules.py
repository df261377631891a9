"""Requirements of ops on the whole numbers that reach them: ranges of indices, and numbers that they compare with.

Ops that hand numbers on are in one table, ops that ask something of them in another. A row is a fact of TensorFlow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pesto.core.quantities import shorten
from pesto.tf.run.constant_values import constant_value, trace_origin, value_interval
from pesto.tf.run.function_scopes import FunctionScope, ScopeTensor
from pesto.tf.variables.variables import declared_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRequirement:
    """Requirement of one op on the numbers that reach it: a range, or special numbers."""

    low: float | None = None
    high: float | None = None
    """The largest that it takes, not one above."""
    why: str
    required: bool = False
    """True if the op fails beyond the range, or returns nothing useful."""
    specials: tuple[float, ...] = ()
    """Numbers that make a difference to it; the first is what it compares with."""
    equal: bool = False
    """True if the op tests equality, which random reals never satisfy."""
    perhaps: bool = False
    """True if the op sees the numbers changed, and only where another op chose them."""
    ordered: bool = False
    """True if the numbers must ascend."""
    distinct: bool = False
    """True if they are rows that must ascend and be distinct."""


@dataclass(frozen=True, slots=True)
class ReachedInput:
    """An input of a node that a fed number reaches."""

    scope: FunctionScope
    node: Any
    input: int
    column: int | None
    """Position of the number in an index, where it was packed into one."""

    @property
    def called(self) -> str:
        """Type and name of the node, for people."""
        return f"{self.node.op} {shorten(self.node.name)}"

    @property
    def inputs(self) -> list[ScopeTensor]:
        """The tensors that the node takes."""
        return self.scope.inputs[self.node.name]

    def size(self, place: int, axis: int) -> int | None:
        """A dimension of an input."""
        return self.scope.dimension(self.inputs[place], axis) if place < len(self.inputs) else None

    def constant(self, place: int) -> Any | None:
        """The numbers of an input, where the graph says them."""
        return constant_value(self.scope, self.inputs[place]) if place < len(self.inputs) else None

    def variable(self) -> tuple[str, tuple[int, ...] | None]:
        """Name and shape of the variable that is the first input."""
        scope, tensor = trace_origin(self.scope, self.inputs[0])
        node = scope.nodes.get(tensor.node)
        if node is None or node.op != "VarHandleOp":
            return "", None
        return node.name, declared_shape(node)


Rule = Callable[[ReachedInput], ValueRequirement | None]


def _below(count: Any, why: str, **more: Any) -> ValueRequirement | None:
    return (
        None
        if count is None or count < 1
        else ValueRequirement(low=0, high=int(count) - 1, why=why, required=True, **more)
    )


def _classes(at: ReachedInput) -> ValueRequirement | None:
    return _below(at.size(0, -1), f"classes of {at.called}")


def _gathered(at: ReachedInput) -> ValueRequirement | None:
    axis = at.constant(2) if at.node.op == "GatherV2" else 0
    rows = None if axis is None else at.size(0, int(axis))
    return _below(rows, f"rows that {at.called} takes from")


def _looked_up(at: ReachedInput) -> ValueRequirement | None:
    name, shape = at.variable()
    axis = at.node.attr["batch_dims"].i
    rows = shape[axis] if shape and len(shape) > axis else at.size(0, axis)
    return _below(rows, f"rows of the table {name}" if name else f"rows of the table of {at.called}")


def _rows_of(place: int, axis: int = 0, **more: Any) -> Rule:
    def rule(at: ReachedInput) -> ValueRequirement | None:
        return _below(at.size(place, axis), f"rows of {at.called}", **more)

    return rule


def _updated(at: ReachedInput) -> ValueRequirement | None:
    name, shape = at.variable()
    return _below(shape[0] if shape else at.size(0, 0), f"rows of {name or at.node.name}")


def _depth(at: ReachedInput) -> ValueRequirement | None:
    depth = at.constant(1)
    return _below(None if depth is None else int(depth), f"depth of {at.called}")


def _count(place: int) -> Rule:
    def rule(at: ReachedInput) -> ValueRequirement | None:
        count = at.constant(place)
        return _below(None if count is None else int(count), f"number of segments of {at.called}")

    return rule


def _partitions(at: ReachedInput) -> ValueRequirement | None:
    return _below(at.node.attr["num_partitions"].i, f"partitions of {at.called}")


def _points(at: ReachedInput, extents: Any, *, distinct: bool = False) -> ValueRequirement | None:
    """Rows of an index into a tensor: of its column where that is known, else of the smallest of all."""
    if extents is None or not len(extents) or min(extents) < 1:
        return None
    known = at.column is not None and at.column < len(extents)
    count = extents[at.column or 0] if known else min(extents)
    return _below(count, f"indices of {at.called}", distinct=distinct)


def _places_in(place: int, *, distinct: bool = False) -> Rule:
    """Indices into the shape that an input gives as numbers."""

    def rule(at: ReachedInput) -> ValueRequirement | None:
        extents = at.constant(place)
        return _points(at, None if extents is None else [int(n) for n in extents.reshape(-1)], distinct=distinct)

    return rule


def _places_of(indices: int) -> Rule:
    """Indices into the first input, whose rows are `indices`' last dimension long."""

    def rule(at: ReachedInput) -> ValueRequirement | None:
        shape = at.scope.shape(at.inputs[0]) or at.variable()[1]
        long = at.size(indices, -1)
        return None if shape is None or long is None or -1 in shape[:long] else _points(at, shape[:long])

    return rule


def _lengths(at: ReachedInput) -> ValueRequirement | None:
    steps = at.size(0, at.node.attr["seq_dim"].i)
    return None if not steps else ValueRequirement(low=1, high=steps, why=f"steps of {at.called}", required=True)


def _ctc_lengths(at: ReachedInput) -> ValueRequirement | None:
    steps = at.size(0, 0)
    why = f"all steps of {at.called}, so that every label has room"
    return None if not steps else ValueRequirement(low=steps, high=steps, why=why, required=True)


def _ctc_labels(at: ReachedInput) -> ValueRequirement | None:
    classes = at.size(0, -1)
    return _below(None if classes is None else classes - 1, f"classes of {at.called}, without the blank")


def _truth(at: ReachedInput) -> ValueRequirement | None:
    if at.node.op == "Cast" and at.node.attr["DstT"].type != 10:  # DT_BOOL
        return None
    return ValueRequirement(why=f"a mask of {at.called}", specials=(0, 1))


_ABOVE = {"Greater": (0, 1), "LessEqual": (0, 1), "GreaterEqual": (-1, 0), "Less": (-1, 0)}
"""Numbers beside the one compared with, of which the comparison holds for one, where the fed number stands first."""
_MIRRORED = {"Greater": "Less", "Less": "Greater", "GreaterEqual": "LessEqual", "LessEqual": "GreaterEqual"}


def _compared(at: ReachedInput) -> ValueRequirement | None:
    """Require numbers on both sides of the compared one; for a range such as time steps, from its second to its end."""
    other = value_interval(at.scope, at.inputs[1 - at.input])
    if other is None:
        return None
    op, why = at.node.op, f"compared by {at.called}"
    if op in ("Equal", "NotEqual"):
        if other[0] < other[1]:
            return ValueRequirement(low=other[0], high=other[1], why=why)
        return ValueRequirement(why=why, specials=(other[0], other[0] + 1), equal=True)
    if other[0] < other[1]:
        return ValueRequirement(low=other[0] + 1, high=other[1] + 1, why=why)
    beside = _ABOVE[op if at.input == 0 else _MIRRORED[op]]
    return ValueRequirement(why=why, specials=tuple(other[0] + by for by in beside))


def _capped(at: ReachedInput) -> ValueRequirement | None:
    """A number that is cut to a constant: from 1 to that, as lengths are."""
    other = value_interval(at.scope, at.inputs[1 - at.input])
    if other is None or other[1] < 1:
        return None
    return ValueRequirement(low=1, high=other[1], why=f"cut by {at.called}")


def _residues(at: ReachedInput) -> ValueRequirement | None:
    by = at.constant(1)
    if by is None or by.size != 1 or by < 1:
        return None
    return ValueRequirement(low=0, high=int(4 * by) - 1, why=f"taken modulo {int(by)} by {at.called}")


_SCATTERS = ("Add", "Sub", "Update", "Mul", "Div", "Min", "Max")
_SEGMENTS = ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin")
_SPARSE_SEGMENTS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")

REQUIREMENTS: dict[tuple[str, int], Rule] = {
    ("SparseSoftmaxCrossEntropyWithLogits", 1): _classes,
    ("InTopK", 1): _classes,
    ("InTopKV2", 1): _classes,
    ("Gather", 1): _gathered,
    ("GatherV2", 1): _gathered,
    ("ResourceGather", 1): _looked_up,
    ("GatherNd", 1): _places_of(1),
    ("ResourceGatherNd", 1): _places_of(1),
    ("OneHot", 0): _depth,
    ("SparseToDense", 0): _places_in(1, distinct=True),
    ("SparseTensorDenseMatMul", 0): _places_in(2, distinct=True),
    ("ScatterNd", 0): _places_in(2),
    ("DynamicPartition", 1): _partitions,
    ("Bincount", 0): _count(1),
    ("DenseBincount", 0): _count(1),
    ("ReverseSequence", 1): _lengths,
    ("CTCLoss", 2): _ctc_labels,
    ("CTCLoss", 3): _ctc_lengths,
    ("FloorMod", 0): _residues,
    ("Mod", 0): _residues,
    ("Cast", 0): _truth,
    **{(op, 1): _places_of(1) for kind in _SCATTERS for op in (f"TensorScatter{kind}", f"ResourceScatterNd{kind}")},
    **{(op, 1): _updated for kind in _SCATTERS for op in (f"Scatter{kind}", f"ResourceScatter{kind}")},
    **{(op, 1): _rows_of(0, ordered=True) for op in _SEGMENTS},
    **{(op, 1): _rows_of(0) for op in _SPARSE_SEGMENTS},
    **{(op, 2): _rows_of(1, ordered=True) for op in _SPARSE_SEGMENTS},
    **{(f"Unsorted{op}", 1): _count(2) for op in _SEGMENTS},
    **{(op, place): _compared for op in ("Equal", "NotEqual", *_ABOVE) for place in (0, 1)},
    **{("Minimum", place): _capped for place in (0, 1)},
}
"""(op type, input) -> what it asks of the numbers there."""

_FIRST = (
    "Identity", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape", "CheckNumerics", "Cast", "Reshape",
    "ExpandDims", "Squeeze", "Transpose", "Tile", "BroadcastTo", "StridedSlice", "Slice", "Floor", "Ceil", "Rint",
    "Round", "Reverse", "ReverseV2", "ReverseSequence", "Roll", "Pad", "PadV2", "MirrorPad", "Max", "Min", "Gather",
    "GatherV2", "GatherNd", "Unique", "UniqueV2", "UniqueWithCounts", "TopKV2", "TopK", "Enter", "Exit",
    "NextIteration", "MatrixBandPart", "MatrixDiag", "SpaceToBatchND", "BatchToSpaceND", "TensorListFromTensor",
    "TensorListGetItem", "TensorListStack", "TensorListGather", "TensorListConcatV2", "TensorListResize",
)  # fmt: skip
HANDED_ON: dict[tuple[str, int], str] = {
    **{(op, 0): "first" for op in _FIRST},
    ("SparseToDense", 2): "first",
    ("SplitV", 0): "all", ("Split", 1): "all", ("Unpack", 0): "all", ("Switch", 0): "all",
    ("DynamicPartition", 0): "all", ("TensorListPopBack", 0): "all", ("IdentityN", -1): "same",
    ("Pack", -1): "first", ("Merge", -1): "first", ("ParallelConcat", -1): "first", ("ConcatV2", -1): "first",
    ("Concat", -1): "first", ("DynamicStitch", -1): "first", ("Select", 1): "first", ("Select", 2): "first",
    ("SelectV2", 1): "first", ("SelectV2", 2): "first", ("Fill", 1): "first", ("TensorListSetItem", 0): "first",
    ("TensorListSetItem", 2): "first", ("TensorListPushBack", 0): "first", ("TensorListPushBack", 1): "first",
}  # fmt: skip
"""(op type, input, -1 for any) -> the outputs that hold the same numbers: the first, all, or that of the input."""
