"""Stages that several devices share, whole batches each: cut so that the greatest load of a device is least.

Narayanan et al.: PipeDream (SOSP 2019), section 3.1: a stage of r devices takes each batch as long, and r at once.
"""

from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster
from solvers.arrays import Floats, Ints, ints
from solvers.pipelining.chain import Chain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicas:
    """S stages of a chain's L layers, first to last, each on one device or more."""

    first: Ints
    """[S] the first layer of each stage."""
    devices: tuple[tuple[int, ...], ...]
    """The devices of each stage, 0..P - 1; no device has two stages."""
    homes: Ints
    """[L] the device on which each layer's variables are, and are updated: one of its stage's."""
    in_turn: bool
    """True if a stage's devices take batches in turn; else each takes as many that follow each other."""
    sums: bool = False
    """True if gradients are added up where their variable is, and not where they are made."""

    @property
    def stage(self) -> Ints:
        """[L] the stage of each layer."""
        return ints(np.searchsorted(self.first, np.arange(len(self.homes)), side="right") - 1)

    @property
    def rows(self) -> Ints:
        """[r, 3] first layer, last layer and device, of each device of each stage."""
        ends = np.append(self.first[1:], len(self.homes)) - 1
        return ints([
            (first, last, device)
            for first, last, devices in zip(self.first.tolist(), ends.tolist(), self.devices, strict=True)
            for device in devices
        ])  # fmt: skip

    def taker(self, batches: int) -> Ints:
        """[S, M] the device that does each batch of each stage."""
        result = [
            np.array(each)[
                np.arange(batches) % len(each) if self.in_turn else np.arange(batches) * len(each) // batches
            ]
            for each in self.devices
        ]
        return ints(np.stack(result))


def stage_divisions(chain: Chain, devices: int) -> list[tuple[Ints, Ints]]:
    """([S] first layers, [S] devices of each) for S = 1..P stages: least is the greatest of what a device or cut takes.

    A stage's load is shared by its devices, what crosses the cut before it by as many links. O(P^3 L^2), in arrays.
    """
    layers = chain.layers
    done = np.concatenate([[0.0], np.cumsum(chain.loads)])
    load = done[None, :] - done[:, None]
    cut = np.concatenate([[0.0], chain.transfers, [0.0]])
    valid = np.arange(layers + 1)[:, None] < np.arange(layers + 1)[None, :]
    best = np.full((devices + 1, layers + 1), np.inf)
    best[0, 0] = 0.0
    result, choice = [], list[dict[tuple[int, int], tuple[int, int]]]()
    for _ in range(min(devices, layers)):
        best, chosen = _one_more(best, np.where(valid, load, np.inf), cut)
        choice.append(chosen)
        if np.isfinite(best[devices, layers]):
            result.append(_traced(choice, devices, layers))
    return result


def _one_more(before: Floats, load: Floats, cut: Floats) -> tuple[Floats, dict[tuple[int, int], tuple[int, int]]]:
    """Least greatest load of the first layers on so many devices with one stage more, and where that began."""
    devices = len(before) - 1
    best, chosen = np.full_like(before, np.inf), dict[tuple[int, int], tuple[int, int]]()
    for p in range(1, devices + 1):
        for r in range(1, p + 1):
            tried = np.maximum(np.maximum(before[p - r][:, None], load / r), (cut / r)[:, None])
            least, begin = tried.min(axis=0), tried.argmin(axis=0)
            for end in np.flatnonzero(least < best[p]).tolist():
                best[p, end], chosen[p, end] = least[end], (r, int(begin[end]))
    return best, chosen


def _traced(choice: list[dict[tuple[int, int], tuple[int, int]]], devices: int, layers: int) -> tuple[Ints, Ints]:
    firsts, counts, p, end = list[int](), list[int](), devices, layers
    for chosen in reversed(choice):
        r, begin = chosen[p, end]
        firsts.append(begin)
        counts.append(r)
        p, end = p - r, begin
    return ints(firsts[::-1]), ints(counts[::-1])


def place_replicas(
    chain: Chain, division: tuple[Ints, Ints], cluster: Cluster, line: Ints, *, in_turn: bool
) -> Replicas:
    """A division on the devices of a line (their places in the cluster), each stage's beside those of the one before.

    Variables are spread over their stage's devices, the largest layers first, each to the device that has fewest bytes.
    """
    firsts, counts = division
    ends = np.append(firsts[1:], chain.layers)
    homes, at, groups = np.zeros(chain.layers, dtype=np.int64), 0, list[tuple[int, ...]]()
    for first, end, count in zip(firsts.tolist(), ends.tolist(), counts.tolist(), strict=True):
        own = tuple(range(at, at + count))
        groups.append(_beside(groups[-1], own, cluster, line) if groups else own)
        held = dict.fromkeys(own, 0)
        for layer in sorted(range(first, end), key=lambda each: (-int(chain.weights[each]), each)):
            homes[layer] = min(held, key=lambda device: (held[device], device))
            held[int(homes[layer])] += int(chain.weights[layer])
        at += count
    return Replicas(first=firsts, devices=tuple(groups), homes=ints(homes), in_turn=in_turn)


def _beside(before: tuple[int, ...], own: tuple[int, ...], cluster: Cluster, line: Ints) -> tuple[int, ...]:
    """The devices of a stage in the order in which each is nearest to the one whose batches it takes over."""
    left, result = list(own), list[int]()
    for k in range(len(own)):
        sender = int(line[before[k % len(before)]])
        result.append(min(left, key=lambda device: cluster.s_per_byte(sender, int(line[device]))))
        left.remove(result[-1])
    return tuple(result)
