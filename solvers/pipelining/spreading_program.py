"""How little the busiest device can have to do with a graph's layers, transfers counted: a bound by a linear program.

Run as a program, which `solvers.pipelining.least_loads` starts: arrays come and go as npz, by standard input and
output.

With d_e in [0, 1] for each edge, 1 where it crosses, the busiest device has T ticks such that

- P T >= all loads + 2 sum of c_e d_e: each transfer keeps two devices busy;
- T + sum of max(0, F_e - c_e) d_e >= sum of w(u) over U, for each knot v and set U, and a tree of ways from v to U, of
  which F_e is the load behind edge e. For v's device has a part S: the ways to what is not in S leave it, so w(U) <=
  w(S) + the F of edges that leave S, and w(S) + the c of these edges is at most T.

Without c_e in the second these are spreading constraints (Even, Naor, Rao, Schieber: Fast approximate graph
partitioning algorithms, 1999). Rows are added where lengths d break them (`spreading_cuts`), at points between the
optimum so far and lengths that break none. HiGHS solves; what is told is computed anew from its multipliers, in whole
numbers: any multipliers give a bound.
"""

import io
import sys
import time
from typing import Any

import highspy
import numpy as np

from solvers.arrays import Floats, Ints, ints
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.layer_dag import Knots

_NEAR = 1.0 - 1e-9


@routine
def spreading_cuts(given: Knots, edge: Ints, lengths: Floats) -> tuple[Ints, Ints]:
    """Return [m, q] load behind each edge on shortest ways from each knot to all nearer than 1, and [m] their load.

    `edge`: [2 q] the number of each of the edges of `given`; `lengths`: [q] of each.
    """
    m, q = len(given.loads), len(lengths)
    behind, near = np.zeros((m, q), dtype=np.int64), np.zeros(m, dtype=np.int64)
    for v in range(m):
        order, came, via = _ways(given, edge, lengths, v)
        below = given.loads.copy()
        for u in order[::-1]:
            near[v] += given.loads[u]
            if u != v:
                behind[v, via[u]] += below[u]
                below[came[u]] += below[u]
    return behind, near


@subroutine
def _ways(given: Knots, edge: Ints, lengths: Floats, v: int) -> tuple[Ints, Ints, Ints]:
    """Knots nearer than 1 to v, the nearest first; [m] the knot before each on the way, and the edge between them."""
    m = len(given.loads)
    far, came, via = np.full(m, _NEAR), np.full(m, -1), np.full(m, -1)
    done, order, ended = np.zeros(m, dtype=np.bool_), np.zeros(m, dtype=np.int64), 0
    reached, many = np.zeros(m, dtype=np.int64), 1
    far[v], reached[0] = 0.0, v
    while ended < many:
        best = ended
        for at in range(ended + 1, many):
            if far[reached[at]] < far[reached[best]]:
                best = at
        u = reached[best]
        reached[best], reached[ended] = reached[ended], u
        done[u], order[ended] = True, u
        ended += 1
        for e in range(given.begin[u], given.begin[u + 1]):
            w, way = given.to[e], far[u] + lengths[edge[e]]
            if done[w] or way >= far[w]:
                continue
            if came[w] < 0:
                reached[many] = w
                many += 1
            far[w], came[w], via[w] = way, u, edge[e]
    return order[:ended], came, via


INSIDE = 0.3
"""Share of the optimum so far in the point at which broken rows are looked for first."""
IDLE = 5
"""Optima in which a row must have no multiplier to be left out."""
MOST_ROWS = 100
"""Rows that are added at once: those that lack most."""
_TIGHT = 1e-7
_BITS = 40


def spread_bound(given: dict[str, Any]) -> int:
    """Return a bound on the ticks of the busiest of `devices`, at least `least`, found within about `seconds`.

    `loads` [m]; `begin` [m + 1], `to`, `edge` [2 q]: edges of each knot in both directions and their numbers; `ticks`
    [q]; `crossed` [q], 1 where an edge crosses in a known allocation, whose busiest has `most`.
    """
    program = _Program(given)
    # Compile the kernels first, so that compilation does not count as solving time.
    spreading_cuts(program.knots, program.edge, np.ones(len(program.ticks)))
    return program.bound(time.monotonic() + float(given["seconds"]))


