"""Which version a result is of: a hash of the sources that it follows from, and the commit where there is one."""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pesto
import solvers

PACKAGES = tuple(Path(str(package.__file__)).parent for package in (pesto, solvers))
APART = ("cli", "reporting/show", "verbs/compiling", "schema", "research/reproduction", "research/study")
"""Rooms of `pesto` that no number follows from; but for the work of cells, in `pesto/research/reproduction/work`."""
GRAPHS = ("tf", "core/files", "core/graph.py", "core/source.py")
"""Sources that determine graph files."""


@cache
def results_version() -> str:
    """The version of cells: package, sources and the libraries that numbers follow from."""
    apart = [PACKAGES[0] / room for room in APART]
    rooms = (path for path in _files(PACKAGES[:1]) if not any(path.is_relative_to(room) for room in apart))
    sources = (*rooms, PACKAGES[0] / "research/reproduction/work", PACKAGES[1])
    return _hash(_files(sources), ("numpy", "ortools", "tensorflow"))


@cache
def graphs_version() -> str:
    """The version of graph files."""
    return _hash(_files(PACKAGES[0] / name for name in GRAPHS), ("tensorflow",))


def _files(sources: Iterable[Path]) -> Iterator[Path]:
    for source in sources:
        result = [source] if source.is_file() else sorted((*source.rglob("*.py"), *source.rglob("*.toml")))
        yield from (path for path in result if path.suffix in (".py", ".toml"))


def _hash(files: Iterable[Path], libraries: Iterable[str]) -> str:
    made = hashlib.sha256()
    for path in files:
        made.update(f"{path.relative_to(PACKAGES[0].parent)}\0".encode())
        made.update(path.read_bytes())
    for name in libraries:
        made.update(f"{name} {_version(name)}\0".encode())
    return made.hexdigest()[:10]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


@cache
def commit() -> str:
    """The short name of the checkout's commit; empty where there is none, or sources have changed since."""
    names = [package.name for package in PACKAGES]
    if _git("status", "--porcelain", "--", *names, "configs") != "":
        return ""
    return _git("log", "-1", "--format=%h", "--", *names, "configs") or ""


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=PACKAGES[0].parent, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
