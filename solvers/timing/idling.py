"""How long processors idle while an op runs."""

import numpy as np

from solvers.arrays import Ints, offsets
from solvers.schedule import Schedule


def idle_under(run: Schedule, lanes: Ints, ops: Ints) -> Ints:
    """[k] ticks that `lanes`, all together and but for an op's own, do nothing between each op's start and finish."""
    took, idle = run.finish[ops] - run.start[ops], np.zeros(len(ops), dtype=np.int64)
    for lane in lanes.tolist():
        mine = np.flatnonzero(run.device == lane)
        mine = mine[np.lexsort((run.finish[mine], run.start[mine]))]
        busy = _busy_until(run.start[mine], run.finish[mine], run.finish[ops]) - _busy_until(
            run.start[mine], run.finish[mine], run.start[ops]
        )
        idle += np.where(run.device[ops] == lane, 0, took - busy)
    return idle


def _busy_until(start: Ints, finish: Ints, at: Ints) -> Ints:
    """[k] ticks that a processor, whose ops follow each other, has computed at each of these times."""
    before = offsets(finish - start)
    begun = np.searchsorted(start, at, side="right")
    last = np.maximum(begun - 1, 0)
    over = np.maximum(finish[last] - at, 0) if len(finish) else np.zeros(len(at), dtype=np.int64)
    return before[begun] - np.where(begun > 0, over, 0)
