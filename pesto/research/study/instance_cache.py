"""From an instance of a study to what is solved: built once, and kept while the cells that follow need it."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import PestoError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.research.study.cells import (
    FiledProblem,
    GeneratedProblem,
    Instance,
    TrainingInstance,
    canonical,
    identity,
    names_file,
)
from solvers import Options, Problem, Schedule, api
from solvers.bounds import quick_bounds

T = TypeVar("T")

_KEPT = 4
"""Instances of each sort to keep."""
_LINE = 300


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TracedStep:
    """A training step, a cluster and the modelled costs of one on the other."""

    graph: Graph
    cluster: Cluster
    costs: Costs


class InstanceCache:
    """The latest instances of one process. RefusedError for one that cannot be built, again when asked again."""

    def __init__(self) -> None:
        self._posed: dict[str, PosedProblem | UnbuildableInstanceError] = {}
        self._steps: dict[str, TracedStep | UnbuildableInstanceError] = {}

    def posed(self, instance: Instance) -> PosedProblem:
        """The problem of a schedule cell."""
        return _kept(self._posed, instance, lambda: _posed(_problem(instance)))

    def step(self, instance: Instance) -> TracedStep:
        """The training step of a plan cell."""
        return _kept(self._steps, instance, lambda: _step(instance))


def _kept(shelf: dict[str, T | UnbuildableInstanceError], instance: Instance, build: Callable[[], T]) -> T:
    key = canonical(identity(instance))
    if key not in shelf:
        while len(shelf) >= _KEPT:
            del shelf[next(iter(shelf))]
        shelf[key] = _built(build)
    result = shelf[key]
    if isinstance(result, UnbuildableInstanceError):
        raise result
    return result


def _built(build: Callable[[], T]) -> T | UnbuildableInstanceError:
    try:
        return build()
    except (PestoError, ValueError) as error:
        return UnbuildableInstanceError(_line(error))
    except Exception as error:
        # Whatever a file, a model or a family does: the other cells go on.
        return UnbuildableInstanceError(_line(f"{type(error).__name__}: {error}"))


def _line(text: Any) -> str:
    return shown(" ".join(str(text).split()), _LINE)


def _problem(instance: Instance) -> Problem:
    if isinstance(instance, GeneratedProblem):
        from solvers.instances.table import make

        return make(instance.family, instance.seed, **instance.params)
    if isinstance(instance, FiledProblem):
        from solvers.files.problem_json import loads_problem

        return loads_problem(_unchanged(instance)).problem
    from pesto.research.instances import coarse_problem

    return coarse_problem(
        instance.model,
        instance.variant,
        _cluster(instance),
        nodes=instance.nodes or 0,
        batch=instance.batch,
        per_edge=instance.per_edge,
    )


def _unchanged(instance: FiledProblem | TrainingInstance) -> bytes:
    """The content of an instance's file."""
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


def _step(instance: Instance) -> TracedStep:
    from pesto.core.source import Source
    from pesto.inputs import load as inputs

    if not isinstance(instance, TrainingInstance):
        raise TypeError(f"a training step expected, found {instance.label}")
    path = _cluster(instance)  # first, as it takes no time
    graph = inputs.load_graph(Source(model=instance.model, variant=instance.variant, batch=instance.batch))
    cluster = inputs.load_cluster(path)
    return TracedStep(graph=graph, cluster=cluster, costs=inputs.load_costs(graph, cluster, None))
