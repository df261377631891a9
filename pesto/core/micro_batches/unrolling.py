"""A training step for M micro-batches: what depends on the batch M times, all else once, gradients summed up."""

from dataclasses import dataclass

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.graph import BOUND, Graph
from pesto.core.micro_batches.step_parts import BACKWARD, FORWARD, StepParts
from solvers.arrays import Bools, Ints, bools, ints, offsets

MOST_OPS = 4_000_000
"""Ops that a step of several micro-batches may have."""
_F32 = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatched:
    """A step's graph for M micro-batches: n' ops."""

    graph: Graph
    batches: int
    """How many, M."""
    op: Ints
    """[n'] the op of the step that each is a copy of; of a sum, the op whose output it adds up."""
    batch: Ints
    """[n'] 0..M - 1 of what is done for one, and of sums, which take it in; -1 of what is done once."""
    sums: Bools
    """[n'] which are sums, or tensors put one behind the other."""
    updates_each: int = 0
    """Batches whose gradients each update takes, which is then of the last of them; 0: one takes those of all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sums:
    """a sums: each of two tensors or, of rows, of M tensors, which are put one behind the other."""

    tensor: Ints
    """[a] the tensor of the step that each is of."""
    batch: Ints
    """[a] the last batch that it takes in."""
    joins: Bools
    """[a] whether each puts tensors behind each other."""


def unroll(graph: Graph, parts: StepParts, batches: int) -> MicroBatched:
    """The step of so many micro-batches, each as large as the batch of `graph`; arrays alone, O(M * (n + e)).

    Gradients are added up in the order of the batches, each as soon as it is there; what updates read of single rows
    is put one behind the other. One micro-batch is the step as it is. UsageError for fewer than one, and for more than
    there is room for.
    """
    if batches < 1:
        raise UsageError.build(f"{batches} micro-batches", remedy="give 1 or more")
    if graph.ops * batches > MOST_OPS:
        raise UsageError.build(
            f"{batches} micro-batches of {graph.ops} ops", remedy=f"give {max(1, MOST_OPS // graph.ops)} or fewer"
        )
    many = (parts.part == FORWARD) | (parts.part == BACKWARD)
    if batches == 1:
        return MicroBatched(
            graph=graph, batches=1, op=ints(np.arange(graph.ops)), batch=ints(np.where(many, 0, -1)),
            sums=bools(np.zeros(graph.ops, dtype=np.bool_)),
        )  # fmt: skip
    first = offsets(np.where(many, batches, 1))
    op = np.repeat(np.arange(graph.ops), np.diff(first))
    batch = np.where(many[op], np.arange(len(op)) - first[op], -1)
    sums = _sums(parts, batches)
    made = np.append(op, graph.tensor_op[sums.tensor])
    return MicroBatched(
        graph=_Columns(graph, many, first, sums, batches).graph(op, batch), batches=batches, op=ints(made),
        batch=ints(np.append(batch, sums.batch)), sums=bools(np.arange(len(made)) >= len(op)),
    )  # fmt: skip


def _sums(parts: StepParts, batches: int) -> _Sums:
    added, joined = np.flatnonzero(parts.added), np.flatnonzero(parts.joined)
    further = np.arange(1, batches)
    tensor = np.append(np.repeat(added, len(further)), joined if batches > 1 else joined[:0])
    batch = np.full(len(tensor), batches - 1)
    batch[: len(added) * len(further)] = np.tile(further, len(added))
    return _Sums(tensor=ints(tensor), batch=ints(batch), joins=parts.joined[tensor])


class _Columns:
    """The columns of the new graph: copies of ops in the step's order, then sums."""

    def __init__(self, graph: Graph, many: Bools, first: Ints, sums: _Sums, batches: int) -> None:
        self.old, self.many, self.first, self.sums, self.batches = graph, many, first, sums, batches
        copied = many[graph.tensor_op]
        self.tensor_first = offsets(np.where(copied, batches, 1))
        """[t + 1] a number for each copy of each tensor; those of sums follow."""
        tensor = np.repeat(np.arange(len(graph.tensor_op)), np.diff(self.tensor_first))
        copy = np.arange(len(tensor)) - self.tensor_first[tensor]
        maker = np.append(first[graph.tensor_op[tensor]] + copy, first[-1] + np.arange(len(sums.tensor)))
        self.listed = np.argsort(maker, kind="stable")
        self.maker, self.tensor = maker[self.listed], np.append(tensor, sums.tensor)[self.listed]
        self.number = np.empty(len(maker), dtype=np.int64)
        self.number[self.listed] = np.arange(len(maker))

    def graph(self, op: Ints, batch: Ints) -> Graph:
        """The graph; `op` and `batch` are those of its copies."""
        g, sums = self.old, self.sums
        at = np.append(op, g.tensor_op[sums.tensor])
        own = np.arange(len(at)) >= len(op)
        src, dst, tensor = self._data()
        control_src, control_dst = self._pairs(g.control_src, g.control_dst)
        size = self._bytes()
        taken = np.bincount(dst, weights=size[tensor], minlength=len(at)).astype(np.int64)
        given = np.bincount(self.maker, weights=size, minlength=len(at)).astype(np.int64)
        summed = own & ~np.append(np.zeros(len(op), dtype=np.bool_), sums.joins)
        types = tuple(dict.fromkeys((*g.types, "AddN", "ConcatV2")))
        added = np.where(sums.joins, types.index("ConcatV2"), types.index("AddN"))
        return Graph(
            names=self._names(op, batch), types=types, type_of=np.append(g.type_of[op], added),
            tensor_op=self.maker, tensor_bytes=size, src=src, dst=dst, tensor=tensor,
            control_src=control_src, control_dst=control_dst, group=np.where(own, -1, g.group[at]),
            kinds=g.kinds, runs_on=g.runs_on[at], param_bytes=np.where(own, 0, g.param_bytes[at]),
            flops=np.where(own, np.where(summed, given / _F32, 0.0), g.flops[at]),
            moved_bytes=np.where(own, taken + given, g.moved_bytes[at]),
            launches=g.launches[at] | own, given_kinds=g.given_kinds,
            given_s=np.where(own[:, None], np.nan, g.given_s[at]),
            source=f"{g.source}, {self.batches} micro-batches", origin=g.origin.unrolled(self.batches), batch=g.batch,
            feed_shapes=g.feed_shapes, dtypes=g.dtypes,
            dtype_of=np.where(own, g.tensor_dtype[np.append(np.zeros_like(op), sums.tensor)], g.dtype_of[at]),
            tensor_dtype=g.tensor_dtype[self.tensor], loose=np.where(own, BOUND, g.loose[at]),
            kernels=np.where(own[:, None], 0, g.kernels[at]), way=g.way, devices=g.devices,
            device_of=np.where(own, -1, g.device_of[at]), variables=g.variables,
            variable_of=np.where(own, -1, g.variable_of[at]),
        )  # fmt: skip

    def _bytes(self) -> Ints:
        """[t'] bytes; what is put one behind the other is as large as all of it."""
        longer = np.append(np.zeros(len(self.listed) - len(self.sums.tensor), dtype=np.bool_), self.sums.joins)
        return ints(self.old.tensor_bytes[self.tensor] * np.where(longer[self.listed], self.batches, 1))

    def _data(self) -> tuple[Ints, Ints, Ints]:
        """(tail, head, tensor) of each data edge."""
        g, sums = self.old, self.sums
        leaves = self.many[g.src] & ~self.many[g.dst]
        inner = np.flatnonzero(~leaves)
        src, dst = self._pairs(g.src[inner], g.dst[inner])
        edge = np.repeat(inner, np.where(self.many[g.dst[inner]], self.batches, 1))
        copy = np.where(self.many[g.src[edge]], src - self.first[g.src[edge]], 0)
        tensor = self.tensor_first[g.tensor[edge]] + copy
        # An update reads the last sum.
        out = np.flatnonzero(leaves)
        base, last = self.tensor_first[-1], np.full(len(g.tensor_op), -1)
        ends = np.flatnonzero(sums.batch == self.batches - 1)
        last[sums.tensor[ends]] = base + ends
        read = np.where(last[g.tensor[out]] >= 0, last[g.tensor[out]], self.tensor_first[g.tensor[out]])
        into, takes = self._into_sums()
        number = np.concatenate([tensor, read, takes])
        heads = np.concatenate([dst, self.first[g.dst[out]], into])
        made = self.number[number]
        return ints(self.maker[made]), ints(heads), ints(made)

    def _into_sums(self) -> tuple[Ints, Ints]:
        """(sum, number of the tensor copy) of everything that sums read."""
        sums, ops, base = self.sums, int(self.first[-1]), int(self.tensor_first[-1])
        at, first = np.arange(len(sums.tensor)), self.tensor_first[sums.tensor]
        add = np.flatnonzero(~sums.joins)
        former = np.where(sums.batch[add] == 1, first[add], base + add - 1)
        join = np.flatnonzero(sums.joins)
        every = np.tile(np.arange(self.batches), len(join))
        return (
            ints(ops + np.concatenate([at[add], at[add], np.repeat(join, self.batches)])),
            ints(np.concatenate([former, first[add] + sums.batch[add], np.repeat(first[join], self.batches) + every])),
        )

    def _pairs(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Copies of edges: of one batch to the same, of what is done once to all, of all to what is done once."""
        many = self.many[src] | self.many[dst]
        edge = np.repeat(np.arange(len(src)), np.where(many, self.batches, 1))
        copy = np.arange(len(edge)) - offsets(np.where(many, self.batches, 1))[edge]
        tail = self.first[src[edge]] + np.where(self.many[src[edge]], copy, 0)
        head = self.first[dst[edge]] + np.where(self.many[dst[edge]], copy, 0)
        return ints(tail), ints(head)

    def _names(self, op: Ints, batch: Ints) -> tuple[str, ...]:
        names, sums = self.old.names, self.sums
        output = np.arange(len(self.old.tensor_op)) - np.searchsorted(self.old.tensor_op, self.old.tensor_op)
        copies = [
            names[o] if b < 0 else f"{names[o]}/batch{b}" for o, b in zip(op.tolist(), batch.tolist(), strict=True)
        ]
        return tuple(copies) + tuple(
            f"{names[o]}/sum{k}.{b}"
            for o, k, b in zip(
                self.old.tensor_op[sums.tensor].tolist(), output[sums.tensor].tolist(), sums.batch.tolist(), strict=True
            )
        )
