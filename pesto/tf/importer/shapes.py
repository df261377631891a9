"""Static shapes: inferred by TensorFlow, with a batch size put in for the feeds' open dimension when one is given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.source import feed_shapes, origin_of, output_of
from pesto.tf.importer.branch_shapes import FunctionShapes, passed_through
from pesto.tf.importer.list_shapes import STACKED
from pesto.tf.importer.size_bounds import check_stated, inferred_bounds
from pesto.tf.importer.size_inference import Special, inferred_shapes
from pesto.tf.importer.size_remedies import feed_remedy, remedy_for, shape_to_give
from pesto.tf.importer.size_rules import AT_MOST, DATA_DEPENDENT, EXACT
from pesto.tf.nodes.batch_dimension import fix_open_batch, has_open_batch
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import StepNodes, parse_nodes
from pesto.tf.nodes.ragged_inputs import refuse_ragged_feeds
from pesto.tf.nodes.shape_inference import infer_shapes
from pesto.tf.nodes.signatures import TRAVELS_NOT
from pesto.tf.nodes.sizes import Shape, is_known, shape_from
from pesto.tf.nodes.trip_counts import LOOPS
from pesto.tf.nodes.v1_loops import outermost_loops
from pesto.tf.variables.function_effects import BRANCHES
from pesto.tf.variables.variables import resource_origins

# Shapes of what queues and lookup tables give, which the ops that make them state.

_PASSES = frozenset(("Enter", "RefEnter", "Identity", "RefIdentity", "Switch", "RefSwitch", "Merge", "RefMerge"))
_QUEUES = frozenset(
    f"{kind}{version}" for kind in ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue") for version in ("", "V2")
)
_TABLES = frozenset(f"{kind}{version}" for kind in ("HashTable", "MutableHashTable") for version in ("", "V2"))
_TABLES_OF_TENSORS = frozenset(("MutableHashTableOfTensors", "MutableHashTableOfTensorsV2"))


def _maker(nodes: StepNodes, i: int) -> Any:
    """Return the node that makes the queue or table that node `i` takes, as far as it can be followed back."""
    at = nodes.inputs[i][0][0]
    for _ in nodes.defs:
        if nodes.defs[at].op not in _PASSES:
            break
        at = nodes.inputs[at][0][0]
    return nodes.defs[at]


def _components(nodes: StepNodes, i: int) -> list[Shape]:
    """Return the shapes of one element of the queue; none where its maker does not state them."""
    maker = _maker(nodes, i)
    return [shape_from(shape) for shape in maker.attr["shapes"].list.shape] if maker.op in _QUEUES else []


def _element(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    return dict(enumerate(_components(nodes, i)))


def _elements(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return shapes with as many elements as a constant says; a queue may give fewer to QueueDequeueUpTo."""
    many = nodes.defs[nodes.inputs[i][1][0]]
    if many.op != "Const":
        return {}
    count = int(tf.make_ndarray(many.attr["value"].tensor))
    return {k: None if shape is None else (count, *shape) for k, shape in enumerate(_components(nodes, i))}


