"""pesto schedule: solve a problem file, or check a schedule of it that somebody else made."""

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from pesto.cli.options import Duration, Existing, json_option, out_option, quiet_option, refuse, solver_option
from pesto.cli.outputs import check_outputs
from pesto.cli.printed import answer, aside
from pesto.core.errors import (
    Exit,
    InfeasibleError,
    InputError,
    MismatchError,
    NothingFoundError,
    PestoError,
    SolverError,
    UsageError,
    VerificationError,
)
from pesto.core.files.solver_files import load_problem, load_schedule, save_schedule
from pesto.core.quantities import percent, plural
from pesto.core.settings import Settings
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.lines import command, fact, paragraph
from pesto.reporting.show.status_line import LiveLine, amount
from solvers import Limit, Options, Result, Schedule, Status, api, check, relative_gap
from solvers.bounds import quick_bounds
from solvers.files.problem_json import Instance, ScheduleInstance, fingerprint


@click.command("schedule")
@click.argument("problem", type=Existing())
@solver_option()
@click.option("--formulation", default="tight", show_default=True, help="Of a MILP solver: tight, paper or pulp.")
@click.option("--time-limit", type=Duration(), default="60", show_default=True, help="60, 90s, 10m.")
@click.option("--gap", type=float, default=0.0, show_default=True, help="Stop at this relative gap.")
@click.option("--workers", type=int, default=8, show_default=True, help="Threads of the solver.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--deterministic", is_flag=True, help="Same input, seed and version: same schedule.")
@click.option("--start", type=Existing(), metavar="FILE", help="Start from this schedule; never ends worse.")
@click.option("--no-start", is_flag=True, help="Start from nothing, not from a list schedule.")
@click.option("--check", "checked", type=Existing(), metavar="FILE", help="Only check this schedule of PROBLEM.")
@out_option("schedule.json")
@json_option()
@quiet_option()
@click.option("-v", "--verbose", is_flag=True, help="Also the lines of the solver's own log.")
def schedule_command(
    *,
    problem: Path,
    start: Path | None,
    no_start: bool,
    checked: Path | None,
    out: Path,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    """Find a schedule of PROBLEM (docs/reference/problem-file.md), check it, write it; or check one.

    \b
    pesto schedule problem.json --time-limit 10m
    pesto schedule problem.json --solver highs --formulation paper -o paper.json
    pesto schedule problem.json --check theirs.json

    An engine starts from a list schedule, which takes a tenth of the time limit at most; methods of placement from
    nothing.

    Ends with 4 when PROBLEM is proven infeasible, 5 when nothing was found, 6 when the solver's answer or FILE is
    invalid, 7 when the solver is missing or failed; a valid schedule that it found before is written all the same.
    """
    if checked is not None:
        refuse("--check solves nothing and writes nothing", but=("checked", "as_json", "quiet", "verbose"))
    instance = load_problem(problem)
    if checked is not None:
        _check(instance, problem, checked, as_json=as_json)
        return
    chosen = Settings(time_limit_s=settings.pop("time_limit"), **settings)
    if no_start and start is not None:
        raise UsageError.build("--start and --no-start", remedy="give one of them")
    given = _given(instance, problem, start) if start is not None else None
    check_outputs([out], [path for path in (problem, start) if path is not None], as_json=as_json)
    first = given or (_Start() if no_start else _quick(instance, chosen))
    told = partial(amount, ticks_per_second=instance.ticks_per_second)
    with LiveLine(told, first.makespan, quiet=quiet, verbose=verbose) as line:
        result = api.solve(instance.problem, chosen.solver, _options(chosen, first), report=line.hear)
    hold()
    if result.schedule is not None:
        save_schedule(_answer(instance, result, result.schedule), out)
    said = _object(instance, result, first, out)
    if as_json:
        answer(said)
    elif result.schedule is not None:
        click.echo(_page(instance, said, problem))
    _doubt(instance, problem, result.schedule, result.lower_bound)
    _end(result, out)


class _Start(NamedTuple):
    """What a solver begins with."""

    schedule: Schedule | None = None
    by: str = ""
    """"list", or the name of the file that it is from; "" where there is none."""
    spent_s: float = 0.0
    """Seconds of the time limit that it took."""

    @property
    def makespan(self) -> int | None:
        return None if self.schedule is None else self.schedule.makespan


_QUICK = 0.1
"""Share of the time limit that a quick start takes at most."""


def _quick(instance: Instance, chosen: Settings) -> _Start:
    """A list schedule for an engine that improves on one; none where memory defeats the list scheduler."""
    if not api.SOLVERS[chosen.solver].polishes:
        return _Start()
    began = time.monotonic()
    # Where the clock must not count, it is bounded by its own count of work: some seconds.
    seconds = chosen.time_limit_s if chosen.deterministic else _QUICK * chosen.time_limit_s
    found = api.solve(instance.problem, "list", Options(seconds=seconds))
    if found.schedule is None:
        return _Start()
    spent = 0.0 if chosen.deterministic else time.monotonic() - began
    return _Start(found.schedule, "list", min(spent, chosen.time_limit_s))


def _options(chosen: Settings, start: _Start) -> Options:
    return Options(
        seconds=chosen.time_limit_s - start.spent_s,
        gap=chosen.gap,
        seed=chosen.seed,
        workers=chosen.workers,
        deterministic=chosen.deterministic,
        formulation=chosen.formulation,
        start=start.schedule,
    )


def _answer(instance: Instance, result: Result, schedule: Schedule) -> ScheduleInstance:
    return ScheduleInstance(
        schedule=schedule,
        problem=fingerprint(instance.problem),
        solver=f"{result.solver} {result.version}".strip(),
        status=result.status,
        lower_bound=result.lower_bound,
        bound_by=result.bound_by,
    )


def _object(instance: Instance, result: Result, first: _Start, out: Path) -> dict[str, Any]:
    """The keys of --json: ticks of ticks, None where there is no value."""
    made = result.schedule
    return {
        "status": result.status, "limit": result.limit, "makespan": made.makespan if made else None,
        "lower_bound": result.lower_bound, "bound_by": result.bound_by, "gap": result.gap,
        "optimum": instance.optimum, "ticks_per_second": instance.ticks_per_second, "seconds": round(result.seconds, 4),
        "solver": result.solver, "version": result.version, "detail": result.detail, "verified": made is not None,
        "name": instance.name, "fingerprint": fingerprint(instance.problem), "schedule": str(out) if made else None,
        "start": first.makespan, "start_by": first.by,
    }  # fmt: skip


def _page(instance: Instance, said: dict[str, Any], problem: Path) -> str:
    p, unit = instance.problem, instance.ticks_per_second
    known = "" if said["optimum"] is None else f"; {amount(said['optimum'], unit)} is optimal by construction"
    bound = f"{amount(said['lower_bound'], unit)} ({said['bound_by'] or 'none'})"
    limit = "" if said["limit"] == Limit.NONE else f", stopped by: {said['limit']}"
    return "\n".join([
        paragraph(f"{instance.name or 'problem'}: {plural(p.tasks, 'task')} on {plural(p.devices, 'device')}", 2),
        fact("status", f"{said['status']} ({said['solver']} {said['version']}, {said['seconds']:.1f} s{limit})"),
        fact("makespan", amount(said["makespan"], unit) + _since(said, unit)),
        fact("lower bound", f"{bound}, gap {percent(said['gap'])}{known}"),
        fact("verified", f"by the independent checker; written to {said['schedule']}"),
        command("next", ["pesto", "schedule", problem, "--check", said["schedule"]]),
    ])  # fmt: skip


def _since(said: dict[str, Any], unit: int | None) -> str:
    """What became of the start."""
    if said["start"] is None:
        return ""
    gained = 1 - said["makespan"] / said["start"] if said["start"] else 0.0
    start = f"the start, {amount(said['start'], unit)} ({said['start_by']})"
    return f", {percent(gained)} below {start}" if gained > 0 else f", that of {start}"


def _end(result: Result, out: Path) -> None:
    """Raise what the outcome deserves; nothing when there is an answer."""
    if result.limit is Limit.INTERRUPT or received():
        if result.schedule is None:
            aside("pesto: interrupted; nothing was written")
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    kinds: dict[Status, type[PestoError]] = {
        Status.INFEASIBLE: InfeasibleError,
        Status.UNKNOWN: NothingFoundError,
        Status.INVALID: VerificationError,
        Status.CRASHED: SolverError,
        Status.HUNG: SolverError,
        Status.MISSING: SolverError,
    }
    if result.status in kinds:
        kept = f"; the best schedule so far is in {out}" if result.schedule is not None else ""
        raise kinds[result.status](f"{result.solver}: {_why(result)}{kept} - {_remedy(result)}")


def _why(result: Result) -> str:
    limit = f" within the limit ({result.limit})" if result.limit is not Limit.NONE else ""
    detail = f": {result.detail}" if result.detail else ""
    return ("no schedule found" + limit if result.status is Status.UNKNOWN else str(result.status)) + detail


def _remedy(result: Result) -> str:
    return {
        Status.INFEASIBLE: "give more memory or devices",
        Status.UNKNOWN: "raise --time-limit, or give a --start",
        Status.MISSING: "choose another: pesto solvers",
    }.get(result.status, "see pesto doctor, or choose another --solver")


def _belongs(instance: Instance, problem: Path, answer: ScheduleInstance, path: Path) -> None:
    if answer.problem not in ("", fingerprint(instance.problem)):
        raise MismatchError.build(
            f"a schedule of another problem than {problem}", where=path, remedy="give the one it was made for"
        )


def _given(instance: Instance, problem: Path, path: Path) -> _Start:
    answer = load_schedule(path)
    _belongs(instance, problem, answer, path)
    wrong = check(instance.problem, answer.schedule)
    if wrong:
        raise InputError.build(
            f"not a valid schedule of {problem}: {wrong[0].text}", where=path, remedy="start from another or none"
        )
    return _Start(answer.schedule, path.name)


def _check(instance: Instance, problem: Path, path: Path, *, as_json: bool) -> None:
    """Print what is wrong with a schedule, or its makespan and gap; VerificationError when anything is."""
    theirs = load_schedule(path)
    _belongs(instance, problem, theirs, path)
    wrong, made = check(instance.problem, theirs.schedule), theirs.schedule.makespan
    bound, by = quick_bounds.best(instance.problem)
    gap = relative_gap(made, bound)
    if as_json:
        found = [{"kind": v.kind, "text": v.text} for v in wrong]
        numbers = {"makespan": made, "lower_bound": bound, "bound_by": by, "gap": None if wrong else gap}
        answer({"valid": not wrong, **numbers, "violations": found, "schedule": str(path)})
    elif wrong:
        click.echo("\n".join(paragraph(f"{v.kind}: {v.text}", 2) for v in wrong))
    else:
        unit = instance.ticks_per_second
        text = f"makespan {amount(made, unit)}, lower bound {amount(bound, unit)} ({by}), gap {percent(gap)}"
        click.echo(paragraph(f"{path}: valid; {text}", 2))
    if wrong:
        raise VerificationError.build(
            f"invalid for {problem}: {wrong[0].text}", where=path, remedy="correct the program that made it"
        )
    _doubt(instance, problem, theirs.schedule, bound)


def _doubt(instance: Instance, problem: Path, schedule: Schedule | None, bound: int) -> None:
    """Warn where the optimum that the problem's file names cannot be."""
    known = instance.optimum
    if known is not None and (bound > known or (schedule is not None and schedule.makespan < known)):
        aside(f"pesto: WARNING: {problem} says that the optimum is {known}, which is not so")
