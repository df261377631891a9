"""A training step in stages: folded, cut into a chain, and a chain's schedule laid over the ops of all micro-batches.

Each backward op stands beside the forward op that it belongs to. Without a flush the chain also counts versions of
weights, whose reads are late. A schedule gives each op a device, and one order of all.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.network import transfer_s
from pesto.core.errors import InputError, UsageError
from pesto.core.graph import Graph
from pesto.core.micro_batches import MicroBatched, recognise_micro_batches, unroll
from pesto.core.problem import COPIED, TICK_S
from pesto.core.settings import Settings
from pesto.core.source import READ_SCOPE
from pesto.core.step_parts import AFTER, BACKWARD, BEFORE, FORWARD, StepParts, step_parts
from pesto.pipelining.schedules import ChainRequest, ChainSchedule
from pesto.pipelining.unrolled import Unrolled
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate
from solvers import Problem
from solvers.arrays import Bools, Floats, Ints, bools, ints, rank_of
from solvers.compiled.dag import adjacency, after_all, topological_order
from solvers.heuristics.devices_of_location import devices_at
from solvers.pipelining import chain as kinds
from solvers.pipelining.chain import Chain, Machines

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
    """Number of places, L."""


def fold(graph: Graph, parts: StepParts) -> Folded:
    """Return the place of each op along the forward pass. O(n log n + e log e).

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
        """Return the places of all ops and of their devices."""
        g, offset, edge = self.g, *self.into
        # [n] the variable's op that each op is, or is computed from alone; -1 for all else.
        variable, held_bytes = [_NOWHERE] * g.ops, g.param_bytes.tolist()
        for op in self.order:
            if self.part[op] != BEFORE:
                continue
            sources = {op} if held_bytes[op] > 0 else {variable[tail] for tail in self._tails(op)}
            variable[op] = sources.pop() if len(sources) == 1 else _NOWHERE
        self._place_forward(variable)
        self._place_backward(variable)
        # Updates stand behind what they read most of; variables and what is made of them with their first reader.
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
        values, place = np.unique([at if at >= 0 else least for at in self.at], return_inverse=True)
        # Grouped ops are where the variable of their group is, or else their first.
        grouped = np.flatnonzero(g.group >= 0)
        home = np.full(int(g.group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        held: Bools = g.param_bytes[grouped] > 0
        for members in (grouped[held], grouped[~held & ~np.isin(g.group[grouped], g.group[grouped[held]])]):
            np.minimum.at(home, g.group[members], place[members])
        homes = place.copy()
        homes[grouped] = home[g.group[grouped]]
        return Folded(place=ints(place), home=ints(homes), places=len(values))

    def _heads(self, op: int) -> list[int]:
        offset, edge = self.outof
        return [self.dst[at] for at in edge[offset[op] : offset[op + 1]].tolist()]

    def _tails(self, op: int) -> list[int]:
        offset, edge = self.into
        return [self.src[at] for at in edge[offset[op] : offset[op + 1]].tolist()]

    def _place_forward(self, variable: list[int]) -> None:
        """Place forward ops at layer * n + level; a layer is the level at which its variable is first read.

        Ops off the longest path stand with their first reader where no more then crosses what lies between, and always
        where no variable leads to them: masks, labels and inputs.
        """
        g, n = self.g, self.g.ops + 1
        level, layer, left, stands = [0] * g.ops, [0] * g.ops, [0] * g.ops, dict[int, int]()
        forward = [op for op in self.order if self.part[op] == FORWARD]
        for op in forward:
            tails = self._tails(op)
            level[op] = 1 + max((level[tail] for tail in tails if self.part[tail] == FORWARD), default=0)
            for tail in tails:
                if variable[tail] >= 0:
                    stands[variable[tail]] = min(stands.get(variable[tail], n), level[op])
        for op in forward:
            for tail in self._tails(op):
                own = stands[variable[tail]] if variable[tail] >= 0 else layer[tail]
                layer[op] = max(layer[op], own)
            self.at[op] = layer[op] * n + level[op]
        for op in reversed(forward):
            left[op] = 1 + max((left[head] for head in self._heads(op) if self.part[head] == FORWARD), default=0)
        longest = max((level[op] + left[op] for op in forward), default=0)
        size = np.bincount(g.tensor_op, weights=g.tensor_bytes, minlength=g.ops).tolist()
        inner = (self.part[g.src] == FORWARD) & (self.part[g.dst] == FORWARD)
        last = np.zeros(g.ops, dtype=np.int64)
        np.maximum.at(last, g.src[inner], np.array(self.at)[g.dst[inner]])
        for op in reversed(forward):
            first = min((self.at[head] for head in self._heads(op) if self.part[head] == FORWARD), default=self.at[op])
            forward_tails = {tail for tail in self._tails(op) if self.part[tail] == FORWARD}
            more = sum(size[tail] for tail in forward_tails if last[tail] < first)
            slack = longest - level[op] - left[op]
            if first > self.at[op] and slack > 0 and (more <= size[op] or self.at[op] < n):
                self.at[op] = first
                for tail in forward_tails:
                    last[tail] = max(last[tail], first)

    def _place_backward(self, variable: list[int]) -> None:
        beyond, offset = 1 << 62, self.into[0]
        stands = defaultdict[int, set[int]](set)
        for op in self.order:
            if self.part[op] in (BEFORE, FORWARD):
                own = [self.at[op]] if self.part[op] == FORWARD else []
                readers = [self.at[head] for head in self._heads(op) if self.part[head] == FORWARD]
                stands[variable[op] if variable[op] >= 0 else op].update(own, readers)
        # Forward op or variable -> where it stands and is read in the forward pass, in rising order.
        where = {op: sorted(places) for op, places in stands.items()}
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


MOST_LAYERS = 128
"""Maximum number of layers of a step's chain; more layers allow finer cuts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepChain:
    """A step's chain of L layers; ticks are nanoseconds, of one micro-batch."""

    chain: Chain
    layer: Ints
    """[n] the layer of each op."""
    home: Ints
    """[n] the layer on whose device each op is: its own, but of grouped ops the one of their variable."""
    weight: Bools
    """[n] backward ops that no earlier layer waits for: they compute gradients of weights."""
    once: Ints
    """[L] ticks that a layer's updates take, once a step."""
    far: tuple[tuple[int, tuple[int, ...]], ...]
    """Variables that forward ops of several layers read, or what is made of them: the op, and these layers."""
    version: Ints
    """[L] bytes of a version of each layer's weights, which every batch in flight has; 0 where batches share them."""


def stage_devices(cluster: Cluster) -> Ints:
    """Return the devices of stages, all alike: the accelerators of the cluster.

    Listed so that neighbours are near: behind each the one that it sends to fastest. UsageError where they are of
    several kinds or speeds.
    """
    result = cluster.accelerators
    first = cluster.devices[result[0]]
    for at in result:
        device = cluster.devices[at]
        if (device.kind, device.preset, device.speed, device.rates) != (
            first.kind, first.preset, first.speed, first.rates,
        ):  # fmt: skip
            raise UsageError.build(
                f"{device.name} is no device like {first.name}",
                remedy="stages are cut for equal devices; name a cluster whose accelerators are alike",
            )
    line, left = result[:1], result[1:]
    while left:
        line.append(min(left, key=lambda at: cluster.s_per_byte(line[-1], at)))
        left.remove(line[-1])
    return ints(line)


def build_step_chain(
    graph: Graph, parts: StepParts, folded: Folded, costs: Costs, cluster: Cluster, *, batches: int
) -> StepChain:
    """Return the chain of a folded step for so many micro-batches: at most MOST_LAYERS, cut where little crosses.

    Layers are as equal in load as cheap cuts allow. What crosses a cut takes as long as on the slowest of the paths
    between devices that follow each other, tensor by tensor; a tensor that is read far on crosses every cut on its way.
    A variable that is read on both sides of a cut is sent once a step.
    """
    fast = stage_devices(cluster)
    # [n] of each op on one accelerator; none of what runs elsewhere.
    known = costs.compute_s[:, fast]
    seconds = np.where(np.isnan(known).all(axis=1), 0.0, np.nan_to_num(known).max(axis=1))
    inner = (parts.part == FORWARD) | (parts.part == BACKWARD)
    load = np.bincount(folded.place[inner], weights=seconds[inner], minlength=folded.places).astype(np.float64)
    # [t] seconds of each tensor between the neighbours where it takes longest.
    pairs = list(zip(fast[:-1].tolist(), fast[1:].tolist(), strict=True))
    paths = [path for a, b in pairs for path in (cluster.paths[a][b], cluster.paths[b][a]) if path is not None]
    result = np.zeros(len(graph.tensor_op))
    for path in paths:
        result = np.maximum(result, transfer_s(path, graph.tensor_bytes))
    crossing = _Crossing(graph, parts, folded, result, batches)
    # The last place of each layer but the last: of each share of the load the cheapest cut.
    dear, done = crossing.seconds(dear=True), np.cumsum(load)[:-1]
    share = np.minimum((done / max(float(load.sum()), 1e-30) * MOST_LAYERS).astype(np.int64), MOST_LAYERS - 1)
    order = np.lexsort((dear, share))
    ends = ints(np.sort(order[np.unique(share[order], return_index=True)[1]]))
    layer_of = np.searchsorted(ends, np.arange(folded.places))
    layer, home = ints(layer_of[folded.place]), ints(layer_of[folded.home])
    # [n] backward ops from which nothing leads to an earlier layer's, for which nothing of it waits either.
    offset, edge = adjacency(graph.ops, graph.edge_src)
    head = graph.edge_dst[edge].tolist()
    backward = (parts.part == BACKWARD).tolist()
    waited = [False] * graph.ops
    at = layer.tolist()
    bounds = offset.tolist()
    for op in topological_order(graph.ops, graph.edge_src, graph.edge_dst)[::-1].tolist():
        if backward[op]:
            heads = [to for to in head[bounds[op] : bounds[op + 1]] if backward[to]]
            waited[op] = any(waited[to] or at[to] < at[op] for to in heads)
    weight = bools(np.array(backward) & ~np.array(waited))
    chain, once = _chain(graph, parts, (layer, home, weight), seconds, (crossing, ends))
    return StepChain(
        chain=chain, layer=layer, home=home, weight=weight, once=once, far=_far(graph, parts, layer),
        version=ints(np.zeros(len(ends) + 1, dtype=np.int64)),
    )  # fmt: skip


def _chain(
    graph: Graph, parts: StepParts, where: tuple[Ints, Ints, Bools], seconds: Floats, cuts: "tuple[_Crossing, Ints]"
) -> tuple[Chain, Ints]:
    """Return the chain, and the ticks of each layer's updates. where: layer, home and weight of `StepChain`."""
    (layer, home, weight), (crossing, ends) = where, cuts
    ticks = np.ceil(np.round(seconds / TICK_S, 3))
    backward = parts.part == BACKWARD
    tensor_op, sizes = graph.tensor_op[parts.added], graph.tensor_bytes[parts.added]
    # [n] bytes that a forward op writes and a backward op reads.
    read = np.zeros(len(graph.tensor_op), dtype=np.bool_)
    read[graph.tensor[backward[graph.dst]]] = True
    read &= parts.part[graph.tensor_op] == FORWARD
    kept = np.bincount(graph.tensor_op[read], weights=graph.tensor_bytes[read], minlength=graph.ops).astype(np.int64)

    def total(at: Ints, values: Floats | Ints) -> Ints:
        return np.bincount(at, weights=values, minlength=len(ends) + 1).astype(np.int64)

    chain = Chain(
        forward=total(layer, ticks * (parts.part == FORWARD)), backward=total(layer, ticks * backward),
        weights=total(home, graph.param_bytes) + total(layer[tensor_op], sizes),
        activation=total(layer, kept),
        output=np.concatenate([[0], crossing.bytes()[ends], [0]]).astype(np.int64),
        transfers=np.ceil(crossing.seconds(dear=False)[ends] / TICK_S).astype(np.int64),
        weight_gradient=total(layer, ticks * (backward & weight)),
    )  # fmt: skip
    return chain, total(home, ticks * (parts.part == AFTER))


class _Crossing:
    """Seconds and bytes that cross each cut: after place c, for c = 0..places - 2."""

    def __init__(self, graph: Graph, parts: StepParts, folded: Folded, tensor_s: Floats, batches: int) -> None:
        self.places, self.tensor_s, self.batches = folded.places, tensor_s, batches
        own = folded.place[graph.tensor_op]
        low, high = own.copy(), own.copy()
        inner = parts.part[graph.dst] != AFTER
        np.minimum.at(low, graph.tensor[inner], folded.place[graph.dst[inner]])
        np.maximum.at(high, graph.tensor[inner], folded.place[graph.dst[inner]])
        self.low, self.own, self.high = low, own, high
        self.once = (parts.part[graph.tensor_op] == BEFORE) | (parts.part[graph.tensor_op] == AFTER)
        self.sizes = np.where(self.once, 0, graph.tensor_bytes)
        self.sent = ~(self.once & (graph.tensor_bytes <= 128))  # copied constants are nowhere sent

    def seconds(self, *, dear: bool) -> Floats:
        """Return [places - 1] a micro-batch, both ways; with `dear` variables as if they crossed for each."""
        weight = self.tensor_s * np.where(self.once, 1.0 if dear else 1.0 / self.batches, 1.0) * self.sent
        return self._over(self.low, self.own, weight) + self._over(self.own, self.high, weight)

    def bytes(self) -> Ints:
        """Return [places - 1] a micro-batch in the forward pass."""
        return np.round(self._over(self.own, self.high, self.sizes.astype(np.float64))).astype(np.int64)

    def _over(self, begin: Ints, end: Ints, weight: Floats) -> Floats:
        rise = np.bincount(begin, weights=weight, minlength=self.places + 1)
        fall = np.bincount(end, weights=weight, minlength=self.places + 1)
        return np.maximum(np.cumsum(rise - fall)[: self.places - 1], 0.0)


def _far(graph: Graph, parts: StepParts, layer: Ints) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Variables that forward ops of several layers read, themselves or what is made of them alone, and these layers."""
    made_of = np.where(graph.param_bytes > 0, np.arange(graph.ops), -1)
    into, edge = adjacency(graph.ops, graph.dst)
    for op in topological_order(graph.ops, graph.edge_src, graph.edge_dst).tolist():
        if parts.part[op] == BEFORE and made_of[op] < 0:
            made_of[op] = made_of[graph.src[edge[into[op] : into[op + 1]]]].max(initial=-1)
    reads = (parts.part[graph.src] == BEFORE) & (parts.part[graph.dst] == FORWARD) & (made_of[graph.src] >= 0)
    pairs = np.unique(np.stack([made_of[graph.src[reads]], layer[graph.dst[reads]]]), axis=1)
    ops, first, count = np.unique(pairs[0], return_index=True, return_counts=True)
    many = count > 1
    return tuple(
        (op, tuple(pairs[1, at : at + n].tolist()))
        for op, at, n in zip(ops[many].tolist(), first[many].tolist(), count[many].tolist(), strict=True)
    )


_READ = re.compile(rf"^(?:.*/)?{READ_SCOPE}(\d+)/[^/]+$")


def weight_reads(graph: Graph) -> tuple[Ints, Ints]:
    """Return (op, variable) of the first batch's reads of weights that may be late, in the step of one batch.

    Variables by number, as `pesto.core.source.Cut.late` has them. They are known by the scope that Pesto gives these
    reads.
    """
    result = dict[int, int]()
    for op, name in enumerate(graph.names):
        seen = _READ.match(name)
        if seen and not graph.param_bytes[op]:
            result.setdefault(int(seen.group(1)), op)
    numbers = sorted(result)
    return ints([result[k] for k in numbers]), ints(numbers)


def add_weight_versions(chain: StepChain, graph: Graph, every: int) -> StepChain:
    """Return the chain with updates in its backward halves, and the versions of a layer's weights that are held there.

    graph: the step of one batch; every: batches of an update. With one, NCA batches in flight have NCA versions, the
    latest among them. With more there are two, which batches share, and each has its part of the update's ticks.
    """
    reads, _ = weight_reads(graph)
    held = np.zeros(graph.ops, dtype=np.int64)
    np.maximum.at(held, graph.tensor_op, graph.tensor_bytes)
    each = np.bincount(chain.home[reads], weights=held[reads], minlength=chain.chain.layers).astype(np.int64)
    none = np.zeros_like(each)
    own, shared = (each, none) if every == 1 else (none, each)
    counted = replace(
        chain.chain, weights=ints(chain.chain.weights - own + shared), activation=ints(chain.chain.activation + own),
        backward=ints(chain.chain.backward - -chain.once // every),
    )  # fmt: skip
    return replace(chain, chain=counted, version=ints(own), once=ints(none))


def weight_staleness(chain: StepChain, graph: Graph, in_flight: Ints, batches: int, every: int) -> tuple[int, ...]:
    """Return by how many updates each variable's reads are late: the batches in flight of its stage, less 1.

    in_flight: [L] most batches of each layer between their forward and backward halves, NCA. A variable that several
    stages read is with the first of them, where most batches are in flight. every: batches of an update; with more than
    one all are late by one.
    """
    reads, numbers = weight_reads(graph)
    late = [0] * (int(numbers.max(initial=-1)) + 1)
    for op, k in zip(reads.tolist(), numbers.tolist(), strict=True):
        late[k] = max(0, min(int(in_flight[chain.home[op]]), batches) - 1) if every == 1 else 1
    return tuple(late)


BATCHES = 8
"""Micro-batches where nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedSchedule:
    """One schedule on a step's stages."""

    schedule: ChainSchedule
    """Schedule of the chain; without a run if there is none."""
    candidate: Candidate | None = None
    """All micro-batches, op by op, as the event loop ran them; None where there is no run."""
    once: int = 0
    """Ticks of the updates on the device that has most of them."""

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the search for it."""
        return self.schedule.interrupted

    @property
    def fits(self) -> bool:
        """True if the step, op by op, is within the memory."""
        return self.candidate is not None and self.candidate.fits

    @property
    def predicted(self) -> int:
        """Ticks of the step as the chain has it: its schedule, then the updates."""
        return (self.schedule.step or 0) + self.once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagedStep:
    """One step, of so many micro-batches, on one cluster; all on modelled costs."""

    cluster: Cluster
    fast: Ints
    """The accelerators' places in the cluster, neighbours near each other."""
    names: tuple[str, ...]
    """[n] the ops of the step as it was given."""
    parts: StepParts
    step: MicroBatched
    chain: StepChain
    costs: Costs
    """Modelled costs of the step's ops."""
    problem: Problem
    bench: CandidateEvaluator
    one: Graph
    """The step of one micro-batch."""
    late: tuple[int, ...] | None = None
    """Updates by which each variable is late, as `pesto.core.source.Cut.late`; None for a step with a flush."""
    every: int = 1
    """Batches between updates, as `pesto.core.source.Cut.every`; None for a step with a flush."""

    @classmethod
    def of(cls, graph: Graph, cluster: Cluster, batches: int | None) -> "StagedStep":
        """Fold it, cut it into layers, unroll it; batches: None for a step that loops itself, else for BATCHES.

        UsageError for a cluster of one accelerator, or of different ones; InputError for a graph that is no training
        step; InfeasibleError where the variables cannot fit.
        """
        fast = stage_devices(cluster)
        if len(fast) < 2:
            raise UsageError.build(
                f"{cluster.name} has one accelerator", remedy="a pipeline needs two; give a cluster with more"
            )
        cut = graph.origin.cut_function
        every = cut.every if cut is not None and cut.late is not None else None
        seen = recognise_micro_batches(graph, every=every) if batches is None else None
        if seen is None and cut is not None:
            raise InputError.build(
                "most of it needs more than one piece of the batch, as examples that are mixed do",
                where=graph.source,
                remedy="do with each example what does not need the others",
            )
        if seen is not None:
            graph, parts, step = seen.one, seen.parts, seen.step
        else:
            parts = step_parts(graph)
            step = unroll(graph, parts, BATCHES if batches is None else batches)
        chain = build_step_chain(
            graph, parts, fold(graph, parts), model_costs(graph, cluster), cluster, batches=step.batches
        )
        if every is not None:
            chain = add_weight_versions(chain, graph, every)
        costs = model_costs(step.graph, cluster)
        problem = formulate(step.graph, costs, cluster, Settings())
        return cls(
            cluster=cluster, fast=fast, names=graph.names, parts=parts, step=step, chain=chain, costs=costs,
            problem=problem, bench=CandidateEvaluator.of(step.graph, problem), one=graph, every=every or 1,
        )  # fmt: skip

    @property
    def memory(self) -> int:
        """Bytes of the accelerator that has fewest."""
        return min(self.cluster.devices[at].memory_bytes for at in self.fast.tolist())

    def request(
        self, *, k: int, seconds: float, contiguous: bool, memory: int | None = None, until: float = math.inf
    ) -> ChainRequest:
        """Return what is to be found for its chain, in so many bytes a device, by default as many as there are.

        UsageError for more batches than can be laid out, and for what is below 0.
        """
        try:
            return ChainRequest(
                chain=self.chain.chain, batches=self.step.batches, k=k, seconds=seconds, until=until,
                machines=Machines.alike(len(self.fast), self.memory if memory is None else memory),
                contiguous=contiguous,
            )  # fmt: skip
        except ValueError as error:
            raise UsageError.of(error) from error

    def map_schedule(self, schedule: ChainSchedule) -> MappedSchedule:
        """Lay a schedule over all ops of all micro-batches, blocks in its order, ops inside as they follow; run it."""
        if schedule.shared is not None:
            homes, sums = schedule.shared.homes, schedule.shared.sums
        elif schedule.allocation is not None:
            homes, sums = schedule.allocation.device, False
        if schedule.run is None or not len(schedule.rows):
            return MappedSchedule(schedule=schedule)
        device = self.op_devices(homes, schedule.run, sums=sums)
        once = np.bincount(homes, weights=self.chain.once).max()
        candidate = self.bench.ordered(
            schedule.name, f"{schedule.name} on the chain's stages", device, self._rank(schedule.run)
        )
        return MappedSchedule(schedule=schedule, candidate=candidate, once=int(once))

    def op_devices(self, homes: Ints, run: Unrolled, *, sums: bool) -> Ints:
        """Return [n'] the device of each op.

        homes: [L] device of each layer's variables and their updates. sums: whether gradients are added up there, or
        where they are made. What is of a batch is where its block is done.
        """
        step, problem = self.step, self.problem
        part, batch = self.parts.part[step.op], np.maximum(step.batch, 0)
        blocks = np.zeros((self.chain.chain.layers, run.batches), dtype=np.int64)
        done = run.kind == kinds.FORWARD
        blocks[run.layer[done], run.batch[done]] = run.resource[done]
        own = (step.batch >= 0) & (part != BEFORE) & ((part != AFTER) | step.sums) & ~(step.sums & sums)
        home = self.chain.home[step.op]
        at = np.where(own, blocks[home, batch], homes[home])
        # [n'] the location of each group's variable, or first op, for all of the group.
        location = self.fast[at]
        grouped = np.flatnonzero(problem.group >= 0)
        held = step.graph.param_bytes[grouped] > 0
        listed = grouped[np.argsort(~held, kind="stable")]
        group, first = np.unique(problem.group[listed], return_index=True)
        of = np.zeros(int(problem.group.max(initial=-1)) + 1, dtype=np.int64)
        of[group] = location[listed[first]]
        result = location.copy()
        result[grouped] = of[problem.group[grouped]]
        return devices_at(problem, ints(result))

    def _rank(self, run: Unrolled) -> Ints:
        """Return [n'] places in one order of all ops: updates last or, if of a batch, in its backward block.

        With an update behind several batches they follow the last backward half of their batch on their device, so that
        gradients on their way to other devices do not wait for them; until then the sums are held anyway.
        """
        step, problem = self.step, self.problem
        start = np.full((len(kinds.KINDS), self.chain.chain.layers, run.batches), run.step, dtype=np.int64)
        start[run.kind, run.layer, run.batch] = run.start
        part = self.parts.part[step.op]
        kind = np.where(part == BACKWARD, kinds.BACKWARD, kinds.FORWARD)
        if (run.kind == kinds.WEIGHT_GRADIENT).any():
            apart = np.where(self.chain.weight[step.op], kinds.WEIGHT_GRADIENT, kinds.INPUT_GRADIENT)
            kind = np.where(step.sums, kinds.WEIGHT_GRADIENT, np.where(part == BACKWARD, apart, kind))
        key = 2 * start[kind, self.chain.layer[step.op], np.maximum(step.batch, 0)]
        each = (part == AFTER) & (step.batch >= 0) & (step.updates_each > 0)
        if step.updates_each:
            updates = 2 * start[kinds.BACKWARD]
            if step.updates_each > 1:
                done = run.kind == kinds.BACKWARD
                device = np.zeros(updates.shape, dtype=np.int64)
                device[run.layer[done], run.batch[done]] = run.resource[done]
                latest = np.zeros((int(device.max()) + 1, run.batches), dtype=np.int64)
                np.maximum.at(latest, (run.resource[done], run.batch[done]), run.start[done])
                updates = 2 * latest[device, np.arange(run.batches)] + 1
            key = np.where(each, updates[self.chain.home[step.op], np.maximum(step.batch, 0)], key)
        last = (part == AFTER) & ~step.sums & ~each
        key = np.where(last, 2 * run.step, np.where(part == BEFORE, -1, key))
        order = topological_order(problem.tasks, problem.src, problem.dst)
        key = after_all(order, problem.src, problem.dst, ints(key))
        if step.updates_each:
            # What is done `once` comes right before the first op that needs it: versions of weights are held.
            once = bools(part == BEFORE)
            by = np.argsort(problem.src, kind="stable")
            first = np.searchsorted(problem.src[by], np.arange(problem.tasks + 1))
            result = key.copy()
            for op in order[::-1].tolist():
                if once[op] and first[op] < first[op + 1]:
                    result[op] = result[problem.dst[by[first[op] : first[op + 1]]]].min()
            key = ints(result)
        return rank_of(ints(np.lexsort((rank_of(order), key))))
