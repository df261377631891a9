"""pesto pipeline: a training step, or a chain of layers, cut into stages, and the schedule of its batches."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from pesto.cli.options import Duration, cluster_option, json_option, quiet_option, refuse, source_options
from pesto.cli.printed import answer, aside, check_outputs, picture_format
from pesto.cli.terminal import read_step
from pesto.core.errors import Exit, NothingFoundError, UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.files.solver_files import load_chain, save_pattern
from pesto.core.plans.plan_file import save
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_late
from pesto.pipelining.late_pipeline import pipeline_without_flush
from pesto.pipelining.max_load import chain_layers, spread_layers, step_layers
from pesto.pipelining.pattern_certificate import chosen_pattern
from pesto.pipelining.pipeline import Pipeline, describe_shortfall, find_pipeline, period_curve
from pesto.pipelining.schedules import NAMES, REPLICATED, ChainSchedule, PipelineRequest
from pesto.pipelining.staged_step import BATCHES, StagedStep
from pesto.pipelining.step_pipeline import SEARCH_S, PipelineOptions, StepPipeline, pipeline_step, step_stages
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
from solvers.pipelining.chain import Machines, MemoryModel
from solvers.pipelining.chain_json import ChainInstance
from solvers.pipelining.layer_dag import LayerDag

_OF_CHAINS = ("devices", "memory", "memory_model")
_OF_SCHEDULES = (
    "memory_model", "asynchronous", "updates_each", "contiguous", "k", "search", "schedule", "picture", "trade",
    "actions", "listed", "out",
)  # fmt: skip


@click.command("pipeline")
@click.argument("chain", type=click.Path(path_type=Path), required=False)
@source_options
@cluster_option()
@click.option(
    "--devices", type=click.IntRange(1, 4096), help="Of a chain: so many equal devices, if its file names none."
)
@click.option("--memory", type=click.IntRange(0), help="Of a chain: bytes of each device that has no limit yet.")
@click.option(
    "--memory-model",
    type=click.Choice([model.value for model in MemoryModel]),
    default=MemoryModel.RECEIVED.value,
    show_default=True,
    help="What counts as held: the paper's count, or also what is received and on its way.",
)
@click.option(
    "--asynchronous",
    is_flag=True,
    help="Of a function: update behind every micro-batch, by late weights (PipeDream). Changes what is computed.",
)
@click.option(
    "--updates-each",
    type=click.IntRange(1),
    help="With --asynchronous: so many micro-batches an update; with 2 or more all weights are one update late (2BW).",
)
@click.option(
    "--max-load", is_flag=True, help="Only spread layers so that the busiest device, sends included, has least to do."
)
@click.option("--contiguous", is_flag=True, help="Look for no stages that are shared, or not one run of layers.")
@click.option("--k", type=click.IntRange(0, 64), default=0, help="Look for the least period of so many batches too.")
@click.option("--time-limit", type=Duration(), default="20", show_default=True, help="Of all searches by CP-SAT.")
@click.option(
    "--search",
    type=Duration(),
    help=f"Of a step: search op by op from the best schedules, or the named one; {SEARCH_S:g} s where none is named.",
)
@click.option("--schedule", metavar="NAME", help=f"Take this one: {', '.join(NAMES)}; of a step {REPLICATED} too.")
@click.option("--chart", "picture", type=click.Path(path_type=Path), help="Draw the pipeline here (.png or .svg).")
@click.option("--curve", "trade", type=click.Path(path_type=Path), help="Draw the least period over memory here.")
@click.option("--export", "actions", type=click.Path(path_type=Path), help="Write what each rank does (torch CSV).")
@click.option(
    "--stages", "listed", type=click.Path(path_type=Path), help="Of a step: write each op's stage and devices (CSV)."
)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the plan, of a chain the pattern, here.")
@json_option()
@quiet_option()
def pipeline_command(
    *, chain: Path | None, source: Source, cluster: str, devices: int | None, memory: int | None, memory_model: str,
    asynchronous: bool, updates_each: int | None, max_load: bool, contiguous: bool, k: int, time_limit: float,
    search: float | None,
    schedule: str | None, picture: Path | None, trade: Path | None, actions: Path | None, listed: Path | None,
    out: Path | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Cut a training step into stages, and find the schedule whose micro-batches follow each other quickest.

    \b
    pesto pipeline --model transformer --cluster v100x4 --micro-batches 16
    pesto pipeline --graph step.json --cluster v100x4 --chart pipe.png
    pesto pipeline chain.json --devices 4 --memory 100
    pesto pipeline chain.json --devices 4 --schedule 1f1b --export ranks.csv

    A step has --micro-batches times its batch: gradients are added up, variables are updated once. All schedules are
    laid over it op by op, and the shortest that fits is the plan. CHAIN is a file of layers, in ticks and bytes.
    With --asynchronous every micro-batch updates, and reads weights that are some updates late, as PipeDream does;
    with --updates-each M one does for M, and all reads are one update late, as in PipeDream-2BW.
    Devices may share a stage where that is shorter, each with whole batches; --contiguous leaves that out.
    With --max-load no batches are scheduled: layers are spread over the devices, with each one's load and a bound.
    Ends with 4 where nothing can fit the memory; with 5 where that is not proven, or what was asked for does not fit.
    """
    wanted = _Wanted(picture, trade, actions, listed, out)
    if max_load:
        refuse("--max-load schedules no batches", *_OF_SCHEDULES)
    if chain is None:
        refuse("a step's devices and memory are its cluster's", *_OF_CHAINS)
        source = replace(source, every=updates_each or 1).checked()
        wanted.check(source.file, as_json=as_json)
        if max_load:
            _tell_max_load(_layers_of_step(source, cluster, quiet=quiet), time_limit, as_json=as_json)
            return
        wish = PipelineOptions(name=schedule, k=k, seconds=time_limit, search=search, contiguous=contiguous)
        step = _of_step(source, cluster, wish, asynchronous=asynchronous, quiet=quiet)
        _tell_step(step, wanted, as_json=as_json)
        return
    if source != Source(micro_batches=source.micro_batches):
        raise UsageError.build(f"{chain} and the options name two things to lay out", remedy="leave out one of them")
    refuse("a chain is of equal devices", "cluster")
    refuse("a chain has no ops", "search", "listed", "asynchronous", "updates_each")
    wanted.check(chain, as_json=as_json)
    instance, machines = _machines(load_chain(chain), chain, devices, memory)
    if max_load:
        refuse("the load of a chain is of one batch", "micro_batches")
        if not machines.equal:
            raise UsageError.build(f"the devices of {chain} differ", remedy="leave out --max-load, or make them equal")
        names, room = tuple(f"device {d}" for d in range(machines.devices)), machines.limits[0]
        layers = _SpreadTask(chain_layers(instance.chain), names, room, instance.name or str(chain))
        _tell_max_load(layers, time_limit, as_json=as_json)
        return
    try:
        asked = PipelineRequest(
            chain=instance.chain, machines=machines, model=MemoryModel(memory_model),
            batches=source.micro_batches or BATCHES, k=k, seconds=time_limit, contiguous=contiguous,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from error
    _tell_chain(find_pipeline(asked, schedule), instance, instance.name or str(chain), wanted, as_json=as_json)


def _machines(
    instance: ChainInstance, path: Path, devices: int | None, memory: int | None
) -> tuple[ChainInstance, Machines]:
    """The devices of a chain's file, or so many equal ones; `memory` for those that have no limit of their own."""
    if instance.machines is None:
        if devices is None:
            raise UsageError.build(
                "on how many devices?", remedy="give --devices, such as 4, or name devices in the file"
            )
        return instance, Machines.alike(devices, memory)
    if devices is not None:
        raise UsageError.build(f"{path} names its {instance.machines.devices} devices", remedy="leave out --devices")
    machines = instance.machines.within(memory)
    return replace(instance, machines=machines), machines


class _SpreadTask(NamedTuple):
    """Layers to be spread over equal devices."""

    dag: LayerDag
    devices: tuple[str, ...]
    """[P] names of the devices."""
    memory: int | None
    """Bytes of each device; None: no limit."""
    name: str


def _layers_of_step(source: Source, cluster: str, *, quiet: bool) -> _SpreadTask:
    machine = load_cluster(cluster)  # before the step, which takes seconds to read
    repeated = None if source.pieces else source.micro_batches
    staged = StagedStep.of(read_step(replace(source, micro_batches=source.pieces), quiet=quiet), machine, repeated)
    names = tuple(machine.devices[at].name for at in staged.fast.tolist())
    return _SpreadTask(step_layers(staged), names, staged.memory, staged.one.source)


def _tell_max_load(layers: _SpreadTask, seconds: float, *, as_json: bool) -> None:
    spread = spread_layers(layers.dag, len(layers.devices), layers.memory, seconds=seconds)
    if as_json:
        answer(max_load_object(spread, layers.devices))
    else:
        click.echo(max_load_page(spread, layers.devices, layers.name))
    if spread.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)


