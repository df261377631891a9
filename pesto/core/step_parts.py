"""Parts of a training step that are done for every micro-batch, and once: found from structure, not from names."""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from pesto.core.errors import InputError
from pesto.core.graph import DEPTHWISE_FILTER, MATMUL, Graph
from solvers.arrays import Bools, Ints, bools, ints, rank_of
from solvers.compiled.dag import adjacency, heights, topological_order
from solvers.heuristics.clusters.pipedream import last_forward

BEFORE, FORWARD, BACKWARD, AFTER = range(4)
"""An op's part: once for all micro-batches, as variables and constants are; in each one's forward half; in each one's
backward half; once with the sums over all of them, as updates are."""
_CONSTANT = frozenset(("Const", "HostConst", "VarHandleOp", "VariableV2", "Variable", "NoOp"))
_LEAST_FORWARD, _MOST_FORWARD = 0.02, 0.9
"""Shares of the micro-batch's ops between which its forward half is believed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepParts:
    """n ops of a training step that is done for several micro-batches."""

    part: Ints
    """[n] BEFORE, FORWARD, BACKWARD or AFTER."""
    added: Bools
    """[t] tensors of a micro-batch that are added up over all of them: gradients."""
    joined: Bools
    """[t] those that are put one behind the other: what updates read of rows, and everything else of another size."""


def step_parts(graph: Graph, *, once: Bools | None = None) -> StepParts:
    """Find the parts of a step, from where its inputs, its variables and what nobody reads are. O(n log n + e).

    once: [n] ops of which it is known already that they are done once, with the sums.

    A gradient is what an update is computed from: of a variable's writer the last tensor, on the way up from it through
    tensors of the variable's size, that all of these ways share, and that no matmul or convolution needs. What follows
    a gradient is done once. What leads to a result that is no update is the forward half.
    Raise InputError for a step without inputs, or without a variable that is updated.
    """
    return _PartFinder(graph, once).found()


def each_or_after(graph: Graph) -> tuple[Bools, Bools]:
    """Return ([n] ops that depend on the batch, [n] ops that are done once with the sums), halves not told apart.

    For steps of many micro-batches, whose levels say nothing of where a forward half ends. Raise InputError as
    `step_parts`, but for halves.
    """
    return _PartFinder(graph).each_or_after()


class _PartFinder:
    def __init__(self, graph: Graph, once: Bools | None = None) -> None:
        self.graph = graph
        self.once = bools(np.zeros(graph.ops, dtype=np.bool_)) if once is None else once
        src, dst = graph.edge_src, graph.edge_dst
        self.order = topological_order(graph.ops, src, dst)
        self.rank = rank_of(self.order)
        self.by_src = adjacency(graph.ops, src)
        self.by_dst = adjacency(graph.ops, dst)
        self.src, self.dst = src, dst
        self.data = np.arange(len(src)) < len(graph.src)
        kernel = graph.kernels[:, 0]
        self.heavy = (kernel >= MATMUL) & (kernel <= DEPTHWISE_FILTER)

    def found(self) -> StepParts:
        each, after = self.each_or_after()
        part = np.where(after, AFTER, np.where(each, BACKWARD, BEFORE))
        part[self._forward(each, after)] = FORWARD
        g = self.graph
        leaves = ((part[g.src] == FORWARD) | (part[g.src] == BACKWARD)) & (part[g.dst] == AFTER)
        tensors = np.unique(g.tensor[leaves])
        sizes = np.unique(g.param_bytes[g.param_bytes > 0])
        dense = np.isin(g.tensor_bytes[tensors], sizes) | (g.tensor_bytes[tensors] <= 8)
        added, joined = np.zeros((2, len(g.tensor_op)), dtype=np.bool_)
        added[tensors[dense]], joined[tensors[~dense]] = True, True
        return StepParts(part=ints(part), added=bools(added), joined=bools(joined))

    def each_or_after(self) -> tuple[Bools, Bools]:
        g = self.graph
        # Inputs: ops without data inputs that are no variables and no constants; drawing ones too, whatever they read.
        held = np.zeros(g.ops, dtype=np.bool_)
        held[g.dst] = True
        constant = np.array([name in _CONSTANT for name in g.types], dtype=np.bool_)[g.type_of]
        drawn = np.array(["Random" in name or "Normal" in name for name in g.types], dtype=np.bool_)[g.type_of]
        inputs = np.flatnonzero((~held & ~constant & (g.param_bytes == 0)) | drawn)
        batch = self._reached(ints(inputs), forward=True, edges=np.ones(len(self.src), dtype=np.bool_))
        if not batch.any():
            raise InputError.build(
                "nothing in it is fed or drawn", where=g.source, remedy="a pipeline needs a step that reads a batch"
            )
        writers = self._writers(batch)
        if not len(writers):
            raise InputError.build(
                "it updates no variable", where=g.source, remedy="a pipeline needs a training step, with gradients"
            )
        into = np.unique(g.src[self.heavy[g.dst]])
        free = bools(batch & ~self._reached(into, forward=False, edges=self.data))
        gradients = {self._gradient(int(op), free) for op in writers.tolist()}
        once = self.once.copy()
        once[writers] = True
        heads = [at for op in gradients if op >= 0 for at in self._edges(self.by_src, op) if self.data[at]]
        once[self.dst[np.array(heads, dtype=np.int64)]] = True
        after = self._reached(np.flatnonzero(once), forward=True, edges=np.ones(len(self.src), dtype=np.bool_))
        return bools(batch & ~after), after

    def _writers(self, batch: Bools) -> Ints:
        """Ops in the group of a variable that depend on the batch, and whose outputs nobody reads."""
        g = self.graph
        owned = np.unique(g.group[(g.param_bytes > 0) & (g.group >= 0)])
        read = np.zeros(g.ops, dtype=np.bool_)
        read[g.src] = True
        return ints(np.flatnonzero(batch & ~read & np.isin(g.group, owned)))

    def _gradient(self, writer: int, free: Bools) -> int:
        """The op that gives a writer's gradient; -1 where none of the variable's size leads to it."""
        g = self.graph
        sizes = set(g.param_bytes[(g.group == g.group[writer]) & (g.param_bytes > 0)].tolist())
        heap, seen, common = [(-int(self.rank[writer]), writer)], {writer}, -1
        while heap:
            _, op = heappop(heap)
            if not heap and op != writer:
                common = op
            further = [
                int(g.src[at])
                for at in self._edges(self.by_dst, op)
                if self.data[at] and free[g.src[at]] and int(g.tensor_bytes[g.tensor[at]]) in sizes
            ]
            if not further:
                break
            for tail in further:
                if tail not in seen:
                    seen.add(tail)
                    heappush(heap, (-int(self.rank[tail]), tail))
        return common

    def _forward(self, batch: Bools, after: Bools) -> Bools:
        """Ops that lead to a result of a micro-batch that is no update: to what nobody reads or waits for.

        Where metrics alone, which are variables too, read the loss: what leads to them; else what is before the level
        at which tensors that are kept begin to be used last in, first out (`solvers.heuristics.clusters.pipedream`).
        """
        g = self.graph
        read = np.zeros(g.ops, dtype=np.bool_)
        read[self.src] = True
        found = self._reached(np.flatnonzero(batch & ~read), forward=False, edges=self.data) & batch
        if not self._likely(found, batch):
            found = self._reached(self._untrained(batch, after), forward=False, edges=self.data) & batch
        if not self._likely(found, batch):
            inner = batch[g.src] & batch[g.dst]
            level = heights(g.ops, g.src[inner], g.dst[inner])
            found = batch & (level <= last_forward(level, g.src[inner], g.dst[inner]))
        if not self._likely(found, batch):
            raise InputError.build(
                "its forward and backward halves cannot be told apart",
                where=g.source,
                remedy="fetch its loss beside the update, unroll its loops (unroll=True), and take no gradients of "
                "gradients in it",
            )
        return bools(found)

    def _untrained(self, batch: Bools, after: Bools) -> Ints:
        """Ops behind micro-batches that no update of a variable which they read waits for, as of metrics.

        Slots that are updated beside their variable, from the same gradient, are not among them.
        """
        g = self.graph
        needed = self._reached(np.flatnonzero(batch), forward=False, edges=self.data)
        trained = np.unique(g.group[needed & (g.param_bytes > 0) & (g.group >= 0)])
        updates = self._writers(bools(batch | after))
        updates = updates[np.isin(g.group[updates], trained)]
        waited = self._reached(ints(updates), forward=False, edges=np.ones(len(self.src), dtype=np.bool_))
        gradient = np.zeros(g.ops, dtype=np.bool_)
        gradient[g.src[batch[g.src] & (after & waited)[g.dst]]] = True
        beside = after & waited
        beside[g.dst[gradient[g.src] & after[g.dst]]] = True
        slots = self._reached(np.flatnonzero(beside), forward=True, edges=self.data)
        return ints(np.flatnonzero(after & ~waited & ~slots))

    def _likely(self, found: Bools, batch: Bools) -> bool:
        """True if these can be the forward half of a micro-batch's ops."""
        return bool(_LEAST_FORWARD <= found.sum() / max(1, batch.sum()) <= _MOST_FORWARD)

    def _edges(self, by: tuple[Ints, Ints], op: int) -> list[int]:
        return by[1][by[0][op] : by[0][op + 1]].tolist()

    def _reached(self, ops: Ints, *, forward: bool, edges: Bools) -> Bools:
        """[n] what these ops lead to, or what leads to them, themselves included."""
        found = np.zeros(self.graph.ops, dtype=np.bool_)
        found[ops] = True
        by = self.by_src if forward else self.by_dst
        to = self.dst if forward else self.src
        for op in (self.order if forward else self.order[::-1]).tolist():
            if found[op]:
                for at in self._edges(by, op):
                    if edges[at]:
                        found[to[at]] = True
        return bools(found)
