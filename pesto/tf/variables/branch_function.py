"""Analysis of one function of an `If`: nodes that change or read variables, and their dependencies."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pesto.tf.nodes.inline import CALLS, called_names, reachable_functions
from pesto.tf.nodes.needed_nodes import producer
from pesto.tf.nodes.signatures import RESOURCE, Signatures
from pesto.tf.private import op_def
from pesto.tf.variables.function_effects import FLOW, READS, FunctionEffects

SMALL = 64
"""Elements of a tensor up to which it costs little to send or to make it twice."""
Sizes = Sequence[int | None]
"""Elements of each argument of an `If`, of a variable those that it holds; None where they are not known."""
_TOGETHER = "IdentityN"


class UndividableError(Exception):
    """A branch has something of which it is not known that it may be divided."""


def source_node(text: str) -> str:
    """The node or argument that an input of a function's node names."""
    return text.removeprefix("^").partition(":")[0]


def data_inputs(node: Any) -> list[str]:
    """Return the inputs of a node without those that it only waits for."""
    return [text for text in node.input if text[0] != "^"]


def elements_of(node: Any, text: str) -> int | None:
    """Return the elements of a tensor, of a variable those that it holds; None where they are not known."""
    if node.op == "VarHandleOp":
        shape = node.attr["shape"].shape
    else:
        k = int(text[len(producer(text)) + 1 :] or 0) if ":" in text else 0
        shapes = node.attr["_output_shapes"].list.shape
        if k >= len(shapes):
            return None
        shape = shapes[k]
    if shape.unknown_rank or any(d.size < 0 for d in shape.dim):
        return None
    return math.prod(d.size for d in shape.dim)


def output_number(text: str, node: Any, signatures: Signatures) -> int:
    """Return the number of the output that a tensor is called by in a function (node:output:k)."""
    _, output, k = text.split(":")
    return signatures.output_offset(node, output) + int(k)


@dataclass(frozen=True, slots=True, eq=False)
class BranchFunction:
    """A function of an `If`; its arguments are numbered as the inputs of the `If` behind the predicate."""

    function: Any
    signatures: Signatures
    nodes: Mapping[str, Any]
    """Nodes by name, in topological order; without ops that only pass several tensors on."""
    results: tuple[str, ...]
    """The tensors that the function returns."""
    slot: Mapping[str, int]
    """Argument -> its number."""
    held: Mapping[str, frozenset[int]]
    """Op that changes a variable, or reads it after a change -> the variables that it must be beside."""
    effects: frozenset[str]
    """Ops of `held` that change a variable."""
    reads: Mapping[str, int]
    """ReadVariableOp of a value from before the branch -> the variable."""
    needs: dict[str, frozenset[int]] = field(default_factory=dict)
    """Op -> the variables whose changed values, or ops in `held`, its value depends on."""
    sources: dict[str, frozenset[str]] = field(default_factory=dict)
    """Op -> two of the large tensors that it is computed from, or all if there are fewer."""

    def cone(self, roots: Iterable[str], without: Container[str] = ()) -> set[str]:
        """All nodes whose values the nodes `roots` need, and themselves; none behind those `without`."""
        inside = {root for root in roots if root in self.nodes and root not in without}
        stack = list(inside)
        while stack:
            for text in self.nodes[stack.pop()].input:
                name = source_node(text)
                if text[0] != "^" and name in self.nodes and name not in inside and name not in without:
                    inside.add(name)
                    stack.append(name)
        return inside

    def dtype(self, text: str) -> int:
        """Return the data type number of a tensor."""
        node = self.nodes.get(source_node(text))
        if node is None:
            return next(int(a.type) for a in self.function.signature.input_arg if a.name == source_node(text))
        return self.signatures.output_types(node)[output_number(text, node, self.signatures)]

    def shape(self, text: str) -> Any:
        """Return the TensorShapeProto of what a node makes."""
        node = self.nodes[source_node(text)]
        return node.attr["_output_shapes"].list.shape[output_number(text, node, self.signatures)]

    def elements(self, text: str) -> int | None:
        """Return the elements of what a node makes; None where they are not known."""
        node = self.nodes[source_node(text)]
        return elements_of(node, f"{node.name}:{output_number(text, node, self.signatures)}")

    def before(self, name: str) -> Iterator[str]:
        """The changes of variables that a node waits for, the nearest ones; itself if it is one."""
        seen, stack = {name}, [name]
        while stack:
            at = stack.pop()
            if at in self.effects:
                yield at
                continue
            for other in map(source_node, self.nodes[at].input):
                if other in self.nodes and other not in seen:
                    seen.add(other)
                    stack.append(other)


