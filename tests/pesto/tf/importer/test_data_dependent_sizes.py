"""Every op whose size depends on data has an upper bound in planning, or a refusal whose remedy works."""

import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

import keras  # noqa: E402  # after the quiet load
from keras import layers  # noqa: E402

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.importer.size_rules import DATA_DEPENDENT  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

v1 = tf.compat.v1
raw = tf.raw_ops
FLOATS, IDS = tf.TensorSpec([8, 4]), tf.TensorSpec([8], tf.int32)


def sizes(fn, *specs):
    """{op type: planned shapes of its outputs}, of each type's first op, in a step that runs `fn`."""
    nodes = resolve_shapes(sources.capture_function(fn, *specs), None)
    found = {}
    for i, node in enumerate(nodes.defs):
        found.setdefault(node.op, tuple(nodes.upper_bounds(i)))
    return found


def hash_table(keys, _):
    """Values of keys in a table."""
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, tf.constant([0.0, 0.0]))
    return table.lookup(keys)


def sparse(x):
    """A sparse tensor of 8 values, in a matrix of 8 x 4."""
    at = tf.stack([tf.range(8, dtype=tf.int64), tf.cast(x[:, 0] % 4, tf.int64)], 1)
    return tf.SparseTensor(at, x[:, 0], [8, 4])


def limited(number, most):
    """A whole number of 64 bits that is no more than another."""
    return tf.cast(tf.minimum(number, most), tf.int64)


def ragged(text):
    """Two rows of three numbers, where the text has four strings."""
    return tf.RaggedTensor.from_row_splits([1, 2, 3], tf.constant([0, 1, 3]) + tf.size(text) - 4)


def ctc(x, beams):
    """A decoder of CTC with two time steps of two sequences of eight classes."""
    logits, length = tf.reshape(x, [2, 2, 8]), tf.constant([2, 2])
    if beams:
        return raw.CTCBeamSearchDecoder(inputs=logits, sequence_length=length, beam_width=4, top_paths=2)[0]
    return raw.CTCGreedyDecoder(inputs=logits, sequence_length=length)[1]


