"""Which functions a function calls, and how."""

from collections.abc import Collection, Iterable
from typing import Any

from pesto.errors import InputError
from pesto.files.json import shown
from pesto.tf.nodes.flat import CALLS
from pesto.tf.variables.function_effects import called


def reached(function: Any, names: Collection[str]) -> set[str]:
    """Those of `names` that a ConcreteFunction is, or calls at any depth.

    InputError when it calls one from a loop or branch, whose rounds would overlap.
    """
    graph_def = function.graph.as_graph_def()
    library = {f.signature.name: f for f in graph_def.library.function}
    found: set[str] = set()
    own = function.function_def.signature.name
    stack: list[tuple[str, Iterable[Any], bool]] = [(own, graph_def.node, False)]
    seen = set()
    while stack:
        name, nodes, looped = stack.pop()
        if name in names:
            if looped:
                raise InputError(
                    f"function {shown(function.graph.name)} runs the step inside a loop, whose rounds may overlap - "
                    "set steps_per_execution=1, or loop in Python"
                )
            found.add(name)
        for node in nodes:
            for inner in called(node):
                within = looped or node.op not in CALLS
                if inner in library and (inner, within) not in seen:
                    seen.add((inner, within))
                    stack.append((inner, library[inner].node_def, within))
    return found


def refuse_nested(graph: Any, planned: Iterable[str], label: str) -> None:
    """InputError when ops of the step lie in functions that it calls, where they cannot be placed."""
    own = {op.name for op in graph.get_operations()}
    if not own.issuperset(planned):
        inner = next(op.get_attr("f").name for op in graph.get_operations() if op.type in CALLS)
        raise InputError(
            f"{label} calls another tf.function ({shown(inner)}), whose ops cannot be placed from outside - decorate "
            "only the step itself, or use pesto.place, which traces through inner functions"
        )
