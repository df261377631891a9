"""Processes of solvers: modules run once for bytes, temporary folders that are always removed, and niceness.

A module runs once in a process of its own, which a limit or Ctrl-C ends: for solvers whose libraries cannot be loaded
beside others, or that look at their clock too seldom. What is given the limit itself answers before; the process is
killed some seconds later.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_TRIES, _AGAIN_S = 3, 0.1
"""Linux lets a user change one session in a tenth of a second: number of tries, and seconds between them."""


def keep_niceness(pid: int) -> None:
    """Give the session of a process the niceness of this one.

    Linux shares processors out among sessions (autogroups), each with a niceness of its own that none inherits, and
    by that of processes within a session alone. Without autogroups, or where this is not allowed, nothing changes.
    """
    level, group = os.nice(0), Path(f"/proc/{pid}/autogroup")
    for _ in range(_TRIES if level > 0 else 0):
        try:
            group.write_text(str(level))
        except BlockingIOError:
            time.sleep(_AGAIN_S)
        except OSError:
            return
        else:
            return


def streamed(module: str, given: bytes, seconds: float, *, solver: str) -> Iterator[bytes]:
    """Yield each line that `python -m module` writes for some input, as it comes, for at most `seconds`.

    Raise RuntimeError, by the solver's name for people, where it fails. Whoever stops reading ends it.
    """
    with _started(module) as running:
        late = threading.Timer(seconds, running.kill)
        late.start()
        try:
            with contextlib.suppress(BrokenPipeError), running.stdin or io.BytesIO() as told:
                told.write(given)
            yield from running.stdout or ()
            killed = not late.is_alive()
            if running.wait() and not killed:
                raise _failure(solver, running.returncode, running.stderr.read() if running.stderr else b"")
        finally:
            late.cancel()
            running.kill()


def answered(module: str, given: bytes, seconds: float, *, solver: str) -> bytes | None:
    """Return the output of `python -m module` for some input; None if it was killed after so many seconds.

    Raise RuntimeError, by the solver's name for people, where it fails.
    """
    with _started(module) as running:
        try:
            told, wrong = running.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            running.kill()
            return None
        except BaseException:
            running.kill()
            raise
    if running.returncode:
        raise _failure(solver, running.returncode, wrong)
    return told


def _started(module: str) -> subprocess.Popen[bytes]:
    where = os.pathsep.join(path for path in sys.path if path)
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env=os.environ | {"PYTHONPATH": where},
    )  # fmt: skip
    keep_niceness(running.pid)
    return running


def _failure(solver: str, code: int, said: bytes) -> RuntimeError:
    return RuntimeError(f"{solver} failed ({code}): {said.decode(errors='replace').strip()[-200:]}")


RUN = "PESTO_SOLVER_RUN"
"""The environment variable that names a run, so that whoever ends its process finds the folders that it left."""


def folders(run: str) -> str:
    """Return the prefix of the temporary folders that a process makes whose RUN is this, "" where it has none."""
    return f"pesto-milp-{run}-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder, which is removed at the end, also at one by SIGTERM.

    Only in the main thread can SIGTERM be caught; there it raises SystemExit meanwhile.
    """

    def terminated(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise SystemExit(128 + signum)

    prefix = folders(os.environ.get(RUN, ""))
    with contextlib.ExitStack() as restored:
        if threading.current_thread() is threading.main_thread():
            restored.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, terminated))
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            yield Path(folder)
