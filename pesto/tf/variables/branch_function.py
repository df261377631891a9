"""Analysis of the functions of an `If`: variables that must stay together, and the functions of the parts."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from pesto.tf.nodes.captured import copy_node
from pesto.tf.nodes.inline import CALLS, find_called_names, reachable_functions
from pesto.tf.nodes.needed_nodes import RESOURCE, Signatures, producer
from pesto.tf.private import op_def
from pesto.tf.variables.variables import FLOW, READS, FunctionEffects

SMALL = 64
"""Elements of a tensor up to which it costs little to send or to make it twice."""
Sizes = Sequence[int | None]
"""Elements of each argument of an `If` (of a variable, of its value); None where they are not known."""
_TOGETHER = "IdentityN"


class UndividableError(Exception):
    """A branch has an op that may not be divided as far as is known."""


def source_node(text: str) -> str:
    """Return the node or argument that an input of a function's node names."""
    return text.removeprefix("^").partition(":")[0]


def data_inputs(node: Any) -> list[str]:
    """Return the inputs of a node without its control inputs."""
    return [text for text in node.input if text[0] != "^"]


def elements_of(node: Any, text: str) -> int | None:
    """Return the elements of a tensor (of a variable, of its value); None where they are not known."""
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
    """Return the output number of a tensor that a function names node:output:k."""
    _, output, k = text.split(":")
    return signatures.output_offset(node, output) + int(k)


@dataclass(frozen=True, slots=True, eq=False)
class BranchFunction:
    """A function of an `If`; its arguments are numbered as the inputs of the `If` behind the predicate."""

    function: Any
    signatures: Signatures
    nodes: Mapping[str, Any]
    """Nodes by name, in topological order, without IdentityN."""
    results: tuple[str, ...]
    """Tensors that the function returns."""
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
        """Return the nodes whose values the nodes `roots` need, and themselves; none behind those `without`."""
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
        """Return the TensorShapeProto of a node's output."""
        node = self.nodes[source_node(text)]
        return node.attr["_output_shapes"].list.shape[output_number(text, node, self.signatures)]

    def elements(self, text: str) -> int | None:
        """Return the number of elements of a node's output; None where it is not known."""
        node = self.nodes[source_node(text)]
        return elements_of(node, f"{node.name}:{output_number(text, node, self.signatures)}")

    def before(self, name: str) -> Iterator[str]:
        """Yield the nearest changes of variables that a node waits for; itself if it is one."""
        visited, stack = {name}, [name]
        while stack:
            current = stack.pop()
            if current in self.effects:
                yield current
                continue
            for other in map(source_node, self.nodes[current].input):
                if other in self.nodes and other not in visited:
                    visited.add(other)
                    stack.append(other)


def analyse(function: Any, slots: Sequence[int], sizes: Sizes, bodies: FunctionEffects) -> BranchFunction:
    """Analyse the nodes of a function; `slots` are the numbers of its arguments, of which some may be one tensor.

    Raise UndividableError for state other than that of variables, and for ops that return a variable's handle.
    """
    slot = dict(zip((a.name for a in function.signature.input_arg), slots, strict=True))
    nodes, results = _bypass_identities(function)
    effects_of: dict[str, frozenset[int]] = {}
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
            effects_of[name] = frozenset(taken.values())
            written = (node.op not in READS if node.op not in (*FLOW, *CALLS) else
                       any(bodies.fate(node, k).written for k in taken))  # fmt: skip
            if written:
                effects.add(name)
    branch = BranchFunction(function, bodies.signatures, nodes, results, slot, effects_of, frozenset(effects), plain)
    behind: dict[int, list[set[str]]] = {}
    for change in effects:
        ancestors, stack = {change}, [change]
        while stack:
            for other in map(source_node, nodes[stack.pop()].input):
                if other in nodes and other not in ancestors:
                    ancestors.add(other)
                    stack.append(other)
        for variable in effects_of[change]:
            behind.setdefault(variable, []).append(ancestors)
    # A read that is not an ancestor of every change of its variable may have to see a changed value, so it must stay
    # with the variable; all others read the value from before the branch and can move.
    late = {name for name, of in plain.items() if not all(name in ancestors_of for ancestors_of in behind.get(of, ()))}
    effects_of |= {name: frozenset([plain.pop(name)]) for name in late}
    for name, node in nodes.items():
        inputs = [source_node(text) for text in node.input if text[0] != "^"]
        own = effects_of.get(name, frozenset[int]())
        branch.needs[name] = own.union(*(branch.needs[i] for i in inputs if i in branch.needs))
        argument_sizes = {f"{slot[i]}": sizes[slot[i]] for i in inputs if i in slot}
        large = [number for number, elements in argument_sizes.items() if elements is None or elements > SMALL]
        both = sorted({*large, *(s for i in inputs if i in branch.sources for s in branch.sources[i])})
        # Two large sources are enough to know that a node combines several; the full sets would be quadratic.
        branch.sources[name] = frozenset(both[:2])
    return branch


