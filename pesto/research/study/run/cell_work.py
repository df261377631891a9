"""Cells as work for an executor: what a worker is sent, what it answers, and when one is given up."""

from functools import cache

import msgspec

from pesto.core.executing.executor import WorkFailure, WorkItem, WorkLimits, WorkResult
from pesto.core.executing.worker import WorkerChannel
from pesto.research.study.cell_answer import CellAnswer
from pesto.research.study.cells import StudyCell
from pesto.research.study.instance_cache import InstanceCache
from pesto.research.study.run.execute import execute
from solvers import Status
from solvers.process.parent import COMPILING_S, UNHURRIED_S, patience

PREPARE_S = 1800.0
"""Seconds that a cell may take beside its solver: TensorFlow, a large model, its coarsening, its baselines."""


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


@cache
def _shelf() -> InstanceCache:
    """One a process, which runs several cells one after another."""
    return InstanceCache()


def answer_of(outcome: WorkResult | WorkFailure) -> CellAnswer:
    """The answer to a cell; `hung` where it was given up."""
    if isinstance(outcome, WorkResult):
        return msgspec.json.decode(outcome.data, type=CellAnswer)
    return CellAnswer(key=outcome.work.key, status=Status.HUNG, detail=outcome.detail, seconds=outcome.seconds)
