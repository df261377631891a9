"""Graphs, profiles and runs by the names that a user gives: models, files, SavedModels, functions."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.costs.measured import Profile
from pesto.core.errors import InputError, PestoError, UsageError
from pesto.core.files.json import shown
from pesto.core.files.reading import reading, report_phase
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.source import EVERYTHING, Source, model_source
from pesto.tf.run.run_options import STOCK, Batch, RunOptions
from pesto.tf.step_facts import StepFacts
from pesto.tf.tensorflow_start import load_tensorflow

if TYPE_CHECKING:
    from pesto.split.files.split_file import SplitFile
    from pesto.split.typed_graph import TypedGraph
    from pesto.tf.emulate.enforced_graph import PlannedStep
    from pesto.tf.models import ModelStep
    from pesto.tf.nodes.captured import CapturedStep
    from pesto.tf.partition.partition_run import PartitionRunResult
    from pesto.tf.partition.partitioned import Partition
    from pesto.tf.run.planned_run import PlannedRunResult
    from pesto.tf.run.runnable import RunnableStep


@contextmanager
def _load_quietly() -> Iterator[None]:
    """Load TensorFlow and read a program; what the program prints goes to stderr, not among the results on stdout."""
    with reading("loading TensorFlow"), redirect_stdout(sys.stderr):
        load_tensorflow()
        yield


@_load_quietly()
def load_graph(source: Source) -> Graph:
    """Return the graph that `source` names. Raise UsageError for an unknown model, InputError for what is refused."""
    from pesto.tf.importer.importer import build_graph

    captured, batch, _ = _load_step(source)
    return build_graph(captured, batch=batch)


@_load_quietly()
def load_late_updates(source: Source) -> Callable[[tuple[int, ...]], Graph]:
    """Return the step of a function, with updates behind its micro-batches, as a function of how late weights are.

    The object that has the step is made once, so that all traces have the same names. Raise what `load_graph` raises.
    """
    from pesto.tf.importer.importer import build_graph
    from pesto.tf.sources.callables import capture_object, step_object

    reference = source.function or ""
    step_holder = step_object(reference)

    @_load_quietly()
    def traced(by: tuple[int, ...]) -> Graph:
        cut = replace(source, late=by).cut
        return build_graph(capture_object(step_holder, reference, source.batch, cut=cut), batch=source.batch)

    return traced


@_load_quietly()
def load_typed(source: Source) -> "tuple[Graph, TypedGraph]":
    """Return the graph that `source` names, and its ops as tensor cuts see them. Raise what `load_graph` raises."""
    from pesto.tf.shaping.shaping import shape

    captured, batch, _ = _load_step(source)
    return shape(captured, batch=batch)


@_load_quietly()
def load_with_types(source: Source) -> "tuple[Graph, TypedGraph | str]":
    """Return the graph that `source` names, and its typed ops, or why they cannot be divided; raise as `load_graph`."""
    from pesto.tf.importer.importer import build_graph
    from pesto.tf.shaping.shaping import shape_of

    captured, batch, _ = _load_step(source)
    graph = build_graph(captured, batch=batch)
    try:
        return graph, shape_of(captured, graph, batch)
    except InputError as refused:
        return graph, str(refused)


@_load_quietly()
def load_runnable(source: Source) -> "tuple[Graph, RunnableStep]":
    """Return the graph that `source` names, and its step. Raise InputError when only its own program can run it."""
    from pesto.tf.importer.importer import build_graph

    captured, batch, model = _load_step(source)
    graph = build_graph(captured, batch=batch)
    return graph, model or _make_runnable(captured, batch)


@_load_quietly()
def load_planned_step(source: Source) -> "tuple[Graph, PlannedStep]":
    """Return the graph that `source` names, and the step within its program, for emulation; raise as `load_graph`."""
    from pesto.tf.emulate.enforced_graph import PlannedStep
    from pesto.tf.importer.importer import build_graph
    from pesto.tf.sources.sources import read_graph_def

    captured, batch, model = _load_step(source)
    program = captured.graph_def if source.file is None else read_graph_def(source.file)
    if model is not None:
        program = model.graph.as_graph_def(add_shapes=True)
    return build_graph(captured, batch=batch), PlannedStep(captured=captured, program=program)


@_load_quietly()
def inspect_source(source: Source) -> StepFacts:
    """Return facts of the step that `source` names, with what planning raises; raise as `load_graph` else."""
    from pesto.tf.importer.inspection import inspect_step
    from pesto.tf.sources import sources

    if source.model is not None:
        return inspect_step(_load_step(source)[0], None)
    without_fetches = source.file is not None and not source.fetch
    captured = _capture(replace(source, fetch=EVERYTHING) if without_fetches else source, open_batch=True)
    refused: tuple[PestoError, ...] = ()
    try:
        if without_fetches:  # of which nothing is fetched
            sources.check_sinks(captured.graph_def, captured.source)
    except InputError as error:
        refused = (error,)
    return inspect_step(captured, source.batch, refused)


def profile(source: Source, iterations: int, watch: DisturbanceWatch, feeds: Batch | None) -> tuple[Graph, Profile]:
    """Return the graph that `source` names, and its op times here; raise as `pesto.tf.run.profiler.profile`."""
    graph, step = load_runnable(source)
    from pesto.tf.run import profiler
    from pesto.tf.run.runnable import use_batch

    return graph, profiler.profile(graph, use_batch(step, feeds), iterations=iterations, watch=watch)


def run_source(source: Source, plan: Plan, how: RunOptions) -> "PlannedRunResult":
    """Run the step that `source` names by `plan`; see `pesto.tf.run.planned_run.run_planned`."""
    if how.reference == STOCK:  # what TensorFlow does by itself; before it loads, and unless the user has set it
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    graph, step = load_runnable(source)
    from pesto.tf.run import planned_run

    return planned_run.run_planned(plan, graph, step, how)


def partition_source(source: Source, split: "SplitFile", devices: Sequence[str], host: str) -> "Partition":
    """Return the partitioned graph of the step that `source` names, as a split divides it; raise as `load_typed`.

    Raise MismatchError when the split is of another step, VerificationError when it is invalid.
    """
    captured, shaped, _ = _load_step_to_divide(source)
    from pesto.split.files.split_check import verify_split
    from pesto.tf.partition.partitioned import partition

    division = verify_split(split, shaped)
    return partition(captured.graph_def, shaped, division, captured.fetches, devices=devices, host=host)


def run_parts(
    source: Source, split: "SplitFile", *, steps: int, devices: str | None, feeds: Batch | None
) -> "PartitionRunResult":
    """Run the step that `source` names whole and in parts (`pesto.tf.partition.partition_run`); raise as both."""
    captured, shaped, step = _load_step_to_divide(source)
    from pesto.split.files.split_check import verify_split
    from pesto.tf.partition import partition_run
    from pesto.tf.run.runnable import use_batch

    division = verify_split(split, shaped)
    return partition_run.run_parts(captured, shaped, division, use_batch(step(), feeds), steps=steps, devices=devices)


@_load_quietly()
def _load_step_to_divide(source: Source) -> "tuple[CapturedStep, TypedGraph, Callable[[], RunnableStep]]":
    """Return the step that `source` names, its typed ops, and a function that makes it runnable."""
    from pesto.tf.shaping.shaping import shape

    captured, batch, model = _load_step(source)
    return captured, shape(captured, batch=batch)[1], lambda: model or _make_runnable(captured, batch)


def _make_runnable(captured: "CapturedStep", batch: int | None) -> "RunnableStep":
    from pesto.tf.importer.shapes import resolve_shapes
    from pesto.tf.run.runnable import make_runnable

    return make_runnable(captured, resolve_shapes(captured, batch))


def build_model(source: Source) -> tuple["ModelStep", str]:
    """Build the built-in model that `source` names, and return it with its label; UsageError for an unknown one."""
    from pesto.tf import models

    try:
        family, variant = models.find(source.model or "", source.variant)
        label = model_source(family.name, variant, source.batch)
        report_phase(f"building {label}")
        step = models.build(family.name, variant, source.batch)
    except ValueError as error:
        raise UsageError.build(f"model: {error}", remedy="see pesto models") from error
    return step, label


def _load_step(source: Source) -> "tuple[CapturedStep, int | None, ModelStep | None]":
    """Return the step that `source` names, the batch that its open sizes get, and the built-in model that it is.

    A model is built with its own batch.
    """
    from pesto.tf.sources import sources

    if source.model is None:
        return _capture(source), source.batch, None
    step, label = build_model(source)
    return sources.capture_v1(step.graph, step.fetches, source=label), None, step


def _capture(source: Source, *, open_batch: bool = False) -> "CapturedStep":
    from pesto.tf.nodes.captured import set_feed_shapes
    from pesto.tf.sources import sources
    from pesto.tf.sources.callables import capture_callable

    if source.file is not None:
        report_phase(f"reading {shown(source.file.name)}")
        captured = sources.capture_file(source.file, source.fetch)
    elif source.saved_model is not None:
        report_phase(f"loading {shown(source.saved_model)}")
        captured = sources.capture_saved_model(source.saved_model, source.signature)
    elif source.function is not None:
        open_batch = open_batch or bool(source.shape)
        captured = capture_callable(source.function, source.batch, open_batch=open_batch, cut=source.cut)
    else:
        raise UsageError.build("no graph is named", remedy="give a model, a graph file, a SavedModel or a function")
    return set_feed_shapes(captured, source.shapes)
