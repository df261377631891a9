"""A folded training step as a chain of layers: ticks and bytes of each, and of what crosses each cut between them."""

from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.network import transfer_s
from pesto.core.errors import UsageError
from pesto.core.graph import Graph
from pesto.core.micro_batches.step_parts import AFTER, BACKWARD, BEFORE, FORWARD, StepParts
from pesto.core.problem import TICK_S
from pesto.pipelining.folding import Folded
from solvers.arrays import Bools, Floats, Ints, bools, ints
from solvers.compiled.dag import adjacency, topological_order
from solvers.pipelining.chain import Chain

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


def accelerators(cluster: Cluster) -> Ints:
    """The devices that stages are laid on, all alike: those that are no hosts, or hosts where there are no others.

    Listed so that neighbours are near: behind each the one that it sends to fastest. UsageError where they are of
    several kinds or speeds.
    """
    fast = [at for at, device in enumerate(cluster.devices) if device.kind != "cpu"]
    result = fast or list(range(len(cluster.devices)))
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
    """The chain of a folded step for so many micro-batches, cut where little crosses: at most MOST_LAYERS layers.

    Layers are as equal in load as cheap cuts allow. What crosses a cut takes as long as on the slowest of the paths
    between devices that follow each other, tensor by tensor; a tensor that is read far on crosses every cut on its way.
    A variable that is read on both sides of a cut is sent once a step.
    """
    fast = accelerators(cluster)
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
    ends = _ends(load, crossing.seconds(dear=True))
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
    """The chain, and the ticks of each layer's updates. where: layer, home and weight of `StepChain`."""
    (layer, home, weight), (crossing, ends) = where, cuts
    ticks = np.ceil(np.round(seconds / TICK_S, 3))
    backward = parts.part == BACKWARD
    tensor_op, sizes = graph.tensor_op[parts.added], graph.tensor_bytes[parts.added]

    def total(at: Ints, values: Floats | Ints) -> Ints:
        return np.bincount(at, weights=values, minlength=len(ends) + 1).astype(np.int64)

    chain = Chain(
        forward=total(layer, ticks * (parts.part == FORWARD)), backward=total(layer, ticks * backward),
        weights=total(home, graph.param_bytes) + total(layer[tensor_op], sizes),
        activation=total(layer, _kept(graph, parts)),
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
        # Copied constants are nowhere sent.
        self.sent = ~(self.once & (graph.tensor_bytes <= 128))

    def seconds(self, *, dear: bool) -> Floats:
        """[places - 1] a micro-batch, both ways; with `dear` variables as if they crossed for each."""
        weight = self.tensor_s * np.where(self.once, 1.0 if dear else 1.0 / self.batches, 1.0) * self.sent
        return self._over(self.low, self.own, weight) + self._over(self.own, self.high, weight)

    def bytes(self) -> Ints:
        """[places - 1] a micro-batch in the forward pass."""
        return np.round(self._over(self.own, self.high, self.sizes.astype(np.float64))).astype(np.int64)

    def _over(self, begin: Ints, end: Ints, weight: Floats) -> Floats:
        rise = np.bincount(begin, weights=weight, minlength=self.places + 1)
        fall = np.bincount(end, weights=weight, minlength=self.places + 1)
        return np.maximum(np.cumsum(rise - fall)[: self.places - 1], 0.0)


def _ends(load: Floats, dear: Floats) -> Ints:
    """The last place of each layer but the last: of each share of the load the cheapest cut."""
    if not len(dear):
        return ints([])
    done = np.cumsum(load)[:-1]
    share = np.minimum((done / max(float(load.sum()), 1e-30) * MOST_LAYERS).astype(np.int64), MOST_LAYERS - 1)
    order = np.lexsort((dear, share))
    first = np.unique(share[order], return_index=True)[1]
    return ints(np.sort(order[first]))


def _kept(graph: Graph, parts: StepParts) -> Ints:
    """[n] bytes that a forward op writes and a backward op reads."""
    read = np.zeros(len(graph.tensor_op), dtype=np.bool_)
    read[graph.tensor[parts.part[graph.dst] == BACKWARD]] = True
    read &= parts.part[graph.tensor_op] == FORWARD
    return np.bincount(graph.tensor_op[read], weights=graph.tensor_bytes[read], minlength=graph.ops).astype(np.int64)


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
