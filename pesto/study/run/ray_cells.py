"""Cells on a Ray cluster: each is a remote task, and this process alone writes the study's file."""

import os
import signal
import time
from typing import Any

import msgspec

from pesto.errors import SolverError, UsageError
from pesto.study.answers import Answer
from pesto.study.cells import Cell
from pesto.study.run.executor import Lost, hung, patience_s

_POLL_S = 1.0


class RayCluster:
    """The cluster that RAY_ADDRESS names, or else this machine.

    Every node needs this project, its solvers and, under the same path, the files that the study names.
    """

    def __init__(self, jobs: int | None) -> None:
        """Connect. SolverError when Ray is missing, UsageError when the cluster cannot be reached or has no room."""
        try:
            import ray
        except ImportError as error:
            raise SolverError("--executor ray needs the package ray - pip install 'pesto[ray]'") from error
        self._ray: Any = ray
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(log_to_driver=False, include_dashboard=False if _local() else None, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray cluster: {error} - check RAY_ADDRESS") from error
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own there
        cores = int(ray.cluster_resources().get("CPU", 0))
        self._slots = jobs if jobs is not None else max(1, cores // 2)
        if self._slots > cores:
            self.close()
            raise UsageError(f"--jobs {self._slots} on a cluster of {cores} CPUs - give at most one job a CPU")
        # A cell that loses its process is begun again by the runner, which counts.
        self._remote = ray.remote(num_cpus=cores // self._slots, max_retries=0)(_answer)
        self._running: dict[Any, tuple[Cell, float]] = {}

    @property
    def slots(self) -> int:
        """Most cells at a time."""
        return self._slots

    def begin(self, cell: Cell) -> None:
        """Submit a cell."""
        self._running[self._remote.remote(msgspec.json.encode(cell))] = cell, time.monotonic()

    def collect(self) -> list[Answer | Lost]:
        """Wait for one cell, or the end of its time; Ray says when its process or node is lost."""
        found: list[Answer | Lost] = []
        while self._running and not found:
            done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_POLL_S)
            found = [self._outcome(reference) for reference in done] or self._overdue()
        return found

    def close(self) -> None:
        """Leave the cluster, which ends this run's tasks."""
        self._ray.shutdown()

    def _overdue(self) -> list[Answer | Lost]:
        """End the tasks that took too long."""
        now = time.monotonic()
        late = [reference for reference, (cell, began) in self._running.items() if now - began >= patience_s(cell)]
        found: list[Answer | Lost] = []
        for reference in late:
            self._ray.cancel(reference, force=True)
            cell, began = self._running.pop(reference)
            found.append(hung(cell, now - began))
        return found

    def _outcome(self, reference: Any) -> Answer | Lost:
        cell, began = self._running.pop(reference)
        try:
            return msgspec.json.decode(self._ray.get(reference), type=Answer)
        except self._ray.exceptions.RayError as error:
            detail = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return Lost(cell=cell, detail=detail, seconds=time.monotonic() - began)


class _Kept:
    """One shelf a process: Ray uses a process again for later tasks."""

    shelf: Any = None


def _answer(data: bytes) -> bytes:
    """Runs where Ray sends it. Ray binds nobody: the cores of a cell are those that it was promised."""
    import ray

    from pesto.study.instance_cache import Shelf
    from pesto.study.run.execute import execute

    _Kept.shelf = _Kept.shelf or Shelf()
    answer = execute(msgspec.json.decode(data, type=Cell), _Kept.shelf)
    cores = int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0))
    measures = answer.measures | ({"cores": cores} if "cores" in answer.measures else {})
    return msgspec.json.encode(msgspec.structs.replace(answer, measures=measures))


def _local() -> bool:
    return not os.environ.get("RAY_ADDRESS")
