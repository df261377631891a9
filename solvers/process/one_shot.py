"""A module run once in a process of its own, which a limit or Ctrl-C ends: bytes go in, bytes come out.

For solvers whose libraries cannot be loaded beside others, or that look at their clock too seldom. What is given the
limit itself tells its answer before; the process is killed some seconds later.
"""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

from solvers.process.niceness import keep_niceness


def streamed(module: str, given: bytes, seconds: float, *, solver: str) -> Iterator[bytes]:
    """Each line that `python -m module` tells of what it is given, as it comes; the last at the latest after `seconds`.

    RuntimeError, by the solver's name for people, where it fails. Whoever stops reading ends it.
    """
    with _started(module) as running:
        late = threading.Timer(seconds, running.kill)
        late.start()
        try:
            with suppress(BrokenPipeError), running.stdin or io.BytesIO() as told:
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

    RuntimeError, by the solver's name for people, where it fails.
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
