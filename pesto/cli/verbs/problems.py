"""pesto instance and schedule: write a scheduling problem, solve one, or check a schedule of it."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from pesto.cli.options import (
    Duration,
    Existing,
    cluster_option,
    costs_option,
    first_given,
    json_option,
    launch_option,
    out_option,
    quiet_option,
    refuse,
    solver_option,
    source_options,
)
from pesto.cli.printed import answer, aside, check_outputs, to_json
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
from pesto.core.files.disk import write_atomic
from pesto.core.files.json import shown
from pesto.core.files.solver_files import load_problem, load_schedule, save_problem, save_schedule
from pesto.core.quantities import percent, plural
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.lines import command, fact, paragraph
from pesto.reporting.show.status_line import LiveLine, amount
from pesto.research.instances import coarsened
from solvers import Limit, Options, Result, Schedule, Status, api, check, program_text, relative_gap
from solvers.bounds import quick_bounds
from solvers.files.problem_json import Instance, ScheduleInstance, fingerprint
from solvers.instances import table
from solvers.milp.formulations import FORMULATIONS, NoScheduleError
from solvers.structure.units import balanced

_OF_FAMILIES = ("seed", "given")
_OF_STEPS = ("cluster", "coarsen_to", "costs", "launch")


@click.command("instance")
@click.argument("family", required=False)
@click.option("--list", "listed", is_flag=True, help="List the families and their parameters.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of a seeded family.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A parameter of the family; repeatable.")
@source_options
@cluster_option()
@costs_option()
@click.option("--coarsen-to", type=int, default=200, show_default=True, help="Nodes of a training step's coarse graph.")
@click.option("--per-edge", is_flag=True, help="A payload for each edge, as the paper counts transfers.")
@launch_option("Of a training step: launches as tasks of their own, each of TIME, or as the costs have them.")
@click.option("--balance", type=float, metavar="SHARE", help="No GPU holds more than 1 + SHARE times the mean bytes.")
@out_option("problem.json")
@click.option("--lp", type=click.Path(path_type=Path), metavar="FILE", help="Also its integer program, in LP format.")
@click.option("--mps", type=click.Path(path_type=Path), metavar="FILE", help="The same in free MPS format.")
@click.option("--formulation", default="tight", show_default=True, help="Of --lp and --mps: tight, paper or pulp.")
@json_option()
def instance_command(
    *,
    family: str | None,
    listed: bool,
    source: Source,
    out: Path,
    lp: Path | None,
    mps: Path | None,
    formulation: str,
    balance: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the scheduling problem of a FAMILY, or of a training step's coarse graph, and its integer program.

    \b
    pesto instance --list
    pesto instance lstm-grid --set layers=4 --set gpus=4 -o grid.json
    pesto instance layered --seed 7 --per-edge
    pesto instance --model nmt --variant 2x1024 --coarsen-to 100 -o nmt.json
    pesto instance --model nmt --variant tiny --launch 5us -o launches.json
    pesto instance layered --per-edge --lp layered.lp --formulation pulp
    pesto instance --model nmt --balance 0.1 --lp nmt.lp --formulation paper
    """
    if listed:
        refuse("--list writes no problem", but=("listed", "as_json"))
        if family is not None:
            raise UsageError.build("--list has all families", remedy=f"leave out {shown(family)}")
        _print_families(as_json=as_json)
        return
    if family is None and source == Source():
        raise UsageError.build(
            "nothing is named", remedy="give a FAMILY (see pesto instance --list), or --model or --graph"
        )
    if family is not None and source != Source():
        raise UsageError.build("a FAMILY and a training step are named", remedy="give one of them")
    programs = {form: path for form, path in (("lp", lp), ("mps", mps)) if path is not None}
    # UsageError where a formulation is named that there is none of, or that nothing is written of.
    if formulation not in FORMULATIONS:
        raise UsageError.build(
            f"no formulation is called {formulation!r}", remedy=f"choose one of {', '.join(FORMULATIONS)}"
        )
    if first_given("formulation") and not programs:
        raise UsageError.build(
            "--formulation is of the files of --lp and --mps", remedy="name one of them, or leave it out"
        )
    check_outputs([out, *programs.values()], [source.file] if source.file else [], as_json=as_json)
    if family is not None:
        refuse("a family has no training step", *_OF_STEPS)
        instance = _generate(family, options["seed"], options["given"], per_edge=options["per_edge"])
    else:
        refuse("a training step is no family", *_OF_FAMILIES)
        settings = Settings(coarsen_to=options["coarsen_to"], per_edge=options["per_edge"])
        instance = coarsened(source, options["cluster"], settings, options["costs"], options["launch"])
    if balance is not None:
        try:  # the paper's balance row makes an optimum that was known by construction doubtful
            instance = replace(instance, problem=balanced(instance.problem, balance), optimum=None)
        except ValueError as error:
            raise UsageError.of(error, where="--balance") from error
    texts = {path: _program(instance, formulation, form) for form, path in programs.items()}
    save_problem(instance, out)
    for path, text in texts.items():
        write_atomic(path, text.encode("ascii"))
    p = instance.problem
    bound, by = quick_bounds.best(p)
    keys = {
        "name": instance.name, "tasks": p.tasks, "edges": p.edges, "payloads": p.payloads, "devices": p.devices,
        "locations": p.locations, "links": p.links, "lower_bound": bound, "bound_by": by, "optimum": instance.optimum,
        "ticks_per_second": instance.ticks_per_second, "fingerprint": fingerprint(p), "problem": str(out),
        "programs": {form: str(path) for form, path in programs.items()},
    }  # fmt: skip
    click.echo(to_json(keys) if as_json else _instance_page(keys))


