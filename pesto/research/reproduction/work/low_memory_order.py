"""An order of a step's ops that holds little memory: as they were built, but what frees memory at once."""

import heapq

import numpy as np

from pesto.core.graph import Graph
from solvers.arrays import Ints, rank_of


def lean_order(graph: Graph) -> Ints:
    """[n] position of each op: of those that are ready, what leaves less memory than before, else the first built.

    What an op makes is alive until the last that reads it, wherever that is. O(e log n).
    """
    reads, readers, after, waiting = _edges(graph)
    made = np.bincount(graph.tensor_op, weights=graph.tensor_bytes, minlength=graph.ops).astype(np.int64).tolist()
    size, left, order = graph.tensor_bytes.tolist(), readers.copy(), list[int]()

    def growth(op: int) -> int:
        return int(made[op]) - sum(size[tensor] for tensor in reads[op] if left[tensor] == 1)

    built, freeing = [op for op in range(graph.ops) if not waiting[op]], list[tuple[int, int]]()
    done = [False] * graph.ops
    while built or freeing:
        op = heapq.heappop(freeing)[1] if freeing else heapq.heappop(built)
        if done[op]:
            continue
        done[op] = True
        order.append(op)
        for tensor in reads[op]:
            left[tensor] -= 1
        for other in after[op]:
            waiting[other] -= 1
            if not waiting[other]:
                grown = growth(other)
                heapq.heappush(built, other)
                if grown < 0:
                    heapq.heappush(freeing, (grown, other))
    return rank_of(np.array(order))


def _edges(graph: Graph) -> tuple[list[set[int]], list[int], list[list[int]], list[int]]:
    """(tensors that each op reads, ops that read each tensor, ops that wait for each op, for how many each waits)."""
    reads = [set[int]() for _ in range(graph.ops)]
    after = [list[int]() for _ in range(graph.ops)]
    waiting = [0] * graph.ops
    for tensor, dst in zip(graph.tensor.tolist(), graph.dst.tolist(), strict=True):
        reads[dst].add(tensor)
    for tails, heads in ((graph.src, graph.dst), (graph.control_src, graph.control_dst)):
        for a, b in zip(tails.tolist(), heads.tolist(), strict=True):
            after[a].append(b)
            waiting[b] += 1
    readers = [0] * len(graph.tensor_op)
    for tensors in reads:
        for tensor in tensors:
            readers[tensor] += 1
    return reads, readers, after, waiting
