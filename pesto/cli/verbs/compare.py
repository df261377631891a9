"""pesto compare: every method on one training step."""

from pathlib import Path

import click

from pesto.choosing.comparison.contest import Hear, MethodEntry
from pesto.choosing.comparison.methods import METHODS
from pesto.cli.declared import GroupedCommand, request_options
from pesto.cli.options import (
    chart_option,
    cluster_option,
    costs_option,
    json_option,
    out_option,
    quiet_option,
    source_options,
)
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import answer, aside
from pesto.cli.terminal import Terminal, checked_step
from pesto.core.errors import Exit, UsageError
from pesto.core.files.disk import check_folder, make_folder, write_atomic
from pesto.core.plans.plan_file import save
from pesto.core.quantities import duration
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.comparison_page import comparison_object, comparison_page, draw_comparison
from pesto.reporting.show.lines import paragraph
from pesto.verbs.many_plans import compare_step
from pesto.verbs.requests import CompareRequest


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
    terminal = _Folder(out, [*inputs, *([picture] if picture else [])], quiet=quiet)
    contest = compare_step(request, terminal, _hearing(out, saved, quiet=quiet))
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

    def __init__(self, out: Path, others: list[Path], *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._out, self._others = out, others

    def begin_search(self, stage: str) -> None:
        """Make the folder; FileError where no plan can be written into it."""
        del stage
        make_folder(self._out)
        check_outputs([_file(self._out, name) for name in METHODS], self._others, as_json=False)


def _file(folder: Path, method: str) -> Path:
    return folder / f"{method}.plan.json"


def _hearing(out: Path, saved: dict[str, Path], *, quiet: bool) -> Hear:
    """Save each plan as it comes, note that in `saved`, and say so."""

    def hear(entry: MethodEntry) -> None:
        if entry.plan is not None and entry.split is None:
            saved[entry.method] = _file(out, entry.method)
            save(entry.plan, saved[entry.method])
        if not quiet:
            aside(paragraph(f"{entry.method:20s} {_brief(entry)}", 2))

    return hear


def _brief(entry: MethodEntry) -> str:
    if entry.makespan_s is None:
        return f"{entry.status}: {entry.detail}"
    return f"{duration(entry.makespan_s):>13s}  {'' if entry.fits else 'OOM  '}placed in {entry.seconds:.2f} s"
