"""Branch ops of a graph replaced by several that together do the same."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto.tf.nodes.needed_nodes import producer


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
    known = {function.signature.name for function in graph_def.library.function}
    for division in divisions.values():
        graph_def.library.function.extend(f for f in division.functions if f.signature.name not in known)


def redirect_inputs(inputs: Sequence[str], divisions: Mapping[str, BranchDivision]) -> list[str]:
    """Inputs of a node with the divisions' tensors and ends in place of those of the branch ops."""
    if not any(producer(text) in divisions for text in inputs):
        return list(inputs)
    data = [_tensor(text, divisions) for text in inputs if text[0] != "^"]
    waits = [c for text in inputs if text[0] == "^" for c in _waits(text, divisions)]
    return [*data, *dict.fromkeys(waits)]


def redirect_names(names: Iterable[str], divisions: Mapping[str, BranchDivision]) -> tuple[str, ...]:
    """Names of ops with the divisions' ends in place of the branch ops."""
    return tuple(dict.fromkeys(end for n in names for end in (divisions[n].ends if n in divisions else (n,))))


def _tensor(text: str, divisions: Mapping[str, BranchDivision]) -> str:
    name = producer(text)
    return divisions[name].outputs[int(text[len(name) + 1 :] or 0)] if name in divisions else text


def _waits(text: str, divisions: Mapping[str, BranchDivision]) -> list[str]:
    return [f"^{end}" for end in divisions[text[1:]].ends] if text[1:] in divisions else [text]


def copy_node(node: Any) -> Any:
    """A NodeDef of its own."""
    copy = type(node)()
    copy.CopyFrom(node)
    return copy
