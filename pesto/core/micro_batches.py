"""Training steps of several micro-batches: built from the step of one, or recognised in a step that loops over them.

What depends on the batch is done for each micro-batch, all else once; gradients are summed up.
"""

import functools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from pesto.core.errors import InputError, UsageError
from pesto.core.graph import BOUND, Graph
from pesto.core.step_parts import BACKWARD, FORWARD, StepParts, each_or_after, step_parts
from solvers.arrays import Bools, Ints, bools, ints, offsets
from solvers.compiled.dag import adjacency, topological_order

MOST_OPS = 4_000_000
"""Ops that a step of several micro-batches may have."""
_F32 = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatched:
    """A step's graph for M micro-batches: n' ops."""

    graph: Graph
    batches: int
    """Number of micro-batches, M."""
    op: Ints
    """[n'] the op of the step that each is a copy of; of a sum, the op whose output it adds up."""
    batch: Ints
    """[n'] 0..M - 1 of what is done for one, and of sums, which take it in; -1 of what is done once."""
    sums: Bools
    """[n'] true for sums, and tensors put one behind the other."""
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
    """Build the step of so many micro-batches, each as large as the batch of `graph`; arrays alone, O(M * (n + e)).

    Gradients are added up in the order of the batches, each as soon as it is there; what updates read of single rows
    is put one behind the other. One micro-batch is the step as it is. Raise UsageError for fewer than one, and for more
    than there is room for.
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
    # Gradients are summed pair by pair, in the order of the batches; rows are joined once, behind the last.
    added, joined = np.flatnonzero(parts.added), np.flatnonzero(parts.joined)
    further = np.arange(1, batches)
    tensor = np.append(np.repeat(added, len(further)), joined)
    last = np.full(len(tensor), batches - 1)
    last[: len(added) * len(further)] = np.tile(further, len(added))
    sums = _Sums(tensor=ints(tensor), batch=ints(last), joins=parts.joined[tensor])
    made = np.append(op, graph.tensor_op[sums.tensor])
    return MicroBatched(
        graph=_Columns(graph, many, first, sums, batches).graph(op, batch), batches=batches, op=ints(made),
        batch=ints(np.append(batch, sums.batch)), sums=bools(np.arange(len(made)) >= len(op)),
    )  # fmt: skip


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
        # What is put one behind the other is as large as all of it.
        longer = np.append(np.zeros(len(self.listed) - len(sums.tensor), dtype=np.bool_), sums.joins)
        size = ints(g.tensor_bytes[self.tensor] * np.where(longer[self.listed], self.batches, 1))
        taken = np.bincount(dst, weights=size[tensor], minlength=len(at)).astype(np.int64)
        given = np.bincount(self.maker, weights=size, minlength=len(at)).astype(np.int64)
        summed = own & ~np.append(np.zeros(len(op), dtype=np.bool_), sums.joins)
        types = tuple(dict.fromkeys((*g.types, "AddN", "ConcatV2")))
        added = np.where(sums.joins, types.index("ConcatV2"), types.index("AddN"))
        output = np.arange(len(g.tensor_op)) - np.searchsorted(g.tensor_op, g.tensor_op)
        copies = [
            g.names[o] if b < 0 else f"{g.names[o]}/batch{b}" for o, b in zip(op.tolist(), batch.tolist(), strict=True)
        ]
        rows = (g.tensor_op[sums.tensor].tolist(), output[sums.tensor].tolist(), sums.batch.tolist())
        copies += [f"{g.names[o]}/sum{k}.{b}" for o, k, b in zip(*rows, strict=True)]
        return Graph(
            names=tuple(copies), types=types, type_of=np.append(g.type_of[op], added),
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
        # Each sum reads the one before it, or the first copy, and the copy of its batch; a join reads all copies.
        number_of, first_copy = np.arange(len(sums.tensor)), self.tensor_first[sums.tensor]
        add, join = np.flatnonzero(~sums.joins), np.flatnonzero(sums.joins)
        former = np.where(sums.batch[add] == 1, first_copy[add], base + add - 1)
        every = np.tile(np.arange(self.batches), len(join))
        into = int(self.first[-1]) + np.concatenate([number_of[add], number_of[add], np.repeat(join, self.batches)])
        joined = np.repeat(first_copy[join], self.batches) + every
        takes = np.concatenate([former, first_copy[add] + sums.batch[add], joined])
        number = np.concatenate([tensor, read, takes])
        heads = np.concatenate([dst, self.first[g.dst[out]], into])
        made = self.number[number]
        return ints(self.maker[made]), ints(heads), ints(made)

    def _pairs(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Copies of edges: of one batch to the same, of what is done once to all, of all to what is done once."""
        many = self.many[src] | self.many[dst]
        edge = np.repeat(np.arange(len(src)), np.where(many, self.batches, 1))
        copy = np.arange(len(edge)) - offsets(np.where(many, self.batches, 1))[edge]
        tail = self.first[src[edge]] + np.where(self.many[src[edge]], copy, 0)
        head = self.first[dst[edge]] + np.where(self.many[dst[edge]], copy, 0)
        return ints(tail), ints(head)


