"""Runs one cell where it is called: builds its instance, and solves a problem or plans a whole training step."""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from pesto.core.distribution import VERSION
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, SolverError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown
from pesto.core.problem import TICK_S, StepOnCluster
from pesto.core.settings import Settings
from pesto.research.study.cells import (
    FAILED,
    PLAN,
    REFUSED,
    CellAnswer,
    FiledProblem,
    GeneratedProblem,
    Instance,
    ProgressPoint,
    StudyCell,
    TrainingInstance,
    canonical,
    identity,
    names_file,
)
from pesto.research.study.spec import DEFAULTS
from solvers import Limit, Options, Problem, Progress, Schedule, Status, api
from solvers.bounds import quick_bounds

if TYPE_CHECKING:
    from pesto.planning.solving.candidates import Candidate
    from pesto.planning.solving.flow import SolveOutcome
    from pesto.planning.solving.tracker import Incumbent

T = TypeVar("T")

_KEPT = 4
"""Instances of each sort to keep."""
_REASON = 300


class UnbuildableInstanceError(Exception):
    """An instance that cannot be built; the text says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PosedProblem:
    """A problem with what every solver of it may know before it begins."""

    problem: Problem
    lower_bound: int
    """Lower bound in ticks, by `solvers.bounds.quick_bounds`."""
    listed: Schedule | None
    """A list schedule; None where memory defeats the list scheduler."""


class InstanceCache:
    """The latest instances of one process; UnbuildableInstanceError, each time, for one that cannot be built."""

    def __init__(self) -> None:
        self._posed: dict[str, PosedProblem | UnbuildableInstanceError] = {}
        self._steps: dict[str, StepOnCluster | UnbuildableInstanceError] = {}

    def posed(self, instance: Instance) -> PosedProblem:
        """The problem of a schedule cell."""
        return _kept(self._posed, instance, lambda: _posed(_problem(instance)))

    def step(self, instance: Instance) -> StepOnCluster:
        """The training step of a plan cell."""
        return _kept(self._steps, instance, lambda: _step(instance))


def _kept(shelf: dict[str, T | UnbuildableInstanceError], instance: Instance, build: Callable[[], T]) -> T:
    key = canonical(identity(instance))
    if key not in shelf:
        while len(shelf) >= _KEPT:
            del shelf[next(iter(shelf))]
        try:
            shelf[key] = build()
        except (PestoError, ValueError) as error:
            shelf[key] = UnbuildableInstanceError(_line(error))
        except Exception as error:
            # Whatever a file, a model or a family does: the other cells go on.
            shelf[key] = UnbuildableInstanceError(_line(f"{type(error).__name__}: {error}"))
    result = shelf[key]
    if isinstance(result, UnbuildableInstanceError):
        raise result
    return result


def _line(text: Any) -> str:
    return shown(" ".join(str(text).split()), _REASON)


def _problem(instance: Instance) -> Problem:
    if isinstance(instance, GeneratedProblem):
        from solvers.instances.table import make

        return make(instance.family, instance.seed, **instance.params)
    if isinstance(instance, FiledProblem):
        from solvers.files.problem_json import loads_problem

        return loads_problem(_unchanged(instance)).problem
    from pesto.research.instances import coarse_problem

    cluster, nodes, per_edge = _cluster(instance), instance.nodes or 0, instance.per_edge
    return coarse_problem(instance.model, instance.variant, cluster, nodes, batch=instance.batch, per_edge=per_edge)


def _unchanged(instance: FiledProblem | TrainingInstance) -> bytes:
    path = os.fsdecode(instance.path)
    data = read_bytes(path)
    if hashlib.sha256(data).hexdigest() != instance.sha256:
        raise UsageError.build(f"{shown(path)} is not the file that this run began with", remedy="run the study again")
    return data


def _cluster(instance: TrainingInstance) -> str:
    """A preset, or the path of a file."""
    if names_file(instance.cluster):
        _unchanged(instance)
    return os.fsdecode(instance.path)


def _posed(problem: Problem) -> PosedProblem:
    listed = api.solve(problem, "list", Options()).schedule
    return PosedProblem(problem=problem, lower_bound=quick_bounds.best(problem)[0], listed=listed)


def _step(instance: Instance) -> StepOnCluster:
    from pesto.core.source import Source
    from pesto.inputs import load as inputs
    from pesto.inputs.cluster_file import load_cluster

    if not isinstance(instance, TrainingInstance):
        raise TypeError(f"a training step expected, found {instance.label}")
    path = _cluster(instance)  # first, as it takes no time
    graph = inputs.load_graph(Source(model=instance.model, variant=instance.variant, batch=instance.batch))
    cluster = load_cluster(path)
    return StepOnCluster(graph=graph, cluster=cluster, costs=inputs.load_costs(graph, cluster, None))


_LINE = 500
_KILLED = "killed by SIGKILL"
"""Message of `solvers.process` for a solver that ended unexpectedly: out of memory, or killed."""


def execute(cell: StudyCell, shelf: InstanceCache) -> CellAnswer:
    """The answer to one cell, whatever happens on the way: a failure is a status and one line of detail."""
    began = time.monotonic()
    known = CellAnswer(key=cell.key, status=REFUSED)
    # Times depend on the cores that this process may use, and on the project's version.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    measures = {"cores": cores, "pesto": VERSION}
    try:
        if cell.stage == PLAN:
            step = shelf.step(cell.instance)
            edges = len(step.graph.src) + len(step.graph.control_src)
            known = replace(known, tasks=step.graph.ops, edges=edges, measures=measures)
            began = time.monotonic()
            return plan_cell(cell, step, known)
        posed = shelf.posed(cell.instance)
        problem, start = posed.problem, posed.listed if cell.settings["start"] else None
        known = replace(
            known, start_makespan=start.makespan if start is not None else None, tasks=problem.tasks,
            devices=problem.devices, edges=problem.edges, measures=measures,
        )  # fmt: skip
        began = time.monotonic()
        return _solved(cell, posed, start, known)
    except UnbuildableInstanceError as error:
        status, detail = REFUSED, str(error)
    except PestoError as error:
        kinds = (
            (InfeasibleError, Status.INFEASIBLE),
            (NothingFoundError, Status.UNKNOWN),
            (SolverError, Status.CRASHED),
        )
        status = next((known_as for kind, known_as in kinds if isinstance(error, kind)), REFUSED)
        detail = shown(error, _LINE)
    except Exception as error:
        status, detail = Status.CRASHED, shown(f"{type(error).__name__}: {error}", _LINE)
    return replace(known, status=status, detail=detail, seconds=time.monotonic() - began)


def _solved(cell: StudyCell, posed: PosedProblem, start: Schedule | None, known: CellAnswer) -> CellAnswer:
    settings = cell.settings
    options = Options(
        seconds=cell.limit_s, gap=settings["gap"], seed=cell.seed, workers=settings["workers"],
        deterministic=settings["deterministic"], start=start, formulation=cell.formulation or DEFAULTS.formulation,
    )  # fmt: skip
    trace = list[ProgressPoint]()

    def record(progress: Progress) -> None:
        made = progress.schedule.makespan if progress.schedule is not None else None
        if made is not None or progress.lower_bound > trace[-1].lower_bound:  # else it is a line of a log
            trace.append(ProgressPoint(progress.seconds, made, progress.lower_bound))

    # A second time where somebody killed the solver, which may not have been its fault.
    for _ in range(2):
        trace[:] = [ProgressPoint(0.0, known.start_makespan, posed.lower_bound)]
        result = api.solve(posed.problem, cell.solver, options, report=record)
        if result.status is not Status.CRASHED or _KILLED not in result.detail:
            break
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


def plan_cell(cell: StudyCell, step: StepOnCluster, known: CellAnswer) -> CellAnswer:
    """The plan of a training step, and what the exact solver made of its coarse graph.

    The makespan is the chosen plan's on the full graph, the bound is one of the full graph; the status and the version
    are the exact solver's on the coarse graph ("optimal" where a baseline's plan was proven before it began). After a
    failure there is no makespan: the plan is one of the other candidates. Raises what `solve` does.
    """
    from pesto.planning.solving import flow  # late, since a cell that solves a problem does without it

    trace = [ProgressPoint(0.0, None, 0)]

    def watch(incumbent: "Incumbent") -> None:
        trace.append(ProgressPoint(incumbent.seconds, _ticks(incumbent.makespan_s), _ticks(incumbent.lower_bound_s)))

    if not isinstance(cell.instance, TrainingInstance):
        raise TypeError(f"a training step expected, found {cell.instance.label}")
    settings = Settings(
        time_limit_s=cell.limit_s, seed=cell.seed, solver=cell.solver,
        formulation=cell.formulation or DEFAULTS.formulation, per_edge=cell.instance.per_edge,
        search=False,  # a cell is about the exact solver
        **cell.settings,
    )  # fmt: skip
    began = time.monotonic()
    outcome = flow.solve(step.graph, step.cluster, step.costs, settings, watch)
    seconds = time.monotonic() - began
    plan, coarse = outcome.plan, outcome.plan.provenance.coarse
    status = coarse.status if coarse is not None else Status.OPTIMAL
    return replace(
        known,
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
        measures=_measures(outcome) | known.measures,
        trace=tuple(trace),
    )


def _measures(outcome: "SolveOutcome") -> dict[str, Any]:
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


def _step_ms(candidate: "Candidate | None") -> float | None:
    return _ms(candidate.makespan) if candidate is not None else None


def _ms(ticks: int | None) -> float | None:
    return round(ticks * TICK_S * 1e3, 6) if ticks is not None else None


def _ticks(seconds: float) -> int:
    return round(seconds / TICK_S)
