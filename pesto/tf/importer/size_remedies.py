"""What to do about ops whose outputs have neither a size nor a bound, by op type."""

from collections.abc import Mapping

ENSURED = (
    "if it always has the same size, state that right behind the op: tf.ensure_shape(output, [...]) with every "
    "dimension; else pad what the op makes to one size, or do it before the step"
)
"""How to give any output a size."""

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
    **dict.fromkeys(("DecodeProtoV2", "ParseTensor", "DeserializeManySparse", "DeserializeSparse"), _IN_PIPELINE),
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
"""By op type how to limit a size that only the data limit."""
