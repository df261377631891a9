"""Sizes that TensorFlow leaves open for inputs of known sizes: exact ones, and upper bounds, by op type.

Upper bounds are for bytes and times alone. They never become part of a graph that runs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from pesto.tf.importer.intervals import (
    UNKNOWN,
    Interval,
    UnboundedError,
    at_corners,
    at_most,
    elements,
    exactly,
    interval,
    strided_slice,
)  # fmt: skip
from pesto.tf.nodes.needed_nodes import Shape

Rule = Callable[["OpSizes"], Interval]
"""Function from an op to the extents of one of its outputs. Raises UnboundedError where it knows none."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSizes:
    """Sizes of one op, for a rule about the extents of one of its outputs; what is asked for raises UnboundedError."""

    node: Any
    """NodeDef of the op."""
    output: int
    """Number of the output."""
    inferred: Shape
    """The shape of the output as far as TensorFlow infers it."""
    arguments: int
    """The number of its data inputs."""
    input_extents: Callable[[int], Interval | None]
    """The extents of an input; None for an unknown rank. Those that depend on the data lie between two bounds."""
    values: Callable[[int], Interval]
    """The values of an input's elements: of each, or of all alike."""
    factor: Callable[[int, int], Interval | None]
    """The values of the other factor where an input is computed as a product with another input; else None."""

    def attribute(self, name: str) -> int:
        """Return a whole number among its attributes; 0 where it has none of that name."""
        return int(self.node.attr[name].i) if name in self.node.attr else 0

    def extents(self, slot: int) -> Interval:
        """Return the extents of input `slot`."""
        return _require(self.input_extents(slot))

    def largest(self, slot: int) -> tuple[int, ...]:
        """Return the largest shape of input `slot`."""
        return _require(self.extents(slot).sizes() if slot < self.arguments else None)

    def elements(self, slot: int) -> int:
        """Return the largest number of elements of input `slot`."""
        return math.prod(self.largest(slot))

    def value(self, slot: int) -> Any:
        """Return the value of input `slot`, an array of whole numbers."""
        values = self.values(slot)
        return _require(values.low.astype(np.int64) if values.low.size and (values.low == values.high).all() else None)

    def vector(self, slot: int) -> Interval:
        """Return the values of each element of a vector."""
        values = self.values(slot)
        if values.low.ndim:
            return values
        extents = self.extents(slot)
        if len(extents.low) > 1 or not (extents.low == extents.high).all():
            raise UnboundedError
        size = int(extents.low.prod())
        return Interval(np.full(size, values.low), np.full(size, values.high))

    def most(self, slot: int) -> int:
        """Return the largest element that input `slot` can have."""
        values = self.values(slot)
        return _require(int(values.high.max()) if values.limited else None)


def _require(value: _T | None) -> _T:
    if value is None:
        raise UnboundedError
    return value


def _get_or_none(get: Callable[[int], _T], slot: int) -> _T | None:
    try:
        return get(slot)
    except UnboundedError:
        return None


def apply_rule(rules: Mapping[str, Rule], op: OpSizes) -> Interval | None:
    """Return the extents of an output by the rule for its op type, where TensorFlow infers none; None without any."""
    try:
        extents = _require(rules.get(op.node.op))(op)
    except UnboundedError:
        return None
    if op.inferred is None:
        return extents
    if len(extents.low) != len(op.inferred):
        return None
    inferred = np.array(op.inferred, dtype=np.float64)
    return Interval(np.where(inferred >= 0, inferred, extents.low), np.where(inferred >= 0, inferred, extents.high))


_NUMBERED_SEGMENTS = (
    *(f"UnsortedSegment{how}" for how in ("Sum", "Max", "Min", "Prod")),
    *(f"Segment{how}V2" for how in ("Sum", "Max", "Min", "Prod")),
    *(f"SparseSegment{how}{end}" for how in ("Sum", "Mean", "SqrtN") for end in ("WithNumSegments", "Grad")),
)
"""Op types whose last argument is the number of segments."""
BOUND_ATTRIBUTE = "_pesto_bound"
"""Attribute of the placeholder that stands for a function's argument: the upper bound that its shape has outside."""

