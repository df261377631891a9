"""pesto reproduce: the tables and figures of the three papers, made again."""

from pathlib import Path

import click

from pesto.cli.options import Duration, json_option, quiet_option
from pesto.cli.printed import answer, aside, check_outputs
from pesto.core.distribution import install_command
from pesto.core.errors import Exit, SolverError
from pesto.core.files.json import shown
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show import drawing
from pesto.reporting.show.screen import one_line
from pesto.research.reproduction import results_folder
from pesto.research.reproduction.results_folder import choose_artefacts


@click.command("reproduce")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the work, page and pictures.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Cells at a time.")
@click.option(
    "--time-limit", type=Duration(), default="3", show_default=True, help="Effort of a search, which counts stretches."
)
@click.option("--tiny", is_flag=True, help="Rehearse with tiny models, in some minutes.")
@click.option("--page", type=click.Path(path_type=Path), help="Also write the page here, some pictures beside it.")
@json_option()
@quiet_option("No line for each cell.")
def reproduce_command(
    *,
    names: tuple[str, ...],
    out: Path,
    jobs: int,
    time_limit: float,
    tiny: bool,
    page: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make tables and figures of the Pesto, ParDNN and Tofu papers, ours beside the printed numbers.

    \b
    pesto reproduce fig2 table1 --out reproduced
    pesto reproduce all --out reproduced

    Names are table1, table2, table3, fig2, fig4, fig5, fig7, fig8; pardnn-fig4.2, -fig4.3, -table5.1, -table6.1,
    -fig6.1, -fig6.2, -fig6.6, -fig6.7, -overhead and -quoted; tofu-table1, -fig9a, -fig9b,
    -fig9c, -fig10 and -fig11; pardnn and tofu, all of a paper; all.

    The folder keeps every finished piece of work by version, so that a later call goes on where it was, also after
    Ctrl-C. Its page, reproduction.md, shows what it has the work of; reproduction.json has all numbers.
    """

    def hear(line: str) -> None:
        if not quiet:
            aside(one_line(line))

    wanted = choose_artefacts(names)
    check_outputs([page] if page else [], [], as_json=as_json)
    opened = results_folder.open_folder(out, time_limit, tiny=tiny)
    for other in results_folder.other_versions(opened):
        aside(f"pesto: {shown(out)} has {other} of another version or other settings: kept, and not used")
    if not drawing.available():
        aside(f"pesto: no pictures without matplotlib - {install_command('study')}")
    try:
        failed = results_folder.run_missing_cells(opened, wanted, jobs, hear)
    except KeyboardInterrupt:
        lacks = sum(count for name, count in results_folder.count_missing(opened).items() if name in wanted)
        aside(f"interrupted: what is done is kept, {lacks} pieces lack - run it again to go on")
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED) from None
    hold()
    numbers = results_folder.write_results(opened, page)
    if failed:
        more = f", and {len(failed) - 1} others" if len(failed) > 1 else ""
        raise SolverError.build(
            f"{one_line(failed[0])}{more}", remedy="what is done is kept: run it again to try the others anew"
        )
    if as_json:
        answer(numbers)
        return
    for name in wanted:
        click.echo("\n".join(results_folder.section(opened, name)))
    click.echo(f"\n{shown(out / results_folder.PAGE)} and {results_folder.NUMBERS} have all of this")
