"""Graphs of networkx as graphs to plan: a node is an op, an edge carries bytes (docs/guides/other-graphs.md).

Attributes may come from files, as strings: each value is checked, and an error names the node or the edge.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from pesto.core.costs.presets import PRESETS
from pesto.core.errors import InputError
from pesto.core.files.graph_file import MAX_EDGES, MAX_KINDS, MAX_OPS, OpRecord, OpVariable, to_graph
from pesto.core.files.json import check_labels, decode_json, quoted, shown
from pesto.core.files.toml import suggest
from pesto.core.graph import BOUND, BRANCHED, MEANT, NOT_SAID, Graph
from pesto.core.option import expect
from pesto.core.source import GraphOrigin, read_source

if TYPE_CHECKING:
    import networkx as nx

Pick = str | Mapping[Any, Any] | Callable[..., Any]
"""Where the value of each node or edge is: the name of an attribute, a mapping, or a function."""
MOST_SECONDS = 1e6
_MOST_FLOPS = 1e24
_MOST = 2**62
_PLACE = re.compile(r"\$\.ops\[(\d+)\]")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where the numbers of a graph of networkx are.

    Raise UsageError when a field of type Pick is neither a name, a mapping nor a function.
    """

    durations: Pick = "seconds"
    """Seconds of a node, or seconds by kind of device or preset; of an attribute's name X also X_gpu and the like."""
    sizes: Pick = "bytes"
    """Bytes of an edge."""
    memory: Pick = "param_bytes"
    """Bytes of a node that stay on its device."""
    kinds: Pick = "runs_on"
    """Kinds of device that a node may run on."""
    groups: Pick = "group"
    """Label of a node; nodes with the same label share a device."""
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
    """Return a DAG of networkx as a graph to plan (docs/guides/other-graphs.md): a node is an op, by `str` of it.

    Each of the others is the name of an attribute, a mapping, or a function. durations: of a node, in seconds, or a
    mapping of seconds by kind of device (gpu) or preset (V100); beside the attribute X, X_gpu and X_V100 count.
    bytes: of an edge, by (u, v) or (u, v, key), from a function of u, v and the attributes. memory: bytes that stay on
    the node's device, else none. kinds: of device that it may run on, a list or "cpu,gpu", else every kind. groups: a
    label; nodes with an equal one share a device. source: where the graph comes from, for people.

    Edges of a node with an equal `output` carry one tensor, those with `control` none. The other attributes that
    `Graph.to_networkx` writes are read, so that it gives this graph back.

    Raise InputError, with the node or edge, for what is missing, negative, NaN or no number, and for cycles; UsageError
    for what is no graph of networkx.
    """
    expect("source", source, str, "a text")
    reading = Reading(durations=durations, sizes=bytes, memory=memory, kinds=kinds, groups=groups)
    return from_networkx(graph, reading, source)


