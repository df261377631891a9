"""Graphs of networkx as graphs to plan: a node is an op, an edge carries bytes (docs/guides/other-graphs.md)."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pesto.core.arguments import expect
from pesto.core.costs.presets import PRESETS
from pesto.core.errors import InputError
from pesto.core.files.graph_file import MAX_KINDS, MAX_OPS, OpRecord, OpVariable, to_graph
from pesto.core.files.json import quoted, shown
from pesto.core.files.labels import check_labels
from pesto.core.files.toml import suggest
from pesto.core.graph import BOUND, BRANCHED, MEANT, NOT_SAID, Graph
from pesto.core.source import read_source
from pesto.inputs.attribute_values import Pick, count, missing_text, number, parts, pick_value, truth
from pesto.inputs.networkx_edges import wire_edges

if TYPE_CHECKING:
    import networkx as nx

MOST_SECONDS = 1e6
_MOST_FLOPS = 1e24
_PLACE = re.compile(r"\$\.ops\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where the numbers of a graph of networkx are. UsageError when one is neither a name, a mapping nor a function."""

    durations: Pick = "seconds"
    """Of a node: seconds, or seconds by kind of device or preset; of an attribute's name X also X_gpu and the like."""
    sizes: Pick = "bytes"
    """Of an edge: bytes."""
    memory: Pick = "param_bytes"
    """Of a node: bytes that stay on its device."""
    kinds: Pick = "runs_on"
    """Of a node: the kinds of device that it may run on."""
    groups: Pick = "group"
    """Of a node: a label; nodes with the same share a device."""
    unit_s: float = 1.0
    """Seconds of one unit of `durations`."""
    default_duration: float | None = None
    """Time of a node that gives none, in the unit of `durations`; None: that is an error."""
    default_bytes: int | None = None
    """Bytes of an edge that gives none; None: that is an error."""
    order_only: bool = False
    """True if every edge only orders its ends, as one with `control` does."""

    def __post_init__(self) -> None:
        """Validate."""
        give = "the name of an attribute, a mapping or a function"
        for name in ("durations", "memory", "kinds", "groups"):
            expect(name, getattr(self, name), str | Mapping | Callable, give)
        expect("bytes", self.sizes, str | Mapping | Callable, give)


def graph_from_networkx(  # noqa: PLR0913  # each is what a user names
    graph: "nx.DiGraph",
    *,
    durations: Pick = "seconds",
    bytes: Pick = "bytes",  # noqa: A002
    memory: Pick = "param_bytes",
    kinds: Pick = "runs_on",
    groups: Pick = "group",
    source: str = "",
) -> Graph:
    """A DAG of networkx as a graph to plan (docs/guides/other-graphs.md): a node is an op, by `str` of it.

    Each of the others is the name of an attribute, a mapping, or a function. durations: of a node, in seconds, or a
    mapping of seconds by kind of device (gpu) or preset (V100); beside the attribute X, X_gpu and X_V100 count.
    bytes: of an edge, by (u, v) or (u, v, key), from a function of u, v and the attributes. memory: bytes that stay on
    the node's device, else none. kinds: of device that it may run on, a list or "cpu,gpu", else every kind. groups: a
    label; nodes with an equal one share a device. source: where the graph comes from, for people.

    Edges of a node with an equal `output` carry one tensor, those with `control` none. The other attributes that
    `Graph.to_networkx` writes are read, so that it gives this graph back.

    InputError, with the node or edge, for what is missing, negative, NaN or no number, and for cycles; UsageError for
    what is no graph of networkx.
    """
    expect("source", source, str, "a text")
    reading = Reading(durations=durations, sizes=bytes, memory=memory, kinds=kinds, groups=groups)
    return from_networkx(graph, reading, source)


def from_networkx(graph: Any, reading: Reading, source: str = "") -> Graph:
    """The graph of nodes and edges; InputError, with the node or the edge, for one that cannot be planned.

    UsageError for what is no graph of networkx. Parallel edges without `output` are one, their bytes added; the log
    says so.
    """
    import networkx as nx

    expect("graph", graph, nx.Graph, "a networkx.DiGraph or networkx.MultiDiGraph")
    if not graph.is_directed():
        raise InputError.build(
            "the graph is undirected: nothing says which end of an edge comes first",
            remedy="make it a networkx.DiGraph, each edge from what writes to what reads",
        )
    if not len(graph):
        raise InputError.build("the graph has no nodes", remedy="add at least one")
    if len(graph) > MAX_OPS:
        raise InputError.build(f"{len(graph)} nodes, at most {MAX_OPS} are read", remedy="coarsen the graph first")
    if reading.order_only:
        graph = graph.copy()
        for *_, data in graph.edges(data=True):
            data["control"] = True
    names = _names(graph)
    _check_spelling(graph, reading)
    kinds, runs_on = _kinds(graph, names, reading)
    wiring = wire_edges(graph, names, lambda at, data, edge: _size(reading, at, data, edge))
    if wiring.added:
        logging.getLogger("pesto").warning(
            "several edges between two nodes are one, their bytes added: %d were added to others, as %s",
            len(wiring.added), wiring.added[0],
        )  # fmt: skip
    ops = []
    for node, data in graph.nodes(data=True):
        name, where = names[node], f"node {quoted(names[node])}"
        seconds = _seconds(reading, node, data, kinds, where)
        on = runs_on[node] or _timed_kinds(seconds, data) or kinds
        times = _times(reading.durations, seconds, on, data, where)
        ops.append(
            OpRecord(
                name=name, runs_on=on, time_s=times, inputs=wiring.inputs[name], control=wiring.control[name],
                outputs=wiring.outputs[name], dtypes=wiring.dtypes[name], **_other_fields(reading, node, data, where),
            )
        )  # fmt: skip
    return _make_graph(graph.graph, ops, kinds, source or _graph_name(graph))


