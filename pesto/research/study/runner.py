"""Runs what is still pending of a study, whatever ended the runs before: cells as works of `cell_runner`."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache

import msgspec
from msgspec.structs import replace

from pesto.core.executing.executor import Executor, WorkFailure, WorkItem, WorkLimits, WorkResult
from pesto.core.executing.worker import WorkerChannel
from pesto.research.cell_runner import run_works
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
        result = replace(result, measures=result.measures | {"cores": line.cores})
    return msgspec.json.encode(result)


def answer_of(outcome: WorkResult | WorkFailure) -> CellAnswer:
    """The answer to a cell; `hung` where it was given up, `crashed` where it lost its workers."""
    if isinstance(outcome, WorkResult):
        return msgspec.json.decode(outcome.data, type=CellAnswer)
    status = Status.HUNG if outcome.why == "time" else Status.CRASHED
    return CellAnswer(key=outcome.key, status=status, detail=outcome.detail, seconds=outcome.seconds)


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
    pending, ran = store.pending(), 0
    todo = {cell.key: cell for cell in [cell for cell in cells if cell.key in pending][:limit]}
    sized: dict[str, CellAnswer] = {}
    try:
        with closing(run_works(map(cell_work, todo.values()), executor, store.lease)) as outcomes:
            for ran, (outcome, waiting) in enumerate(outcomes, 1):
                cell, result = todo[outcome.key], answer_of(outcome)
                # With the instance's size and start from another cell, where a process was lost before it told them.
                instance = canonical([cell.stage, cell.parameters])
                if result.tasks:
                    sized[instance] = result
                elif (k := sized.get(instance)) is not None:
                    result = replace(
                        result, start_makespan=k.start_makespan, tasks=k.tasks, devices=k.devices, edges=k.edges
                    )
                store.commit(result)
                on_done(CellDone(cell=cell, answer=result, ran=ran, waiting=waiting))
    finally:
        store.free()
    return ran