EXACT: Mapping[str, Rule] = dict.fromkeys(
    ("ListDiff", "SetDiff1D"),
    # How many elements of the first input the second lacks, where both are constants.
    lambda op: exactly([int((~np.isin(op.value(0), op.value(1))).sum())]),
)
"""Sizes that hold whatever the data are."""


def _bound_values(op: OpSizes, values: int) -> Interval:
    """Bound the indices (output 0) or values (output 1) of a sparse tensor; its rank is inferred, or the first's."""
    if op.output == 1:
        return at_most(values)
    width = op.inferred[1] if op.inferred is not None and len(op.inferred) == 2 else -1
    if width < 0:
        width = next(iter(op.largest(0)[-1:]), -1)
    if op.output != 0 or width < 0:
        raise UnboundedError
    return at_most(values, width)


def _bound_values_of_both(first: int, second: int) -> Rule:
    """Make the rule of ops on two sparse tensors or sets whose result has at most the values of both."""
    return lambda op: _bound_values(op, op.elements(first) + op.elements(second))


def _bound_segments(ids: int) -> Rule:
    """Make the rule of ops that give segments up to the largest id, where that is limited by the graph."""
    return lambda op: at_most(op.most(ids) + 1, *op.largest(0)[1:])


def _bound_leading_sizes(*shapes: int) -> Rule:
    """Make the rule of ops whose output has all dimensions but the last of sparse tensors with these shape inputs."""

    def rule(op: OpSizes) -> Interval:
        sizes = [op.vector(slot).high for slot in shapes]
        if not all(x.size for x in sizes) or len({len(x) for x in sizes}) > 1:
            raise UnboundedError
        return at_most(*np.maximum.reduce(sizes)[:-1].tolist())

    return rule


DATA_DEPENDENT: dict[str, Rule] = {
    "DenseToDenseSetOperation": _bound_values_of_both(0, 1),
    "DenseToSparseSetOperation": _bound_values_of_both(0, 2),
    **dict.fromkeys(
        ("SparseToSparseSetOperation", "SparseAdd", "SparseSparseMaximum", "SparseSparseMinimum"),
        _bound_values_of_both(1, 4),
    ),
    **dict.fromkeys(
        ("Unique", "UniqueWithCounts", "ListDiff", "SetDiff1D", "ComputeAccidentalHits"),
        lambda op: at_most(op.elements(0)),
    ),
    "Where": lambda op: at_most(op.elements(0), len(op.largest(0))),
    "DynamicPartition": lambda op: at_most(op.elements(1), *op.largest(0)[len(op.largest(1)) :]),
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2"), lambda op: at_most(*op.largest(1), *op.largest(2))),
    **dict.fromkeys(("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"), _bound_segments(1)),
    **dict.fromkeys(("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"), _bound_segments(2)),
    # Each distinct value of a row has a count: as many indices and counts as values.
    "DenseCountSparseOutput": lambda op: _bound_values(op, op.elements(0)),
    **dict.fromkeys(
        ("SparseSlice", "SparseCountSparseOutput", "RaggedCountSparseOutput"),
        lambda op: _bound_values(op, op.elements(1)),
    ),
}
"""Extents of outputs whose size depends on the data."""


