"""Cells of work: run in processes, and kept in a folder with their CPU seconds and the machine's load."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

from pesto.core.files.disk import make_folder
from pesto.core.settings import Settings

Key = tuple[str, ...]
"""Key of a cell, such as a model and a cluster."""
Found = dict[str, Any]
"""Result of a cell, as values of JSON."""
Hear = Callable[[str], None]
"""Is told a line."""
_ORPHANED_S = 1.0
"""How often a process looks whether the one that started it is still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """How much work the cells do, and where graph files are."""

    graphs: Path
    """Folder of graph files, `FAMILY-VARIANT.json` of each model."""
    drawn: Path
    """Folder of what cells write beside what they find: pictures, profiles, the studies' files."""
    seconds: float
    """Time limit of a solve; searches count stretches in place of it."""
    tiny: bool
    """True if the models are the tiny ones: a rehearsal."""
    solver: str = "list"
    """On the coarse graph. No clock ends list scheduling, as it would CP-SAT in so few seconds."""

    @property
    def settings(self) -> Settings:
        """Settings of a solve without a time limit."""
        return Settings(time_limit_s=self.seconds, deterministic=True, solver=self.solver)


class WorkCell(NamedTuple):
    """One piece of work, and the table of what is kept that it belongs to."""

    table: str
    key: Key
    work: Callable[[Key, CellSettings], Found]
    """A function of a module, which another process can import."""


class CellResult(NamedTuple):
    """A cell's result as it is kept."""

    found: Found
    cpu_s: float
    """CPU seconds of the process and of its children."""
    wall_s: float
    load: tuple[float, float]
    """The machine's mean over a minute, before and after."""


class ResultStore:
    """The results of one version: a file of JSON lines for each table."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the version's own; made where it is not there. FileError when that cannot be."""
        self.folder = folder
        make_folder(folder)

    def of(self, table: str) -> dict[Key, CellResult]:
        """Results of a table in the order in which they were added; a truncated line counts as absent."""
        path, result = self._path(table), {}
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                result[tuple(row["key"])] = CellResult(row["found"], row["cpu_s"], row["wall_s"], tuple(row["load"]))
        return result

    def add(self, cell: WorkCell, done: CellResult) -> None:
        """Keep one more."""
        row = {"key": cell.key, **done._asdict()}
        path = self._path(cell.table)
        # A line that was cut off stays alone on its line.
        torn = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" * torn + json.dumps(row) + "\n")

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.jsonl"


def missing_cells(cells: Iterable[WorkCell], store: ResultStore) -> list[WorkCell]:
    """The cells that are not kept yet, each once."""
    once = {(cell.table, cell.key): cell for cell in cells}
    known = {table: store.of(table) for table in {cell.table for cell in once.values()}}
    return [cell for cell in once.values() if cell.key not in known[cell.table]]


def run(
    cells: Sequence[WorkCell], store: ResultStore, settings: CellSettings, jobs: int, hear: Hear = print
) -> list[str]:
    """Do the cells that are not kept yet, `jobs` at a time; returns a line for each that failed.

    One at a time is in this process. However a run ends, what it has done is kept.
    """
    todo, failed = missing_cells(cells, store), []
    with _pool(jobs) if jobs > 1 and len(todo) > 1 else _here() as results:
        for at, (cell, done) in enumerate(results(todo, settings), 1):
            name = " ".join((cell.table, *cell.key))
            why = f": {type(done).__name__}: {done}" if isinstance(done, Exception) else ""
            if isinstance(done, CellResult):
                store.add(cell, done)
            else:
                failed.append(f"{name}{why}")
            hear(f"{at} of {len(todo)}: {name}{why}")
    return failed


Results = Callable[[Sequence[WorkCell], CellSettings], Iterator[tuple[WorkCell, "CellResult | Exception"]]]


@contextmanager
def _here() -> Iterator[Results]:
    def results(cells: Sequence[WorkCell], settings: CellSettings) -> Iterator[tuple[WorkCell, CellResult | Exception]]:
        for cell in cells:
            try:
                yield cell, measure_cell(cell, settings)
            except Exception as error:
                yield cell, error

    yield results


@contextmanager
def _pool(jobs: int) -> Iterator[Results]:
    """Processes of their own, which end with this one, and at once where it is interrupted."""

    def results(cells: Sequence[WorkCell], settings: CellSettings) -> Iterator[tuple[WorkCell, CellResult | Exception]]:
        running = {pool.submit(measure_cell, cell, settings): cell for cell in cells}
        for future in as_completed(running):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            yield running[future], error or future.result()

    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_apart, initargs=(os.getpid(),))
    try:
        yield results
    except BaseException:
        for process in active_children():
            with suppress(ProcessLookupError):
                if process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _apart(parent: int) -> None:
    """A process group of its own, that ends with the process `parent`: Ctrl-C is for that one alone."""
    os.setpgrp()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_ORPHANED_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def measure_cell(cell: WorkCell, settings: CellSettings) -> CellResult:
    """Do a cell's work in this process, and say what it took."""
    before, began, load = _cpu(), time.perf_counter(), os.getloadavg()[0]
    result = cell.work(cell.key, settings)
    took = time.perf_counter() - began
    return CellResult(result, round(_cpu() - before, 2), round(took, 2), (round(load, 1), round(os.getloadavg()[0], 1)))


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def spent_text(done: Iterable[CellResult]) -> str:
    """Summarise the CPU seconds of cells and the load of the machine; empty without cells."""
    rows = list(done)
    if not rows:
        return ""
    load = [each for one in rows for each in one.load]
    took = f"{sum(d.cpu_s for d in rows):.0f} CPU s in {sum(d.wall_s for d in rows):.0f} s"
    cores = os.cpu_count() or 1
    count = f"{len(rows)} {'cells' if len(rows) > 1 else 'cell'}"
    return f"{count}, {took}, load {min(load)} to {max(load)} on {cores} cores"


Table = Mapping[Key, CellResult]
"""A table of what is kept."""
