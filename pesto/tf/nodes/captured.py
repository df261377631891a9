"""A training step as captured from TensorFlow, before it becomes a `Graph`.

Calls are inlined, and what reads an IdentityN reads that one's inputs instead. An IdentityN starts when all of its
inputs are there and is on one device, so whatever passes it waits for the last and travels there and back. Keras hands
all gradients through one on their way to the optimizer. A branch op may be replaced by several that together do the
same. The user may give shapes that a graph leaves open: of feeds, and the largest of other ops.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.source import feed_shapes, output_of, written
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import RESOURCE, VARIANT, Signatures, parse_nodes, producer
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes, propagate_batch
from pesto.tf.nodes.v1_loops import SWITCHES, find_node_conditions, find_outermost_loops, find_output_conditions

_OPAQUE = (RESOURCE, VARIANT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BranchDivision:
    """The nodes that replace one branch op."""

    nodes: tuple[Any, ...]
    """NodeDefs of reads and branches, each behind those that it needs."""
    functions: tuple[Any, ...]
    """FunctionDefs that they call."""
    outputs: tuple[str, ...]
    """[k] the tensor that output k of the branch op is now."""
    ends: tuple[str, ...]
    """Names of the nodes that what waited for the branch op waits for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapturedStep:
    """A flat GraphDef and what to fetch from it.

    `graph_def` comes from TensorFlow itself (defaults filled in, `_output_shapes` on every node) and has no calls of
    functions but the bodies of loops and branches; nothing waits at a barrier. `values` are the tensors that the step
    closed over, by the name of the node that stands for each: a VarHandleOp for a variable, a Placeholder for anything
    else.
    """

    graph_def: Any
    fetches: tuple[str, ...]
    """Names of ops."""
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = ""
    """Class of the Keras optimizer that updates the variables; empty where the source does not tell."""
    calls: tuple[str, ...] = ()
    """Names of the tf.functions that it calls, whose ops only `pesto.place` can place."""
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Barriers that the step goes around, and the tensors that each passes (`find_barriers`)."""
    divisions: Mapping[str, BranchDivision] = field(default_factory=dict)
    """Branch ops of the program that have several in their places, by name."""
    feed_shapes: tuple[str, ...] = ()
    """Shapes that were given for feeds and ops whose sizes its program leaves open, each as NAME=16,40."""
    function: bool = False
    """True if the step is a whole tf.function; other programs may share the graph of a v1 session."""


def capture_step(
    program: Any, fetches: tuple[str, ...], source: str, values: Mapping[str, Any] | None = None
) -> CapturedStep:
    """Return the step that `fetches` run in a GraphDef with `_output_shapes`: calls inlined, barriers gone around."""
    flat = flatten(program)
    graph_def = program if flat is program else infer_shapes(flat)
    passed = find_barriers(graph_def)
    if passed:
        graph_def = copy_graph_def(graph_def) if graph_def is program else graph_def
        bypass_barriers(graph_def, passed)
    return CapturedStep(graph_def=graph_def, fetches=fetches, source=source, values=values or {}, passed=passed)


def find_barriers(graph_def: Any) -> dict[str, tuple[str, ...]]:
    """Return the tensors that each IdentityN passes, by its name, where its readers may read these instead.

    One that waits for other ops orders its readers behind them, one that reads a reference takes a copy, and one of
    whose inputs some are dead when others are not (those of a v1 conditional's branch) is dead with them: these stay.
    """
    signatures = Signatures({f.signature.name: f for f in graph_def.library.function})
    barriers = {
        node.name: tuple(node.input)
        for node in graph_def.node
        if node.op == "IdentityN" and all(t[0] != "^" for t in node.input)
    }
    read = {producer(text) for inputs in barriers.values() for text in inputs}
    # A reference is a buffer that changes. The IdentityN copies it at a certain time; readers behind it would read
    # later contents.
    refs = {node.name for node in graph_def.node if node.name in read and any(signatures.output_refs(node))}
    barriers = {name: inputs for name, inputs in barriers.items() if refs.isdisjoint(map(producer, inputs))}
    if not barriers or not any(node.op in SWITCHES for node in graph_def.node):
        return barriers
    # Left as they are: those that may be dead while one of their inputs is alive, and those in loops, which are one op.
    nodes = parse_nodes(graph_def, list(barriers))
    looped = {i for i, label in enumerate(find_outermost_loops(nodes).tolist()) if label >= 0}
    under = find_node_conditions(nodes, range(len(nodes.defs)), looped)
    for i, node in enumerate(nodes.defs):
        if node.name in barriers and (
            i in looped
            or any(under[p] | find_output_conditions(nodes, p, k, looped) != under[i] for p, k in nodes.inputs[i])
        ):
            del barriers[node.name]
    return barriers


def bypass_barriers(graph_def: Any, passed: Mapping[str, Sequence[str]]) -> None:
    """Make all readers of these barriers read the barriers' inputs, in place; afterwards nothing reads them."""
    for node in graph_def.node:
        if any(producer(text) in passed for text in node.input):
            data: list[str] = []
            waits: list[str] = []
            for text in node.input:
                if text[0] != "^":
                    data.append(find_source_tensor(text, passed))
                elif text[1:] in passed:
                    waits += [f"^{producer(find_source_tensor(tensor, passed))}" for tensor in passed[text[1:]]]
                else:
                    waits.append(text)
            node.input[:] = [*data, *dict.fromkeys(waits)]


def find_source_tensor(tensor: str, passed: Mapping[str, Sequence[str]]) -> str:
    """Return the tensor that barriers pass on as `tensor`; itself where none does."""
    while (name := producer(tensor)) in passed:
        tensor = passed[name][int(tensor[len(name) + 1 :] or 0)]
    return tensor


def replace_branches(graph_def: Any, divisions: Mapping[str, BranchDivision]) -> None:
    """Put the divisions in the places of the branch ops that they are of, in place."""
    nodes: list[Any] = []
    for node in graph_def.node:
        nodes += divisions[node.name].nodes if node.name in divisions else [node]
    nodes = [copy_node(node) for node in nodes]
    for node in nodes:
        node.input[:] = redirect_inputs(node.input, divisions)
    del graph_def.node[:]
    graph_def.node.extend(nodes)
    library_names = {function.signature.name for function in graph_def.library.function}
    for division in divisions.values():
        graph_def.library.function.extend(f for f in division.functions if f.signature.name not in library_names)


def redirect_inputs(inputs: Sequence[str], divisions: Mapping[str, BranchDivision]) -> list[str]:
    """Return inputs of a node with the divisions' tensors and ends in place of those of the branch ops."""
    if not any(producer(text) in divisions for text in inputs):
        return list(inputs)
    data: list[str] = []
    waits: list[str] = []
    for text in inputs:
        name, control = producer(text), text[0] == "^"
        if name not in divisions:
            (waits if control else data).append(text)
        elif control:
            waits += [f"^{end}" for end in divisions[name].ends]
        else:
            data.append(divisions[name].outputs[int(text[len(name) + 1 :] or 0)])
    return [*data, *dict.fromkeys(waits)]


def redirect_names(names: Iterable[str], divisions: Mapping[str, BranchDivision]) -> tuple[str, ...]:
    """Return names of ops with the divisions' ends in place of the branch ops."""
    return tuple(dict.fromkeys(end for n in names for end in (divisions[n].ends if n in divisions else (n,))))


def copy_node(node: Any) -> Any:
    """Return a NodeDef of its own."""
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def set_feed_shapes(captured: CapturedStep, shapes: Mapping[str, tuple[int, ...]]) -> CapturedStep:
    """Return the step with these shapes of its feeds, and those that follow from them.

    Where all have one first size, that is the batch, also for what loops leave open. A feed is a placeholder, or an
    output of what reads an iterator (IteratorGetNext:1). A shape of any other op is the largest that it can have:
    `resolve_shapes` takes it as a bound where the op's size is open. Raise InputError for a name of neither, and for a
    shape of a feed that contradicts the graph's own or another's.
    """
    if not shapes:
        return captured
    graph_def = copy_graph_def(captured.graph_def)
    feeds, fed = _find_feed_shapes(graph_def), {}
    for name, sizes in shapes.items():
        shape = feeds.get(name.removesuffix(":0"))
        if shape is None:
            _check_output(captured, name, feeds)
            continue
        # A scalar is filled in, too: a placeholder of a version 1 graph says so where its rank is unknown.
        own = [dimension.size for dimension in shape.dim]
        if own and (len(own) != len(sizes) or any(a not in (-1, b) for a, b in zip(own, sizes, strict=True))):
            said = ", ".join("?" if size < 0 else str(size) for size in own)
            raise InputError.build(
                f"{captured.source}: feed {shown(name)} has the shape [{said}]",
                remedy=f"give {len(own)} sizes that agree with it",
            )
        shape.Clear()
        for size in sizes:
            shape.dim.add(size=size)
        fed[name] = sizes
    if not fed:
        return replace(captured, feed_shapes=written(shapes))
    for node in graph_def.node:
        if node.op.startswith(("Placeholder", "IteratorGetNext")):
            node.attr.pop("_output_shapes", None)
    try:
        inferred = infer_shapes(graph_def)
    except InputError as error:
        why = error.__cause__ or error
        raise InputError.build(
            f"the shapes {', '.join(written(fed))} do not fit the graph: {shown(why)}",
            where=captured.source,
            remedy="give shapes that go together, of every feed whose size is that of another",
        ) from error
    batches = {sizes[0] for sizes in fed.values() if sizes}
    graph_def = propagate_batch(inferred, batches.pop()) if len(batches) == 1 else inferred
    return replace(captured, graph_def=graph_def, feed_shapes=written(shapes))


def _check_output(captured: CapturedStep, name: str, feeds: Collection[str]) -> None:
    """Raise InputError unless a name is that of an output of an op of the step, such as Where or Unique:1."""
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
        remedy = f"op {shown(op)} has {', '.join(map(shown, sized[:8]))}" if sized else "leave its shape out"
        raise InputError.build(f"{shown(name)} is no tensor with a size", where=captured.source, remedy=remedy)


def use_planned_shapes(captured: CapturedStep, plan: Plan) -> CapturedStep:
    """Return the step with the shapes of feeds that the plan was made with. Raise what `set_feed_shapes` raises."""
    return set_feed_shapes(captured, feed_shapes(plan.feed_shapes))


def _find_feed_shapes(graph_def: Any) -> dict[str, Any]:
    """Return the TensorShapeProto that declares each feed, by its name."""
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
