"""Runs what is still pending of a study, whatever ended the runs before: cells as work for an executor."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
from msgspec.structs import replace

from pesto.core.executing.executor import Executor, ProgressMessage, WorkFailure, WorkItem, WorkLimits, WorkResult
from pesto.core.executing.worker import WorkerChannel
from pesto.research.study.cells import CellAnswer, StudyCell, canonical
from pesto.research.study.execute import InstanceCache, execute
from pesto.research.study.store import StudyStore
from solvers import Status
from solvers.process.parent import COMPILING_S, UNHURRIED_S, patience

PREPARE_S = 1800.0
"""Seconds that a cell may take beside its solver: TensorFlow, a large model, its coarsening, its baselines."""


_shelf = cache(InstanceCache)
"""One a process, which runs several cells one after another."""


def patience_s(cell: StudyCell) -> float:
    """Seconds after which a cell is given up: its limit may pass twice, where its solver was killed from outside."""
    return PREPARE_S + UNHURRIED_S + COMPILING_S + 2 * patience(cell.limit_s)


def cell_work(cell: StudyCell) -> WorkItem:
    """A cell, to be begun."""
    limits = WorkLimits(patience_s=patience_s(cell))
    return WorkItem(key=cell.key, entry=f"{__name__}:answer", data=msgspec.json.encode(cell), limits=limits)


def answer(data: bytes, line: WorkerChannel) -> bytes:
    """Run a cell, in the process of a worker. Where nobody binds it to cores, they are those that it was promised."""
    result = execute(msgspec.json.decode(data, type=StudyCell), _shelf())
    if line.cores is not None and "cores" in result.measures:
        result = msgspec.structs.replace(result, measures=result.measures | {"cores": line.cores})
    return msgspec.json.encode(result)


def answer_of(outcome: WorkResult | WorkFailure) -> CellAnswer:
    """The answer to a cell; `hung` where it was given up."""
    if isinstance(outcome, WorkResult):
        return msgspec.json.decode(outcome.data, type=CellAnswer)
    return CellAnswer(key=outcome.work.key, status=Status.HUNG, detail=outcome.detail, seconds=outcome.seconds)


TRIES = 3
"""Workers that a cell may lose before that is its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDone:
    """One cell more is done."""

    cell: StudyCell
    answer: CellAnswer
    ran: int
    """Cells that this run has done."""
    waiting: int
    """Cells that this run has still to do, those that run at the moment with them."""


def run(
    cells: Sequence[StudyCell],
    store: StudyStore,
    executor: Executor,
    on_done: Callable[[CellDone], None],
    *,
    limit: int | None = None,
) -> int:
    """Run the pending ones of `cells`, at most `limit`, in their order; return how many were done.

    `on_done` hears of each when it is written. However this ends, no process is left, and what was leased is pending.
    """
    pending = store.pending()
    todo = deque([cell for cell in cells if cell.key in pending][:limit])
    try:
        return _StudyRun(todo, store, executor, on_done).all()
    finally:
        executor.close()
        store.free()


class _StudyRun:
    def __init__(
        self, todo: deque[StudyCell], store: StudyStore, executor: Executor, on_done: Callable[[CellDone], None]
    ) -> None:
        self._todo, self._store, self._executor, self._told = todo, store, executor, on_done
        self._running: dict[str, StudyCell] = {}
        self._losses: Counter[str] = Counter()
        self._again: set[str] = set()
        """Keys of cells that ran where all was lost; that is no loss of theirs."""
        self._lost_s: dict[str, float] = defaultdict(float)
        self._sized: dict[str, CellAnswer] = {}
        self._ran = 0

    def all(self) -> int:
        while self._todo or self._running:
            while self._todo and len(self._running) < self._executor.slots:
                cell = self._todo.popleft()
                if not self._losses[cell.key] and cell.key not in self._again:
                    self._store.lease(cell.key)
                self._running[cell.key] = cell
                self._executor.begin(cell_work(cell))
            for outcome in self._executor.collect():
                if not isinstance(outcome, ProgressMessage):  # cells tell nothing
                    self._take(outcome)
        return self._ran

    def _take(self, outcome: WorkResult | WorkFailure) -> None:
        cell = self._running.pop(outcome.work.key)
        if isinstance(outcome, WorkFailure) and outcome.why == "place":
            self._again.add(cell.key)
            self._todo.appendleft(cell)
            return
        if isinstance(outcome, WorkFailure) and outcome.why != "time":
            self._losses[cell.key] += 1
            self._lost_s[cell.key] += outcome.seconds
            if self._losses[cell.key] < TRIES:
                self._todo.appendleft(cell)
                return
            detail, seconds = f"{TRIES} times over, {outcome.detail}", self._lost_s[cell.key]
            answer = CellAnswer(key=cell.key, status=Status.CRASHED, detail=detail, seconds=seconds)
        else:
            answer = answer_of(outcome)
        # With the instance's size and start, as another cell told them, where a process was lost before it could.
        instance = canonical([cell.stage, cell.parameters])
        if answer.tasks:
            self._sized[instance] = answer
        else:
            k = self._sized.get(instance, answer)
            answer = replace(answer, start_makespan=k.start_makespan, tasks=k.tasks, devices=k.devices, edges=k.edges)
        self._store.commit(answer)
        self._ran += 1
        self._told(CellDone(cell=cell, answer=answer, ran=self._ran, waiting=len(self._todo) + len(self._running)))
