"""Intervals of the values that a step computes sizes from: lengths, counts, axes, indices.

An op type without a rule here has no interval: what it makes counts as unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.importer.intervals import UNKNOWN, Interval, at_corners, elements, exactly, interval, product, union
from pesto.tf.importer.strided_slices import slice_index
from pesto.tf.nodes.needed_nodes import StepNodes

Tensor = tuple[int, int]
_DEPTH = 100
"""Ops that are followed back from a value."""
_MOST = 64
"""Elements of a tensor each of which has an interval of its own."""
_NARROW = frozenset(t.as_datatype_enum for t in (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16))
"""Data types whose limits are worth planning for."""
_FLOATS = frozenset(t.as_datatype_enum for t in (tf.float16, tf.bfloat16, tf.float32, tf.float64))


@dataclass(frozen=True, slots=True)
class Operands:
    """An op whose output a rule bounds, with the intervals of its inputs."""

    ranges: "ValueRanges"
    i: int
    output: int
    depth: int

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

    def dtype_of(self, at: int) -> int:
        """The data type number of input `at`."""
        p, k = self._input(at)
        return self.ranges.nodes.dtypes[p][k] % 100

    def of(self, at: int) -> Interval:
        """The interval of input `at`, for each element or for all alike."""
        return self.ranges.at(self._input(at), self.depth - 1)

    def all_of(self, first: int = 0, last: int | None = None) -> list[Interval]:
        """The intervals of its inputs from `first` up to `last`."""
        return [self.of(at) for at in range(self.count)[first:last]]

    def each_of(self, at: int) -> Interval | None:
        """The intervals of the elements of input `at`, in its shape; None where that is unknown or too large."""
        shape = self._shape(self._input(at))
        values = self.of(at)
        if shape is None or (values.low.shape and values.low.shape != shape):
            return None
        return Interval(np.broadcast_to(values.low, shape), np.broadcast_to(values.high, shape))

    def constant(self, at: int) -> Any:
        """The value of input `at`, an array of whole numbers; None where it is not known."""
        values = self.each_of(at)
        if values is None or not (values.low == values.high).all():
            return None
        return values.low.astype(np.int64)

    def extents(self, at: int) -> Interval | None:
        """The extents of input `at`; None for an unknown rank."""
        return self.ranges.extents(self._input(at))

    def elements(self, at: int) -> Interval:
        """The number of elements of input `at`."""
        extents = self.extents(at)
        return interval(0, np.inf) if extents is None else elements(extents)

    def output_shape(self) -> tuple[int, ...] | None:
        """The shape of the output; None where it is unknown or large."""
        return self._shape((self.i, self.output))

    def _input(self, at: int) -> Tensor:
        return self.ranges.nodes.inputs[self.i][at]

    def _shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        extents = self.ranges.extents(tensor)
        if extents is None or not (extents.low == extents.high).all() or extents.low.prod() > _MOST:
            return None
        return tuple(int(n) for n in extents.low.tolist())


Rule = Callable[[Operands], Interval | None]


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
        """The interval of a tensor: of each element where these are few, else of all alike."""
        tensor = self._same.get(tensor, tensor)
        if tensor not in self._known:
            self._known[tensor] = UNKNOWN  # found again only on a way round a loop
            self._known[tensor] = self._derived(tensor, depth)
        return self._known[tensor]

    def unlimited_op(self, tensor: Tensor) -> int:
        """The op from which a value has no upper or lower bound: the first without a rule, or whose inputs are data."""
        seen: set[Tensor] = set()
        while tensor not in seen:
            seen.add(tensor)
            tensor = self._same.get(tensor, tensor)
            i, _ = tensor
            if self.nodes.defs[i].op not in RULES:
                break
            worse = [t for t in self.nodes.inputs[i] if not self.at(t).finite]
            if not worse:
                break
            tensor = worse[0]
        return tensor[0]

    def _derived(self, tensor: Tensor, depth: int) -> Interval:
        i, k = tensor
        constant = self._value(tensor)
        if constant is not None:
            value = np.asarray(constant)
            if value.dtype.kind not in "iubf" or np.isnan(value.astype(np.float64)).any():
                return UNKNOWN
            interval_ = exactly(value)
            return interval_ if value.size <= _MOST else interval_.over_all()
        rule = RULES.get(self.nodes.defs[i].op)
        derived = rule(Operands(self, i, k, depth)) if rule is not None and depth else None
        return _limit_to_dtype(UNKNOWN if derived is None else derived, self.nodes.dtypes[i][k] % 100)


def _limit_to_dtype(values: Interval, dtype: int) -> Interval:
    """An interval rounded as the data type rounds; what may overflow a whole number has the limits of its type."""
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
    known = values.finite
    if known and (values.low >= least).all() and (values.high <= most).all():
        return values
    if dtype in _NARROW:
        return interval(np.full(values.low.shape, least), np.full(values.low.shape, most))
    # Integer overflow wraps around in TensorFlow, so a range that may overflow is no range at all.
    wraps = (np.isfinite(values.low) & (values.low < least)) | (np.isfinite(values.high) & (values.high > most))
    return Interval(np.where(wraps, -np.inf, values.low), np.where(wraps, np.inf, values.high))


def _rising(function: Callable[..., Any]) -> Rule:
    """Make the rule of a function that falls in none of its arguments."""

    def rule(op: Operands) -> Interval:
        inputs = op.all_of()
        with np.errstate(all="ignore"):
            return interval(function(*(x.low for x in inputs)), function(*(x.high for x in inputs)))

    return rule


def _at_corners(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(op: Operands) -> Interval:
        a, b = op.of(0), op.of(1)
        return at_corners(function, (a.low, a.high), (b.low, b.high))

    return rule


def _difference(op: Operands) -> Interval:
    a, b = op.of(0), op.of(1)
    return interval(a.low - b.high, a.high - b.low)


def _total_of_inputs(op: Operands) -> Interval:
    inputs = op.all_of()
    low, high = inputs[0].low, inputs[0].high
    for other in inputs[1:]:
        low, high = low + other.low, high + other.high
    return interval(low, high)


def _quotient(rounded: Callable[[Any], Any]) -> Rule:
    """Make the rule of a division; whole numbers are not divided by 0."""

    def rule(op: Operands) -> Interval | None:
        a, b = op.of(0), op.of(1)
        spans = (b.low <= 0) & (b.high >= 0)
        whole = op.dtype not in _FLOATS
        if spans.any() and not whole:
            return None
        # Between two divisors of one sign a quotient rises or falls; those next to 0 are the ends of both signs.
        ends = [np.where(b.low == 0, 1, b.low), np.where(b.high == 0, -1, b.high)]
        if spans.any():
            ends += [np.where(spans & (b.high > 0), 1, ends[0]), np.where(spans & (b.low < 0), -1, ends[1])]
            ends[0] = np.where((b.low == 0) & (b.high == 0), 1, ends[0])
        round_ = np.trunc if whole and op.node.op == "Div" else rounded
        return at_corners(lambda x, y: round_(x / y), (a.low, a.high), ends)

    return rule


def _floor_mod(op: Operands) -> Interval:
    """Between 0 and the divisor; of what is less than the divisor already, itself."""
    a, b = op.of(0), op.of(1)
    step = 0 if op.dtype in _FLOATS else 1
    low, high = np.where(b.low < 0, b.low + step, 0), np.where(b.high > 0, b.high - step, 0)
    plain = (a.low >= 0) & (b.low > 0)
    high = np.where(plain, np.minimum(high, a.high), high)
    low = np.where(plain & (a.high < b.low), a.low, low)
    return interval(low, high)


def _truncated_mod(op: Operands) -> Interval:
    """Bound a remainder with the sign of the dividend: nearer to 0 than dividend and divisor."""
    a, b = op.of(0), op.of(1)
    most = np.maximum(np.abs(b.low), np.abs(b.high)) - (0 if op.dtype in _FLOATS else 1)
    low = np.where(a.low < 0, np.maximum(a.low, -most), 0)
    return interval(low, np.where(a.high > 0, np.minimum(a.high, most), 0))


def _absolute(op: Operands) -> Interval:
    x = op.of(0)
    spans = (x.low < 0) & (x.high > 0)
    ends = np.abs(x.low), np.abs(x.high)
    return interval(np.where(spans, 0, np.minimum(*ends)), np.maximum(*ends))


def _square(op: Operands) -> Interval:
    return _absolute(op).each(np.square)


def _power(op: Operands) -> Interval | None:
    """Bound powers of whole numbers >= 1 with exponents >= 0."""
    a, b = op.of(0), op.of(1)
    if op.dtype in _FLOATS or not ((a.low >= 1).all() and (b.low >= 0).all()):
        return None
    with np.errstate(over="ignore"):
        return interval(np.power(a.low, b.low), np.power(a.high, b.high))


def _shifted(op: Operands) -> Interval | None:
    a, b = op.of(0), op.of(1)
    if not (b.low >= 0).all():
        return None
    by = (lambda x, y: np.floor(x / 2.0**y)) if op.node.op == "RightShift" else (lambda x, y: x * 2.0**y)
    with np.errstate(over="ignore"):
        return at_corners(by, (a.low, a.high), (b.low, b.high))


def _both_bits(op: Operands) -> Interval | None:
    """At most each operand that is not negative."""
    limits = [np.where(x.low >= 0, x.high, np.inf) for x in op.all_of()]
    high = np.minimum(*limits)
    return interval(np.where(np.isfinite(high), 0, -np.inf), high)


def _cast(op: Operands) -> Interval:
    x = op.of(0)
    if op.dtype == tf.bool.as_datatype_enum:
        return interval(0, 1)
    return x.each(np.trunc) if op.dtype not in _FLOATS and op.dtype_of(0) in _FLOATS else x


def _selected(op: Operands) -> Interval:
    a, b = op.of(1), op.of(2)
    if op.output_shape() is None or op.each_of(1) is None or op.each_of(2) is None:
        return union((a, b))
    return interval(np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def _over_all(at: int) -> Rule:
    """Make the rule of ops each element of whose output is one of input `at`."""
    return lambda op: op.of(at).over_all()


def _among(first: int, last: int | None = None) -> Rule:
    """Make the rule of ops each element of whose output is one of several inputs."""
    return lambda op: union(op.all_of(first, last))


def _passed(op: Operands) -> Interval:
    return op.of(op.output if op.node.op == "IdentityN" else 0)


def _below_extent(at: int, *, reach: int = 0) -> Rule:
    """Make the rule of ops that give places along a dimension, or among all elements, of input `at`."""

    def rule(op: Operands) -> Interval:
        extents = op.extents(at)
        sizes = [] if extents is None else np.ravel(extents.high).tolist()
        return interval(0, max([np.inf] if extents is None else [*sizes, 1.0]) - 1 + reach)

    return rule


def _below_count(at: int) -> Rule:
    """Make the rule of ops that number the elements of input `at`."""
    return lambda op: interval(0, np.maximum(op.elements(at).high - 1, 0))


def _moved(move: Callable[[Operands, list[Interval]], Callable[[Sequence[Any]], Any] | None], data: slice) -> Rule:
    """Make the rule of an op that moves elements: as NumPy does it for the bounds, or one interval for all alike."""

    def rule(op: Operands) -> Interval:
        places = list(range(op.count))[data]
        each = [op.each_of(at) for at in places]
        known = [x for x in each if x is not None]
        function = move(op, known) if len(known) == len(each) and op.output_shape() is not None else None
        if function is None:
            return union([op.of(at) for at in places])
        return interval(function([x.low for x in known]), function([x.high for x in known]))

    return rule


def _packed(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any]:
    return lambda parts: np.stack(parts, axis=op.node.attr["axis"].i)


def _concatenated(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any] | None:
    axis = op.constant(0 if op.node.op == "Concat" else op.count - 1)
    return None if axis is None else lambda parts: np.concatenate(parts, axis=int(axis))


def _reshaped(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any]:
    return lambda parts: np.reshape(parts[0], op.output_shape())


def _transposed(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any] | None:
    axes = op.constant(1)
    return None if axes is None else lambda parts: np.transpose(parts[0], axes)


def _gathered(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any] | None:
    at, axis = op.constant(1), op.constant(2) if op.node.op == "GatherV2" else 0
    if at is None or axis is None or ("batch_dims" in op.node.attr and op.node.attr["batch_dims"].i):
        return None
    return lambda parts: np.take(parts[0], at, axis=int(axis), mode="clip")


def _cut(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any] | None:
    begin, end = op.constant(1), op.constant(2)
    if begin is None or end is None:
        return None
    if op.node.op == "Slice":
        where = [slice(b, None if n < 0 else b + n) for b, n in zip(begin.tolist(), end.tolist(), strict=True)]
        return lambda parts: parts[0][tuple(where)]
    steps = op.constant(3)
    if steps is None:
        return None
    index = slice_index(op.node, begin, end, steps)
    return lambda parts: parts[0][index]


def _unpacked(op: Operands, _: list[Interval]) -> Callable[[Sequence[Any]], Any]:
    return lambda parts: np.take(parts[0], op.output, axis=op.node.attr["axis"].i)


def _of_shape(op: Operands) -> Interval | None:
    return op.extents(op.output)


def _of_size(op: Operands) -> Interval:
    return op.elements(0)


def _of_rank(op: Operands) -> Interval | None:
    extents = op.extents(0)
    return None if extents is None else exactly(len(extents.low))


def _axes_of(op: Operands) -> Any:
    """The axes that a reduction goes over; None where unknown."""
    axes = op.constant(1)
    return None if axes is None else tuple(np.ravel(axes).tolist())


def _sum(op: Operands) -> Interval | None:
    each, axes = op.each_of(0), _axes_of(op)
    if each is not None and axes is not None and op.output_shape() is not None:
        keep = op.node.attr["keep_dims"].b
        return _widen_for_rounding(op, each.each(lambda bound: bound.sum(axis=axes, keepdims=keep)))
    x, count = op.of(0).over_all(), op.elements(0)
    least = count.low if op.output_shape() == () else 0
    return _widen_for_rounding(op, at_corners(np.multiply, (x.low, x.high), (least, count.high)))


def _widen_for_rounding(op: Operands, values: Interval) -> Interval:
    """An interval of a sum, wider by what sums of floats are rounded by."""
    by = 1e-5 if op.dtype in _FLOATS else 0.0
    return interval(values.low - by * np.abs(values.low), values.high + by * np.abs(values.high))


def _prod(op: Operands) -> Interval | None:
    each, axes = op.each_of(0), _axes_of(op)
    if each is None or each.low.ndim != 1 or axes is None:
        return None
    if not axes:
        return each
    result = product(Interval(low, high) for low, high in zip(each.low, each.high, strict=True))
    return result.each(np.atleast_1d) if op.node.attr["keep_dims"].b else result


def _extreme(op: Operands) -> Interval:
    """Bound the largest or least element; of an empty tensor, that is the end of the data type's range."""
    each, axes, most = op.each_of(0), _axes_of(op), op.node.op == "Max"
    if each is not None and each.low.size and axes is not None and op.output_shape() is not None:
        keep = op.node.attr["keep_dims"].b
        return each.each(lambda bound: (np.max if most else np.min)(bound, axis=axes, keepdims=keep))
    x = op.of(0).over_all()
    empty = not bool((op.elements(0).low > 0).all())
    return Interval(np.where(empty & most, -np.inf, x.low), np.where(empty & (not most), np.inf, x.high))


