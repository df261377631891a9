"""Runs what is still pending of a study, whatever ended the runs before."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pesto.core.executing.executor import Executor, ProgressMessage, WorkFailure, WorkResult
from pesto.research.study.cell_answer import CellAnswer
from pesto.research.study.cells import StudyCell, canonical
from pesto.research.study.run.cell_work import answer_of, cell_work
from pesto.research.study.store import StudyStore
from solvers import Status

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
    """Run the pending ones of `cells`, at most `most`, in their order; return how many were done.

    `told` hears of each when it is written. However this ends, no process is left and what was leased is pending again.
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
                self._begin(self._todo.popleft())
            for outcome in self._executor.collect():
                if not isinstance(outcome, ProgressMessage):  # cells tell nothing
                    self._take(outcome)
        return self._ran

    def _begin(self, cell: StudyCell) -> None:
        if not self._losses[cell.key] and cell.key not in self._again:
            self._store.lease(cell.key)
        self._running[cell.key] = cell
        self._executor.begin(cell_work(cell))

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
        answer = self._complete(cell, answer)
        self._store.commit(answer)
        self._ran += 1
        self._told(CellDone(cell=cell, answer=answer, ran=self._ran, waiting=len(self._todo) + len(self._running)))

    def _complete(self, cell: StudyCell, answer: CellAnswer) -> CellAnswer:
        """With the instance's size and start, as another cell told them, where a process was lost before it could."""
        instance = canonical([cell.stage, cell.parameters])
        if answer.tasks:
            self._sized[instance] = answer
            return answer
        known = self._sized.get(instance, answer)
        return replace(
            answer,
            start_makespan=known.start_makespan,
            tasks=known.tasks,
            devices=known.devices,
            edges=known.edges,
        )