CASES = {
    "Where": (lambda x, _: tf.where(x > 0), [(32, 2)]),
    "Unique": (lambda _, ids: tf.unique(ids)[0], [(8,), (8,)]),
    "UniqueWithCounts": (lambda _, ids: tf.unique_with_counts(ids)[0], [(8,), (8,), (8,)]),
    "UniqueV2": (lambda x, _: raw.UniqueV2(x=x, axis=[1])[0], [(8, 4), (4,)]),
    "UniqueWithCountsV2": (lambda x, _: raw.UniqueWithCountsV2(x=x, axis=[0])[0], [(8, 4), (8,), (8,)]),
    "ListDiff": (lambda _, ids: v1.setdiff1d(ids, ids[:3])[0], [(8,), (8,)]),
    "DynamicPartition": (lambda x, ids: tf.dynamic_partition(x, ids % 2, 2)[1], [(8, 4), (8, 4)]),
    "DynamicStitch": (lambda x, ids: tf.dynamic_stitch([ids % 5, ids], [x, x]), [(16, 4)]),
    "ParallelDynamicStitch": (lambda x, ids: raw.ParallelDynamicStitch(indices=[ids % 5], data=[x]), [(5, 4)]),
    "NonMaxSuppressionV3": (lambda x, _: tf.image.non_max_suppression(x, x[:, 0], 3), [(3,)]),
    "NonMaxSuppressionV4": (
        lambda x, ids: raw.NonMaxSuppressionV4(
            boxes=x, scores=x[:, 0], max_output_size=ids[0], iou_threshold=0.5, score_threshold=0.0
        )[0],
        [(8,), ()],
    ),
    "NonMaxSuppressionV5": (
        lambda x, _: tf.image.non_max_suppression_with_scores(x, x[:, 0], 20)[0],
        [(8,), (8,), ()],
    ),
    "NonMaxSuppressionWithOverlaps": (
        lambda x, _: tf.image.non_max_suppression_overlaps(tf.matmul(x, x, transpose_b=True), x[:, 0], 3),
        [(3,)],
    ),
    "ComputeAccidentalHits": (
        lambda _, ids: raw.ComputeAccidentalHits(
            true_classes=tf.cast(tf.reshape(ids, [4, 2]), tf.int64), sampled_candidates=[1, 2, 3], num_true=2
        )[2],
        [(8,), (8,), (8,)],
    ),
    "CTCGreedyDecoder": (lambda x, _: ctc(x, beams=False), [(4, 2), (4,), (2,), (2, 1)]),
    "CTCBeamSearchDecoder": (lambda x, _: ctc(x, beams=True), [(4, 2), (4, 2), (4,), (4,), (2,), (2,), (2, 2)]),
    "LookupTableFindV2": (lambda _, ids: hash_table(ids, None), [(8, 2)]),
    "SparseSlice": (lambda x, _: tf.sparse.slice(sparse(x), [0, 0], [2, 2]).values, [(8, 2), (8,), (2,)]),
    "SparseSplit": (
        lambda x, _: tf.sparse.split(sparse(x), 2, 1)[0].values,
        [(8, 2), (8, 2), (8,), (8,), (2,), (2,)],
    ),
    "SparseAdd": (lambda x, _: tf.sparse.add(sparse(x), sparse(x)).values, [(16, 2), (16,), (2,)]),
    "SparseSparseMaximum": (lambda x, _: tf.sparse.maximum(sparse(x), sparse(x)).values, [(16, 2), (16,)]),
    "SparseSparseMinimum": (lambda x, _: tf.sparse.minimum(sparse(x), sparse(x)).values, [(16, 2), (16,)]),
    "SparseFillEmptyRows": (
        lambda x, _: tf.sparse.fill_empty_rows(sparse(x), 0.0)[0].values,
        [(16, 2), (16,), (8,), (8,)],
    ),
    "DenseToDenseSetOperation": (
        lambda _, ids: tf.sets.union(ids[None], ids[None, :3]).values,
        [(11, 2), (11,), (2,)],
    ),
    "SparseSegmentSumGradV2": (
        lambda x, ids: raw.SparseSegmentSumGradV2(grad=x, indices=ids % 4, segment_ids=ids, dense_output_dim0=ids[0])[
            0
        ],
        [(8, 4), (8,)],
    ),
    "SegmentSum": (lambda x, ids: tf.math.segment_sum(x, tf.minimum(ids, 5)), [(6, 4)]),
    "SparseSegmentMean": (lambda x, ids: tf.sparse.segment_mean(x, ids, tf.range(8)), [(8, 4)]),
    "Range": (lambda _, ids: tf.range(tf.minimum(ids[0], 100)), [(100,)]),
    "RaggedRange": (
        lambda _, ids: raw.RaggedRange(starts=[0, 1], limits=tf.minimum(ids[:2], 6), deltas=1)[1],
        [(3,), (12,)],
    ),
    "SparseCrossV2": (
        lambda _, ids: raw.SparseCrossV2(
            indices=[], values=[], shapes=[], dense_inputs=[tf.cast(tf.reshape(ids, [4, 2]), tf.int64)] * 2, sep="x"
        )[0],
        [(16, 2), (16,), (2,)],
    ),
    "RaggedFillEmptyRows": (
        lambda x, ids: raw.RaggedFillEmptyRows(
            value_rowids=tf.cast(ids, tf.int64), values=x[:, 0], nrows=limited(ids[7] + 3, 12), default_value=0.0
        )[1],
        [(20,), (20,), (12,), (8,)],
    ),
    "DenseCountSparseOutput": (
        lambda _, ids: raw.DenseCountSparseOutput(values=ids, weights=tf.zeros([0]), binary_output=False)[1],
        [(8, 1), (8,), (1,)],
    ),
    "SparseCountSparseOutput": (
        lambda x, ids: raw.SparseCountSparseOutput(
            indices=sparse(x).indices, values=ids, dense_shape=[8, 4], weights=tf.zeros([0]), binary_output=False
        )[1],
        [(8, 2), (8,), (2,)],
    ),
    "RaggedCountSparseOutput": (
        lambda _, ids: raw.RaggedCountSparseOutput(
            splits=[0, 8], values=ids, weights=tf.zeros([0]), binary_output=False
        )[1],
        [(8, 2), (8,), (2,)],
    ),
    "SparseTensorDenseMatMul": (
        lambda x, ids: raw.SparseTensorDenseMatMul(
            a_indices=sparse(x).indices, a_values=x[:, 0], a_shape=[limited(ids[7] + 1, 9), 4], b=tf.ones([4, 3])
        ),
        [(9, 3)],
    ),
    "EditDistance": (
        lambda x, ids: tf.edit_distance(*[tf.SparseTensor(sparse(x).indices, ids, [limited(ids[7] + 1, 9), 4])] * 2),
        [(9,)],
    ),
    "SetSize": (
        lambda x, ids: raw.SetSize(
            set_indices=sparse(x).indices, set_values=ids, set_shape=[limited(ids[7] + 1, 8), 4]
        ),
        [(8,)],
    ),
    "DecodePaddedRaw": (
        lambda _, ids: tf.io.decode_raw(["eightchr"], tf.int32, fixed_length=tf.minimum(ids[7] + 1, 11)),
        [(1, 2)],
    ),
    "EuclideanNorm": (lambda x, ids: raw.EuclideanNorm(input=x, axis=ids[:1], keep_dims=True), [(8, 4)]),
    "MaxPoolV2": (
        lambda x, ids: raw.MaxPoolV2(
            input=x[None, ..., None], ksize=[1, ids[0] + 1, 1, 1], strides=[1, 1, 1, 1], padding="VALID"
        ),
        [(1, 8, 4, 1)],
    ),
    "MirrorPadGrad": (
        lambda x, ids: raw.MirrorPadGrad(input=x, paddings=[[ids[0], ids[0]], [0, 0]], mode="SYMMETRIC"),
        [(8, 4)],
    ),
    "SparseSegmentSumWithNumSegments": (
        lambda x, ids: tf.sparse.segment_sum(x, ids, tf.range(8), num_segments=tf.minimum(ids[7] + 2, 12)),
        [(12, 4)],
    ),
    "SparseSegmentSumGrad": (
        lambda x, ids: raw.SparseSegmentSumGrad(
            grad=x, indices=ids, segment_ids=tf.range(8), output_dim0=tf.minimum(ids[7] + 1, 12)
        ),
        [(12, 4)],
    ),
    "CropAndResize": (
        lambda x, ids: tf.image.crop_and_resize(
            x[None, ..., None], [[0.0, 0.0, 1.0, 1.0]], [0], tf.minimum(ids[6:], 9)
        ),
        [(1, 9, 9, 1)],
    ),
    "RFFT": (lambda x, ids: raw.RFFT(input=x, fft_length=tf.minimum(ids[4:5], 5)), [(8, 3)]),
    "StatelessRandomGammaV2": (
        lambda _, ids: raw.StatelessRandomGammaV2(shape=tf.minimum(ids[5:6], 7), seed=[1, 2], alpha=1.0),
        [(7,)],
    ),
    "SobolSample": (lambda _, ids: tf.math.sobol_sample(2, tf.minimum(ids[7], 7)), [(7, 2)]),
    "HistogramFixedWidth": (
        lambda x, ids: tf.histogram_fixed_width(x, [0.0, 1.0], tf.minimum(ids[7], 7)),
        [(7,)],
    ),
    "DenseBincount": (lambda _, ids: tf.math.bincount(ids, maxlength=9, axis=-1), [(9,)]),
    "Reshape": (lambda x, _: tf.reshape(tf.where(x > 0), [-1, 4]), [(16, 4)]),
    "Slice": (lambda x, ids: tf.slice(x, [0, 0], tf.stack([ids[0], 2])), [(8, 2)]),
    "UnsortedSegmentMax": (
        lambda x, ids: tf.math.unsorted_segment_max(x, ids, tf.minimum(ids[7] + 2, 12)),
        [(12, 4)],
    ),
    "UnsortedSegmentSum": (
        lambda x, ids: tf.math.unsorted_segment_sum(x, ids, tf.reduce_sum(tf.cast(ids > -1, tf.int32))),
        [(8, 4)],
    ),
}


