"""Improvements: the plan simulated and its bound computed again, with one property of the step changed."""

from dataclasses import dataclass, replace

import numpy as np

from pesto.choosing.whatif.grid import ClusterPoint, accelerators, scale_cluster
from pesto.core.errors import InfeasibleError, InputError, describe_error
from pesto.core.quantities import duration
from pesto.core.settings import Settings
from pesto.planning.solving.flow import formulate
from pesto.reporting.explaining.explained_step import ExplainedStep
from solvers import FORBIDDEN, Problem
from solvers.arrays import ints
from solvers.bounds import quick_bounds
from solvers.timing.replay import prepare

SCOPE, LINKS, DEVICES, MEMORY = ("scope", "links", "devices", "memory")
"""Kinds of changes: `Improvement.what`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """One change of a step, and what it comes to; all ticks are of 1 ns."""

    what: str
    """scope, links, devices or memory."""
    change: str
    """For people, such as "links twice as fast"."""
    step_ticks: int | None
    """The step of the same placement and order, or without a limit of memory of the solve's shortest candidate; None
    where a new device has no ops yet."""
    bound_ticks: int | None
    """Lower bound of the changed step in ticks; None if there is no such cluster."""
    detail: str
    """Subject of the numbers, in words."""


def find_improvements(step: ExplainedStep, costly: str | None) -> tuple[Improvement, ...]:
    """Evaluate every change; `costly` is the scope to make faster, None if nothing computes."""
    rows = [_scope(step, costly)] if costly is not None else []
    # Every transfer in half its time, latency included.
    problem = step.timeline.problem
    faster = replace(problem, transfer=ints(-(-problem.transfer // 2)))
    links = _changed(step, LINKS, "links twice as fast", faster, "latency and bandwidth of all links")
    return (*rows, links, _devices(step), _memory(step))


def _scope(step: ExplainedStep, costly: str) -> Improvement:
    """All ops of a scope twice as fast, wherever they run."""
    problem, inside = step.timeline.problem, step.scope_of == step.scopes.index(costly)
    ticks = np.where(inside[:, None] & (problem.duration != FORBIDDEN), -(-problem.duration // 2), problem.duration)
    detail = f"its {int(inside.sum())} ops take half their time, forward and backward"
    return _changed(step, SCOPE, f"scope {costly} twice as fast", replace(problem, duration=ints(ticks)), detail)


def _changed(step: ExplainedStep, what: str, change: str, problem: Problem, detail: str) -> Improvement:
    return Improvement(
        what=what,
        change=change,
        step_ticks=step.timed(prepare(problem)),
        bound_ticks=quick_bounds.best(problem)[0],
        detail=detail,
    )


def _devices(step: ExplainedStep) -> Improvement:
    """One accelerator more: the plan has no op on it, so that only the bound says what it could be worth."""
    kind = step.cluster.devices[accelerators(step.cluster)[0]].kind
    change = f"one more {kind}"
    try:
        larger = scale_cluster(step.cluster, ClusterPoint(devices=len(accelerators(step.cluster)) + 1))
        settings = Settings(per_edge=step.bench.per_edge)
        bound = quick_bounds.best(formulate(step.bench.graph, step.price(larger), larger, settings))[0]
    except (InputError, InfeasibleError) as refused:
        why = describe_error(refused, None).error
        return Improvement(what=DEVICES, change=change, step_ticks=None, bound_ticks=None, detail=f"not known: {why}")
    return Improvement(what=DEVICES, change=change, step_ticks=None, bound_ticks=bound, detail="no op is on it yet")


def _memory(step: ExplainedStep) -> Improvement:
    """No limit of memory: the best of what the solve found, whether it fits or not."""
    made = step.plan.provenance
    larger = {name: ticks for name, ticks in made.candidates_ticks.items() if not made.candidates_fit.get(name, True)}
    best = min(larger, key=lambda name: larger[name], default=None)
    detail = "every candidate of the solve fits"
    if best is not None:
        detail = f"of {len(larger)} candidates that do not fit the shortest is {best}, {duration(larger[best] * 1e-9)}"
    return Improvement(
        what=MEMORY,
        change="no limit of memory",
        step_ticks=min([step.makespan, *larger.values()]),
        bound_ticks=quick_bounds.best(step.timeline.problem)[0],
        detail=detail,
    )
