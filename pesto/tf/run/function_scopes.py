"""The nodes of a step and of the functions that its loops and branches run: who reads which tensor, and its shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pesto.tf.nodes.inline_tracing import CALLS
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import Signatures
from pesto.tf.nodes.sizes import Shape
from pesto.tf.nodes.trip_counts import LOOPS, trip_count

BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_FUNCTIONS = {"While": ("body", "cond"), "If": ("then_branch", "else_branch"), "Case": ("branches",)}


class ScopeTensor(NamedTuple):
    """An output of a node, or an argument of a function as output 0 of its name."""

    node: str
    output: int


class TensorRead(NamedTuple):
    """An input of a node."""

    node: str
    input: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionScope:
    """Nodes of one graph: of a step, or of a function's body where one node runs it."""

    nodes: dict[str, Any]
    inputs: dict[str, list[ScopeTensor]]
    readers: dict[ScopeTensor, list[TensorRead]]
    shapes: dict[ScopeTensor, Shape]
    arguments: dict[str, int] = field(default_factory=dict)
    """Number of each argument."""
    results: dict[ScopeTensor, list[int]] = field(default_factory=dict)
    """Tensor -> indices of the function's results that it is."""
    caller: "tuple[FunctionScope, str] | None" = None
    """The calling scope and the name of the calling node."""
    trips: Mapping[str, int] = field(default_factory=dict)
    """Loop -> its largest trip count, where the graph determines it."""
    function: str = ""
    """Name of the function; empty for a step."""

    def shape(self, tensor: ScopeTensor) -> Shape:
        """Dimensions, -1 where unknown; None for an unknown rank."""
        return self.shapes.get(tensor)

    def dimension(self, tensor: ScopeTensor, axis: int) -> int | None:
        """The size of a dimension; None where it is unknown or not there."""
        shape = self.shape(tensor)
        if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] < 0:
            return None
        return shape[axis]


def step_scope(nodes: StepNodes) -> FunctionScope:
    """The scope of the step itself."""
    names = [node.name for node in nodes.defs]
    inputs = {names[i]: [ScopeTensor(names[p], k) for p, k in made] for i, made in enumerate(nodes.inputs)}
    shapes = {ScopeTensor(names[i], k): shape for i, of in enumerate(nodes.shapes) for k, shape in enumerate(of)}
    known: dict[int, int] = {}
    for i, node in enumerate(nodes.defs):
        if node.op in LOOPS and (count := trip_count(nodes, i, known)) is not None:
            known[i] = count
    return FunctionScope(
        nodes=dict(zip(names, nodes.defs, strict=True)), inputs=inputs, readers=_readers(inputs), shapes=shapes,
        trips={names[i]: count for i, count in known.items()},
    )  # fmt: skip


def _readers(inputs: dict[str, list[ScopeTensor]]) -> dict[ScopeTensor, list[TensorRead]]:
    readers: dict[ScopeTensor, list[TensorRead]] = {}
    for name, tensors in inputs.items():
        for place, tensor in enumerate(tensors):
            readers.setdefault(tensor, []).append(TensorRead(name, place))
    return readers


@dataclass(frozen=True, slots=True)
class FunctionScopes:
    """Makes the scopes of functions, each once for each node that runs it."""

    signatures: Signatures
    _made: dict[tuple[int, str, str], FunctionScope] = field(default_factory=dict)

    def called(self, scope: FunctionScope, name: str) -> Iterator[tuple[FunctionScope, int]]:
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

    def loops(self, scope: FunctionScope, name: str) -> bool:
        """Return True if a node runs a loop, which returns its inputs where it makes no trip."""
        return scope.nodes[name].op in LOOPS

    def repeats(self, scope: FunctionScope) -> bool:
        """Return True if the function is a loop's body, whose results are its next arguments."""
        return scope.caller is not None and self.loops(*scope.caller)

    def is_condition(self, scope: FunctionScope) -> bool:
        """Return True if the function is the condition of a loop."""
        return (
            scope.function != ""
            and scope.caller is not None
            and self.repeats(scope)
            and (scope.caller[0].nodes[scope.caller[1]].attr["cond"].func.name == scope.function)
        )

    def outputs(self, node: Any) -> int:
        """Return the number of outputs of a node."""
        return len(self.signatures.output_types(node))

    def _scope(self, caller: FunctionScope, name: str, function: str) -> FunctionScope:
        key = (id(caller), name, function)
        if key not in self._made:
            self._made[key] = self._read(self.signatures.library[function], caller, name)
        return self._made[key]

    def _read(self, function: Any, caller: FunctionScope, name: str) -> FunctionScope:
        nodes = {node.name: node for node in function.node_def}
        arguments = {argument.name: i for i, argument in enumerate(function.signature.input_arg)}
        inputs = {
            node.name: [self._tensor(nodes, text) for text in node.input if not text.startswith("^")]
            for node in function.node_def
        }
        results: dict[ScopeTensor, list[int]] = {}
        for i, result in enumerate(function.signature.output_arg):
            results.setdefault(self._tensor(nodes, function.ret[result.name]), []).append(i)
        shapes: dict[ScopeTensor, Shape] = {}
        for node in function.node_def:
            for k, shape in enumerate(node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else ()):
                shapes[ScopeTensor(node.name, k)] = None if shape.unknown_rank else tuple(d.size for d in shape.dim)
        first = 1 if caller.nodes[name].op in BRANCHES else 0
        given = caller.inputs[name]
        for argument, i in arguments.items():
            if i + first < len(given) and (known := caller.shape(given[i + first])) is not None:
                shapes[ScopeTensor(argument, 0)] = known
        return FunctionScope(
            nodes=nodes, inputs=inputs, readers=_readers(inputs), shapes=shapes, arguments=arguments, results=results,
            caller=(caller, name), function=function.signature.name,
        )  # fmt: skip

    def _tensor(self, nodes: dict[str, Any], text: str) -> ScopeTensor:
        """A tensor of a function's body: an argument, `node:output:number`, or `node:number`."""
        name, *rest = text.split(":")
        if name not in nodes or not rest:
            return ScopeTensor(name, 0)
        if len(rest) == 1:
            return ScopeTensor(name, int(rest[0]))
        return ScopeTensor(name, self.signatures.output_offset(nodes[name], rest[0]) + int(rest[1]))
