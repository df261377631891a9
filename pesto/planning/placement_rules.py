"""Placements by rule: TensorFlow's default, the Expert's (Pesto, 5.2), and layers cut where their times balance.

All but the default read a network's own scopes and layers, as people place by hand.
"""

import re
from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.planning.coarsen.quotient import shortest
from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.heuristics.devices_of_location import devices_at, earliest

_LAYER = re.compile(r"(?:^|[/_])(?:layer|block|stage)_(\d+)(?=[/_]|$)")
_BRANCH = re.compile(r"(?:^|[/_])cell_(\d+)[/_]branch_(\d+)(?=[/_]|$)")
_FIRST = re.compile(r"(?:^|[/_])(?:embeddings?|stem)(?=[/_]|$)")
_LAST = re.compile(r"(?:^|[/_])(?:attention|softmax|logits|loss|head)(?=[/_]|$)")
_NUMBERED = re.compile(r"(?:^|/)(?:\w*_)?(?:layer|block|stage|cell|unit)_\d+(?=/|$)")
_EARLY = 0.1
"""Share of a layer's time before which its forward pass begins, whatever else is in its scope."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RulePlacement:
    """A device for every op, with one line that says by which rule."""

    device: Ints
    rule: str


def accelerators(problem: Problem, cluster: Cluster) -> list[int]:
    """Return the locations of other kinds than cpu on which some op may run, or the hosts if there are none."""
    used = [int(k) for k in np.unique(problem.location[problem.allowed.any(axis=0)])]
    return [k for k in used if cluster.devices[k].kind != "cpu"] or used


def framework_default(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Place everything on the first accelerator, and on the host what has no kernel for one, as TensorFlow does.

    "If a GPU is available, ops with a GPU kernel are placed on GPU:0" (TensorFlow's guide to GPUs; the greedy placer of
    Abadi et al. 2016, 3.2.1, was never released). Colocation and kernels are the problem's own constraints.
    """
    first = accelerators(problem, cluster)[0]
    device = devices_at(problem, np.full(graph.ops, first))
    return RulePlacement(device=device, rule=f"everything on {cluster.devices[first].name}, as TensorFlow does unasked")


