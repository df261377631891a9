"""Sizes that TensorFlow leaves open for inputs of known sizes: exact ones, and upper bounds, by op type.

Upper bounds are for bytes and times alone. They never become part of a graph that runs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.importer.intervals import Interval, at_corners, at_most, elements, exactly, interval
from pesto.tf.importer.strided_slices import strided_slice
from pesto.tf.nodes.sizes import Shape

Rule = Callable[["OpSizes"], Interval | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSizes:
    """Sizes of one op, for a rule about the extents of one of its outputs."""

    node: Any
    """NodeDef of the op."""
    output: int
    inferred: Shape
    """The shape of the output as far as TensorFlow infers it."""
    arguments: int
    """The number of its data inputs."""
    extents: Callable[[int], Interval | None]
    """The extents of an input; None for an unknown rank. Those that depend on the data lie between two bounds."""
    values: Callable[[int], Interval]
    """The values of an input's elements: of each, or of all alike."""
    factor: Callable[[int, int], Interval | None]
    """The values of the other factor where an input is computed as a product with another input; else None."""

    def attribute(self, name: str) -> int:
        """A whole number among its attributes; 0 where it has none of that name."""
        return int(self.node.attr[name].i) if name in self.node.attr else 0

    def largest(self, at: int) -> tuple[int, ...] | None:
        """The largest shape of input `at`; None where it is not bounded."""
        extents = self.extents(at) if at < self.arguments else None
        return None if extents is None else extents.sizes()

    def elements(self, at: int) -> int | None:
        """The largest number of elements of input `at`."""
        shape = self.largest(at)
        return None if shape is None else math.prod(shape)

    def value(self, at: int) -> Any:
        """The value of input `at`, an array of whole numbers; None where it is not known."""
        values = self.values(at)
        return values.low.astype(np.int64) if values.low.size and (values.low == values.high).all() else None

    def vector(self, at: int) -> Interval | None:
        """The values of each element of a vector; None where their number is unknown."""
        values, extents = self.values(at), self.extents(at)
        if values.low.ndim or extents is None:
            return values if values.low.ndim else None
        if len(extents.low) > 1 or not (extents.low == extents.high).all():
            return None
        size = int(extents.low.prod())
        return Interval(np.full(size, values.low), np.full(size, values.high))

    def most(self, at: int) -> int | None:
        """The largest element that input `at` can have."""
        values = self.values(at)
        return int(values.high.max()) if values.limited else None


def apply_rule(rules: Mapping[str, Rule], op: OpSizes) -> Interval | None:
    """The extents of an output by the rule for its op type: what TensorFlow infers stays; None without a rule."""
    rule = rules.get(op.node.op)
    extents = None if rule is None else rule(op)
    if extents is None or op.inferred is None:
        return extents
    if len(extents.low) != len(op.inferred):
        return None
    known = np.array(op.inferred, dtype=np.float64)
    return Interval(np.where(known >= 0, known, extents.low), np.where(known >= 0, known, extents.high))


def _vector(size: int | None) -> Interval | None:
    return None if size is None else at_most(size)


def _one_dimension(op: OpSizes) -> Interval | None:
    return _vector(op.elements(0))


def _unique(op: OpSizes) -> Interval | None:
    """Unique along an axis: values as the input, counts as many as there are along the axis."""
    shape, axis = op.largest(0), op.value(1)
    if shape is None or op.output == 0:
        return None if shape is None else at_most(*shape)
    along = None if axis is None or np.size(axis) == 0 else int(np.ravel(axis)[0])
    return at_most(max(shape, default=1) if along is None else shape[along])


def _where(op: OpSizes) -> Interval | None:
    shape = op.largest(0)
    return None if shape is None else at_most(math.prod(shape), len(shape))


def _set_difference(op: OpSizes) -> Interval | None:
    """Count the elements of the first input that the second lacks: known where both are constants."""
    values, without = op.value(0), op.value(1)
    return None if values is None or without is None else exactly([int((~np.isin(values, without)).sum())])


def _partition(op: OpSizes) -> Interval | None:
    data, partitions = op.largest(0), op.largest(1)
    return None if data is None or partitions is None else at_most(math.prod(partitions), *data[len(partitions) :])


