"""Pipeline a training step or a chain of layers, or spread the layers of one over devices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.files.solver_files import load_chain, save_pattern
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import save
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_late
from pesto.pipelining.late_pipeline import pipeline_without_flush
from pesto.pipelining.max_load import MaxLoad, chain_layers, spread_layers, step_layers
from pesto.pipelining.pattern_certificate import chosen_pattern
from pesto.pipelining.pipeline import Pipeline, describe_shortfall, find_pipeline, period_curve
from pesto.pipelining.schedules import ChainRequest, ChainSchedule, check_name
from pesto.pipelining.staged_step import BATCHES, StagedStep
from pesto.pipelining.step_pipeline import SEARCH_S, STEP_NAMES, StepPipeline, pipeline_staged, step_stages
from pesto.pipelining.unrolled import rank_actions
from pesto.planning.solving.interrupt import hold, received, release
from pesto.reporting.show import pipeline_chart
from pesto.reporting.show.pipeline_page import (
    max_load_object,
    max_load_page,
    pipeline_object,
    pipeline_page,
    step_object,
    step_page,
)
from pesto.verbs.plan_step import read_step
from pesto.verbs.requests import Context, PipelineRequest
from solvers.pipelining.chain import Machines, MemoryModel
from solvers.pipelining.chain_json import ChainInstance


class PipelineFiles(NamedTuple):
    """The files that are to be written of a pipeline."""

    picture: Path | None
    curve: Path | None
    actions: Path | None
    """Actions of each rank (torch CSV)."""
    stages: Path | None
    """The stage and the devices of each op; of a step."""
    out: Path | None
    """The plan, of a chain the pattern."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pipelined:
    """A schedule of a chain in stages, as charts and other runtimes have it."""

    request: ChainRequest
    schedule: ChainSchedule
    title: str
    """Name of the chain or the step in a chart."""
    ranks: Sequence[int]
    """The device of each rank."""
    units: pipeline_chart.ChartUnits = pipeline_chart.NATURAL
    interrupted: bool
    """True where Ctrl-C ended a search."""

    def draw(self, files: PipelineFiles) -> bool:
        """Write the pictures and what each rank does; False where Ctrl-C ended the search for points of the curve."""
        if files.picture is not None:
            form = files.picture.suffix.lower().lstrip(".")
            chart = pipeline_chart.draw_pipeline(self.request, self.schedule, form, self.units)
            write_atomic(files.picture, chart)
        if files.actions is not None:
            if self.schedule.run is None:
                raise ValueError("a schedule that was chosen was laid out")
            actions = rank_actions(self.schedule.rows, self.ranks, self.schedule.run)
            write_atomic(files.actions, actions.encode())
        if files.curve is None:
            return True
        try:
            release()
            points = [] if received() else period_curve(self.request)
        except KeyboardInterrupt:
            points = []
        hold()
        if points:
            form = files.curve.suffix.lower().lstrip(".")
            write_atomic(files.curve, pipeline_chart.draw_curve(points, self.title, form, self.units))
        return bool(points)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelinedStep(_Pipelined):
    """A training step in stages, with everything that is said of it."""

    pipeline: StepPipeline

    def write(self, files: PipelineFiles) -> bool:
        """Write the plan, the stages, and what `draw` writes."""
        if files.out is not None:
            save(self.pipeline.plan, files.out)
        if files.stages is not None:
            write_atomic(files.stages, step_stages(self.pipeline).encode())
        return self.draw(files)

    def as_object(self, out: Path | None) -> dict[str, Any]:
        """Return what --json prints."""
        return step_object(self.pipeline, out)

    def page(self, out: Path | None) -> str:
        """Return what is printed for people."""
        return step_page(self.pipeline, out)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelinedChain(_Pipelined):
    """A chain in stages, with everything that is said of it."""

    pipeline: Pipeline
    instance: ChainInstance

    def write(self, files: PipelineFiles) -> bool:
        """Write the pattern, where it fits the memory, and what `draw` writes."""
        if files.out is not None and self.schedule.fits:
            save_pattern(chosen_pattern(self.pipeline, self.instance), files.out)
        return self.draw(files)

    def as_object(self, out: Path | None) -> dict[str, Any]:
        """Return what --json prints."""
        written = out if self.schedule.fits else None
        return pipeline_object(self.pipeline, self.instance.ticks_per_second, written)

    def page(self, out: Path | None) -> str:  # noqa: ARG002 - as of a step
        """Return what is printed for people."""
        return pipeline_page(self.pipeline, self.title)

    def check_fits(self, out: Path | None) -> None:
        """Raise NothingFoundError where the schedule that was asked for does not fit, so that `out` is not written."""
        if not self.schedule.fits:
            kept_not = "; its pattern is not written" if out is not None else ""
            lack, remedy = describe_shortfall(self.pipeline)
            raise NothingFoundError.build(f"{self.schedule.name} on the stages above: {lack}{kept_not}", remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpreadLayers:
    """Layers spread over devices, with everything that is said of them."""

    spread: MaxLoad
    devices: tuple[str, ...]
    """[P] names of the devices."""
    title: str

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search."""
        return self.spread.interrupted

    def as_object(self) -> dict[str, Any]:
        """Return what --json prints."""
        return max_load_object(self.spread, self.devices)

    def page(self) -> str:
        """Return what is printed for people."""
        return max_load_page(self.spread, self.devices, self.title)


def pipeline_step(request: PipelineRequest, context: Context) -> PipelinedStep:
    """Cut a training step into stages, on modelled costs, in the shortest schedule that fits or the named one.

    UsageError for a schedule that there is not or that options leave out, and for a cluster of one accelerator, or of
    different ones; InputError for a graph that is no training step; InfeasibleError where the variables cannot fit;
    NothingFoundError, with the bytes that lack, where no schedule fits. Ctrl-C keeps the best that was found;
    KeyboardInterrupt before there is any.
    """
    options = request.options
    name, seconds, contiguous = options.schedule, options.time_limit_s, options.contiguous
    check_name(name, STEP_NAMES, k=options.k, contiguous=contiguous)
    if not options.asynchronous:
        staged = _staged(request, context)
        search_s = options.search_s if options.search_s is not None else SEARCH_S if name is None else 0.0
        pipeline = pipeline_staged(
            staged, staged.request(k=options.k, seconds=seconds, contiguous=contiguous), name, search_s
        )
    else:
        cluster = load_cluster(request.cluster)  # before the step, which takes seconds to read
        if options.search_s:
            raise UsageError.build("search is for steps with a flush", remedy="leave it out, or let the step flush")
        source = request.step()
        if isinstance(source, Graph):
            raise UsageError.build("a graph has the updates that it has", remedy="name the function it was traced from")
        trace = load_late(source, quiet=context.quiet)
        pipeline = pipeline_without_flush(trace, cluster, name, k=options.k, seconds=seconds, contiguous=contiguous)
    hold()
    return PipelinedStep(
        pipeline=pipeline, request=pipeline.request, schedule=pipeline.chosen.schedule,
        title=pipeline.staged.step.graph.source,
        ranks=np.argsort(pipeline.staged.fast).tolist(), interrupted=pipeline.interrupted,
        units=pipeline_chart.OF_STEPS._replace(names=pipeline.accelerators),
    )  # fmt: skip


def spread_step(request: PipelineRequest, context: Context) -> SpreadLayers:
    """Spread the layers of a training step over the cluster's accelerators; errors as of `spread_layers`."""
    staged = _staged(request, context)
    names = tuple(staged.cluster.devices[at].name for at in staged.fast.tolist())
    seconds = request.options.time_limit_s
    spread = spread_layers(step_layers(staged), len(names), staged.memory, seconds=seconds)
    return SpreadLayers(spread=spread, devices=names, title=staged.one.source)


def _staged(request: PipelineRequest, context: Context) -> StagedStep:
    cluster = load_cluster(request.cluster)  # before the step, which takes seconds to read
    source = request.step()
    if isinstance(source, Graph):
        return StagedStep.of(source, cluster, request.micro_batches)
    # A function cuts its batch itself; all else is repeated here.
    repeated = None if source.pieces else source.micro_batches
    return StagedStep.of(read_step(replace(source, micro_batches=source.pieces), context), cluster, repeated)


def pipeline_chain(request: PipelineRequest) -> PipelinedChain:
    """Cut the chain of a file into stages; errors as of `find_pipeline`, and UsageError for devices that are not named.

    The schedule that was asked for may not fit the memory: `PipelinedChain.check_fits`.
    """
    options, (instance, machines, title) = request.options, _load_chain(request)
    batches = request.source.micro_batches if isinstance(request.source, Source) else request.micro_batches
    try:
        chain_request = ChainRequest(
            chain=instance.chain, machines=machines, model=MemoryModel(request.memory_model), k=options.k,
            batches=batches or BATCHES, seconds=options.time_limit_s, contiguous=options.contiguous,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError.of(error) from error
    pipeline = find_pipeline(chain_request, options.schedule)
    hold()
    return PipelinedChain(
        pipeline=pipeline, request=pipeline.request, schedule=pipeline.chosen, title=title,
        ranks=range(machines.devices), instance=instance, interrupted=pipeline.interrupted,
    )  # fmt: skip


def spread_chain(request: PipelineRequest) -> SpreadLayers:
    """Spread the layers of a chain over equal devices; errors as of `spread_layers` and `pipeline_chain`."""
    instance, machines, title = _load_chain(request)
    if not machines.equal:
        raise UsageError.build(
            f"the devices of {request.chain} differ", remedy="leave out --max-load, or make them equal"
        )
    names = tuple(f"device {d}" for d in range(machines.devices))
    layers, seconds = chain_layers(instance.chain), request.options.time_limit_s
    spread = spread_layers(layers, machines.devices, machines.limits[0], seconds=seconds)
    return SpreadLayers(spread=spread, devices=names, title=title)


def _load_chain(request: PipelineRequest) -> tuple[ChainInstance, Machines, str]:
    """Return the chain, its devices and its name; the devices are its file's, or so many equal ones."""
    path, devices, memory = request.chain, request.devices, request.memory
    if path is None:
        raise UsageError("no chain is named")
    instance = load_chain(path)
    title = instance.name or str(path)
    if instance.machines is None and devices is None:
        raise UsageError.build("on how many devices?", remedy="give --devices, such as 4, or name devices in the file")
    if instance.machines is None:
        return instance, Machines.alike(devices or 0, memory), title
    if devices is not None:
        raise UsageError.build(f"{path} names its {instance.machines.devices} devices", remedy="leave out --devices")
    machines = instance.machines.within(memory)
    return replace(instance, machines=machines), machines, title
