"""Every op that TensorFlow registers, where closed inputs leave a size open, has a bound, or a reason and a remedy."""

import pytest

from pesto.errors import InputError
from pesto.tf.start import tensorflow

tf = tensorflow()

from pesto.tf.importer.shapes import known_nodes  # noqa: E402
from pesto.tf.importer.size_remedies import ENSURED, REMEDIES  # noqa: E402
from pesto.tf.importer.size_rules import AT_MOST, GROWING  # noqa: E402
from pesto.tf.nodes.captured import Captured  # noqa: E402
from tests.oracles.registered_ops import (  # noqa: E402
    LIMIT,
    Builder,
    closed_call,
    is_open,
    registered,
    travelling,
)

pytestmark = pytest.mark.slow

NOT_TRAINING = ("BoostedTrees", "DTensor", "Experimental", "Risc", "Sdca", "TPU", "Xla")
"""Beginnings of ops of other systems: decision trees, linear solvers, TPUs and compilers; some crash when tried."""
CRASHES = frozenset(("FakeQuantWithMinMaxVarsPerChannelGradient",))
"""Their shape functions take the process down for some inputs; their outputs are as large as their inputs."""
OTHER_INPUTS = frozenset((
    "FractionalAvgPoolGrad", "Placeholder", "SparseCross", "SparseCrossHashed", "SparseCrossV2", "SparseSplit",
    "SplitV", "StridedSlice", "TensorListStack",
))  # fmt: skip
"""Ops with a rule for inputs that are not among those tried here; test_data_dependent_sizes.py has them."""
HELD = "holds what the program put there, of any size"
UNBOUNDED = {
    **dict.fromkeys(
        (
            "GetSessionTensor", "LookupTableExportV2", "MapPeek", "MapUnstage", "MapUnstageNoKey", "OrderedMapPeek",
            "OrderedMapUnstage", "OrderedMapUnstageNoKey", "Recv", "ResourceAccumulatorTakeGradient", "Restore",
            "RestoreSlice", "RestoreV2", "StackPopV2", "StagePeek",
            "TakeManySparseFromTensorsMap", "TensorArrayConcatV2", "TensorArrayConcatV3", "TensorArrayGatherV3",
            "TensorArrayReadV3", "TensorListConcat", "TensorListConcatV2", "TensorListElementShape", "TensorListGather",
            "TensorListGetItem", "TensorListPopBack", "TensorMapLookup", "TensorMapStackKeys", "Unbatch", "Batch",
            "Unstage", "CompositeTensorVariantToComponents", "RaggedTensorFromVariant", "RaggedTensorToVariantGradient",
            "AddManySparseToTensorsMap",
        ),
        HELD,
    ),
    **dict.fromkeys(
        ("ReadVariableOp", "ReadVariableXlaSplitND", "ResourceGather", "VariableShape"), "the size of a variable"
    ),
    **dict.fromkeys(
        ("CollectiveBcastRecvV2", "CollectiveGatherV2", "CollectiveReduceScatterV2"), "other processes tell its size"
    ),
    **dict.fromkeys(
        (
            "CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2", "CudnnRNNParamsToCanonical",
            "CudnnRNNParamsToCanonicalV2",
        ),
        "cuDNN tells its size, before a step",
    ),
    **dict.fromkeys(
        (
            "ConvertToCooTensor", "ConvertToListOfSparseCoreCooTensors", "GetMinibatchSplitsWithPhysicalReplica",
            "DebugNumericSummary", "DebugNumericSummaryV2", "Fingerprint", "KmeansPlusPlusInitialization",
            "NearestNeighbors", "QuantizedConcat", "QuantizedDepthwiseConv2D", "QuantizedDepthwiseConv2DWithBias",
            "QuantizedDepthwiseConv2DWithBiasAndRelu", "QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize",
            "QuantizedReshape",
        ),
        "no part of a training step on GPUs",
    ),
    **dict.fromkeys(("RaggedBincount", "SparseBincount"), "its number of rows is a value of the data"),
    "RaggedGather": "rows of any length may be repeated",
    **dict.fromkeys(
        ("SparseReduceMax", "SparseReduceMaxSparse", "SparseReduceSum", "SparseReduceSumSparse"),
        "its axes are values, and nothing tells its rank",
    ),
}  # fmt: skip
"""Op -> why it has neither a bound nor a remedy of its own; the remedy is to state its size."""
UNTRIED = frozenset((
    "ApproxTopK", "AvgPool3DGrad", "BatchToSpaceND", "CSRSparseMatrixComponents", "CSRSparseMatrixToDense",
    "CSRSparseMatrixToSparseTensor", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "DenseToCSRSparseMatrix",
    "Einsum", "FusedPadConv2D", "FusedResizeAndPadConv2D", "GenerateBoundingBoxProposals", "OutfeedDequeueTupleV2",
    "ParallelConcat", "ParseExample", "ParseExampleV2", "ParseSequenceExample", "ParseSequenceExampleV2",
    "ParseSingleExample", "ParseSingleSequenceExample", "RaggedCross", "RaggedTensorToTensor", "ResourceCountUpTo",
    "SortListOfSparseCoreCooTensors", "SpaceToBatchND", "SparseMatrixAdd", "SparseMatrixMatMul", "SparseMatrixMul",
    "SparseMatrixNNZ", "SparseMatrixOrderingAMD", "SparseMatrixSoftmax", "SparseMatrixSoftmaxGrad",
    "SparseMatrixSparseCholesky", "SparseMatrixSparseMatMul", "SparseMatrixTranspose", "SparseMatrixZeros",
    "SparseTensorToCSRSparseMatrix", "TridiagonalSolve", "UniformQuantizedConvolution",
    "UniformQuantizedConvolutionHybrid",
))  # fmt: skip
"""Ops whose inputs must agree with attributes, or with each other, in ways that are not tried; those of parsed examples
and sparse matrices leave sizes open, and say so with the general remedy."""


