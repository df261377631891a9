"""The ranges that a step's ops imply for whole numbers that are fed: classes, rows of tables, masks, lengths.

From each feed the numbers are followed through ops that hand them on, shift or cut them, into the functions of loops
and branches, to the ops with requirements on them, which are carried back to the feed. Two tables hold the facts of
TensorFlow: `REQUIREMENTS` of ops, and `HANDED_ON`, the ops that hand numbers on.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pesto.core.quantities import shorten
from pesto.tf.feed_values import FeedValues
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.run.constant_values import (
    FunctionScope,
    FunctionScopes,
    ScopeTensor,
    constant_value,
    step_scope,
    trace_origin,
    value_interval,
)
from pesto.tf.variables.variables import declared_shape

_MOST = 20_000
"""Tensors after which a feed is followed no further."""
_EACH = 4
"""Transforms of a feed that are followed through one tensor."""
_EXACT = 1e-6
"""Rounding error allowed in divisions of floating point."""
_UNKNOWN = "no op implies a range"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRequirement:
    """Requirement of one op on the numbers that reach it: a range, or special numbers."""

    low: float | None = None
    high: float | None = None
    """Largest number that it takes, inclusive."""
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
    """True if the numbers are rows that must ascend and be distinct."""


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
        """Type and name of the node, for messages."""
        return f"{self.node.op} {shorten(self.node.name)}"

    @property
    def inputs(self) -> list[ScopeTensor]:
        """Tensors that the node reads."""
        return self.scope.inputs[self.node.name]

    def size(self, place: int, axis: int) -> int | None:
        """Return the size of a dimension of an input."""
        return self.scope.dimension(self.inputs[place], axis) if place < len(self.inputs) else None

    def constant(self, place: int) -> Any | None:
        """Return the numbers of an input where the graph determines them."""
        return constant_value(self.scope, self.inputs[place]) if place < len(self.inputs) else None

    def variable(self) -> tuple[str, tuple[int, ...] | None]:
        """Return name and shape of the variable that is the first input."""
        scope, tensor = trace_origin(self.scope, self.inputs[0])
        node = scope.nodes.get(tensor.node)
        if node is None or node.op != "VarHandleOp":
            return "", None
        return node.name, declared_shape(node)


Rule = Callable[[ReachedInput], ValueRequirement | None]


def _require_below(count: Any, why: str, **more: Any) -> ValueRequirement | None:
    """Return the requirement of an index below `count`; None where the count is not known."""
    if count is None or count < 1:
        return None
    return ValueRequirement(low=0, high=int(count) - 1, why=why, required=True, **more)


def _require_class(reached: ReachedInput) -> ValueRequirement | None:
    return _require_below(reached.size(0, -1), f"classes of {reached.called}")


def _require_gathered_row(reached: ReachedInput) -> ValueRequirement | None:
    axis = reached.constant(2) if reached.node.op == "GatherV2" else 0
    rows = None if axis is None else reached.size(0, int(axis))
    return _require_below(rows, f"rows that {reached.called} takes from")


def _require_table_row(reached: ReachedInput) -> ValueRequirement | None:
    name, shape = reached.variable()
    axis = reached.node.attr["batch_dims"].i
    rows = shape[axis] if shape and len(shape) > axis else reached.size(0, axis)
    return _require_below(rows, f"rows of the table {name}" if name else f"rows of the table of {reached.called}")


def _make_row_rule(place: int, axis: int = 0, **more: Any) -> Rule:
    def rule(reached: ReachedInput) -> ValueRequirement | None:
        return _require_below(reached.size(place, axis), f"rows of {reached.called}", **more)

    return rule


def _require_updated_row(reached: ReachedInput) -> ValueRequirement | None:
    name, shape = reached.variable()
    return _require_below(shape[0] if shape else reached.size(0, 0), f"rows of {name or reached.node.name}")


def _make_count_rule(place: int, name: str = "number of segments") -> Rule:
    def rule(reached: ReachedInput) -> ValueRequirement | None:
        count = reached.constant(place)
        return _require_below(None if count is None else int(count), f"{name} of {reached.called}")

    return rule


def _require_index(reached: ReachedInput, extents: Any, *, distinct: bool = False) -> ValueRequirement | None:
    """Require an index into a tensor: along its own axis where its column is known, else along the shortest."""
    if extents is None or not len(extents) or min(extents) < 1:
        return None
    has_column = reached.column is not None and reached.column < len(extents)
    count = extents[reached.column or 0] if has_column else min(extents)
    return _require_below(count, f"indices of {reached.called}", distinct=distinct)


def _make_index_rule(place: int, *, distinct: bool = False) -> Rule:
    def rule(reached: ReachedInput) -> ValueRequirement | None:
        extents = reached.constant(place)
        return _require_index(
            reached, None if extents is None else [int(n) for n in extents.reshape(-1)], distinct=distinct
        )

    return rule


def _make_indices_rule(indices: int) -> Rule:
    def rule(reached: ReachedInput) -> ValueRequirement | None:
        shape = reached.scope.shape(reached.inputs[0]) or reached.variable()[1]
        long = reached.size(indices, -1)
        return None if shape is None or long is None or -1 in shape[:long] else _require_index(reached, shape[:long])

    return rule


def _require_length(reached: ReachedInput) -> ValueRequirement | None:
    steps = reached.size(0, reached.node.attr["seq_dim"].i)
    return None if not steps else ValueRequirement(low=1, high=steps, why=f"steps of {reached.called}", required=True)


def _require_ctc_length(reached: ReachedInput) -> ValueRequirement | None:
    steps = reached.size(0, 0)
    why = f"all steps of {reached.called}, so that every label has room"
    return None if not steps else ValueRequirement(low=steps, high=steps, why=why, required=True)


def _require_ctc_label(reached: ReachedInput) -> ValueRequirement | None:
    classes = reached.size(0, -1)
    return _require_below(None if classes is None else classes - 1, f"classes of {reached.called}, without the blank")


def _require_truth_value(reached: ReachedInput) -> ValueRequirement | None:
    if reached.node.op == "Cast" and reached.node.attr["DstT"].type != 10:  # DT_BOOL
        return None
    return ValueRequirement(why=f"a mask of {reached.called}", specials=(0, 1))


_ABOVE = {"Greater": (0, 1), "LessEqual": (0, 1), "GreaterEqual": (-1, 0), "Less": (-1, 0)}
"""Numbers beside the one compared with, of which the comparison holds for one, where the fed number stands first."""
_MIRRORED = {"Greater": "Less", "Less": "Greater", "GreaterEqual": "LessEqual", "LessEqual": "GreaterEqual"}


def _require_both_sides(reached: ReachedInput) -> ValueRequirement | None:
    """Require numbers on both sides of the compared one; for a range such as time steps, from its second to its end."""
    other = value_interval(reached.scope, reached.inputs[1 - reached.input])
    if other is None:
        return None
    op, why = reached.node.op, f"compared by {reached.called}"
    if op in ("Equal", "NotEqual"):
        if other[0] < other[1]:
            return ValueRequirement(low=other[0], high=other[1], why=why)
        return ValueRequirement(why=why, specials=(other[0], other[0] + 1), equal=True)
    if other[0] < other[1]:
        return ValueRequirement(low=other[0] + 1, high=other[1] + 1, why=why)
    beside = _ABOVE[op if reached.input == 0 else _MIRRORED[op]]
    return ValueRequirement(why=why, specials=tuple(other[0] + by for by in beside))


def _require_capped(reached: ReachedInput) -> ValueRequirement | None:
    """Require a number from 1 to the constant that it is cut to, as lengths are."""
    other = value_interval(reached.scope, reached.inputs[1 - reached.input])
    if other is None or other[1] < 1:
        return None
    return ValueRequirement(low=1, high=other[1], why=f"cut by {reached.called}")


def _require_residues(reached: ReachedInput) -> ValueRequirement | None:
    by = reached.constant(1)
    if by is None or by.size != 1 or by < 1:
        return None
    return ValueRequirement(low=0, high=int(4 * by) - 1, why=f"taken modulo {int(by)} by {reached.called}")


_SCATTERS = ("Add", "Sub", "Update", "Mul", "Div", "Min", "Max")
_SEGMENTS = ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin")
_SPARSE_SEGMENTS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")

REQUIREMENTS: dict[tuple[str, int], Rule] = {
    ("SparseSoftmaxCrossEntropyWithLogits", 1): _require_class,
    ("InTopK", 1): _require_class,
    ("InTopKV2", 1): _require_class,
    ("Gather", 1): _require_gathered_row,
    ("GatherV2", 1): _require_gathered_row,
    ("ResourceGather", 1): _require_table_row,
    ("GatherNd", 1): _make_indices_rule(1),
    ("ResourceGatherNd", 1): _make_indices_rule(1),
    ("OneHot", 0): _make_count_rule(1, "depth"),
    ("SparseToDense", 0): _make_index_rule(1, distinct=True),
    ("SparseTensorDenseMatMul", 0): _make_index_rule(2, distinct=True),
    ("ScatterNd", 0): _make_index_rule(2),
    ("DynamicPartition", 1): lambda x: _require_below(x.node.attr["num_partitions"].i, f"partitions of {x.called}"),
    ("Bincount", 0): _make_count_rule(1),
    ("DenseBincount", 0): _make_count_rule(1),
    ("ReverseSequence", 1): _require_length,
    ("CTCLoss", 2): _require_ctc_label,
    ("CTCLoss", 3): _require_ctc_length,
    ("FloorMod", 0): _require_residues,
    ("Mod", 0): _require_residues,
    ("Cast", 0): _require_truth_value,
    **{
        (op, 1): _make_indices_rule(1)
        for kind in _SCATTERS
        for op in (f"TensorScatter{kind}", f"ResourceScatterNd{kind}")
    },
    **{(op, 1): _require_updated_row for kind in _SCATTERS for op in (f"Scatter{kind}", f"ResourceScatter{kind}")},
    **{(op, 1): _make_row_rule(0, ordered=True) for op in _SEGMENTS},
    **{(op, 1): _make_row_rule(0) for op in _SPARSE_SEGMENTS},
    **{(op, 2): _make_row_rule(1, ordered=True) for op in _SPARSE_SEGMENTS},
    **{(f"Unsorted{op}", 1): _make_count_rule(2) for op in _SEGMENTS},
    **{(op, place): _require_both_sides for op in ("Equal", "NotEqual", *_ABOVE) for place in (0, 1)},
    **{("Minimum", place): _require_capped for place in (0, 1)},
}
"""(op type, input) -> rule that gives its requirement on the numbers there."""

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


@dataclass(frozen=True, slots=True)
class _ValueTransform:
    """A transform of fed numbers: x becomes x * `scale` plus an amount between `least` and `most`."""

    scale: float = 1
    least: float = 0
    most: float = 0
    floored: bool = False
    """True if small numbers were raised, so that no lower limit applies to the feed."""
    capped: bool = False
    whole: bool = False
    """True if the numbers passed through an integer type."""
    column: int | None = None
    perhaps: bool = False
    """True if an op chose between these and other numbers after a change, as when negative indices are moved up."""

    @property
    def changed(self) -> bool:
        """True if the numbers differ from the fed ones."""
        return (self.scale, self.least, self.most) != (1, 0, 0)

    def back(self, need: ValueRequirement) -> ValueRequirement:
        """Return the requirement on the feed for one on the transformed numbers."""
        low = None if need.low is None or self.floored else math.ceil((need.low - self.least) / self.scale - _EXACT)
        high = None if need.high is None or self.capped else math.floor((need.high - self.most) / self.scale + _EXACT)
        specials = tuple(float((value - self.least) / self.scale) for value in need.specials)
        specials = specials if self.least == self.most else ()
        return replace(need, low=low, high=high, specials=specials, perhaps=self.perhaps)


@dataclass(frozen=True, slots=True)
class ImpliedValues:
    """Chooses values for the feeds of one step."""

    step: FunctionScope
    functions: FunctionScopes

    @classmethod
    def of(cls, nodes: StepNodes) -> "ImpliedValues":
        """Return the object for the feeds of a step."""
        return cls(step_scope(nodes), FunctionScopes(nodes.signatures))

    def feed(self, name: str, shape: tuple[int, ...], dtype: Any) -> FeedValues:
        """Return the values to feed a tensor: the first output of an op `name`, or one by its number (name:1)."""
        op, _, output = name.partition(":")
        if dtype == tf.string:
            return FeedValues(name=name, shape=shape, dtype="object", why="ops may hash or parse them")
        plain = FeedValues(name=name, shape=shape, dtype=dtype.as_numpy_dtype.__name__)
        if dtype == tf.bool or dtype.is_complex:
            return plain
        needs = list(self._find_requirements(ScopeTensor(op, int(output or 0)), is_integer=dtype.is_integer))
        return _choose_values(plain, needs, dtype)

    def _find_requirements(self, feed: ScopeTensor, *, is_integer: bool) -> Iterator[tuple[ValueRequirement, bool]]:
        """Yield the requirement of each op that the numbers reach, and whether they reach it as whole numbers."""
        stack = [(self.step, feed, _ValueTransform(whole=is_integer))]
        known_transforms: dict[tuple[int, ScopeTensor], list[_ValueTransform]] = {}
        for _ in range(_MOST):
            if not stack:
                return
            scope, tensor, carried = stack.pop()
            transforms = known_transforms.setdefault((id(scope), tensor), [])
            if carried in transforms or len(transforms) >= _EACH:
                continue
            transforms.append(carried)
            for read in scope.readers.get(tensor, ()):
                reached = ReachedInput(scope, scope.nodes[read.node], read.input, carried.column)
                rule = REQUIREMENTS.get((reached.node.op, read.input))
                need = rule(reached) if rule is not None else None
                if need is not None:
                    yield carried.back(need), carried.whole or reached.node.op == "Cast"
                stack += self._follow_outputs(reached, carried)
            stack += self._follow_results(scope, tensor, carried)

    def _follow_outputs(
        self, reached: ReachedInput, carried: _ValueTransform
    ) -> Iterator[tuple[FunctionScope, ScopeTensor, _ValueTransform]]:
        """Yield the tensors to which a node passes the numbers, and their transform there."""
        node, op = reached.node, reached.node.op
        for inner, first in self.functions.called(reached.scope, node.name):
            for name, number in inner.arguments.items():
                if number == reached.input - first:
                    yield inner, ScopeTensor(name, 0), carried
        if self.functions.loops(reached.scope, node.name):
            yield reached.scope, ScopeTensor(node.name, reached.input), carried
        changed = _transform_by_operand(reached, carried)
        if changed is not None:
            yield reached.scope, ScopeTensor(node.name, 0), changed
            return
        where = HANDED_ON.get((op, reached.input), HANDED_ON.get((op, -1)))
        if where is None:
            return
        if op == "Cast":
            is_integer = tf.as_dtype(node.attr["DstT"].type).is_integer
            carried = replace(carried, whole=carried.whole or is_integer)
        if op in ("Select", "SelectV2", "Merge"):
            carried = replace(carried, perhaps=carried.perhaps or carried.changed)
        if op in ("Pack", "ConcatV2"):
            carried = replace(carried, column=_find_column(reached))
        outputs = {"first": [0], "same": [reached.input]}.get(where)
        for k in outputs if outputs is not None else range(self.functions.outputs(node)):
            yield reached.scope, ScopeTensor(node.name, k), carried

    def _follow_results(
        self, scope: FunctionScope, tensor: ScopeTensor, carried: _ValueTransform
    ) -> Iterator[tuple[FunctionScope, ScopeTensor, _ValueTransform]]:
        # A function's result is an output of the node that runs it, and in a loop the next argument.
        if scope.caller is None or tensor not in scope.results or self.functions.is_condition(scope):
            return
        outer, name = scope.caller
        for number in scope.results[tensor]:
            yield outer, ScopeTensor(name, number), carried
            if self.functions.repeats(scope):
                for inner, _ in self.functions.called(outer, name):
                    for argument, place in inner.arguments.items():
                        if place == number:
                            yield inner, ScopeTensor(argument, 0), carried


def _choose_values(plain: FeedValues, needs: list[tuple[ValueRequirement, bool]], dtype: Any) -> FeedValues:
    """Return a range that every op takes; where ops only compare, the numbers that they compare with."""
    needs = [(a, integer) for a, integer in needs if not a.perhaps] or needs
    if not dtype.is_integer:  # as whole numbers only where the step makes them such
        masked = {a.specials[0] for a, integer in needs if a.specials and a.equal and not integer}
        needs = [(a, integer) for a, integer in needs if integer]
        if not needs:
            return replace(plain, specials=tuple(sorted(masked)))
    needs = [(replace(a, specials=tuple(v for v in a.specials if v.is_integer())), integer) for a, integer in needs]
    # Requirements come before hints: an index beyond a table fails the step, while a comparison only makes some
    # values more interesting.
    required = [a for a, _ in needs if a.required and (a.low is not None or a.high is not None)]
    hinted = [a for a, _ in needs if not a.required and a.high is not None]
    specials = [a for a, _ in needs if a.specials]
    chosen = required or hinted
    if chosen:
        return _intersect(plain, chosen, specials, dtype)
    if specials:
        numbers = sorted({v for a in specials for v in a.specials if dtype.min <= v <= dtype.max})
        low, high = (numbers[0], numbers[-1]) if numbers else (0.0, 1.0)
        rest = () if numbers == list(range(int(low), int(high) + 1)) else tuple(numbers)
        if rest and high - low > len(rest) * 4:  # far apart: what lies between says nothing more
            low, high = rest[-2], rest[-1]
        return replace(plain, low=low, high=high, whole=True, why=specials[0].why, specials=rest)
    if dtype == tf.uint8:
        return replace(plain, low=0, high=255, whole=True, why=f"all of the type, {_UNKNOWN}")
    return replace(plain, low=0, high=1, whole=True, why=_UNKNOWN)


def _intersect(
    plain: FeedValues, chosen: list[ValueRequirement], specials: list[ValueRequirement], dtype: Any
) -> FeedValues:
    highs = [a for a in chosen if a.high is not None]
    lows = [a.low for a in chosen if a.low is not None]
    least = min(highs, key=lambda a: (a.high or 0, a.why)) if highs else chosen[0]
    # Where small numbers are raised on the way, nothing asks for a lower end: then 0, as with most indices.
    low = max(lows, default=min(0.0, least.high or 0.0)) if len(lows) == len(chosen) or lows else 0.0
    high = least.high if least.high is not None else low + 1
    if low > high:  # two ops that no number satisfies, as far as can be seen: the one with the least range
        low = least.low if least.low is not None else min(0.0, high)
    bounded = len(lows) == len(chosen)
    firsts = {a.specials[0] for a in specials}
    inside = sorted(v for v in firsts if (low <= v or not bounded) and v <= high and dtype.min <= v <= dtype.max)
    high = min(high, dtype.max)
    return replace(
        plain, low=low, high=high, whole=True, why=least.why, specials=tuple(inside),
        ordered=any(a.ordered for a in chosen), distinct=any(a.distinct for a in chosen),
    )  # fmt: skip


def _find_column(reached: ReachedInput) -> int | None:
    """Return the index of a number in its row where numbers are packed into rows."""
    shape = reached.scope.shape(ScopeTensor(reached.node.name, 0))
    if shape is None:
        return None
    if reached.node.op == "Pack":
        last = reached.node.attr["axis"].i in (-1, len(shape) - 1)
        return reached.input if last else None
    axis = reached.constant(len(reached.inputs) - 1)
    last = axis is not None and int(axis) in (-1, len(shape) - 1)
    alone = all(reached.size(k, -1) == 1 for k in range(len(reached.inputs) - 1))
    return reached.input if last and alone else None


def _transform_by_operand(reached: ReachedInput, carried: _ValueTransform) -> _ValueTransform | None:
    """Return the transform behind an arithmetic op with known operands; None for other ops and unknown operands."""
    op = reached.node.op
    first = reached.input == 0
    if op in ("Relu", "Relu6") or (op == "ClipByValue" and first):
        return replace(carried, floored=True, capped=carried.capped or op != "Relu")
    if op not in ("Add", "AddV2", "Sub", "Mul", "FloorDiv", "Maximum", "Minimum"):
        return None
    other = value_interval(reached.scope, reached.inputs[1 - reached.input])
    one_way = first or op not in ("Sub", "FloorDiv")
    if other is None or not one_way or (op in ("Mul", "FloorDiv") and not 0 < other[0] == other[1]):
        return None
    least, most = other
    if op in ("Maximum", "Minimum"):
        return replace(carried, floored=carried.floored or op == "Maximum", capped=carried.capped or op == "Minimum")
    if op in ("Mul", "FloorDiv"):
        by, rest = (least, 0.0) if op == "Mul" else (1 / least, 1 - 1 / least)  # rest: what a division leaves out
        return replace(carried, scale=carried.scale * by, least=carried.least * by, most=carried.most * by - rest)
    down, up = (-most, -least) if op == "Sub" else (least, most)
    return replace(carried, least=carried.least + down, most=carried.most + up)
