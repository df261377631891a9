"""One step of M batches from an empty pipeline to an empty one, by the named schedules, as patterns of k = M batches.

Each schedule gives every device an order of its work; devices and links start what is next as soon as they can. GPipe
(Huang et al. 2019) · 1F1B (PipeDream-Flush; Narayanan et al. 2021) · interleaved 1F1B (Narayanan et al. 2021, section
2.2) · zero bubble H1 and the V-shape (Qi et al. 2023), whose orders are found here by a rule: the input gradient before
the forward half before the weight gradient, within a number of batches in flight on each stage.
"""

from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from solvers.arrays import ints
from solvers.pipelining.chain import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Allocation,
    Chain,
    Pattern,
    Work,
    line_of,
    pattern_of_line,
)


def gpipe(chain: Chain, allocation: Allocation, batches: int) -> Pattern:
    """Run all forward halves, then all backward halves; any allocation. ValueError without a batch."""
    stages = allocation.stages[:, 2]
    orders: list[list[Work]] = [[] for _ in range(allocation.devices)]
    for kind, along in ((FORWARD, range(len(stages))), (BACKWARD, range(len(stages) - 1, -1, -1))):
        for stage in along:
            orders[stages[stage]] += [(kind, stage, batch) for batch in range(batches)]
    return _played(chain, allocation, batches, orders)


def one_f_one_b(chain: Chain, allocation: Allocation, batches: int) -> Pattern:
    """Run as many forward halves ahead as stages follow a stage, then one forward and one backward in turn.

    ValueError without a batch, or where a device has two stages.
    """
    if not allocation.contiguous:
        raise ValueError("1F1B needs a contiguous allocation - give one run of layers a device, or ask for interleaved")
    stages = allocation.stages[:, 2]
    orders: list[list[Work]] = [[] for _ in range(allocation.devices)]
    for stage, device in enumerate(stages.tolist()):
        forward = [(FORWARD, stage, batch) for batch in range(batches)]
        backward = [(BACKWARD, stage, batch) for batch in range(batches)]
        orders[device] = _in_turn(forward, backward, len(stages) - stage - 1)
    return _played(chain, allocation, batches, orders)


def round_robin(cuts: list[int], devices: int) -> Allocation:
    """Return the interleaved allocation: chunk c of v * P runs on device c mod P. cuts: layers of each chunk, v * P.

    ValueError where they are no multiple of the devices.
    """
    if devices < 1 or len(cuts) % devices:
        raise ValueError(f"{len(cuts)} chunks for {devices} devices - give a multiple of the devices")
    return Allocation(device=ints(np.repeat(np.arange(len(cuts)) % devices, cuts)), devices=devices)


