"""Plans on disk: the project's versioned JSON, and the placements and orders in the formats of Pesto's authors."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import InputError, MismatchError
from pesto.core.files.disk import log_writing, read_bytes, write_atomic
from pesto.core.files.json import DocumentKind, decode_document, decode_json, encode_json
from pesto.core.graph import Graph, Variable
from pesto.core.plans.plan import Plan, Provenance, control_edges
from pesto.core.plans.shared_variables import CompanionPlan, StepVariables
from pesto.core.source import PROFILE, TIMES, Origin, read_source
from solvers import Problem, Schedule
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import find_cycle, topological_order
from solvers.heuristics.devices_of_location import devices_at

KIND = DocumentKind(format="pesto-plan", version=1, help="give a file that pesto solve wrote")


class _PlanOps(msgspec.Struct, kw_only=True):
    name: list[str]
    device: list[int]
    rank: list[int]
    start: list[int]
    finish: list[int]


class _PlanTransfers(msgspec.Struct, kw_only=True):
    payload: list[int]
    to: list[int]
    start: list[int]
    finish: list[int]


class _PlanVariables(msgspec.Struct, kw_only=True):
    name: list[str]
    dtype: list[str]
    shape: list[list[int] | None]
    op: list[int]


class _PlanFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    format: str
    format_version: int
    tick_s: float
    lanes: list[str]
    lane_device: list[str]
    ops: _PlanOps
    transfers: _PlanTransfers
    peak_bytes: dict[str, int]
    provenance: Provenance
    variables: _PlanVariables | None = None
    beside: CompanionPlan | None = None
    feed_shapes: list[str] = []


def dumps(plan: Plan) -> bytes:
    """Return the plan as canonical JSON (docs/reference/plan-file.md)."""
    s, held = plan.schedule, plan.held
    variables = _PlanVariables(
        name=[variable.name for variable in held.variables],
        dtype=[variable.dtype for variable in held.variables],
        shape=[None if variable.shape is None else list(variable.shape) for variable in held.variables],
        op=list(held.op),
    )
    return encode_json(
        _PlanFile(
            format=KIND.format,
            format_version=KIND.version,
            tick_s=plan.tick_s,
            lanes=list(plan.lanes),
            lane_device=list(plan.lane_device),
            ops=_PlanOps(
                name=list(plan.names),
                device=s.device.tolist(),
                rank=plan.rank.tolist(),
                start=s.start.tolist(),
                finish=s.finish.tolist(),
            ),
            transfers=_PlanTransfers(
                payload=s.sent_payload.tolist(),
                to=s.sent_to.tolist(),
                start=s.sent_start.tolist(),
                finish=s.sent_finish.tolist(),
            ),
            peak_bytes=plan.peak_bytes,
            provenance=plan.provenance,
            variables=variables if held.variables else None,
            beside=plan.beside,
            feed_shapes=list(plan.feed_shapes),
        )
    )


def save(plan: Plan, path: Path) -> None:
    """Write a plan atomically. Raise FileError when that fails."""
    log_writing(path, len(plan.names))
    write_atomic(path, dumps(plan))


def load(path: Path) -> Plan:
    """Read a plan. Raise FileError when it cannot be read, InputError when its content is refused."""
    return loads(read_bytes(path), str(path))


def loads(data: bytes, what: str) -> Plan:
    """Return a plan from JSON bytes; its schedule is not checked: see `verify`.

    Raise InputError naming `what` and the place.
    """
    file = decode_document(data, _PlanFile, what, KIND)
    o = file.ops
    if len({len(o.name), len(o.device), len(o.rank), len(o.start), len(o.finish)}) != 1:
        raise InputError.build("the columns of ops differ in length", where=what, remedy="the file is damaged")
    if len(file.lanes) != len(file.lane_device):
        raise InputError.build("lanes and lane_device differ in length", where=what, remedy="the file is damaged")
    if any(not 0 <= d < len(file.lanes) for d in file.ops.device):
        raise InputError.build(
            "an op is on a device that the plan does not list", where=what, remedy="the file is damaged"
        )
    if not 0 < file.tick_s < 1:
        raise InputError.build(f"tick_s is {file.tick_s}", where=what, remedy="it must lie between 0 and 1")
    held, columns = StepVariables(), file.variables
    if columns is not None:
        if len({len(columns.name), len(columns.dtype), len(columns.shape), len(columns.op)}) != 1:
            raise InputError.build(
                "the columns of variables differ in length", where=what, remedy="the file is damaged"
            )
        if len(set(columns.name)) != len(columns.name) or any(not 0 <= op < len(o.name) for op in columns.op):
            raise InputError.build(
                "a variable is listed twice, or at an op that is not there", where=what, remedy="the file is damaged"
            )
        shapes = (None if shape is None else tuple(shape) for shape in columns.shape)
        variables = map(Variable, columns.name, columns.dtype, shapes)
        held = StepVariables(variables=tuple(variables), op=tuple(columns.op))
    sent = file.transfers
    try:
        return Plan(
            names=tuple(file.ops.name),
            lanes=tuple(file.lanes),
            lane_device=tuple(file.lane_device),
            rank=_column(o.rank),
            schedule=Schedule(
                device=_column(o.device),
                start=_column(o.start),
                finish=_column(o.finish),
                sent_payload=_column(sent.payload),
                sent_to=_column(sent.to),
                sent_start=_column(sent.start),
                sent_finish=_column(sent.finish),
            ),
            tick_s=file.tick_s,
            peak_bytes=file.peak_bytes,
            provenance=_with_origins(file.provenance),
            held=held,
            beside=file.beside,
            feed_shapes=tuple(file.feed_shapes),
        )
    except (ValueError, OverflowError) as error:
        raise InputError.build(f"{error}", where=what, remedy="the file is damaged") from error


def _with_origins(provenance: Provenance) -> Provenance:
    """Fill in the origins that older versions did not write, from their lines for people."""
    if not provenance.graph_origin.kind:
        provenance = replace(provenance, graph_origin=read_source(provenance.graph_source).origin)
    if not provenance.cluster_origin.kind:
        kind, _, preset = provenance.cluster_source.partition(" ")
        is_preset = kind == "preset" and bool(preset)
        origin = (
            Origin(kind="preset", name=preset) if is_preset else Origin(kind="file", name=provenance.cluster_source)
        )
        provenance = replace(provenance, cluster_origin=origin)
    if provenance.costs_files is None:
        match = re.match(r"own times of .+? by (.+?)(?: \(sha256 (\w+)\))?, else ", provenance.costs)
        files = [Origin(kind=TIMES, name=match[1], digest=match[2] or "")] if match else []
        if "measured" in provenance.costs_basis:
            profile = re.search(r"(?:^|, else )\d+ of \d+ ops by (.+?) \(", provenance.costs)
            files.append(Origin(kind=PROFILE, name=profile[1] if profile else ""))
        provenance = replace(provenance, costs_files=tuple(files))
    return provenance


def _column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def part_json(plan: Plan) -> bytes:
    """Return the authors' part.json: [{"op": "device"}, ...] in the order of the graph's ops."""
    return encode_json([{name: device} for name, device in zip(plan.names, plan.device_names(), strict=True)])


def cdep_json(plan: Plan, graph: Graph) -> bytes:
    """Return the authors' cdep.json: [{"op": ["predecessor", ...]}, ...], the chain of each device."""
    return encode_json([{plan.names[b]: [plan.names[a]]} for a, b in control_edges(plan, graph)])


