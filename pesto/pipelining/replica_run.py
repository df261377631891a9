"""Batches through stages that several devices share: one forward, one backward, few in flight."""

from fractions import Fraction
from heapq import heappop, heappush

import numpy as np

from pesto.pipelining.replicas import Replicas
from pesto.pipelining.unrolled import Unrolled
from solvers.arrays import Ints, ints
from solvers.pipelining.chain import BACKWARD, FORWARD, Chain
from solvers.pipelining.pipeline_bounds import PeriodBound


def run_replicas(chain: Chain, stages: Replicas, batches: int, extra: int = 0) -> Unrolled:
    """Each device takes what is ready: a backward half first, a forward half where it has fewer batches than allowed.

    Allowed are as many as keep all later devices busy, and `extra`. O(S M log(S M) + L M).
    """
    return _ReplicaRun(chain, stages, batches, extra).unrolled()


class _ReplicaRun:
    def __init__(self, chain: Chain, stages: Replicas, batches: int, extra: int) -> None:
        self.chain, self.batches = chain, batches
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
        """All batches, run."""
        for batch in range(self.batches):
            heappush(self.events, (0, FORWARD, 0, batch))
        while self.events:
            now = self.events[0][0]
            touched = set[int]()
            while self.events and self.events[0][0] == now:
                _, kind, stage, batch = heappop(self.events)
                touched.add(self._told(kind, stage, batch))
            for device in sorted(touched):
                self._serve(device, now)
        return self._laid_out()

    def _told(self, kind: int, stage: int, batch: int) -> int:
        """Something is ready, or (a kind below 0) its device free."""
        device: int = self.taker[stage][batch]
        if kind >= 0:
            heappush(self.ready[device], (-kind, batch))
        return device

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
        self._release(kind, stage, batch, done)

    def _release(self, kind: int, stage: int, batch: int, done: int) -> None:
        last = stage == len(self.begin) - 1
        if kind == FORWARD:
            sent = 0 if last else int(self.chain.transfers[self.end[stage] - 1]) // 2
            heappush(self.events, (done + sent, BACKWARD if last else FORWARD, stage if last else stage + 1, batch))
        elif stage:
            cut = int(self.chain.transfers[self.begin[stage] - 1])
            heappush(self.events, (done + cut - cut // 2, BACKWARD, stage - 1, batch))

    def _laid_out(self) -> Unrolled:
        """Stages taken apart into layers that follow each other at once."""
        rows = [self._block(*row) for row in self.rows]
        kind, layer, batch, resource, start = np.concatenate(rows, axis=1)
        finish = start + self.chain.ticks(kind, layer)
        order = np.lexsort((kind, start))
        return Unrolled(
            batches=self.batches, kind=ints(kind[order]), layer=ints(layer[order]), batch=ints(batch[order]),
            resource=ints(resource[order]), start=ints(start[order]), finish=ints(finish[order]),
        )  # fmt: skip

    def _block(self, kind: int, stage: int, batch: int, begin: int) -> Ints:
        """[5, l] kind, layer, batch, device and start of each layer of a stage's half."""
        layers = np.arange(self.begin[stage], self.end[stage])[:: 1 if kind == FORWARD else -1]
        took = (self.chain.forward if kind == FORWARD else self.chain.backward)[layers]
        same = [np.full(len(layers), value) for value in (kind, batch, self.taker[stage][batch])]
        return ints(np.stack([same[0], layers, *same[1:], begin + np.cumsum(took) - took]))


def in_flight(stages: Replicas, run: Unrolled) -> Ints:
    """[L] most batches at once between a layer's forward and its backward half, on one of its devices."""
    result = np.zeros(len(stages.homes), dtype=np.int64)
    for first, last, device in stages.rows.tolist():
        mine = (run.layer == first) & (run.resource == device)
        ends = run.finish[mine & (run.kind == BACKWARD)]
        ticks = np.append(run.start[mine & (run.kind == FORWARD)], ends)
        change = np.append(np.ones(len(ticks) - len(ends), dtype=np.int64), -np.ones(len(ends), dtype=np.int64))
        most = int(np.cumsum(change[np.lexsort((change, ticks))]).max(initial=0))
        result[first : last + 1] = np.maximum(result[first : last + 1], most)
    return ints(result)


def shared_step(chain: Chain, stages: Replicas, batches: int) -> PeriodBound:
    """Lower bound on the ticks of a step of so many micro-batches through these stages: its busiest device's work.

    What comes before its stage, forward, and its load of these; or all that these wait for, with what comes before its
    stage, backward. Gradients of weights may come last of all.
    """
    late, result, ahead, back = chain.weight_gradient, 0, 0, 0
    for first, end, devices in zip(
        stages.first.tolist(), [*stages.first[1:].tolist(), chain.layers], stages.devices, strict=True
    ):
        most, load, last = -(-batches // len(devices)), int(chain.loads[first:end].sum()), int(late[first:end].sum())
        result = max(result, ahead + most * load, ahead + back + most * (load - last))
        cut = int(chain.transfers[end - 1]) if end < chain.layers else 0
        forward = int(chain.forward[first:end].sum())
        ahead, back = ahead + forward + cut // 2, back + load - forward - last + cut - cut // 2
    return PeriodBound(name="device", value=Fraction(result))