def _values(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return the shape of the values of a table: one for each key."""
    maker, keys = _maker(nodes, i), nodes.input_shapes(i)[1]
    if keys is None or maker.op not in _TABLES | _TABLES_OF_TENSORS:
        return {}
    value = shape_from(maker.attr["value_shape"].shape) if maker.op in _TABLES_OF_TENSORS else ()
    return {} if value is None else {0: (*keys, *value)}


GIVEN: Special = {
    **dict.fromkeys(("QueueDequeue", "QueueDequeueV2"), _element),
    **dict.fromkeys(("QueueDequeueMany", "QueueDequeueManyV2"), _elements),
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2"), _values),
}
"""Op type -> rule for exact shapes, which hold whatever the data are."""

GIVEN_AT_MOST: Special = dict.fromkeys(("QueueDequeueUpTo", "QueueDequeueUpToV2"), _elements)
"""Op type -> rule for upper bounds of shapes."""


__all__ = ["bounded_nodes", "data_sized", "infer_shapes", "known_nodes"]

_AXES = "BroadcastGradientArgs"
"""Gives the axes to sum over, of which there are at most as many as the inputs have; too few bytes to warn of."""


def known_nodes(captured: CapturedStep, batch: int | None) -> StepNodes:
    """The nodes of the step, with the shape of every tensor that travels, or an upper bound of it.

    With `batch` the unknown first dimension of feeds becomes that, and TensorFlow infers the rest anew. Where a size
    depends on the data (`Unique`, `Where`) it has an upper bound, by inference or as the user gives it. InputError
    naming the first op whose output has neither, with the remedy, and for a shape that contradicts what is inferred.
    """
    graph_def = captured.graph_def
    if batch is not None and has_open_batch(graph_def):
        graph_def = fix_open_batch(graph_def, batch)
    stated = feed_shapes(captured.feed_shapes)
    nodes = bounded_nodes(graph_def, captured.fetches, stated=stated)
    for (i, k), sizes in _stated(nodes, stated).items():
        check_stated(nodes.defs[i].name, k, sizes, nodes.shapes[i][k])
    refuse_ragged_feeds(captured.graph_def, {node.name for node in nodes.defs}, captured.source)
    if any(_open(nodes)):
        raise _unknown(captured, nodes, batch)
    return nodes


def bounded_nodes(
    graph_def: Any,
    fetches: Sequence[str],
    functions: FunctionShapes | None = None,
    stated: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> StepNodes:
    """The nodes that `fetches` need, with upper bounds of sizes that depend on the data; what has none stays open.

    Bounds are inferred after all that can be known without them, and kept apart, so that none becomes a shape.
    functions: what is known already of the bodies of loops and branches. stated: the largest shapes of outputs by
    their names, as the user gives them.
    """
    nodes, functions = parse_nodes(graph_def, fetches), functions or FunctionShapes(bounded_nodes)
    # Output of a loop -> the variable handle that it hands on, as only the handle itself tells TensorFlow the shape.
    root = resource_origins(nodes)
    past_loops = {
        (i, k): (root[i][k], 0)
        for i, node in enumerate(nodes.defs)
        if node.op in LOOPS
        for k in range(len(nodes.dtypes[i]))
        if root[i][k] >= 0
    }
    handles = past_loops | passed_through(nodes)
    if _open_but_axes(nodes):
        known = {
            **GIVEN,
            **STACKED,
            **dict.fromkeys(BRANCHES, functions.known_of_branch),
            **dict.fromkeys(LOOPS, functions.known_of_loop),
        }
        nodes = replace(nodes, shapes=inferred_shapes(nodes, EXACT, known, handles))
    bounds: Mapping[tuple[int, int], tuple[int, ...]] = {}
    if _open_but_axes(nodes):
        limited = {
            **GIVEN_AT_MOST,
            **STACKED,
            **dict.fromkeys(BRANCHES, functions.bounds_of_branch),
            **dict.fromkeys(LOOPS, functions.bounds_of_loop),
        }
        bounds, unlimited = inferred_bounds(nodes, AT_MOST, limited, handles, _stated(nodes, stated))
        nodes = replace(nodes, unlimited=unlimited)
    return replace(nodes, bounds=_axes_bounds(replace(nodes, bounds=bounds)) | dict(bounds))


def data_sized(nodes: StepNodes) -> list[int]:
    """Return the ops whose own output sizes depend on the data and have upper bounds; those of their readers follow."""
    if not nodes.bounds:
        return []
    open_ = _open_but_axes(replace(nodes, bounds={}))
    kinds = BRANCHES | set(DATA_DEPENDENT)
    return sorted({i for i, k in open_ if (i, k) in nodes.bounds and nodes.defs[i].op in kinds})


def _open_but_axes(nodes: StepNodes) -> list[tuple[int, int]]:
    return [(i, k) for i, k in _open(nodes) if nodes.defs[i].op != _AXES]


def _axes_bounds(nodes: StepNodes) -> dict[tuple[int, int], tuple[int, ...]]:
    """Upper bounds of how many axes there are to sum over."""
    return {
        (i, k): source[0][:1]
        for i, node in enumerate(nodes.defs)
        if node.op == _AXES
        and (source := nodes.input_upper_bounds(i))
        and source[0] is not None
        and is_known(source[0])
        for k, shape in enumerate(nodes.shapes[i])
        if not is_known(shape)
    }


def _open(nodes: StepNodes) -> Iterator[tuple[int, int]]:
    """(node, output) of every tensor that travels and has no known size, in topological order."""
    read: list[set[int]] = [set() for _ in nodes.defs]
    loop = outermost_loops(nodes).tolist()
    for i, inputs in enumerate(nodes.inputs):
        for p, k in inputs:
            if loop[p] < 0 or loop[p] != loop[i]:  # what stays within a folded loop does not travel
                read[p].add(k)
    for i, outputs in enumerate(read):
        for k in sorted(outputs):
            if nodes.dtypes[i][k] not in TRAVELS_NOT and not is_known(nodes.upper_bound(i, k)):
                yield i, k


def _stated(nodes: StepNodes, shapes: Mapping[str, tuple[int, ...]]) -> dict[tuple[int, int], tuple[int, ...]]:
    """(node, output) -> the shape that is given for it, of all but feeds, whose shapes the graph has."""
    place = {node.name: i for i, node in enumerate(nodes.defs)} if shapes else {}
    named = ((*output_of(name), sizes) for name, sizes in shapes.items())
    return {(place[op], k): sizes for op, k, sizes in named if op in place and not _is_feed(nodes, place[op])}


def _is_feed(nodes: StepNodes, i: int) -> bool:
    return nodes.defs[i].op.startswith("Placeholder") or "Iterator" in nodes.defs[i].op


def _unknown(captured: CapturedStep, nodes: StepNodes, batch: int | None) -> InputError:
    unsized = list(_open(nodes))
    feeds = [at for at in unsized if _is_feed(nodes, at[0])]
    i, k = (feeds or unsized)[0]
    cause, sized = (i, (i, k)) if nodes.unlimited is None else nodes.unlimited((i, k))
    if _is_feed(nodes, cause) and not is_known(nodes.upper_bound(cause, 0)):
        # such as one of strings, whose own bytes nobody asks for
        feeds, i, k = [(cause, 0)], cause, 0
    shape = nodes.upper_bound(i, k)
    text = "of unknown rank" if shape is None else f"[{', '.join('?' if d < 0 else str(d) for d in shape)}]"
    what = f"{captured.source}: output {k} of op {shown(nodes.defs[i].name)} ({nodes.defs[i].op}) is {text}"
    if not feeds:
        of = "" if cause == i else f" through op {shown(nodes.defs[cause].name)} ({nodes.defs[cause].op})"
        why = f"its size depends on the data{of}, and nothing limits it, so its bytes are unknown"
        name = f"{nodes.defs[sized[0]].name}:{sized[1]}".removesuffix(":0")
        given = shape_to_give(captured.source, name, nodes.upper_bound(*sized))
        remedy = remedy_for(
            nodes.defs[i].op, given, program=not origin_of(captured.source).from_file, through=cause != i
        )
        return InputError.build(f"{why}", where=what, remedy=remedy)
    name = f"{nodes.defs[i].name}:{k}".removesuffix(":0")
    remedy = feed_remedy(shape_to_give(captured.source, name, shape), shape, batch)
    return InputError.build(
        f"{what}{'' if batch is None else f' even with batch {batch}'}, so its bytes are unknown", remedy=remedy
    )
