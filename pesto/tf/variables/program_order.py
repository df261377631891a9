"""Program order of the ops that touch a variable, as control edges where a graph leaves it open.

A graph may leave a read and an update of one variable unordered; then a plan that keeps every edge could still change
what the step computes. Two ops of which one writes stand in a hazard; one of the two orders is fixed here:

- A path of the graph between the two, in either direction, decides.
- Else program order: the position in `StepNodes`, which is that of the GraphDef (the order in which a v1 program made
  its ops) but for ops listed before their own inputs. Unlike the GraphDef's it is a topological order, so that edges
  along it never close a cycle.
- A read of a reference variable through a view (`pesto.tf.variables.variables`) counts as placed where the view was
  taken: a value read before an update is used before it, however late its user was made, unless the graph's edges say
  otherwise.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.v1_loops import closes_loop, find_outermost_loops
from pesto.tf.variables.variables import Touch, touches
from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency
from solvers.compiled.kernels import routine

_WORD = 62


def find_hazard_edges(nodes: StepNodes, uses: Mapping[int, list[Touch]] | None = None) -> list[tuple[int, int]]:
    """Return (before, after) indices of the control edges that order all touches of each variable; none is redundant.

    A v1 loop is one step here, as in `v1_loops.fold_loops`: ops of one loop get no edge, and an edge into or out of a
    loop names the loop's last or first op. uses: the touches, if they are known. O(nodes + edges) for each 62 ops that
    need an edge.
    """
    uses = touches(nodes) if uses is None else uses
    # Reads alone commute; a variable with one touch has nothing to order.
    touched = [accesses for accesses in uses.values() if len(accesses) > 1 and any(t.writes for t in accesses)]
    if not touched:
        return []
    loop = find_outermost_loops(nodes)
    leader, step_of = np.unique(np.where(loop >= 0, loop, np.arange(len(loop))), return_inverse=True)
    tails: list[int] = []
    heads: list[int] = []
    for i, inputs in enumerate(nodes.inputs):
        sources = {p for p, _ in inputs if p < i or not closes_loop(nodes, p, i)}.union(nodes.controls[i])
        tails += sources
        heads += [i] * len(sources)
    src, dst = step_of[np.array(tails, dtype=np.int64)], step_of[np.array(heads, dtype=np.int64)]
    src, dst = src[src != dst], dst[src != dst]
    step = step_of.tolist()
    order = _order_steps(len(leader), src, dst, [w for accesses in touched for w in _find_view_reads(accesses, step)])
    if len(order) < len(leader):  # folding closed a cycle, which the Graph will print
        return []
    rank = rank_of(order)
    # In ranks every edge leads upwards, so edges along the ranks cannot close a cycle.
    place = rank[step_of].tolist()
    hazards = sorted({pair for accesses in touched for pair in _find_hazard_pairs(accesses, place)})
    pairs = np.array(hazards, dtype=np.int64).reshape(-1, 2)
    # Of the pairs, those remain that no other path of edges and pairs implies.
    tail, head = np.concatenate([rank[src], pairs[:, 0]]), np.concatenate([rank[dst], pairs[:, 1]])
    offset, edge = adjacency(len(leader), tail)
    ours = edge >= len(src)
    implied = _find_implied(offset, head[edge], ours, np.unique(pairs[:, 1]))
    edges = pairs[np.sort(edge[ours & ~implied]) - len(src)]
    last = np.zeros(len(leader), dtype=np.int64)
    np.maximum.at(last, step_of, np.arange(len(loop)))
    return [(int(leader[order[a]]), int(last[order[b]])) for a, b in edges.tolist()]


def _find_view_reads(accesses: list[Touch], step_of: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (reader, writer): steps that read a view, each before the first update after the view was taken."""
    writers = sorted({step_of[t.op] for t in accesses if t.writes})
    for t in accesses:
        if not t.writes and t.since != t.op:
            reader, since = step_of[t.op], step_of[t.since]
            first = next((w for w in writers if w > since and w != reader), None)
            if first is not None:
                yield reader, first


def _order_steps(count: int, src: Ints, dst: Ints, wishes: list[tuple[int, int]]) -> Ints:
    """Return the topological order nearest to the steps' own in which wishes hold, unless they block all steps."""
    if not wishes and (src < dst).all():
        return np.arange(count)
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        after[a].append(b)
    wished: dict[int, list[int]] = defaultdict(list)
    for a, b in wishes:
        wished[a].append(b)
    waiting = np.bincount(dst, minlength=count).tolist()
    wanting = np.bincount(np.array([b for _, b in wishes], dtype=np.int64), minlength=count).tolist()
    ready = [(wanting[i] > 0, i) for i in range(count) if waiting[i] == 0]
    heapq.heapify(ready)
    done, order = [False] * count, []
    while ready:
        i = heapq.heappop(ready)[1]
        if done[i]:
            continue
        done[i] = True
        order.append(i)
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, (wanting[j] > 0, j))
        for j in wished.get(i, ()):
            wanting[j] -= 1
            if waiting[j] == 0 and wanting[j] == 0:
                heapq.heappush(ready, (False, j))
    return np.array(order, dtype=np.int64)


def _find_hazard_pairs(accesses: list[Touch], place: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (before, after) ranks: reads between two updates are after the one and before the other."""
    writes: dict[int, bool] = {}
    for t in accesses:
        writes[place[t.op]] = writes.get(place[t.op], False) or t.writes
    update, reads = -1, list[int]()
    for rank in sorted(writes):
        if writes[rank]:
            yield from ((read, rank) for read in reads or ([update] if update >= 0 else []))
            update, reads = rank, []
        else:
            reads.append(rank)
            if update >= 0:
                yield update, rank


@routine
def _find_implied(offset: Ints, head: Ints, ours: Bools, targets: Ints) -> Bools:
    """Return [edges] True for implied edges of ours; reachability of 62 targets at a time, a bit each."""
    implied = np.zeros(len(head), dtype=np.bool_)
    bit = np.zeros(len(offset) - 1, dtype=np.int64)
    # One bit a target in a 64-bit word (62, to stay clear of the sign): a pass over the graph answers reachability for
    # all targets of a block.
    for start in range(0, len(targets), _WORD):
        block = targets[start : start + _WORD]
        for j in range(len(block)):
            bit[block[j]] = 1 << j
        reach = np.zeros(len(bit), dtype=np.int64)
        for a in range(block[-1] - 1, -1, -1):
            word = 0
            for e in range(offset[a], offset[a + 1]):
                word |= reach[head[e]] | bit[head[e]]
            reach[a] = word
            for e in range(offset[a], offset[a + 1]):
                if ours[e] and bit[head[e]]:
                    for f in range(offset[a], offset[a + 1]):
                        other = (reach[head[f]] | bit[head[f]]) if f != e else 0
                        implied[e] |= (other & bit[head[e]]) != 0
        bit[block] = 0
    return implied