def _print_families(*, as_json: bool) -> None:
    """Print the families with the ranges of their parameters, as JSON or as a page."""
    if as_json:
        rows = [
            {
                "family": name, "help": family.help, "seeded": family.seeded,
                "parameters": {
                    key: {"default": p.default, "least": p.least, "most": p.most}
                    for key, p in table.ranges(name).items()
                },
            }
            for name, family in table.FAMILIES.items()
        ]  # fmt: skip
        click.echo(to_json({"families": rows}))
        return
    for name, family in table.FAMILIES.items():
        values = " ".join(f"{key}={p.default}" for key, p in table.ranges(name).items())
        click.echo(paragraph(f"{name:15s} {family.help}{' (seeded)' if family.seeded else ''}", 16))
        click.echo(paragraph(f"{'':16s}{values}", 16))


def _generate(family: str, seed: int, given: tuple[str, ...], *, per_edge: bool) -> Instance:
    """Return a problem of a family; UsageError for a parameter that it has not, or that is no NAME=VALUE."""
    parameters: dict[str, int] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not value.removeprefix("-").isdecimal() or len(value) > 20:
            raise UsageError.build(f"--set {text!r}", remedy="write NAME=VALUE with an integer, such as tasks=50")
        parameters[name.strip().replace("-", "_")] = int(value)
    if len(parameters) < len(given):
        raise UsageError.build("--set gives a parameter twice", remedy="keep one")
    if per_edge:
        parameters[table.PER_EDGE] = 1
    try:
        return Instance(
            problem=table.make(family, seed, **parameters),
            name=table.label(family, seed, **parameters),
            optimum=table.optimum(family, **parameters),
        )
    except ValueError as error:
        raise UsageError.of(error) from error


def _program(instance: Instance, formulation: str, form: str) -> str:
    """Return the integer program of a problem as text.

    InputError for what the formulation cannot say of the problem, InfeasibleError where it has no schedule.
    """
    try:
        return program_text(instance.problem, formulation, form)
    except NoScheduleError as proof:
        raise InfeasibleError.build(f"{proof}", remedy="give more memory or devices") from proof
    except ValueError as error:
        smaller = "take a smaller problem" if formulation == "tight" else "give --formulation tight"
        raise InputError.build(f"{error}", remedy=f"{smaller}, or --per-edge with --formulation paper") from error


