"""Stages that several devices share, whole batches each: cut so that a device's greatest load is least, and run.

Narayanan et al.: PipeDream (SOSP 2019), section 3.1: a stage of r devices takes each batch as long, and r at once.
Batches run one forward, one backward, with few in flight.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from pesto.core.cluster import Cluster
from pesto.pipelining.unrolled import Unrolled
from solvers.arrays import Ints, ints
from solvers.pipelining.chain import BACKWARD, FORWARD, Chain, rows_of_layers


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
        """Return [S, M] the device that does each batch of each stage."""
        result = [
            np.array(each)[
                np.arange(batches) % len(each) if self.in_turn else np.arange(batches) * len(each) // batches
            ]
            for each in self.devices
        ]
        return ints(np.stack(result))


def replicated_runs(chain: Chain, cluster: Cluster, line: Ints, batches: int) -> list[tuple[Replicas, Unrolled]]:
    """Return stages shared by several devices, and their runs, the shortest first: of each number of stages, both ways.

    line: the devices, places in the cluster, neighbours near each other. A stage's devices take batches in turn, or
    each as many that follow each other.
    """
    result = list[tuple[Replicas, Unrolled]]()
    for division in stage_divisions(chain, len(line)):
        for in_turn in (True, False) if division[1].max() > 1 else ():
            shared = place_replicas(chain, division, cluster, line, in_turn=in_turn)
            result.append((shared, run_replicas(chain, shared, batches)))
    return sorted(result, key=lambda each: each[1].step)


def stage_divisions(chain: Chain, devices: int) -> list[tuple[Ints, Ints]]:
    """([S] first layers, [S] devices of each) for S = 1..P stages: least is the greatest of what a device or cut takes.

    A stage's load is shared by its devices, what crosses the cut before it by as many links. O(P^3 L^2), in arrays.
    """
    layers = chain.layers
    done = np.concatenate([[0.0], np.cumsum(chain.loads)])
    valid = np.arange(layers + 1)[:, None] < np.arange(layers + 1)[None, :]
    load = np.where(valid, done[None, :] - done[:, None], np.inf)
    cut = np.concatenate([[0.0], chain.transfers, [0.0]])
    best = np.full((devices + 1, layers + 1), np.inf)
    best[0, 0] = 0.0
    result, choice = [], list[dict[tuple[int, int], tuple[int, int]]]()
    for _ in range(min(devices, layers)):
        # The least greatest load of the first layers on so many devices with one stage more, and where that begins.
        before, best, chosen = best, np.full_like(best, np.inf), dict[tuple[int, int], tuple[int, int]]()
        for p, r in ((n, r) for n in range(1, devices + 1) for r in range(1, n + 1)):
            tried = np.maximum(np.maximum(before[p - r][:, None], load / r), (cut / r)[:, None])
            least, begins = tried.min(axis=0), tried.argmin(axis=0)
            for end in np.flatnonzero(least < best[p]).tolist():
                best[p, end], chosen[p, end] = least[end], (r, int(begins[end]))
        choice.append(chosen)
        if not np.isfinite(best[devices, layers]):
            continue
        firsts, counts, p, end = list[int](), list[int](), devices, layers
        for each in reversed(choice):
            r, begin = each[p, end]
            firsts.append(begin)
            counts.append(r)
            p, end = p - r, begin
        result.append((ints(firsts[::-1]), ints(counts[::-1])))
    return result


def place_replicas(
    chain: Chain, division: tuple[Ints, Ints], cluster: Cluster, line: Ints, *, in_turn: bool
) -> Replicas:
    """Place a division on a line of devices (places in the cluster), each stage beside the one before.

    Variables are spread over their stage's devices, the largest layers first, each to the device that has fewest bytes.
    """
    firsts, counts = division
    ends = np.append(firsts[1:], chain.layers)
    homes, at, groups = np.zeros(chain.layers, dtype=np.int64), 0, list[tuple[int, ...]]()
    for first, end, count in zip(firsts.tolist(), ends.tolist(), counts.tolist(), strict=True):
        own, left = tuple(range(at, at + count)), list(range(at, at + count))
        if groups:  # each device is the nearest to the one whose batches it takes over
            before, near = groups[-1], list[int]()
            for k in range(count):
                sender = int(line[before[k % len(before)]])
                far = {device: cluster.s_per_byte(sender, int(line[device])) for device in left}
                near.append(min(left, key=far.__getitem__))
                left.remove(near[-1])
            own = tuple(near)
        groups.append(own)
        held = dict.fromkeys(range(at, at + count), 0)
        for layer in sorted(range(first, end), key=lambda each: (-int(chain.weights[each]), each)):
            homes[layer] = min(held, key=lambda device: (held[device], device))
            held[int(homes[layer])] += int(chain.weights[layer])
        at += count
    return Replicas(first=firsts, devices=tuple(groups), homes=ints(homes), in_turn=in_turn)


def run_replicas(chain: Chain, stages: Replicas, batches: int, extra: int = 0) -> Unrolled:
    """Run what is ready on each device: a backward half first, a forward half where fewer batches are in flight.

    Allowed are as many as keep all later devices busy, and `extra`. O(S M log(S M) + L M).
    """
    return _ReplicaRun(chain, stages, batches, extra).unrolled()


class _ReplicaRun:
    def __init__(self, chain: Chain, stages: Replicas, batches: int, extra: int) -> None:
        self.chain, self.batches, self.stage = chain, batches, stages.stage
        self.begin = stages.first.tolist()
        self.end = [*self.begin[1:], chain.layers]
        self.taker = stages.taker(batches).tolist()
        each = [len(devices) for devices in stages.devices]
        self.allowed = [-(-sum(each[s:]) // each[s]) + extra for s in range(len(each))]
        self.stage_of = {device: s for s, devices in enumerate(stages.devices) for device in devices}
        self.ready: dict[int, list[tuple[int, int]]] = {device: [] for device in self.stage_of}
        self.in_flight, self.busy = dict.fromkeys(self.stage_of, 0), dict.fromkeys(self.stage_of, 0)
        self.events: list[tuple[int, int, int, int]] = []
        self.rows: list[tuple[int, int, int, int]] = []
        both = (chain.forward, chain.backward)
        self.ticks = [[int(half[a:b].sum()) for half in both] for a, b in zip(self.begin, self.end, strict=True)]

    def unrolled(self) -> Unrolled:
        """Run all batches; then take stages apart into layers that follow each other at once."""
        for batch in range(self.batches):
            heappush(self.events, (0, FORWARD, 0, batch))
        while self.events:
            now = self.events[0][0]
            touched = set[int]()
            while self.events and self.events[0][0] == now:
                _, kind, stage, batch = heappop(self.events)
                device: int = self.taker[stage][batch]
                if kind >= 0:  # something is ready; else the device is free
                    heappush(self.ready[device], (-kind, batch))
                touched.add(device)
            for device in sorted(touched):
                self._serve(device, now)
        rows = rows_of_layers(self.chain, ints(np.column_stack([self.begin, np.array(self.end) - 1])), self.rows)
        kinds, layer, batches, start = rows.T
        resource = np.array(self.taker)[self.stage[layer], batches]
        finish = start + self.chain.ticks(kinds, layer)
        order = np.lexsort((kinds, start))
        return Unrolled(
            batches=self.batches, kind=ints(kinds[order]), layer=ints(layer[order]), batch=ints(batches[order]),
            resource=ints(resource[order]), start=ints(start[order]), finish=ints(finish[order]),
        )  # fmt: skip

    def _serve(self, device: int, now: int) -> None:
        stage, waiting = self.stage_of[device], self.ready[device]
        if self.busy[device] > now or not waiting:
            return
        kind = -waiting[0][0]
        if kind == FORWARD and self.in_flight[device] >= self.allowed[stage]:
            return
        batch = heappop(waiting)[1]
        self.in_flight[device] += 1 if kind == FORWARD else -1
        self.rows.append((kind, stage, batch, now))
        done = now + self.ticks[stage][kind]
        self.busy[device] = done
        heappush(self.events, (done, -1, stage, batch))
        last = stage == len(self.begin) - 1
        if kind == FORWARD:
            sent = 0 if last else int(self.chain.transfers[self.end[stage] - 1]) // 2
            heappush(self.events, (done + sent, BACKWARD if last else FORWARD, stage if last else stage + 1, batch))
        elif stage:
            cut = int(self.chain.transfers[self.begin[stage] - 1])
            heappush(self.events, (done + cut - cut // 2, BACKWARD, stage - 1, batch))


def in_flight(stages: Replicas, run: Unrolled) -> Ints:
    """Return [L] most batches at once between a layer's forward and its backward half, on one of its devices."""
    result = np.zeros(len(stages.homes), dtype=np.int64)
    for first, last, device in stages.rows.tolist():
        mine = (run.layer == first) & (run.resource == device)
        ends = run.finish[mine & (run.kind == BACKWARD)]
        ticks = np.append(run.start[mine & (run.kind == FORWARD)], ends)
        change = np.append(np.ones(len(ticks) - len(ends), dtype=np.int64), -np.ones(len(ends), dtype=np.int64))
        most = int(np.cumsum(change[np.lexsort((change, ticks))]).max(initial=0))
        result[first : last + 1] = np.maximum(result[first : last + 1], most)
    return ints(result)
