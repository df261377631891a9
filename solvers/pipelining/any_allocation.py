"""A chain on any allocation, contiguous or not, without limit of memory: the busiest device or link has least to do.

Without memory a period is the greatest load of a device or link, as batches can wait for as long as they like: in the
pattern each does one thing after the other. The search is CP-SAT's, in a process of its own; it starts from the best
contiguous allocation, which it is never above.
"""

import io
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import (
    Allocation,
    Chain,
    Machines,
    MemoryModel,
    Pattern,
    line_of,
    pattern_from_starts,
    rows_of_layers,
    slower,
)
from solvers.pipelining.contiguous import best_cuts
from solvers.pipelining.pipeline_bounds import PeriodBound, best, of_machines
from solvers.process.one_shot import answered

GRACE_S = 5.0
"""Seconds beyond the limit for the process to begin and to tell."""
_MOST_TICKS = 1 << 52
"""Beyond these CP-SAT is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadAllocation:
    """An allocation, and what is known of the best."""

    allocation: Allocation
    T: int
    """Ticks that the busiest device or link takes a batch: the period."""
    bound: PeriodBound
    """No allocation has a lesser period."""

    @property
    def optimal(self) -> bool:
        """True if no allocation is better."""
        return self.bound.value == self.T


def greatest_load(chain: Chain, allocation: Allocation) -> int:
    """Return the ticks a batch of the busiest device or link, of the chain as they run it."""
    result = np.zeros(allocation.devices * (allocation.devices + 1), dtype=np.int64)
    np.add.at(result, allocation.device, chain.loads)
    np.add.at(result, allocation.link(allocation.crossed), chain.transfers[allocation.crossed])
    return int(result.max())


def with_one_batch(chain: Chain) -> Chain:
    """Return the chain with what each layer holds of one batch as weights: no schedule holds less at all times.

    While the last layer does its backward half, a batch is in all layers.
    """
    held = chain.weights + chain.activation * bool(chain.backward[-1] + chain.forward[-1])
    return replace(chain, weights=held, activation=0 * held)


def least_load(chain: Chain, machines: Machines, *, seconds: float = 10.0) -> LoadAllocation | None:
    """Return the allocation whose busiest device or link has least to do, found within about so many seconds.

    The memory of devices is for the weights. What batches in flight hold is not counted: ValueError where a chain on
    devices with a limit has activations. None: weights have no room, or none was found for them. RuntimeError where the
    process failed.
    """
    if machines.memory is not None and chain.activation.any():
        raise ValueError("memory for batches in flight is not counted here - leave memory out, or cut contiguously")
    start = best_cuts(chain, machines, MemoryModel.PAPER)
    try:
        bound = best(of_machines(chain, machines, MemoryModel.PAPER))
    except ValueError:  # weights have no room
        return None
    known = None if start is None else LoadAllocation(allocation=start.allocation, T=start.T, bound=bound)
    total = machines.most_ticks(chain)
    if (known and known.optimal) or total > _MOST_TICKS:
        return known
    # Of each kind more devices than there are layers are of no use.
    kinds = machines.kinds()
    used = ints([d for d, kind in enumerate(kinds) if kinds[:d].count(kind) < chain.layers])
    devices = used.tolist()
    speeds = sorted({machines.link(d, e) for d in devices for e in devices})
    memory = np.full(machines.devices, chain.weights.sum())
    memory = memory if machines.memory is None else np.minimum(memory, machines.memory)
    loads = [slower(chain.forward, speed) + slower(chain.backward, speed) for speed in machines.speed]
    ticks = {
        "loads": ints(loads)[used], "transfers": ints([slower(chain.transfers, speed) for speed in speeds]),
        "link": ints([[speeds.index(machines.link(d, e)) for e in devices] for d in devices]),
        "memory": memory[used], "kind": ints(machines.kinds())[used],
    }  # fmt: skip
    answer = asked_of(
        "solvers.cpsat.chain_loads", seconds + GRACE_S, **ticks, weights=chain.weights,
        start=np.full(chain.layers, -1) if known is None else np.searchsorted(used, known.allocation.device),
        least=ceil(bound.value), most=total if known is None else known.T, seconds=seconds,
    )  # fmt: skip
    # Loads and weights are computed anew: CP-SAT's allocation counts only if it is better by them.
    if int(answer["bound"]) > bound.value:
        bound = PeriodBound(name="CP-SAT", value=Fraction(int(answer["bound"])))
    if (answer["device"] >= 0).all():
        allocation = Allocation(device=used[answer["device"]], devices=machines.devices)
        held = np.zeros(machines.devices, dtype=np.int64)
        np.add.at(held, allocation.device, chain.weights)
        load = greatest_load(machines.on(chain, allocation), allocation)
        fits = machines.memory is None or (held <= machines.memory).all()
        if fits and (known is None or load < known.T):
            return LoadAllocation(allocation=allocation, T=load, bound=bound)
    return None if known is None else replace(known, bound=bound)


def asked_of(module: str, limit: float, **given: Any) -> dict[str, Ints]:
    """Run a CP-SAT module on arrays and return its arrays; no device and no bound if it was ended at its limit."""
    sent = io.BytesIO()
    np.savez(sent, **given)
    answer = answered(module, sent.getvalue(), limit, solver="CP-SAT")
    if answer is None:
        return {"device": np.full(1, -1), "bound": np.array(0)}
    with np.load(io.BytesIO(answer), allow_pickle=False) as file:
        return dict(file)


def back_to_back(chain: Chain, allocation: Allocation) -> Pattern:
    """Return one batch every greatest load of a device or link, which no schedule of these stages is below.

    In a period each device and link does its operations in the order in which a batch meets them, with no gap between;
    a batch waits for the tick of its next one. So it is valid without limit of memory, and many batches are in flight.
    """
    period = max(1, greatest_load(chain, allocation))
    line = line_of(chain, allocation, allocation.stages, split=False)
    ready, free = dict.fromkeys(line.ticks, 0), dict[int, int]()
    starts: list[tuple[int, int, int, int]] = []
    for what, ticks in line.ticks.items():
        resource = line.resource[what]
        begin = ready[what] + (free.get(resource, ready[what]) - ready[what]) % period
        free[resource] = begin + ticks
        starts.append((*what, 0, begin))
        for after in line.after[what]:
            ready[after] = max(ready[after], begin + ticks)
    return pattern_from_starts(allocation, 1, period, rows_of_layers(chain, line.stages, starts))
