"""Division of an `If` or `Case` that updates several variables into one for each variable and its optimizer slots.

An op that takes a variable's handle runs where the variable is, so one `If` around an optimizer holds all variables on
one device: loss scaling and gradient accumulation of Keras are such. Each part has the nodes of all branches that its
variables need. The values of other variables that a part needs from before the branch are read in front of it. Several
parts may need one small tensor that is computed of many, such as a global norm: an `If` of its own computes it for all.
Where a branch orders changes of variables in two parts, one part waits for the other.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorflow.core.framework import node_def_pb2

from pesto.core.plans.graph_differences import PART
from pesto.tf.nodes.captured import BranchDivision, copy_node, redirect_inputs, replace_branches
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import Signatures, producer
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes
from pesto.tf.variables.branch_function import (
    READ,
    RESULT,
    SHARED,
    PartFunction,
    Sizes,
    UndividableError,
    VariableParts,
    analyse,
    data_inputs,
    elements_of,
    output_number,
    source_node,
)
from pesto.tf.variables.variables import FunctionEffects

_BRANCHES = ("then_branch", "else_branch")
_STATELESS = {"If": "StatelessIf", "Case": "StatelessCase"}
"""Branch op that may change variables -> the one that only computes."""


def divide_branches(graph_def: Any, undivided: Sequence[str] = ()) -> dict[str, BranchDivision]:
    """Divide the branch ops of a flat GraphDef with `_output_shapes`; return the divisions by name.

    undivided: names of branch ops that are left whole.
    """
    divided: dict[str, BranchDivision] = {}
    if not any(node.op in _STATELESS for node in graph_def.node):
        return divided
    library = {f.signature.name: f for f in graph_def.library.function}
    bodies = FunctionEffects(Signatures(library))
    by_name = {node.name: node for node in graph_def.node}
    read = {producer(t) for node in graph_def.node for t in node.input if t[0] != "^"} if undivided else set[str]()
    for node in graph_def.node:
        if node.op in _STATELESS and (node.name not in undivided or node.name not in read):
            sizes = [elements_of(by_name[producer(t)], t) for t in data_inputs(node)[1:]]
            division = divide_branch(node, sizes, bodies, library, in_function=False)
            if division is not None:
                divided[node.name] = division
    return divided


def divide_program(
    graph_def: Any, divides: Callable[[str, BranchDivision], bool]
) -> tuple[Any, dict[str, BranchDivision]]:
    """Return a program with `_output_shapes` whose branch ops are divided where `divides` is true, and the divisions.

    Calls are inlined then; a program in which nothing is divided is returned as it is.
    """
    if not any(node.op in _STATELESS for node in graph_def.node) and not any(
        node.op in _STATELESS for function in graph_def.library.function for node in function.node_def
    ):
        return graph_def, {}
    flat = flatten(graph_def)
    flat = graph_def if flat is graph_def else infer_shapes(flat)
    divided_ops = {name: division for name, division in divide_branches(flat).items() if divides(name, division)}
    if not divided_ops:
        return graph_def, {}
    divided = copy_graph_def(flat)
    replace_branches(divided, divided_ops)
    return divided, divided_ops


def divide_branch(
    node: Any, sizes: Sizes, bodies: FunctionEffects, library: dict[str, Any], *, in_function: bool
) -> BranchDivision | None:
    """Divide one branch op; return None if it stays whole. New functions are added to `library`, which `bodies` has."""
    new_functions: list[Any] = []
    try:
        # Number of each argument: the first place at which its tensor is given.
        inputs = data_inputs(node)[1:]
        slots = [inputs.index(text) for text in inputs]
        branches = []
        for name in _list_functions(node):
            function, inner = _divide_inner(library[name], slots, sizes, bodies, library)
            new_functions += inner
            branches.append(analyse(function, slots, sizes, bodies))
    except (UndividableError, KeyError):
        return None
    parts = VariableParts(node, tuple(branches), sizes)
    if not parts.settle():
        return None
    # Inner branch ops were divided first, so the parts of the outer one can separate the variables of the inner ones
    # too.
    division = _DivisionWriter(parts, in_function).division()
    names = {f.signature.name: f for f in (*new_functions, *division.functions)}
    library.update(names)
    return BranchDivision(
        nodes=division.nodes, functions=tuple(names.values()), outputs=division.outputs, ends=division.ends
    )  # fmt: skip


def _list_functions(node: Any) -> list[str]:
    """Return the names of a branch op's functions, in the order of its branches."""
    if node.op == "Case":
        return [function.name for function in node.attr["branches"].list.func]
    return [node.attr[attr].func.name for attr in _BRANCHES]


