"""From what a user names to values: graphs, clusters, costs, profiles. TensorFlow is loaded only if needed."""

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs, note_missing_peaks
from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.costs.measured import Profile, apply_profile, load_profile
from pesto.core.costs.user_times import SUFFIX, apply_user_times, load_user_times
from pesto.core.errors import FileError, UsageError
from pesto.core.files import graph_file
from pesto.core.files.json import quoted, shown
from pesto.core.files.reading import reading
from pesto.core.graph import Graph
from pesto.core.micro_batches import unroll
from pesto.core.option import expect, expect_path
from pesto.core.plans import plan_file
from pesto.core.plans.plan import Plan
from pesto.core.source import EVERYTHING, GRAPH_DEF, GraphSource, Source
from pesto.core.step_parts import step_parts
from pesto.inputs.cluster_file import cluster_names, load_cluster
from pesto.inputs.foreign_graph import FORMATS, refuse_onnx
from pesto.tf.run.run_options import Batch, RunOptions
from pesto.tf.step_facts import StepFacts, VariableTie
from pesto.tf.tensorflow_start import hide_library_output

if TYPE_CHECKING:
    from pesto.split.files.split_file import SplitFile
    from pesto.split.typed_graph import TypedGraph
    from pesto.tf.emulate.enforced_graph import PlannedStep
    from pesto.tf.partition.partition_run import PartitionRunResult
    from pesto.tf.partition.partitioned import Partition
    from pesto.tf.run.planned_run import PlannedRunResult

GRAPH = "what pesto.load_graph returns"
"""Words for a graph in remedies."""


