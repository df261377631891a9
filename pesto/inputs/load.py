"""From what a user names to values: graphs, clusters, costs, profiles. TensorFlow is loaded only if needed."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.costs.measured import Profile, apply_profile, load_profile
from pesto.core.costs.precision import note_missing_peaks
from pesto.core.costs.user_times import SUFFIX, apply_user_times, load_user_times
from pesto.core.errors import UsageError
from pesto.core.files import graph_file
from pesto.core.files.json import quoted, shown
from pesto.core.files.reading import reading
from pesto.core.graph import Graph
from pesto.core.micro_batches.step_parts import step_parts
from pesto.core.micro_batches.unrolling import unroll
from pesto.core.plans.plan import Plan
from pesto.core.source import GRAPH_DEF, GraphSource, Source, read_source
from pesto.inputs import cluster_file
from pesto.inputs.foreign_graph import FORMATS, refuse_onnx
from pesto.inputs.precheck import precheck
from pesto.tf.run.run_options import Batch, RunOptions
from pesto.tf.step_facts import ColocationTie, StepFacts
from solvers.arrays import Ints

if TYPE_CHECKING:
    from pesto.split.files.split_file import SplitFile
    from pesto.split.typed_graph import TypedGraph
    from pesto.tf.emulate.enforced_graph import PlannedStep
    from pesto.tf.partition.partition_run import PartitionRunResult
    from pesto.tf.partition.partitioned import Partition
    from pesto.tf.run.planned_run import PlannedRunResult


def load_graph(source: Source, *, quiet: bool = False) -> Graph:
    """The graph that `source` names; `quiet` leaves out what TensorFlow and its libraries say of themselves.

    PestoError of the right kind, one line, for anything that is wrong with it.
    """
    source.checked()
    if source.micro_batches is not None and source.pieces is None:
        graph = load_graph(replace(source, micro_batches=None), quiet=quiet)
        return unroll(graph, step_parts(graph), source.micro_batches).graph
    if source.file is not None and source.file.suffix not in GRAPH_DEF:
        # The graph in the project's own file; UsageError for one that other programs write.
        file = source.file
        if Path(file.name.removesuffix(".gz")).suffix.lower() in FORMATS and ".json" not in file.suffixes:
            raise UsageError.build(
                "a graph of another program", where=file, remedy=f"first run pesto import {shlex.quote(str(file))}"
            )
        refuse_onnx(file)
        with reading(f"reading {shown(file.name)}"):
            return graph_file.load(file)
    precheck(source)
    from pesto.tf import named_sources
    from pesto.tf.tensorflow_start import hide_library_output

    with hide_library_output(quiet=quiet):
        return named_sources.load_graph(source)


def load_late(source: Source, *, quiet: bool = False) -> Callable[[tuple[int, ...]], Graph]:
    """The step of a function with updates behind its micro-batches, by how late its weights are (`Cut.late`).

    UsageError for what is no function, or is not cut; else errors as of `load_graph`.
    """
    source.checked()
    if source.pieces is None:
        raise UsageError.build(
            "updates behind every micro-batch are for steps whose updates Pesto makes",
            remedy=(
                "give a function (a Keras "
                "model, or a step that calls its optimizer once and does not loop itself) and 2 or "
                "more micro-batches"
            ),
        )
    precheck(source)
    from pesto.tf import named_sources
    from pesto.tf.tensorflow_start import hide_library_output

    with hide_library_output(quiet=quiet):
        traced = named_sources.load_late_updates(source)

    def late(by: tuple[int, ...]) -> Graph:
        with hide_library_output(quiet=quiet):
            return traced(by)

    return late


def load_shaped(source: Source, *, quiet: bool = False) -> "tuple[Graph, TypedGraph]":
    """The graph that `source` names, and what its ops are to one who divides it; errors as of `load_graph`.

    UsageError for a graph file, which has bytes and no shapes.
    """
    source.checked()
    _require_whole_step(source)
    if not source.has_shapes:
        raise UsageError.build(
            "a graph file has no shapes", where=source.file, remedy="name the step itself: a model, a GraphDef"
        )
    precheck(source)
    from pesto.tf import named_sources
    from pesto.tf.tensorflow_start import hide_library_output

    with hide_library_output(quiet=quiet):
        return named_sources.load_typed(source)


def load_both(source: Source, *, quiet: bool = False) -> "tuple[Graph, TypedGraph | str]":
    """The graph, and what its ops are to one who cuts tensors, or why nothing says or none can be cut."""
    if not source.has_shapes:
        return load_graph(source, quiet=quiet), ""
    source.checked()
    _require_whole_step(source)
    precheck(source)
    from pesto.tf import named_sources
    from pesto.tf.tensorflow_start import hide_library_output

    with hide_library_output(quiet=quiet):
        return named_sources.load_with_types(source)


def load_shapes(source: Source) -> "TypedGraph":
    """Read the ops of a step from a file of shapes (.json), without TensorFlow; otherwise as `load_shaped` does."""
    source.checked()
    if source.file is not None and source.file.suffix not in GRAPH_DEF:
        from pesto.split.files import typed_graph_file

        return typed_graph_file.load_typed_graph(source.file)
    return load_shaped(source, quiet=True)[1]


def inspect_source(source: Source) -> StepFacts:
    """Inspect the step that `source` names, unplanned; PestoError for one that is not found or cannot be traced."""
    precheck(source)
    if (source.micro_batches is None or source.pieces) and (source.file is None or source.file.suffix in GRAPH_DEF):
        from pesto.tf import named_sources

        return named_sources.inspect_source(source)
    graph = load_graph(source)
    tied = np.flatnonzero(graph.group >= 0)
    tied = tied[np.argsort(graph.group[tied], kind="stable")]
    groups = np.split(tied, np.flatnonzero(np.diff(graph.group[tied])) + 1) if len(tied) else []
    return StepFacts(
        source=graph.source,
        ops=graph.ops,
        variables=int((graph.param_bytes > 0).sum()),
        variable_bytes=int(graph.param_bytes.sum()),
        ties=tuple(sorted((_tie(graph, ops) for ops in groups), key=lambda tie: (-tie.variable_bytes, -tie.ops))),
        pinned={name: int((graph.device_of == d).sum()) for d, name in enumerate(graph.devices)},
    )


def _tie(graph: Graph, ops: Ints) -> ColocationTie:
    """A group of a graph file, which says nothing of its reason."""
    held = graph.param_bytes[ops]
    return ColocationTie(
        ops=len(ops),
        variables=int((held > 0).sum()),
        variable_bytes=int(held.sum()),
        why=f"the file has {graph.names[ops[0]]} and the others in one group",
    )


def profile_source(
    source: Source, iterations: int, *, keep_disturbed: bool = False, feeds: Batch | None = None
) -> tuple[Graph, Profile]:
    """Measure the step that `source` names on this machine's devices; UsageError when it cannot be run.

    NothingFoundError where other programs keep the machine so busy that nothing can be measured, unless what they
    disturbed is to be kept. feeds: a batch of one's own; InputError for one that does not fit.
    """
    _executable(source)
    from pesto.tf import named_sources

    return named_sources.profile(source, iterations, DisturbanceWatch(keep=keep_disturbed), feeds)


def run_plan(plan: Plan, source: Source, how: RunOptions) -> "PlannedRunResult":
    """Run the step that `source` names by `plan` (`pesto.tf.run.planned_run`).

    UsageError when it cannot be run, InputError for a batch of one's own that does not fit.
    """
    _executable(source)
    from pesto.tf import named_sources

    return named_sources.run_source(source, plan, how)


def run_split(
    found: "SplitFile", source: Source, *, steps: int, devices: str | None, feeds: Batch | None = None
) -> "PartitionRunResult":
    """Run the step that `source` names whole and in parts (`pesto.tf.partition`); errors as of `run_plan`."""
    _executable(source)
    from pesto.tf import named_sources
    from pesto.tf.tensorflow_start import hide_library_output

    with hide_library_output(quiet=True):
        return named_sources.run_parts(source, found, steps=steps, devices=devices, feeds=feeds)


def partition_split(found: "SplitFile", source: Source, devices: Sequence[str], host: str) -> "Partition":
    """The graph of the step that `source` names as a split divides it. UsageError when it has none."""
    _executable(source)
    from pesto.tf import named_sources
    from pesto.tf.tensorflow_start import hide_library_output

    with hide_library_output(quiet=True):
        return named_sources.partition_source(source, found, devices, host)


def planned_step(source: Source) -> "tuple[Graph, PlannedStep]":
    """The graph that `source` names, and its step to be emulated (`pesto.tf.emulate`); UsageError where it has none."""
    _executable(source)
    from pesto.tf import named_sources

    return named_sources.load_planned_step(source)


def _require_whole_step(source: Source) -> None:
    """UsageError for a step of several micro-batches that is no function: of it there is a graph and nothing else."""
    if source.micro_batches is not None and source.pieces is None:
        raise UsageError.build(
            "a step of several micro-batches is planned and simulated, not run or cut", remedy="leave them out"
        )


def _executable(source: Source) -> None:
    _require_whole_step(source)
    precheck(source)
    if source.file is not None and source.file.suffix not in GRAPH_DEF:
        raise UsageError.build(
            "the project's graph file has no kernels to run",
            where=source.file,
            remedy=("give TensorFlow's own graph (a file ending in .pb), a model, a SavedModel or a function"),
        )


def load_cluster(name: str) -> Cluster:
    """A preset or a TOML file."""
    return cluster_file.load_cluster(name)


def plan_cluster(plan: Plan) -> str:
    """The preset that the plan names, never a path: a plan may come from anybody. UsageError for any other cluster."""
    made = plan.provenance
    if made.cluster_origin.kind != "preset":
        raise UsageError.build(f"the plan's cluster was {made.cluster_source!r}", remedy="give it as the cluster")
    if made.cluster not in cluster_file.cluster_names():
        raise UsageError.build(
            f"the plan's cluster is {quoted(made.cluster)}, which is no preset", remedy="give it as the cluster"
        )
    return made.cluster


def load_costs(graph: Graph, cluster: Cluster, given: Path | Profile | None) -> Costs:
    """Modelled costs, and in their place those of a profile, of its file, or of a file of one's own times (.csv)."""
    fallback = model_costs(graph, cluster)
    if given is None:
        found = fallback
    elif isinstance(given, Path) and given.suffix.lower() == SUFFIX:
        found = apply_user_times(graph, cluster, load_user_times(given), fallback)
    else:
        profile = given if isinstance(given, Profile) else load_profile(given, graph)
        found = apply_profile(graph, cluster, profile, fallback)
    return note_missing_peaks(graph, cluster, found)


