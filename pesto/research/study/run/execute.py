"""Runs one cell where it is called: a solve of a problem, or a plan of a whole training step."""

import os
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pesto.core.distribution import VERSION
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, SolverError
from pesto.core.files.json import shown
from pesto.research.study.cell_answer import PLAN, REFUSED, CellAnswer, ProgressPoint
from pesto.research.study.cells import StudyCell
from pesto.research.study.instance_cache import InstanceCache, PosedProblem, UnbuildableInstanceError
from solvers import FAILED, Options, Progress, Result, Schedule, Status, api

_LINE = 500
_KILLED = "killed by SIGKILL"
"""Message of `solvers.process` for a solver that ended unexpectedly: out of memory, or killed."""


def execute(cell: StudyCell, shelf: InstanceCache) -> CellAnswer:
    """The answer to one cell, whatever happens on the way: a failure is a status and one line of detail."""
    began = time.monotonic()
    known = CellAnswer(key=cell.key, status=REFUSED)
    try:
        if cell.stage == PLAN:
            step = shelf.step(cell.instance)
            # Return the answer of a plan cell with the fields known before it runs.
            edges = len(step.graph.src) + len(step.graph.control_src)
            stepped = CellAnswer(
                key=cell.key, status=REFUSED, tasks=step.graph.ops, edges=edges, measures=_circumstances()
            )
            known, began = stepped, time.monotonic()
            from pesto.research.study.run.planning import answered

            return answered(cell, step, _circumstances())
        posed = shelf.posed(cell.instance)
        known, began = _started(cell, posed), time.monotonic()
        return _solved(cell, posed)
    except UnbuildableInstanceError as error:
        status, detail = REFUSED, str(error)
    except PestoError as error:
        status, detail = _status(error), shown(error, _LINE)
    except Exception as error:
        status, detail = Status.CRASHED, shown(f"{type(error).__name__}: {error}", _LINE)
    return replace(known, status=status, detail=detail, seconds=time.monotonic() - began)


def _started(cell: StudyCell, posed: PosedProblem) -> CellAnswer:
    """Return the answer of a schedule cell with the fields known before it runs."""
    problem, start = posed.problem, _start(cell, posed)
    return CellAnswer(
        key=cell.key,
        status=REFUSED,
        start_makespan=start.makespan if start is not None else None,
        tasks=problem.tasks,
        devices=problem.devices,
        edges=problem.edges,
        measures=_circumstances(),
    )


def _start(cell: StudyCell, posed: PosedProblem) -> Schedule | None:
    return posed.listed if cell.settings["start"] else None


def _solved(cell: StudyCell, posed: PosedProblem) -> CellAnswer:
    problem, settings, known = posed.problem, cell.settings, _started(cell, posed)
    start = _start(cell, posed)
    options = Options(
        seconds=cell.limit_s,
        gap=settings["gap"],
        seed=cell.seed,
        workers=settings["workers"],
        deterministic=settings["deterministic"],
        start=start,
        formulation=cell.formulation or "tight",
    )
    began = ProgressPoint(0.0, known.start_makespan, posed.lower_bound)
    result, trace = _twice(lambda trace: api.solve(problem, cell.solver, options, report=_recorder(trace)), began)
    # The makespan of an answer; after a failure, of what the solver found itself before, if anything.
    failed = result.status in FAILED and result.schedule is start
    own = None if result.schedule is None or failed else result.schedule.makespan
    return replace(
        known,
        status=result.status,
        limit_reason=result.limit,
        makespan=own,
        lower_bound=result.lower_bound,
        bound_by=result.bound_by,
        seconds=result.seconds,
        version=result.version,
        detail=result.detail,
        trace=tuple(trace),
    )


def _twice(solve: Callable[[list[ProgressPoint]], Result], began: ProgressPoint) -> tuple[Result, list[ProgressPoint]]:
    """A solve and its trace; a second one where somebody killed the solver, which may not have been its fault."""
    for _ in range(2):
        trace = [began]
        result = solve(trace)
        if result.status is not Status.CRASHED or _KILLED not in result.detail:
            break
    return result, trace


def _recorder(trace: list[ProgressPoint]) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        made = progress.schedule.makespan if progress.schedule is not None else None
        if made is not None or progress.lower_bound > trace[-1].lower_bound:  # else it is a line of a log
            trace.append(ProgressPoint(progress.seconds, made, progress.lower_bound))

    return report


def _circumstances() -> dict[str, Any]:
    """Environment that times depend on: the cores that this process may use, and the project's version."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cores": cores, "pesto": VERSION}


def _status(error: PestoError) -> str:
    if isinstance(error, InfeasibleError):
        return Status.INFEASIBLE
    if isinstance(error, NothingFoundError):
        return Status.UNKNOWN
    return Status.CRASHED if isinstance(error, SolverError) else REFUSED
