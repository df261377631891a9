"""The linear program of `solvers.labels.relaxation` in a process of its own, which a limit or Ctrl-C ends at once.

HiGHS looks at its clock too seldom in a linear program, an interpreter that ends while HiGHS works is aborted, and
other packages bring a HiGHS of their own, beside which it cannot be loaded. Arrays go in and out as npz over pipes.
"""

import io
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints
from solvers.labels.net import Net

GRACE_S = 3.0
"""Seconds beyond the limit for the process to begin and to tell."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the program says of the variables that were left."""

    labels: Ints | None
    """[r] a label for each; None where none was found."""
    bound: int
    """No labels cost less; by HiGHS's word."""
    ended: bool
    """Whether HiGHS ended within the limit."""
    fractional: int
    """Labels that were neither taken nor left in the optimum of the linear program."""
    infeasible: bool = False


def relaxed_apart(net: Net, seconds: float, threads: int) -> Relaxed:
    """What HiGHS makes of it; without labels where the limit struck. RuntimeError where the process failed."""
    given = io.BytesIO()
    np.savez(given, seconds=seconds, threads=threads, **net._asdict())
    where = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "solvers.labels.relaxation"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env=os.environ | {"PYTHONPATH": where},
    ) as running:  # fmt: skip
        try:
            told, wrong = running.communicate(given.getvalue(), timeout=seconds + GRACE_S)
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
