"""Lower bounds on the period of a pipeline on devices that are not equal, over all allocations."""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import numpy as np

from solvers.pipelining.chain import Chain, MemoryModel
from solvers.pipelining.pipeline_bounds import PeriodBound, of_all
from solvers.pipelining.unequal_devices import Machines, slower
from solvers.problem import MOST


def of_machines(chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED) -> tuple[PeriodBound, ...]:
    """Bounds on the period of every schedule of every allocation, contiguous or not; of equal devices as `of_all`.

    Where devices differ:

    - those of `of_all` on as many devices that are all as fast as the fastest, and have as much memory as the largest:
      whatever is scheduled on these devices can be there too. "mean load" and "bytes in flight" are below the next.
    - fastest devices: the n layers with most ticks are on n devices at most, so they take at least their ticks over the
      speeds of the n fastest; all layers, over those of all devices.
    - bytes in flight: what a batch holds, for as long as it must on the fastest, over the room of all devices.

    ValueError where one batch in flight has no room.
    """
    memory = machines.memory
    if machines.equal:
        return of_all(chain, machines.devices, None if memory is None else int(memory[0]), model)
    fastest = max(machines.speed)
    halves = {name: slower(getattr(chain, name), fastest) for name in ("forward", "backward", "weight_gradient")}
    quick = replace(chain, **halves)
    most = None if memory is None or memory.max() == MOST else int(memory.max())
    found = list(of_all(quick, machines.devices, most, model))
    found.append(PeriodBound(name="fastest devices", value=_fastest(chain, machines)))
    if memory is not None and most is not None:
        # Bytes times ticks of a batch over the room of all devices; ValueError where weights and a batch have none.
        room = sum(memory.tolist()) - int(quick.weights.sum())
        passing = np.cumsum(quick.loads[::-1])[::-1]
        lacking = int(quick.activation[passing > 0].sum()) - room
        if lacking > 0:
            raise ValueError(f"no allocation fits: a batch and all weights lack {lacking} bytes - give devices more")
        held = sum(d * a for d, a in zip(passing.tolist(), quick.activation.tolist(), strict=True))
        average = Fraction(held, room) if held else Fraction(0)
        found.append(PeriodBound(name="bytes in flight", value=average))
    return tuple(found)


def _fastest(chain: Chain, machines: Machines) -> Fraction:
    ticks = sorted(chain.loads.tolist(), reverse=True)
    speeds = list(accumulate(sorted(machines.speed, reverse=True)))
    loads = list(accumulate(ticks))
    few = [loads[n] / speeds[n] for n in range(min(len(loads), len(speeds)))]
    return max(*few, loads[-1] / speeds[-1], Fraction(0))
