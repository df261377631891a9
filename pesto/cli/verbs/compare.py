"""pesto compare: every method on one training step."""

from pathlib import Path

import click

from pesto.choosing.comparison.contest import Entrants, Hear, MethodEntry, chosen_methods, compete
from pesto.choosing.comparison.methods import METHODS
from pesto.cli.options import (
    Duration,
    chart_option,
    cluster_option,
    costs_option,
    json_option,
    out_option,
    quiet_option,
    refuse,
    solver_option,
    source_options,
)
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import answer, aside
from pesto.cli.terminal import read_shapes, read_step
from pesto.core.errors import Exit, UsageError
from pesto.core.files.disk import check_folder, make_folder, write_atomic
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import save
from pesto.core.quantities import duration
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.comparison_page import comparison_object, comparison_page, draw_comparison
from pesto.reporting.show.lines import paragraph
from pesto.split.typed_graph import TypedGraph


@click.command("compare")
@source_options
@cluster_option()
@costs_option()
@click.option("--methods", default="all", show_default=True, help="Names with commas between, or all.")
@click.option(
    "--time-limit",
    type=Duration(),
    default="30",
    show_default=True,
    help="Of each method that searches (mcmc: at most 10 s).",
)
@solver_option("Of the method pesto: see pesto solvers.")
@click.option("--headroom", type=float, default=0.1, show_default=True, help="Memory that repairs spare at first.")
@click.option("--seed", type=int, default=0, show_default=True)
@out_option("plans", "Folder of the plans.")
@chart_option("Also draw it here")
@json_option()
@quiet_option()
def compare_command(
    *,
    source: Source,
    cluster: str,
    costs: Path | None,
    methods: str,
    time_limit: float,
    solver: str,
    headroom: float,
    seed: int,
    out: Path,
    picture: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Place a step by every method of the literature; simulate, check and save each plan.

    \b
    pesto compare --model nmt --methods all
    pesto compare --model nasnet --methods expert,m-sct,pesto --chart nasnet.png

    Methods that know memory are repaired where their plan would not fit; the others show OOM, and have no plan. Ends
    with 4 when it is proven that nothing fits, with 5 when no method's plan does.
    """
    source.checked()
    names = _named(methods, shapes=source.has_shapes)
    settings = Settings(time_limit_s=time_limit, solver=solver, headroom=headroom, seed=seed)
    machine = load_cluster(cluster)
    form = picture_format(picture)
    if not str(out).strip() or out == Path():
        raise UsageError.build("--out: no folder is named", remedy="give one, such as plans")
    inputs = [source.file] if source.file else []
    check_folder(out)
    check_outputs([picture] if picture else [], inputs, as_json=as_json)
    graph, entrants = _read(source, names, quiet=quiet)
    op_costs = load_costs(graph, machine, costs)
    files = {name: out / f"{name}.plan.json" for name in names}
    make_folder(out)
    check_outputs([*files.values(), *([picture] if picture else [])], inputs, as_json=as_json)
    saved: dict[str, Path] = {}
    hear = _hearing(files, saved, quiet=quiet)
    contest = compete(graph, machine, op_costs, settings, hear, entrants=entrants)
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


def _read(source: Source, names: tuple[str, ...], *, quiet: bool) -> tuple[Graph, Entrants]:
    """The graph, with shapes where a method needs them."""
    if any(METHODS[name].cuts for name in names):
        graph, shapes = read_shapes(source, quiet=quiet)
        return graph, Entrants(names, shapes) if isinstance(shapes, TypedGraph) else Entrants(names, shapeless=shapes)
    return read_step(source, quiet=quiet), Entrants(names)


def _named(methods: str, *, shapes: bool) -> tuple[str, ...]:
    """The methods; UsageError for an unknown one, and for a solver that none of them has."""
    names = chosen_methods(methods, shapes=shapes)
    if "pesto" not in names:
        refuse("only the method pesto has an exact solver, and it is not among the methods", "solver")
    return names


def _hearing(files: dict[str, Path], saved: dict[str, Path], *, quiet: bool) -> Hear:
    """Save each plan as it comes, note that in `saved`, and say so."""

    def hear(entry: MethodEntry) -> None:
        if entry.plan is not None and entry.split is None:
            save(entry.plan, files[entry.method])
            saved[entry.method] = files[entry.method]
        if not quiet:
            aside(paragraph(f"{entry.method:20s} {_brief(entry)}", 2))

    return hear


def _brief(entry: MethodEntry) -> str:
    if entry.makespan_s is None:
        return f"{entry.status}: {entry.detail}"
    return f"{duration(entry.makespan_s):>13s}  {'' if entry.fits else 'OOM  '}placed in {entry.seconds:.2f} s"
