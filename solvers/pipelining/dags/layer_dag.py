"""Layers with what they send each other: loads, transfers that both devices are busy with, ties, and weights."""

from dataclasses import dataclass, field, fields

import numpy as np

from solvers.arrays import Ints, ints
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


def busiest(dag: LayerDag, device: Ints, devices: int) -> int:
    """Ticks a batch of the busiest device: its layers, and every edge that leaves it or enters it."""
    found = np.bincount(device, minlength=devices).astype(np.int64) * 0
    np.add.at(found, device, dag.loads)
    crossed = device[dag.src] != device[dag.dst]
    for end in (dag.src, dag.dst):
        np.add.at(found, device[end[crossed]], dag.transfers[crossed])
    return int(found.max())
