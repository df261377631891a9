"""Pesto from Python: `load_graph`, `solve`, `check`, `save_plan`, `load_plan`, `profile`. Options by keyword only."""

import inspect
from pathlib import Path
from typing import Any, TypeVar

from pesto import flow, inputs, planfile
from pesto.costs.measured import Profile
from pesto.errors import UsageError
from pesto.graph import Graph
from pesto.plan import PER_EDGE, Plan, verify
from pesto.settings import Settings
from pesto.source import Source
from pesto.tracker import Incumbent, Watch

T = TypeVar("T")

__all__ = ["Graph", "Incumbent", "Plan", "check", "load_graph", "load_plan", "profile", "save_plan", "solve"]


def load_graph(
    file: str | Path | None = None,
    *,
    model: str | None = None,
    variant: str | None = None,
    saved_model: str | Path | None = None,
    function: str | None = None,
    **others: Any,
) -> Graph:
    """A graph from a file (the project's own, or a GraphDef), a built-in model, a SavedModel or module:callable.

    others: fetch=[op, ...] for a GraphDef, batch=N where the graph leaves it open. UsageError for what does not go
    together.
    """
    return inputs.load_graph(
        _source(file, model=model, variant=variant, saved_model=saved_model, function=function, **others)
    )


def solve(
    graph: Graph,
    *,
    cluster: str = "v100x2-nvlink",
    costs: str | Path | None = None,
    on_incumbent: Watch | None = None,
    **settings: Any,
) -> Plan:
    """The best verified plan; `settings` are the fields of `pesto.settings.Settings`.

    cluster: a preset or a TOML file; costs: a profile file. Raises the PestoErrors of `pesto.flow.solve`.
    """
    machine = inputs.load_cluster(cluster)
    op_costs = inputs.load_costs(graph, machine, Path(costs) if costs is not None else None)
    return flow.solve(graph, machine, op_costs, _made(Settings, **settings), on_incumbent or _nobody).plan


def check(plan: Plan, graph: Graph, *, cluster: str, costs: str | Path | None = None) -> None:
    """Verify a plan on its graph, cluster and costs; VerificationError or MismatchError when it is not valid."""
    machine = inputs.load_cluster(cluster)
    op_costs = inputs.load_costs(graph, machine, Path(costs) if costs is not None else None)
    settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
    verify(plan, graph, flow.formulate(graph, op_costs, machine, settings), machine)


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan atomically."""
    planfile.save(plan, Path(path))


def load_plan(path: str | Path) -> Plan:
    """Read a plan; `check` verifies it."""
    return planfile.load(Path(path))


def profile(*, iterations: int = 100, **source: Any) -> tuple[Graph, Profile]:
    """The graph of a step (named as in `load_graph`) and each op's time on this machine's devices.

    Save it with `pesto.costs.measured.save_profile(path, profile, graph)`.
    """
    return inputs.profile_source(_source(None, **source), iterations)


def _source(file: str | Path | None, **named: Any) -> Source:
    if named.get("saved_model") is not None:
        named["saved_model"] = Path(named["saved_model"])
    named["fetch"] = tuple(named.get("fetch") or ())
    return _made(Source, file=Path(file) if file is not None else None, **named)


def _made(kind: type[T], **fields: Any) -> T:
    try:
        return kind(**fields)
    except TypeError as error:
        known = ", ".join(inspect.signature(kind).parameters)
        raise UsageError(f"{error} - the options are {known}") from error


def _nobody(incumbent: Incumbent) -> None:
    """Watch when nobody does."""
    del incumbent
