"""A training step folded into a line: where each op stands, backward ops beside the forward ops that they belong to."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from pesto.core.graph import Graph
from pesto.core.micro_batches.step_parts import AFTER, BACKWARD, BEFORE, FORWARD, StepParts
from pesto.core.problem import COPIED
from solvers.arrays import Bools, Ints, ints
from solvers.compiled.dag import adjacency, topological_order

_NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folded:
    """Places 0..L - 1 along the forward pass; data goes to the same or a later place there, to the same or an earlier
    one in the backward pass."""

    place: Ints
    """[n] of each op; variables stand with their first reader, updates with what they are computed from."""
    home: Ints
    """[n] the place whose device the op is on: `place`, but of grouped ops the one of their variable."""
    places: int
    """How many, L."""


def fold(graph: Graph, parts: StepParts) -> Folded:
    """Where each op stands. O(n log n + e log e).

    A forward op stands behind the latest variable on its way, as all steps of a recurrent layer read one, then by the
    number of ops before it; but off the longest path with its first reader where its inputs are no larger than what it
    gives, or needed there anyway: masks, labels, what a decoder computes of an encoder's output. A backward op stands
    no later than those whose outputs it reads. Of the forward op that it belongs to it reads an input or the output, so
    it stands where the op that made that, or another reader of it, does: the latest of these that is allowed, and the
    earliest for all that it reads but numbers and shapes. So a mask that all layers share is no reason to stand with
    the first of them.
    """
    return _Fold(graph, parts).folded()


class _Fold:
    def __init__(self, graph: Graph, parts: StepParts) -> None:
        self.g, self.part = graph, parts.part
        self.order = topological_order(graph.ops, graph.edge_src, graph.edge_dst).tolist()
        self.into, self.outof = adjacency(graph.ops, graph.edge_dst), adjacency(graph.ops, graph.edge_src)
        self.src, self.dst = graph.edge_src.tolist(), graph.edge_dst.tolist()
        self.sent = np.append(graph.tensor_bytes[graph.tensor], np.zeros(len(graph.control_src))).tolist()
        self.at = [_NOWHERE] * graph.ops

    def folded(self) -> Folded:
        """All of it."""
        variable = self._variables()
        self._forward(variable)
        self._backward(variable)
        self._rest()
        known = np.array(self.at)
        values, place = np.unique(known, return_inverse=True)
        return Folded(place=ints(place), home=self._homes(ints(place)), places=len(values))

    def _heads(self, op: int) -> list[int]:
        offset, edge = self.outof
        return [self.dst[at] for at in edge[offset[op] : offset[op + 1]].tolist()]

    def _tails(self, op: int) -> list[int]:
        offset, edge = self.into
        return [self.src[at] for at in edge[offset[op] : offset[op + 1]].tolist()]

    def _variables(self) -> list[int]:
        """[n] the variable's op that each op is, or is computed from alone; -1 for all else."""
        g, result = self.g, [_NOWHERE] * self.g.ops
        held = g.param_bytes.tolist()
        for op in self.order:
            if self.part[op] != BEFORE:
                continue
            if held[op] > 0:
                result[op] = op
            else:
                of = {result[tail] for tail in self._tails(op)}
                result[op] = of.pop() if len(of) == 1 else _NOWHERE
        return result

    def _forward(self, variable: list[int]) -> None:
        """Layer * n + level; a layer is the level at which its variable is first read."""
        level, stands, n = [0] * self.g.ops, dict[int, int](), self.g.ops + 1
        forward = [op for op in self.order if self.part[op] == FORWARD]
        for op in forward:
            tails = self._tails(op)
            level[op] = 1 + max((level[tail] for tail in tails if self.part[tail] == FORWARD), default=0)
            for tail in tails:
                if variable[tail] >= 0:
                    stands[variable[tail]] = min(stands.get(variable[tail], n), level[op])
        layer = [0] * self.g.ops
        for op in forward:
            for tail in self._tails(op):
                own = stands[variable[tail]] if variable[tail] >= 0 else layer[tail]
                layer[op] = max(layer[op], own)
            self.at[op] = layer[op] * n + level[op]
        self._delayed(forward, self._slack(forward, level))

    def _slack(self, forward: list[int], level: list[int]) -> list[int]:
        """[n] by how many levels an op may be later, without the pass being longer; 0 along its longest path."""
        left = [0] * self.g.ops
        for op in reversed(forward):
            left[op] = 1 + max((left[head] for head in self._heads(op) if self.part[head] == FORWARD), default=0)
        longest = max((level[op] + left[op] for op in forward), default=0)
        return [longest - a - b for a, b in zip(level, left, strict=True)]

    def _delayed(self, forward: list[int], slack: list[int]) -> None:
        """Ops with slack stand with their first reader where no more then crosses what lies between.

        Always where no variable leads to them: masks, labels and inputs.
        """
        g, n = self.g, self.g.ops + 1
        size = np.bincount(g.tensor_op, weights=g.tensor_bytes, minlength=g.ops).tolist()
        inner = (self.part[g.src] == FORWARD) & (self.part[g.dst] == FORWARD)
        last = np.zeros(g.ops, dtype=np.int64)
        np.maximum.at(last, g.src[inner], np.array(self.at)[g.dst[inner]])
        for op in reversed(forward):
            heads = [self.at[head] for head in self._heads(op) if self.part[head] == FORWARD]
            first = min(heads, default=self.at[op])
            tails = {tail for tail in self._tails(op) if self.part[tail] == FORWARD}
            more = sum(size[tail] for tail in tails if last[tail] < first)
            if first > self.at[op] and slack[op] > 0 and (more <= size[op] or self.at[op] < n):
                self.at[op] = first
                for tail in tails:
                    last[tail] = max(last[tail], first)

    def _backward(self, variable: list[int]) -> None:
        beyond = 1 << 62
        where, offset = self._where(variable), self.into[0]
        backward = [op for op in self.order if self.part[op] == BACKWARD]
        for op in backward:
            tails = self._tails(op)
            most = min((self.at[tail] for tail in tails if self.part[tail] == BACKWARD), default=beyond)
            for tail, at in zip(tails, self.into[1][offset[op] : offset[op + 1]].tolist(), strict=True):
                if self.sent[at] <= COPIED:
                    continue
                known = where.get(variable[tail] if variable[tail] >= 0 else tail, [])
                allowed = bisect_right(known, most)
                if allowed:
                    most = known[allowed - 1]
            self.at[op] = most
        last = max((at for at in self.at if at < beyond), default=0)
        for op in reversed(backward):
            if self.at[op] == beyond:
                heads = [self.at[head] for head in self._heads(op) if self.part[head] == BACKWARD]
                self.at[op] = max(heads, default=last)

    def _where(self, variable: list[int]) -> dict[int, list[int]]:
        """Forward op or variable -> where it stands and is read in the forward pass, in rising order."""
        result = defaultdict[int, set[int]](set)
        for op in self.order:
            if self.part[op] in (BEFORE, FORWARD):
                own = [self.at[op]] if self.part[op] == FORWARD else []
                readers = [self.at[head] for head in self._heads(op) if self.part[head] == FORWARD]
                result[variable[op] if variable[op] >= 0 else op].update(own, readers)
        return {op: sorted(places) for op, places in result.items()}

    def _rest(self) -> None:
        """Updates behind what they read most of; variables and what is made of them with their first reader."""
        offset, edge = self.into
        for op in self.order:
            if self.part[op] == AFTER:
                read = [(self.sent[at], self.at[self.src[at]]) for at in edge[offset[op] : offset[op + 1]].tolist()]
                self.at[op] = max(((b, at) for b, at in read if at >= 0), default=(0, _NOWHERE))[1]
        for op in reversed(self.order):
            if self.part[op] == BEFORE:
                heads = [head for head in self._heads(op) if self.at[head] >= 0]
                first = [self.at[head] for head in heads if self.part[head] == FORWARD]
                self.at[op] = min(first or [self.at[head] for head in heads], default=_NOWHERE)
        least = min((at for at in self.at if at >= 0), default=0)
        self.at = [at if at >= 0 else least for at in self.at]

    def _homes(self, place: Ints) -> Ints:
        """Grouped ops are where the variable of their group is, or else their first."""
        g = self.g
        grouped = np.flatnonzero(g.group >= 0)
        home = np.full(int(g.group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        held: Bools = g.param_bytes[grouped] > 0
        for members in (grouped[held], grouped[~held & ~np.isin(g.group[grouped], g.group[grouped[held]])]):
            np.minimum.at(home, g.group[members], place[members])
        result = place.copy()
        result[grouped] = home[g.group[grouped]]
        return ints(result)
