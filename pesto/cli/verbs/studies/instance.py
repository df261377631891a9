"""pesto instance: write a scheduling problem to a file, of a seeded family or of a training step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pesto.cli.options import (
    cluster_option,
    costs_option,
    first_given,
    json_option,
    launch_option,
    out_option,
    refuse,
    source_options,
)
from pesto.cli.outputs import check_outputs
from pesto.cli.printed import to_json
from pesto.core.costs.analytical import LaunchCost
from pesto.core.errors import InfeasibleError, InputError, UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.files.json import shown
from pesto.core.files.solver_files import save_problem
from pesto.core.quantities import plural
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.reporting.show.lines import command, fact, paragraph
from pesto.reporting.show.status_line import amount
from pesto.research.instances import coarsened
from solvers import program_text
from solvers.bounds import quick_bounds
from solvers.files.problem_json import Instance, fingerprint
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
        click.echo(to_json({"families": _rows()}) if as_json else _page())
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
    instance = _generated(family, **options) if family is not None else _coarse(source, **options)
    instance = instance if balance is None else _balanced(instance, balance)
    texts = {path: _program(instance, formulation, form) for form, path in programs.items()}
    save_problem(instance, out)
    for path, text in texts.items():
        write_atomic(path, text.encode("ascii"))
    said = _object(instance, out, programs)
    click.echo(to_json(said) if as_json else _summary(said))


def _generated(family: str, *, seed: int, given: tuple[str, ...], per_edge: bool, **_: object) -> Instance:
    refuse("a family has no training step", *_OF_STEPS)
    parameters = dict(map(_parameter, given))
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
        raise UsageError(str(error)) from error


def _balanced(instance: Instance, share: float) -> Instance:
    """The instance with the paper's balance row, which makes an optimum that was known by construction doubtful."""
    try:
        return replace(instance, problem=balanced(instance.problem, share), optimum=None)
    except ValueError as error:
        raise UsageError(f"--balance: {error}") from error


def _parameter(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not value.removeprefix("-").isdecimal() or len(value) > 20:
        raise UsageError.build(f"--set {text!r}", remedy="write NAME=VALUE with an integer, such as tasks=50")
    return name.strip().replace("-", "_"), int(value)


def _coarse(
    source: Source, *, cluster: str, costs: Path | None, coarsen_to: int, per_edge: bool, launch: LaunchCost | None,
    **_: object,
) -> Instance:  # fmt: skip
    refuse("a training step is no family", *_OF_FAMILIES)
    return coarsened(source, cluster, Settings(coarsen_to=coarsen_to, per_edge=per_edge), costs, launch)


def _program(instance: Instance, formulation: str, form: str) -> str:
    """InputError for what the formulation cannot say of the problem, InfeasibleError where it has no schedule."""
    try:
        return program_text(instance.problem, formulation, form)
    except NoScheduleError as proof:
        raise InfeasibleError.build(f"{proof}", remedy="give more memory or devices") from proof
    except ValueError as error:
        smaller = "take a smaller problem" if formulation == "tight" else "give --formulation tight"
        raise InputError.build(f"{error}", remedy=f"{smaller}, or --per-edge with --formulation paper") from error


def _object(instance: Instance, out: Path, programs: dict[str, Path]) -> dict[str, Any]:
    p = instance.problem
    bound, by = quick_bounds.best(p)
    return {
        "name": instance.name, "tasks": p.tasks, "edges": p.edges, "payloads": p.payloads, "devices": p.devices,
        "locations": p.locations, "links": p.links, "lower_bound": bound, "bound_by": by, "optimum": instance.optimum,
        "ticks_per_second": instance.ticks_per_second, "fingerprint": fingerprint(p), "problem": str(out),
        "programs": {form: str(path) for form, path in programs.items()},
    }  # fmt: skip


def _summary(said: dict[str, Any]) -> str:
    counts = ", ".join(plural(said[f"{name}s"], name) for name in ("task", "edge", "payload"))
    machine = ", ".join(plural(said[f"{name}s"], name) for name in ("device", "location", "link"))
    known = "" if said["optimum"] is None else f", optimum {said['optimum']}"
    bound = amount(said["lower_bound"], said["ticks_per_second"])
    return "\n".join([
        paragraph(said["name"], 2),
        fact("holds", f"{counts}; {machine}"),
        fact("lower bound", f"{bound} ({said['bound_by']}){known}"),
        fact("written", f"to {said['problem']} (fingerprint {said['fingerprint'][:12]})"),
        *(fact(form, f"the integer program, to {path}") for form, path in said["programs"].items()),
        command("next", ["pesto", "schedule", said["problem"]]),
    ])  # fmt: skip


def _rows() -> list[dict[str, Any]]:
    return [
        {
            "family": name,
            "help": family.help,
            "seeded": family.seeded,
            "parameters": {
                key: {"default": p.default, "least": p.least, "most": p.most} for key, p in table.ranges(name).items()
            },
        }
        for name, family in table.FAMILIES.items()
    ]


def _page() -> str:
    lines = []
    for name, family in table.FAMILIES.items():
        values = " ".join(f"{key}={p.default}" for key, p in table.ranges(name).items())
        lines += [paragraph(f"{name:15s} {family.help}{' (seeded)' if family.seeded else ''}", 16)]
        lines += [paragraph(f"{'':16s}{values}", 16)]
    return "\n".join(lines)
