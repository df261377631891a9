"""What a nice process starts is as nice, also where Linux shares processors out among sessions first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TELLS = """
import time
until = time.monotonic() + 60
while time.monotonic() < until and not open("/proc/self/autogroup").read().endswith(" {}\\n"):
    time.sleep(0.01)
print(open("/proc/self/autogroup").read(), end="")
"""
ASKS = """
import os
from solvers.process.one_shot import answered
os.nice(5)
print(answered("told", b"", 600.0, solver="told").decode())
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the system has no autogroups")
def test_a_session_is_as_nice_as_who_starts_it(tmp_path) -> None:
    nice = os.nice(0) + 5
    (tmp_path / "told.py").write_text(TELLS.format(nice))
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", ASKS], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-2:] == ["nice", str(nice)]