def _of_step(source: Source, cluster: str, wish: PipelineOptions, *, asynchronous: bool, quiet: bool) -> StepPipeline:
    devices = load_cluster(cluster)  # before the step, which takes seconds to read
    if asynchronous:
        return pipeline_without_flush(load_late(source, quiet=quiet), devices, wish)
    refuse("a step with a flush updates once", "updates_each")
    repeated = None if source.pieces else source.micro_batches
    graph = read_step(replace(source, micro_batches=source.pieces), quiet=quiet)
    return pipeline_step(graph, devices, batches=repeated, wish=wish)


def _tell_step(found: StepPipeline, wanted: "_Wanted", *, as_json: bool) -> None:
    hold()
    if wanted.out is not None:
        save(found.plan, wanted.out)
    units = pipeline_chart.OF_STEPS._replace(names=found.accelerators)
    wanted.draw(found.request, found.chosen.schedule, units)
    if wanted.actions is not None:
        _save_ranks(found.chosen.schedule, np.argsort(found.staged.fast).tolist(), wanted.actions)
    if wanted.listed is not None:
        write_atomic(wanted.listed, step_stages(found).encode())
    wanted.draw_curve(found.request, found.staged.step.graph.source, units)
    if as_json:
        answer(step_object(found, wanted.out))
    else:
        click.echo(step_page(found, wanted.out))
    if found.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)


