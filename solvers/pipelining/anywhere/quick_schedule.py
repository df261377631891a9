"""The pattern of a quick schedule, which the compiled search gives as starts alone."""

import numpy as np

from solvers.arrays import Ints
from solvers.pipelining.anywhere.quick_period import ChainSums, quick_starts
from solvers.pipelining.chain import BACKWARD, FORWARD, SEND_BACKWARD, SEND_FORWARD, Allocation, Chain, Pattern
from solvers.pipelining.from_starts import pattern_from_starts
from solvers.pipelining.stage_line import line_of, rows_of_layers
from solvers.pipelining.unequal_devices import Machines


def quick_schedule(
    chain: Chain, machines: Machines, on: ChainSums, device: Ints, period: int
) -> tuple[Allocation, Pattern]:
    """An allocation and its pattern, of the chain as the devices run it, at a period that `quick_period` found."""
    allocation = Allocation(device=device, devices=machines.devices)
    seen = machines.on(chain, allocation)
    line = line_of(seen, allocation, allocation.stages, split=False)
    _, start = quick_starts(on, device, period)
    stages = len(allocation.stages)
    rows = []
    for kind, stage in line.ticks:
        at = {
            FORWARD: 2 * stage, SEND_FORWARD: 2 * stage + 1, BACKWARD: 4 * stages - 3 - 2 * stage,
            SEND_BACKWARD: 4 * stages - 4 - 2 * stage,
        }[kind]  # fmt: skip
        rows.append((kind, stage, 0, int(start[at])))
    return allocation, pattern_from_starts(allocation, 1, period, np.asarray(rows_of_layers(seen, line, rows)))
