"""The graph that Baechi's algorithms run on: operators, units that are placed as one, one communication cost an edge.

Every pair of operators that an edge joins has one cost, the sum of its tensors (the payloads), as in the source's
operator graph; whether a tensor is there already for another reader does not count, nor who else uses a link.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.heuristics.devices_of_location import elements
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import Units


class OperatorGraph(NamedTuple):
    """k operators on the problem's m devices at l locations, in u units."""

    duration: Ints
    """[k, m] ticks, FORBIDDEN where an operator cannot run."""
    src: Ints
    """[e] tails; each pair of operators is joined once."""
    dst: Ints
    comm: Ints
    """[e, c] ticks from one location to another, by class of the path; 0 for precedence alone."""
    unit: Ints
    """[k] the unit of each operator: units share a location."""
    allowed: Bools
    """[u, l] where each unit can be."""
    memory: Ints
    """[u] bytes of each unit."""
    capacity: Ints
    location: Ints
    path_class: Ints


class OperatorWeights(NamedTuple):
    """Durations and communication costs that the linear program of SCT reads."""

    took: Ints
    """[k] ticks of each operator."""
    comm: Ints
    """[e] ticks of each edge when its ends are apart."""
    open: Bools
    """[e] whether the ends may be together or apart; otherwise `comm` always counts, where not 0."""


def graph_of(problem: Problem, node: Ints, units: Units) -> OperatorGraph:
    """The graph of the operators that `node`, [n] values 0..k-1, makes of the tasks; O(e log e + n m).

    The tasks of an operator have the same allowed devices and one unit, and the operators form no cycle.
    """
    count = int(node.max(initial=-1)) + 1
    unit = np.zeros(count, dtype=np.int64)
    unit[node] = units.unit
    total = np.zeros((count, problem.devices), dtype=np.int64)
    np.add.at(total, node, np.where(problem.allowed, problem.duration, 0))
    open_ = np.zeros((count, problem.devices), dtype=np.bool_)
    open_[node] = problem.allowed
    src, dst, comm = _edges(problem, node, count)
    return OperatorGraph(
        duration=np.where(open_, total, FORBIDDEN), src=src, dst=dst, comm=comm, unit=unit,
        allowed=np.array(units.allowed), memory=np.array(units.memory), capacity=np.array(problem.capacity),
        location=np.array(problem.location), path_class=np.array(problem.path_class),
    )  # fmt: skip


def _edges(problem: Problem, node: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    src, dst = node[problem.src], node[problem.dst]
    leaves = src != dst
    src, dst, payload = src[leaves], dst[leaves], problem.payload[leaves]
    pair, which = np.unique(src * count + dst, return_inverse=True)
    comm = np.zeros((len(pair), problem.transfer.shape[1]), dtype=np.int64)
    # A tensor that several tasks of an operator read crosses once.
    carried = np.unique((payload * len(pair) + which)[payload >= 0])
    np.add.at(comm, carried % max(1, len(pair)), problem.transfer[carried // max(1, len(pair))])
    tail, head = np.divmod(pair, max(1, count))
    return tail, head, comm


def weights_of(g: OperatorGraph) -> OperatorWeights:
    """Least durations and mean communications. O(k m + e (c + l))."""
    took = np.where(g.duration >= 0, g.duration, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    tail, head = g.unit[g.src], g.unit[g.dst]
    comm = np.where(tail == head, 0, _mean_comm(g))
    return OperatorWeights(took, comm, (comm > 0) & (g.allowed[tail] & g.allowed[head]).any(axis=1))


def _mean_comm(g: OperatorGraph) -> Ints:
    """[e] ticks of each edge between two locations of the choice, on average; 0 where there is one location."""
    among = elements(Units(unit=g.unit, allowed=g.allowed, memory=g.memory))
    if len(among) < 2:
        among = np.arange(len(g.capacity))
    pairs = g.path_class[np.ix_(among, among)][~np.eye(len(among), dtype=np.bool_)]
    if not len(pairs):
        return np.zeros(len(g.src), dtype=np.int64)
    share = np.bincount(pairs, minlength=g.comm.shape[1]) / len(pairs)
    return np.rint(g.comm @ share).astype(np.int64)
