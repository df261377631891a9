"""Pesto from Python: graphs, plans, and TensorFlow programs that run by them. Options by keyword only."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pesto.costs.measured import Profile
from pesto.errors import UsageError
from pesto.graph import Graph
from pesto.inputs import load as inputs
from pesto.plans import plan_file
from pesto.plans.plan import PER_EDGE, Plan, verify
from pesto.settings import Settings
from pesto.solving import flow
from pesto.solving.tracker import Incumbent, Watch
from pesto.source import Source

if TYPE_CHECKING:
    from pesto.tf.enforce.context import Applied
    from pesto.tf.enforce.recorder import Recorded

T = TypeVar("T")

__all__ = [
    "Graph", "Incumbent", "Plan", "apply", "check", "load_graph", "load_plan", "logical_cpus", "place", "profile",
    "record", "rewrite", "save_plan", "solve",
]  # fmt: skip


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
    start: Plan | str | Path | None = None,
    **settings: Any,
) -> Plan:
    """The best verified plan; `settings` are the fields of `pesto.settings.Settings`.

    cluster: a preset or a TOML file; costs: a profile file; start: a plan, for this or another cluster, of this step or
    one like it, to begin from. Raises the PestoErrors of `pesto.solving.flow.solve`.
    """
    before = _plan(start) if start is not None else None
    machine = inputs.load_cluster(cluster)
    op_costs = inputs.load_costs(graph, machine, Path(costs) if costs is not None else None)
    return flow.solve(graph, machine, op_costs, _made(Settings, **settings), on_incumbent or _nobody, before).plan


def check(plan: Plan, graph: Graph, *, cluster: str, costs: str | Path | None = None) -> None:
    """Verify a plan on its graph, cluster and costs; VerificationError or MismatchError when it is not valid."""
    machine = inputs.load_cluster(cluster)
    op_costs = inputs.load_costs(graph, machine, Path(costs) if costs is not None else None)
    settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
    verify(plan, graph, flow.formulate(graph, op_costs, machine, settings), machine)


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan atomically."""
    plan_file.save(plan, Path(path))


def load_plan(path: str | Path) -> Plan:
    """Read a plan; `check` verifies it."""
    return plan_file.load(Path(path))


def profile(*, iterations: int = 100, **source: Any) -> tuple[Graph, Profile]:
    """The graph of a step (named as in `load_graph`) and each op's time on this machine's devices.

    Save it with `pesto.costs.measured.save_profile(path, profile, graph)`.
    """
    return inputs.profile_source(_source(None, **source), iterations)


def apply(*plans: Plan | str | Path, **how: Any) -> AbstractContextManager["Applied"]:
    """A context in which unchanged programs train by a plan: Keras `fit`, v1 sessions, tf.functions.

    plans: one for each training step inside, as objects or files. how: `pesto.tf.enforce.apply_options.Options`'s
    fields, devices=None, "cpu" or {plan's device: TensorFlow's}, order=True, trace=False. The value is what was
    verified. Every step's first run is held against TensorFlow's partition graphs. PestoError when something trains
    that no plan is for, or does not run as planned. Leaving the context undoes everything.
    """
    context, options = _enforcing(how)
    return context.apply(tuple(_plan(p) for p in plans), options)


def place(fn: Callable[..., Any], plan: Plan | str | Path, **how: Any) -> Callable[..., Any]:
    """A training step (a function or tf.function), placed and ordered by `plan`; for loops of one's own.

    how: see `apply`. Functions that it calls are traced inline. Its variables move to their planned devices at the
    first call. UsageError for what is no function, InputError for one that XLA must compile, and what `apply` raises.
    """
    context, options = _enforcing(how)
    return context.place(fn, _plan(plan), options)


def rewrite(graph_def: Any, plan: Plan | str | Path, **how: Any) -> Any:
    """A copy of a GraphDef with the plan's devices and order in it, to hand to another program. how: see `apply`.

    MismatchError when the plan is of another graph, VerificationError when TensorFlow would not run it as planned.
    """
    _, options = _enforcing(how)
    from pesto.tf.enforce.rewrite import rewrite as rewritten

    return rewritten(graph_def, _plan(plan), options)


def record(*, batch: int | None = None) -> AbstractContextManager["Recorded"]:
    """A context that takes the training step which is traced inside: its value's `graph` is what to plan.

    batch: the size of a batch, where the program leaves the first dimension open (as Keras' `fit` often does);
    UsageError when it is below 1. Its `graph` raises InputError when not exactly one training step was traced.
    """
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise UsageError(f"record: a batch of {batch!r} - give a whole number, at least 1")
    _enforcing({})
    from pesto.tf.enforce.recorder import record as recorded

    return recorded(batch)


def logical_cpus(count: int) -> None:
    """Split the CPU into `count` logical devices, to try a plan without GPUs.

    UsageError when `count` is below 1, or TensorFlow has started with another number of them.
    """
    if not isinstance(count, int) or count < 1:
        raise UsageError(f"logical_cpus: {count!r} devices - give a whole number, at least 1")
    _enforcing({})
    from pesto.tf.enforce.apply_options import logical_cpus as split

    split(count)


def _enforcing(how: dict[str, Any]) -> tuple[Any, Any]:
    """The module that applies plans, which loads TensorFlow, and its options."""
    from pesto.tf.start import tensorflow

    tensorflow()
    from pesto.tf.enforce import context
    from pesto.tf.enforce.apply_options import Options

    return context, _made(Options, **how)


def _plan(plan: Plan | str | Path) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | Path):
        raise UsageError(f"a {type(plan).__name__} is no plan - give the file of one, or what pesto.solve returns")
    return load_plan(plan)


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
