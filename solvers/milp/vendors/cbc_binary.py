"""The CBC program that PuLP brings. PuLP itself is not imported: it loads every other vendor that is installed."""

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

from solvers.base import UnavailableError

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_MACHINES = {"x86_64": "i64", "amd64": "i64", "aarch64": "arm64", "arm64": "arm64", "i386": "i32", "i686": "i32"}


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