def _stitch(op: OpSizes) -> Interval | None:
    """Rows up to the largest index; where that is unknown, as many as there are indices, each being used once."""
    half = op.arguments // 2
    indices, data = op.largest(0), op.largest(half)
    counts, most = [op.elements(at) for at in range(half)], [op.most(at) for at in range(half)]
    if indices is None or data is None or None in counts:
        return None
    rows = sum(n for n in counts if n is not None)
    limits = [n for n in most if n is not None]
    return at_most(min(rows, max(limits) + 1) if len(limits) == half else rows, *data[len(indices) :])


def _selected_boxes(op: OpSizes) -> Interval | None:
    boxes, most = op.largest(0), op.most(2)
    return None if boxes is None else at_most(boxes[0] if most is None else min(boxes[0], max(most, 0)))


def _decoded(op: OpSizes) -> Interval | None:
    """Bound a CTC decoder's output by one label per time step of each sequence; inputs are [time, batch, classes]."""
    inputs, paths = op.largest(0), op.attribute("top_paths") or 1
    if inputs is None or op.output >= 2 * paths:
        return None
    labels = inputs[0] * inputs[1]
    return at_most(labels, 2) if op.output < paths else at_most(labels)


def _found_in_table(op: OpSizes) -> Interval | None:
    keys, default = op.largest(1), op.largest(2)
    return None if keys is None or default is None else at_most(*keys, *default)


def _reserve_space(op: OpSizes) -> Interval | None:
    """Bound the reserve space of batch normalization by one element.

    On a CPU TensorFlow allocates none (oneDNN) or a scalar (Eigen). On a GPU it allocates a scalar, or in training what
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize returns (CudnnBatchNormAllocatorInOutput in its
    fused_batch_norm_op.cc): 0 bytes where nothing is added to the output, as this op adds nothing, for float32,
    float16 and bfloat16, NCHW and NHWC, spatial and spatial persistent mode (asked of cuDNN 9.19 on an H200).
    """
    return at_most(1) if op.output == 5 else None


def _sum_of_values(first: int, second: int) -> Rule:
    """Make the rule of ops on two sparse tensors or sets whose result has at most the values of both."""

    def rule(op: OpSizes) -> Interval | None:
        one, other = op.elements(first), op.elements(second)
        if one is None or other is None:
            return None
        return _values_of(op, one + other)

    return rule


def _values_of(op: OpSizes, values: int) -> Interval | None:
    """The indices (output 0) or values (output 1) of a sparse tensor; its rank is inferred, or that of the first."""
    if op.output == 1:
        return at_most(values)
    width = op.inferred[1] if op.inferred is not None and len(op.inferred) == 2 else -1
    if width < 0:
        first = op.largest(0)
        width = first[-1] if first else -1
    return None if op.output != 0 or width < 0 else at_most(values, width)


def _sparse_slice(op: OpSizes) -> Interval | None:
    values = op.elements(1)
    return None if values is None else _values_of(op, values)


def _sparse_split(op: OpSizes) -> Interval | None:
    parts, indices = op.attribute("num_split"), op.largest(1)
    if indices is None or op.output >= 2 * parts:
        return None
    return at_most(*indices) if op.output < parts else at_most(*indices[:1])


def _crossed(op: OpSizes) -> Interval | None:
    """Bound all combinations, in a row, of a value from each input, as if all values were in one row."""
    if op.output > 1:
        return None
    many = op.attribute("N")
    first = 3 * many
    counts = [op.elements(at) for at in range(many, 2 * many)]
    shapes = [op.largest(at) for at in range(first, first + len(op.node.attr["dense_types"].list.type))]
    if None in counts or any(shape is None or len(shape) != 2 for shape in shapes):
        return None
    rows = math.prod(n for n in counts if n is not None) if many else max((s[0] for s in shapes if s), default=0)
    crossed = rows * math.prod(shape[1] for shape in shapes if shape)
    return at_most(crossed, 2) if op.output == 0 else at_most(crossed)


def _filled_rows(op: OpSizes) -> Interval | None:
    """A value more for each row without one."""
    values, shape = op.elements(1), op.vector(2)
    if op.output == 3:
        return _vector(values)
    if values is None or shape is None or not shape.high.size or not np.isfinite(shape.high[0]):
        return None
    rows = int(shape.high[0])
    return at_most(rows) if op.output == 2 else _values_of(op, values + rows)


def _filled_ragged_rows(op: OpSizes) -> Interval | None:
    """Add one value for each empty row; output 2 marks these rows."""
    values, rows = op.elements(1), op.most(2)
    if op.output == 3 or values is None or rows is None:
        return _vector(values) if op.output == 3 else None
    return at_most(rows if op.output == 2 else values + rows)


