"""Cells of tables: run in processes, and kept in a folder by commit with their CPU seconds and the machine's load."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from pesto.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("pesto", "solvers", "configs")
"""What a cell's result follows from: the commit is the last one that changed these."""
IMPORTED = ("pesto/tf", "pesto/files", "pesto/graph.py", "pesto/source.py")
"""Likewise, what a graph file follows from."""

Key = tuple[str, ...]
"""What a cell is of: a model and a cluster, say."""
Found = dict[str, Any]
"""What a cell found: values that JSON has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How much work the cells do, and where graph files are."""

    graphs: Path
    """Folder of graph files, `FAMILY-VARIANT.json` of each model."""
    drawn: Path
    """Folder of pictures, and of the studies' files."""
    seconds: float
    """Time limit of a solve; searches count stretches in place of it."""
    tiny: bool
    """Whether the models are the tiny ones: a rehearsal."""
    solver: str = "list"
    """On the coarse graph. No clock ends list scheduling, as it would CP-SAT in so few seconds."""

    @property
    def settings(self) -> Settings:
        """Of a solve that no clock ends."""
        return Settings(time_limit_s=self.seconds, deterministic=True, solver=self.solver)


class Cell(NamedTuple):
    """One measurement of a table."""

    table: str
    key: Key
    work: Callable[[Key, Asked], Found]
    """A function of a module, which another process can import."""


class Done(NamedTuple):
    """A measurement as it is kept."""

    found: Found
    cpu_s: float
    """Of the process and those that it started."""
    wall_s: float
    load: tuple[float, float]
    """The machine's mean over a minute, before and after."""


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


class Kept:
    """The measurements of one commit: a file of JSON lines for each table."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the commit's own; made where it is not there."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, table: str) -> dict[Key, Done]:
        """What is there of a table, in the order in which it was measured; a line that was cut off counts as absent."""
        path, found = self._path(table), {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[tuple(row["key"])] = Done(row["found"], row["cpu_s"], row["wall_s"], tuple(row["load"]))
        return found

    def add(self, cell: Cell, done: Done) -> None:
        """Keep one more."""
        row = {"key": cell.key, **done._asdict()}
        path = self._path(cell.table)
        # A line that was cut off stays alone on its line.
        torn = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" * torn + json.dumps(row) + "\n")

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.jsonl"


def run(cells: Sequence[Cell], kept: Kept, asked: Asked, jobs: int) -> list[str]:
    """Measure the cells that are not kept yet, `jobs` at a time; returns a line for each that failed."""
    todo = [cell for cell in cells if cell.key not in kept.of(cell.table)]
    failed = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(measured, cell, asked): cell for cell in todo}
        for at, future in enumerate(as_completed(running), 1):
            cell = running[future]
            name = f"{cell.table} {' '.join(cell.key)}"
            why = _kept_or_why(cell, future, kept)
            failed += [f"{name}: {why}"] if why else []
            print(f"{at} of {len(todo)}: {name}{': ' + why if why else ''}", flush=True)
    return failed


def _kept_or_why(cell: Cell, future: "Future[Done]", kept: Kept) -> str:
    error = future.exception()
    if error is not None:
        return f"{type(error).__name__}: {error}"
    kept.add(cell, future.result())
    return ""


def measured(cell: Cell, asked: Asked) -> Done:
    """Do a cell's work in this process, and say what it took."""
    before, began, load = _cpu(), time.perf_counter(), os.getloadavg()[0]
    found = cell.work(cell.key, asked)
    took = time.perf_counter() - began
    return Done(found, round(_cpu() - before, 2), round(took, 2), (round(load, 1), round(os.getloadavg()[0], 1)))


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def under(done: Sequence[Done], name: str) -> Iterator[str]:
    """The line below a table: the commit, and what its cells took."""
    if done:
        load = [each for one in done for each in one.load]
        took = f"{sum(d.cpu_s for d in done):.0f} CPU s in {sum(d.wall_s for d in done):.0f} s"
        cores = os.cpu_count() or 1
        yield ""
        yield (
            f"Commit {name}; {len(done)} {'cells' if len(done) > 1 else 'cell'}, {took}, "
            f"load {min(load)} to {max(load)} on {cores} cores."
        )