def load_graph(source: Source, *, quiet: bool = False) -> Graph:
    """Load the graph that `source` names; `quiet` leaves out what TensorFlow and its libraries say of themselves.

    Raise PestoError of the right kind, one line, for anything that is wrong with it.
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

    with hide_library_output(quiet=quiet):
        return named_sources.load_graph(source)


def load_late(source: Source, *, quiet: bool = False) -> Callable[[tuple[int, ...]], Graph]:
    """Return what loads the step of a function with updates behind its micro-batches, given `Cut.late`.

    Raise UsageError for what is no function, or is not cut; else errors as of `load_graph`.
    """
    source.checked()
    if source.pieces is None:
        raise UsageError.build(
            "updates behind every micro-batch are for steps whose updates Pesto makes",
            remedy="give a function (a Keras model, or a step that calls its optimizer once and does not loop itself) "
            "and 2 or more micro-batches",
        )
    precheck(source)
    from pesto.tf import named_sources

    with hide_library_output(quiet=quiet):
        traced = named_sources.load_late_updates(source)

    def late(by: tuple[int, ...]) -> Graph:
        with hide_library_output(quiet=quiet):
            return traced(by)

    return late


def load_shaped(source: Source, *, quiet: bool = False) -> "tuple[Graph, TypedGraph]":
    """Load the graph that `source` names, and the types and shapes of its ops; errors as of `load_graph`.

    Raise UsageError for a graph file, which has bytes and no shapes.
    """
    source.checked()
    _require_whole_step(source)
    if not source.has_shapes:
        raise UsageError.build(
            "a graph file has no shapes", where=source.file, remedy="name the step itself: a model, a GraphDef"
        )
    precheck(source)
    from pesto.tf import named_sources

    with hide_library_output(quiet=quiet):
        return named_sources.load_typed(source)


def load_both(source: Source, *, quiet: bool = False) -> "tuple[Graph, TypedGraph | str]":
    """Load the graph, and the types and shapes of its ops, or why they are not known or none can be cut."""
    if not source.has_shapes:
        return load_graph(source, quiet=quiet), ""
    source.checked()
    _require_whole_step(source)
    precheck(source)
    from pesto.tf import named_sources

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
    """Inspect the step that `source` names, unplanned. Raise PestoError for one that is not found or traced."""
    source.checked()
    precheck(source)
    if (source.micro_batches is None or source.pieces) and (source.file is None or source.file.suffix in GRAPH_DEF):
        from pesto.tf import named_sources

        return named_sources.inspect_source(source)
    graph = load_graph(source)
    tied = np.flatnonzero(graph.group >= 0)
    tied = tied[np.argsort(graph.group[tied], kind="stable")]
    groups = np.split(tied, np.flatnonzero(np.diff(graph.group[tied])) + 1) if len(tied) else []
    ties = [
        VariableTie(
            ops=len(ops), variables=int((graph.param_bytes[ops] > 0).sum()),
            variable_bytes=int(graph.param_bytes[ops].sum()),
            why=f"the file has {graph.names[ops[0]]} and the others in one group",
        )
        for ops in groups
    ]  # fmt: skip
    return StepFacts(
        source=graph.source, ops=graph.ops, variables=int((graph.param_bytes > 0).sum()),
        variable_bytes=int(graph.param_bytes.sum()),
        ties=tuple(sorted(ties, key=lambda tie: (-tie.variable_bytes, -tie.ops))),
        pinned={name: int((graph.device_of == d).sum()) for d, name in enumerate(graph.devices)},
    )  # fmt: skip


def profile_source(
    source: Source, iterations: int, *, keep_disturbed: bool = False, feeds: Batch | None = None
) -> tuple[Graph, Profile]:
    """Measure the step that `source` names on this machine's devices. Raise UsageError when it cannot be run.

    Raise NothingFoundError where other programs keep the machine so busy that nothing can be measured, unless disturbed
    runs are to be kept. feeds: a batch of the user's own; InputError for one that does not fit.
    """
    _require_executable(source)
    from pesto.tf import named_sources

    return named_sources.profile(source, iterations, DisturbanceWatch(keep=keep_disturbed), feeds)


def run_plan(plan: Plan, source: Source, how: RunOptions) -> "PlannedRunResult":
    """Run the step that `source` names by `plan` (`pesto.tf.run.planned_run`).

    Raise UsageError when it cannot be run, InputError for a batch of the user's own that does not fit.
    """
    _require_executable(source)
    from pesto.tf import named_sources

    return named_sources.run_source(source, plan, how)


def run_split(
    found: "SplitFile", source: Source, *, steps: int, devices: str | None, feeds: Batch | None = None
) -> "PartitionRunResult":
    """Run the step that `source` names whole and in parts (`pesto.tf.partition`); errors as of `run_plan`."""
    _require_executable(source)
    from pesto.tf import named_sources

    with hide_library_output(quiet=True):
        return named_sources.run_parts(source, found, steps=steps, devices=devices, feeds=feeds)


def partition_split(found: "SplitFile", source: Source, devices: Sequence[str], host: str) -> "Partition":
    """Divide the graph of the step that `source` names as a split says. Raise UsageError when it has none."""
    _require_executable(source)
    from pesto.tf import named_sources

    with hide_library_output(quiet=True):
        return named_sources.partition_source(source, found, devices, host)


def planned_step(source: Source) -> "tuple[Graph, PlannedStep]":
    """Load the graph that `source` names, and its step to emulate. Raise UsageError where it has none."""
    _require_executable(source)
    from pesto.tf import named_sources

    return named_sources.load_planned_step(source)


def _require_whole_step(source: Source) -> None:
    """UsageError for a step of several micro-batches that is no function: of it there is a graph and nothing else."""
    if source.micro_batches is not None and source.pieces is None:
        raise UsageError.build(
            "a step of several micro-batches is planned and simulated, not run or cut", remedy="leave them out"
        )


def _require_executable(source: Source) -> None:
    source.checked()
    _require_whole_step(source)
    precheck(source)
    if source.file is not None and source.file.suffix not in GRAPH_DEF:
        raise UsageError.build(
            "the project's graph file has no kernels to run",
            where=source.file,
            remedy="give TensorFlow's own graph (a file ending in .pb), a model, a SavedModel or a function",
        )


def load_costs(graph: Graph, cluster: Cluster, given: str | Path | Profile | None) -> Costs:
    """Return modelled costs, replaced by those of a profile, of its file, or of a file of the user's times (.csv)."""
    expect("costs", given, str | Path | Profile | None, "a file of times, or what pesto.profile returns")
    costs = model_costs(graph, cluster)
    if isinstance(given, str | Path) and Path(given).suffix.lower() == SUFFIX:
        costs = apply_user_times(graph, cluster, load_user_times(Path(given)), costs)
    elif given is not None:
        profile = given if isinstance(given, Profile) else load_profile(Path(given), graph)
        costs = apply_profile(graph, cluster, profile, costs)
    return note_missing_peaks(graph, cluster, costs)


def as_plan(plan: Plan | str | Path, name: str = "plan") -> Plan:
    """Return the plan, or that of a file; errors as of `pesto.load_plan`."""
    expect(name, plan, Plan | str | Path, "the file of a plan, or what pesto.solve returns")
    return plan if isinstance(plan, Plan) else plan_file.load(expect_path(name, plan))


def plan_inputs(
    plan: Plan, graph: Graph, cluster: str | Path | Cluster | None, costs: str | Path | Profile | None
) -> tuple[Cluster, Costs]:
    """Return the cluster of a plan, the given one or else the preset that it names, and the costs of each op there."""
    expect("graph", graph, Graph, GRAPH)
    machine = load_cluster(plan_cluster(plan) if cluster is None else cluster)
    return machine, load_costs(graph, machine, costs)