_NONE, _SEVERAL, _TURN = -1, -2, -3
"""Labels of ops of no micro-batch, and of more than one; of several of update u alone it is _TURN - u."""
_SPLITS = frozenset(("Split", "SplitV", "Unpack"))
_SLICES = frozenset(("StridedSlice", "Slice", "GatherV2"))
_PASSING = frozenset(("Identity", "Cast"))
_MOST = 0.5
"""Share of what depends on the batch that depends on one piece alone, from which on pieces are micro-batches."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecognisedStep:
    """A step of several micro-batches as it is, and the step of one of them."""

    one: Graph
    """The step of the first micro-batch: what all share, its own ops, and the updates."""
    parts: StepParts
    """Parts of that step that are done for each micro-batch."""
    step: MicroBatched
    """The step as it is; `op` speaks of `one`."""


def recognise_micro_batches(graph: Graph, *, every: int | None = None) -> RecognisedStep | None:
    """Recognise the micro-batches of a step that cuts what it is fed into pieces; None for one that does not.

    Pieces are the outputs of a split of what is fed, or slices of it. An op is of the micro-batch of the pieces that it
    depends on, or of what depends on it; what depends on several adds up gradients or results, or comes after them.
    The n-th op of one micro-batch corresponds to the n-th of another, as they are listed, or, of what depends on no
    piece, by type and by what is read. every: so many have an update of their own, one behind the other as ops are
    listed; None: all have one. InputError where ops differ in type or bytes.
    """
    pieces = _pieces(graph)
    if not pieces:
        return None
    found = _Recogniser(graph, pieces, every)
    return found.recognised() if found.apart() else None


def _pieces(graph: Graph) -> dict[int, int]:
    """Tensor -> the piece of what is fed that it is; empty where nothing that is fed is cut, or not alike."""
    types = [graph.types[k] for k in graph.type_of.tolist()]
    offset, edge = adjacency(graph.ops, graph.src)
    first = np.searchsorted(graph.tensor_op, np.arange(graph.ops + 1)).tolist()
    read = np.zeros(graph.ops, dtype=np.bool_)
    read[graph.dst] = True
    found, counts = dict[int, int](), set[int]()
    left = [op for op in np.flatnonzero(~read).tolist() if types[op] != "Const" and not graph.param_bytes[op]]
    while left:
        op = left.pop()
        heads = sorted(set(graph.dst[edge[offset[op] : offset[op + 1]]].tolist()))
        slices = [head for head in heads if types[head] in _SLICES]
        for head in heads:
            if types[head] in _PASSING:
                left.append(head)
            elif types[head] in _SPLITS and first[head + 1] - first[head] > 1:
                counts.add(first[head + 1] - first[head])
                found.update({tensor: tensor - first[head] for tensor in range(first[head], first[head + 1])})
        if len(slices) > 1:
            counts.add(len(slices))
            found.update({first[head]: k for k, head in enumerate(slices)})
    return found if len(counts) == 1 else {}


class _Recogniser:
    def __init__(self, graph: Graph, pieces: dict[int, int], every: int | None) -> None:
        self.graph, self.each, self.every = graph, every or 0, every or 1
        self.batches = max(pieces.values()) + 1
        self.updates = self.batches // self.every if self.each > 1 else 0
        """Number of updates, each of several micro-batches; 0 where each is of one or of all."""
        self.order = topological_order(graph.ops, graph.edge_src, graph.edge_dst).tolist()
        self.each_batch, self.after = each_or_after(graph)
        # [n] the micro-batch of each op, or the update; of what only one of them reads, that one.
        label = [_NONE] * graph.ops
        into, src, tensor = adjacency(graph.ops, graph.dst), graph.src.tolist(), graph.tensor.tolist()
        for op in self.order:
            for at in into[1][into[0][op] : into[0][op + 1]].tolist():
                label[op] = self._both(label[op], pieces.get(tensor[at], label[src[at]]))
        self.fed = bools(np.array(label) != _NONE)
        self._needed(label)
        if self.each:
            self._updating(label)
        self.label = ints(label)

    def apart(self) -> bool:
        """True if most that depends on the batch depends on one piece alone, unlike the time steps of a sequence."""
        own = self.label[self.each_batch] >= 0
        return bool(own.sum() > _MOST * len(own))

    def recognised(self) -> RecognisedStep:
        """All of it."""
        g, label = self.graph, self.label
        # [n] the op of the first micro-batch, or update, that each corresponds to; what is of none is itself. Ops that
        # depend on no piece are told apart by the last of the ops that each reads.
        last_read = np.full(g.ops, -1)
        np.maximum.at(last_read, g.dst, g.src)
        last_read = np.where(self.fed, -1, last_read)
        listed = np.lexsort((np.arange(g.ops), last_read, np.where(self.fed, -1, g.type_of), self.fed))
        stood = np.arange(g.ops)
        for alike in (range(self.batches), range(_TURN, _TURN - self.updates, -1)):
            own = [ints(listed[label[listed] == each]) for each in alike]
            for k, ops in enumerate(own):
                same = len(own[0]) == len(ops) and (g.type_of[own[0]] == g.type_of[ops]).all()
                if not same or (g.moved_bytes[own[0]] != g.moved_bytes[ops]).any():
                    raise InputError.build(
                        f"micro-batch {k} has other ops than the first ({len(ops)}, {len(own[0])})",
                        where=g.source,
                        remedy="cut the batch into equal pieces, and do the same with each",
                    )
                stood[ops] = own[0]
        stood = ints(stood)
        sums = bools((label <= _SEVERAL) & self.fed & ~self.after[stood])
        kept = np.flatnonzero((stood == np.arange(g.ops)) & ~sums)
        place = np.full(g.ops, -1)
        place[kept] = np.arange(len(kept))
        place = np.where(sums, -1, place[stood])
        stands, last = self._summed(sums, stood)
        one = _subset(g, ints(kept), place, stands)
        of = place.copy()
        for op in np.flatnonzero(sums).tolist():
            of[op] = place[g.tensor_op[max(stands[op], key=lambda tensor: int(g.tensor_bytes[tensor]))]]
        ends = np.where(label <= _TURN, (_TURN - label + 1) * self.every - 1, np.maximum(label, -1))
        batch = np.where(sums, last, ends)
        step = MicroBatched(
            graph=g, batches=self.batches, op=ints(of), batch=ints(batch), sums=sums, updates_each=self.each
        )  # fmt: skip
        once = bools((label <= _SEVERAL) & self.fed)[kept]
        return RecognisedStep(one=one, parts=step_parts(one, once=once), step=step)

    def _both(self, one: int, other: int) -> int:
        """The label of what depends on ops of both."""
        if _NONE in (one, other) or one == other:
            return other if one == _NONE else one
        update = self._update(one)
        return _TURN - update if 0 <= update == self._update(other) else _SEVERAL

    def _update(self, label: int) -> int:
        """The update of a label, where an update is of several micro-batches; else -1."""
        if not self.updates or label in (_NONE, _SEVERAL):
            return -1
        return label // self.every if label >= 0 else _TURN - label

    def _needed(self, label: list[int]) -> None:
        """Label what depends on no piece by its readers: of one micro-batch, or of those of one update, it is of that.

        Readers that no micro-batch waits for, such as updates, do not count beside those of one micro-batch: an update
        also reads what the last pass has computed, as the shape of a table whose gradient is of rows.
        """
        g, outof = self.graph, adjacency(self.graph.ops, self.graph.edge_src)
        dst, edges = g.edge_dst.tolist(), len(g.src)
        late = [False] * g.ops
        """[n] True for an op outside all micro-batches that no micro-batch waits for."""
        for op in reversed(self.order):
            heads = outof[1][outof[0][op] : outof[0][op + 1]].tolist()
            if label[op] == _NONE and not g.param_bytes[op]:
                read = {label[dst[at]] for at in heads if at < edges and not late[dst[at]]}
                batches = {each for each in read if each >= 0}
                one = next(iter(batches), _NONE)
                alone = len(batches) == 1 and _NONE not in read
                if alone and all(each == _SEVERAL or self._update(each) == self._update(one) for each in read):
                    label[op] = one
                else:
                    common = functools.reduce(self._both, read, _NONE)
                    label[op] = _NONE if _NONE in read or common == _SEVERAL else common
            late[op] = label[op] in (_NONE, _SEVERAL) and all(late[dst[at]] for at in heads)

    def _updating(self, label: list[int]) -> None:
        """Label ops that lead to no piece but by variables, which they write: the n-th write of one is of pass n.

        As counters are written, by an optimizer for each update, and by steps themselves for each micro-batch.
        """
        g, writes = self.graph, defaultdict[int, list[int]](list)
        for at in np.flatnonzero(g.param_bytes[g.src] > 0).tolist():
            writes[int(g.src[at])].append(int(g.dst[at]))
        makes = np.isin(np.arange(g.ops), g.tensor_op)
        for heads in writes.values():
            own = [op for op in sorted(set(heads)) if label[op] == _NONE and not makes[op]]
            many, turns = len(own) // self.batches, len(own) // max(1, self.updates)
            for n, op in enumerate(own):
                if len(own) == many * self.batches:
                    label[op] = n // many
                elif self.updates and len(own) == turns * self.updates:
                    label[op] = _TURN - n // turns
        self._needed(label)

    def _summed(self, sums: Bools, stood: Ints) -> tuple[dict[int, tuple[int, ...]], Ints]:
        """(sum -> the tensors of the first micro-batch that it stands for; [n] the last micro-batch in it).

        A gradient stands for one tensor; rows that are added up by their indices stand for the rows and the indices.
        """
        g, found = self.graph, dict[int, tuple[int, ...]]()
        first = np.searchsorted(g.tensor_op, np.arange(g.ops)).tolist()
        last = np.maximum(self.label, -1)
        offset, edge = adjacency(g.ops, g.dst)
        for op in self.order:
            if sums[op]:
                tensors = dict[int, None]()
                for at in edge[offset[op] : offset[op + 1]].tolist():
                    tail = int(g.src[at])
                    last[op] = max(last[op], last[tail])
                    if sums[tail]:
                        tensors.update(dict.fromkeys(found[tail]))
                    elif self.fed[tail]:
                        tensors[int(g.tensor[at]) - first[tail] + first[stood[tail]]] = None
                found[op] = tuple(tensors)
        return found, ints(last)


def _subset(graph: Graph, kept: Ints, place: Ints, stands: dict[int, tuple[int, ...]]) -> Graph:
    """These ops alone; what reads a sum reads the tensors that stand for it. place: [n] index among them, or -1."""
    inside = np.zeros(graph.ops, dtype=np.bool_)
    inside[kept] = True
    read = dict[tuple[int, int], None]()
    for src, dst, tensor in zip(graph.src.tolist(), graph.dst.tolist(), graph.tensor.tolist(), strict=True):
        if inside[dst]:
            read.update({(each, dst): None for each in stands.get(src, (tensor,)) if inside[graph.tensor_op[each]]})
    tensor, dst = np.array(list(read), dtype=np.int64).reshape(-1, 2).T
    tensors = np.flatnonzero(inside[graph.tensor_op])
    number = np.full(len(graph.tensor_op), -1)
    number[tensors] = np.arange(len(tensors))
    waits = np.flatnonzero(inside[graph.control_src] & inside[graph.control_dst])
    return Graph(
        names=tuple(graph.names[op] for op in kept.tolist()), types=graph.types, type_of=graph.type_of[kept],
        tensor_op=place[graph.tensor_op[tensors]], tensor_bytes=graph.tensor_bytes[tensors],
        src=place[graph.tensor_op[tensor]], dst=place[dst], tensor=number[tensor],
        control_src=place[graph.control_src[waits]], control_dst=place[graph.control_dst[waits]],
        group=graph.group[kept], kinds=graph.kinds, runs_on=graph.runs_on[kept], param_bytes=graph.param_bytes[kept],
        flops=graph.flops[kept], moved_bytes=graph.moved_bytes[kept], launches=graph.launches[kept],
        given_kinds=graph.given_kinds, given_s=graph.given_s[kept], source=f"{graph.source}, one micro-batch",
        dtypes=graph.dtypes, dtype_of=graph.dtype_of[kept], tensor_dtype=graph.tensor_dtype[tensors],
        loose=graph.loose[kept], kernels=graph.kernels[kept], way=graph.way, devices=graph.devices,
        device_of=graph.device_of[kept], variables=graph.variables, variable_of=graph.variable_of[kept],
    )  # fmt: skip