FOLLOWING: dict[str, Rule] = {
    "BroadcastGradientArgs": lambda op: at_most(*op.largest(0)[:1]),
    # The operand's sizes: bounds of indices and updates that must agree may differ, which inference refuses.
    "ScatterNd": lambda op: Interval(np.maximum(op.vector(2).low, 0), op.vector(2).high),
    "StridedSlice": lambda op: strided_slice(op.node, op.extents(0), op.vector(1), op.vector(2), op.vector(3)),
    # Over axes that are not known: at most all that there is.
    **dict.fromkeys(
        (
            "Sum", "Mean", "Prod", "Max", "Min", "Any", "All", "EuclideanNorm", "MaxPoolV2", "MaxPoolGradGradV2",
            "MirrorPadGrad",
        ),
        lambda op: at_most(*op.largest(0)),
    ),
    # As many elements of each string as its fixed length holds.
    "DecodePaddedRaw": lambda op: at_most(
        *op.largest(0), op.most(1) // tf.as_dtype(op.node.attr["out_type"].type).size
    ),
    "EditDistance": _bound_leading_sizes(2, 5),
    "SetSize": _bound_leading_sizes(2),
}  # fmt: skip
"""Extents of what is made of such outputs, where TensorFlow infers none from their bounds."""


def _rule(rules: dict[str, Rule], *op_types: str) -> Callable[[Rule], Rule]:
    """Add the rule below to a table, under its op types; rules of one expression stand in the tables themselves."""

    def register(rule: Rule) -> Rule:
        rules.update(dict.fromkeys(op_types, rule))
        return rule

    return register


@_rule(DATA_DEPENDENT, "UniqueV2", "UniqueWithCountsV2")
def _bound_unique(op: OpSizes) -> Interval:
    """Unique along an axis: values as the input, counts as many as there are along the axis."""
    shape = op.largest(0)
    if op.output == 0:
        return at_most(*shape)
    axis = _get_or_none(op.value, 1)
    along = None if axis is None or np.size(axis) == 0 else int(np.ravel(axis)[0])
    return at_most(max(shape, default=1) if along is None else shape[along])


@_rule(DATA_DEPENDENT, "DynamicStitch", "ParallelDynamicStitch")
def _bound_stitch(op: OpSizes) -> Interval:
    """Rows up to the largest index; where that is unknown, as many as there are indices, each being used once."""
    half = op.arguments // 2
    indices, data = op.largest(0), op.largest(half)
    rows = sum(op.elements(slot) for slot in range(half))
    limits = [n for n in (_get_or_none(op.most, slot) for slot in range(half)) if n is not None]
    return at_most(min(rows, max(limits) + 1) if len(limits) == half else rows, *data[len(indices) :])


@_rule(
    DATA_DEPENDENT, *(f"NonMaxSuppression{v}" for v in ("", "V2", "V3", "V4", "V5")), "NonMaxSuppressionWithOverlaps"
)
def _bound_selected_boxes(op: OpSizes) -> Interval:
    boxes, most = op.largest(0)[0], _get_or_none(op.most, 2)
    return at_most(boxes if most is None else min(boxes, max(most, 0)))


@_rule(DATA_DEPENDENT, "CTCGreedyDecoder", "CTCBeamSearchDecoder")
def _bound_decoded(op: OpSizes) -> Interval:
    """Bound a CTC decoder's output by one label per time step of each sequence; inputs are [time, batch, classes]."""
    inputs, paths = op.largest(0), op.attribute("top_paths") or 1
    if op.output >= 2 * paths:
        raise UnboundedError
    labels = inputs[0] * inputs[1]
    return at_most(labels, 2) if op.output < paths else at_most(labels)


@_rule(DATA_DEPENDENT, "FusedBatchNormV3")
def _bound_reserve_space(op: OpSizes) -> Interval:
    """Bound the reserve space of batch normalization by one element.

    On a CPU TensorFlow allocates none (oneDNN) or a scalar (Eigen). On a GPU it allocates a scalar, or in training what
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize returns (CudnnBatchNormAllocatorInOutput in its
    fused_batch_norm_op.cc): 0 bytes where nothing is added to the output, as this op adds nothing, for float32,
    float16 and bfloat16, NCHW and NHWC, spatial and spatial persistent mode (asked of cuDNN 9.19 on an H200).
    """
    if op.output != 5:
        raise UnboundedError
    return at_most(1)


