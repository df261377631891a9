"""pesto study report: tables, profiles and curves of a study, as text and as a page."""

from pathlib import Path

import click

from pesto.cli.options import Existing, json_option
from pesto.cli.printed import aside, to_json
from pesto.reporting.show.screen import one_line
from pesto.research.study.report.write import FORMATS, write_report


@click.command("report")
@click.argument("study", type=Existing(), metavar="STUDY.sqlite")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Where to write; default: STUDY-report."
)
@click.option(
    "--format", "formats", type=click.Choice(FORMATS), multiple=True, help="Write only this; repeatable. Default: all."
)
@json_option()
def report_command(*, study: Path, out: Path | None, formats: tuple[str, ...], as_json: bool) -> None:
    """Compare the configurations of a study, also of one that is still running.

    \b
    pesto study report solvers.sqlite
    pesto study report solvers.sqlite -o docs/solvers --format md --format png

    Writes report.md, report.html (one page that needs nothing else), tables as CSV and pictures as PNG and SVG. The
    study's file is only read.
    """
    written = write_report(study, out if out is not None else Path(f"{study.stem}-report"), formats or FORMATS)
    if as_json:
        click.echo(to_json(written.as_object()))
    else:
        report = written.report
        click.echo(one_line(report.name))
        for fact in report.facts:
            click.echo(f"  {one_line(fact)}")
        if report.conflicts:
            click.echo(f"  {len(report.conflicts)} contradictions: {one_line(report.conflicts[0])}")
        click.echo(f"written       {', '.join(path.name for path in written.files)}")
        if written.files:
            click.echo(f"to            {written.files[0].parent}")
        if written.hint:
            aside(written.hint)
