"""The edges of a graph of networkx as outputs and their readers: which carry one tensor, and which only an order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from pesto.core.errors import InputError
from pesto.core.files.graph_file import MAX_EDGES
from pesto.core.files.json import quoted, shown
from pesto.inputs.attribute_values import count, parts, truth

Size = Callable[[tuple[Any, ...], dict[str, Any], str], int]
"""Bytes of the edge (u, v, key) with its attributes; the last is what messages call it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wiring:
    """By name of a node: what it reads, waits for and makes, in the words of the graph file."""

    inputs: dict[str, list[str]]
    control: dict[str, list[str]]
    outputs: dict[str, list[int]] = field(default_factory=dict)
    dtypes: dict[str, list[str]] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    """Edges whose bytes went to another between the same nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputRead:
    """A node's output by its own label, or by the name of the only node that reads it, where an edge has none."""

    label: int | str | None
    by: str
    size: int
    dtype: str
    edge: str

    @property
    def output(self) -> tuple[bool, int, str]:
        """What edges of one output share; sorted, it is the order of outputs: numbers, then names, then unlabelled."""
        if self.label is None:
            return True, 0, self.by
        return (False, self.label, "") if isinstance(self.label, int) else (False, MAX_EDGES, self.label)


def wire_edges(graph: Any, names: dict[Any, str], size: Size) -> Wiring:
    """Edges of one node with an equal `output` carry one tensor, those without it one each; `control` carries none.

    InputError, with the edge, for one from a node to itself, and for two that disagree on an output that both carry.
    """
    if graph.number_of_edges() > MAX_EDGES:
        raise InputError.build(
            f"{graph.number_of_edges()} edges, at most {MAX_EDGES} are read", remedy="coarsen the graph first"
        )
    found = Wiring(inputs={name: [] for name in names.values()}, control={name: [] for name in names.values()})
    for node, name in names.items():
        _outputs(found, name, graph.nodes[node], _readers(found, graph, names, node, size))
    return found


def _readers(found: Wiring, graph: Any, names: dict[Any, str], node: Any, size: Size) -> list[_OutputRead]:
    """Who reads what of a node; what only waits for it goes to `found`."""
    readers: list[_OutputRead] = []
    keyed = graph.out_edges(node, keys=True) if graph.is_multigraph() else graph.out_edges(node)
    for at in keyed:
        name, reader, data = names[node], names[at[1]], graph.edges[at]
        edge = f"edge {shown(name, 100)} -> {shown(reader, 100)}"
        if name == reader:
            raise InputError.build(
                f"node {quoted(name)} waits for itself", where=edge, remedy="remove the edge; a loop must be one op"
            )
        if truth(data.get("control", False), edge, "control"):
            found.control[reader].append(name)
            continue
        label, dtype = _label(data.get("output"), edge), data.get("dtype")
        one = _OutputRead(label=label, by=reader, size=size(at, data, edge), dtype=str(dtype or ""), edge=edge)
        readers.append(one)
    return readers


def _label(value: Any, edge: str) -> int | str | None:
    """An output's number, or its name."""
    if value is None or (isinstance(value, str) and not value.isdecimal()):
        return value
    found = int(value) if isinstance(value, str | Integral) else -1
    if not 0 <= found < MAX_EDGES:
        raise InputError.build(
            f"its output is {shown(repr(value), 60)}", where=edge, remedy="give its number, from 0, or a name"
        )
    return found


def _outputs(found: Wiring, name: str, said: dict[str, Any], readers: list[_OutputRead]) -> None:
    """The outputs of a node, in order, and the inputs of its readers."""
    made: dict[tuple[bool, int, str], _OutputRead] = {}
    for one in readers:
        before = made.get(one.output)
        if before is None:
            made[one.output] = one
        elif one.label is None:
            found.added.append(one.edge)
            made[one.output] = _OutputRead(
                label=None, by=one.by, size=before.size + one.size, dtype=one.dtype, edge=one.edge
            )
        elif before.size != one.size:
            raise InputError.build(
                f"output {shown(one.label, 60)} has {one.size} bytes, {before.size} on {before.edge}",
                where=one.edge,
                remedy="give both the same bytes, or outputs of their own",
            )
    # The bytes and data types that a node's `outputs` and `dtypes` give, read or not.
    node = f"node {quoted(name)}"
    sizes = (
        [count(size, node, "outputs") for size in parts(said["outputs"], node, "outputs")] if "outputs" in said else []
    )
    dtypes = parts(said["dtypes"], node, "dtypes") if "dtypes" in said else []
    if len(dtypes) not in (0, len(sizes)):
        raise InputError.build(
            f"{len(dtypes)} dtypes of {len(sizes)} outputs", where=node, remedy="give each output its own, or none"
        )
    place = _places(name, sorted(made), len(sizes) if "outputs" in said else None)
    sizes += [0] * (max(place.values(), default=-1) + 1 - len(sizes))
    dtypes += [""] * (len(sizes) - len(dtypes))
    for output, one in made.items():
        sizes[place[output]], dtypes[place[output]] = one.size, one.dtype or dtypes[place[output]]
    found.outputs[name], found.dtypes[name] = sizes, dtypes if any(dtypes) else []
    for one in readers:
        reference = f"{name}:{place[one.output]}"
        if one.label is not None or reference not in found.inputs[one.by]:
            found.inputs[one.by].append(reference)


def _places(name: str, outputs: list[tuple[bool, int, str]], listed: int | None) -> dict[tuple[bool, int, str], int]:
    """The index of each output: by its number where the node lists them, else in order; the others come after."""
    if listed is None:
        return {output: k for k, output in enumerate(outputs)}
    numbered = {output: output[1] for output in outputs if not output[0] and not output[2]}
    beyond = max(numbered.values(), default=-1)
    if beyond >= listed:
        raise InputError.build(
            f"node {quoted(name)}: an edge carries output {beyond}, its 'outputs' lists {listed}",
            remedy="list all of them",
        )
    rest = [output for output in outputs if output not in numbered]
    return numbered | {output: listed + k for k, output in enumerate(rest)}
