"""The part of a GraphDef that the fetches need, in a stable topological order, with its tensors' types and shapes.

Sizes of tensors are known before a step runs, bounded, or unknown. A bound is never the value of a size.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import quoted, shown
from pesto.tf.private import op_def

RESOURCE, VARIANT, STRING = (t.as_datatype_enum for t in (tf.resource, tf.variant, tf.string))
TRAVELS_NOT = frozenset((RESOURCE, VARIANT, STRING))
"""Data types that are handles or stay on the host; they count no bytes."""
_REF = 100
"""TensorFlow adds this to a data type's number for a reference to it."""
RECORDED = "_traced_shapes"
"""Attribute with the shapes that a function's op had when it was traced: inference loses those of tensor lists."""
RELAY, COPY = "/pesto_send_", "/pesto_copy_"
"""Parts of the names of nodes that a plan added to a live graph, which cannot lose them: later nothing reads them."""
Shape = tuple[int, ...] | None
"""Dimensions, -1 where unknown; None for an unknown rank."""


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A shape that the tensor has in every step; it may be used as a value."""

    extents: tuple[int, ...]
    """Size of each dimension."""


@dataclass(frozen=True, slots=True)
class BoundedShape:
    """A shape that depends on the data, with an upper bound for its bytes and its work."""

    upper_bound: tuple[int, ...]
    """Largest extent of each dimension, as planned for; it may only be counted, not written into a graph."""
    known: Shape
    """The dimensions that do not depend on the data, the others -1; None where the rank depends on it."""


@dataclass(frozen=True, slots=True)
class UnknownShape:
    """A shape of which not even an upper bound is known."""


TensorShape = KnownShape | BoundedShape | UnknownShape


def is_known(shape: Shape) -> bool:
    """Return True if every dimension of a shape is known."""
    return shape is not None and -1 not in shape


def shape_from(proto: Any) -> Shape:
    """Return the shape that a TensorShapeProto states."""
    return None if proto.unknown_rank else tuple([d.size for d in proto.dim])


class UnlimitedSize(NamedTuple):
    """The cause for which a shape has no bound."""

    op: int
    """Node whose size, or value, nothing limits."""
    size: tuple[int, int]
    """(node, output) with whose size the shape would have a bound."""


class _Arg(NamedTuple):
    name: str
    dtype: int
    type_attr: str
    list_attr: str
    number_attr: str
    is_ref: bool


class _Signature(NamedTuple):
    inputs: tuple[_Arg, ...]
    outputs: tuple[_Arg, ...]


@dataclass(frozen=True, slots=True)
class Signatures:
    """Looks op types up once each; `library` are the FunctionDefs by name that a node may call directly."""

    library: Mapping[str, Any]
    _known: dict[str, _Signature] = field(default_factory=dict)

    def output_types(self, node: Any) -> tuple[int, ...]:
        """Data type numbers of a node's outputs; references count as what they refer to."""
        return tuple(t % _REF for a in self._of(node).outputs for t in _expand(a, node))

    def input_refs(self, node: Any) -> tuple[bool, ...]:
        """Return one flag an input, true for references to variables; empty when there is none."""
        return _expand_refs(self._of(node).inputs, node)

    def output_refs(self, node: Any) -> tuple[bool, ...]:
        """Return one flag an output, true for references to variables; empty when there is none."""
        return _expand_refs(self._of(node).outputs, node)

    def has_ref(self, node: Any) -> bool:
        """Return True if the op makes or takes references."""
        signature = self._of(node)
        return any(a.is_ref for a in signature.inputs) or any(a.is_ref for a in signature.outputs)

    def output_offset(self, node: Any, name: str) -> int:
        """Flat index of the first tensor of a named output; InputError when there is none."""
        offset = 0
        for a in self._of(node).outputs:
            if a.name == name:
                return offset
            offset += len(_expand(a, node))
        raise InputError.build(
            f"op {shown(node.name)} of type {node.op} has no output {name!r}", remedy="the graph is damaged"
        )

    def _of(self, node: Any) -> _Signature:
        signature = self._known.get(node.op)
        if signature is None:
            definition = self.library[node.op].signature if node.op in self.library else op_def(node.op)
            if definition is None:
                raise InputError.build(
                    f"op {shown(node.name)}: TensorFlow {tf.__version__} has no op type {node.op}",
                    remedy=("load the library that registers it (tf.load_op_library) in the module of a function"),
                )
            signature = _Signature(_read_args(definition.input_arg), _read_args(definition.output_arg))
            self._known[node.op] = signature
        return signature