def _tell_chain(found: Pipeline, instance: ChainInstance, name: str, wanted: "_Wanted", *, as_json: bool) -> None:
    hold()
    if wanted.out is not None and found.chosen.fits:
        save_pattern(chosen_pattern(found, instance), wanted.out)
    wanted.draw(found.request, found.chosen)
    if wanted.actions is not None:
        _save_ranks(found.chosen, list(range(found.request.devices)), wanted.actions)
    wanted.draw_curve(found.request, name)
    if as_json:
        answer(pipeline_object(found, instance.ticks_per_second, wanted.out if found.chosen.fits else None))
    else:
        click.echo(pipeline_page(found, name))
    if found.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    if not found.chosen.fits:
        kept_not = "; its pattern is not written" if wanted.out is not None else ""
        raise NothingFoundError(f"{found.chosen.name} on the stages above: {describe_shortfall(found)}{kept_not}")


class _Wanted(NamedTuple):
    """The files that are to be written."""

    picture: Path | None
    trade: Path | None
    actions: Path | None
    listed: Path | None
    out: Path | None

    def check(self, given: Path | None, *, as_json: bool) -> None:
        """Errors of `check_outputs` and `picture_format`, before anything is done."""
        for path in (self.picture, self.trade):
            picture_format(path)
        outputs = [path for path in self if path is not None]
        check_outputs(outputs, [given] if given is not None else [], as_json=as_json)

    def draw(
        self, asked: PipelineRequest, chosen: ChainSchedule, units: pipeline_chart.ChartUnits = pipeline_chart.NATURAL
    ) -> None:
        """The pipeline."""
        if self.picture is not None:
            write_atomic(self.picture, pipeline_chart.draw_pipeline(asked, chosen, picture_format(self.picture), units))

    def draw_curve(
        self, asked: PipelineRequest, name: str, units: pipeline_chart.ChartUnits = pipeline_chart.NATURAL
    ) -> None:
        """The curve, whose points are searched for: not after Ctrl-C, which ends that and nothing else."""
        if self.trade is None:
            return
        try:
            release()
            points = [] if received() else period_curve(asked)
        except KeyboardInterrupt:
            points = []
        hold()
        if points:
            write_atomic(self.trade, pipeline_chart.draw_curve(points, name, picture_format(self.trade), units))
        else:
            aside(f"interrupted: {self.trade} is not drawn")


def _save_ranks(chosen: ChainSchedule, ranks: list[int], path: Path) -> None:
    if chosen.run is None:
        raise ValueError("a schedule that was chosen was laid out")
    write_atomic(path, rank_actions(chosen.rows, ranks, chosen.run).encode())
