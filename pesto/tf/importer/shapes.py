"""Static shapes: inferred by TensorFlow, with a batch size put in for the feeds' open dimension when one is given.

Rules of this module give the shapes of what queues, lookup tables and tensor lists hold, which the ops that make these
state; and a remedy, by op type, for an output that has neither a size nor a bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from pesto.core.files.json import shown
from pesto.core.source import feed_shapes, origin_of, output_of
from pesto.tf.importer.branch_shapes import FunctionShapes, find_pass_through
from pesto.tf.importer.size_inference import Special, check_stated, infer_bounds, infer_open_shapes
from pesto.tf.importer.size_rules import AT_MOST, DATA_DEPENDENT, EXACT
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import TRAVELS_NOT, Shape, StepNodes, is_known, parse_nodes, producer, shape_from
from pesto.tf.nodes.shape_inference import fix_open_batch, has_open_batch
from pesto.tf.nodes.trip_counts import LOOPS, scalar_constant
from pesto.tf.nodes.v1_loops import find_outermost_loops
from pesto.tf.placement_refusals import OpenSizeError, refuse_ragged_feeds
from pesto.tf.variables.variables import BRANCHES, find_resource_origins

_PASSES = frozenset(("Enter", "RefEnter", "Identity", "RefIdentity", "Switch", "RefSwitch", "Merge", "RefMerge"))
"""Ops that hand on a queue or a table."""
_QUEUES = frozenset(
    f"{kind}{version}" for kind in ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue") for version in ("", "V2")
)
_TABLES = frozenset(f"{kind}{version}" for kind in ("HashTable", "MutableHashTable") for version in ("", "V2"))
_TABLES_OF_TENSORS = frozenset(("MutableHashTableOfTensors", "MutableHashTableOfTensorsV2"))
_LIST_PASSES = ("Identity", "StopGradient", "ZerosLike")
"""Ops that make a list of as many elements as their input."""
_LIST_SUMS = ("Add", "AddV2", "AddN")
"""Ops that add lists, all of which have as many elements."""
_LIST_DEPTH = 64
"""Ops that a list is followed back through."""
_AXES = "BroadcastGradientArgs"
"""Gives the axes to sum over, of which there are at most as many as the inputs have; too few bytes to warn of."""


def resolve_shapes(captured: CapturedStep, batch: int | None) -> StepNodes:
    """Return the nodes of the step, with the shape of every tensor that travels, or an upper bound of it.

    With `batch` the unknown first dimension of feeds becomes that, and TensorFlow infers the rest anew. Where a size
    depends on the data (`Unique`, `Where`) it has an upper bound, by inference or as the user gives it. Raise
    InputError naming the first op whose output has neither, and for a shape that contradicts what is inferred.
    """
    graph_def = captured.graph_def
    if batch is not None and has_open_batch(graph_def):
        graph_def = fix_open_batch(graph_def, batch)
    stated = feed_shapes(captured.feed_shapes)
    nodes = bound_shapes(graph_def, captured.fetches, stated=stated)
    for (i, k), sizes in _read_stated(nodes, stated).items():
        check_stated(nodes.defs[i].name, k, sizes, nodes.shapes[i][k])
    refuse_ragged_feeds(captured.graph_def, {node.name for node in nodes.defs}, captured.source)
    unsized = list(_find_open_outputs(nodes))
    if unsized:
        raise _make_unsized_error(captured, nodes, batch, unsized)
    return nodes


def bound_shapes(
    graph_def: Any,
    fetches: Sequence[str],
    functions: FunctionShapes | None = None,
    stated: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> StepNodes:
    """Return the nodes that `fetches` need, with upper bounds of sizes that depend on the data; others stay open.

    Bounds are inferred after all that can be known without them, and kept apart, so that none becomes a shape.
    functions: what is known already of the bodies of loops and branches. stated: the largest shapes of outputs by
    their names, as the user gives them.
    """
    nodes, functions = parse_nodes(graph_def, fetches), functions or FunctionShapes(bound_shapes)
    # Output of a loop -> the variable handle that it hands on, as only the handle itself tells TensorFlow the shape.
    root = find_resource_origins(nodes)
    past_loops = {
        (i, k): (root[i][k], 0)
        for i, node in enumerate(nodes.defs)
        if node.op in LOOPS
        for k in range(len(nodes.dtypes[i]))
        if root[i][k] >= 0
    }
    handles = past_loops | find_pass_through(nodes)
    if _find_open_outputs_but_axes(nodes):
        known_values = {
            **GIVEN,
            **dict.fromkeys(BRANCHES, functions.known_of_branch),
            **dict.fromkeys(LOOPS, functions.known_of_loop),
        }
        nodes = replace(nodes, shapes=infer_open_shapes(nodes, EXACT, known_values, handles))
    bounds: Mapping[tuple[int, int], tuple[int, ...]] = {}
    if _find_open_outputs_but_axes(nodes):
        limited = {
            **GIVEN_AT_MOST,
            **dict.fromkeys(BRANCHES, functions.bounds_of_branch),
            **dict.fromkeys(LOOPS, functions.bounds_of_loop),
        }
        bounds, unlimited = infer_bounds(nodes, AT_MOST, limited, handles, _read_stated(nodes, stated))
        nodes = replace(nodes, unlimited=unlimited)
    nodes = replace(nodes, bounds=bounds)
    axes = {
        (i, k): (source[0] or ())[:1]
        for i, node in enumerate(nodes.defs)
        if node.op == _AXES and (source := nodes.input_upper_bounds(i)) and is_known(source[0])
        for k, shape in enumerate(nodes.shapes[i])
        if not is_known(shape)
    }
    return replace(nodes, bounds=axes | dict(bounds))


def find_data_sized_ops(nodes: StepNodes) -> list[int]:
    """Return the ops whose own output sizes depend on the data and have upper bounds; those of their readers follow."""
    if not nodes.bounds:
        return []
    open_ = _find_open_outputs_but_axes(replace(nodes, bounds={}))
    kinds = BRANCHES | set(DATA_DEPENDENT)
    return sorted({i for i, k in open_ if (i, k) in nodes.bounds and nodes.defs[i].op in kinds})


def _find_open_outputs_but_axes(nodes: StepNodes) -> list[tuple[int, int]]:
    return [(i, k) for i, k in _find_open_outputs(nodes) if nodes.defs[i].op != _AXES]


def _find_open_outputs(nodes: StepNodes) -> Iterator[tuple[int, int]]:
    """Yield (node, output) of every tensor that travels and has no known size, in topological order."""
    read: list[set[int]] = [set() for _ in nodes.defs]
    loop = find_outermost_loops(nodes).tolist()
    for i, inputs in enumerate(nodes.inputs):
        for p, k in inputs:
            if loop[p] < 0 or loop[p] != loop[i]:  # what stays within a folded loop does not travel
                read[p].add(k)
    for i, outputs in enumerate(read):
        for k in sorted(outputs):
            if nodes.dtypes[i][k] not in TRAVELS_NOT and not is_known(nodes.upper_bound(i, k)):
                yield i, k


def _read_stated(nodes: StepNodes, shapes: Mapping[str, tuple[int, ...]]) -> dict[tuple[int, int], tuple[int, ...]]:
    """(node, output) -> the shape that is given for it, of all but feeds, whose shapes the graph has."""
    place = {node.name: i for i, node in enumerate(nodes.defs)} if shapes else {}
    named = ((*output_of(name), sizes) for name, sizes in shapes.items())
    return {(place[op], k): sizes for op, k, sizes in named if op in place and not _is_feed(nodes, place[op])}


def _is_feed(nodes: StepNodes, i: int) -> bool:
    return nodes.defs[i].op.startswith("Placeholder") or "Iterator" in nodes.defs[i].op


def _find_maker(nodes: StepNodes, i: int) -> Any:
    """Return the node that makes the queue or table that node `i` takes, as far as it can be followed back."""
    producer = nodes.inputs[i][0][0]
    for _ in nodes.defs:
        if nodes.defs[producer].op not in _PASSES:
            break
        producer = nodes.inputs[producer][0][0]
    return nodes.defs[producer]


def _find_queue_element(nodes: StepNodes, i: int) -> dict[int, Shape]:
    """Return the shapes of one element of a queue; none where its maker does not state them."""
    maker = _find_maker(nodes, i)
    stated = maker.attr["shapes"].list.shape if maker.op in _QUEUES else ()
    return {k: shape_from(shape) for k, shape in enumerate(stated)}


def _stack_queue_elements(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return shapes with as many elements as a constant says; a queue may give fewer to QueueDequeueUpTo."""
    many = nodes.defs[nodes.inputs[i][1][0]]
    if many.op != "Const":
        return {}
    count = int(tf.make_ndarray(many.attr["value"].tensor))
    return {k: None if shape is None else (count, *shape) for k, shape in _find_queue_element(nodes, i).items()}