@_rule(DATA_DEPENDENT, "SparseSplit")
def _bound_sparse_split(op: OpSizes) -> Interval:
    parts, indices = op.attribute("num_split"), op.largest(1)
    if op.output >= 2 * parts:
        raise UnboundedError
    return at_most(*indices) if op.output < parts else at_most(*indices[:1])


@_rule(DATA_DEPENDENT, "SparseCross", "SparseCrossV2", "SparseCrossHashed")
def _bound_crossed(op: OpSizes) -> Interval:
    """Bound all combinations, in a row, of a value from each input, as if all values were in one row."""
    many = op.attribute("N")
    counts = [op.elements(slot) for slot in range(many, 2 * many)]
    shapes = [op.largest(3 * many + slot) for slot in range(len(op.node.attr["dense_types"].list.type))]
    if op.output > 1 or any(len(shape) != 2 for shape in shapes):
        raise UnboundedError
    rows = math.prod(counts) if many else max((shape[0] for shape in shapes), default=0)
    crossed = rows * math.prod(shape[1] for shape in shapes)
    return at_most(crossed, 2) if op.output == 0 else at_most(crossed)


@_rule(DATA_DEPENDENT, "SparseFillEmptyRows")
def _bound_filled_rows(op: OpSizes) -> Interval:
    """A value more for each row without one."""
    values = op.elements(1)
    if op.output == 3:
        return at_most(values)
    shape = op.vector(2)
    if not shape.high.size or not np.isfinite(shape.high[0]):
        raise UnboundedError
    rows = int(shape.high[0])
    return at_most(rows) if op.output == 2 else _bound_values(op, values + rows)


@_rule(DATA_DEPENDENT, "RaggedFillEmptyRows")
def _bound_filled_ragged_rows(op: OpSizes) -> Interval:
    """Add one value for each empty row; output 2 marks these rows."""
    values = op.elements(1)
    if op.output == 3:
        return at_most(values)
    rows = op.most(2)
    return at_most(rows if op.output == 2 else values + rows)


@_rule(DATA_DEPENDENT, "SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2")
def _bound_gradient_rows(op: OpSizes) -> Interval:
    gradient, indices = op.largest(0), op.largest(1)
    return at_most(*indices, *(gradient[1:] if op.output == 0 else ()))


@_rule(DATA_DEPENDENT, "Range")
def _bound_range(op: OpSizes) -> Interval:
    """Bound the number of steps; from 0 to a multiple of the step it is that multiple, whatever the step."""
    start, limit, step = (op.values(slot).over_all() for slot in range(3))
    times = op.factor(1, 2) if start.low == start.high == 0 else None
    if times is not None and times.limited:
        return interval(*(np.maximum(bound, 0).reshape(1) for bound in (times.over_all().low, times.over_all().high)))
    if not (step.low > 0 or step.high < 0):
        raise UnboundedError
    ends = (limit.low - start.high, limit.high - start.low)
    count = at_corners(lambda way, by: np.ceil(way / by), ends, (step.low, step.high))
    return interval(np.maximum(count.low, 0).reshape(1), np.maximum(count.high, 0).reshape(1))


@_rule(DATA_DEPENDENT, "RaggedRange")
def _bound_ragged_range(op: OpSizes) -> Interval:
    """A split more than there are rows; as many values as if each row were the longest."""
    if op.output == 0:
        return at_most(max(op.elements(slot) for slot in range(3)) + 1)
    rows = max(_get_or_none(op.elements, slot) or 0 for slot in range(3))
    longest = _bound_range(op).sizes()
    if longest is None:
        raise UnboundedError
    return at_most(rows * float(longest[0]))


@_rule(DATA_DEPENDENT, "Bincount", "DenseBincount")
def _bound_counts(op: OpSizes) -> Interval:
    most, shape = op.most(1), _get_or_none(op.largest, 0)
    return at_most(most) if op.node.op == "Bincount" or shape is None or len(shape) < 2 else at_most(shape[0], most)


