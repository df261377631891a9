"""Short turns on a processor for threads that answer requests, so that solvers do not keep them waiting."""

import ctypes
import os
import platform
import struct

TURN_NS = 100_000
"""Nanoseconds of a turn: the fewest that Linux grants."""
_CALL = {"x86_64": 314, "aarch64": 274}
"""The number of sched_setattr."""
_ATTRIBUTES = "=IIQiIQQQ"
"""size, policy, flags, nice, priority, runtime, deadline and period of Linux's sched_attr."""


def take_short_turns() -> None:
    """Have the calling thread, and those that it starts, run in short turns; where that is unknown nothing changes.

    Since Linux 6.12 a thread that wakes takes the place of one that runs in longer turns at once, where both have had
    as much of the processor as they should; until then, and in turns of one length, it waits for the next tick.
    """
    if platform.system() != "Linux" or platform.machine() not in _CALL:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    asked = struct.pack(_ATTRIBUTES, struct.calcsize(_ATTRIBUTES), os.SCHED_OTHER, 0, nice, 0, TURN_NS, 0, 0)
    ctypes.CDLL(None).syscall(_CALL[platform.machine()], 0, asked, 0)