def from_networkx(graph: Any, reading: Reading, source: str = "") -> Graph:
    """Return the graph of nodes and edges. Raise InputError, with the node or the edge, for one that has no plan.

    Raise UsageError for what is no graph of networkx. Parallel edges without `output` are one, their bytes added; the
    log says so.
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
    names = _name_nodes(graph)
    _check_spelling(graph, reading)
    kinds, runs_on = _read_kinds(graph, names, reading)
    wiring = wire_edges(graph, names, reading)
    if wiring.added:
        logging.getLogger("pesto").warning(
            "several edges between two nodes are one, their bytes added: %d were added to others, as %s",
            len(wiring.added), wiring.added[0],
        )  # fmt: skip
    ops = []
    for node, data in graph.nodes(data=True):
        name, where = names[node], f"node {quoted(names[node])}"
        on, times = _read_times(reading, node, data, (kinds, runs_on[node]), where)
        ops.append(
            OpRecord(
                name=name, runs_on=on, time_s=times, inputs=wiring.inputs[name], control=wiring.control[name],
                outputs=wiring.outputs[name], dtypes=wiring.dtypes[name], **_other_fields(reading, node, data, where),
            )
        )  # fmt: skip
    named = graph.graph.get("source") or graph.graph.get("name")
    source = source or (shown(named) if named else "a graph of networkx")
    batch, way = graph.graph.get("batch"), graph.graph.get("way", NOT_SAID)
    batch = None if batch is None else count(batch, "the graph", "its batch")
    if way not in MEANT:
        raise InputError.build(
            f"the graph's way is {shown(repr(way), 60)}", remedy=f"give one of {', '.join(MEANT[1:])}, or none"
        )
    try:
        check_labels([source], lambda _: "the graph's source")
        shapes = str(graph.graph.get("feed_shapes", ""))
        check_labels([shapes], lambda _: "the graph's feed_shapes", empty=True)
        origin = _read_origin(graph.graph.get("graph_origin"))
        return to_graph(ops, kinds, read_source(source, origin), batch=batch, feed_shapes=shapes.split(), way=way)
    except InputError as error:
        message = _PLACE.sub(lambda at: f"node {quoted(ops[int(at[1])].name)}", error.message)
        message = message.replace("$.ops", "the nodes").replace("$.kinds", "the graph's kinds")
        raise InputError.build(message, where=error.where, remedy=error.remedy) from error


def _read_origin(text: Any) -> GraphOrigin:
    """Return the origin that a graph states as a JSON object; of no kind where it states none."""
    if text is None:
        return GraphOrigin()
    what = "the graph's graph_origin"
    expect("graph_origin", text, str, "a JSON object")
    origin = decode_json(text.encode(errors="replace"), GraphOrigin, what)
    check_labels([origin.kind, origin.name, origin.variant], lambda _: what, empty=True)
    return origin


def _name_nodes(graph: Any) -> dict[Any, str]:
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
    """InputError for an attribute that a user names and that no node has."""
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


def _read_kinds(graph: Any, names: dict[Any, str], reading: Reading) -> tuple[list[str], dict[Any, list[str]]]:
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


def _read_times(
    reading: Reading, node: Any, data: dict[str, Any], kinds: tuple[list[str], list[str]], where: str
) -> tuple[list[str], dict[str, float] | None]:
    """(kinds of device that a node runs on, its seconds by kind and preset); kinds: all, and those that it names."""
    every, own = kinds
    value = pick_value(reading.durations, (node,), data, where)
    times = dict(value) if isinstance(value, Mapping) else {} if value is None else {"": value}
    known = [*every, *PRESETS]
    for label in times:
        if label and label not in known:
            raise InputError.build(
                f"a time for {quoted(label, 60)}, no kind of device", where=where, remedy=suggest(label, known)
            )
    if isinstance(reading.durations, str):
        named = {label: f"{reading.durations}_{label}" for label in known}
        times |= {label: data[key] for label, key in named.items() if key in data}
    modelled = "flops" in data or "moved_bytes" in data
    if not times and not modelled and reading.default_duration is not None:
        times[""] = reading.default_duration
    most, unit = MOST_SECONDS / reading.unit_s, reading.unit_s
    seconds = {label: number(each, where, "its time", most) * unit for label, each in times.items()}
    # A node that gives times for some kinds, and says nothing else, runs on these alone.
    timed = dict.fromkeys(PRESETS[label].kind if label in PRESETS else label for label in seconds)
    complete = "" in seconds or modelled
    on = own or ([] if complete else list(timed)) or every
    left = [] if complete else [kind for kind in on if kind not in timed]
    if left and not seconds:
        raise InputError.build(
            f"its time is missing: {missing_text(reading.durations, data)}",
            where=where,
            remedy="set it, or name the attribute that has it as durations; "
            "pesto import --duration 0 is for nodes that give none",
        )
    if left:
        key = f"{reading.durations}_{left[0]}" if isinstance(reading.durations, str) else left[0]
        raise InputError.build(
            f"it may run on {left[0]}, where its time is missing", where=where, remedy=f"give {quoted(key, 60)}, too"
        )
    general = dict.fromkeys(on, seconds[""]) if "" in seconds else {}
    return on, general | {label: s for label, s in seconds.items() if label} or None


def _other_fields(reading: Reading, node: Any, data: dict[str, Any], where: str) -> dict[str, Any]:
    """All else that an op says, by its keys in the graph file."""
    memory = pick_value(reading.memory, (node,), data, where)
    group = pick_value(reading.groups, (node,), data, where)
    loose = count(data.get("loose", BOUND), where, "loose")
    if loose > BRANCHED:
        raise InputError.build(f"loose is {loose}", where=where, remedy=f"give {BOUND} to {BRANCHED}, or leave it out")
    variable = None
    if "variable" in data:
        sizes = str(data.get("variable_shape", ""))
        try:
            shape = [] if sizes == "()" else [int(size) for size in sizes.split(",")] if sizes else None
        except ValueError as error:
            raise InputError.build(
                f"variable_shape is {quoted(sizes, 60)}", where=where, remedy="give sizes such as 3,4, or ()"
            ) from error
        variable = OpVariable(name=str(data["variable"]), dtype=str(data.get("variable_dtype", "")), shape=shape)
    kernel_sizes = parts(data["sizes"], where, "sizes") if "sizes" in data else []
    return {
        "type": str(data.get("type", "")),
        "group": None if group is None else str(group),
        "device": None if "pinned_to" not in data else str(data["pinned_to"]),
        "param_bytes": 0 if memory is None else count(memory, where, "its number of bytes that stay"),
        "flops": number(data.get("flops", 0.0), where, "flops", _MOST_FLOPS),
        "moved_bytes": None if "moved_bytes" not in data else count(data["moved_bytes"], where, "moved_bytes"),
        "launches": truth(data.get("launches", True), where, "launches"),
        "dtype": str(data.get("dtype", "")),
        "loose": loose,
        "kernel": str(data.get("kernel", "")),
        "variable": variable,
        "sizes": [count(size, where, "sizes") for size in kernel_sizes],
    }


# Edges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wiring:
    """Inputs, waits and outputs of each node by its name, in the words of the graph file."""

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
        """Key of the output; sorted, the keys are in the order of outputs: numbers, then names, then unlabelled."""
        if self.label is None:
            return True, 0, self.by
        return (False, self.label, "") if isinstance(self.label, int) else (False, MAX_EDGES, self.label)


def wire_edges(graph: Any, names: dict[Any, str], reading: Reading) -> Wiring:
    """Wire nodes: edges of one node with an equal `output` carry one tensor, those without it one each, `control` none.

    Raise InputError, with the edge, for one from a node to itself, and for two that disagree on an output that both
    carry.
    """
    if graph.number_of_edges() > MAX_EDGES:
        raise InputError.build(
            f"{graph.number_of_edges()} edges, at most {MAX_EDGES} are read", remedy="coarsen the graph first"
        )
    wiring = Wiring(inputs={name: [] for name in names.values()}, control={name: [] for name in names.values()})
    for node, name in names.items():
        readers: list[_OutputRead] = []
        for ends in graph.out_edges(node, keys=True) if graph.is_multigraph() else graph.out_edges(node):
            reader, data = names[ends[1]], graph.edges[ends]
            edge = f"edge {shown(name, 100)} -> {shown(reader, 100)}"
            if name == reader:
                raise InputError.build(
                    f"node {quoted(name)} waits for itself", where=edge, remedy="remove the edge; a loop must be one op"
                )
            if truth(data.get("control", False), edge, "control"):
                wiring.control[reader].append(name)
            else:
                readers.append(_read_edge(reading, ends, reader, data, edge))
        _wire_outputs(wiring, name, graph.nodes[node], readers)
    return wiring


def _read_edge(reading: Reading, ends: tuple[Any, ...], reader: str, data: dict[str, Any], edge: str) -> _OutputRead:
    label = data.get("output")
    if label is not None and not (isinstance(label, str) and not label.isdecimal()):
        index = int(label) if isinstance(label, str | Integral) else -1
        if not 0 <= index < MAX_EDGES:
            raise InputError.build(
                f"its output is {shown(repr(label), 60)}", where=edge, remedy="give its number, from 0, or a name"
            )
        label = index
    value = pick_value(reading.sizes, ends, data, edge)
    if value is None and reading.default_bytes is None:
        raise InputError.build(
            f"its bytes are missing: {missing_text(reading.sizes, data)}",
            where=edge,
            remedy="set them (0 for what carries nothing; control for what only waits), or name the attribute that has "
            "them as bytes; pesto import --order-only is for edges that carry nothing, pesto import --bytes 0 for "
            "those that carry 0 bytes",
        )
    size = reading.default_bytes if value is None else count(value, edge, "its number of bytes")
    return _OutputRead(label=label, by=reader, size=size or 0, dtype=str(data.get("dtype") or ""), edge=edge)


def _wire_outputs(wiring: Wiring, name: str, attributes: dict[str, Any], readers: list[_OutputRead]) -> None:
    """Add the outputs of a node, in order, and the inputs of its readers."""
    made: dict[tuple[bool, int, str], _OutputRead] = {}
    for one in readers:
        before = made.setdefault(one.output, one)
        if before is one:
            continue
        if one.label is None:
            wiring.added.append(one.edge)
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
    node, listed = f"node {quoted(name)}", "outputs" in attributes
    sizes = [count(x, node, "outputs") for x in parts(attributes["outputs"], node, "outputs")] if listed else []
    dtypes = parts(attributes["dtypes"], node, "dtypes") if "dtypes" in attributes else []
    if len(dtypes) not in (0, len(sizes)):
        raise InputError.build(
            f"{len(dtypes)} dtypes of {len(sizes)} outputs", where=node, remedy="give each output its own, or none"
        )
    # The index of each output: by its number where the node lists them, else in order; the others come after.
    outputs = sorted(made)
    numbered = {output: output[1] for output in outputs if not output[0] and not output[2]} if listed else {}
    beyond = max(numbered.values(), default=-1)
    if listed and beyond >= len(sizes):
        raise InputError.build(
            f"node {quoted(name)}: an edge carries output {beyond}, its 'outputs' lists {len(sizes)}",
            remedy="list all of them",
        )
    rest = [output for output in outputs if output not in numbered]
    place = numbered | {output: len(sizes) + k for k, output in enumerate(rest)}
    sizes += [0] * (max(place.values(), default=-1) + 1 - len(sizes))
    dtypes += [""] * (len(sizes) - len(dtypes))
    for output, one in made.items():
        sizes[place[output]], dtypes[place[output]] = one.size, one.dtype or dtypes[place[output]]
    wiring.outputs[name], wiring.dtypes[name] = sizes, dtypes if any(dtypes) else []
    for one in readers:
        reference = f"{name}:{place[one.output]}"
        if one.label is not None or reference not in wiring.inputs[one.by]:
            wiring.inputs[one.by].append(reference)


# Values of attributes


def number(value: Any, where: str, what: str, most: float) -> float:
    """Return a number from 0 to `most`, also from a string. Raise InputError, with its place, for NaN and all else."""
    result: float | None = None
    if isinstance(value, str | Real):
        with suppress(ValueError, OverflowError):
            result = None if value is True or value is False else float(value)
    if result is None:
        raise InputError.build(
            f"{what} is {shown(repr(value), 60)}, which is no number", where=where, remedy="give one"
        )
    if not 0 <= result <= most:
        raise InputError.build(f"{what} is {result:g}", where=where, remedy=f"give a number from 0 to {most:g}")
    return result


def count(value: Any, where: str, what: str) -> int:
    """Return a whole number up to 2**62. Raise InputError for fractions, which a wrong unit often gives, and others."""
    exact = isinstance(value, Integral) and not isinstance(value, bool)
    result = int(value) if exact else number(value, where, what, _MOST)
    if not 0 <= result <= _MOST or result != int(result):
        raise InputError.build(
            f"{what} is {shown(value, 60)}", where=where, remedy="give a whole number from 0 to 2**62"
        )
    return int(result)


def truth(value: Any, where: str, what: str) -> bool:
    """Return True for a mark that is set, also by 1 or "true" as in files. Raise InputError for what is neither."""
    result = _TRUTHS.get(str(value).lower())
    if result is None:
        raise InputError.build(f"{what} is {shown(repr(value), 60)}", where=where, remedy="give true or false")
    return result


def parts(value: Any, where: str, what: str) -> list[str]:
    """Return names from a list, or from a string with commas between them. Raise InputError for what is neither."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, Iterable):
        raise InputError.build(
            f"{what} is {shown(repr(value), 60)}", where=where, remedy="give names with commas between, or a list"
        )
    return [str(part) for part in value]


