"""Layers in order over the accelerators, cut where their times balance: what a careful engineer does by hand.

The layers are read from the graph's own scopes: every numbered scope (layer_3, block_3, stage_3, cell_3) that holds a
variable is a layer with its whole path, so that encoder/layer_0 and decoder/layer_0 are two. Gradients and updates
count with their layer. The cut into contiguous pieces minimises the longest piece (the balanced assignment of
Mirhoseini et al. 2017, 4.1, and of pipeline frameworks); communication is not looked at.
"""

import re

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.planning.baselines.places import accelerators
from pesto.planning.baselines.scopes import RulePlacement, fill_from_neighbours, shortest, unify_groups
from solvers import Problem
from solvers.arrays import Ints
from solvers.heuristics.devices_of_location import devices_at, earliest

_NUMBERED = re.compile(r"(?:^|/)(?:\w*_)?(?:layer|block|stage|cell|unit)_\d+(?=/|$)")
_EARLY = 0.1
"""A layer begins where this share of its time lies before: its forward pass, whatever else is in its scope."""


def layer_balanced(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Contiguous layers of balanced times; pieces of equal time in order of earliest start where no layer is named."""
    targets = accelerators(problem, cluster)
    layer = layers_of(graph)
    rule = f"{int(layer.max(initial=-1)) + 1} layers in order, cut where their times balance"
    start, took = earliest(problem), shortest(problem)
    if layer.max(initial=-1) < 1:
        order = np.argsort(start, kind="stable")
        layer = np.empty(graph.ops, dtype=np.int64)
        layer[order] = np.minimum(np.arange(graph.ops) * 512 // max(1, graph.ops), 511)
        rule = "consecutive pieces of equal time (no layers in the names)"
    by_begin, time = _in_order(layer, start, took)
    piece = np.empty(len(time), dtype=np.int64)
    piece[by_begin] = balanced_cut(time[by_begin], len(targets))
    wish = unify_groups(problem, fill_from_neighbours(problem, np.where(layer < 0, -1, piece[layer])))
    return RulePlacement(device=devices_at(problem, np.array(targets)[wish]), rule=rule)


def layers_of(graph: Graph) -> Ints:
    """[n] layer of each op by its scope, numbered as met; -1 outside of every layer."""
    known: dict[str, int] = {}
    for name, held in zip(graph.names, graph.param_bytes.tolist(), strict=True):
        found = _NUMBERED.search(name) if held else None
        if found:
            known.setdefault(name[: found.end()], len(known))
    return np.array([_layer(name, known) for name in graph.names], dtype=np.int64)


def _layer(name: str, known: dict[str, int]) -> int:
    """The layer whose path, somewhere in the name, ends with the name's first numbered scope."""
    found = _NUMBERED.search(name)
    path = name[: found.end()] if found else ""
    while path:
        if path in known:
            return known[path]
        path = path.partition("/")[2]
    return -1


def _in_order(layer: Ints, start: Ints, took: Ints) -> tuple[Ints, Ints]:
    """(the layers in the order in which their forward passes begin, ticks of each layer)."""
    inside = np.flatnonzero(layer >= 0)
    inside = inside[np.lexsort((start[inside], layer[inside]))]
    time = np.bincount(layer[inside], weights=took[inside] + 1.0)
    before = np.cumsum(took[inside] + 1.0)
    ends = np.cumsum(time)
    at = np.searchsorted(before, ends - (1.0 - _EARLY) * time)
    begin = start[inside[np.minimum(at, len(inside) - 1)]]
    return np.argsort(begin, kind="stable"), time.astype(np.int64)


def balanced_cut(time: Ints, pieces: int) -> Ints:
    """[k] piece of each of k consecutive times, at most `pieces`, so that the longest piece is shortest."""
    low, high = max(int(time.max(initial=0)), -(-int(time.sum()) // pieces)), int(time.sum())
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _cut(time, middle).max(initial=0) < pieces else (middle + 1, high)
    return _cut(time, low)


def _cut(time: Ints, most: int) -> Ints:
    """Pieces filled in order up to `most` each."""
    piece, held, found = 0, 0, []
    for each in time.tolist():
        if held + each > most:
            piece, held = piece + 1, 0
        held += each
        found.append(piece)
    return np.array(found, dtype=np.int64)
