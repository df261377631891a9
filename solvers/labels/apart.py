"""A linear program in a process of its own, `python -m solvers.labels.apart`: a limit or Ctrl-C ends it at once.

HiGHS looks at its clock too seldom in a linear program, and an interpreter that ends while HiGHS works is aborted.
Arrays go in and out as npz files over pipes.
"""

import io
import os
import signal
import subprocess
import sys

import numpy as np

from solvers.labels.net import Net
from solvers.labels.relaxation import Relaxed, relaxed

SMALL = 2_000
"""Pairs of labels up to which a program takes milliseconds, less than a process."""
_GRACE_S = 3.0
"""Seconds beyond the limit for the process to begin and to tell."""


def relaxed_apart(net: Net, seconds: float, threads: int) -> Relaxed:
    """As `relaxed`; without labels where the limit struck. RuntimeError where the process failed."""
    if len(net.table) <= SMALL:
        return relaxed(net, seconds, threads)
    given = io.BytesIO()
    np.savez(given, seconds=seconds, threads=threads, **net._asdict())
    where = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "solvers.labels.apart"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env=os.environ | {"PYTHONPATH": where},
    ) as running:  # fmt: skip
        try:
            told, wrong = running.communicate(given.getvalue(), timeout=seconds + _GRACE_S)
        except subprocess.TimeoutExpired:
            running.kill()
            return Relaxed(None, 0, ended=False, fractional=0)
        except BaseException:
            running.kill()
            raise
    if running.returncode:
        raise RuntimeError(f"HiGHS failed ({running.returncode}): {wrong.decode(errors='replace').strip()[-200:]}")
    found = np.load(io.BytesIO(told), allow_pickle=False)
    labels = found["labels"] if found["answered"] else None
    return Relaxed(
        labels, int(found["bound"]), ended=bool(found["ended"]), fractional=int(found["fractional"]),
        infeasible=bool(found["infeasible"]),
    )  # fmt: skip


def main() -> None:
    """Solve the program on stdin."""
    given = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    seconds = float(given["seconds"])
    signal.alarm(int(seconds + 2 * _GRACE_S) + 1)  # the process that asked may have been killed
    found = relaxed(Net(*(given[name] for name in Net._fields)), seconds, int(given["threads"]))
    told = io.BytesIO()
    labels = np.zeros(0, dtype=np.int64) if found.labels is None else found.labels
    np.savez(
        told, labels=labels, answered=found.labels is not None, bound=found.bound, ended=found.ended,
        fractional=found.fractional, infeasible=found.infeasible,
    )  # fmt: skip
    sys.stdout.buffer.write(told.getvalue())
    sys.stdout.buffer.flush()
    os._exit(0)  # HiGHS may still be at work


if __name__ == "__main__":
    main()