def _instance_page(keys: dict[str, Any]) -> str:
    """Return a page of the keys of `pesto instance --json`."""
    counts = ", ".join(plural(keys[f"{name}s"], name) for name in ("task", "edge", "payload"))
    machine = ", ".join(plural(keys[f"{name}s"], name) for name in ("device", "location", "link"))
    known = "" if keys["optimum"] is None else f", optimum {keys['optimum']}"
    bound = amount(keys["lower_bound"], keys["ticks_per_second"])
    return "\n".join([
        paragraph(keys["name"], 2),
        fact("holds", f"{counts}; {machine}"),
        fact("lower bound", f"{bound} ({keys['bound_by']}){known}"),
        fact("written", f"to {keys['problem']} (fingerprint {keys['fingerprint'][:12]})"),
        *(fact(form, f"the integer program, to {path}") for form, path in keys["programs"].items()),
        command("next", ["pesto", "schedule", keys["problem"]]),
    ])  # fmt: skip


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
    first = _Start()
    if start is not None:
        answered = load_schedule(start)
        _check_problem(instance, problem, answered, start)
        if wrong := check(instance.problem, answered.schedule):
            raise InputError.build(
                f"not a valid schedule of {problem}: {wrong[0].text}", where=start, remedy="start from another or none"
            )
        first = _Start(answered.schedule, start.name)
    check_outputs([out], [path for path in (problem, start) if path is not None], as_json=as_json)
    if start is None and not no_start and api.SOLVERS[chosen.solver].polishes:
        first = _list_start(instance, chosen)
    told = partial(amount, ticks_per_second=instance.ticks_per_second)
    with LiveLine(told, first.makespan, quiet=quiet, verbose=verbose) as line:
        options = Options(
            seconds=chosen.time_limit_s - first.spent_s,
            gap=chosen.gap,
            seed=chosen.seed,
            workers=chosen.workers,
            deterministic=chosen.deterministic,
            formulation=chosen.formulation,
            start=first.schedule,
        )
        result = api.solve(instance.problem, chosen.solver, options, report=line.hear)
    hold()
    if result.schedule is not None:
        solved = ScheduleInstance(
            schedule=result.schedule, problem=fingerprint(instance.problem),
            solver=f"{result.solver} {result.version}".strip(), status=result.status, lower_bound=result.lower_bound,
            bound_by=result.bound_by,
        )  # fmt: skip
        save_schedule(solved, out)
    keys = _schedule_object(instance, result, first, out)
    if as_json:
        answer(keys)
    elif result.schedule is not None:
        click.echo(_schedule_page(instance, keys, problem))
    _warn_of_optimum(instance, problem, result.schedule, result.lower_bound)
    _raise_outcome(result, out)


class _Start(NamedTuple):
    """Schedule that a solver begins with."""

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


def _list_start(instance: Instance, chosen: Settings) -> _Start:
    """Return a list schedule for an engine that improves on one; none where memory defeats the list scheduler."""
    began = time.monotonic()
    # Where the clock must not count, it is bounded by its own count of work: some seconds.
    seconds = chosen.time_limit_s if chosen.deterministic else _QUICK * chosen.time_limit_s
    listed = api.solve(instance.problem, "list", Options(seconds=seconds))
    if listed.schedule is None:
        return _Start()
    spent = 0.0 if chosen.deterministic else time.monotonic() - began
    return _Start(listed.schedule, "list", min(spent, chosen.time_limit_s))


def _schedule_object(instance: Instance, result: Result, first: _Start, out: Path) -> dict[str, Any]:
    """Return the keys of `pesto schedule --json`; None where there is no value."""
    made = result.schedule
    return {
        "status": result.status, "limit": result.limit, "makespan": made.makespan if made else None,
        "lower_bound": result.lower_bound, "bound_by": result.bound_by, "gap": result.gap,
        "optimum": instance.optimum, "ticks_per_second": instance.ticks_per_second, "seconds": round(result.seconds, 4),
        "solver": result.solver, "version": result.version, "detail": result.detail, "verified": made is not None,
        "name": instance.name, "fingerprint": fingerprint(instance.problem), "schedule": str(out) if made else None,
        "start": first.makespan, "start_by": first.by,
    }  # fmt: skip