def read_part(path: Path) -> dict[str, str]:
    """Read the device of each op from a part.json. Raise InputError for an op named twice, or another content."""
    return _merge_rows(decode_json(read_bytes(path), list[dict[str, str]], str(path)), path)


def read_cdep(path: Path) -> dict[str, list[str]]:
    """Read the predecessors of each op from a cdep.json. Raise InputError as `read_part`."""
    return _merge_rows(decode_json(read_bytes(path), list[dict[str, list[str]]], str(path)), path)


def _merge_rows(rows: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for row in rows:
        for op, value in row.items():
            if op in merged:
                raise InputError.build(f"op {op!r} is listed twice", where=path, remedy="keep one entry")
            merged[op] = value
    return merged


_DEVICE = re.compile(r"(?:^|[/:])(cpu|gpu):(\d+)$")


def read_placement(
    part: Path, cdep: Path | None, graph: Graph, problem: Problem, cluster: Cluster
) -> tuple[Ints, Ints | None]:
    """Return (device of each op as the problem counts them, rank of each op or None without `cdep`).

    Devices may be written as gpu:0, GPU:0 or /device:GPU:0. Raise MismatchError when an op is not of this graph or is
    left out, InputError when a device is unknown, cannot run the op, or the order goes round in a circle.
    """
    rows = read_part(part)
    _known_ops(rows, part, graph)
    left_out = next((name for name in graph.names if name not in rows), None)
    if left_out is not None:
        raise MismatchError.build(
            f"op {left_out!r} has no device", where=part, remedy="the file must list every op of the graph"
        )
    index = {d.name.lower(): k for k, d in enumerate(cluster.devices)}
    places = []
    for name in graph.names:
        match = _DEVICE.search(rows[name].lower())
        device_name = f"{match[1]}:{match[2]}" if match else rows[name].lower()
        if device_name not in index:
            raise InputError.build(
                f"unknown device {rows[name]!r}", where=part, remedy=f"the cluster has {sorted(index)}"
            )
        places.append(index[device_name])
    location = np.array(places)
    here = problem.allowed & (problem.location[None, :] == location[:, None])
    nowhere = np.flatnonzero(~here.any(axis=1))
    if len(nowhere):
        name = graph.names[nowhere[0]]
        raise InputError.build(
            f"op {name!r} cannot run on {rows[name]}", where=part, remedy="place it where it has a kernel"
        )
    device = devices_at(problem, location)
    if cdep is None:
        return device, None
    befores = read_cdep(cdep)
    _known_ops(befores, cdep, graph)
    number = {name: i for i, name in enumerate(graph.names)}
    pairs = [(before, after) for after, several in befores.items() for before in several]
    _known_ops({before: None for before, _ in pairs}, cdep, graph)
    src = np.concatenate([graph.edge_src, np.array([number[a] for a, _ in pairs], dtype=np.int64)])
    dst = np.concatenate([graph.edge_dst, np.array([number[b] for _, b in pairs], dtype=np.int64)])
    order = topological_order(graph.ops, src, dst)
    if len(order) < graph.ops:
        cycle = [graph.names[i] for i in find_cycle(graph.ops, src, dst)][:6]
        raise InputError(f"{cdep}: the dependencies go round in a circle: {' -> '.join([*cycle, cycle[0]])}")
    return device, rank_of(order)


def _known_ops(rows: dict[str, str] | dict[str, list[str]] | dict[str, None], path: Path, graph: Graph) -> None:
    names = set(graph.names)
    stranger = next((op for op in rows if op not in names), None)
    if stranger is not None:
        raise MismatchError.build(
            f"op {stranger!r} is not in the graph {graph.source}", where=path, remedy="give the file's own graph"
        )