class _Program:
    """The rows so far, in units of the least bound, and lengths that break none."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.devices, self.least = int(given["devices"]), max(1, int(given["least"]))
        self.ticks, self.edge, self.loads = ints(given["ticks"]), ints(given["edge"]), ints(given["loads"])
        self.inside = np.append(float(given["most"]), given["crossed"])
        none = ints([])
        self.knots = Knots(none, self.loads, none, ints(given["begin"]), ints(given["to"]), none)
        self.counts, self.near = np.zeros((0, len(self.ticks)), dtype=np.int64), ints([])
        self.idle = np.zeros(0, dtype=np.int64)
        self.highs = highspy.Highs()
        for name, value in (("output_flag", False), ("threads", 1)):
            self.highs.setOptionValue(name, value)
        self.highs.addVar(1.0, float(self.loads.sum()) / self.least + 1)
        self.highs.changeColCost(0, 1.0)
        for _ in self.ticks:
            self.highs.addVar(0.0, 1.0)
        self._add(float(self.devices), -2 * self.ticks, int(self.loads.sum()))

    def bound(self, until: float) -> int:
        """Return the greatest bound found by then: solve, add the rows that the optimum breaks, and so on."""
        bound = self.least
        while True:
            self.highs.setOptionValue("time_limit", self.highs.getRunTime() + max(0.0, until - time.monotonic()))
            self.highs.run()
            if self.highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return bound
            solution = self.highs.getSolution()
            shares, optimum = np.array(solution.row_dual), np.array(solution.col_value)
            optimum[0] *= self.least
            if optimum[0] > bound:
                # By these multipliers of the rows, rounded: a bound of whole numbers, whatever they are.
                scaled = [int(max(0.0, share) * 2**_BITS) for share in shares.tolist()]
                whole, rows = scaled[0], [(at, share) for at, share in enumerate(scaled[1:]) if share]
                used = whole * self.devices + sum(share for _, share in rows)
                total = max(2**_BITS, used)
                result = (total - used) * self.least + whole * int(self.loads.sum())
                result += sum(share * int(self.near[at]) for at, share in rows)
                left = 2 * whole * self.ticks.astype(object)  # what each edge costs, less what rows make of it
                for at, share in rows:
                    left = left - share * self.counts[at].astype(object)
                result += sum(min(0, each) for each in left.tolist())
                bound = max(bound, -(-result // total))
            if time.monotonic() > until:
                return bound
            broken = self._lacking(INSIDE * optimum + (1 - INSIDE) * self.inside) or self._lacking(optimum)
            if not broken:
                return bound
            # Rows without use for some time are left out first.
            self.idle = np.where(shares[1:] > 1e-9, 0, self.idle + 1)
            kept = self.idle <= IDLE
            if not kept.all():
                out = np.flatnonzero(~kept).astype(np.int32) + 1
                self.highs.deleteRows(len(out), out)
                self.counts, self.near, self.idle = self.counts[kept], self.near[kept], self.idle[kept]
            counts, near = broken
            for row, load in zip(counts, near.tolist(), strict=True):
                self._add(1.0, row, load)
            self.counts, self.near = np.concatenate([self.counts, counts]), ints(np.concatenate([self.near, near]))
            self.idle = np.append(self.idle, np.zeros(len(near), dtype=np.int64))

    def _lacking(self, point: Floats) -> tuple[Ints, Ints] | None:
        """Return the rows that a point breaks; None, and it is inside from now on, where it breaks none."""
        lengths = np.maximum(point[1:], 0.0)
        behind, near = spreading_cuts(self.knots, self.edge, lengths)
        counts = np.maximum(0, behind - self.ticks)
        lacks = near - point[0] - counts @ lengths
        at = np.flatnonzero(lacks > _TIGHT * self.loads.sum())
        if not len(at):
            self.inside = point
            return None
        at = at[np.argsort(-lacks[at], kind="stable")[:MOST_ROWS]]
        return ints(counts[at]), ints(near[at])

    def _add(self, busiest: float, counts: Ints, least: int) -> None:
        at = np.flatnonzero(counts)
        values = np.append(busiest, counts[at] / self.least)
        self.highs.addRow(
            least / self.least, highspy.kHighsInf, len(at) + 1, np.append(0, at + 1).astype(np.int32), values
        )


def main() -> None:
    """Read arrays from stdin and write the bound to stdout."""
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as file:
        bound = spread_bound(dict(file))
    answer = io.BytesIO()
    np.savez(answer, bound=np.array(bound))
    sys.stdout.buffer.write(answer.getvalue())


if __name__ == "__main__":
    main()