def _read_args(args: Any) -> tuple[_Arg, ...]:
    return tuple(_Arg(a.name, a.type, a.type_attr, a.type_list_attr, a.number_attr, a.is_ref) for a in args)


def _expand_refs(args: tuple[_Arg, ...], node: Any) -> tuple[bool, ...]:
    if not any(a.is_ref for a in args):
        return ()
    return tuple(a.is_ref for a in args for _ in _expand(a, node))


def _expand(arg: _Arg, node: Any) -> list[int]:
    if arg.list_attr:
        return list(node.attr[arg.list_attr].list.type)
    dtype = arg.dtype or node.attr[arg.type_attr].type
    return [dtype] * (node.attr[arg.number_attr].i if arg.number_attr else 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepNodes:
    """n nodes in topological order; edges name a producer by its index and an output by its number."""

    defs: list[Any]
    """[n] the nodes themselves, each a NodeDef of TensorFlow."""
    dtypes: list[tuple[int, ...]]
    """[n] data type numbers of each output."""
    shapes: list[tuple[Shape, ...]]
    """[n] shape of each output as far as it is known before the step runs; no bound is among these."""
    inputs: list[list[tuple[int, int]]]
    """[n] (producer, output) of each data input, in the order of the op's arguments."""
    controls: list[list[int]]
    """[n] control inputs, ascending."""
    signatures: Signatures
    producer: int = 0
    """Version of the GraphDef, on which the meaning of some attributes depends; 0 for the present one."""
    bounds: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """(node, output) -> upper bound of a shape that depends on the data."""
    unlimited: Callable[[tuple[int, int]], UnlimitedSize] | None = None
    """Function from (node, output) of an unbounded shape to the cause."""

    def input_shapes(self, node: int) -> list[Shape]:
        """Return the shapes of a node's data inputs as far as they are known."""
        return [self.shapes[p][k] for p, k in self.inputs[node]]

    def size(self, node: int, output: int) -> TensorShape:
        """Return the shape of an output: known, bounded, or unknown."""
        shape = self.shapes[node][output]
        if shape is not None and is_known(shape):
            return KnownShape(shape)
        if (node, output) in self.bounds:
            return BoundedShape(self.bounds[node, output], shape)
        return UnknownShape()

    def upper_bound(self, node: int, output: int) -> Shape:
        """Return the largest shape that an output is planned to have: for bytes and work, never for a value."""
        return self.bounds.get((node, output), self.shapes[node][output])

    def upper_bounds(self, node: int) -> list[Shape]:
        """Return upper bounds of the shapes of a node's outputs."""
        return [self.upper_bound(node, k) for k in range(len(self.shapes[node]))]

    def input_upper_bounds(self, node: int) -> list[Shape]:
        """Return upper bounds of the shapes of a node's data inputs."""
        return [self.upper_bound(p, k) for p, k in self.inputs[node]]


def parse_nodes(graph_def: Any, fetches: Sequence[str]) -> StepNodes:
    """Return the nodes of a flat GraphDef that `fetches` (op names) need.

    Of all topological orders it is the one that keeps closest to the GraphDef's own: FuncGraphs list a node before its
    control inputs. Raise InputError when names repeat, an input dangles, or the graph has a cycle outside v1 loops.
    """
    by_name: dict[str, Any] = {}
    for node in graph_def.node:
        if node.name in by_name:
            raise InputError(f"graph: two ops are named {node.name!r}")
        by_name[node.name] = node
    wanted = find_needed_names(by_name, fetches)
    needed = [node for node in graph_def.node if node.name in wanted]
    defs = [needed[i] for i in _order_stably(needed)]
    index = {node.name: i for i, node in enumerate(defs)}
    signatures = Signatures({f.signature.name: f for f in graph_def.library.function})
    dtypes = [signatures.output_types(node) for node in defs]
    inputs, controls = [], []
    for node in defs:
        data, control = [], set()
        for text in node.input:
            if text[0] == "^":
                control.add(index[text[1:]])
                continue
            colon = text.rfind(":")
            p, k = (index[text], 0) if colon < 0 else (index[text[:colon]], int(text[colon + 1 :]))
            if k >= len(dtypes[p]):
                raise InputError.build(
                    f"op {shown(node.name)}: its input {quoted(text)} does not exist", remedy="the graph is incomplete"
                )
            data.append((p, k))
        inputs.append(data)
        controls.append(sorted(control))
    shapes = [_read_shapes(node, len(types)) for node, types in zip(defs, dtypes, strict=True)]
    return StepNodes(
        defs=defs, dtypes=dtypes, shapes=shapes, inputs=inputs, controls=controls, signatures=signatures,
        producer=graph_def.versions.producer,
    )  # fmt: skip


def producer(name: str) -> str:
    """Return the name of the node that an input names."""
    if name[0] == "^":
        return name[1:]
    colon = name.rfind(":")
    return name if colon < 0 else name[:colon]


def is_added_by_plan(name: str) -> bool:
    """Return True if a plan has added the node of that name."""
    return RELAY in name or COPY in name


def sinks(graph_def: Any) -> tuple[str, ...]:
    """Return the names of the nodes of the program that nothing in it reads."""
    own = [node for node in graph_def.node if not is_added_by_plan(node.name)]
    read = {producer(text) for node in own for text in node.input}
    return tuple(node.name for node in own if node.name not in read)


def find_needed_names(by_name: Mapping[str, Any], fetches: Iterable[str]) -> set[str]:
    """Return the names of the nodes that `fetches` need, and their own. Raise InputError for a missing node."""
    names = set(fetches)
    for name in names:
        if name not in by_name:
            raise InputError.build(f"graph: op {shown(name)} does not exist", remedy="the graph is damaged")
    stack = list(names)
    while stack:
        node = by_name[stack.pop()]
        for text in node.input:
            name = producer(text)
            if name not in names:
                if name not in by_name:
                    raise InputError.build(
                        f"op {shown(node.name)}: its input {quoted(text)} does not exist",
                        remedy="the graph is incomplete",
                    )
                names.add(name)
                stack.append(name)
    return names


def _order_stably(nodes: list[Any]) -> list[int]:
    index = {node.name: i for i, node in enumerate(nodes)}
    loops = {i for i, node in enumerate(nodes) if node.op in ("NextIteration", "RefNextIteration")}
    after: list[list[int]] = [[] for _ in nodes]
    waiting = [0] * len(nodes)
    for i, node in enumerate(nodes):
        for p in {index[producer(text)] for text in node.input}:
            # What closes a v1 loop is the edge into its Merge; without it the loop's body has an order.
            if p not in loops or node.op not in ("Merge", "RefMerge"):
                after[p].append(i)
                waiting[i] += 1
    # A heap by position: among ready nodes the one listed first comes next, which keeps program order wherever edges
    # allow it.
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(order) != len(nodes):
        # Every stuck node has a stuck input, so walking backwards must come round.
        position = next(i for i, count in enumerate(waiting) if count)
        visited: dict[int, int] = {}
        while position not in visited:
            visited[position] = len(visited)
            position = next(p for p in (index[producer(text)] for text in nodes[position].input) if waiting[p])
        names = [nodes[i].name for i in reversed(list(visited)[visited[position] :])]
        cycle = " -> ".join([*names[:8], *(["..."] if len(names) > 8 else []), names[0]])
        raise InputError(f"graph: a cycle of ops: {cycle}")
    return order


def _read_shapes(node: Any, outputs: int) -> tuple[Shape, ...]:
    if "_output_shapes" not in node.attr:
        return (None,) * outputs
    recorded = _read_recorded_shapes(node, "_output_shapes")
    if RECORDED in node.attr:
        traced = _read_recorded_shapes(node, RECORDED)
        if len(traced) == len(recorded):
            recorded = tuple(t if k is None or -1 in k else k for k, t in zip(recorded, traced, strict=True))
    return recorded + (None,) * (outputs - len(recorded))


def _read_recorded_shapes(node: Any, attr: str) -> tuple[Shape, ...]:
    return tuple(map(shape_from, node.attr[attr].list.shape))
