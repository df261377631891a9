"""The process that runs cells, one after another: `python -m pesto.study.run.worker PARENT FD CORES`.

It reads cells from its connection and writes answers to it. It dies with its parent, and what a solver started dies
with it (`solvers.process.worker`), so a killed run leaves nothing behind.
"""

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer cells until the connection ends."""
    parent, descriptor = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that call
        os._exit(128 + signal.SIGKILL)
    cores = {int(core) for core in sys.argv[3].split(",") if core}
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    _serve(Connection(descriptor))


def _serve(connection: Connection) -> None:
    import msgspec

    from pesto.study.cells import Cell
    from pesto.study.instance_cache import Shelf
    from pesto.study.run.execute import execute

    shelf = Shelf()
    while True:
        try:
            cell = msgspec.json.decode(connection.recv_bytes(), type=Cell)
        except EOFError:
            return
        connection.send_bytes(msgspec.json.encode(execute(cell, shelf)))


if __name__ == "__main__":
    main()
