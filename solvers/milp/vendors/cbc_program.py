"""Where CBC's program is on this machine, and what version it says that it is of. Imports nothing large."""

import contextlib
import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from solvers.base import UnavailableError

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_MACHINES = {"x86_64": "i64", "amd64": "i64", "aarch64": "arm64", "arm64": "arm64", "i386": "i32", "i686": "i32"}
_BANNER = re.compile(r"^(?:Version:|CBC) +(\S+)", re.MULTILINE)
_ANSWER_S = 5.0
"""Seconds in which the program must have said its version; it takes milliseconds."""
UNKNOWN = "unknown"
"""The version of a program that does not say it."""


def cbc_binary() -> Path:
    """PuLP's CBC for this machine, or else one on the PATH; UnavailableError where there is neither."""
    found = _bundled() or shutil.which("cbc")
    if found is None:
        raise UnavailableError(
            "no CBC for this machine - pip install 'pulp>=2.9,<4', or put a program called cbc on the PATH"
        )
    return Path(found)


def _bundled() -> Path | None:
    package = importlib.util.find_spec("pulp")
    if package is None or package.origin is None:
        return None
    # PuLP brings one program for all of a Mac's processors.
    machine = "i64" if sys.platform == "darwin" else _MACHINES.get(platform.machine().lower(), "")
    file = Path(package.origin).parent / "solverdir" / "cbc" / _SYSTEMS.get(sys.platform, "") / machine / "cbc"
    return file if os.access(file, os.X_OK) else None


def version() -> str | None:
    """Return the version in CBC's banner, such as "2.10.3", or UNKNOWN; None if there is no CBC."""
    try:
        file = cbc_binary()
    except UnavailableError:
        return None
    return _banner(str(file), file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _banner(file: str, changed: int) -> str:  # noqa: ARG001 - a program that was replaced is asked again
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [file, "-quit"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_ANSWER_S, check=False,
        )  # fmt: skip
        said = _BANNER.search(done.stdout)
        if said:
            return said[1]
    return UNKNOWN