def _make_graph(said: dict[str, Any], ops: list[OpRecord], kinds: list[str], source: str) -> Graph:
    batch = None if said.get("batch") is None else count(said["batch"], "the graph", "its batch")
    way = said.get("way", NOT_SAID)
    if way not in MEANT:
        raise InputError.build(
            f"the graph's way is {shown(repr(way), 60)}", remedy=f"give one of {', '.join(MEANT[1:])}, or none"
        )
    try:
        check_labels([source], lambda _: "the graph's source")
        shapes = str(said.get("feed_shapes", ""))
        check_labels([shapes], lambda _: "the graph's feed_shapes", empty=True)
        return to_graph(ops, kinds, read_source(source), batch=batch, feed_shapes=shapes.split(), way=way)
    except InputError as error:
        text = _PLACE.sub(lambda at: f"node {quoted(ops[int(at[1])].name)}", str(error))
        raise InputError(text.replace("$.ops", "the nodes").replace("$.kinds", "the graph's kinds")) from error


def _graph_name(graph: Any) -> str:
    said = graph.graph.get("source") or graph.graph.get("name")
    return shown(said) if said else "a graph of networkx"


def _names(graph: Any) -> dict[Any, str]:
    """The name of each node: a string is its own, anything else what `str` says of it."""
    names = {node: str(node) for node in graph}
    listed = list(names)
    check_labels(list(names.values()), lambda k: f"node {shown(repr(listed[k]), 100)}")
    seen: dict[str, Any] = {}
    for node, name in names.items():
        if name in seen:
            two = " and ".join(shown(repr(each), 60) for each in (seen[name], node))
            raise InputError.build(
                f"nodes {two} are both called {shown(name, 60)}", remedy="rename one with networkx.relabel_nodes"
            )
        seen[name] = node
    return names


def _check_spelling(graph: Any, reading: Reading) -> None:
    """InputError for an attribute that is asked for and that no node has."""
    usual = Reading()
    there = {str(key) for _, data in graph.nodes(data=True) for key in data}
    for name in ("durations", "memory", "kinds", "groups"):
        pick = getattr(reading, name)
        if not isinstance(pick, str) or pick == getattr(usual, name) or pick in there:
            continue
        if name != "durations" or not any(key.startswith(f"{pick}_") for key in there):
            raise InputError.build(
                f"no node has the attribute {quoted(pick)}, given as {name}", remedy=f"{shown(suggest(pick, there))}"
            )


def _kinds(graph: Any, names: dict[Any, str], reading: Reading) -> tuple[list[str], dict[Any, list[str]]]:
    """All kinds of device, the graph's own or cpu and gpu first, and those of each node, none where it does not say."""
    kinds = dict.fromkeys(parts(graph.graph.get("kinds", "cpu,gpu"), "the graph", "kinds"))
    runs_on: dict[Any, list[str]] = {}
    for node, data in graph.nodes(data=True):
        where = f"node {quoted(names[node])}"
        value = pick_value(reading.kinds, (node,), data, where)
        runs_on[node] = [] if value is None else parts(value, where, "its kinds of device")
        if value is not None and not any(runs_on[node]):
            raise InputError.build(
                "it may run on no kind of device", where=where, remedy="give one, such as gpu, or cpu,gpu"
            )
        kinds |= dict.fromkeys(runs_on[node])
    if len(kinds) > MAX_KINDS:
        raise InputError.build(
            f"{len(kinds)} kinds of device, at most {MAX_KINDS} are read", remedy="leave out what is not needed"
        )
    return list(kinds), runs_on


def _size(reading: Reading, at: tuple[Any, ...], data: dict[str, Any], edge: str) -> int:
    value = pick_value(reading.sizes, at, data, edge)
    if value is None and reading.default_bytes is not None:
        return reading.default_bytes
    if value is None:
        raise InputError.build(
            f"its bytes are missing: {missing_text(reading.sizes, data)}",
            where=edge,
            remedy=(
                "set them (0 for what carries "
                "nothing; control for what only waits), or name the attribute that has them as bytes; "
                "pesto import "
                "--order-only is for edges that carry nothing, pesto import --bytes 0 for those that "
                "carry 0 bytes"
            ),
        )
    return count(value, edge, "its number of bytes")