@_rule(FOLLOWING, "SparseTensorDenseMatMul")
def _bound_sparse_product(op: OpSizes) -> Interval:
    """Rows of the sparse factor, whose shape is input 2, by columns of the dense one; adjoint, the other dimension."""
    sizes, dense = op.vector(2), op.largest(3)
    if len(sizes.high) != 2 or len(dense) != 2:
        raise UnboundedError
    rows = float(sizes.high[int(op.node.attr["adjoint_a"].b)])
    return at_most(rows, dense[int(not op.node.attr["adjoint_b"].b)])


@_rule(FOLLOWING, *_NUMBERED_SEGMENTS)
def _bound_numbered_segments(op: OpSizes) -> Interval:
    data, rest, number = op.extents(0), len(op.largest(1)), op.values(op.arguments - 1)
    if not number.limited or data.sizes() is None:
        raise UnboundedError
    return Interval(
        np.array([max(0.0, float(number.low.min())), *data.low[rest:]]),
        np.array([float(number.high.max()), *data.high[rest:]]),
    )


@_rule(FOLLOWING, "RandomPoissonV2", "RandomGamma")
def _bound_rates(op: OpSizes) -> Interval:
    sizes, rates = op.vector(0), op.extents(op.arguments - 1)
    return interval(np.concatenate([sizes.low, rates.low]), np.concatenate([sizes.high, rates.high]))


@_rule(FOLLOWING, "Reshape")
def _bound_reshape(op: OpSizes) -> Interval:
    """Every size is that of the operand; one that is -1 is what the others leave of the elements."""
    extents, sizes = op.input_extents(0), _get_or_none(op.vector, 1)
    if op.inferred is not None:
        inferred = np.array(op.inferred, dtype=np.float64)
        open_ = sizes if sizes is not None and len(sizes.low) == len(inferred) else UNKNOWN
        sizes = Interval(np.where(inferred >= 0, inferred, open_.low), np.where(inferred >= 0, inferred, open_.high))
    if sizes is None:
        raise UnboundedError
    total = interval(0, np.inf) if extents is None else elements(extents)
    low, high = np.maximum(sizes.low, 0), sizes.high.copy()
    for d in np.flatnonzero(sizes.low < 0):
        others = float(np.prod([max(n, 1.0) for j, n in enumerate(sizes.low.tolist()) if j != d]))
        rest = np.floor(total.high / others)
        high[d] = rest if sizes.low[d] == sizes.high[d] == -1 or not np.isfinite(high[d]) else max(high[d], rest)
    return Interval(low, high)


@_rule(FOLLOWING, "Slice")
def _bound_slice(op: OpSizes) -> Interval:
    """Bound a slice of `size` elements from `begin`, or of all for -1; both lie within the tensor."""
    extents, begin, size = op.extents(0), op.values(1), op.values(2)
    rest = Interval(np.maximum(extents.low - begin.high, 0), extents.high - np.maximum(begin.low, 0))
    low = np.where(size.low >= 0, size.low, np.where(size.high < 0, rest.low, 0))
    return Interval(low, np.where(size.low >= 0, np.minimum(size.high, rest.high), rest.high))


@_rule(FOLLOWING, "Tile")
def _bound_tile(op: OpSizes) -> Interval:
    extents, times = op.extents(0), op.vector(1)
    if len(times.low) != len(extents.low):
        raise UnboundedError
    return at_corners(np.multiply, (extents.low, extents.high), (np.maximum(times.low, 0), np.maximum(times.high, 0)))


@_rule(FOLLOWING, "Pad", "PadV2", "MirrorPad")
def _bound_pad(op: OpSizes) -> Interval:
    extents, by = op.extents(0), op.values(1)
    low, high = (bound.sum(axis=1) if bound.ndim == 2 else 2 * bound for bound in (by.low, by.high))
    return interval(extents.low + np.maximum(low, 0), extents.high + high)


