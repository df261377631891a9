"""How little memory some allocation of a chain fits, one batch in flight."""

from dataclasses import replace

import numpy as np

from solvers.pipelining.any_allocation import least_load, with_one_batch
from solvers.pipelining.anywhere.quick_period import ground, lacking
from solvers.pipelining.chain import Chain, MemoryModel
from solvers.pipelining.unequal_devices import Machines

MOST_SECONDS = 5.0
"""Upper limit of the seconds of the search."""


def roomy_memory(chain: Chain, devices: int, model: MemoryModel, *, seconds: float = MOST_SECONDS) -> int:
    """Bytes of each of the equal devices that some allocation fits; those of weights and one batch spread evenly.

    The least there is where CP-SAT proves so, and what is received takes nothing.
    """
    held = with_one_batch(chain).weights
    alone = replace(
        chain, forward=held, backward=0 * held, weight_gradient=0 * held, transfers=0 * chain.transfers
    )  # fmt: skip
    spread = least_load(alone, Machines.alike(devices), seconds=seconds)
    device = np.zeros(chain.layers, dtype=np.int64) if spread is None else np.array(spread.allocation.device)
    full = ground(chain, Machines.alike(devices, 0), model)
    return max(
        int(lacking(full._replace(memory=np.where(np.arange(devices) == d, 0, full.memory + (1 << 60))), device))
        for d in range(devices)
    )
