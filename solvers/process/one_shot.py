"""A module run once in a process of its own, which a limit or Ctrl-C ends: bytes go in, bytes come out.

For solvers whose libraries cannot be loaded beside others, or that look at their clock too seldom. What is given the
limit itself tells its answer before; the process is killed some seconds later.
"""

import os
import subprocess
import sys


def answered(module: str, given: bytes, seconds: float, *, solver: str) -> bytes | None:
    """What `python -m module` tells of what it is given; None where it was killed after so many seconds.

    RuntimeError, by the solver's name for people, where it fails.
    """
    where = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env=os.environ | {"PYTHONPATH": where},
    ) as running:  # fmt: skip
        try:
            told, wrong = running.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            running.kill()
            return None
        except BaseException:
            running.kill()
            raise
    if running.returncode:
        raise RuntimeError(f"{solver} failed ({running.returncode}): {wrong.decode(errors='replace').strip()[-200:]}")
    return told
