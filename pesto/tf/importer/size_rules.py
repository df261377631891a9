"""Sizes that TensorFlow leaves open for inputs of known sizes: exact ones, and upper bounds, by op type.

Upper bounds are for bytes and times alone. They never become part of a graph that runs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto.tf.nodes.sizes import Shape

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSizes:
    """One op, for a rule about the size of one of its outputs."""

    node: Any
    """Its NodeDef."""
    output: int
    inferred: Shape
    """The shape of the output as far as TensorFlow infers it."""
    inputs: Sequence[Shape]
    """Shapes of its data inputs; in rules about upper bounds, upper bounds of them."""
    value: Callable[[int], Any]
    """The constant value of an input, an array; None where it has none."""
    largest: Callable[[int], Sequence[int | None]]
    """Upper bounds of the elements of an input that is a vector or a scalar of whole numbers; [] where unknown."""

    def attribute(self, name: str) -> int:
        """A whole number among its attributes; 0 where it has none of that name."""
        return int(self.node.attr[name].i) if name in self.node.attr else 0

    def known(self, at: int) -> Sizes | None:
        """The shape of input `at`; None unless all of it is known."""
        shape = self.inputs[at] if at < len(self.inputs) else None
        return None if shape is None or -1 in shape else shape

    def elements(self, at: int) -> int | None:
        """The number of elements of input `at`."""
        shape = self.known(at)
        return None if shape is None else math.prod(shape)

    def most(self, at: int) -> int | None:
        """The largest element that input `at` can have."""
        found = self.largest(at)
        return None if not found or None in found else max(n for n in found if n is not None)


Rule = Callable[[OpSizes], Shape]


def apply_rule(rules: Mapping[str, Rule], op: OpSizes) -> Shape:
    """The shape of an output by the rules for its op type: what TensorFlow infers of it stays; None without a rule."""
    rule = rules.get(op.node.op)
    found = None if rule is None else rule(op)
    if found is None or op.inferred is None:
        return found
    if len(found) != len(op.inferred):
        return None
    return tuple(n if n >= 0 else m for n, m in zip(op.inferred, found, strict=True))


def _vector(size: int | None) -> Shape:
    return None if size is None else (size,)


def _one_dimension(op: OpSizes) -> Shape:
    return _vector(op.elements(0))


def _like_first(op: OpSizes) -> Shape:
    return op.known(0)


def _unique(op: OpSizes) -> Shape:
    """Unique along an axis: values as the input, counts as many as there are along the axis."""
    shape, axis = op.known(0), op.value(1)
    if shape is None or op.output == 0:
        return shape
    along = None if axis is None or np.size(axis) == 0 else int(np.ravel(axis)[0])
    return (max(shape, default=1) if along is None else shape[along],)


def _where(op: OpSizes) -> Shape:
    shape = op.known(0)
    return None if shape is None else (math.prod(shape), len(shape))


def _set_difference(op: OpSizes) -> Shape:
    """What the first input has and the second has not: known where both are constants."""
    values, without = op.value(0), op.value(1)
    return None if values is None or without is None else (int((~np.isin(values, without)).sum()),)


def _partition(op: OpSizes) -> Shape:
    data, partitions = op.known(0), op.known(1)
    return None if data is None or partitions is None else (math.prod(partitions), *data[len(partitions) :])


def _stitch(op: OpSizes) -> Shape:
    """Rows up to the largest index; where that is unknown, as many as there are indices, each being used once."""
    half = len(op.inputs) // 2
    indices, data = op.known(0), op.known(half)
    counts, most = [op.elements(at) for at in range(half)], [op.most(at) for at in range(half)]
    if indices is None or data is None or None in counts:
        return None
    rows = sum(n for n in counts if n is not None)
    limits = [n for n in most if n is not None]
    return (min(rows, max(limits) + 1) if len(limits) == half else rows, *data[len(indices) :])


def _selected_boxes(op: OpSizes) -> Shape:
    boxes, most = op.known(0), op.most(2)
    return None if boxes is None else (boxes[0] if most is None else min(boxes[0], max(most, 0)),)


def _decoded(op: OpSizes) -> Shape:
    """Of CTC's decoders: at most a label a time step of each sequence; inputs are [time, batch, classes]."""
    inputs, paths = op.known(0), op.attribute("top_paths") or 1
    if inputs is None or op.output >= 2 * paths:
        return None
    labels = inputs[0] * inputs[1]
    return (labels, 2) if op.output < paths else (labels,)


