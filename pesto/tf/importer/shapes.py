"""Static shapes: inferred by TensorFlow, with a batch size put in for the feeds' open dimension when one is given."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pesto.errors import InputError
from pesto.files.json import shown
from pesto.tf.importer.branch_shapes import Branches, handed_on
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.frames import closes_loop, outermost
from pesto.tf.nodes.inference import copied, infer, learn
from pesto.tf.nodes.needed_nodes import Nodes, parse
from pesto.tf.nodes.open_inputs import refuse_fed
from pesto.tf.nodes.openbatch import closed, has_open_batch
from pesto.tf.nodes.signatures import TRAVELS_NOT
from pesto.tf.nodes.sizes import KnownShape, Shape, is_known
from pesto.tf.nodes.trips import LOOPS
from pesto.tf.variables.function_effects import BRANCHES
from pesto.tf.variables.variables import roots

__all__ = ["bounded", "infer", "known_nodes"]

_ROUNDS = 8
_ENTERS = ("Enter", "RefEnter", "Merge", "RefMerge")
_AXES = "BroadcastGradientArgs"
"""Gives the axes to sum over, of which there are at most as many as the inputs have; too few bytes to warn of."""

_log = logging.getLogger("pesto")


def known_nodes(captured: Captured, batch: int | None) -> Nodes:
    """The nodes of the step, with the shape of every tensor that travels, or an upper bound of it.

    With `batch` the unknown first dimension of feeds becomes that, and TensorFlow infers the rest anew. Where a size
    depends on the data (`Unique`, `Where`) it has an upper bound, with a warning. InputError naming the first op
    whose output has neither, with the remedy.
    """
    graph_def = captured.graph_def
    if batch is not None and has_open_batch(graph_def):
        graph_def = closed(graph_def, batch)
    nodes = bounded(graph_def, captured.fetches)
    refuse_fed(captured.graph_def, {node.name for node in nodes.defs}, captured.source)
    if any(_open(nodes)):
        raise _unknown(captured, nodes, batch)
    return nodes


def bounded(graph_def: Any, fetches: Sequence[str]) -> Nodes:
    """The nodes that `fetches` need, with upper bounds of sizes that depend on the data; what has none stays open.

    Bounds are inferred in a graph of their own, after all that can be known without them, so that none becomes a shape.
    """
    branches = Branches(bounded)
    graph_def, nodes = _inferred(graph_def, fetches, lambda nodes, open_: _proven(nodes, open_, branches))
    if all(nodes.defs[i].op == _AXES for i, _ in _open(nodes)):
        return replace(nodes, bounds=_axes_bounds(nodes))
    _, upper = _inferred(graph_def, fetches, lambda nodes, open_: _bounds(nodes, open_, branches), warn=True)
    bounds = {
        (i, k): shape
        for i, shapes in enumerate(upper.shapes)
        for k, shape in enumerate(shapes)
        if shape is not None and is_known(shape) and not is_known(nodes.shapes[i][k])
    }
    return replace(nodes, bounds=bounds | _axes_bounds(upper))


Rule = Callable[[Nodes, list[tuple[int, int]]], Iterator[tuple[tuple[str, int], tuple[int, ...]]]]
"""From nodes and their open outputs to shapes of outputs, by (name, output)."""


def _inferred(graph_def: Any, fetches: Sequence[str], rule: Rule, *, warn: bool = False) -> tuple[Any, Nodes]:
    """The GraphDef and its nodes once `rule` has closed what it can, and TensorFlow has inferred what follows."""
    nodes = parse(graph_def, fetches)
    handles = _past_loops(nodes) | handed_on(nodes)
    shapes: dict[tuple[str, int], tuple[int, ...]] = {}
    for tried in range(_ROUNDS):
        open_ = [(i, k) for i, k in _open(nodes) if nodes.defs[i].op != _AXES]
        new = {k: v for k, v in rule(nodes, open_) if k not in shapes} if open_ else {}
        if not open_ or (not new and (tried or not handles)):
            break
        if warn:
            _warn(nodes, new)
        shapes |= new
        graph_def = _take_shapes(graph_def, infer(_bounded(graph_def, shapes, handles)), shapes)
        nodes = parse(graph_def, fetches)
    return graph_def, nodes


def _axes_bounds(nodes: Nodes) -> dict[tuple[int, int], tuple[int, ...]]:
    """Upper bounds of how many axes there are to sum over."""
    return {
        (i, k): source[0][:1]
        for i, node in enumerate(nodes.defs)
        if node.op == _AXES and (source := nodes.input_shapes(i)) and source[0] is not None and is_known(source[0])
        for k, shape in enumerate(nodes.shapes[i])
        if not is_known(shape)
    }


def _open(nodes: Nodes) -> Iterator[tuple[int, int]]:
    """(node, output) of every tensor that travels and has no known size, in topological order."""
    read: list[set[int]] = [set() for _ in nodes.defs]
    loop = outermost(nodes).tolist()
    for i, inputs in enumerate(nodes.inputs):
        for p, k in inputs:
            if loop[p] < 0 or loop[p] != loop[i]:  # what stays within a folded loop does not travel
                read[p].add(k)
    for i, outputs in enumerate(read):
        for k in sorted(outputs):
            if nodes.dtypes[i][k] not in TRAVELS_NOT and not is_known(nodes.upper_bound(i, k)):
                yield i, k


def _entering(nodes: Nodes) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
    """Shapes of what goes round v1 loops."""
    for i, node in enumerate(nodes.defs):
        if node.op in _ENTERS and nodes.dtypes[i][0] not in TRAVELS_NOT and not is_known(nodes.shapes[i][0]):
            shape = _entered(nodes, i)
            if is_known(shape):
                yield (node.name, 0), shape or ()


def _proven(
    nodes: Nodes, open_: list[tuple[int, int]], branches: Branches
) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
    """Shapes that hold whatever the data are."""
    yield from _entering(nodes)
    for i, k in open_:
        if nodes.defs[i].op in BRANCHES and isinstance(size := branches.size(nodes, i, k), KnownShape):
            yield (nodes.defs[i].name, k), size.extents


def _bounds(
    nodes: Nodes, open_: list[tuple[int, int]], branches: Branches
) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
    """Upper bounds of shapes; `nodes` has those found before in place of shapes."""
    yield from _entering(nodes)
    for i, k in open_:
        if nodes.defs[i].op in BRANCHES:
            shape = branches.upper_bound(nodes, i, k)
            if shape is not None:
                yield (nodes.defs[i].name, k), shape
        rule = _AT_MOST.get(nodes.defs[i].op)
        if rule is None:
            continue
        source = nodes.input_shapes(i)
        if source and is_known(source[0]):
            shape = rule(source[0] or (), k)
            if shape is not None:
                yield (nodes.defs[i].name, k), shape


def _warn(nodes: Nodes, found: Mapping[tuple[str, int], tuple[int, ...]]) -> None:
    types = {node.name: node.op for node in nodes.defs}
    for name in dict.fromkeys(name for name, _ in found if types[name] not in _ENTERS):
        what = "a bound without what its branches search for" if types[name] in BRANCHES else "its upper bound"
        _log.warning("op %s: the size of its output depends on the data; %s is assumed", shown(name), what)


def _entered(nodes: Nodes, i: int) -> Shape:
    """What goes round a v1 loop keeps the shape with which it entered: Python checks that, a GraphDef forgets it."""
    if nodes.defs[i].op in _ENTERS[2:]:
        before = [p for p, _ in nodes.inputs[i] if not closes_loop(nodes, p, i)]
        if len(before) == len(nodes.inputs[i]) or not before or nodes.defs[before[0]].op not in _ENTERS[:2]:
            return None
        i = before[0]
    p, k = nodes.inputs[i][0]
    return nodes.shapes[p][k]


def _longest(source: tuple[int, ...], k: int) -> tuple[int, ...] | None:
    return (math.prod(source),) if k in (0, 2) else None


def _coordinates(source: tuple[int, ...], _k: int) -> tuple[int, ...]:
    return (math.prod(source), len(source))


def _rows(source: tuple[int, ...], _k: int) -> tuple[int, ...]:
    return source


def _axes(source: tuple[int, ...], _k: int) -> tuple[int, ...]:
    return source[:1]


_AT_MOST: Mapping[str, Callable[[tuple[int, ...], int], tuple[int, ...] | None]] = {
    **dict.fromkeys(("Unique", "UniqueWithCounts"), _longest),
    **dict.fromkeys(("ListDiff", "SetDiff1D"), _axes),
    "Where": _coordinates,
    "DynamicPartition": _rows,
}
"""Upper bounds of outputs whose size depends on the data, from the shape of the first input."""


def _past_loops(nodes: Nodes) -> dict[str, str]:
    """Loop output -> variable handle that it hands on; only the handle itself tells TensorFlow the shape."""
    root = roots(nodes)
    return {
        f"{node.name}:{k}": nodes.defs[root[i][k]].name
        for i, node in enumerate(nodes.defs)
        if node.op in LOOPS
        for k in range(len(nodes.dtypes[i]))
        if root[i][k] >= 0
    }


def _bounded(graph_def: Any, bounds: Mapping[tuple[str, int], tuple[int, ...]], handles: Mapping[str, str]) -> Any:
    """A copy in which every bounded tensor is read through an EnsureShape, so that inference goes on behind it.

    Handles are read past loops.
    """
    copy = copied(graph_def)
    by_name = {node.name: node for node in graph_def.node}
    lead = dict(handles)
    for number, ((name, k), shape) in enumerate(bounds.items()):
        node = copy.node.add(name=f"pesto_bound_{number}", op="EnsureShape", input=[f"{name}:{k}"])
        node.attr["T"].type = _type(by_name[name], k)
        node.attr["shape"].shape.SetInParent()  # a scalar has no dimension that would
        for size in shape:
            node.attr["shape"].shape.dim.add(size=size)
        lead[f"{name}:{k}"] = node.name
    for node in copy.node[: len(graph_def.node)]:
        node.input[:] = [lead.get(t if ":" in t else f"{t}:0", t) for t in node.input]
    return copy


def _type(node: Any, k: int) -> int:
    """Data type number of output `k` of an op that has a bound."""
    if node.op in BRANCHES:
        return int(node.attr["Tout"].list.type[k])
    index = "out_idx" if k and node.op.startswith(("Unique", "ListDiff")) else "T"
    return int(tf.int64.as_datatype_enum if node.op == "Where" else node.attr[index].type)


def _take_shapes(graph_def: Any, inferred: Any, bounds: Mapping[tuple[str, int], tuple[int, ...]]) -> Any:
    """`graph_def` with the shapes of `inferred` where it knew none, and the bounds for the bounded tensors.

    What it knew stays: `set_shape` and the shapes behind captured handles are in no GraphDef.
    """
    graph_def = copied(graph_def)
    learn(graph_def, inferred)
    by_name = {node.name: node for node in graph_def.node}
    for (name, k), sizes in bounds.items():
        shape = by_name[name].attr["_output_shapes"].list.shape[k]
        shape.Clear()
        for size in sizes:
            shape.dim.add(size=size)
    return graph_def


def _unknown(captured: Captured, nodes: Nodes, batch: int | None) -> InputError:
    i, k = next(_open(nodes))
    shape = nodes.upper_bound(i, k)
    text = "of unknown rank" if shape is None else f"[{', '.join('?' if d < 0 else str(d) for d in shape)}]"
    if shape is None:
        remedy = "give the feeds static shapes, or set its shape with tf.ensure_shape"
    elif batch is None:
        remedy = "give a batch size (batch=32), or static shapes"
    else:
        remedy = (
            "fix every dimension of the feeds, the batch too (drop_remainder=True in the dataset, static=True in "
            "from_keras)"
        )
    what = f"{captured.source}: output {k} of op {shown(nodes.defs[i].name)} ({nodes.defs[i].op}) is {text}"
    return InputError(
        f"{what}{'' if batch is None else f' even with batch {batch}'}, so its bytes are unknown - {remedy}"
    )
