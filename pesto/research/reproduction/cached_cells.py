"""Cells of work: training steps from graph files, run in processes, kept in a folder with CPU seconds and load."""

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from pesto.choosing.whatif.grid import ClusterPoint, scale_cluster
from pesto.core.cluster import Cluster
from pesto.core.executing.executor import WorkItem, WorkResult
from pesto.core.executing.pool import Pool
from pesto.core.executing.worker import WorkerChannel, die_with
from pesto.core.files.disk import make_folder
from pesto.core.files.graph_file import load
from pesto.core.problem import StepOnCluster
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.research.cell_runner import run_works

Key = tuple[str, ...]
"""Key of a cell, such as a model and a cluster."""
Found = dict[str, Any]
"""Result of a cell, as values of JSON."""
Hear = Callable[[str], None]
"""Is told a line."""


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


Table = Mapping[Key, CellResult]
"""A table of what is kept."""


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
    """Do the cells that are not kept yet, `jobs` at a time; returns a line for each that failed, which is not kept.

    However a run ends, what it has done is kept.
    """
    todo, failed = missing_cells(cells, store), list[str]()
    if not todo:
        return failed
    works = [
        WorkItem(key=str(k), entry=f"{__name__}:work_on", data=pickle.dumps((cell, settings)))
        for k, cell in enumerate(todo)
    ]
    with closing(run_works(works, Pool(min(jobs, len(todo))))) as outcomes:
        for ran, (outcome, _) in enumerate(outcomes, 1):
            cell = todo[int(outcome.key)]
            name, why = " ".join((cell.table, *cell.key)), ""
            result = pickle.loads(outcome.data) if isinstance(outcome, WorkResult) else outcome.detail  # noqa: S301 - own
            if isinstance(result, CellResult):
                store.add(cell, result)
            else:
                why = f": {result}"
                failed.append(f"{name}{why}")
            hear(f"{ran} of {len(todo)}: {name}{why}")
    return failed


def work_on(data: bytes, _: WorkerChannel) -> bytes:
    """Do a cell in the process of a worker: a pickled `CellResult`, or the error that it ended with, as text."""
    cell, settings = pickle.loads(data)  # noqa: S301 - `run` wrote it
    try:
        return pickle.dumps(measure_cell(cell, settings))
    except Exception as error:
        return pickle.dumps(f"{type(error).__name__}: {error}")


def measure_cell(cell: WorkCell, settings: CellSettings) -> CellResult:
    """Do a cell's work in this process, and say what it took."""
    before, began, load = sum(os.times()[:4]), time.perf_counter(), os.getloadavg()[0]
    result = cell.work(cell.key, settings)
    took, cpu_s = time.perf_counter() - began, sum(os.times()[:4]) - before
    return CellResult(result, round(cpu_s, 2), round(took, 2), (round(load, 1), round(os.getloadavg()[0], 1)))


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


PAPER = (
    "rnnlm/2x2048", "rnnlm/4x2048", "rnnlm/16x1024", "nmt/2x1024", "nmt/4x1024", "transformer/10x8x1024",
    "transformer/12x8x1024", "transformer/6x16x2048", "nasnet/4x212", "nasnet/6x148", "nasnet/6x168",
)  # fmt: skip
"""The variants of Pesto (Middleware '21), section 5.2."""


_load_graph = lru_cache(maxsize=2)(load)


def model_name(model: str, settings: CellSettings) -> str:
    """The model that is worked on in this run: FAMILY/VARIANT or FAMILY/VARIANT@BATCH, or the family's tiny variant."""
    return f"{model.split('/', maxsplit=1)[0]}/tiny" if settings.tiny else model


def file_of(model: str, settings: CellSettings) -> Path:
    """Where the graph of a model is."""
    return settings.graphs / f"{model_name(model, settings).replace('/', '-').replace('@', '-batch-')}.json"


def step(model: str, cluster: str, settings: CellSettings) -> StepOnCluster:
    """A model on a cluster preset, or on the first N accelerators of one: PRESET:N."""
    return step_on(model, machine(cluster), settings)


def step_on(model: str, cluster: Cluster, settings: CellSettings) -> StepOnCluster:
    """A model on any cluster."""
    graph = _load_graph(file_of(model, settings))
    return StepOnCluster(graph, cluster, load_costs(graph, cluster, None))


def machine(name: str, **changed: float) -> Cluster:
    """The cluster PRESET or PRESET:N; `changed` are factors of a sweep's point, such as `links=0.1`."""
    preset, _, count = name.partition(":")
    result = load_cluster(preset)
    devices = int(count) if count else len(result.accelerators)
    return scale_cluster(result, ClusterPoint(devices=devices, **changed)) if count or changed else result


def graph_cells(models: Iterable[str], settings: CellSettings) -> list[WorkCell]:
    """A cell for each graph file that is not there, each file once."""
    files = {file_of(model, settings): model for model in models}
    return [WorkCell("graphs", (model,), import_graph) for path, model in files.items() if not path.exists()]


def import_graph(key: Key, settings: CellSettings) -> Found:
    """Build the graph file of a model."""
    name, _, batch = model_name(key[0], settings).partition("@")
    family, variant = name.split("/")
    settings.graphs.mkdir(parents=True, exist_ok=True)
    words = ("import", "--model", family, "--variant", variant, *(("--batch", batch) if batch else ()))
    run_pesto([*words, "-o", str(file_of(key[0], settings))])
    return {}


def run_pesto(words: list[str]) -> str:
    """Return the output of `pesto WORDS`, run in a process of its own; RuntimeError with its message if it fails."""
    end_with_this = partial(die_with, os.getpid())  # a worker that is killed takes it along
    done = subprocess.run(
        [sys.executable, "-m", "pesto", *words],
        capture_output=True, text=True, check=False, preexec_fn=end_with_this,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"pesto {words[0]} ended with {done.returncode}")
    return done.stdout