@pytest.mark.parametrize("op", CASES)
def test_upper_bounds(op) -> None:
    """What an op can make at most, by what it does."""
    fn, expected = CASES[op]
    assert sizes(fn, FLOATS, IDS)[op] == tuple(expected)


def test_bounds_hold_for_the_largest_outputs() -> None:
    """Inputs that make as much as there can be: no bound is below that, and several are reached."""
    x = tf.constant(np.arange(1, 33, dtype=np.float32).reshape(8, 4))
    ids, reached = tf.range(8), []
    for op, (fn, expected) in CASES.items():
        made = fn(x, ids)
        made = made[0] if isinstance(made, list) else made
        bounds = [shape for shape in expected if len(shape) == made.shape.rank]
        fits = [all(n <= most for n, most in zip(made.shape, shape, strict=True)) for shape in bounds]
        assert any(fits), (op, made.shape)
        reached.append(tuple(made.shape) in expected)
    assert sum(reached) >= len(CASES) // 2


@pytest.mark.parametrize(
    ("refused", "remedy", "follows"),
    [
        (
            lambda text: tf.io.decode_raw(text, tf.float32),
            "fixed_length",
            lambda text: tf.io.decode_raw(text, tf.float32, fixed_length=12),
        ),
        (
            lambda text: tf.audio.decode_wav(text[0]).audio,
            "desired_samples and desired_channels",
            lambda text: tf.audio.decode_wav(text[0], desired_samples=9, desired_channels=2).audio,
        ),
        (
            lambda text: tf.io.parse_tensor(text[0], tf.float32),
            "tf.ensure_shape",
            lambda text: tf.ensure_shape(tf.io.parse_tensor(text[0], tf.float32), [4, 3]),
        ),
        (
            lambda text: ragged(text).to_tensor(),
            r"to_tensor\(shape=\[8, 100\]\)",
            lambda text: ragged(text).to_tensor(shape=[2, 9]),
        ),
        (
            lambda text: tf.io.parse_example(text, {"a": tf.io.VarLenFeature(tf.float32)})["a"].values,
            r"parse in the input pipeline \(dataset.map\)",
            lambda text: tf.ensure_shape(
                tf.io.parse_example(text, {"a": tf.io.VarLenFeature(tf.float32)})["a"].values, [9]
            ),
        ),
        (
            lambda text: tf.numpy_function(len, [text], tf.int64),
            "tf.ensure_shape",
            lambda text: tf.ensure_shape(tf.numpy_function(len, [text], tf.int64), []),
        ),
    ],
)
def test_remedies_of_what_is_decoded_work(refused, remedy, follows) -> None:
    """What is refused says what to do, and done so it is planned."""
    spec = tf.TensorSpec([4], tf.string)
    with pytest.raises(InputError, match=remedy):
        sizes(refused, spec)
    assert sizes(follows, spec)