def pick_value(pick: Pick, at: tuple[Any, ...], data: Mapping[Any, Any], where: str) -> Any:
    """Return the value that `pick` gives of the node (node,) or the edge (u, v) or (u, v, key); None for none.

    An edge's mapping may leave out the key, and a function gets none. Raise InputError, with the place, when a function
    fails.
    """
    if isinstance(pick, str):
        return data.get(pick)
    ends = at[:2]
    if isinstance(pick, Mapping):
        keys = [ends[0]] if len(ends) == 1 else [at, ends]
        return next((pick[key] for key in keys if key in pick), None)
    try:
        return pick(*ends, data)
    except Exception as error:
        text = shown(f"{type(error).__name__}: {error}", 120)
        raise InputError.build(
            f"the function that was given for it fails with {text}", where=where, remedy="correct it"
        ) from error


def missing_text(pick: Pick, data: Mapping[Any, Any]) -> str:
    """Describe a missing value and what there is in its stead, for messages."""
    if not isinstance(pick, str):
        return "what was given for it has none"
    there = shown(", ".join(sorted(str(key) for key in data if key != pick)[:8]))
    lacks = f"it has no {'value of the ' if pick in data else ''}attribute {shown(repr(pick), 60)}"
    return f"{lacks}, {f'but {there}' if there else 'and no other'}"