def expert(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Place layers in order over the accelerators; attention and softmax with the last, embedding with the first.

    Parallel branches of a cell are split evenly instead (NASNet): by their times, longest first, each to the
    accelerator with the least of its cell. Ops outside every scope follow the op that feeds them; a group follows the
    most of its time. A graph whose names show neither layers nor branches is cut into consecutive pieces of equal time
    in topological order.
    """
    targets = accelerators(problem, cluster)
    wish, rule = _branches(graph, problem, len(targets)), "branches of a cell split evenly"
    if wish is None:
        share, rule = _layer_shares(graph), "layers in order, attention and softmax with the last"
        if share is None:
            took, order = shortest(problem), topological_order(problem.tasks, problem.src, problem.dst)
            share, rule = np.empty(problem.tasks), "consecutive pieces of equal time (no layers in the names)"
            share[order] = (np.cumsum(took[order]) - took[order]) / max(1, int(took.sum()))
        wish = np.minimum((share * len(targets)).astype(np.int64), len(targets) - 1)
        wish = np.where(share < 0, -1, wish)
    wish = unify_groups(problem, fill_from_neighbours(problem, wish))
    return RulePlacement(device=devices_at(problem, np.array(targets)[wish]), rule=rule)


def _branches(graph: Graph, problem: Problem, pieces: int) -> Ints | None:
    """[n] piece of each op of a branch, -1 elsewhere; None for a graph without branches."""
    matches = [_BRANCH.search(name) for name in graph.names]
    if not any(matches):
        return None
    number: dict[tuple[int, int], int] = {}
    branch = np.array(
        [number.setdefault((int(m.group(1)), int(m.group(2))), len(number)) if m else -1 for m in matches],
        dtype=np.int64,
    )
    time = np.bincount(branch[branch >= 0], weights=shortest(problem)[branch >= 0], minlength=len(number)).tolist()
    load: dict[tuple[int, int], float] = {}
    piece = np.empty(len(number), dtype=np.int64)
    for (cell, _), k in sorted(number.items(), key=lambda item: (-time[item[1]], item[0])):
        piece[k] = min(range(pieces), key=lambda p: load.get((cell, p), 0.0))
        load[cell, int(piece[k])] = load.get((cell, int(piece[k])), 0.0) + time[k] + 1.0
    return np.where(branch < 0, -1, piece[branch])


def _layer_shares(graph: Graph) -> np.ndarray | None:
    """[n] position of each op in 0..1 along the layers, -1 where no scope tells; None without layers."""
    layer = [_LAYER.search(name) for name in graph.names]
    if not any(layer):
        return None
    layers = 1 + max(int(m.group(1)) for m in layer if m)
    share = np.array([int(m.group(1)) / layers if m else -1.0 for m in layer])
    for i, name in enumerate(graph.names):
        if share[i] < 0 and _FIRST.search(name):
            share[i] = 0.0
        elif share[i] < 0 and _LAST.search(name):
            share[i] = (layers - 1) / layers
    return share


def layer_balanced(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Place contiguous layers of balanced times, as a careful engineer does; pieces of equal time without layers.

    Every numbered scope (layer_3, block_3, stage_3, cell_3) that holds a variable is a layer with its whole path, so
    that encoder/layer_0 and decoder/layer_0 are two. Gradients and updates count with their layer. The cut into
    contiguous pieces minimises the longest piece (the balanced assignment of Mirhoseini et al. 2017, 4.1, and of
    pipeline frameworks); communication is not looked at.
    """
    targets = accelerators(problem, cluster)
    layer = layers_of(graph)
    rule = f"{int(layer.max(initial=-1)) + 1} layers in order, cut where their times balance"
    start, took = earliest(problem), shortest(problem)
    if layer.max(initial=-1) < 1:
        order = np.argsort(start, kind="stable")
        layer = np.empty(graph.ops, dtype=np.int64)
        layer[order] = np.minimum(np.arange(graph.ops) * 512 // max(1, graph.ops), 511)
        rule = "consecutive pieces of equal time (no layers in the names)"
    # Layers are ordered by when their forward passes begin: after the first _EARLY of each layer's time.
    inside = np.flatnonzero(layer >= 0)
    inside = inside[np.lexsort((start[inside], layer[inside]))]
    time = np.bincount(layer[inside], weights=took[inside] + 1.0)
    reached = np.searchsorted(np.cumsum(took[inside] + 1.0), np.cumsum(time) - (1.0 - _EARLY) * time)
    by_begin = np.argsort(start[inside[np.minimum(reached, len(inside) - 1)]], kind="stable")
    piece = np.empty(len(time), dtype=np.int64)
    piece[by_begin] = balanced_cut(time.astype(np.int64)[by_begin], len(targets))
    wish = unify_groups(problem, fill_from_neighbours(problem, np.where(layer < 0, -1, piece[layer])))
    return RulePlacement(device=devices_at(problem, np.array(targets)[wish]), rule=rule)


def layers_of(graph: Graph) -> Ints:
    """Return [n] layer of each op by its scope, numbered as met; -1 outside of every layer."""
    known: dict[str, int] = {}
    scopes = [_NUMBERED.search(name) for name in graph.names]
    for name, match, held in zip(graph.names, scopes, graph.param_bytes.tolist(), strict=True):
        if held and match:
            known.setdefault(name[: match.end()], len(known))
    layers = []
    for name, match in zip(graph.names, scopes, strict=True):
        # The layer whose path, somewhere in the name, ends with the name's first numbered scope.
        path = name[: match.end()] if match else ""
        while path and path not in known:
            path = path.partition("/")[2]
        layers.append(known.get(path, -1))
    return np.array(layers, dtype=np.int64)


def balanced_cut(time: Ints, pieces: int) -> Ints:
    """Return [k] piece of each of k consecutive times, at most `pieces`, so that the longest piece is shortest."""
    low, high = max(int(time.max(initial=0)), -(-int(time.sum()) // pieces)), int(time.sum())
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _filled(time, middle).max(initial=0) < pieces else (middle + 1, high)
    return _filled(time, low)


def _filled(time: Ints, limit: int) -> Ints:
    """Pieces filled in order up to a limit each."""
    piece, held, result = 0, 0, []
    for ticks in time.tolist():
        if held + ticks > limit:
            piece, held = piece + 1, 0
        held += ticks
        result.append(piece)
    return np.array(result, dtype=np.int64)


def fill_from_neighbours(problem: Problem, wish: Ints) -> Ints:
    """Give ops without a wish (-1) the wish of a predecessor, or else of a successor, or else the first place."""
    order = topological_order(problem.tasks, problem.src, problem.dst)
    position = rank_of(order)
    filled = wish.tolist()
    for ends, others, sequence in (
        (problem.src, problem.dst, np.argsort(position[problem.src], kind="stable")),
        (problem.dst, problem.src, np.argsort(-position[problem.dst], kind="stable")),
    ):
        for a, b in zip(ends[sequence].tolist(), others[sequence].tolist(), strict=True):
            if filled[b] < 0:
                filled[b] = filled[a]
    return np.maximum(np.array(filled, dtype=np.int64), 0)


def unify_groups(problem: Problem, wish: Ints) -> Ints:
    """Give each group one wish: the one that the most of its time asks for."""
    member = np.flatnonzero(problem.group >= 0)
    if len(member) == 0:
        return wish
    votes = np.zeros((int(problem.group.max()) + 1, int(wish.max(initial=0)) + 1))
    np.add.at(votes, (problem.group[member], wish[member]), shortest(problem)[member] + 1.0)
    wish = wish.copy()
    wish[member] = votes.argmax(axis=1)[problem.group[member]]
    return wish