def _divide_inner(
    function: Any, slots: Sequence[int], sizes: Sizes, bodies: FunctionEffects, library: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """Return a function with its inner branch ops divided, renamed, and new functions; itself without any."""
    inner: dict[str, BranchDivision] = {}
    by_name = {node.name: node for node in function.node_def}
    argument_sizes = {a.name: sizes[s] for a, s in zip(function.signature.input_arg, slots, strict=True)}
    for node in function.node_def:
        if node.op in _STATELESS:
            own: list[int | None] = []
            for text in data_inputs(node)[1:]:
                name = source_node(text)
                if name in argument_sizes:
                    own.append(argument_sizes[name])
                else:
                    k = output_number(text, by_name[name], bodies.signatures)
                    own.append(elements_of(by_name[name], f"{name}:{k}"))
            division = divide_branch(node, own, bodies, library, in_function=True)
            if division is not None:
                inner[node.name] = division
    if not inner:
        return function, []
    copy = type(function)()
    copy.CopyFrom(function)
    copy.signature.name += "_divided"
    del copy.node_def[:]
    for node in function.node_def:
        for new_node in inner[node.name].nodes if node.name in inner else [node]:
            new = copy_node(new_node)
            new.input[:] = _redirect_function_inputs(new_node.input, inner)
            copy.node_def.append(new)
    for name, text in function.ret.items():
        copy.ret[name] = _redirect_function_inputs([text], inner)[0]
    for name, node_name in function.control_ret.items():
        if node_name in inner:
            del copy.control_ret[name]
            copy.control_ret.update({end: end for end in inner[node_name].ends})
    return copy, [f for division in inner.values() for f in division.functions]


def _redirect_function_inputs(inputs: Sequence[str], inner: Mapping[str, BranchDivision]) -> list[str]:
    """Return as `redirect_inputs`, for inputs as a function names them (node:output:k)."""
    plain = [
        f"{source_node(t)}:{t.rpartition(':')[2]}" if t[0] != "^" and source_node(t) in inner else t for t in inputs
    ]
    data = [t for t in plain if t[0] != "^"]
    data = [inner[producer(t)].outputs[int(t.rpartition(":")[2])] if producer(t) in inner else t for t in data]
    return [*data, *redirect_inputs([t for t in plain if t[0] == "^"], inner)]


@dataclass(frozen=True, slots=True, eq=False)
class _DivisionWriter:
    """Builder of the nodes and functions of a divided branch op."""

    parts: VariableParts
    in_function: bool
    """True if the branch op is a node of a function, where tensors have other names."""
    reads: dict[int, Any] = field(default_factory=dict)
    """Variable -> the op in front of the parts that reads it for other parts than its own."""
    functions: list[Any] = field(default_factory=list)

    def division(self) -> BranchDivision:
        """Return the nodes and functions that replace the branch op."""
        node, parts = self.parts.node, self.parts
        nodes = [self._make_shared()] if any(parts.users) else []
        ends = {part: self._make_part(number, part) for number, part in enumerate(parts.parts)}
        # A control edge of the branch between changes in two parts becomes an edge between the branch ops of the parts.
        for a, b in sorted(parts.order):
            ends[b].input.append(f"^{ends[a].name}")
        for variable, read in self.reads.items():
            if variable in parts.above and parts.find(variable) in ends:
                ends[parts.find(variable)].input.append(f"^{read.name}")
        nodes += ends.values()
        for new in nodes:
            waits = {text for text in (*new.input, *node.input) if text[0] == "^"}
            new.input[:] = [*data_inputs(new), *sorted(waits)]
        by_name, ordered = {new.name: new for new in nodes}, dict[str, Any]()

        def add(new: Any) -> None:
            for text in new.input:
                name = source_node(text)
                if name in by_name and name not in ordered:
                    add(by_name[name])
            ordered[new.name] = new

        # Readers of the division expect each node behind those that it needs.
        for new in nodes:
            if new.name not in ordered:
                add(new)
        results = ends[parts.find(RESULT)].name if parts.branches[0].results else ""
        return BranchDivision(
            nodes=(*self.reads.values(), *ordered.values()),
            functions=tuple(self.functions),
            outputs=tuple(self._get_tensor(results, "output", k) for k in range(len(parts.branches[0].results))),
            # A branch that TensorFlow takes apart may be done before its inputs are there, so later changes of a
            # variable wait for the reads themselves.
            ends=tuple(end.name for end in (*ends.values(), *self.reads.values())),
        )

    def _get_tensor(self, node: str, output: str, k: int) -> str:
        return f"{node}:{output}:{k}" if self.in_function else f"{node}:{k}"

    def _make_shared(self) -> Any:
        """Return the branch op that computes tensors for several parts, zeros for those of other branches."""
        branches = self.parts.branches
        functions, shapes = [], []
        for b, branch in enumerate(branches):
            needed_nodes = branch.cone({source_node(text) for text in self.parts.users[b]})
            functions.append(PartFunction.of(self.parts, b, needed_nodes, None, {}))
        for of, branch in enumerate(branches):
            for text in self.parts.users[of]:
                shapes.append(branch.shape(text))
                for function in functions:
                    function.add_result(len(shapes), text, branch)
        op = self._make_node(SHARED, functions, {})
        for attr in ("output_shapes", "_output_shapes"):
            op.attr[attr].list.shape.extend(shapes)
        return op

    def _make_part(self, number: int, part: int) -> Any:
        parts, number_of = self.parts, itertools.count()
        texts = [{text: next(number_of) for text in users} for users in parts.users]
        functions = [PartFunction.of(parts, b, parts.kept[part, b], part, of) for b, of in enumerate(texts)]
        has_results = bool(parts.branches[0].results) and part == parts.find(RESULT)
        for function in functions if has_results else ():
            for k, text in enumerate(function.branch.results):
                function.add_result(k, text, function.branch)
        dtypes = {k: branch.dtype(t) for branch, of in zip(parts.branches, texts, strict=True) for t, k in of.items()}
        op = self._make_node(f"{PART}_{number}", functions, dtypes)
        for attr in ("output_shapes", "_output_shapes"):
            if has_results and attr in parts.node.attr:
                op.attr[attr].CopyFrom(parts.node.attr[attr])
        return op

    def _make_node(self, name: str, functions: list["PartFunction"], dtypes: Mapping[int, int]) -> Any:
        """Return a branch op that calls the functions, one a branch; `dtypes` are those of the shared tensors."""
        node, inputs = self.parts.node, data_inputs(self.parts.node)
        slots = sorted({s for f in functions for s in f.slots})
        reads = {v: read for f in functions for v, read in f.reads.items()}
        values = sorted({v for f in functions for v in f.values})
        new_node = node_def_pb2.NodeDef(
            name=f"{node.name}/{name}", op=_STATELESS[node.op] if name == SHARED else node.op
        )
        new_node.input.extend([inputs[0], *(inputs[1 + s] for s in slots)])
        for v in sorted(reads):
            # One op in front of the parts reads the variable for all of them.
            if v not in self.reads:
                read = copy_node(reads[v])
                read.name = f"{node.name}/{READ}_{v}"
                read.input[:] = [inputs[1 + v], *(text for text in node.input if text[0] == "^")]
                self.reads[v] = read
            new_node.input.append(self._get_tensor(self.reads[v].name, "value", 0))
        new_node.input.extend(self._get_tensor(f"{node.name}/{SHARED}", "output", v) for v in values)
        taken = [(v, reads[v].attr["dtype"].type) for v in sorted(reads)]
        targets = [new_node.attr[attr].func for attr in _BRANCHES] if node.op == "If" else None
        # A Case may name a function for several of its branches.
        before = _list_functions(node)
        for b, (old, function) in enumerate(zip(before, functions, strict=True)):
            function_name = f"{old}_{name}" if old not in before[:b] else f"{old}_{name}_{b}"
            definition = function.finish(function_name, slots, taken, [(v, dtypes[v]) for v in values])
            self.functions.append(definition)
            (targets[b] if targets else new_node.attr["branches"].list.func.add()).name = function_name
        for attr in ("Tcond", "_lower_using_switch_merge"):
            if attr in node.attr:
                new_node.attr[attr].CopyFrom(node.attr[attr])
        for attr in ("Tin", "Tout", "output_shapes", "_output_shapes"):
            new_node.attr[attr].list.SetInParent()
        new_node.attr["Tin"].list.type.extend(a.type for a in definition.signature.input_arg)
        new_node.attr["Tout"].list.type.extend(a.type for a in definition.signature.output_arg)
        return new_node
