"""Compiled parts of this machine, and the first solve's compilation, beside all else in processes of its own.

A function that numba compiles takes some tenths of a second, and a solve needs hundreds. What `pesto.verbs.compiling`
has compiled lies in numba's cache, and which of its parts are there in a file beside that. Where one lacks,
`shared_compiler` starts a process that compiles it, and a stage waits for its part alone, as long as its share of
the time limit allows; if that process fails, stages compile for themselves.
"""

import atexit
import functools
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import llvmlite.binding as llvm

import solvers
from pesto.core.files.disk import write_atomic
from solvers.compiled.dag import connected
from solvers.compiled.kernels import COMPILES

FIRST = ("problem", "timing", "peaks", "plan")
"""Parts that every plan needs."""
COARSE = ("coarse",)
"""Parts that quick schedules of coarse graphs need."""
SEARCH = ("search", "bound", "rest")
"""Parts that engines need."""
LAST = "repair"
"""The part that is compiled after all others."""
_LOOK_S = 0.5
_ALONE = ContextVar("alone", default=False)


class BackgroundCompiler:
    """Compilation in another process, and the parts that it has done."""

    def __init__(self, command: Iterable[str]) -> None:
        self.count, self.of, self.done = 0, 0, set[str]()
        self.waiting = False
        """True while a stage waits for a part."""
        self._changed, self._over, self._here = threading.Condition(), False, os.getpid()
        # Its stdin ends with this process, whatever becomes of it, and with that it ends, too.
        # This process's environment, with the project importable where it is not installed.
        home = str(Path(__file__).parents[3])
        paths = [home] if home != sysconfig.get_path("purelib") else []
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
        }
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True, env=environment,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        atexit.register(self.end)

    def need(self, *parts: str, late: Callable[[], bool] = lambda: False) -> bool:
        """Wait until parts are compiled, or will not be; return False where it was `late` before that.

        A fork of this process, which hears of none, goes on.
        """
        if os.getpid() != self._here:
            return True
        with self._changed:
            try:
                while not self._has(*parts):
                    if late():
                        return False
                    self.waiting = True
                    self._changed.wait(_LOOK_S)  # or Ctrl-C would wait, too
            finally:
                self.waiting = False
        return True

    def lacks(self, *parts: str) -> bool:
        """Return True if one of the parts is still to be compiled."""
        with self._changed:
            return not self._has(*parts)

    def _has(self, *parts: str) -> bool:
        return self._over or self.done.issuperset(parts)

    @property
    def standing(self) -> str:
        """Line for people while a stage waits; empty otherwise."""
        done = f"{self.count} of {self.of} parts" if self.of else "begun"
        return f"compiling, first run on this machine: {done}" if self.waiting else ""

    def end(self) -> None:
        """Stop it; what it has compiled stays. For the process that began it alone, not for its forks."""
        if os.getpid() != self._here:
            return
        with self._changed:
            self._over = True
            self._changed.notify_all()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it and those that it started
        self._process.wait()

    def _read(self) -> None:
        with suppress(ValueError, KeyError, TypeError):  # what is not ours ends it, too
            for line in self._process.stdout or ():
                said = json.loads(line)
                with self._changed:
                    self.count, self.of = int(said["count"]), int(said["of"])
                    self.done.add(said["done"])
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()


class NothingToCompile:
    """Nothing to wait for."""

    standing = ""
    count = of = 0

    def need(self, *parts: str, late: Callable[[], bool] = lambda: False) -> bool:  # noqa: ARG002
        """Go on."""
        return True

    def lacks(self, *parts: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False


def shared_compiler() -> BackgroundCompiler | NothingToCompile:
    """Return the compilation of what this machine lacks, begun by the first call in this process."""
    return NothingToCompile() if _ALONE.get() else _start()


@contextmanager
def compile_in_process() -> Iterator[None]:
    """Inside, a solve compiles for itself: it is one that is run to compile."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


@functools.cache
def _start() -> BackgroundCompiler | NothingToCompile:
    if LAST in compiled_parts() or not cache_folder().is_dir():
        return NothingToCompile()
    # -P: a file in the working directory must not shadow a module.
    return BackgroundCompiler([sys.executable, "-P", "-m", "pesto.verbs.compiling"])


def cache_folder() -> Path:
    """Return the folder of numba's cache: beside the source, or where a user may write."""
    return Path(cast(Any, connected).stats.cache_path)


def compiled_parts() -> set[str]:
    """Return the parts that are compiled for this processor, these packages and this source."""
    try:
        known = json.loads(_file().read_bytes())
        return set(known["parts"]) if known["key"] == cache_key() else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def record_part(part: str) -> None:
    """Record that a part is compiled."""
    parts = sorted(compiled_parts() | {part})
    write_atomic(_file(), json.dumps({"key": cache_key(), "parts": parts}).encode())


def _file() -> Path:
    return cache_folder() / "pesto-compiled.json"


@functools.cache
def cache_key() -> str:
    """Return a hash of all that numba's cache depends on."""
    packages = Path(__file__).parents[2], Path(solvers.__path__[0])
    files = sorted(f for package in packages for f in package.rglob("*.py"))
    compiled = [f for f in files if any(word in f.read_bytes() for word in COMPILES)]
    stamps = [(f.name, f.read_bytes()) for f in compiled]
    made_with = [version(name) for name in ("numba", "llvmlite", "numpy")]
    processor = llvm.get_host_cpu_name(), str(llvm.get_host_cpu_features())
    return hashlib.sha256(repr((stamps, made_with, platform.python_version(), processor)).encode()).hexdigest()
