"""METIS k-way: the graph, undirected, in parts of equal work with a light cut (Karypis & Kumar 1998).

The multilevel k-way partitioning that device placement has been compared with since Mirhoseini et al. (2017, where
it is "MinCut" by Scotch). Vertices are units, weighted with their mean ticks; an edge is weighted with the mean ticks
of all that passes between two units, a payload once for each pair. METIS balances one weight only as pymetis calls
it, so memory is not respected. Deviations, as METIS knows neither kinds of devices nor fixed vertices: units without a
choice are left out; parts go, heaviest first, to the free element that can run most of them; a unit that cannot be
there goes to the least loaded location that can. A vertex of twice a part's share of the work has a part of its own.
Parts are those of one seed.
"""

import numpy as np

from solvers.arrays import Ints, ints
from solvers.compiled.dag import adjacency
from solvers.heuristics.clusters.linear_clustering import glb
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.methods import Placement
from solvers.problem import Problem, mean_ticks, mean_transfers
from solvers.result import Options
from solvers.structure.units import placeable_units

_MOST = 2**30
"""Upper limit of the sum of METIS's weights, whose integers have 32 bits."""
_GIANT = 2
"""Shares of the work from which on a vertex has a part of its own. METIS, which halves, would give several parts to it,
find no other vertex to put there, and say so on the standard output of the process."""


def place(problem: Problem, options: Options) -> Placement:
    """Parts to elements. O((n + e) log n) and METIS, which is near-linear."""
    units = placeable_units(problem)
    pes = elements(units)
    ticks = np.bincount(units.unit, weights=mean_ticks(problem), minlength=len(units.memory)).astype(np.int64)
    free = np.flatnonzero(np.count_nonzero(units.allowed, axis=1) > 1)
    allowed, part = units.allowed, partition(problem, units.unit, free, (ticks, len(pes)), options.seed)
    weight = np.zeros((len(pes), len(pes)), dtype=np.int64)
    for k, there in enumerate(pes):
        np.add.at(weight[:, k], part, np.where(allowed[free, there], ticks[free] + 1, 0))
    # Parts by falling greatest weight, each to the free element that can run most of it.
    column, unused = np.zeros(len(weight), dtype=np.int64), np.ones(len(weight), dtype=bool)
    for row in np.argsort(-weight.max(axis=1, initial=0), kind="stable"):
        column[row] = int(np.where(unused, weight[row], -1).argmax())
        unused[column[row]] = False
    at = pes[column[part]]
    only = allowed.copy()
    there = allowed[free, at]
    only[free[there]] = False
    only[free[there], at[there]] = True
    return Placement(device=devices_at(problem, glb(ticks, only)[units.unit]))


def partition(problem: Problem, unit: Ints, free: Ints, sizes: tuple[Ints, int], seed: int) -> Ints:
    """Return [f] the part of each of the units `free`. sizes: [u] weights, and the number of parts."""
    import pymetis

    weight, parts = sizes
    if parts < 2 or len(free) <= parts:
        return ints(np.arange(len(free)) % max(parts, 1))
    # Heaviest first, vertices have a part of their own as long as one is `_GIANT` shares of what is left.
    by, left, giants = np.argsort(-weight[free], kind="stable")[: parts - 1], int(weight[free].sum()), 0
    for vertex in weight[free][by].tolist():
        if left == 0 or vertex * (parts - giants) < _GIANT * left:
            break
        left, giants = left - vertex, giants + 1
    alone = by[:giants]
    if len(alone):
        part, rest = np.zeros(len(free), dtype=np.int64), np.delete(np.arange(len(free)), alone)
        part[alone] = np.arange(len(alone))
        part[rest] = len(alone) + partition(problem, unit, free[rest], (weight, parts - len(alone)), seed)
        return ints(part)
    offset, other, ticks = _undirected(problem, unit, free)
    solution = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(offset.astype(np.int32), other.astype(np.int32)),
        vweights=_scaled(np.maximum(weight[free], not weight[free].any()), 0).astype(np.int32),
        eweights=_scaled(ticks, 1).astype(np.int32),
        recursive=False,
        options=pymetis.Options(seed=seed % 2**31),
    )
    return ints(np.asarray(solution[1]))


def _undirected(problem: Problem, unit: Ints, free: Ints) -> tuple[Ints, Ints, Ints]:
    """The graph of the units `free` as METIS takes it: (offset, neighbour, ticks), every edge in both directions."""
    name = np.full(int(unit.max(initial=-1)) + 1, -1, dtype=np.int64)
    name[free] = np.arange(len(free))
    carries = problem.payload >= 0
    payload, reader = problem.payload[carries], name[unit[problem.dst[carries]]]
    writer = name[unit[problem.producer[payload]]]
    between = (reader >= 0) & (writer >= 0) & (reader != writer)
    # A payload crosses once, however many tasks of the unit read it.
    crossing = np.sort(payload[between] * len(free) + reader[between])
    crossing = crossing[np.diff(crossing, prepend=-1) > 0]
    payload, reader = crossing // len(free), crossing % len(free)
    writer = name[unit[problem.producer[payload]]]
    low, high = np.minimum(writer, reader), np.maximum(writer, reader)
    pairs, pair = np.unique(low * len(free) + high, return_inverse=True)
    sent = mean_transfers(problem)[payload]
    ticks = np.bincount(pair, weights=sent, minlength=len(pairs)).astype(np.int64)
    low, high = pairs // len(free), pairs % len(free)
    tail, head, ticks = np.concatenate([low, high]), np.concatenate([high, low]), np.concatenate([ticks, ticks])
    offset, order = adjacency(len(free), tail)
    return offset, head[order], ticks[order]


def _scaled(weight: Ints, least: int) -> Ints:
    """Return weights that sum to at most `_MOST`, or a little more where they must not be less than `least`."""
    total = int(weight.sum())
    if total > _MOST:
        weight = np.rint(weight * (_MOST / total)).astype(np.int64)
    return np.maximum(weight, least)