def _found_in_table(op: OpSizes) -> Shape:
    keys, default = op.known(1), op.known(2)
    return None if keys is None or default is None else (*keys, *default)


def _reserve_space(op: OpSizes) -> Shape:
    """Of batch normalization: cuDNN keeps at most one bit for each element, other devices nothing."""
    elements = op.elements(0)
    return _vector(None if op.output != 5 or elements is None else math.ceil(elements / 32))


def _sum_of_values(first: int, second: int) -> Rule:
    """Of ops on two sparse tensors or sets whose result has at most the values of both; indices have the last rank."""

    def rule(op: OpSizes) -> Shape:
        one, other = op.elements(first), op.elements(second)
        if one is None or other is None:
            return None
        return _values_of(op, one + other)

    return rule


def _values_of(op: OpSizes, values: int) -> Shape:
    """The indices (output 0) or values (output 1) of a sparse tensor; its rank is inferred, or that of the first."""
    if op.output == 1:
        return (values,)
    width = op.inferred[1] if op.inferred is not None and len(op.inferred) == 2 else -1
    if width < 0:
        first = op.known(0)
        width = first[-1] if first else -1
    return None if op.output != 0 or width < 0 else (values, width)


def _sparse_slice(op: OpSizes) -> Shape:
    values = op.elements(1)
    return None if values is None else _values_of(op, values)


def _sparse_split(op: OpSizes) -> Shape:
    parts, indices = op.attribute("num_split"), op.known(1)
    if indices is None or op.output >= 2 * parts:
        return None
    return indices if op.output < parts else indices[:1]


def _filled_rows(op: OpSizes) -> Shape:
    """A value more for each row without one."""
    values, shape = op.elements(1), op.largest(2)
    if op.output == 3:
        return _vector(values)
    if values is None or not shape or shape[0] is None:
        return None
    return (shape[0],) if op.output == 2 else _values_of(op, values + shape[0])


def _gradient_rows(op: OpSizes) -> Shape:
    gradient, indices = op.known(0), op.known(1)
    if gradient is None or indices is None:
        return None
    return (*indices, *gradient[1:]) if op.output == 0 else indices


def _segments(ids: int) -> Rule:
    """Segments up to the largest id, where that is limited by the graph."""

    def rule(op: OpSizes) -> Shape:
        data, most = op.known(0), op.most(ids)
        return None if data is None or most is None else (most + 1, *data[1:])

    return rule


def _numbered_segments(op: OpSizes) -> Shape:
    data, ids, most = op.known(0), op.known(1), op.most(len(op.inputs) - 1)
    return None if data is None or ids is None or most is None else (most, *data[len(ids) :])


def _range(op: OpSizes) -> Shape:
    start, limit, step = op.value(0), op.most(1), op.value(2)
    if start is None or limit is None or step is None or float(step) <= 0:
        return None
    return (max(0, math.ceil((limit - float(start)) / float(step))),)


def _of_dimensions(at: int) -> Rule:
    """Of ops one of whose inputs is the shape of the output."""

    def rule(op: OpSizes) -> Shape:
        sizes = op.largest(at)
        return None if not sizes or None in sizes else tuple(n for n in sizes if n is not None)

    return rule


def _rates(op: OpSizes) -> Shape:
    sizes, rates = _of_dimensions(0)(op), op.known(len(op.inputs) - 1)
    return None if sizes is None or rates is None else (*sizes, *rates)


def _reshaped(op: OpSizes) -> Shape:
    elements = op.elements(0)
    sizes = op.largest(1) if op.inferred is None else [None if n < 0 else n for n in op.inferred]
    if elements is None or not sizes or sizes.count(None) > 1:
        return None
    rest = math.prod(n for n in sizes if n is not None)
    return tuple(math.ceil(elements / max(rest, 1)) if n is None else n for n in sizes)


def _counts(op: OpSizes) -> Shape:
    most, shape = op.most(1), op.known(0)
    if most is None:
        return None
    return (most,) if op.node.op == "Bincount" or shape is None or len(shape) < 2 else (shape[0], most)