def plan_source(plan: Plan, source: Source) -> Source:
    """The graph that the options name, or else the built-in model that the plan names."""
    made = plan.provenance
    recorded = RecordedSource(GraphSource(made.graph_source, made.graph_origin), made.graph_batch, plan.feed_shapes)
    return source_of(recorded, source, "the plan's graph", "when it was planned")


def split_source(split: "SplitFile", source: Source) -> Source:
    """The step that the options name, or else the built-in model that the split names."""
    recorded = RecordedSource(read_source(split.source), split.batch, split.feed_shapes)
    return source_of(recorded, source, "the split's step", "when it was split")


class RecordedSource(NamedTuple):
    """The graph that a file of a plan or a split says it was made of."""

    source: GraphSource
    """Source of the graph, with its origin."""
    batch: int | None
    """Batch size given where the graph leaves it open."""
    feed_shapes: tuple[str, ...] = ()
    """Shapes given for feeds and ops whose sizes the graph leaves open, as of `Graph.feed_shapes`."""


def source_of(recorded: RecordedSource, source: Source, what: str, when: str) -> Source:
    """The graph that the options name, or else the built-in model that a file says it was made of.

    A batch size and the shapes of feeds that the options leave out are the file's, and so are the micro-batches of a
    function whose batch is cut.
    """
    made, size, shapes = recorded
    cut = made.origin.cut_function
    if cut is not None and source.function == cut.function:
        batch, pieces = source.batch or cut.batch, source.micro_batches or cut.micro_batches
        source = replace(source, batch=batch, micro_batches=pieces, late=cut.late, every=cut.every)
    named = made.origin.model
    if source.model is not None and named is not None and source.model == named.model:
        size = named.batch
    if source != Source() and source.batch is None and source.has_shapes:
        source = replace(source, batch=size)
    if source != Source() and source.takes_shapes:
        given = source.shapes
        source = replace(source, shape=source.shape + tuple(x for x in shapes if x.rpartition("=")[0] not in given))
    if source == Source():
        if named is None:
            function = made.origin.name if made.origin.kind == "function" else None
            option = "--graph, --saved-model or --function" if function is None else f"--function {shown(function)}"
            raise UsageError.build(f"{what} was {quoted(made)}", remedy=f"give it with {option}, as {when}")
        return named
    return source.checked()
