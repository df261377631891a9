"""The process of one solver: `python -m solvers.process.worker PARENT GRACE [BYTES]`, see `solvers.process.parent`.

It splits in two before anything is loaded. The child runs the solver. The other, which imports nothing that can crash,
stays to clean up: as a subreaper it inherits whatever the solver starts and leaves, kills it when the solver ends, when
it is told to (SIGTERM), and when the parent dies (PR_SET_PDEATHSIG sends SIGCONT), and then ends as the solver did.
SIGCONT, since what is stopped (SIGSTOP) hears of nothing else but SIGKILL, after which it could not clean up.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Split, limit the memory where BYTES is given, and solve in the child; what SIGTERM finds has GRACE seconds."""
    parent = int(sys.argv[1])
    end = partial(_terminated, float(sys.argv[2]))
    signal.signal(signal.SIGTERM, end)
    # Anybody may send SIGCONT: everything ends only where the parent is gone.
    signal.signal(signal.SIGCONT, lambda signum, frame: end(signum, frame) if os.getppid() != parent else None)
    _die_with(parent, signal.SIGCONT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    child = os.fork()
    if child:
        # Wait for the child, kill what it leaves, end as it did.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        ended = None
        while ended != child:
            ended, status = os.waitpid(-1, 0)
        _kill_descendants()
        if os.WIFSIGNALED(status):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.waitstatus_to_exitcode(status))
    for each in (signal.SIGTERM, signal.SIGCONT):
        signal.signal(each, signal.SIG_DFL)
    _die_with(guard, signal.SIGKILL)
    if len(sys.argv) > 3:
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
    # Loaded only now: a fork after libraries have started threads is not safe.
    from solvers.process.serve import serve

    serve()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with(parent: int, signum: signal.Signals) -> None:
    """Have `signum` sent to this process when its parent dies, and end it now if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os._exit(128 + signum)


def _terminated(grace_s: float, signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as of a handler
    """End everything: politely, so that a vendor can remove its temporary files, after so many seconds not."""
    for each in (signal.SIGTERM, signal.SIGCONT):
        signal.signal(each, signal.SIG_IGN)
        os.killpg(0, each)  # a process that is stopped takes the first when it gets the second
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and _reap():
        time.sleep(0.01)
    _kill_descendants()
    os._exit(128 + signal.SIGTERM)


def _kill_descendants() -> None:
    # What a killed child leaves becomes a child of this process, hence the repetition.
    while _reap():
        for child in _children():
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _reap() -> bool:
    """Collect the children that have ended; return True if any other is left and can be listed."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return bool(_children())


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:  # no such file outside Linux: the parent's kill of the process group has to do
        return []


if __name__ == "__main__":
    main()