def _cut_out(op: OpSizes) -> Shape:
    """At most what is there; what a mask of a StridedSlice adds or removes changes the rank."""
    shape, removed = op.known(0), op.attribute("shrink_axis_mask")
    if shape is None or op.attribute("ellipsis_mask") or op.attribute("new_axis_mask"):
        return None
    return tuple(n for d, n in enumerate(shape) if not removed >> d & 1)


def _reduced(op: OpSizes) -> Shape:
    """Over axes that are not known: at most all that there is."""
    return op.known(0)


def _tiled(op: OpSizes) -> Shape:
    shape, times = op.known(0), op.largest(1)
    if shape is None or len(times) != len(shape) or None in times:
        return None
    return tuple(n * (k or 0) for n, k in zip(shape, times, strict=True))


def _merged(op: OpSizes) -> Shape:
    """Of the branches of a v1 conditional the larger."""
    shapes = [op.known(at) for at in range(len(op.inputs))]
    first = shapes[0] if shapes else None
    if op.output or first is None or any(shape is None or len(shape) != len(first) for shape in shapes):
        return None
    return tuple(max(sizes) for sizes in zip(*(shape or () for shape in shapes), strict=True))


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
_RANDOM = (
    "ParameterizedTruncatedNormal", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal",
    "StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomUniform", "StatelessRandomUniformInt",
    "StatelessRandomUniformIntV2", "StatelessRandomUniformV2", "StatelessTruncatedNormal", "StatelessTruncatedNormalV2",
)  # fmt: skip
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
    **dict.fromkeys(("Bincount", "DenseBincount"), _counts),
}
"""Upper bounds of outputs whose size depends on the data."""

FOLLOWING: Mapping[str, Rule] = {
    "BroadcastGradientArgs": lambda op: None if (shape := op.known(0)) is None else shape[:1],
    **dict.fromkeys(
        (
            "UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "SegmentSumV2",
            "SegmentProdV2", "SegmentMaxV2", "SegmentMinV2",
        ),
        _numbered_segments,
    ),
    "BroadcastTo": _of_dimensions(1),
    "Fill": _of_dimensions(0),
    **dict.fromkeys(_RANDOM, _of_dimensions(0)),
    "RandomPoissonV2": _rates,
    "RandomGamma": _rates,
    "Reshape": _reshaped,
    **dict.fromkeys(("Slice", "StridedSlice"), _cut_out),
    **dict.fromkeys(("Sum", "Mean", "Prod", "Max", "Min", "Any", "All"), _reduced),
    "Tile": _tiled,
    **dict.fromkeys(("Merge", "RefMerge"), _merged),
}  # fmt: skip
"""Upper bounds of what is made of such outputs, where TensorFlow infers none from their bounds."""

AT_MOST: Mapping[str, Rule] = {**DATA_DEPENDENT, **FOLLOWING}

ENSURED = (
    "if it always has the same size, state that right behind the op: tf.ensure_shape(output, [...]) with every "
    "dimension; else pad what the op makes to one size, or do it before the step"
)
"""How to give an output a size that has neither a size nor a bound."""

_NUMBERED = "use {} with num_segments, which fixes how many there are"

REMEDIES: Mapping[str, str] = {
    "SegmentSum": _NUMBERED.format("tf.math.unsorted_segment_sum"),
    "SegmentMean": _NUMBERED.format("tf.math.unsorted_segment_mean"),
    "SegmentProd": _NUMBERED.format("tf.math.unsorted_segment_prod"),
    "SegmentMax": _NUMBERED.format("tf.math.unsorted_segment_max"),
    "SegmentMin": _NUMBERED.format("tf.math.unsorted_segment_min"),
    "SparseSegmentSum": _NUMBERED.format("tf.sparse.segment_sum"),
    "SparseSegmentMean": _NUMBERED.format("tf.sparse.segment_mean"),
    "SparseSegmentSqrtN": _NUMBERED.format("tf.sparse.segment_sqrt_n"),
    "Range": "limit it by a constant: tf.range(tf.minimum(n, 100))",
    **dict.fromkeys(("Bincount", "DenseBincount"), "give tf.math.bincount a maxlength"),
}
"""By op type how to limit a size that only the data limit."""