@pytest.mark.parametrize(
    ("fn", "remedy"),
    [
        (lambda text: raw.StringSplitV2(input=text, sep="")[0], "to_tensor"),
        (lambda text: tf.io.decode_image(text[0]), r"input pipeline \(dataset.map\).*tf.image.resize"),
    ],
)
def test_what_belongs_into_the_input_pipeline_says_so(fn, remedy) -> None:
    """Strings and images become numbers before the step."""
    with pytest.raises(InputError, match=remedy):
        sizes(fn, tf.TensorSpec([4], tf.string))


def test_every_rule_for_data_has_a_case() -> None:
    """But those of an op's older or newer versions, and of ops that only a GPU or a gradient has."""
    alike = {
        "DenseToSparseSetOperation", "SparseToSparseSetOperation", "SetDiff1D", "NonMaxSuppression",
        "NonMaxSuppressionV2", "LookupTableFind", "FusedBatchNormV3", "SparseSegmentMeanGradV2",
        "SparseSegmentSqrtNGradV2", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin", "SparseSegmentSum",
        "SparseSegmentSqrtN", "Bincount", "SparseCross", "SparseCrossHashed",
    }  # fmt: skip
    assert set(DATA_DEPENDENT) - set(CASES) == alike


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("shape", "layout", "dtype"),
    [
        ((8, 6, 6, 4), "NHWC", tf.float32), ((8, 6, 6, 4), "NHWC", tf.float16), ((8, 6, 6, 4), "NHWC", tf.bfloat16),
        ((2, 3, 6, 6, 4), "NDHWC", tf.float32), ((0, 6, 6, 4), "NHWC", tf.float32),
    ],
)  # fmt: skip
def test_the_reserve_space_of_a_batch_norm(shape, layout, dtype, training) -> None:
    """At most one element, as the kernels of a CPU make."""

    def norm(x):
        given = tf.zeros([0 if training else 4])
        return raw.FusedBatchNormV3(
            x=x, scale=tf.ones([4]), offset=tf.zeros([4]), mean=given, variance=given, data_format=layout,
            is_training=training,
        )[5]  # fmt: skip

    assert sizes(norm, tf.TensorSpec(shape, dtype))["FusedBatchNormV3"][5] == (1,)
    assert tf.size(norm(tf.zeros(shape, dtype))) <= 1


