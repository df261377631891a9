"""Pesto from Python: graphs, plans, and TensorFlow programs that run by them. Options by keyword only."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from pesto.choosing.comparison.contest import Comparison, MethodEntry
from pesto.choosing.whatif.points import Sweep
from pesto.choosing.whatif.rerun import Simulation, add_trust
from pesto.core.cluster import Cluster
from pesto.core.costs import measured as measured_costs
from pesto.core.costs.measured import Profile
from pesto.core.graph import Graph
from pesto.core.option import (
    expect,
    expect_count,
    expect_listener,
    expect_path,
    optional_path,
    with_options_of,
)
from pesto.core.plans import plan_file
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings, SettingsOptions
from pesto.core.source import Source, SourceKeywords, StepKeywords
from pesto.inputs import cluster_file
from pesto.inputs import load as inputs
from pesto.inputs.from_networkx import graph_from_networkx
from pesto.inputs.load import GRAPH, as_plan
from pesto.planning.solving.tracker import Incumbent, Watch
from pesto.planning.solving.trust import ErrorModel
from pesto.reporting.explaining.explanation import ExplainContext, explain
from pesto.verbs import artifacts
from pesto.verbs.plan_step import compare_step, plan_step, sweep_step
from pesto.verbs.programs import apply, logical_cpus, pipeline, place, record, rewrite
from pesto.verbs.requests import CompareRequest, Context, SolveRequest, SweepRequest
from pesto.verbs.verb_options import CompareKeywords, CompareOptions, SweepKeywords, SweepOptions

__all__ = [
    "Cluster", "Comparison", "Graph", "Incumbent", "Plan", "Profile", "Settings", "Simulation", "Sweep", "apply",
    "check", "compare", "explain", "graph_from_networkx", "load_cluster", "load_graph", "load_plan", "logical_cpus",
    "pipeline", "place", "profile", "record", "rewrite", "save_plan", "save_profile", "simulate", "solve", "sweep",
]  # fmt: skip


@with_options_of(Source)
def load_graph(file: str | Path | None = None, **source: Unpack[SourceKeywords]) -> Graph:
    """The graph of one training step, from exactly one of a file, a built-in model, a SavedModel and a function.

    file: the project's own format (docs/reference/graph-file.md), or a GraphDef (.pb, .pbtxt) with `fetch`, the ops
    that the step ends with ("*": all that nothing reads), needed where nothing reads several. model: a name of
    `pesto models`, by default in the variant that the paper has first. signature: of a SavedModel; by default
    serving_default, or the only one. function: "module:callable", which is a tf.function with an input_signature, a
    compiled Keras model, or a callable without arguments that returns one of them, (model, (x, y)) with an example of
    a batch, (model, x), (function, *specs) with tf.TensorSpecs, or (tf.Graph, fetches). batch: examples in a batch,
    where the graph leaves it open. micro_batches: their number, as in docs/guides/pipeline.md. shape: shapes of
    feeds that the graph leaves open, and the largest of ops that nothing limits, each as "NAME=16,40".

    UsageError for options that do not go together, InputError for a graph that is refused, FileError for a file.
    """
    return inputs.load_graph(Source.from_keywords(file=file, **source))


def load_cluster(cluster: str | Path) -> Cluster:
    """A cluster by the name of a preset (`pesto clusters`), or from a TOML file (docs/guides/clusters.md).

    UsageError for a name that is neither, InputError for a file that is refused, FileError for one that is unreadable.
    """
    return cluster_file.load_cluster(cluster)


@with_options_of(Settings)
def solve(
    graph: Graph,
    *,
    cluster: str | Path | Cluster = "v100x2-nvlink",
    costs: str | Path | Profile | None = None,
    start: Plan | str | Path | None = None,
    beside: Plan | str | Path | None = None,
    on_incumbent: Callable[[Incumbent], None] | None = None,
    **settings: Unpack[SettingsOptions],
) -> Plan:
    """The best plan that is found, verified: where and in which order each op runs, and a bound of what is possible.

    cluster: a preset, a file or a value. costs: a profile, or a file of times (.csv, docs/guides/costs.md), in place
    of modelled times. start: a plan to begin from, for this or another cluster, of this step or one like it.
    beside: the plan of another step, which stays in use: variables that both have, by name, stay where it has them, and
    bound and gap are of the step with these pinned. on_incumbent: hears of each better plan. The others are `Settings`.
    Method: Pesto (Middleware '21), 3.1 to 3.3, and search on the full graph. Ctrl-C gives the best so far. A branch
    that ties most variables to one device, an order of which too little is enforced in the way in which the step is
    meant to be run, and types that are costed as others are logged as warnings.

    InfeasibleError with the proof that no plan exists, NothingFoundError when none is found that fits the memory,
    SolverError when besides the exact solver failed, VerificationError, UsageError, InputError, FileError, and
    MismatchError for the profile of another graph.
    """
    request = SolveRequest(
        source=graph, cluster=cluster, costs=costs, start=start, beside=beside, settings=Settings(**settings)
    )  # fmt: skip
    context = _Watched(expect_listener("on_incumbent", on_incumbent))
    expect("graph", graph, Graph, GRAPH)
    solved = plan_step(request.opened(), context)
    for remark in solved.outcome.remarks:
        logging.getLogger("pesto").warning("%s", remark)
    return replace(solved.outcome.plan, reader=ExplainContext(graph=graph, cluster=solved.cluster, costs=costs))


class _Watched(Context):
    """A Python program, which may hear of better plans."""

    def __init__(self, hear: Watch) -> None:
        self._hear = hear

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        yield self._hear


def check(
    plan: Plan | str | Path,
    graph: Graph,
    *,
    cluster: str | Path | Cluster | None = None,
    costs: str | Path | Profile | None = None,
) -> dict[str, Any]:
    """Verify a plan on its graph: placement, order, times, transfers, memory and lower bound. Tolerance 0.

    cluster: by default the preset that the plan names. costs: the profile or file that it rests on. Returns what
    the file states and nothing at hand confirms, by key of its provenance (docs/reference/plan-file.md).

    VerificationError when the plan is invalid, MismatchError when it is another graph's, UsageError when the cluster
    or the costs have to be given.
    """
    return artifacts.check_plan(as_plan(plan), graph, cluster=cluster, costs=costs).left


def simulate(
    plan: Plan | str | Path,
    graph: Graph,
    *,
    cluster: str | Path | Cluster | None = None,
    costs: str | Path | Profile | None = None,
    noise: float | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Simulation:
    """The step that a plan's placement and order give, also on another cluster or other costs (Pesto, 5.4).

    cluster: by default the preset that the plan names; one without a device that the plan uses is refused. What the
    step takes where TensorFlow keeps a part of the order: `enforced` and `as_meant` of the result. noise: 0 to 2, with
    which it is timed again, `draws` times, against its best rivals, by errors that follow from `seed`: `trust` of the
    result (docs/guides/what-if.md).

    UsageError for noise out of range, MismatchError when the plan is another graph's, InputError when the cluster lacks
    a device, InfeasibleError when the variables alone exceed its memory; and what `check` raises, where the plan's own
    cluster and costs are at hand.
    """
    errors = None if noise is None else ErrorModel(noise=noise, draws=draws, seed=seed)
    return add_trust(artifacts.simulate_plan(as_plan(plan), graph, cluster=cluster, costs=costs), errors)


@with_options_of(CompareOptions)
def compare(
    graph: Graph,
    *,
    cluster: str | Path | Cluster = "v100x2-nvlink",
    costs: str | Path | Profile | None = None,
    on_entry: Callable[[MethodEntry], None] | None = None,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Every method on one step (docs/guides/compare.md): placed, repaired where it knows memory, simulated, verified.

    methods: names, also with commas between; "all" is every method that there is. on_entry: hears of each when it is
    done. time_limit_s: of each method that searches. solver: the exact solver of the method "pesto". headroom: share of
    each memory that repairs spare at first (ParDNN, 5.1).

    A method without a plan is an entry that says why. UsageError for an unknown method, and what `load_cluster` raises.
    """
    hear = expect_listener("on_entry", on_entry)
    expect("graph", graph, Graph, GRAPH)
    request = CompareRequest(source=graph, cluster=cluster, costs=costs, options=CompareOptions(**options))
    return compare_step(request, Context(), hear)


@with_options_of(SweepOptions)
def sweep(
    graph: Graph,
    *,
    cluster: str | Path | Cluster = "v100x2-nvlink",
    costs: str | Path | Profile | None = None,
    on_point: Callable[[Sweep], None] | None = None,
    **options: Unpack[SweepKeywords],
) -> Sweep:
    """One step solved on a grid of changed clusters (Pesto, Fig 8): what if devices or links were faster?

    compute, links, memory: factors of the cluster's own. devices: numbers of accelerators. cross: all combinations, in
    place of one axis at a time. on_point: hears of the rows so far. time_limit_s: of each point.

    A point without a plan is a row that says why. UsageError when no axis has a value, or one is out of range.
    """
    hear = expect_listener("on_point", on_point)
    expect("graph", graph, Graph, GRAPH)
    request = SweepRequest(source=graph, cluster=cluster, costs=costs, options=SweepOptions(**options))
    return sweep_step(request, Context(), hear)


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan atomically (docs/reference/plan-file.md); FileError when it cannot be written."""
    expect("plan", plan, Plan, "what pesto.solve returns")
    plan_file.save(plan, expect_path("path", path))


def load_plan(path: str | Path) -> Plan:
    """Read a plan, which `check` verifies; InputError when the file holds none, FileError when it is unreadable."""
    return replace(plan_file.load(expect_path("path", path)), reader=ExplainContext())


@with_options_of(Source, but="micro_batches")
def profile(
    file: str | Path | None = None,
    *,
    iterations: int = 100,
    keep_disturbed: bool = False,
    feeds: str | Path | Mapping[str, Any] | None = None,
    **source: Unpack[StepKeywords],
) -> tuple[Graph, Profile]:
    """The graph of a step, named as in `load_graph`, and the time of each op on this machine's devices (Pesto, 3.1).

    iterations: steps that are traced, at least 2. keep_disturbed: whether steps count during which other programs used
    the processors; the profile then says so. feeds: a batch of your own, as arrays by the name of their feed or a .npz
    file of them; otherwise values are random, whole numbers from the range that the step's ops imply.

    UsageError for a graph that TensorFlow cannot run, NothingFoundError, with who was busy, where other programs leave
    nothing to be measured.
    """
    expect_count("iterations", iterations, 2)
    step = Source.from_keywords(file=file, **source)
    given = feeds if isinstance(feeds, Mapping) else optional_path("feeds", feeds)
    return inputs.profile_source(step, iterations, keep_disturbed=keep_disturbed, feeds=given)


def save_profile(profile: Profile, graph: Graph, path: str | Path) -> None:
    """Write the op times of a graph, for `costs=`; MismatchError when they are of another, FileError as for plans."""
    expect("profile", profile, Profile, "what pesto.profile returns")
    expect("graph", graph, Graph, GRAPH)
    measured_costs.save_profile(expect_path("path", path), profile, graph)