@pytest.fixture(scope="module")
def calls():
    """The ops that leave a size open, with the inputs for which they do; and those that were not tried."""
    builder, open_, untried = Builder(), [], []
    for op in registered():
        if not op.name.startswith(NOT_TRAINING) and "TPU" not in op.name and op.name not in CRASHES:
            call = closed_call(builder, op)
            if call is None:
                untried.append(op)
            elif is_open(builder, call):
                open_.append(call)
    return open_, untried


def refusal(call):
    """What planning says to the op, where its numbers are between 1 and 4; empty where its sizes are bounded."""
    with tf.Graph().as_default() as graph:
        given = [
            tf.compat.v1.placeholder(tf.as_dtype(t), shape) for t, shape in zip(call.dtypes, call.shapes, strict=True)
        ]
        limited = [tf.clip_by_value(x, 1, LIMIT) if x.dtype in (tf.float32, tf.int32, tf.int64) else x for x in given]
        op = graph.create_op(call.op, limited, [tf.as_dtype(t) for t in call.made], attrs=call.attrs, name="tested")
        fetched = tuple(tf.identity(op.outputs[k]).op.name for k in travelling(call))
        captured = Captured(graph_def=graph.as_graph_def(add_shapes=True), fetches=fetched, source="step")
    try:
        known_nodes(captured, None)
    except InputError as refused:
        return str(refused)
    return ""


def test_every_op_that_leaves_a_size_open_has_a_bound_or_a_reason(calls) -> None:
    """A new op of TensorFlow fails here by its name: give it a rule, a remedy, or a reason in this list."""
    refused = {call.op: refusal(call) for call in calls[0]}
    unbounded = {op for op, said in refused.items() if said} - OTHER_INPUTS
    assert unbounded == (set(REMEDIES) | set(UNBOUNDED)) & unbounded, "no bound, and no reason"
    assert unbounded >= set(UNBOUNDED), "there is a bound: leave the reason out"
    for op in unbounded:
        assert refused[op].endswith(REMEDIES.get(op, ENSURED)), refused[op]
    assert {op for op in OTHER_INPUTS if op in AT_MOST or op in GROWING} == OTHER_INPUTS


def test_what_is_not_tried_takes_functions_or_references(calls) -> None:
    """Other ops that take none of the inputs that are tried are listed."""
    odd = {
        op.name
        for op in calls[1]
        if not any(attr.type in ("func", "list(func)") for attr in op.attr)
        and not any(arg.is_ref for arg in (*op.input_arg, *op.output_arg))
    }
    assert odd == UNTRIED