def _cumulated(op: Operands) -> Interval:
    x, extents = op.of(0).over_all(), op.extents(0)
    longest = np.inf if extents is None else max([*extents.high.tolist(), 1.0])
    return _widen_for_rounding(op, at_corners(np.multiply, (x.low, x.high), (0.0, longest)))


def _range(op: Operands) -> Interval:
    start, limit, step = (x.over_all() for x in op.all_of())
    if step.low > 0:
        return interval(start.low, np.maximum(start.low, limit.high))
    if step.high < 0:
        return interval(np.minimum(limit.low, start.high), start.high)
    return UNKNOWN


def _unique(op: Operands) -> Interval:
    if op.output == 0:
        return op.of(0).over_all()
    return interval(0, np.maximum(op.elements(0).high - (op.output == 1), 0))


def _best(op: Operands) -> Interval:
    return op.of(0).over_all() if op.output == 0 else _below_extent(0)(op) or UNKNOWN


def _boxes(op: Operands) -> Interval | None:
    boxes, most = op.extents(0), op.of(2).over_all()
    last = {"NonMaxSuppressionV4": 1, "NonMaxSuppressionV5": 2}.get(op.node.op)
    if boxes is None or (op.output and op.output != last):
        return None
    count = float(boxes.high[0])
    return interval(0, max(min(count, float(most.high)), 0.0) if op.output else max(count - 1, 0.0))


