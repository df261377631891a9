"""The nodes of a step and of the functions that its loops and branches run: who reads which tensor, and its shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pesto.tf.nodes.flat import CALLS
from pesto.tf.nodes.needed_nodes import Nodes
from pesto.tf.nodes.signatures import Signatures
from pesto.tf.nodes.sizes import Shape
from pesto.tf.nodes.trips import LOOPS, trips

BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_FUNCTIONS = {"While": ("body", "cond"), "If": ("then_branch", "else_branch"), "Case": ("branches",)}


class Tensor(NamedTuple):
    """An output of a node, or an argument of a function as output 0 of its name."""

    node: str
    output: int


class Read(NamedTuple):
    """An input of a node."""

    node: str
    input: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scope:
    """One graph: a step, or the body of a function where one node runs it."""

    nodes: dict[str, Any]
    inputs: dict[str, list[Tensor]]
    readers: dict[Tensor, list[Read]]
    shapes: dict[Tensor, Shape]
    arguments: dict[str, int] = field(default_factory=dict)
    """Number of each argument."""
    results: dict[Tensor, list[int]] = field(default_factory=dict)
    """Which results of the function a tensor is."""
    caller: "tuple[Scope, str] | None" = None
    """Where the function runs, and by which node."""
    trips: Mapping[str, int] = field(default_factory=dict)
    """How often each loop runs at most, where the graph tells."""
    function: str = ""
    """Name of the function; empty for a step."""

    def shape(self, tensor: Tensor) -> Shape:
        """Dimensions, -1 where unknown; None for an unknown rank."""
        return self.shapes.get(tensor)

    def dimension(self, tensor: Tensor, axis: int) -> int | None:
        """The size of a dimension; None where it is unknown or not there."""
        shape = self.shape(tensor)
        if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] < 0:
            return None
        return shape[axis]


def step_scope(nodes: Nodes) -> Scope:
    """The scope of the step itself."""
    names = [node.name for node in nodes.defs]
    inputs = {names[i]: [Tensor(names[p], k) for p, k in made] for i, made in enumerate(nodes.inputs)}
    shapes = {Tensor(names[i], k): shape for i, found in enumerate(nodes.shapes) for k, shape in enumerate(found)}
    known: dict[int, int] = {}
    for i, node in enumerate(nodes.defs):
        if node.op in LOOPS and (count := trips(nodes, i, known)) is not None:
            known[i] = count
    return Scope(
        nodes=dict(zip(names, nodes.defs, strict=True)), inputs=inputs, readers=_readers(inputs), shapes=shapes,
        trips={names[i]: count for i, count in known.items()},
    )  # fmt: skip


def _readers(inputs: dict[str, list[Tensor]]) -> dict[Tensor, list[Read]]:
    found: dict[Tensor, list[Read]] = {}
    for name, tensors in inputs.items():
        for place, tensor in enumerate(tensors):
            found.setdefault(tensor, []).append(Read(name, place))
    return found


@dataclass(frozen=True, slots=True)
class Functions:
    """Makes the scopes of functions, each once for each node that runs it."""

    signatures: Signatures
    _made: dict[tuple[int, str, str], Scope] = field(default_factory=dict)

    def called(self, scope: Scope, name: str) -> Iterator[tuple[Scope, int]]:
        """The functions that a node runs, and which of its inputs is the first argument."""
        node = scope.nodes[name]
        kind = node.op.removeprefix("Stateless")
        first = 1 if node.op in BRANCHES else 0
        attributes = ("f",) if node.op in CALLS else _FUNCTIONS.get(kind, ())
        for attribute in attributes:
            if attribute in node.attr:
                value = node.attr[attribute]
                for function in [value.func] if value.func.name else value.list.func:
                    if function.name in self.signatures.library:
                        yield self._scope(scope, name, function.name), first

    def loops(self, scope: Scope, name: str) -> bool:
        """Whether a node runs a loop, whose inputs are its outputs where it makes no trip."""
        return scope.nodes[name].op in LOOPS

    def repeats(self, scope: Scope) -> bool:
        """Whether the function is a loop's, whose results are its next arguments."""
        return scope.caller is not None and self.loops(*scope.caller)

    def is_condition(self, scope: Scope) -> bool:
        """Whether the function only says whether a loop goes on."""
        return (
            scope.function != ""
            and scope.caller is not None
            and self.repeats(scope)
            and (scope.caller[0].nodes[scope.caller[1]].attr["cond"].func.name == scope.function)
        )

    def outputs(self, node: Any) -> int:
        """How many outputs a node has."""
        return len(self.signatures.output_types(node))

    def _scope(self, caller: Scope, name: str, function: str) -> Scope:
        key = (id(caller), name, function)
        if key not in self._made:
            self._made[key] = self._read(self.signatures.library[function], caller, name)
        return self._made[key]

    def _read(self, function: Any, caller: Scope, name: str) -> Scope:
        nodes = {node.name: node for node in function.node_def}
        arguments = {argument.name: i for i, argument in enumerate(function.signature.input_arg)}
        inputs = {
            node.name: [self._tensor(nodes, text) for text in node.input if not text.startswith("^")]
            for node in function.node_def
        }
        results: dict[Tensor, list[int]] = {}
        for i, result in enumerate(function.signature.output_arg):
            results.setdefault(self._tensor(nodes, function.ret[result.name]), []).append(i)
        shapes: dict[Tensor, Shape] = {}
        for node in function.node_def:
            for k, shape in enumerate(node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else ()):
                shapes[Tensor(node.name, k)] = _dimensions(shape)
        first = 1 if caller.nodes[name].op in BRANCHES else 0
        given = caller.inputs[name]
        for argument, i in arguments.items():
            if i + first < len(given) and (known := caller.shape(given[i + first])) is not None:
                shapes[Tensor(argument, 0)] = known
        return Scope(
            nodes=nodes, inputs=inputs, readers=_readers(inputs), shapes=shapes, arguments=arguments, results=results,
            caller=(caller, name), function=function.signature.name,
        )  # fmt: skip

    def _tensor(self, nodes: dict[str, Any], text: str) -> Tensor:
        """A tensor of a function's body: an argument, `node:output:number`, or `node:number`."""
        name, *rest = text.split(":")
        if name not in nodes or not rest:
            return Tensor(name, 0)
        if len(rest) == 1:
            return Tensor(name, int(rest[0]))
        return Tensor(name, self.signatures.output_offset(nodes[name], rest[0]) + int(rest[1]))


def _dimensions(shape: Any) -> Shape:
    return None if shape.unknown_rank else tuple(d.size for d in shape.dim)
