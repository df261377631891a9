"""A pattern of any allocation, as long as its greatest load: each device and link does one thing after the other."""

import numpy as np

from solvers.pipelining.any_allocation import greatest_load
from solvers.pipelining.chain import Allocation, Chain, Pattern
from solvers.pipelining.from_starts import pattern_from_starts
from solvers.pipelining.stage_line import line_of, rows_of_layers


def back_to_back(chain: Chain, allocation: Allocation) -> Pattern:
    """One batch every greatest load of a device or link, which no schedule of these stages is below.

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
    return pattern_from_starts(allocation, 1, period, np.asarray(rows_of_layers(chain, line, starts)))