def v_shaped(cuts: list[int]) -> Allocation:
    """Return the V allocation: chunks run down the devices and back, the first and the last on one. cuts: layers, 2 P.

    ValueError where their number is odd.
    """
    if len(cuts) % 2:
        raise ValueError(f"{len(cuts)} chunks - give two for each device")
    down = np.arange(len(cuts) // 2)
    return Allocation(device=ints(np.repeat(np.append(down, down[::-1]), cuts)), devices=len(down))


def interleaved(chain: Chain, allocation: Allocation, batches: int) -> Pattern:
    """Run Megatron's order for chunks that go round the devices (`round_robin`), batches in runs of P.

    ValueError where chunks do not go round, or batches are no multiple of the devices.
    """
    stages, devices = allocation.stages[:, 2], allocation.devices
    if len(stages) % devices or not np.array_equal(stages, np.arange(len(stages)) % devices):
        raise ValueError("interleaved needs chunks that go round all devices, as `round_robin` gives them")
    if batches < 1 or batches % devices:
        raise ValueError(f"{batches} batches for {devices} devices - give a multiple of the devices")
    chunks = len(stages) // devices
    orders: list[list[Work]] = []
    for device in range(devices):
        runs = [(chunk, run) for run in range(0, batches, devices) for chunk in range(chunks)]
        forward = [(FORWARD, chunk * devices + device, run + batch) for chunk, run in runs for batch in range(devices)]
        backward = [
            (BACKWARD, (chunks - 1 - chunk) * devices + device, run + batch)
            for chunk, run in runs
            for batch in range(devices)
        ]
        ahead = (devices - device - 1) * (2 if chunks > 1 else 1) + (chunks - 1) * devices
        orders.append(_in_turn(forward, backward, ahead))
    return _played(chain, allocation, batches, orders)


def zero_bubble(chain: Chain, allocation: Allocation, batches: int, in_flight: list[int] | None = None) -> Pattern:
    """Split backward halves; any allocation. At most in_flight[s] batches are between forward and weight gradient.

    Input gradients first, then forward halves while few enough are in flight, weight gradients in what is left.
    in_flight: for each stage; None: as many as there are stages for each (H1: the most that 1F1B has on any stage).
    ValueError without a batch, or with a stage that may hold none.
    """
    stages = len(allocation.stages)
    caps = [stages] * stages if in_flight is None else in_flight
    if batches < 1 or len(caps) != stages or min(caps) < 1:
        raise ValueError(f"{batches} batches with at most {caps} in flight on {stages} stages - give at least one each")
    player, held = _EventPlayer(chain, allocation, batches, split=True), [0] * stages
    order = {INPUT_GRADIENT: 0, FORWARD: 1, WEIGHT_GRADIENT: 2}

    def choose(resource: int) -> Work | None:
        if resource >= allocation.devices:
            return player.first_come(resource)
        allowed = [work for work in player.ready[resource] if work[0] != FORWARD or held[work[1]] < caps[work[1]]]
        # Of one kind the last stage and the first batch: what is nearest to its end.
        best = min(allowed, key=lambda work: (order[work[0]], -work[1], work[2]), default=None)
        if best is not None and best[0] != INPUT_GRADIENT:
            held[best[1]] += 1 if best[0] == FORWARD else -1
        return best

    return pattern_of_line(chain, allocation, player.line, batches, player.play(choose))


def _in_turn(forward: list[Work], backward: list[Work], ahead: int) -> list[Work]:
    ahead = min(ahead, len(forward))
    turns = [work for pair in zip(forward[ahead:], backward, strict=False) for work in pair]
    return forward[:ahead] + turns + backward[len(forward) - ahead :]


class _EventPlayer:
    """Work done as early as it can be: who may be next on a device is asked, links serve who came first."""

    def __init__(self, chain: Chain, allocation: Allocation, batches: int, *, split: bool) -> None:
        if batches < 1:
            raise ValueError(f"{batches} batches - give at least one")
        self.batches = batches
        self.line = line_of(chain, allocation, allocation.stages, split=split)
        self.ready: dict[int, set[Work]] = {at: set() for at in self.line.resource.values()}
        self.came: dict[Work, int] = {}
        self.starts: list[tuple[int, int, int, int]] = []
        self.busy: set[int] = set()
        for batch in range(batches):
            self._arrives((FORWARD, 0, batch), 0)

    def play(self, choose: Callable[[int], Work | None]) -> list[tuple[int, int, int, int]]:
        """Return (kind, stage, batch, start) rows; `choose` says what a free resource does next, None: it waits."""
        ends: list[tuple[int, Work]] = []
        now, total = 0, len(self.line.ticks) * self.batches
        while len(self.starts) < total or ends:
            began = True
            while began:
                began = False
                for resource in sorted(self.ready.keys() - self.busy):
                    chosen = choose(resource)
                    if chosen is not None:
                        self.ready[resource].remove(chosen)
                        self.busy.add(resource)
                        self.starts.append((*chosen, now))
                        heappush(ends, (now + self.line.ticks[chosen[:2]], chosen))
                        began = True
            now = ends[0][0]
            while ends and ends[0][0] == now:
                work = heappop(ends)[1]
                self.busy.remove(self.line.resource[work[:2]])
                for kind, stage in self.line.after[work[:2]]:
                    self._arrives((kind, stage, work[2]), now)
        return self.starts

    def _arrives(self, work: Work, now: int) -> None:
        self.came[work] = now
        self.ready[self.line.resource[work[:2]]].add(work)

    def first_come(self, resource: int) -> Work | None:
        """Return the send that has waited longest for a link."""
        return min(self.ready[resource], key=lambda work: (self.came[work], work[2], work), default=None)


def _played(chain: Chain, allocation: Allocation, batches: int, orders: list[list[Work]]) -> Pattern:
    player = _EventPlayer(chain, allocation, batches, split=False)
    at = [0] * len(orders)

    def choose(resource: int) -> Work | None:
        if resource >= len(orders):
            return player.first_come(resource)
        order = orders[resource]
        if at[resource] < len(order) and order[at[resource]] in player.ready[resource]:
            at[resource] += 1
            return order[at[resource] - 1]
        return None

    return pattern_of_line(chain, allocation, player.line, batches, player.play(choose))