def test_a_difference_of_constants_is_known() -> None:
    """As in the gradient of a product over an axis: of axes 0 and 1 without 1, one is left."""

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_prod(x, -1)
        return tape.gradient(y, x)

    nodes = resolve_shapes(sources.capture_function(step, FLOATS), None)
    assert not any(nodes.defs[i].op == "ListDiff" for i, _ in nodes.bounds)
    found = sizes(step, FLOATS)
    assert found["ListDiff"] == ((1,), (1,))
    assert found["Transpose"] == ((4, 8),)


def test_sizes_that_must_be_equal_take_the_least_bound() -> None:
    """Of 8 ids, and of 5 rows, 5 where both must be equal; 8 where one row alone would be repeated."""

    def step(x, ids):
        few = tf.gather(x, tf.unique(ids)[0])
        rows = tf.boolean_mask(x[:5], x[:5, 0] > 0)
        return few + rows, tf.add_n([few, rows])

    found = sizes(step, FLOATS, IDS)
    assert found["Unique"][0] == (8,)
    assert found["AddV2"] == ((8, 4),)
    assert found["AddN"] == ((5, 4),)


def test_what_a_program_ensures_is_the_size() -> None:
    """Also through an identity."""

    def step(x, ids):
        return tf.gather(x, tf.ensure_shape(tf.identity(tf.math.segment_sum(ids, ids)), [3]))

    found = sizes(step, FLOATS, IDS)
    assert found["SegmentSum"] == ((3,),)
    assert found["GatherV2"] == ((3, 4),)


def test_a_loop_keeps_the_size_that_a_round_keeps() -> None:
    """What is declared open of a loop's variable has the size with which it entered, unless a round makes it larger."""

    def rounds(change):
        def step(x, _):
            def body(k, y):
                return k + 1, change(y)

            return tf.while_loop(
                lambda k, _: k < 3, body, [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])]
            )[1]

        return step

    for change in (lambda y: y * 2.0, lambda y: tf.boolean_mask(y, y[:, 0] > 0)):
        assert sizes(rounds(change), FLOATS, IDS)["StatelessWhile"][-1] == (8, 4)
    with pytest.raises(InputError, match=r"\(StatelessWhile\) is \[\?, 4\]"):
        sizes(rounds(lambda y: tf.concat([y, y], 0)), FLOATS, IDS)


OPEN = {
    "SegmentSum": (
        tf.math.segment_sum,
        "tf.math.unsorted_segment_sum with num_segments",
        lambda x, ids: tf.math.unsorted_segment_sum(x, ids, num_segments=8),
    ),
    "SparseSegmentSqrtN": (
        lambda x, ids: tf.sparse.segment_sqrt_n(x, ids, ids),
        "tf.sparse.segment_sqrt_n with num_segments",
        lambda x, ids: tf.sparse.segment_sqrt_n(x, ids, ids, num_segments=8),
    ),
    "Range": (
        lambda _, ids: tf.range(ids[0]),
        r"tf.range\(tf.minimum\(n, 100\)\)",
        lambda _, ids: tf.range(tf.minimum(ids[0], 100)),
    ),
    "DenseBincount": (
        lambda _, ids: tf.math.bincount(ids, axis=-1),
        "give tf.math.bincount a maxlength",
        lambda _, ids: tf.math.bincount(ids, maxlength=9, axis=-1),
    ),
    "PyFunc": (
        lambda x, _: tf.numpy_function(np.sort, [x], tf.float32) * 2.0,
        "tf.ensure_shape",
        lambda x, _: tf.ensure_shape(tf.numpy_function(np.sort, [x], tf.float32), [8, 4]) * 2.0,
    ),
}


@pytest.mark.parametrize("op", OPEN)
def test_what_has_no_bound_is_refused_with_a_remedy_that_works(op) -> None:
    """The op is named, and the step that follows the remedy is planned."""
    fn, remedy, mended = OPEN[op]
    with pytest.raises(InputError, match=rf"output 0 of op .*\({op}\) is .*depends on the data.*{remedy}"):
        sizes(fn, FLOATS, IDS)
    sizes(mended, FLOATS, IDS)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adagrad", "adadelta"])
@pytest.mark.parametrize("static", [False, True])
def test_a_table_with_fewer_rows_than_ids(optimizer, static) -> None:
    """At most all 5 rows of the table are updated by 8 ids."""
    parts = [layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    model = keras.Sequential([keras.Input((1,), dtype="int64"), *parts])
    model.compile(optimizer, "mse", jit_compile=False)
    graph = sources.from_keras(model, 8, static=static)
    assert graph.ops > 100