def analyse(function: Any, slots: Sequence[int], sizes: Sizes, bodies: FunctionEffects) -> BranchFunction:
    """Analyse the nodes of a function; `slots` are the numbers of its arguments, of which some may be one tensor.

    UndividableError for state other than that of variables, and for what gives variables away.
    """
    slot = dict(zip((a.name for a in function.signature.input_arg), slots, strict=True))
    nodes, results = _ordered(*_without_passes(function))
    held: dict[str, frozenset[int]] = {}
    plain: dict[str, int] = {}
    effects = set()
    for name, node in nodes.items():
        # Input of a node -> the variable that it is the handle of.
        types = {a.name: a.type for a in function.signature.input_arg}
        taken = {k: slot[text] for k, text in enumerate(data_inputs(node)) if types.get(text) == RESOURCE}
        _refuse(node, bodies)
        if node.op == "ReadVariableOp":
            plain[name] = taken[0]
        elif taken:
            held[name] = frozenset(taken.values())
            written = (node.op not in READS if node.op not in (*FLOW, *CALLS) else
                       any(bodies.fate(node, k).written for k in taken))  # fmt: skip
            if written:
                effects.add(name)
    made = BranchFunction(function, bodies.signatures, nodes, results, slot, held, frozenset(effects), plain)
    behind: dict[int, list[set[str]]] = {}
    for change in effects:
        ancestors, stack = {change}, [change]
        while stack:
            for other in map(source_node, made.nodes[stack.pop()].input):
                if other in made.nodes and other not in ancestors:
                    ancestors.add(other)
                    stack.append(other)
        for variable in held[change]:
            behind.setdefault(variable, []).append(ancestors)
    # A read that is not an ancestor of every change of its variable may have to see a changed value, so it must stay
    # with the variable; all others read the value from before the branch and can move.
    late = {name for name, of in plain.items() if not all(name in ancestors_of for ancestors_of in behind.get(of, ()))}
    held |= {name: frozenset([plain.pop(name)]) for name in late}
    _follow(made, sizes)
    return made


def _follow(made: BranchFunction, sizes: Sizes) -> None:
    """Fill in what each node depends on, in topological order."""
    for name, node in made.nodes.items():
        inputs = [source_node(text) for text in node.input if text[0] != "^"]
        own = made.held.get(name, frozenset[int]())
        made.needs[name] = own.union(*(made.needs[i] for i in inputs if i in made.needs))
        large = [f"{made.slot[i]}" for i in inputs if i in made.slot and not _is_small(sizes[made.slot[i]])]
        both = sorted({*large, *(s for i in inputs if i in made.sources for s in made.sources[i])})
        # Two large sources are enough to know that a node combines several; the full sets would be quadratic.
        made.sources[name] = frozenset(both[:2])


def _is_small(elements: int | None) -> bool:
    return elements is not None and elements <= SMALL


def _refuse(node: Any, bodies: FunctionEffects) -> None:
    library = bodies.signatures.library
    if RESOURCE in bodies.signatures.output_types(node):
        raise UndividableError(node.name)
    for inner in [node, *(n for f in reachable_functions([node], library).values() for n in f.node_def)]:
        if inner.op in (*FLOW, *CALLS) or inner.op in library:
            if any(name not in library for name in called_names(inner)):
                raise UndividableError(node.name)
            continue
        definition = op_def(inner.op)
        if definition is None or (definition.is_stateful and not _of_resource(definition)):
            raise UndividableError(node.name)


def _of_resource(definition: Any) -> bool:
    """Return True if an op's state is that of a resource that it is given."""
    return any(argument.type == RESOURCE for argument in definition.input_arg)


def _without_passes(function: Any) -> tuple[list[Any], tuple[str, ...]]:
    """The function's nodes and results, with what an IdentityN hands on read from where it comes from."""
    passes = {n.name: n for n in function.node_def if n.op == _TOGETHER}
    if any(text[0] == "^" for node in passes.values() for text in node.input):
        raise UndividableError(function.signature.name)

    def behind(text: str) -> str:
        while source_node(text) in passes:
            text = passes[source_node(text)].input[int(text.rpartition(":")[2])]
        return text

    nodes = []
    for node in function.node_def:
        if node.name not in passes:
            copy = type(node)()
            copy.CopyFrom(node)
            controls = []
            for text in node.input:
                if text[0] == "^":
                    waits = [behind(t) for t in passes[text[1:]].input] if text[1:] in passes else [text]
                    controls += [f"^{source_node(w)}" for w in waits]
            arguments = {a.name for a in function.signature.input_arg}
            data = [behind(text) for text in node.input if text[0] != "^"]
            copy.input[:] = [*data, *dict.fromkeys(c for c in controls if c[1:] not in arguments)]
            nodes.append(copy)
    return nodes, tuple(behind(function.ret[a.name]) for a in function.signature.output_arg)


def _ordered(nodes: Sequence[Any], results: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Nodes by name, each behind what it needs."""
    by_name = {node.name: node for node in nodes}
    ordered: dict[str, Any] = {}
    for first in by_name:
        stack = [(first, False)]
        while stack:
            name, ready = stack.pop()
            if ready:
                ordered[name] = by_name[name]
            elif name not in ordered:
                stack.append((name, True))
                needs = dict.fromkeys(map(source_node, by_name[name].input))
                stack += [(other, False) for other in needs if other in by_name and other not in ordered]
    return ordered, results
