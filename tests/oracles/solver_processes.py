"""Processes of solvers, forked from one that has loaded what all share: numpy, numba, bounds and their compiled code.

Loading takes most of a second of a processor, more than most solves of tests. No vendor's library is loaded before the
fork. Who stands between ends at once, and this process, a subreaper, becomes the parent, as of one that it started.
"""

import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

_WORKER = ["-P", "-m", "solvers.process.worker"]
_SUBREAPER = 36
_MOST = 1 << 17
"""Bytes of a request: the environment, above all."""


class Forked:
    """What `solvers.process.parent` uses of `Popen`, of a process that is forked."""

    def __init__(self, server: socket.socket, words: list[str], environment: dict[str, str]) -> None:
        (given, stdin), (stdout, out), (stderr, err) = (os.pipe() for _ in range(3))
        answer, told = socket.socketpair()
        request = json.dumps([os.getpid(), words, str(Path.cwd()), environment]).encode()
        socket.send_fds(server, [request], [given, out, err, told.fileno()])
        told.close()
        for end in (given, out, err):
            os.close(end)
        self.pid = int(answer.makefile().read())
        answer.close()
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        self.stderr: IO[bytes] = os.fdopen(stderr, "rb")

    def wait(self) -> None:
        """Until it has ended."""
        os.waitpid(self.pid, 0)


def started(command: list[str], **options: Any) -> "subprocess.Popen[bytes] | Forked":
    """`Popen` for `solvers.process.parent`: forked, where the server is this process's and finds the same modules."""
    environment = options["env"]
    server, owner, path = _server()
    if command[1:4] != _WORKER or (owner, path) != (os.getpid(), environment.get("PYTHONPATH")):
        return subprocess.Popen(command, **options)
    return Forked(server, command[4:], environment)


SUBPROCESS = SimpleNamespace(PIPE=subprocess.PIPE, Popen=started)
"""What stands for the module `subprocess` in `solvers.process.parent`."""


@functools.cache
def _server() -> tuple[socket.socket, int, str | None]:
    """Where to ask, for whom, and where it finds modules; it ends with the process that started it."""
    from solvers.process.parent import worker_environment

    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment, end = worker_environment(), theirs.fileno()
    subprocess.Popen(
        [sys.executable, "-P", __file__, str(end)], pass_fds=[end], env=environment, start_new_session=True
    )
    theirs.close()
    return asked, os.getpid(), environment.get("PYTHONPATH")


def _serve(asked: socket.socket) -> None:
    """Load, then fork for each request until nobody is left who asks."""
    import pandas  # noqa: F401  # OR-Tools loads it

    import solvers.milp.solver
    import solvers.process.serve  # noqa: F401
    from solvers.bounds.strong import compile_ahead

    compile_ahead()
    while True:
        request, ends, *_ = socket.recv_fds(asked, _MOST, 4)
        if not request:
            return
        between = os.fork()
        if not between:
            asked.close()
            if os.fork():
                os._exit(0)
            _become(*json.loads(request), ends)
        os.waitpid(between, 0)
        for end in ends:
            os.close(end)


def _become(parent: int, words: list[str], folder: str, environment: dict[str, str], ends: list[int]) -> None:
    """Run the worker as `python -m` would, as a child of `parent`, which hears of it once that is so."""
    os.setsid()
    while os.getppid() != parent:
        time.sleep(0.0005)
    os.write(ends[3], str(os.getpid()).encode())
    for standard in range(3):
        os.dup2(ends[standard], standard)
    for end in ends:
        os.close(end)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["worker", *words]
    code = 1
    try:
        from solvers.process.worker import main

        main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