@_rule(FOLLOWING, "SplitV")
def _bound_split(op: OpSizes) -> Interval:
    """Along the axis what `size_splits` says, but at most all."""
    extents, sizes, axis = op.extents(0), op.vector(1), int(op.value(2))
    if op.output >= len(sizes.low):
        raise UnboundedError
    low, high = extents.low.copy(), extents.high.copy()
    low[axis] = max(0.0, float(sizes.low[op.output]))
    high[axis] = min(high[axis], float(sizes.high[op.output])) if sizes.low[op.output] >= 0 else high[axis]
    return Interval(low, high)


@_rule(FOLLOWING, "TensorListStack")
def _bound_list(op: OpSizes) -> Interval:
    """A dimension a list element; what an element has is inferred."""
    number = op.attribute("num_elements")
    if op.inferred is None or number < 0:
        raise UnboundedError
    return interval([number, *op.inferred[1:]], [number, *(n if n >= 0 else np.inf for n in op.inferred[1:])])


@_rule(FOLLOWING, "Merge", "RefMerge")
def _bound_merge(op: OpSizes) -> Interval:
    """Take the larger of the branches of a v1 conditional."""
    shapes = [op.largest(slot) for slot in range(op.arguments)]
    if op.output or len({len(shape) for shape in shapes}) != 1:
        raise UnboundedError
    return at_most(*(max(sizes) for sizes in zip(*shapes, strict=True)))


@_rule(FOLLOWING, "Placeholder")
def _bound_argument(op: OpSizes) -> Interval:
    if BOUND_ATTRIBUTE not in op.node.attr:
        raise UnboundedError
    return at_most(*(d.size for d in op.node.attr[BOUND_ATTRIBUTE].shape.dim))


AT_MOST: Mapping[str, Rule] = {**DATA_DEPENDENT, **FOLLOWING}
"""All rules for upper bounds."""


GROWING: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "AvgPool3DGrad", "AvgPoolGrad", "Conv2DBackpropInput", "Conv3DBackpropInputV2",
            "DepthwiseConv2dNativeBackpropInput", "Empty", "Fill", "FractionalAvgPoolGrad", "NonDeterministicInts",
            "ParameterizedTruncatedNormal", "RandomStandardNormal", "RandomUniform", "RandomUniformInt",
            "StatelessParameterizedTruncatedNormal", "StatelessRandomBinomial", "StatelessRandomGammaV2",
            "StatelessRandomGammaV3", "StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomPoisson",
            "StatelessRandomUniform", "StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2",
            "StatelessRandomUniformInt", "StatelessRandomUniformIntV2", "StatelessRandomUniformV2",
            "StatelessTruncatedNormal", "StatelessTruncatedNormalV2", "StridedSliceGrad", "TruncatedNormal",
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            "BroadcastTo", "Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter",
            "ExtractGlimpse", "ExtractGlimpseV2", "IRFFT", "IRFFT2D", "IRFFT3D", "Multinomial", "OneHot",
            "QuantizedResizeBilinear", "RFFT", "RFFT2D", "RFFT3D", "ResizeArea", "ResizeBicubic", "ResizeBilinear",
            "ResizeNearestNeighbor", "ResizeNearestNeighborGrad", "ScaleAndTranslate", "SparseToDense",
            "StatelessMultinomial", "TopKV2",
        ),
        (1,),
    ),
    **dict.fromkeys(
        (
            "HistogramFixedWidth", "ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "LinSpace", "ScatterNd",
            "StatefulRandomBinomial", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform",
            "StatefulUniformFullInt", "StatefulUniformInt",
        ),
        (2,),
    ),
    **dict.fromkeys(("CropAndResize", "CropAndResizeGradImage"), (3,)),
    "CombinedNonMaxSuppression": (2, 3),
    "SobolSample": (0, 1),
}  # fmt: skip
"""Op type -> operands whose values the output grows with, so that their largest values give its largest size."""
