"""A plan cell: everything that `pesto solve` does for a training step, measured."""

import time
from typing import Any

from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.planning.solving import flow
from pesto.planning.solving.candidates import Candidate
from pesto.planning.solving.tracker import Incumbent
from pesto.research.study.cell_answer import FAILED, CellAnswer, ProgressPoint
from pesto.research.study.cells import StudyCell, TrainingInstance
from pesto.research.study.instance_cache import TracedStep
from solvers import Limit, Status


def answered(cell: StudyCell, step: TracedStep, circumstances: dict[str, Any]) -> CellAnswer:
    """The plan of a training step, and what the exact solver made of its coarse graph.

    The makespan is the chosen plan's on the full graph, the bound is one of the full graph; the status and the version
    are the exact solver's on the coarse graph ("optimal" where a baseline's plan was proven before it began). After a
    failure there is no makespan: the plan is one of the other candidates. Raises what `solve` does.
    """
    trace = [ProgressPoint(0.0, None, 0)]

    def watch(incumbent: Incumbent) -> None:
        trace.append(ProgressPoint(incumbent.seconds, _ticks(incumbent.makespan_s), _ticks(incumbent.lower_bound_s)))

    began = time.monotonic()
    outcome = flow.solve(step.graph, step.cluster, step.costs, _settings(cell), watch)
    seconds = time.monotonic() - began
    plan, coarse = outcome.plan, outcome.plan.provenance.coarse
    status = coarse.status if coarse is not None else Status.OPTIMAL
    return CellAnswer(
        key=cell.key,
        status=status,
        limit_reason=coarse.limit if coarse is not None else Limit.NONE,
        makespan=plan.schedule.makespan if status not in FAILED else None,
        lower_bound=plan.provenance.lower_bound_ticks,
        bound_by=plan.provenance.lower_bound_name,
        seconds=seconds,
        version=coarse.version if coarse is not None else "",
        detail=coarse.detail if coarse is not None else "a baseline reaches the lower bound",
        tasks=outcome.problem.tasks,
        devices=outcome.problem.devices,
        edges=outcome.problem.edges,
        measures=_measures(outcome) | circumstances,
        trace=tuple(trace),
    )


def _settings(cell: StudyCell) -> Settings:
    if not isinstance(cell.instance, TrainingInstance):
        raise TypeError(f"a training step expected, found {cell.instance.label}")
    settings = cell.settings
    return Settings(
        time_limit_s=cell.limit_s,
        gap=settings["gap"],
        seed=cell.seed,
        coarsen_to=settings["coarsen_to"],
        solver=cell.solver,
        formulation=cell.formulation or "tight",
        workers=settings["workers"],
        deterministic=settings["deterministic"],
        per_edge=cell.instance.per_edge,
        congestion=settings["congestion"],
        search=False,  # a cell is about the exact solver
    )


def _measures(outcome: flow.SolveOutcome) -> dict[str, Any]:
    """See docs/guides/studies.md."""
    coarse = outcome.plan.provenance.coarse
    on_coarse: dict[str, Any] = {}
    if coarse is not None:
        on_coarse = {
            "coarse_nodes": coarse.nodes,
            # Without a schedule of its own, the makespan is that of the start.
            "coarse_ms": _ms(coarse.makespan_ticks)
            if outcome.exact is not None and outcome.exact.last is not None
            else None,
            "coarse_bound_ms": _ms(coarse.lower_bound_ticks),
            "coarse_bound_by": coarse.bound_by,
        }
    exact = outcome.exact
    start, last = (exact.start, exact.last) if exact is not None else (None, None)
    return on_coarse | {
        "coarse_start_ms": _ms(start.makespan) if start is not None else None,
        "start_step_ms": _step_ms(start.expanded) if start is not None else None,
        "last_step_ms": _step_ms(last),
        "step_ms": _ms(outcome.plan.schedule.makespan),
        "bound_ms": _ms(outcome.plan.provenance.lower_bound_ticks),
        "chosen": outcome.plan.provenance.chosen,
        "out_of_memory": ", ".join(n for n, c in outcome.candidates.items() if c is not None and not c.fits),
        "candidates": {f"{name}_ms": _step_ms(candidate) for name, candidate in outcome.candidates.items()},
        "stages": {f"{name}_s": round(seconds, 3) for name, seconds in outcome.stages_s.items()},
    }


def _step_ms(candidate: Candidate | None) -> float | None:
    return _ms(candidate.makespan) if candidate is not None else None


def _ms(ticks: int | None) -> float | None:
    return round(ticks * TICK_S * 1e3, 6) if ticks is not None else None


def _ticks(seconds: float) -> int:
    return round(seconds / TICK_S)
