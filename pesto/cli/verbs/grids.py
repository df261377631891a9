"""pesto compare and sweep: one training step by every method, or on a grid of changed clusters."""

from collections.abc import Iterable
from pathlib import Path

import click

from pesto.choosing.comparison.contest import MethodEntry, chosen_methods
from pesto.choosing.whatif.points import Sweep, no_plan_error
from pesto.cli.options import (
    GroupedCommand,
    chart_option,
    cluster_option,
    costs_option,
    json_option,
    out_option,
    quiet_option,
    request_options,
    source_options,
)
from pesto.cli.printed import answer, aside, check_outputs, picture_format, to_json
from pesto.cli.terminal import Terminal, checked_step
from pesto.core.errors import Exit, UsageError
from pesto.core.files.disk import check_folder, make_folder, write_atomic
from pesto.core.plans.plan_file import save
from pesto.core.quantities import duration
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.comparison_page import comparison_object, comparison_page, draw_comparison
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.sweep_page import draw_sweep, progress_line, sweep_object, sweep_page
from pesto.verbs.plan_step import compare_step, sweep_step
from pesto.verbs.requests import CompareRequest, SweepRequest


@click.command("compare", cls=GroupedCommand)
@source_options
@cluster_option()
@costs_option()
@request_options(CompareRequest)
@out_option("plans", "Folder of the plans.")
@chart_option("Also draw it here")
@json_option()
@quiet_option()
def compare_command(
    *, request: CompareRequest, out: Path, picture: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Place a step by every method of the literature; simulate, check and save each plan.

    \b
    pesto compare --model nmt --methods all
    pesto compare --model nasnet --methods expert,m-sct,pesto --chart nasnet.png

    Methods that know memory are repaired where their plan would not fit; the others show OOM, and have no plan. Ends
    with 4 when it is proven that nothing fits, with 5 when no method's plan does.
    """
    source = checked_step(request.source)
    form = picture_format(picture)
    if not str(out).strip() or out == Path():
        raise UsageError.build("--out: no folder is named", remedy="give one, such as plans")
    inputs = [source.file] if source.file else []
    check_folder(out)
    check_outputs([picture] if picture else [], inputs, as_json=as_json)
    saved: dict[str, Path] = {}
    names = chosen_methods(request.options.methods, shapes=source.has_shapes)
    terminal = _Folder([_file(out, name) for name in names], [*inputs, *([picture] if picture else [])], quiet=quiet)

    def hear(entry: MethodEntry) -> None:
        if entry.plan is not None and entry.split is None:
            saved[entry.method] = _file(out, entry.method)
            save(entry.plan, saved[entry.method])
        brief = f"{entry.status}: {entry.detail}"
        if entry.makespan_s is not None:
            fits = "" if entry.fits else "OOM  "
            brief = f"{duration(entry.makespan_s):>13s}  {fits}placed in {entry.seconds:.2f} s"
        if not quiet:
            aside(paragraph(f"{entry.method:20s} {brief}", 2))

    contest = compare_step(request, terminal, hear)
    hold()
    if picture is not None:
        write_atomic(picture, draw_comparison(contest, form))
    if as_json:
        answer(comparison_object(contest, saved))
    else:
        click.echo(comparison_page(contest, out if saved else None))
    if contest.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    contest.best()  # or the error that says why there is none


class _Folder(Terminal):
    """Makes the folder of the plans once the step is read."""

    def __init__(self, plans: Iterable[Path], others: list[Path], *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._plans, self._others = list(plans), others

    def begin_search(self, stage: str) -> None:
        """Make the folder; FileError where no plan can be written into it."""
        del stage
        make_folder(self._plans[0].parent)
        check_outputs(self._plans, self._others, as_json=False)


def _file(folder: Path, method: str) -> Path:
    return folder / f"{method}.plan.json"


@click.command("sweep", cls=GroupedCommand)
@source_options
@cluster_option()
@costs_option()
@request_options(SweepRequest)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Keep the results here (JSON), after each point.")
@chart_option("Also draw them here")
@json_option()
@quiet_option()
def sweep_command(
    *, request: SweepRequest, out: Path | None, picture: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Solve a step on a grid of changed clusters (Pesto's Fig 8): what if devices or links were faster?

    \b
    pesto sweep --model nmt --compute 0.5,1,2 --links 0.1,1 --chart sweep.png
    pesto sweep --model rnnlm --devices 2,4,8 --memory 0.5,1 --cross --json

    Each point starts from its neighbour's plan. A point without a plan is a row that says why; ends with 4, 5 or 3 when
    no point has one. Ctrl-C keeps the rows that are done.
    """
    source, form = checked_step(request.source), picture_format(picture)
    outputs = [path for path in (out, picture) if path is not None]
    check_outputs(outputs, [source.file] if source.file else [], as_json=as_json)

    def hear(points: Sweep) -> None:
        if out is not None:
            write_atomic(out, to_json(sweep_object(points)).encode())
        if not quiet:
            aside(progress_line(points))

    points = sweep_step(request, Terminal(quiet=quiet), hear)
    hold()
    if out is not None:
        write_atomic(out, to_json(sweep_object(points)).encode())
    if picture is not None:
        write_atomic(picture, draw_sweep(points, form))
    if as_json:
        answer(sweep_object(points))
    else:
        click.echo(sweep_page(points))
    # End with the code of an interruption, or of what kept every point from a plan.
    if points.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    if all(row.plan is None for row in points.rows):
        raise no_plan_error(points)
