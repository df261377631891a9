"""Intervals of the values that a step computes sizes from: lengths, counts, axes, indices.

An op type without a rule here has no interval: its output counts as unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.importer.intervals import (
    UNKNOWN,
    Interval,
    UnboundedError,
    at_corners,
    elements,
    exactly,
    interval,
    product,
    slice_index,
    union,
)  # fmt: skip
from pesto.tf.nodes.needed_nodes import StepNodes

Tensor = tuple[int, int]
"""A node and the number of its output."""
_DEPTH = 100
"""Ops that are followed back from a value."""
_MOST = 64
"""Elements of a tensor each of which has an interval of its own."""
_NARROW = frozenset(t.as_datatype_enum for t in (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16))
"""Data types whose limits are worth planning for."""
_FLOATS = frozenset(t.as_datatype_enum for t in (tf.float16, tf.bfloat16, tf.float32, tf.float64))
_FIRST = slice(0, 1)
_SAME = (
    "Identity", "StopGradient", "Snapshot", "PreventGradient", "EnsureShape", "CheckNumerics", "Switch", "RefSwitch",
    "RefIdentity", "Exit", "RefExit",
)  # fmt: skip
_FROM_FIRST = (
    "DynamicPartition", "GatherNd", "Tile", "BroadcastTo", "ReverseV2", "MirrorPad", "Roll", "SplitV",
    "RandomShuffle",
)  # fmt: skip
_BOX_OPS = ("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5")


@dataclass(frozen=True, slots=True)
class Operands:
    """An op whose output a rule bounds, with the intervals of its inputs."""

    ranges: "ValueRanges"
    i: int
    """The node."""
    output: int
    """Number of the output."""
    depth: int
    """Ops that are still followed back."""

    @property
    def node(self) -> Any:
        """NodeDef of the op."""
        return self.ranges.nodes.defs[self.i]

    @property
    def count(self) -> int:
        """The number of its inputs."""
        return len(self.ranges.nodes.inputs[self.i])

    @property
    def dtype(self) -> int:
        """The data type number of the output."""
        return self.ranges.nodes.dtypes[self.i][self.output] % 100

    def dtype_of(self, slot: int) -> int:
        """Return the data type number of input `slot`."""
        p, k = self._get_input(slot)
        return self.ranges.nodes.dtypes[p][k] % 100

    def of(self, slot: int) -> Interval:
        """Return the interval of input `slot`, for each element or for all alike."""
        return self.ranges.at(self._get_input(slot), self.depth - 1)

    def all_of(self, first: int = 0, last: int | None = None) -> list[Interval]:
        """Return the intervals of its inputs from `first` up to `last`."""
        return [self.of(slot) for slot in range(self.count)[first:last]]

    def each_of(self, slot: int) -> Interval:
        """Return the interval of each element of input `slot`, in its shape. Raise UnboundedError for many elements."""
        shape, values = self._shape(self._get_input(slot)), self.of(slot)
        if values.low.shape and values.low.shape != shape:
            raise UnboundedError
        return Interval(np.broadcast_to(values.low, shape), np.broadcast_to(values.high, shape))

    def constant(self, slot: int) -> Any:
        """Return the value of input `slot`, an array of whole numbers. Raise UnboundedError where it is not known."""
        values = self.each_of(slot)
        if not (values.low == values.high).all():
            raise UnboundedError
        return values.low.astype(np.int64)

    def extents(self, slot: int) -> Interval | None:
        """Return the extents of input `slot`; None for an unknown rank."""
        return self.ranges.extents(self._get_input(slot))

    def elements(self, slot: int) -> Interval:
        """Return the number of elements of input `slot`."""
        extents = self.extents(slot)
        return interval(0, np.inf) if extents is None else elements(extents)

    def output_shape(self) -> tuple[int, ...]:
        """Return the shape of the output. Raise UnboundedError where it is unknown or large."""
        return self._shape((self.i, self.output))

    def _get_input(self, slot: int) -> Tensor:
        return self.ranges.nodes.inputs[self.i][slot]

    def _shape(self, tensor: Tensor) -> tuple[int, ...]:
        extents = self.ranges.extents(tensor)
        if extents is None or not (extents.low == extents.high).all() or extents.low.prod() > _MOST:
            raise UnboundedError
        return tuple(int(n) for n in extents.low.tolist())


Rule = Callable[[Operands], Interval]
"""Function from an op to the interval of its output. May raise UnboundedError where it knows none."""


class ValueRanges:
    """Intervals of the tensors of one step, each derived once."""

    def __init__(
        self,
        nodes: StepNodes,
        extents: Callable[[Tensor], Interval | None],
        value: Callable[[Tensor], Any],
        same: Mapping[Tensor, Tensor],
    ) -> None:
        """Derive intervals from extents of tensors and from known values; `same`: tensors that are others."""
        self.nodes, self.extents = nodes, extents
        self._value, self._same = value, same
        self._known: dict[Tensor, Interval] = {}

    def at(self, tensor: Tensor, depth: int = _DEPTH) -> Interval:
        """Return the interval of a tensor: of each element where these are few, else of all alike."""
        tensor = self._same.get(tensor, tensor)
        if tensor not in self._known:
            self._known[tensor] = UNKNOWN  # found again only on a way round a loop
            self._known[tensor] = self._derive(tensor, depth)
        return self._known[tensor]

    def unlimited_op(self, tensor: Tensor) -> int:
        """Return the op that leaves a value without a bound: the first without a rule, or whose inputs are data."""
        visited: set[Tensor] = set()
        while tensor not in visited:
            visited.add(tensor)
            tensor = self._same.get(tensor, tensor)
            i, _ = tensor
            if self.nodes.defs[i].op not in RULES:
                break
            worse = [t for t in self.nodes.inputs[i] if not self.at(t).finite]
            if not worse:
                break
            tensor = worse[0]
        return tensor[0]

    def _derive(self, tensor: Tensor, depth: int) -> Interval:
        i, k = tensor
        constant = self._value(tensor)
        if constant is not None:
            value = np.asarray(constant)
            if value.dtype.kind not in "iubf" or np.isnan(value.astype(np.float64)).any():
                return UNKNOWN
            interval_ = exactly(value)
            return interval_ if value.size <= _MOST else interval_.over_all()
        rule, derived = RULES.get(self.nodes.defs[i].op), UNKNOWN
        if rule is not None and depth:
            with suppress(UnboundedError):
                derived = rule(Operands(self, i, k, depth))
        return _limit_to_dtype(derived, self.nodes.dtypes[i][k] % 100)


def _limit_to_dtype(values: Interval, dtype: int) -> Interval:
    """Round an interval as the data type rounds; a whole number that may overflow has the limits of its type."""
    # Bounds are computed in float64; sizes in the step are computed in its own type, whose rounding may cross an
    # integer.
    if dtype in _FLOATS:
        kind = tf.as_dtype(dtype).as_numpy_dtype
        with np.errstate(over="ignore"):
            return values.each(lambda bound: bound.astype(kind).astype(np.float64))
    if dtype == tf.bool.as_datatype_enum:
        return interval(np.clip(values.low, 0, 1), np.clip(values.high, 0, 1))
    if not tf.as_dtype(dtype).is_integer:
        return UNKNOWN
    least, most = float(tf.as_dtype(dtype).min), float(tf.as_dtype(dtype).max)
    is_finite = values.finite
    if is_finite and (values.low >= least).all() and (values.high <= most).all():
        return values
    if dtype in _NARROW:
        return interval(np.full(values.low.shape, least), np.full(values.low.shape, most))
    # Integer overflow wraps around in TensorFlow, so a range that may overflow is no range at all.
    wraps = (np.isfinite(values.low) & (values.low < least)) | (np.isfinite(values.high) & (values.high > most))
    return Interval(np.where(wraps, -np.inf, values.low), np.where(wraps, np.inf, values.high))


def _apply_to_bounds(function: Callable[..., Any]) -> Rule:
    """Make the rule of a function that falls in none of its arguments."""

    def rule(op: Operands) -> Interval:
        inputs = op.all_of()
        with np.errstate(all="ignore"):
            return interval(function(*(x.low for x in inputs)), function(*(x.high for x in inputs)))

    return rule


def _apply_to_corners(function: Callable[[Any, Any], Any], a: Interval, b: Interval) -> Interval:
    return at_corners(function, (a.low, a.high), (b.low, b.high))


def _bound_quotient(rounded: Callable[[Any], Any]) -> Rule:
    """Make the rule of a division; whole numbers are not divided by 0."""

    def rule(op: Operands) -> Interval:
        a, b = op.of(0), op.of(1)
        spans = (b.low <= 0) & (b.high >= 0)
        is_integer = op.dtype not in _FLOATS
        if spans.any() and not is_integer:
            return UNKNOWN
        # Between two divisors of one sign a quotient rises or falls; those next to 0 are the ends of both signs.
        ends = [np.where(b.low == 0, 1, b.low), np.where(b.high == 0, -1, b.high)]
        if spans.any():
            ends += [np.where(spans & (b.high > 0), 1, ends[0]), np.where(spans & (b.low < 0), -1, ends[1])]
            ends[0] = np.where((b.low == 0) & (b.high == 0), 1, ends[0])
        round_ = np.trunc if is_integer and op.node.op == "Div" else rounded
        return at_corners(lambda x, y: round_(x / y), (a.low, a.high), ends)

    return rule


def _bound_by_input(slot: int) -> Rule:
    """Make the rule of ops each element of whose output is one of input `slot`."""
    return lambda op: op.of(slot).over_all()


def _bound_by_extent(slot: int, *, reach: int = 0) -> Rule:
    """Make the rule of ops that give places along a dimension, or among all elements, of input `slot`."""

    def rule(op: Operands) -> Interval:
        extents = op.extents(slot)
        longest = np.inf if extents is None else max([*np.ravel(extents.high).tolist(), 1.0])
        return interval(0, longest - 1 + reach)

    return rule


def _bound_by_count(op: Operands, less: int = 1) -> Interval:
    """Bound numbers of the elements of input 0, from 0."""
    return interval(0, np.maximum(op.elements(0).high - less, 0))


def _move_elements(data: slice, move: Callable[[Operands, Sequence[Any]], Any]) -> Rule:
    """Make the rule of an op that moves elements: as NumPy does it for the bounds, or one interval for all alike.

    data: the inputs whose elements move. move: function of the op and of one bound of each of these inputs.
    """

    def rule(op: Operands) -> Interval:
        places = range(op.count)[data]
        try:
            bounds = [op.each_of(slot) for slot in places]
            op.output_shape()
            return interval(move(op, [x.low for x in bounds]), move(op, [x.high for x in bounds]))
        except UnboundedError:
            return union([op.of(slot) for slot in places])

    return rule


def _bound_gather(op: Operands, parts: Sequence[Any]) -> Any:
    indices, axis = op.constant(1), int(op.constant(2)) if op.node.op == "GatherV2" else 0
    if "batch_dims" in op.node.attr and op.node.attr["batch_dims"].i:
        raise UnboundedError
    return np.take(parts[0], indices, axis=axis, mode="clip")


def _bound_slice(op: Operands, parts: Sequence[Any]) -> Any:
    begin, end = op.constant(1), op.constant(2)
    if op.node.op == "StridedSlice":
        return parts[0][slice_index(op.node, begin, end, op.constant(3))]
    bounds = zip(begin.tolist(), end.tolist(), strict=True)
    return parts[0][tuple(slice(b, None if n < 0 else b + n) for b, n in bounds)]


def _bound_by_inputs(first: int) -> Rule:
    """Make the rule of ops that draw from input `first` up to the next."""
    return lambda op: interval(op.of(first).over_all().low, op.of(first + 1).over_all().high - 1)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME, lambda op: op.of(0)),
    "IdentityN": lambda op: op.of(op.output),
    **dict.fromkeys(_FROM_FIRST, _bound_by_input(0)),
    **dict.fromkeys(
        ("Reshape", "Squeeze", "ExpandDims"),
        _move_elements(_FIRST, lambda op, parts: np.reshape(parts[0], op.output_shape()))
    ),
    "Pack": _move_elements(slice(None), lambda op, parts: np.stack(parts, axis=op.node.attr["axis"].i)),
    "ConcatV2": _move_elements(
        slice(None, -1), lambda op, parts: np.concatenate(parts, axis=int(op.constant(op.count - 1)))
    ),
    "Concat": _move_elements(slice(1, None), lambda op, parts: np.concatenate(parts, axis=int(op.constant(0)))),
    "Transpose": _move_elements(_FIRST, lambda op, parts: np.transpose(parts[0], op.constant(1))),
    **dict.fromkeys(("Gather", "GatherV2"), _move_elements(_FIRST, _bound_gather)),
    **dict.fromkeys(("Slice", "StridedSlice"), _move_elements(_FIRST, _bound_slice)),
    "Unpack": _move_elements(_FIRST, lambda op, parts: np.take(parts[0], op.output, axis=op.node.attr["axis"].i)),
    **dict.fromkeys(("Add", "AddV2", "AddN"), _apply_to_bounds(lambda *terms: sum(terms))),
    "Sub": lambda op: interval(op.of(0).low - op.of(1).high, op.of(0).high - op.of(1).low),
    "Mul": lambda op: _apply_to_corners(np.multiply, op.of(0), op.of(1)),
    "Maximum": _apply_to_bounds(np.maximum),
    "Minimum": _apply_to_bounds(np.minimum),
    "ClipByValue": _apply_to_bounds(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "Neg": lambda op: interval(-op.of(0).high, -op.of(0).low),
    "Square": lambda op: _bound_abs(op).each(np.square),
    "Sign": _apply_to_bounds(np.sign),
    "Relu": _apply_to_bounds(lambda x: np.maximum(x, 0)),
    "Sqrt": lambda op: _apply_to_bounds(np.sqrt)(op) if (op.of(0).low >= 0).all() else UNKNOWN,
    "Floor": _apply_to_bounds(np.floor),
    "Ceil": _apply_to_bounds(np.ceil),
    **dict.fromkeys(("Round", "Rint"), _apply_to_bounds(np.rint)),
    "FloorDiv": _bound_quotient(np.floor),
    "TruncateDiv": _bound_quotient(np.trunc),
    **dict.fromkeys(("Div", "RealDiv"), _bound_quotient(np.asarray)),
    **dict.fromkeys(("Shape", "ShapeN"), lambda op: op.extents(op.output) or UNKNOWN),
    "Size": lambda op: op.elements(0),
    "Mean": lambda op: _widen_for_rounding(op, union((op.of(0), exactly(0)))),
    **dict.fromkeys(("ArgMax", "ArgMin", "Where", "InvertPermutation", "Multinomial"), _bound_by_extent(0)),
    "ListDiff": lambda op: op.of(0).over_all() if op.output == 0 else _bound_by_count(op),
    **dict.fromkeys(
        ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"),
        lambda op: op.of(0).over_all() if op.output == 0 else _bound_by_count(op, int(op.output == 1))
    ),
    "TopKV2": lambda op: op.of(0).over_all() if op.output == 0 else _bound_by_extent(0)(op),
    **dict.fromkeys(("LowerBound", "UpperBound"), _bound_by_extent(0, reach=1)),
    "Bucketize": lambda op: interval(0, len(op.node.attr["boundaries"].list.f)),
    "RandomUniformInt": _bound_by_inputs(1),
    "StatelessRandomUniformInt": _bound_by_inputs(2),
    "StatelessRandomUniformIntV2": _bound_by_inputs(4),
    "DenseBincount": lambda op: interval(0, op.elements(0).high) if (op.elements(2).high == 0).all() else UNKNOWN,
    "OneHot": lambda op: union(op.all_of(2, 4)),
    **dict.fromkeys(("Fill", "Split"), _bound_by_input(1)),
    "ZerosLike": lambda _: exactly(0),
    "OnesLike": lambda _: exactly(1),
    "Pad": lambda op: union((op.of(0), exactly(0))),
    "PadV2": lambda op: union((op.of(0), op.of(2))),
    "Merge": lambda op: interval(0, op.count - 1) if op.output else union(op.all_of()),
    "DynamicStitch": lambda op: union(op.all_of(op.count // 2)),
    "TensorScatterUpdate": lambda op: union((op.of(0), op.of(2))),
    "StringLength": lambda _: interval(0, np.inf),
    **dict.fromkeys(
        (
            "Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr",
            "LogicalNot", "Any", "All",
        ),
        lambda _: interval(0, 1),
    ),
}  # fmt: skip
"""Op type -> rule from the intervals of the inputs to that of an output."""


def _rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Add the rule below to `RULES` under its op types; rules of one expression stand in the table itself."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(op_types, rule))
        return rule

    return register


@_rule("FloorMod")
def _bound_floor_mod(op: Operands) -> Interval:
    """Between 0 and the divisor; of what is less than the divisor already, itself."""
    a, b = op.of(0), op.of(1)
    step = 0 if op.dtype in _FLOATS else 1
    low, high = np.where(b.low < 0, b.low + step, 0), np.where(b.high > 0, b.high - step, 0)
    plain = (a.low >= 0) & (b.low > 0)
    high = np.where(plain, np.minimum(high, a.high), high)
    low = np.where(plain & (a.high < b.low), a.low, low)
    return interval(low, high)


@_rule("Mod", "TruncateMod")
def _bound_truncated_mod(op: Operands) -> Interval:
    """Bound a remainder with the sign of the dividend: nearer to 0 than dividend and divisor."""
    a, b = op.of(0), op.of(1)
    most = np.maximum(np.abs(b.low), np.abs(b.high)) - (0 if op.dtype in _FLOATS else 1)
    low = np.where(a.low < 0, np.maximum(a.low, -most), 0)
    return interval(low, np.where(a.high > 0, np.minimum(a.high, most), 0))


@_rule("Abs")
def _bound_abs(op: Operands) -> Interval:
    x = op.of(0)
    spans = (x.low < 0) & (x.high > 0)
    ends = np.abs(x.low), np.abs(x.high)
    return interval(np.where(spans, 0, np.minimum(*ends)), np.maximum(*ends))


@_rule("Pow")
def _bound_power(op: Operands) -> Interval:
    """Bound powers of whole numbers >= 1 with exponents >= 0."""
    a, b = op.of(0), op.of(1)
    if op.dtype in _FLOATS or not ((a.low >= 1).all() and (b.low >= 0).all()):
        return UNKNOWN
    with np.errstate(over="ignore"):
        return interval(np.power(a.low, b.low), np.power(a.high, b.high))


@_rule("LeftShift", "RightShift")
def _bound_shift(op: Operands) -> Interval:
    a, b = op.of(0), op.of(1)
    if not (b.low >= 0).all():
        return UNKNOWN
    return _apply_to_corners(
        (lambda x, y: np.floor(x / 2.0**y)) if op.node.op == "RightShift" else (lambda x, y: x * 2.0**y), a, b
    )


@_rule("BitwiseAnd")
def _bound_bitwise_and(op: Operands) -> Interval:
    """At most each operand that is not negative."""
    high = np.minimum(*(np.where(x.low >= 0, x.high, np.inf) for x in op.all_of()))
    return interval(np.where(np.isfinite(high), 0, -np.inf), high)


@_rule("Cast")
def _bound_cast(op: Operands) -> Interval:
    x = op.of(0)
    if op.dtype == tf.bool.as_datatype_enum:
        return interval(0, 1)
    return x.each(np.trunc) if op.dtype not in _FLOATS and op.dtype_of(0) in _FLOATS else x


@_rule("Select", "SelectV2")
def _bound_select(op: Operands) -> Interval:
    a, b = op.of(1), op.of(2)
    with suppress(UnboundedError):
        for slot in (1, 2):
            op.each_of(slot)  # raises where not both are known element by element
        op.output_shape()
        return interval(np.minimum(a.low, b.low), np.maximum(a.high, b.high))
    return union((a, b))


@_rule("Rank")
def _bound_rank(op: Operands) -> Interval:
    extents = op.extents(0)
    return UNKNOWN if extents is None else exactly(len(extents.low))


def _bound_reduction(op: Operands, function: Callable[..., Any]) -> Interval:
    """Reduce the bounds of the elements. Raise UnboundedError where these, the axes or the output are not known."""
    each, axes = op.each_of(0), tuple(np.ravel(op.constant(1)).tolist())
    op.output_shape()
    return each.each(lambda bound: function(bound, axis=axes, keepdims=op.node.attr["keep_dims"].b))


@_rule("Sum")
def _bound_sum(op: Operands) -> Interval:
    with suppress(UnboundedError):
        return _widen_for_rounding(op, _bound_reduction(op, np.sum))
    x, count = op.of(0).over_all(), op.elements(0)
    least = np.zeros(())
    with suppress(UnboundedError):
        least = count.low if op.output_shape() == () else least
    return _widen_for_rounding(op, at_corners(np.multiply, (x.low, x.high), (least, count.high)))


def _widen_for_rounding(op: Operands, values: Interval) -> Interval:
    """Widen the interval of a sum by what sums of floats are rounded by."""
    by = 1e-5 if op.dtype in _FLOATS else 0.0
    return interval(values.low - by * np.abs(values.low), values.high + by * np.abs(values.high))


@_rule("Prod")
def _bound_prod(op: Operands) -> Interval:
    each, axes = op.each_of(0), op.constant(1)
    if each.low.ndim != 1 or not axes.size:
        return UNKNOWN if each.low.ndim != 1 else each
    result = product(Interval(low, high) for low, high in zip(each.low, each.high, strict=True))
    return result.each(np.atleast_1d) if op.node.attr["keep_dims"].b else result


@_rule("Max", "Min")
def _bound_extreme(op: Operands) -> Interval:
    """Bound the largest or least element; of an empty tensor, that is the end of the data type's range."""
    most = op.node.op == "Max"
    with suppress(UnboundedError):
        if op.each_of(0).low.size:
            return _bound_reduction(op, np.max if most else np.min)
    x = op.of(0).over_all()
    empty = not bool((op.elements(0).low > 0).all())
    return Interval(np.where(empty & most, -np.inf, x.low), np.where(empty & (not most), np.inf, x.high))


