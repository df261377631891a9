# ruff: noqa: ARG002 - the arguments are those of a solver
"""A solver that ends while its temporary files are there; run only in a process of its own."""

import os
import signal
import time

from bad_solvers import FOREVER_S, Failing

from solvers.milp.linear import LinearBuilder
from solvers.milp.program_text import mps_file


class KilledWithFiles(Failing):
    """Nothing can be removed any more."""

    def fail(self, problem, report):
        with mps_file(LinearBuilder().linear()):
            os.kill(os.getpid(), signal.SIGKILL)


class StaysWithFiles(Failing):
    """Ignores that it is to end."""

    def fail(self, problem, report):
        with mps_file(LinearBuilder().linear()):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(FOREVER_S)
