"""What cells of benchmarks are kept by: the commit, and the line below a table that names it."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from pesto.research.reproduction.cached_cells import CellResult, spent_text

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("pesto", "solvers", "configs")
"""What a cell's result follows from: the commit is the last one that changed these."""
IMPORTED = ("pesto/tf", "pesto/core/files", "pesto/core/graph.py", "pesto/core/source.py")
"""Likewise, what a graph file follows from."""


def commit(paths: Sequence[str] = MEASURED) -> str:
    """The short name of the last commit that changed one of these; SystemExit where changes are not committed."""
    changed = _git("status", "--porcelain", "--", *paths)
    if changed:
        raise SystemExit(
            f"not committed: {changed.splitlines()[0].strip()} - commit it first: cells are kept by commit"
        )
    return _git("log", "-1", "--format=%h", "--", *paths)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {words[0]}: {done.stderr.strip()} - run it in a checkout")
    return done.stdout.strip()


def under(done: Sequence[CellResult], name: str) -> Iterator[str]:
    """The line below a table: the commit, and what its cells took."""
    if done:
        yield from ("", f"Commit {name}; {spent_text(done)}.")