def _schedule_page(instance: Instance, keys: dict[str, Any], problem: Path) -> str:
    """Return a page of the keys of `_schedule_object`."""
    p, unit, start = instance.problem, instance.ticks_per_second, keys["start"]
    known = "" if keys["optimum"] is None else f"; {amount(keys['optimum'], unit)} is optimal by construction"
    bound = f"{amount(keys['lower_bound'], unit)} ({keys['bound_by'] or 'none'})"
    limit = "" if keys["limit"] == Limit.NONE else f", stopped by: {keys['limit']}"
    since = ""
    if start is not None:
        gained = 1 - keys["makespan"] / start if start else 0.0
        begun = f"the start, {amount(start, unit)} ({keys['start_by']})"
        since = f", {percent(gained)} below {begun}" if gained > 0 else f", that of {begun}"
    return "\n".join([
        paragraph(f"{instance.name or 'problem'}: {plural(p.tasks, 'task')} on {plural(p.devices, 'device')}", 2),
        fact("status", f"{keys['status']} ({keys['solver']} {keys['version']}, {keys['seconds']:.1f} s{limit})"),
        fact("makespan", amount(keys["makespan"], unit) + since),
        fact("lower bound", f"{bound}, gap {percent(keys['gap'])}{known}"),
        fact("verified", f"by the independent checker; written to {keys['schedule']}"),
        command("next", ["pesto", "schedule", problem, "--check", keys["schedule"]]),
    ])  # fmt: skip


def _raise_outcome(result: Result, out: Path) -> None:
    """Raise the error of an outcome that is no answer, and the exit of an interruption."""
    if result.limit is Limit.INTERRUPT or received():
        if result.schedule is None:
            aside("pesto: interrupted; nothing was written")
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    other = "see pesto doctor, or choose another --solver"
    outcomes: dict[Status, tuple[type[PestoError], str]] = {
        Status.INFEASIBLE: (InfeasibleError, "give more memory or devices"),
        Status.UNKNOWN: (NothingFoundError, "raise --time-limit, or give a --start"),
        Status.INVALID: (VerificationError, other),
        Status.CRASHED: (SolverError, other),
        Status.HUNG: (SolverError, other),
        Status.MISSING: (SolverError, "choose another: pesto solvers"),
    }
    if result.status in outcomes:
        error, remedy = outcomes[result.status]
        why = str(result.status)
        if result.status is Status.UNKNOWN:
            why = "no schedule found" + (
                f" within the limit ({result.limit})" if result.limit is not Limit.NONE else ""
            )
        detail = f": {result.detail}" if result.detail else ""
        kept = f"; the best schedule so far is in {out}" if result.schedule is not None else ""
        raise error.build(f"{result.solver}: {why}{detail}{kept}", remedy=remedy)


def _check_problem(instance: Instance, problem: Path, answered: ScheduleInstance, path: Path) -> None:
    """Raise MismatchError for a schedule of another problem."""
    if answered.problem not in ("", fingerprint(instance.problem)):
        raise MismatchError.build(
            f"a schedule of another problem than {problem}", where=path, remedy="give the one it was made for"
        )


def _check(instance: Instance, problem: Path, path: Path, *, as_json: bool) -> None:
    """Print the faults of a schedule, or its makespan and gap; VerificationError when there is a fault."""
    theirs = load_schedule(path)
    _check_problem(instance, problem, theirs, path)
    faults, makespan = check(instance.problem, theirs.schedule), theirs.schedule.makespan
    bound, by = quick_bounds.best(instance.problem)
    gap = relative_gap(makespan, bound)
    if as_json:
        violations = [{"kind": v.kind, "text": v.text} for v in faults]
        numbers = {"makespan": makespan, "lower_bound": bound, "bound_by": by, "gap": None if faults else gap}
        answer({"valid": not faults, **numbers, "violations": violations, "schedule": str(path)})
    elif faults:
        click.echo("\n".join(paragraph(f"{v.kind}: {v.text}", 2) for v in faults))
    else:
        unit = instance.ticks_per_second
        text = f"makespan {amount(makespan, unit)}, lower bound {amount(bound, unit)} ({by}), gap {percent(gap)}"
        click.echo(paragraph(f"{path}: valid; {text}", 2))
    if faults:
        raise VerificationError.build(
            f"invalid for {problem}: {faults[0].text}", where=path, remedy="correct the program that made it"
        )
    _warn_of_optimum(instance, problem, theirs.schedule, bound)


def _warn_of_optimum(instance: Instance, problem: Path, schedule: Schedule | None, bound: int) -> None:
    """Warn where the optimum that the problem's file names cannot be."""
    known = instance.optimum
    if known is not None and (bound > known or (schedule is not None and schedule.makespan < known)):
        aside(f"pesto: WARNING: {problem} says that the optimum is {known}, which is not so")
