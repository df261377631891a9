"""pesto pipeline: a training step, or a chain of layers, cut into stages, and the schedule of its batches."""

from pathlib import Path

import click

from pesto.cli.options import (
    GroupedCommand,
    cluster_option,
    json_option,
    quiet_option,
    refuse,
    request_options,
    source_options,
)
from pesto.cli.printed import answer, aside, check_outputs, picture_format
from pesto.cli.terminal import Terminal
from pesto.core.errors import Exit, UsageError
from pesto.core.source import Source
from pesto.planning.solving.interrupt import received
from pesto.verbs.pipeline_step import (
    PipelinedChain,
    PipelinedStep,
    PipelineFiles,
    SpreadLayers,
    pipeline_chain,
    pipeline_step,
    spread_chain,
    spread_step,
)
from pesto.verbs.requests import PipelineRequest

_OF_CHAINS = ("devices", "memory", "memory_model")
_OF_SCHEDULES = (
    "memory_model", "asynchronous", "updates_each", "contiguous", "k", "search_s", "schedule", "picture", "trade",
    "actions", "listed", "out",
)  # fmt: skip


@click.command("pipeline", cls=GroupedCommand)
@click.argument("chain", type=click.Path(path_type=Path), required=False)
@source_options
@cluster_option()
@request_options(PipelineRequest)
@click.option(
    "--max-load", is_flag=True, help="Only spread layers so that the busiest device, sends included, has least to do."
)
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
    *, request: PipelineRequest, max_load: bool, picture: Path | None, trade: Path | None, actions: Path | None,
    listed: Path | None, out: Path | None, as_json: bool, quiet: bool,
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
    files = PipelineFiles(picture, trade, actions, listed, out)
    if max_load:
        refuse("--max-load schedules no batches", *_OF_SCHEDULES)
    if request.chain is None:
        refuse("a step's devices and memory are its cluster's", *_OF_CHAINS)
        source = request.step()
        _check_files(files, source.file if isinstance(source, Source) else None, as_json=as_json)
        if max_load:
            return _tell_load(spread_step(request, Terminal(quiet=quiet)), as_json=as_json)
        if not request.options.asynchronous:
            refuse("a step with a flush updates once", "updates_each")
        return _tell(pipeline_step(request, Terminal(quiet=quiet)), files, as_json=as_json)
    if isinstance(request.source, Source) and request.source != Source(micro_batches=request.source.micro_batches):
        raise UsageError.build(
            f"{request.chain} and the options name two things to lay out", remedy="leave out one of them"
        )
    refuse("a chain is of equal devices", "cluster")
    refuse("a chain has no ops", "search_s", "listed", "asynchronous", "updates_each")
    _check_files(files, request.chain, as_json=as_json)
    if max_load:
        refuse("the load of a chain is of one batch", "micro_batches")
        return _tell_load(spread_chain(request), as_json=as_json)
    return _tell(pipeline_chain(request), files, as_json=as_json)


def _check_files(files: PipelineFiles, given: Path | None, *, as_json: bool) -> None:
    """Raise the errors of `check_outputs` and `picture_format`, before anything is done."""
    for path in (files.picture, files.curve):
        picture_format(path)
    outputs = [path for path in files if path is not None]
    check_outputs(outputs, [given] if given is not None else [], as_json=as_json)


def _tell(pipelined: PipelinedStep | PipelinedChain, files: PipelineFiles, *, as_json: bool) -> None:
    if not pipelined.write(files):
        aside(f"interrupted: {files.curve} is not drawn")
    if as_json:
        answer(pipelined.as_object(files.out))
    else:
        click.echo(pipelined.page(files.out))
    _end(interrupted=pipelined.interrupted)
    if isinstance(pipelined, PipelinedChain):
        pipelined.check_fits(files.out)


def _tell_load(layers: SpreadLayers, *, as_json: bool) -> None:
    if as_json:
        answer(layers.as_object())
    else:
        click.echo(layers.page())
    _end(interrupted=layers.interrupted)


def _end(*, interrupted: bool) -> None:
    """End with the code of an interruption if there was one."""
    if interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
