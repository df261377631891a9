"""Layers of a graph to be spread over devices: loads, transfers that both devices are busy with, ties and weights.

Compiled: runs of an order, cut optimally, and allocations annealed from there.
"""

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from solvers.arrays import Floats, Ints, ints, offsets
from solvers.compiled.kernels import routine, subroutine
from solvers.problem import MOST


def _none() -> Ints:
    return ints([])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerDag:
    """n layers; ValueError, naming the first offender, for wrong lengths, values out of range, and cycles' makers.

    No order of a batch is asked for, so that edges may join any two layers, but none with itself.
    """

    loads: Ints
    """[n] ticks a batch of each layer."""
    src: Ints
    """[e] the layer that each edge comes from."""
    dst: Ints
    """[e] the layer that it leads to."""
    transfers: Ints
    """[e] ticks a batch that both devices are busy with, where the two layers are on different ones."""
    group: Ints = field(default_factory=_none)
    """[n] layers of one number >= 0 are tied to one device; -1: not tied. Empty: none is."""
    weights: Ints = field(default_factory=_none)
    """[n] bytes that each layer holds on its device; empty: none."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        n, e = len(self.loads), len(self.src)
        if not n:
            raise ValueError("there are no layers - give at least one")
        for name, value in (("group", -1), ("weights", 0)):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(n, value))
        limits = {"loads": (n, 0, MOST), "src": (e, 0, n - 1), "dst": (e, 0, n - 1), "transfers": (e, 0, MOST)}
        limits |= {"group": (n, -1, MOST), "weights": (n, 0, MOST)}
        for f in fields(self):
            values = ints(getattr(self, f.name))
            object.__setattr__(self, f.name, values)
            length, least, most = limits[f.name]
            if values.shape != (length,):
                raise ValueError(f"{f.name} has shape {values.shape}, expected {(length,)}")
            bad = np.flatnonzero((values < least) | (values > most))
            if len(bad):
                raise ValueError(f"{f.name}[{bad[0]}] is {values[bad[0]]}, out of range ({least} to {most})")
        if sum(self.loads.tolist()) + 2 * sum(self.transfers.tolist()) > MOST or sum(self.weights.tolist()) > MOST:
            raise ValueError(f"ticks or bytes sum to more than {MOST}, beyond what 64 bits can add up")
        own = np.flatnonzero(self.src == self.dst)
        if len(own):
            raise ValueError(f"edge {own[0]} joins layer {self.src[own[0]]} with itself - leave it out")

    @property
    def layers(self) -> int:
        """Number of layers, n."""
        return len(self.loads)


def device_loads(dag: LayerDag, device: Ints, devices: int) -> Ints:
    """Return [P] ticks a batch of each device: its layers, and every edge that leaves it or enters it."""
    loads = np.zeros(devices, dtype=np.int64)
    np.add.at(loads, device, dag.loads)
    crossed = device[dag.src] != device[dag.dst]
    for end in (dag.src, dag.dst):
        np.add.at(loads, device[end[crossed]], dag.transfers[crossed])
    return ints(loads)


def busiest(dag: LayerDag, device: Ints, devices: int) -> int:
    """Return the ticks a batch of the busiest device."""
    return int(device_loads(dag, device, devices).max())


_POWER = 24.0
"""Exponent of loads over the mean in the sum that annealing minimizes, as a smooth maximum."""


class Knots(NamedTuple):
    """m layers or layers that are tied, and the edges between two of them in both directions, in sum."""

    of: Ints
    """[n] the knot of each layer."""
    loads: Ints
    """[m] ticks of each."""
    weights: Ints
    """[m] bytes of each."""
    begin: Ints
    """[m + 1] where the edges of each begin."""
    to: Ints
    """[2 q] the other end of each edge."""
    ticks: Ints
    """[2 q] of each edge."""


def knots(dag: LayerDag) -> Knots:
    """Return layers with ties made one; knots are numbered by their first layer."""
    name = np.where(dag.group >= 0, dag.group, dag.group.max() + 1 + np.arange(dag.layers))
    _, first, inverse = np.unique(name, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    of, m = rank[inverse], len(first)
    one, two = of[dag.src], of[dag.dst]
    key = np.minimum(one, two) * m + np.maximum(one, two)
    pair, at = np.unique(key[one != two], return_inverse=True)
    ticks = np.zeros(len(pair), dtype=np.int64)
    np.add.at(ticks, at, dag.transfers[one != two])
    ends = np.concatenate([pair // m, pair % m])
    order = np.argsort(ends, kind="stable")
    loads, weights = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
    np.add.at(loads, of, dag.loads)
    np.add.at(weights, of, dag.weights)
    return Knots(
        of=ints(of), loads=ints(loads), weights=ints(weights), begin=offsets(np.bincount(ends, minlength=m)),
        to=ints(np.concatenate([pair % m, pair // m])[order]), ticks=ints(np.tile(ticks, 2)[order]),
    )  # fmt: skip


@routine
def contiguous_runs(given: Knots, order: Ints, devices: int, memory: int) -> Ints:
    """Return [m] device of each knot, one run of `order` a device, the busiest least; all -1 where none fit.

    O(m^2 P).
    """
    m = len(order)
    rank = np.empty(m, dtype=np.int64)
    rank[order] = np.arange(m)
    far = np.iinfo(np.int64).max
    best, came = np.full((devices + 1, m + 1), far), np.zeros((devices + 1, m + 1), dtype=np.int64)
    best[:, 0] = 0
    for i in range(m):  # runs from i on: by now it is known how those before i are laid best
        load = held = 0
        for j in range(i, m):
            u = order[j]
            load, held = load + given.loads[u], held + given.weights[u]
            for e in range(given.begin[u], given.begin[u + 1]):
                inside = i <= rank[given.to[e]] < j
                load += -given.ticks[e] if inside else given.ticks[e]
            if held > memory:
                break
            for p in range(1, devices + 1):
                worst = max(best[p - 1, i], load)
                if worst < best[p, j + 1]:
                    best[p, j + 1], came[p, j + 1] = worst, i
    device = np.full(m, -1)
    p, j = int(np.argmin(best[:, m])), m
    if best[p, m] == far:
        return device
    while j > 0:
        device[order[came[p, j] : j]] = p - 1
        p, j = p - 1, came[p, j]
    return device


@routine
def annealed_loads(
    given: Knots, device: Ints, room: Ints, hot: float, cool: float, draws: Floats
) -> tuple[Ints, Ints, int]:
    """Return the last allocation, the best one met, and its busiest, after moves by `draws`, [n, 4] of 0 to 1.

    A knot moves to a device, mostly one of a neighbour, or two change places; the share by which a load may grow falls
    from `hot` to `cool`. What exceeds `room`, [P] bytes, is never moved to.
    """
    m, devices = len(device), len(room)
    device, load, held = device.copy(), np.zeros(devices, dtype=np.int64), np.zeros(devices, dtype=np.int64)
    for u in range(m):
        load[device[u]] += given.loads[u]
        held[device[u]] += given.weights[u]
        for e in range(given.begin[u], given.begin[u + 1]):
            if device[given.to[e]] != device[u]:
                load[device[u]] += given.ticks[e]
    mean = max(1.0, load.sum() / devices)
    best, result = device.copy(), load.max()
    for n in range(len(draws)):
        # Knot u goes to device d, and `other` to that of u where the two change places.
        u = other = int(draws[n, 0] * m)
        neighbours = given.begin[u + 1] - given.begin[u]
        if draws[n, 1] < 0.5 and neighbours:
            d = device[given.to[given.begin[u] + int(draws[n, 2] * neighbours)]]
        elif draws[n, 1] < 0.75:
            d = int(draws[n, 2] * devices)
        else:
            other = int(draws[n, 2] * m)
            d = device[other]
        a = device[u]
        if a == d:
            continue
        before = (load[a] / mean) ** _POWER + (load[d] / mean) ** _POWER
        _move(given, device, load, held, u, d)
        if other != u:
            _move(given, device, load, held, other, a)
        after = (load[a] / mean) ** _POWER + (load[d] / mean) ** _POWER
        cooled = -(hot + (cool - hot) * n / len(draws)) * _POWER * np.log(max(draws[n, 3], 1e-12))
        if held[d] > room[d] or held[a] > room[a] or np.log((after + 1e-300) / (before + 1e-300)) > cooled:
            if other != u:
                _move(given, device, load, held, other, d)
            _move(given, device, load, held, u, a)
        elif load.max() < result:
            result, best = load.max(), device.copy()
    return device, best, result


@subroutine
def _move(given: Knots, device: Ints, load: Ints, held: Ints, u: int, d: int) -> None:
    """Move a knot to device d, with the loads of both."""
    a = device[u]
    load[a] -= given.loads[u]
    load[d] += given.loads[u]
    held[a] -= given.weights[u]
    held[d] += given.weights[u]
    for e in range(given.begin[u], given.begin[u + 1]):
        there, ticks = device[given.to[e]], given.ticks[e]
        if there == a:
            load[a] += ticks
            load[d] += ticks
        elif there == d:
            load[a] -= ticks
            load[d] -= ticks
        else:
            load[a] -= ticks
            load[d] += ticks
    device[u] = d