def _counted_values(values: int) -> Rule:
    """Make the rule of ops that count each distinct value of a row: as many indices and counts as values."""

    def rule(op: OpSizes) -> Interval | None:
        many = op.elements(values)
        return None if many is None else _values_of(op, many)

    return rule


def _sparse_product(op: OpSizes) -> Interval | None:
    """Rows of the sparse factor, whose shape is input 2, by columns of the dense one; adjoint, the other dimension."""
    sizes, dense = op.vector(2), op.largest(3)
    if sizes is None or dense is None or len(sizes.high) != 2 or len(dense) != 2:
        return None
    rows = float(sizes.high[int(op.node.attr["adjoint_a"].b)])
    return at_most(rows, dense[int(not op.node.attr["adjoint_b"].b)])


def _padded_bytes(op: OpSizes) -> Interval | None:
    """Return as many elements of each string as its fixed length holds."""
    strings, length = op.largest(0), op.most(1)
    if strings is None or length is None:
        return None
    item = tf.as_dtype(op.node.attr["out_type"].type).size
    return at_most(*strings, length // item)


def _leading_sizes(*shapes: int) -> Rule:
    """Make the rule of ops whose output has all dimensions but the last of sparse tensors with these shape inputs."""

    def rule(op: OpSizes) -> Interval | None:
        vectors = [op.vector(at) for at in shapes]
        sizes = [x.high for x in vectors if x is not None and x.high.size]
        if len(sizes) < len(shapes) or len({len(x) for x in sizes}) > 1:
            return None
        return at_most(*np.maximum.reduce(sizes)[:-1].tolist())

    return rule


def _gradient_rows(op: OpSizes) -> Interval | None:
    gradient, indices = op.largest(0), op.largest(1)
    if gradient is None or indices is None:
        return None
    return at_most(*indices, *gradient[1:]) if op.output == 0 else at_most(*indices)


def _segments(ids: int) -> Rule:
    """Segments up to the largest id, where that is limited by the graph."""

    def rule(op: OpSizes) -> Interval | None:
        data, most = op.largest(0), op.most(ids)
        return None if data is None or most is None else at_most(most + 1, *data[1:])

    return rule


def _numbered_segments(op: OpSizes) -> Interval | None:
    data, ids, number = op.extents(0), op.largest(1), op.values(op.arguments - 1)
    if data is None or ids is None or not number.limited or data.sizes() is None:
        return None
    rest = len(ids)
    return Interval(
        np.array([max(0.0, float(number.low.min())), *data.low[rest:]]),
        np.array([float(number.high.max()), *data.high[rest:]]),
    )


def _range(op: OpSizes) -> Interval | None:
    """Bound the number of steps; from 0 to a multiple of the step it is that multiple, whatever the step."""
    start, limit, step = (op.values(at).over_all() for at in range(3))
    times = op.factor(1, 2) if start.low == start.high == 0 else None
    if times is not None and times.limited:
        return interval(*(np.maximum(bound, 0).reshape(1) for bound in (times.over_all().low, times.over_all().high)))
    ends = (limit.low - start.high, limit.high - start.low)
    if not (step.low > 0 or step.high < 0):
        return None
    count = at_corners(lambda way, by: np.ceil(way / by), ends, (step.low, step.high))
    return interval(np.maximum(count.low, 0).reshape(1), np.maximum(count.high, 0).reshape(1))


def _ragged_range(op: OpSizes) -> Interval | None:
    """A split more than there are rows; as many values as if each row were the longest."""
    rows = max((op.elements(at) or 0 for at in range(3)), default=0)
    if op.output == 0:
        return at_most(rows + 1) if all(op.elements(at) is not None for at in range(3)) else None
    longest = _range(op)
    return None if longest is None or longest.sizes() is None else at_most(rows * float(longest.high[0]))


def _rates(op: OpSizes) -> Interval | None:
    sizes, rates = op.vector(0), op.extents(op.arguments - 1)
    if sizes is None or rates is None:
        return None
    return interval(np.concatenate([sizes.low, rates.low]), np.concatenate([sizes.high, rates.high]))


def _reshaped(op: OpSizes) -> Interval | None:
    """Every size is that of the operand; one that is -1 is what the others leave of the elements."""
    extents, sizes = op.extents(0), op.vector(1)
    if op.inferred is not None:
        known = np.array(op.inferred, dtype=np.float64)
        given = sizes if sizes is not None and len(sizes.low) == len(known) else None
        low, high = np.where(known >= 0, known, -np.inf), np.where(known >= 0, known, np.inf)
        if given is not None:
            low, high = np.where(known >= 0, known, given.low), np.where(known >= 0, known, given.high)
        sizes = Interval(low, high)
    if sizes is None:
        return None
    total = interval(0, np.inf) if extents is None else elements(extents)
    low, high = np.maximum(sizes.low, 0), sizes.high.copy()
    for d in np.flatnonzero(sizes.low < 0):
        others = float(np.prod([max(n, 1.0) for j, n in enumerate(sizes.low.tolist()) if j != d]))
        rest = np.floor(total.high / others)
        high[d] = rest if sizes.low[d] == sizes.high[d] == -1 or not np.isfinite(high[d]) else max(high[d], rest)
    return Interval(low, high)


def _counts(op: OpSizes) -> Interval | None:
    most, shape = op.most(1), op.largest(0)
    if most is None:
        return None
    return at_most(most) if op.node.op == "Bincount" or shape is None or len(shape) < 2 else at_most(shape[0], most)


def _sliced(op: OpSizes) -> Interval | None:
    """Bound a slice of `size` elements from `begin`, or of all for -1; both lie within the tensor."""
    extents, begin, size = op.extents(0), op.values(1), op.values(2)
    if extents is None:
        return None
    rest = Interval(np.maximum(extents.low - begin.high, 0), extents.high - np.maximum(begin.low, 0))
    low = np.where(size.low >= 0, size.low, np.where(size.high < 0, rest.low, 0))
    return Interval(low, np.where(size.low >= 0, np.minimum(size.high, rest.high), rest.high))


def _reduced(op: OpSizes) -> Interval | None:
    """Over axes that are not known: at most all that there is."""
    shape = op.largest(0)
    return None if shape is None else at_most(*shape)


def _scattered(op: OpSizes) -> Interval | None:
    """Take the operand's sizes: bounds of indices and updates that must agree may differ, which inference refuses."""
    sizes = op.vector(2)
    return None if sizes is None else Interval(np.maximum(sizes.low, 0), sizes.high)


def _tiled(op: OpSizes) -> Interval | None:
    extents, times = op.extents(0), op.vector(1)
    if extents is None or times is None or len(times.low) != len(extents.low):
        return None
    return at_corners(np.multiply, (extents.low, extents.high), (np.maximum(times.low, 0), np.maximum(times.high, 0)))


def _padded(op: OpSizes) -> Interval | None:
    extents, by = op.extents(0), op.values(1)
    if extents is None:
        return None
    low, high = (bound.sum(axis=1) if bound.ndim == 2 else 2 * bound for bound in (by.low, by.high))
    return interval(extents.low + np.maximum(low, 0), extents.high + high)


def _split(op: OpSizes) -> Interval | None:
    """Along the axis what `size_splits` says, but at most all."""
    extents, sizes, axis = op.extents(0), op.vector(1), op.value(2)
    if extents is None or axis is None or sizes is None or op.output >= len(sizes.low):
        return None
    at = int(axis)
    low, high = extents.low.copy(), extents.high.copy()
    low[at] = max(0.0, float(sizes.low[op.output]))
    high[at] = min(high[at], float(sizes.high[op.output])) if sizes.low[op.output] >= 0 else high[at]
    return Interval(low, high)


def _listed(op: OpSizes) -> Interval | None:
    """A dimension a list element; what an element has is inferred."""
    number = op.attribute("num_elements")
    if op.inferred is None or number < 0:
        return None
    return interval([number, *op.inferred[1:]], [number, *(n if n >= 0 else np.inf for n in op.inferred[1:])])


def _merged(op: OpSizes) -> Interval | None:
    """Take the larger of the branches of a v1 conditional."""
    shapes = [op.largest(at) for at in range(op.arguments)]
    first = shapes[0] if shapes else None
    if op.output or first is None or any(shape is None or len(shape) != len(first) for shape in shapes):
        return None
    return at_most(*(max(sizes) for sizes in zip(*(shape or () for shape in shapes), strict=True)))


def _bounded_argument(op: OpSizes) -> Interval | None:
    """Return the bound that the argument of a function has outside, for the placeholder that stands for it."""
    held = op.node.attr[BOUND_ATTRIBUTE].shape if BOUND_ATTRIBUTE in op.node.attr else None
    return None if held is None else at_most(*(d.size for d in held.dim))


BOUND_ATTRIBUTE = "_pesto_bound"
"""Attribute of such a placeholder: the upper bound of its shape."""

EXACT: Mapping[str, Rule] = {
    **dict.fromkeys(("ListDiff", "SetDiff1D"), _set_difference),
}
"""Sizes that hold whatever the data are."""

_SETS: Mapping[str, Rule] = {
    "DenseToDenseSetOperation": _sum_of_values(0, 1),
    "DenseToSparseSetOperation": _sum_of_values(0, 2),
    "SparseToSparseSetOperation": _sum_of_values(1, 4),
    "SparseAdd": _sum_of_values(1, 4),
    **dict.fromkeys(("SparseSparseMaximum", "SparseSparseMinimum"), _sum_of_values(1, 4)),
}
_BOXES = (
    "NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5",
    "NonMaxSuppressionWithOverlaps",
)  # fmt: skip

DATA_DEPENDENT: Mapping[str, Rule] = {
    **_SETS,
    **dict.fromkeys(("Unique", "UniqueWithCounts"), _one_dimension),
    **dict.fromkeys(("UniqueV2", "UniqueWithCountsV2"), _unique),
    **dict.fromkeys(("ListDiff", "SetDiff1D"), _one_dimension),
    "Where": _where,
    "DynamicPartition": _partition,
    **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitch),
    **dict.fromkeys(_BOXES, _selected_boxes),
    "ComputeAccidentalHits": _one_dimension,
    **dict.fromkeys(("CTCGreedyDecoder", "CTCBeamSearchDecoder"), _decoded),
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2"), _found_in_table),
    "FusedBatchNormV3": _reserve_space,
    "SparseSlice": _sparse_slice,
    "SparseSplit": _sparse_split,
    "SparseFillEmptyRows": _filled_rows,
    **dict.fromkeys(("SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2"), _gradient_rows),
    **dict.fromkeys(("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"), _segments(1)),
    **dict.fromkeys(("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"), _segments(2)),
    "Range": _range,
    "RaggedRange": _ragged_range,
    **dict.fromkeys(("SparseCross", "SparseCrossV2", "SparseCrossHashed"), _crossed),
    "RaggedFillEmptyRows": _filled_ragged_rows,
    "DenseCountSparseOutput": _counted_values(0),
    **dict.fromkeys(("SparseCountSparseOutput", "RaggedCountSparseOutput"), _counted_values(1)),
    **dict.fromkeys(("Bincount", "DenseBincount"), _counts),
}
"""Extents of outputs whose size depends on the data."""