def plan_cluster(plan: Plan) -> str:
    """Return the preset that the plan names, never a path: anybody may write a plan. Raise UsageError for others."""
    provenance = plan.provenance
    if provenance.cluster_origin.kind != "preset":
        raise UsageError.build(f"the plan's cluster was {provenance.cluster_source!r}", remedy="give it as the cluster")
    if provenance.cluster not in cluster_names():
        raise UsageError.build(
            f"the plan's cluster is {quoted(provenance.cluster)}, which is no preset", remedy="give it as the cluster"
        )
    return provenance.cluster


def plan_source(plan: Plan, source: Source) -> Source:
    """Return the graph that the options name, or else the built-in model that the plan names."""
    provenance = plan.provenance
    recorded = GraphSource(provenance.graph_source, provenance.graph_origin)
    named = recorded_source(source, recorded, provenance.graph_batch, plan.feed_shapes)
    return named or _refuse_unnamed("the plan's graph", recorded, "when it was planned")


def split_source(split: "SplitFile", source: Source) -> Source:
    """Return the step that the options name, or else the built-in model that the split names."""
    recorded = GraphSource(split.source, split.origin)
    named = recorded_source(source, recorded, split.batch, split.feed_shapes)
    return named or _refuse_unnamed("the split's step", recorded, "when it was split")


def recorded_source(
    source: Source, recorded: GraphSource, size: int | None, shapes: tuple[str, ...] = ()
) -> Source | None:
    """Return the graph that the options name, or else the built-in model that a file says it was made of; else None.

    recorded, size, shapes: graph of the file, its batch size where the graph leaves that open, and shapes of feeds, as
    of `Graph.feed_shapes`. What the options leave out of these is the file's, and so are the micro-batches of a
    function whose batch is cut.
    """
    named, cut = recorded.origin.model, recorded.origin.cut_function
    if source == Source():
        return named
    if cut is not None and source.function == cut.function:
        batch, pieces = source.batch or cut.batch, source.micro_batches or cut.micro_batches
        source = replace(source, batch=batch, micro_batches=pieces, late=cut.late, every=cut.every)
    if source.model is not None and named is not None and source.model == named.model:
        size = named.batch
    if source.batch is None and source.has_shapes:
        source = replace(source, batch=size)
    if source.takes_shapes:
        given = source.shapes
        source = replace(source, shape=source.shape + tuple(x for x in shapes if x.rpartition("=")[0] not in given))
    return source


def _refuse_unnamed(what: str, recorded: GraphSource, when: str) -> NoReturn:
    """Raise UsageError for a graph that neither the options nor its file name."""
    function = recorded.origin.name if recorded.origin.kind == "function" else None
    option = "--graph, --saved-model or --function" if function is None else f"--function {shown(function)}"
    raise UsageError.build(f"{what} was {quoted(recorded)}", remedy=f"give it with {option}, as {when}")


def precheck(source: Source) -> None:
    """Raise UsageError for a model or function that cannot be, InputError for a file that is no graph or lacks a fetch.

    Raise FileError for what is not there. What passes may be refused later.
    """
    if source.model is not None:
        from pesto.tf.models import find

        try:
            find(source.model, source.variant)
        except ValueError as error:
            raise UsageError.build(f"model: {error}", remedy="see pesto models") from error
    if source.file is not None and source.file.suffix in GRAPH_DEF:
        from pesto.tf.nodes.graph_def_bytes import check_graph_def

        check_graph_def(source.file, () if source.fetch == EVERYTHING else source.fetch)
    if source.saved_model is not None:
        folder = source.saved_model
        if not folder.is_dir():
            raise FileError.build(
                "no such folder", where=folder, remedy="name the one that the SavedModel was written to"
            )
        if not any((folder / f"saved_model.{ending}").exists() for ending in ("pb", "pbtxt")):
            raise FileError.build(
                "no saved_model.pb is in it", where=folder, remedy="name the folder that the SavedModel was written to"
            )
    if source.function is None:
        return
    module, _, attribute = source.function.partition(":")
    if not module or not attribute:
        raise UsageError.build(
            f"function {shown(source.function)}: no name of a callable", remedy="give package.module:callable"
        )
    if "/" in module or module.endswith(".py"):
        path = Path(os.path.normpath(module.removesuffix(".py")))
        inside = all(part.isidentifier() for part in path.parts)  # a folder from which a module is imported by its dots
        name = f"{'.'.join(path.parts) if inside else path.name}:{attribute}"
        there = "" if inside else f"PYTHONPATH={shlex.quote(str(path.parent))} "
        raise UsageError.build(
            f"function {shown(source.function)}: the name of a module is wanted, not its path",
            remedy=f"give {shown(name)}, for example {there}pesto inspect {shlex.quote(name)}",
        )