def _find_table_values(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return the shape of the values of a table: one for each key."""
    maker, keys = _find_maker(nodes, i), nodes.input_shapes(i)[1]
    if keys is None or maker.op not in _TABLES | _TABLES_OF_TENSORS:
        return {}
    value = shape_from(maker.attr["value_shape"].shape) if maker.op in _TABLES_OF_TENSORS else ()
    return {} if value is None else {0: (*keys, *value)}


def _stack_list(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return the shape of a TensorListStack, or its bound: as many rows as the list has elements."""
    shape = nodes.shapes[i][0]
    number = None if not shape else _find_list_length(nodes, nodes.inputs[i][0], _LIST_DEPTH)
    return {} if number is None or not shape or shape[0] >= 0 else {0: (number, *shape[1:])}


def _find_list_length(nodes: StepNodes, tensor: tuple[int, int], depth: int) -> int | None:
    """Return how many elements a list has; None where the op that made it does not say, or a loop changes it."""
    i, k = tensor
    node, inputs = nodes.defs[i], nodes.inputs[i]
    source, length = None, None
    if node.op in LOOPS:
        body = nodes.signatures.library.get(node.attr["body"].func.name)
        source = inputs[k] if body is not None and _keeps_length(body, k) else None
    elif node.op in (*_LIST_PASSES, *_LIST_SUMS) or _sets_in_place(node):
        source = inputs[0]
    elif node.op == "TensorListFromTensor":
        shape = nodes.input_upper_bounds(i)[0]
        length = shape[0] if shape else None
    elif node.op == "TensorListReserve":
        number, _ = inputs[1]
        if nodes.defs[number].op == "TensorListLength":
            source = nodes.inputs[number][0]
        else:
            length = scalar_constant(nodes.defs[number])
    if source is not None:
        return _find_list_length(nodes, source, depth - 1) if depth else None
    return length if length is not None and length >= 0 else None


def _sets_in_place(node: Any) -> bool:
    """Return True for an op that puts in one element of a list, which has as many as before."""
    return bool(node.op == "TensorListSetItem" and not node.attr["resize_if_index_out_of_bounds"].b)


def _keeps_length(body: Any, k: int) -> bool:
    """Return True if the list that a loop's body returns as result `k` is its argument `k`, elements apart."""
    inside = {node.name: node for node in body.node_def}
    texts, visited = [body.ret[body.signature.output_arg[k].name]], set[str]()
    while texts:
        text = texts.pop()
        if text == body.signature.input_arg[k].name:
            return True
        node = inside.get(producer(text.partition(":")[0]))
        if node is None or node.name in visited:
            continue
        visited.add(node.name)
        if node.op in _LIST_SUMS:
            texts += [input_name for input_name in node.input if not input_name.startswith("^")]
        elif node.op in _LIST_PASSES or _sets_in_place(node):
            texts.append(node.input[0])
    return False


GIVEN: Special = {
    **dict.fromkeys(("QueueDequeue", "QueueDequeueV2"), _find_queue_element),
    **dict.fromkeys(("QueueDequeueMany", "QueueDequeueManyV2"), _stack_queue_elements),
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2"), _find_table_values),
    "TensorListStack": _stack_list,
}
"""Op type -> rule for exact shapes, which hold whatever the data are."""

GIVEN_AT_MOST: Special = {
    **dict.fromkeys(("QueueDequeueUpTo", "QueueDequeueUpToV2"), _stack_queue_elements),
    "TensorListStack": _stack_list,
}
"""Op type -> rule for upper bounds of shapes."""

ENSURED = (
    "if it always has the same size, state that right behind the op: tf.ensure_shape(output, [...]) with every "
    "dimension; else pad what the op makes to one size, or do it before the step"
)
"""Remedy that fits any op whose output has neither a size nor a bound."""

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
    **dict.fromkeys(
        (
            "DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodeJxl", "DecodePng",
            "DecodeWebP",
        ),
        "decode images in the input pipeline (dataset.map), and resize them there to one size by tf.image.resize",
    ),
    "DecodeWav": "give tf.audio.decode_wav desired_samples and desired_channels",
    "DecodeRaw": "give tf.io.decode_raw a fixed_length",
    **dict.fromkeys(
        (
            "DecodeProtoV2", "DeserializeManySparse", "DeserializeSparse", "ParseExample", "ParseExampleV2",
            "ParseSequenceExample", "ParseSequenceExampleV2", "ParseSingleExample", "ParseSingleSequenceExample",
            "ParseTensor",
        ),
        "parse in the input pipeline (dataset.map), or state its sizes right behind it by "
        "tf.ensure_shape(output, [...])",
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
            "BatchToSpace", "BatchToSpaceND", "Concat", "ConcatV2", "ConjugateTranspose", "ExpandDims",
            "FusedPadConv2D", "FusedResizeAndPadConv2D", "GatherV2", "MatrixDiagPartV2", "MatrixDiagPartV3",
            "MatrixDiagV2", "MatrixDiagV3", "SpaceToBatch", "SpaceToBatchND", "Split", "Transpose", "ArgMax", "ArgMin",
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
}  # fmt: skip
"""Op type -> remedy for a size that depends on the data."""


def _make_unsized_error(
    captured: CapturedStep, nodes: StepNodes, batch: int | None, unsized: list[tuple[int, int]]
) -> OpenSizeError:
    """Make the error for the first feed, else op, of those whose outputs have neither a size nor a bound."""
    source = captured.source
    feeds = [output for output in unsized if _is_feed(nodes, output[0])]
    i, k = (feeds or unsized)[0]
    cause, sized = (i, (i, k)) if nodes.unlimited is None else nodes.unlimited((i, k))
    if _is_feed(nodes, cause) and not is_known(nodes.upper_bound(cause, 0)):
        # such as one of strings, whose own bytes nobody asks for
        feeds, i, k = [(cause, 0)], cause, 0
    shape = nodes.upper_bound(i, k)
    text = "of unknown rank" if shape is None else f"[{', '.join('?' if d < 0 else str(d) for d in shape)}]"
    what = f"{source}: output {k} of op {shown(nodes.defs[i].name)} ({nodes.defs[i].op}) is {text}"
    if feeds:
        remedy = _make_feed_remedy(_format_stated_shape(source, nodes, (i, k)), shape, batch)
        batch_clause = "" if batch is None else f" even with batch {batch}"
        return OpenSizeError.build(f"{what}{batch_clause}, so its bytes are unknown", remedy=remedy)
    of = "" if cause == i else f" through op {shown(nodes.defs[cause].name)} ({nodes.defs[cause].op})"
    stated_shape, kind = _format_stated_shape(source, nodes, sized), nodes.defs[i].op
    if stated_shape and origin_of(source).from_file:
        remedy = f"give the largest that it can have ({stated_shape})"
    else:
        remedy = REMEDIES.get(kind, ENSURED)
        if cause != i and kind not in REMEDIES:
            remedy = f"limit what that op makes by tf.minimum, or {remedy}"
        remedy += f"; or give the largest that it can have ({stated_shape})" if stated_shape else ""
    return OpenSizeError.build(
        f"its size depends on the data{of}, and nothing limits it, so its bytes are unknown", where=what, remedy=remedy
    )


def _format_stated_shape(source: str, nodes: StepNodes, output: tuple[int, int]) -> str:
    """Return the words that state the largest shape of an output, with N for what is open; none if none helps."""
    i, k = output
    shape, name = nodes.upper_bound(i, k), f"{nodes.defs[i].name}:{k}".removesuffix(":0")
    sizes = "16,40" if shape is None else ",".join("N" if n < 0 else str(n) for n in shape)
    return f"shape {shown(name)}={sizes}" if origin_of(source).takes_shapes else ""


def _make_feed_remedy(option: str, shape: Shape, batch: int | None) -> str:
    """Return the remedy for a feed of an open shape.

    option: text that states its shape, if any. batch: batch size that is set for first dimensions already, or None.
    """
    if shape is None:
        remedy = f"give its shape ({option})" if option else "give static shapes of the feeds"
        return f"{remedy}, or set it with tf.ensure_shape"
    if option:
        first_alone = batch is None and shape[0] < 0 and all(n >= 0 for n in shape[1:])
        number = " with a number for each N" if "N" in option.rpartition("=")[2] else ""
        return f"give {'a batch size (batch=32), or ' if first_alone else ''}its shape ({option}{number})"
    if batch is None:
        return "give a batch size (batch=32), or static shapes of the feeds"
    return (
        "fix every dimension of the feeds, the batch too (drop_remainder=True in the dataset, from_keras(static=True))"
    )