def _drawn(first: int) -> Rule:
    return lambda op: interval(op.of(first).over_all().low, op.of(first + 1).over_all().high - 1)


def _counted(op: Operands) -> Interval | None:
    return interval(0, op.elements(0).high) if (op.elements(2).high == 0).all() else None


def _broadcast_extents(op: Operands) -> Interval | None:
    one, other = op.each_of(0), op.each_of(1)
    if one is None or other is None:
        return None
    rank = max(one.low.size, other.low.size)
    a, b = (
        Interval(*(np.concatenate([np.ones(rank - x.low.size), bound]) for bound in (x.low, x.high)))
        for x in (one, other)
    )
    ones = [(x.low == 1) & (x.high == 1) for x in (a, b)]
    low = np.where(ones[0], b.low, np.where(ones[1], a.low, np.minimum(a.low, b.low)))
    return interval(low, np.maximum(a.high, b.high))


def _sparse_shape(op: Operands) -> Interval | None:
    sizes, before = op.of(2), op.each_of(1)
    if op.output == 0 or before is None:
        return None
    rest = np.floor(before.high.prod() / np.maximum(sizes.low, 1).prod())
    return interval(np.maximum(sizes.low, 0), np.where(sizes.low < 0, np.maximum(sizes.high, rest), sizes.high))