def _refuse(node: Any, bodies: FunctionEffects) -> None:
    library = bodies.signatures.library
    if RESOURCE in bodies.signatures.output_types(node):
        raise UndividableError(node.name)
    for inner in [node, *(n for f in reachable_functions([node], library).values() for n in f.node_def)]:
        if inner.op in (*FLOW, *CALLS) or inner.op in library:
            if any(name not in library for name in find_called_names(inner)):
                raise UndividableError(node.name)
            continue
        definition = op_def(inner.op)
        # A stateful op without a resource among its inputs has state of its own.
        if definition is None or (definition.is_stateful and all(a.type != RESOURCE for a in definition.input_arg)):
            raise UndividableError(node.name)


def _bypass_identities(function: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the function's nodes by name, each behind its inputs, and its results; IdentityN is bypassed."""
    passes = {n.name: n for n in function.node_def if n.op == _TOGETHER}
    if any(text[0] == "^" for node in passes.values() for text in node.input):
        raise UndividableError(function.signature.name)

    def behind(text: str) -> str:
        while source_node(text) in passes:
            text = passes[source_node(text)].input[int(text.rpartition(":")[2])]
        return text

    by_name: dict[str, Any] = {}
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
            by_name[copy.name] = copy
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
    return ordered, tuple(behind(function.ret[a.name]) for a in function.signature.output_arg)


RESULT = -1
"""Number that stands for the outputs of an `If` beside the numbers of variables."""


@dataclass(frozen=True, slots=True, eq=False)
class VariableParts:
    """A partition of the variables of an `If` into parts that stay together."""

    node: Any
    branches: tuple[BranchFunction, ...]
    sizes: Sizes
    above: dict[int, int] = field(default_factory=dict)
    """Union-find: variable -> one that it is together with."""
    parts: list[int] = field(default_factory=list)
    """The first variable of each part, or that of the results, in ascending order."""
    kept: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    """(part, branch) -> its nodes."""
    order: set[tuple[int, int]] = field(default_factory=set)
    """(before, after) of parts whose changes are ordered."""
    users: list[dict[str, set[int]]] = field(default_factory=list)
    """[branch] tensor that is computed once for several parts -> those that read it."""

    def find(self, variable: int) -> int:
        """Return the part of a variable."""
        while self.above.get(variable, variable) != variable:
            variable = self.above[variable]
        return variable

    def join(self, variables: Sequence[int]) -> None:
        """Put variables into one part, named by its first variable."""
        roots = sorted({self.find(v) for v in variables}, key=lambda v: (v < 0, v))
        for root in roots:
            self.above[root] = roots[0]

    def settle(self) -> bool:
        """Find the parts; return False where there is only one."""
        # Variables that one change needs or holds belong to one part, in every branch.
        changed: set[int] = set()
        for branch in self.branches:
            for effect in branch.effects:
                self.join(list(branch.needs[effect]))
                changed |= branch.held[effect]
        for k in range(len(self.node.attr["Tout"].list.type)):
            needed = [v for b in self.branches for v in b.needs.get(source_node(b.results[k]), ())]
            self.join([RESULT, *needed])
        # Counters and scales alone are worth no op of their own.
        large = {self.find(v) for v in self.above if self.sizes[v] != 1}
        self.join([v for v in changed if self.sizes[v] == 1 and self.find(v) not in large])
        # Joining parts can create new cycles or make another shared tensor local, so everything is derived anew until
        # nothing changes. Each round joins at least two parts, so it ends.
        while True:
            count = len({self.find(v) for v in changed})
            if count < 2:
                return False
            results = {self.find(RESULT)} if self.branches[0].results else set()
            self.parts[:] = sorted({self.find(v) for v in changed} | results)
            self._assign_nodes()
            if not self._merge_cycles() and not self._merge_large() and not self._merge_slots():
                return True

    def _assign_nodes(self) -> None:
        """Find the nodes of each part, the tensors that several parts share, and the order among parts."""
        self.kept.clear()
        self.order.clear()
        self.users[:] = [{} for _ in self.branches]
        for b, branch in enumerate(self.branches):
            # The nodes for whose sake each part exists.
            roots: dict[int, list[str]] = {part: [] for part in self.parts}
            for effect in branch.effects:
                roots[self.part_of(branch, effect)].append(effect)
            if branch.results:
                roots[self.find(RESULT)] += [source_node(text) for text in branch.results]
            users: dict[str, set[int]] = {}
            for part in self.parts:
                for name in branch.cone(roots[part]):
                    if len(branch.sources[name]) > 1 and not branch.needs[name]:
                        users.setdefault(name, set()).add(part)
            # A node that one part needs is computed there. One that several need and that depends on no changed
            # variable is computed once, in the shared branch op.
            several = {name for name, parts in users.items() if len(parts) > 1}
            for part in self.parts:
                part_nodes = self.kept[part, b] = branch.cone(roots[part], several)
                read = [text for name in branch.nodes if name in part_nodes for text in data_inputs(branch.nodes[name])]
                if branch.results and part == self.find(RESULT):
                    read += branch.results
                for text in read:
                    if source_node(text) in several:
                        self.users[b].setdefault(text, set()).add(part)
                for name in part_nodes:
                    for text in branch.nodes[name].input:
                        if text[0] == "^" and text[1:] not in part_nodes:
                            others = {self.part_of(branch, earlier) for earlier in branch.before(text[1:])}
                            self.order.update((other, part) for other in others if other != part)

    def part_of(self, branch: BranchFunction, effect: str) -> int:
        """Return the part that has an op which changes a variable."""
        return self.find(min(branch.held[effect]))

    def _merge_cycles(self) -> bool:
        """Join parts that would wait for each other; return True if there were any."""
        after: dict[int, set[int]] = {part: set() for part in self.parts}
        for a, b in self.order:
            after[a].add(b)
        reach = {part: _find_reached(after, part) for part in self.parts} if self.order else {}
        joined = False
        for a, b in list(self.order):
            if a in reach[b]:
                self.join([a, b])
                joined = True
        return joined

    def _merge_large(self) -> bool:
        """Join parts that share a large tensor, or one of unknown size; return True if there were any."""
        joined = False
        for b, branch in enumerate(self.branches):
            for text, parts in self.users[b].items():
                elements = branch.elements(text)
                if elements is None or elements > SMALL:
                    self.join(sorted(parts))
                    joined |= len(parts) > 1
        return joined

    def _merge_slots(self) -> bool:
        """Join a variable's part with the one other part that reads it; return True if there was any."""
        readers: dict[int, set[int]] = {}
        for (part, b), part_nodes in self.kept.items():
            for name, variable in self.branches[b].reads.items():
                if name in part_nodes and self.sizes[variable] != 1 and self.find(variable) in self.parts:
                    readers.setdefault(variable, set()).add(part)
        joined = False
        for variable, parts in readers.items():
            others = {self.find(part) for part in parts} - {self.find(variable)}
            if len(others) == 1:
                self.join([variable, *others])
                joined = True
        return joined


def _find_reached(after: Mapping[int, set[int]], start: int) -> set[int]:
    visited: set[int] = set()
    stack = [start]
    while stack:
        for other in after[stack.pop()]:
            if other not in visited:
                visited.add(other)
                stack.append(other)
    return visited


SHARED, READ = "pesto_shared", "pesto_read"
"""Parts of the names of tensors that several parts share, and of reads in front of the parts."""


@dataclass(frozen=True, slots=True, eq=False)
class PartFunction:
    """Builder of one function of a part of a divided `If`, from nodes of the whole branch."""

    branch: BranchFunction
    number: int
    """Number of the branch."""
    outside: Mapping[str, int]
    """Op of the branch -> the variable whose value, read in front of the parts, replaces it."""
    shared: Mapping[str, int]
    """Tensor that several parts share -> its number."""
    nodes: list[Any] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """Nodes that have changed or read a variable when the function is done."""
    slots: set[int] = field(default_factory=set)
    """Numbers of the arguments of the whole `If` that it takes."""
    reads: dict[int, Any] = field(default_factory=dict)
    """Variable whose value it takes -> an op that reads it in the branch."""
    values: set[int] = field(default_factory=set)
    """Numbers of the shared tensors that it takes."""
    results: list[tuple[str, int]] = field(default_factory=list)
    """(tensor, data type) of each result."""

    @classmethod
    def of(
        cls, parts: VariableParts, number: int, part_nodes: set[str], part: int | None, shared: Mapping[str, int]
    ) -> "PartFunction":
        """Return the function of a part (None for the shared one) with the nodes `part_nodes`; others make `shared`."""
        branch = parts.branches[number]
        own = {v for v in parts.above if parts.find(v) == part} if part is not None else set[int]()
        outside = {name: v for name, v in branch.reads.items() if name in part_nodes and v not in own}
        built = cls(branch, number, outside, shared)
        for name in branch.nodes:
            if name in outside and name in part_nodes:
                built.reads[outside[name]] = branch.nodes[name]
            elif name in part_nodes:
                node = copy_node(branch.nodes[name])
                data, waits = [built.renamed(text) for text in data_inputs(node)], set[str]()
                controls = [text[1:] for text in node.input if text[0] == "^"] if part is not None else []
                for control in controls:
                    if control in part_nodes:
                        waits |= set() if control in outside else {control}
                    elif control not in outside:
                        # A node of another part stands for the changes of this part that it waits for.
                        waits.update(c for c in branch.before(control) if parts.part_of(branch, c) == part)
                node.input[:] = [*data, *sorted(f"^{w}" for w in waits)]
                built.nodes.append(node)
                built.ends.extend([name] if name in branch.held or name in branch.reads else [])
        return built

    def renamed(self, text: str) -> str:
        """Return the name of a tensor of the branch in the part."""
        name = source_node(text)
        if name in self.outside:
            return f"{READ}_{self.outside[name]}"
        if text in self.shared:
            self.values.add(self.shared[text])
            return f"{SHARED}_{self.shared[text]}"
        if name in self.branch.slot:
            self.slots.add(self.branch.slot[name])
            return f"argument_{self.branch.slot[name]}"
        return text

    def add_result(self, k: int, text: str, of: BranchFunction) -> None:
        """Add a tensor of a branch to the results; zeros like it if the branch is the other one."""
        dtype = of.dtype(text)
        if of is not self.branch:
            sizes = [d.size for d in of.shape(text).dim]
            zeros = node_def_pb2.NodeDef(name=f"pesto_zeros_{k}", op="Const")
            zeros.attr["dtype"].type = dtype
            value = np.zeros(sizes, tf.as_dtype(dtype).as_numpy_dtype)
            zeros.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype, sizes))
            self.nodes.append(zeros)
            text = f"{zeros.name}:output:0"
        self.results.append((self.renamed(text), dtype))

    def finish(
        self, name: str, slots: Sequence[int], reads: Sequence[tuple[int, int]], values: Sequence[tuple[int, int]]
    ) -> Any:
        """Return the FunctionDef with these arguments: numbers of slots, (number, data type) of reads and values."""
        old = self.branch.function
        function = type(old)()
        function.signature.name = name
        for key, attr in old.attr.items():
            if key != "_input_shapes":
                function.attr[key].CopyFrom(attr)
        place = {slot: k for k, slot in reversed(list(enumerate(self.branch.slot.values())))}
        for k, slot in enumerate(slots):
            function.signature.input_arg.add(name=f"argument_{slot}", type=old.signature.input_arg[place[slot]].type)
            if place[slot] in old.arg_attr:
                function.arg_attr[k].CopyFrom(old.arg_attr[place[slot]])
        for variable, dtype in reads:
            function.signature.input_arg.add(name=f"{READ}_{variable}", type=dtype)
        for k, dtype in values:
            function.signature.input_arg.add(name=f"{SHARED}_{k}", type=dtype)
        for k, (text, dtype) in enumerate(self.results):
            function.signature.output_arg.add(name=f"output_{k}", type=dtype)
            function.ret[f"output_{k}"] = text
        function.node_def.extend(self.nodes)
        for end in self.ends:
            function.signature.control_output.append(end)
            function.control_ret[end] = end
        function.signature.is_stateful = bool(self.ends)
        return function