@_rule("Cumsum")
def _bound_cumulated(op: Operands) -> Interval:
    x, extents = op.of(0).over_all(), op.extents(0)
    longest = np.inf if extents is None else max([*extents.high.tolist(), 1.0])
    return _widen_for_rounding(op, at_corners(np.multiply, (x.low, x.high), (0.0, longest)))


@_rule("Range")
def _bound_range(op: Operands) -> Interval:
    start, limit, step = (x.over_all() for x in op.all_of())
    if step.low > 0:
        return interval(start.low, np.maximum(start.low, limit.high))
    if step.high < 0:
        return interval(np.minimum(limit.low, start.high), start.high)
    return UNKNOWN


@_rule(*_BOX_OPS)
def _bound_boxes(op: Operands) -> Interval:
    boxes, most = op.extents(0), op.of(2).over_all()
    last = {"NonMaxSuppressionV4": 1, "NonMaxSuppressionV5": 2}.get(op.node.op)
    if boxes is None or (op.output and op.output != last):
        return UNKNOWN
    count = float(boxes.high[0])
    return interval(0, max(min(count, float(most.high)), 0.0) if op.output else max(count - 1, 0.0))


@_rule("BroadcastArgs")
def _bound_broadcast_extents(op: Operands) -> Interval:
    one, other = op.each_of(0), op.each_of(1)
    rank = max(one.low.size, other.low.size)
    a, b = (
        Interval(*(np.concatenate([np.ones(rank - x.low.size), bound]) for bound in (x.low, x.high)))
        for x in (one, other)
    )
    ones = [(x.low == 1) & (x.high == 1) for x in (a, b)]
    low = np.where(ones[0], b.low, np.where(ones[1], a.low, np.minimum(a.low, b.low)))
    return interval(low, np.maximum(a.high, b.high))


@_rule("SparseReshape")
def _bound_sparse_shape(op: Operands) -> Interval:
    sizes, before = op.of(2), op.each_of(1)
    if op.output == 0:
        return UNKNOWN
    rest = np.floor(before.high.prod() / np.maximum(sizes.low, 1).prod())
    return interval(np.maximum(sizes.low, 0), np.where(sizes.low < 0, np.maximum(sizes.high, rest), sizes.high))
