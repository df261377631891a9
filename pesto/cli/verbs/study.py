"""pesto study: compare solvers, sizes and settings over a grid of instances, and report it."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from pesto.cli import completion
from pesto.cli.options import Existing, json_option, quiet_option
from pesto.cli.printed import aside, to_json
from pesto.core.distribution import VERSION
from pesto.core.errors import Exit
from pesto.core.executing.executor import Executor
from pesto.core.files import lock
from pesto.core.files.json import shown
from pesto.core.quantities import percent, plural
from pesto.planning.solving.interrupt import received
from pesto.reporting.show.lines import align_rows
from pesto.reporting.show.screen import one_line
from pesto.research.study import runner, store
from pesto.research.study.cells import cells_of
from pesto.research.study.report.write import FORMATS, write_report
from pesto.research.study.spec import load_study
from pesto.research.study.store import peeked
from solvers import relative_gap


class _StudyVerbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)  # as they are used one after the other, not by name


@click.group("study", cls=_StudyVerbs)
def study_command() -> None:
    """Compare solvers over a grid of instances, and report it.

    \b
    pesto study run solvers
    pesto study run my.toml --db my.sqlite --jobs 4
    pesto study status my.sqlite
    """


@study_command.command("run")
@click.argument("study", metavar="NAME|FILE.toml", shell_complete=completion.studies)
@click.option("--db", type=click.Path(path_type=Path), help="The study's file; default: NAME.sqlite.")
@click.option("--jobs", type=click.IntRange(1, 4096), help="Cells at a time; default: one for every two cores.")
@click.option("--executor", type=click.Choice(["processes", "ray"]), default="processes", show_default=True)
@click.option("--limit-cells", type=click.IntRange(0), metavar="N", help="Stop after N cells.")
@click.option("--retry-failed", is_flag=True, help="First forget the cells that failed, and run them again.")
@json_option()
@quiet_option("No line for each cell.")
def run_command(
    *,
    study: str,
    db: Path | None,
    jobs: int | None,
    executor: str,
    limit_cells: int | None,
    retry_failed: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the cells of a study that are still to be run.

    However a run ends, the next one goes on where it was: every cell is in the file with all that came of it, or not
    at all.
    """
    loaded = load_study(study)
    cells = cells_of(loaded)
    path = db if db is not None else Path(f"{loaded.spec.name}.sqlite")
    real = lock.real_path(path)
    with lock.hold_lock(real, store.LOCK), store.opened(real) as file:
        file.sync(loaded, cells, VERSION)
        again = file.retry_failed() if retry_failed else 0
        before = file.tally()
        log = _Log(file.versions(), quiet=quiet)
        log.begins(path, before, again)
        try:
            if before.pending and limit_cells != 0:
                runner.run(cells, file, _make_executor(executor, jobs), log, limit=limit_cells)
        except KeyboardInterrupt:
            aside(f"interrupted: {file.tally().done} of {len(cells)} cells are done - run it again to go on")
            raise click.exceptions.Exit(received() or Exit.INTERRUPTED) from None
        tally = file.tally()
        if as_json:
            left: dict[str, Any] = {
                "db": shown(path, 4096),
                "cells": len(cells),
                "done": tally.done,
                "pending": tally.pending,
            }
            click.echo(to_json(left))
        else:
            click.echo(_line(shown(path), tally))


@study_command.command("status")
@click.argument("db", type=Existing(), metavar="FILE.sqlite")
@json_option()
def status_command(*, db: Path, as_json: bool) -> None:
    """Say how far a study is, also while it is being run."""
    study = peeked(db)
    if as_json:
        click.echo(to_json(study.as_object()))
        return
    click.echo(_line(shown(study.name), study.tally))
    if study.tally.former_done or study.tally.former_pending:
        click.echo(_former(study.tally))
    rows = [
        (f"  {shown(f'{solver} {formulation}'.rstrip())}", one_line(", ".join(f"{n} {s}" for s, n in statuses.items())))
        for (solver, formulation), statuses in study.statuses.items()
    ]
    for line in align_rows(rows, "<", (17,)):
        click.echo(line)


def _make_executor(kind: str, jobs: int | None) -> Executor:
    """Return the executor of a kind, for so many cells at a time."""
    if kind == "ray":
        from pesto.core.executing.ray_reconnecting import ReconnectingRayCluster

        return ReconnectingRayCluster(jobs)
    from pesto.core.executing.pool import Pool, default_jobs

    return Pool(jobs if jobs is not None else default_jobs())


class _Log:
    """Listener that writes one line a cell to stderr."""

    def __init__(self, versions: store.LibraryVersions, *, quiet: bool) -> None:
        self._versions, self._quiet, self._began = versions, quiet, time.monotonic()

    def begins(self, path: Path, tally: store.StudyTally, again: int) -> None:
        if again:
            aside(f"{again} failed cells are run again")
        if tally.former_done or tally.former_pending:
            aside(_former(tally))
        if tally.pending:
            self._compare("pesto", self._versions.pesto, VERSION)
        if not self._quiet:
            aside(_line(shown(path), tally))

    def _compare(self, name: str, known: set[str], now: str) -> None:
        """Warn, once for each, of a version that other results of the file do not come from."""
        if known and now and now not in known:
            known_text = ", ".join(sorted(known))
            aside(f"warning: {name} {now}, and done cells come from {name} {known_text} - their times may not compare")
        if now:
            known.add(now)

    def __call__(self, step: runner.CellDone) -> None:
        self._compare(step.cell.solver, self._versions.solvers.setdefault(step.cell.solver, set()), step.answer.version)
        if self._quiet:
            return
        answer, cell = step.answer, step.cell
        name = f"{cell.solver} {cell.formulation}".strip()
        value = "no schedule"
        if answer.makespan is not None:
            value = f"makespan {answer.makespan}, gap {percent(relative_gap(answer.makespan, answer.lower_bound))}"
        passed = time.monotonic() - self._began
        left = f"{passed / step.ran * step.waiting:.0f} s left" if step.waiting else "the last"
        detail = f"  ({answer.detail})" if answer.detail else ""
        text = f"{cell.instance.label}  {name}  {answer.status}  {value}  {answer.seconds:.1f} s{detail}"
        aside(f"[{step.ran}/{step.ran + step.waiting}, {left}] {text}")


def _line(name: str, tally: store.StudyTally) -> str:
    counts = Counter(done=tally.done, running=tally.running, pending=tally.pending)
    states = ", ".join(f"{n} {state}" for state, n in counts.items())
    return f"{name}: {plural(sum(counts.values()), 'cell')}: {states}"


def _former(tally: store.StudyTally) -> str:
    return (
        f"beside them {plural(tally.former_done + tally.former_pending, 'cell')} of a former version of the study: "
        f"{tally.former_done} done, {tally.former_pending} that will not be run"
    )


@study_command.command("report", short_help="Tables, profiles and curves of a study, as text and as a page.")
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
