"""IdentityN without the wait: output k is input k, so what reads the one can read the other.

An IdentityN starts when all of its inputs are there and is on one device, so whatever passes it waits for the last and
travels there and back. Keras hands all gradients through one on their way to the optimizer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pesto.tf.nodes.needed_nodes import parse_nodes, producer
from pesto.tf.nodes.signatures import Signatures
from pesto.tf.nodes.v1_conditions import SWITCHES, node_conditions, output_conditions
from pesto.tf.nodes.v1_loops import outermost_loops

_TYPE = "IdentityN"


def find_barriers(graph_def: Any) -> dict[str, tuple[str, ...]]:
    """The tensors that each IdentityN passes, by its name, where its readers may read these instead.

    One that waits for other ops orders its readers behind them, one that reads a reference takes a copy, and one of
    whose inputs some are dead when others are not (those of a v1 conditional's branch) is dead with them: these stay.
    """
    signatures = Signatures({f.signature.name: f for f in graph_def.library.function})
    barriers = {n.name: tuple(n.input) for n in graph_def.node if n.op == _TYPE and all(t[0] != "^" for t in n.input)}
    read = {producer(text) for inputs in barriers.values() for text in inputs}
    # A reference is a buffer that changes. The IdentityN copies it at a certain time; readers behind it would read
    # later contents.
    refs = {node.name for node in graph_def.node if node.name in read and any(signatures.output_refs(node))}
    barriers = {name: inputs for name, inputs in barriers.items() if refs.isdisjoint(map(producer, inputs))}
    has_switches = any(node.op in SWITCHES for node in graph_def.node)
    stay = _possibly_dead(graph_def, list(barriers)) if barriers and has_switches else set()
    return {name: inputs for name, inputs in barriers.items() if name not in stay}


def _possibly_dead(graph_def: Any, names: Sequence[str]) -> set[str]:
    """Return those nodes that may be dead while one of their inputs is alive, and those in loops, which are one op."""
    nodes = parse_nodes(graph_def, names)
    looped = {i for i, label in enumerate(outermost_loops(nodes).tolist()) if label >= 0}
    under, wanted = node_conditions(nodes, range(len(nodes.defs)), looped), set(names)
    return {
        node.name
        for i, node in enumerate(nodes.defs)
        if node.name in wanted
        and (
            i in looped
            or any(under[p] | output_conditions(nodes, p, k, looped) != under[i] for p, k in nodes.inputs[i])
        )
    }


def bypass_barriers(graph_def: Any, passed: Mapping[str, Sequence[str]]) -> None:
    """Make all readers of these barriers read the barriers' inputs, in place; afterwards nothing reads them."""
    for node in graph_def.node:
        if any(producer(text) in passed for text in node.input):
            data = [source_tensor(text, passed) for text in node.input if text[0] != "^"]
            controls = [c for text in node.input if text[0] == "^" for c in _waits(text, passed)]
            node.input[:] = [*data, *dict.fromkeys(controls)]


def source_tensor(tensor: str, passed: Mapping[str, Sequence[str]]) -> str:
    """The tensor that barriers pass on as `tensor`; itself where none does."""
    while (name := producer(tensor)) in passed:
        tensor = passed[name][int(tensor[len(name) + 1 :] or 0)]
    return tensor


def _waits(control: str, passed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Return the control inputs that replace a control input from a barrier."""
    inputs = passed.get(producer(control))
    if inputs is None:
        return iter([control])
    return (f"^{producer(source_tensor(tensor, passed))}" for tensor in inputs)