FOLLOWING: Mapping[str, Rule] = {
    "BroadcastGradientArgs": lambda op: None if (shape := op.largest(0)) is None else at_most(*shape[:1]),
    **dict.fromkeys(
        (
            "UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "SegmentSumV2",
            "SegmentProdV2", "SegmentMaxV2", "SegmentMinV2", "SparseSegmentSumWithNumSegments",
            "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSumGrad",
            "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad",
        ),
        _numbered_segments,
    ),
    "RandomPoissonV2": _rates,
    "RandomGamma": _rates,
    "Reshape": _reshaped,
    "ScatterNd": _scattered,
    "Slice": _sliced,
    "StridedSlice": lambda op: strided_slice(op.node, op.extents(0), op.vector(1), op.vector(2), op.vector(3)),
    **dict.fromkeys(
        (
            "Sum", "Mean", "Prod", "Max", "Min", "Any", "All", "EuclideanNorm", "MaxPoolV2", "MaxPoolGradGradV2",
            "MirrorPadGrad",
        ),
        _reduced,
    ),
    "SparseTensorDenseMatMul": _sparse_product,
    "DecodePaddedRaw": _padded_bytes,
    "EditDistance": _leading_sizes(2, 5),
    "SetSize": _leading_sizes(2),
    "Tile": _tiled,
    **dict.fromkeys(("Pad", "PadV2", "MirrorPad"), _padded),
    "SplitV": _split,
    "TensorListStack": _listed,
    **dict.fromkeys(("Merge", "RefMerge"), _merged),
    "Placeholder": _bounded_argument,
}  # fmt: skip
"""Extents of what is made of such outputs, where TensorFlow infers none from their bounds."""

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

AT_MOST: Mapping[str, Rule] = {**DATA_DEPENDENT, **FOLLOWING}
