"""Every op that TensorFlow registers, where closed inputs leave a size open, has a bound, or a reason and a remedy."""

import re

import pytest

from pesto.core.errors import InputError
from pesto.core.source import file_source
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.importer.shapes import (  # noqa: E402
    ENSURED,
    REMEDIES,
    resolve_shapes,
)
from pesto.tf.importer.size_rules import AT_MOST, GROWING  # noqa: E402
from pesto.tf.nodes.captured import CapturedStep, set_feed_shapes  # noqa: E402
from tests.oracles.registered_op_calls import CALLS, stand_in  # noqa: E402
from tests.oracles.registered_ops import (  # noqa: E402
    LIMIT,
    Builder,
    closed_call,
    is_open,
    registered,
    travelling,
)

pytestmark = pytest.mark.slow

OTHER_SYSTEMS = {
    "BoostedTrees": "grow decision trees, on CPUs",
    "DTensor": "place tensors on a mesh of their own",
    "Experimental": "older names of ops of datasets, which work before the step",
    "Risc": "have no kernels",
    "Sdca": "solve linear models on CPUs",
    "TPU": "are of TPUs",
    "Xla": "are of programs that XLA compiles, which are refused as a whole",
}
"""Beginnings of ops that are not tried -> why no training step on CPUs and GPUs has them; some crash when tried."""
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
            "AddManySparseToTensorsMap", "CSRSparseMatrixComponents", "CSRSparseMatrixToSparseTensor",
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
            "QuantizedReshape", "SortListOfSparseCoreCooTensors",
        ),
        "no part of a training step on GPUs",
    ),
    **dict.fromkeys(("RaggedBincount", "SparseBincount"), "its number of rows is a value of the data"),
    "RaggedCross": "rows of any length are combined",
    "RaggedGather": "rows of any length may be repeated",
    **dict.fromkeys(
        ("SparseReduceMax", "SparseReduceMaxSparse", "SparseReduceSum", "SparseReduceSumSparse"),
        "its axes are values, and nothing tells its rank",
    ),
}  # fmt: skip
"""Op -> why it has neither a bound nor a remedy of its own; the remedy is to state its size."""


@pytest.fixture(scope="module")
def calls():
    """The ops that leave a size open, with the inputs for which they do; and those that were not tried."""
    builder, open_, untried = Builder(), [], []
    for op in registered():
        if not op.name.startswith(tuple(OTHER_SYSTEMS)) and "TPU" not in op.name and op.name not in CRASHES:
            call = closed_call(builder, op)
            if call is None:
                untried.append(op)
            elif is_open(builder, call):
                open_.append(call)
    return open_, untried


def refusal(call, source="step", shapes=None):
    """What planning says to the op, where its numbers are between 1 and 4; empty where its sizes are bounded.

    shapes: the largest shapes that its user gives.
    """
    with tf.Graph().as_default() as graph:
        given = [stand_in(t, shape) for t, shape in zip(call.dtypes, call.shapes, strict=True)]
        limited = [tf.clip_by_value(x, 1, LIMIT) if x.dtype in (tf.float32, tf.int32, tf.int64) else x for x in given]
        op = graph.create_op(call.op, limited, [tf.as_dtype(t) for t in call.made], attrs=call.attrs, name="tested")
        fetched = tuple(tf.identity(op.outputs[k]).op.name for k in travelling(call))
        captured = CapturedStep(graph_def=graph.as_graph_def(add_shapes=True), fetches=fetched, source=source)
    try:
        resolve_shapes(set_feed_shapes(captured, shapes or {}), None)
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


def test_who_has_a_file_alone_can_state_the_size_of_every_op(calls) -> None:
    """What is asked for is given, until the op is planned: once for each output at most. A placeholder is a feed."""
    tried = 0
    for call in calls[0]:
        if call.op == "Placeholder":
            continue
        shapes, said = {}, refusal(call, file_source("step.pb"))
        while said and len(shapes) < len(call.made) + 2:
            name, sizes = re.search(r" - give the largest that it can have \(shape (\S+)=(\S*)\)$", said).groups()
            assert name not in shapes, (call.op, said)
            shapes[name] = tuple(int(n) for n in sizes.replace("N", str(LIMIT)).split(",") if n)
            said = refusal(call, file_source("step.pb"), shapes)
        assert not said, (call.op, shapes)
        tried += bool(shapes)
    assert tried > len(UNBOUNDED)


def test_what_is_not_tried_takes_functions_or_references(calls) -> None:
    """Every other op takes the inputs that are tried, or those of its own in `CALLS`."""
    odd = {
        op.name
        for op in calls[1]
        if not any(attr.type in ("func", "list(func)") for attr in op.attr)
        and not any(arg.is_ref for arg in (*op.input_arg, *op.output_arg))
    }
    assert not odd
    assert set(CALLS) <= {op.name for op in registered()}
