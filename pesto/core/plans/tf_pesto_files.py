"""Placements in the file formats of Pesto's authors, read as a placement and an order of a graph."""

import re
from pathlib import Path

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import InputError, MismatchError
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import read_cdep, read_part
from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import find_cycle, topological_order
from solvers.heuristics.devices_of_location import devices_at

_DEVICE = re.compile(r"(?:^|[/:])(cpu|gpu):(\d+)$")


def read_placement(
    part: Path, cdep: Path | None, graph: Graph, problem: Problem, cluster: Cluster
) -> tuple[Ints, Ints | None]:
    """(device of each op as the problem counts them, rank of each op or None without `cdep`).

    Devices may be written as gpu:0, GPU:0 or /device:GPU:0. MismatchError when an op is not of this graph or is
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
    location = np.array([_location(rows[name], index, part) for name in graph.names])
    here = problem.allowed & (problem.location[None, :] == location[:, None])
    nowhere = np.flatnonzero(~here.any(axis=1))
    if len(nowhere):
        name = graph.names[nowhere[0]]
        raise InputError.build(
            f"op {name!r} cannot run on {rows[name]}", where=part, remedy="place it where it has a kernel"
        )
    device = devices_at(problem, location)
    return device, None if cdep is None else _rank(read_cdep(cdep), cdep, graph)


def _location(text: str, index: dict[str, int], part: Path) -> int:
    found = _DEVICE.search(text.lower())
    name = f"{found.group(1)}:{found.group(2)}" if found else text.lower()
    if name not in index:
        raise InputError.build(f"unknown device {text!r}", where=part, remedy=f"the cluster has {sorted(index)}")
    return index[name]


def _rank(rows: dict[str, list[str]], cdep: Path, graph: Graph) -> Ints:
    _known_ops(rows, cdep, graph)
    index = {name: i for i, name in enumerate(graph.names)}
    pairs = [(before, after) for after, befores in rows.items() for before in befores]
    _known_ops({before: None for before, _ in pairs}, cdep, graph)
    src = np.concatenate([graph.edge_src, np.array([index[a] for a, _ in pairs], dtype=np.int64)])
    dst = np.concatenate([graph.edge_dst, np.array([index[b] for _, b in pairs], dtype=np.int64)])
    order = topological_order(graph.ops, src, dst)
    if len(order) < graph.ops:
        cycle = [graph.names[i] for i in find_cycle(graph.ops, src, dst)][:6]
        raise InputError(f"{cdep}: the dependencies go round in a circle: {' -> '.join([*cycle, cycle[0]])}")
    return rank_of(order)


def _known_ops(rows: dict[str, str] | dict[str, list[str]] | dict[str, None], path: Path, graph: Graph) -> None:
    names = set(graph.names)
    stranger = next((op for op in rows if op not in names), None)
    if stranger is not None:
        raise MismatchError.build(
            f"op {stranger!r} is not in the graph {graph.source}", where=path, remedy="give the file's own graph"
        )
