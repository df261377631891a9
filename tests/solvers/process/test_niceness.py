"""What a nice process starts is as nice, also where Linux shares processors out among sessions first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TELLS = """
import sys
import time

def told():
    until = time.monotonic() + 60
    while time.monotonic() < until and not open("/proc/self/autogroup").read().endswith(" {}\\n"):
        time.sleep(0.01)
    return open("/proc/self/autogroup").read()

class Solver:
    def solve(self, problem, options, report):
        raise RuntimeError(told())

if __name__ == "__main__":
    print(told(), end="")
"""
ASKS = {
    "one_shot": """
import os
from solvers.process.one_shot import answered
os.nice(5)
print(answered("told", b"", 600.0, solver="told").decode())
""",
    "parent": """
import os
from solvers.instances.plain import chain
from solvers.process.judge import Judge
from solvers.process.parent import run
from solvers.base import SolverEntry
from solvers.result import Options
os.nice(5)
problem, options = chain(2), Options(seconds=600)
judge = Judge(problem, options, lambda _: None, solver="told", version="1")
print(run(problem, SolverEntry(module="told", attribute="Solver", isolated=True), options, judge).detail)
""",
}


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the system has no autogroups")
@pytest.mark.parametrize(
    "begun_by", [pytest.param(name, marks=[pytest.mark.slow] * (name == "parent")) for name in ASKS]
)
def test_a_session_is_as_nice_as_who_starts_it(begun_by, tmp_path) -> None:
    nice = os.nice(0) + 5
    (tmp_path / "told.py").write_text(TELLS.format(nice))
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", ASKS[begun_by]],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-2:] == ["nice", str(nice)]