def _padded(op: Operands) -> Interval:
    return union((op.of(0), op.of(2) if op.node.op == "PadV2" else exactly(0)))


_FIRST = slice(0, 1)
_SAME = (
    "Identity", "IdentityN", "StopGradient", "Snapshot", "PreventGradient", "EnsureShape", "CheckNumerics",
    "Switch", "RefSwitch", "RefIdentity", "Exit", "RefExit",
)  # fmt: skip
_FROM_FIRST = (
    "DynamicPartition", "GatherNd", "Tile", "BroadcastTo", "ReverseV2", "MirrorPad", "Roll", "SplitV",
    "RandomShuffle",
)  # fmt: skip
_BOX_OPS = ("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5")

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SAME, _passed),
    **dict.fromkeys(_FROM_FIRST, _over_all(0)),
    **dict.fromkeys(("Reshape", "Squeeze", "ExpandDims"), _moved(_reshaped, _FIRST)),
    "Pack": _moved(_packed, slice(None)),
    "ConcatV2": _moved(_concatenated, slice(None, -1)),
    "Concat": _moved(_concatenated, slice(1, None)),
    "Transpose": _moved(_transposed, _FIRST),
    **dict.fromkeys(("Gather", "GatherV2"), _moved(_gathered, _FIRST)),
    **dict.fromkeys(("Slice", "StridedSlice"), _moved(_cut, _FIRST)),
    "Unpack": _moved(_unpacked, _FIRST),
    **dict.fromkeys(("Add", "AddV2", "AddN"), _total_of_inputs),
    "Sub": _difference,
    "Mul": _at_corners(np.multiply),
    "Maximum": _rising(np.maximum),
    "Minimum": _rising(np.minimum),
    "ClipByValue": _rising(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "Neg": lambda op: interval(-op.of(0).high, -op.of(0).low),
    "Abs": _absolute,
    "Square": _square,
    "Sign": _rising(np.sign),
    "Relu": _rising(lambda x: np.maximum(x, 0)),
    "Sqrt": lambda op: _rising(np.sqrt)(op) if (op.of(0).low >= 0).all() else None,
    "Floor": _rising(np.floor),
    "Ceil": _rising(np.ceil),
    **dict.fromkeys(("Round", "Rint"), _rising(np.rint)),
    "Pow": _power,
    **dict.fromkeys(("LeftShift", "RightShift"), _shifted),
    "BitwiseAnd": _both_bits,
    "FloorDiv": _quotient(np.floor),
    "TruncateDiv": _quotient(np.trunc),
    **dict.fromkeys(("Div", "RealDiv"), _quotient(np.asarray)),
    "FloorMod": _floor_mod,
    **dict.fromkeys(("Mod", "TruncateMod"), _truncated_mod),
    "Cast": _cast,
    **dict.fromkeys(("Select", "SelectV2"), _selected),
    **dict.fromkeys(("Shape", "ShapeN"), _of_shape),
    "Size": _of_size,
    "Rank": _of_rank,
    "Sum": _sum,
    "Prod": _prod,
    **dict.fromkeys(("Max", "Min"), _extreme),
    "Mean": lambda op: _widen_for_rounding(op, union((op.of(0), exactly(0)))),
    "Cumsum": _cumulated,
    "Range": _range,
    **dict.fromkeys(("ArgMax", "ArgMin", "Where", "InvertPermutation", "Multinomial"), _below_extent(0)),
    "ListDiff": lambda op: op.of(0).over_all() if op.output == 0 else _below_count(0)(op),
    **dict.fromkeys(("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"), _unique),
    "TopKV2": _best,
    **dict.fromkeys(("LowerBound", "UpperBound"), _below_extent(0, reach=1)),
    "Bucketize": lambda op: interval(0, len(op.node.attr["boundaries"].list.f)),
    **dict.fromkeys(_BOX_OPS, _boxes),
    "RandomUniformInt": _drawn(1),
    "StatelessRandomUniformInt": _drawn(2),
    "StatelessRandomUniformIntV2": _drawn(4),
    "DenseBincount": _counted,
    "OneHot": _among(2, 4),
    **dict.fromkeys(("Fill", "Split"), _over_all(1)),
    "ZerosLike": lambda _: exactly(0),
    "OnesLike": lambda _: exactly(1),
    "BroadcastArgs": _broadcast_extents,
    **dict.fromkeys(("Pad", "PadV2"), _padded),
    "Merge": lambda op: interval(0, op.count - 1) if op.output else union(op.all_of()),
    "SparseReshape": _sparse_shape,
    "DynamicStitch": lambda op: union(op.all_of(op.count // 2)),
    "TensorScatterUpdate": lambda op: union((op.of(0), op.of(2))),
    "StringLength": lambda _: interval(0, np.inf),
    **dict.fromkeys(
        ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "LogicalNot"),
        lambda _: interval(0, 1),
    ),
    **dict.fromkeys(("Any", "All"), lambda _: interval(0, 1)),
}
"""Op type -> rule from the intervals of the inputs to that of an output; None where there is none."""
