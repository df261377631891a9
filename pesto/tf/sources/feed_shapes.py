"""Shapes that a graph leaves open, given by the user: of feeds, and the largest of other ops."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.source import feed_shapes, output_of, written
from pesto.tf.nodes.batch_dimension import propagate_batch
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import parse_nodes
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes
from pesto.tf.nodes.signatures import RESOURCE, VARIANT

_OPAQUE = (RESOURCE, VARIANT)


def set_feed_shapes(captured: CapturedStep, shapes: Mapping[str, tuple[int, ...]]) -> CapturedStep:
    """The step with these shapes of its feeds, and those that follow from them.

    Where all have one first size, that is the batch, also for what loops leave open.
    A feed is a placeholder, or an output of what reads an iterator (IteratorGetNext:1). A shape of any other op is the
    largest that it can have: `known_nodes` takes it as a bound where the op's size is open. InputError for a name of
    neither, and for a shape of a feed that contradicts the graph's own or another's.
    """
    if not shapes:
        return captured
    graph_def = copy_graph_def(captured.graph_def)
    feeds, fed = _feeds(graph_def), {}
    for name, sizes in shapes.items():
        shape = feeds.get(name.removesuffix(":0"))
        if shape is None:
            _check_output(captured, name, feeds)
            continue
        _fill(shape, sizes, f"{captured.source}: feed {shown(name)}")
        fed[name] = sizes
    if not fed:
        return replace(captured, feed_shapes=written(shapes))
    for node in graph_def.node:
        if node.op.startswith(("Placeholder", "IteratorGetNext")):
            node.attr.pop("_output_shapes", None)
    try:
        known = infer_shapes(graph_def)
    except InputError as error:
        why = error.__cause__ or error
        raise InputError.build(
            f"the shapes {', '.join(written(fed))} do not fit the graph: {shown(why)}",
            where=captured.source,
            remedy="give shapes that go together, of every feed whose size is that of another",
        ) from error
    batches = {sizes[0] for sizes in fed.values() if sizes}
    graph_def = propagate_batch(known, batches.pop()) if len(batches) == 1 else known
    return replace(captured, graph_def=graph_def, feed_shapes=written(shapes))


def _check_output(captured: CapturedStep, name: str, feeds: Collection[str]) -> None:
    """InputError unless a name is that of an output of an op of the step, such as Where or Unique:1."""
    nodes = parse_nodes(captured.graph_def, captured.fetches)
    place = {node.name: i for i, node in enumerate(nodes.defs)}
    op, number = output_of(name)
    if op not in place:
        own = ", ".join([shown(feed) for feed in feeds if output_of(feed)[0] in place][:8]) or "none"
        raise InputError.build(
            f"{shown(name)} is neither a feed nor an op of the step",
            where=captured.source,
            remedy=f"give the name of an op, or of one of its feeds: {own}",
        )
    types = nodes.dtypes[place[op]]
    if number >= len(types) or types[number] in _OPAQUE:
        sized = [f"{op}:{k}" if k else op for k, dtype in enumerate(types) if dtype not in _OPAQUE]
        raise InputError(
            f"{captured.source}: {shown(name)} is no tensor with a size - "
            + (f"op {shown(op)} has {', '.join(map(shown, sized[:8]))}" if sized else "leave its shape out")
        )


def use_planned_shapes(captured: CapturedStep, plan: Plan) -> CapturedStep:
    """The step with the shapes of feeds that the plan was made with; errors as of `set_feed_shapes`."""
    return set_feed_shapes(captured, feed_shapes(plan.feed_shapes))


def _feeds(graph_def: Any) -> dict[str, Any]:
    """The TensorShapeProto that declares each feed, by its name."""
    feeds = {}
    for node in graph_def.node:
        if node.op.startswith("Placeholder"):
            if "shape" not in node.attr:  # of graphs that are older than the attribute
                node.attr["shape"].shape.unknown_rank = True
            feeds[node.name] = node.attr["shape"].shape
        elif node.op.startswith("IteratorGetNext"):
            for k, shape in enumerate(node.attr["output_shapes"].list.shape):
                feeds[f"{node.name}:{k}" if k else node.name] = shape
    return feeds


def _fill(shape: Any, sizes: tuple[int, ...], what: str) -> None:
    """Write the sizes into a shape that is of their rank and has none that differs, or of unknown rank.

    A scalar is filled in, too: a placeholder of a version 1 graph says so where its rank is unknown.
    """
    own = [dimension.size for dimension in shape.dim]
    if own and (len(own) != len(sizes) or any(a not in (-1, b) for a, b in zip(own, sizes, strict=True))):
        said = ", ".join("?" if size < 0 else str(size) for size in own)
        raise InputError.build(f"{what} has the shape [{said}]", remedy=f"give {len(own)} sizes that agree with it")
    shape.Clear()
    for size in sizes:
        shape.dim.add(size=size)
