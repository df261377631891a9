"""Remedies for ops whose outputs have neither a size nor a bound, by op type."""

from collections.abc import Mapping

from pesto.core.files.json import shown
from pesto.core.source import origin_of
from pesto.tf.nodes.sizes import Shape

ENSURED = (
    "if it always has the same size, state that right behind the op: tf.ensure_shape(output, [...]) with every "
    "dimension; else pad what the op makes to one size, or do it before the step"
)
"""Remedy that fits any op."""

_NUMBERED = "use {} with num_segments, which fixes how many there are"

_IN_PIPELINE = (
    "parse in the input pipeline (dataset.map), or state its sizes right behind it by tf.ensure_shape(output, [...])"
)

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
    **dict.fromkeys(
        (
            "DecodeAndCropJpeg",
            "DecodeBmp",
            "DecodeGif",
            "DecodeImage",
            "DecodeJpeg",
            "DecodeJxl",
            "DecodePng",
            "DecodeWebP",
        ),
        "decode images in the input pipeline (dataset.map), and resize them there to one size by tf.image.resize",
    ),
    "DecodeWav": "give tf.audio.decode_wav desired_samples and desired_channels",
    "DecodeRaw": "give tf.io.decode_raw a fixed_length",
    **dict.fromkeys(
        (
            "DecodeProtoV2",
            "DeserializeManySparse",
            "DeserializeSparse",
            "ParseExample",
            "ParseExampleV2",
            "ParseSequenceExample",
            "ParseSequenceExampleV2",
            "ParseSingleExample",
            "ParseSingleSequenceExample",
            "ParseTensor",
        ),
        _IN_PIPELINE,
    ),
    "RaggedTensorToTensor": "give to_tensor every size: to_tensor(shape=[8, 100])",
    **dict.fromkeys(
        ("StringSplit", "StringSplitV2", "UnicodeDecode", "UnicodeDecodeWithOffsets"),
        "split strings in the input pipeline (dataset.map), and pad them there to one length by "
        "to_tensor(shape=[None, 100])",
    ),
    **dict.fromkeys(
        ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"),
        "cuDNN tells the size of its reserve space when it runs: take the layer without cuDNN "
        "(keras.layers.LSTM(..., use_cudnn=False))",
    ),
    **dict.fromkeys(
        (
            "BatchToSpace",
            "BatchToSpaceND",
            "Concat",
            "ConcatV2",
            "ConjugateTranspose",
            "ExpandDims",
            "FusedPadConv2D",
            "FusedResizeAndPadConv2D",
            "GatherV2",
            "MatrixDiagPartV2",
            "MatrixDiagPartV3",
            "MatrixDiagV2",
            "MatrixDiagV3",
            "SpaceToBatch",
            "SpaceToBatchND",
            "Split",
            "Transpose",
            "ArgMax",
            "ArgMin",
        ),
        "give its axes, diagonals or paddings as constants",
    ),
    **dict.fromkeys(
        ("QueueDequeue", "QueueDequeueV2", "QueueDequeueMany", "QueueDequeueManyV2", "QueueDequeueUpToV2"),
        "give the queue the shapes of its elements (shapes=[...]), and take a constant number of them, or state the "
        "size right behind the op: tf.ensure_shape(output, [...])",
    ),
    **dict.fromkeys(
        ("EagerPyFunc", "PyFunc", "PyFuncStateless"),
        "TensorFlow knows no sizes of what Python computes: state them right behind it by tf.ensure_shape(output, "
        "[...])",
    ),
}
"""Op type -> remedy for a size that depends on the data."""


def shape_to_give(source: str, name: str, shape: Shape) -> str:
    """The words that state the largest shape of an output, with N for what is open; none where none can be given."""
    sizes = "16,40" if shape is None else ",".join("N" if n < 0 else str(n) for n in shape)
    return f"shape {shown(name)}={sizes}" if origin_of(source).takes_shapes else ""


def remedy_for(op_type: str, given: str, *, program: bool, through: bool) -> str:
    """The remedy for an output of an op of a type that has no bound.

    given: the words that state its largest shape, if any. program: whether its user has the program, and not only a
    file of it. through: whether the value of another op is the cause.
    """
    if given and not program:
        return f"give the largest that it can have ({given})"
    own = REMEDIES.get(op_type, ENSURED)
    if through and op_type not in REMEDIES:
        own = f"limit what that op makes by tf.minimum, or {own}"
    return f"{own}; or give the largest that it can have ({given})" if given else own


def feed_remedy(given: str, shape: Shape, batch: int | None) -> str:
    """The remedy for a feed of an open shape.

    given: the words that state its shape, if any. batch: the one that is put in for first dimensions already, if any.
    """
    if shape is None:
        remedy = f"give its shape ({given})" if given else "give the shapes of the feeds (shape NAME=16,40)"
        return f"{remedy}, or set it with tf.ensure_shape"
    first_alone = batch is None and shape[0] < 0 and all(n >= 0 for n in shape[1:])
    if given:
        number = " with a number for each N" if "N" in given.rpartition("=")[2] else ""
        return f"give {'a batch size (batch=32), or ' if first_alone else ''}its shape ({given}{number})"
    if batch is None:
        return "give a batch size (batch=32), or static shapes of the feeds"
    return (
        "fix every dimension of the feeds, the batch too (drop_remainder=True in the dataset, from_keras(static=True))"
    )
