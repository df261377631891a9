"""pesto pipeline: a chain of layers cut into stages, and the schedule of its batches."""

from pathlib import Path
from typing import NamedTuple

import click

from pesto.cli.options import Duration, json_option
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import answer
from pesto.errors import Exit, NothingFoundError, UsageError
from pesto.files.chain_file import load_chain
from pesto.files.disk import write_atomic
from pesto.files.pattern_file import save_pattern
from pesto.pipelining.kept_pattern import kept
from pesto.pipelining.pipeline import Pipeline, curve, pipelined
from pesto.pipelining.rank_actions import rank_actions
from pesto.pipelining.schedules import NAMES, Asked
from pesto.show.piped import pipeline_chart
from pesto.show.piped.pipeline_page import pipeline_object, pipeline_page
from pesto.solving.interrupt import hold, received
from solvers.pipelining.chain import MemoryModel
from solvers.pipelining.chain_json import ChainInstance


@click.command("pipeline")
@click.argument("chain", type=click.Path(path_type=Path))
@click.option("--devices", type=click.IntRange(1, 4096), required=True, help="Equal devices to lay the layers on.")
@click.option("--memory", type=click.IntRange(0), help="Bytes of each device; without a limit where left out.")
@click.option(
    "--memory-model",
    type=click.Choice([model.value for model in MemoryModel]),
    default=MemoryModel.RECEIVED.value,
    show_default=True,
    help="What counts as held: the paper's count, or also what is received and on its way.",
)
@click.option("--contiguous", is_flag=True, help="Look for no stages but one run of layers a device: quicker.")
@click.option("--micro-batches", type=int, default=8, show_default=True, help="Of a step from empty to empty.")
@click.option("--k", type=click.IntRange(0, 64), default=0, help="Look for the least period of so many batches too.")
@click.option("--time-limit", type=Duration(), default="20", show_default=True, help="Of each search by CP-SAT.")
@click.option("--schedule", metavar="NAME", help=f"Take this one: {', '.join(NAMES)}.")
@click.option("--chart", "picture", type=click.Path(path_type=Path), help="Draw the pipeline here (.png or .svg).")
@click.option("--curve", "trade", type=click.Path(path_type=Path), help="Draw the least period over memory here.")
@click.option("--export", "actions", type=click.Path(path_type=Path), help="Write what each rank does (torch CSV).")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the pattern here (.json, .json.gz).")
@json_option()
def pipeline_command(
    *, chain: Path, devices: int, memory: int | None, memory_model: str, contiguous: bool, micro_batches: int, k: int,
    time_limit: float,
    schedule: str | None, picture: Path | None, trade: Path | None, actions: Path | None, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Cut a chain of layers into stages, and find the schedule whose batches follow each other quickest.

    \b
    pesto pipeline chain.json --devices 4 --memory 100
    pesto pipeline chain.json --devices 4 --memory 100 --k 2 --chart pipe.png
    pesto pipeline chain.json --devices 4 --schedule 1f1b --export ranks.csv
    pesto pipeline chain.json --devices 4 --memory 100 -o pattern.json

    Ticks and bytes, as the chain's file has them. Ends with 4 where no stages fit the memory, and says the least that
    does; with 5 where that is not proven, or the schedule that was asked for does not fit.
    """
    wanted = _Wanted(picture, trade, actions, out)
    wanted.check(chain, as_json=as_json)
    instance = load_chain(chain)
    try:
        asked = Asked(
            chain=instance.chain, devices=devices, memory=memory, model=MemoryModel(memory_model),
            batches=micro_batches, k=k, seconds=time_limit, contiguous=contiguous,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = pipelined(asked, schedule)
    hold()
    name = instance.name or str(chain)
    wanted.write(found, instance, name)
    if as_json:
        answer(pipeline_object(found, instance.ticks_per_second))
    else:
        click.echo(pipeline_page(found, name))
    if found.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    if not found.chosen.fits:
        kept_not = "; its pattern is not written" if out is not None else ""
        raise NothingFoundError(f"{found.chosen.name} on the stages above: {found.chosen.why}{kept_not}")


class _Wanted(NamedTuple):
    """The files that are to be written."""

    picture: Path | None
    trade: Path | None
    actions: Path | None
    out: Path | None

    def check(self, chain: Path, *, as_json: bool) -> None:
        """Errors of `check_outputs` and `picture_format`, before anything is done."""
        for path in (self.picture, self.trade):
            picture_format(path)
        check_outputs([path for path in self if path is not None], [chain], as_json=as_json)

    def write(self, found: Pipeline, instance: ChainInstance, name: str) -> None:
        """All of them; no pattern where it does not fit."""
        if self.picture is not None:
            write_atomic(self.picture, pipeline_chart.draw(found, picture_format(self.picture)))
        if self.trade is not None:
            points = curve(found.asked)
            write_atomic(self.trade, pipeline_chart.draw_curve(points, name, picture_format(self.trade)))
        if self.actions is not None:
            write_atomic(self.actions, _ranks(found).encode())
        if self.out is not None and found.chosen.fits:
            save_pattern(kept(found, instance), self.out)


def _ranks(found: Pipeline) -> str:
    if found.chosen.allocation is None or found.chosen.run is None:
        raise ValueError("a schedule that was chosen has stages")
    return rank_actions(found.chosen.allocation, found.chosen.run)