def _seconds(reading: Reading, node: Any, data: dict[str, Any], kinds: list[str], where: str) -> dict[str, float]:
    """Seconds by kind of device or preset, under "" where they hold for every kind; empty where nothing says any."""
    value = pick_value(reading.durations, (node,), data, where)
    said = dict(value) if isinstance(value, Mapping) else {} if value is None else {"": value}
    known = [*kinds, *PRESETS]
    for label in said:
        if label and label not in known:
            raise InputError.build(
                f"a time for {quoted(label, 60)}, no kind of device", where=where, remedy=suggest(label, known)
            )
    if isinstance(reading.durations, str):
        named = {label: f"{reading.durations}_{label}" for label in known}
        said |= {label: data[key] for label, key in named.items() if key in data}
    if not said and not _has_model_inputs(data) and reading.default_duration is not None:
        said[""] = reading.default_duration
    most, unit = MOST_SECONDS / reading.unit_s, reading.unit_s
    return {label: number(each, where, "its time", most) * unit for label, each in said.items()}


def _has_model_inputs(data: dict[str, Any]) -> bool:
    """Whether a node says what its time can be modelled by."""
    return "flops" in data or "moved_bytes" in data


def _kind_of(label: str) -> str:
    return PRESETS[label].kind if label in PRESETS else label


def _timed_kinds(seconds: dict[str, float], data: dict[str, Any]) -> list[str]:
    """The kinds for which a node gives times, where it gives no other and says nothing else; none where it does."""
    return [] if "" in seconds or _has_model_inputs(data) else list(dict.fromkeys(map(_kind_of, seconds)))


def _times(
    pick: Pick, seconds: dict[str, float], on: list[str], data: dict[str, Any], where: str
) -> dict[str, float] | None:
    """Seconds by kind and preset; InputError for a kind on which the node may run in an unknown time."""
    kinds = {_kind_of(label) for label in seconds}
    left = [] if "" in seconds or _has_model_inputs(data) else [kind for kind in on if kind not in kinds]
    if left and not seconds:
        raise InputError.build(
            f"its time is missing: {missing_text(pick, data)}",
            where=where,
            remedy=(
                "set it, or name the attribute that has it as "
                "durations; pesto import --duration 0 is for nodes that give none"
            ),
        )
    if left:
        key = f"{pick}_{left[0]}" if isinstance(pick, str) else left[0]
        raise InputError.build(
            f"it may run on {left[0]}, where its time is missing", where=where, remedy=f"give {quoted(key, 60)}, too"
        )
    general = dict.fromkeys(on, seconds[""]) if "" in seconds else {}
    return general | {label: s for label, s in seconds.items() if label} or None


def _other_fields(reading: Reading, node: Any, data: dict[str, Any], where: str) -> dict[str, Any]:
    """All else that an op says, by its keys in the graph file."""
    memory = pick_value(reading.memory, (node,), data, where)
    group = pick_value(reading.groups, (node,), data, where)
    return {
        "type": str(data.get("type", "")),
        "group": None if group is None else str(group),
        "device": None if "pinned_to" not in data else str(data["pinned_to"]),
        "param_bytes": 0 if memory is None else count(memory, where, "its number of bytes that stay"),
        "flops": number(data.get("flops", 0.0), where, "flops", _MOST_FLOPS),
        "moved_bytes": None if "moved_bytes" not in data else count(data["moved_bytes"], where, "moved_bytes"),
        "launches": truth(data.get("launches", True), where, "launches"),
        "dtype": str(data.get("dtype", "")),
        "loose": _loose(data, where),
        "kernel": str(data.get("kernel", "")),
        "variable": _variable(data, where),
        "sizes": [count(size, where, "sizes") for size in parts(data["sizes"], where, "sizes")]
        if "sizes" in data
        else [],
    }


def _variable(data: dict[str, Any], where: str) -> OpVariable | None:
    """The variable that a node stands for; InputError for a shape that is no list of sizes."""
    if "variable" not in data:
        return None
    sizes = str(data.get("variable_shape", ""))
    try:
        shape = [] if sizes == "()" else [int(size) for size in sizes.split(",")] if sizes else None
    except ValueError as error:
        raise InputError.build(
            f"variable_shape is {quoted(sizes, 60)}", where=where, remedy="give sizes such as 3,4, or ()"
        ) from error
    return OpVariable(name=str(data["variable"]), dtype=str(data.get("variable_dtype", "")), shape=shape)


def _loose(data: dict[str, Any], where: str) -> int:
    found = count(data.get("loose", BOUND), where, "loose")
    if found > BRANCHED:
        raise InputError.build(f"loose is {found}", where=where, remedy=f"give {BOUND} to {BRANCHED}, or leave it out")
    return found
