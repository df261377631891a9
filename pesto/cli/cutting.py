"""pesto solve with cuts: every kind of plan, and the shortest that fits."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from pesto.choosing.weighing.asked_cuts import RUNS_ALONE, cuts_of
from pesto.choosing.weighing.choice import Choice, choose
from pesto.cli.outputs import check_outputs
from pesto.cli.printed import answer
from pesto.cli.read_step import read_shapes
from pesto.cli.startup import counted_s, startup_s
from pesto.core.cluster import Cluster
from pesto.core.errors import Exit, UsageError
from pesto.core.plans.plan_file import save
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_costs
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.kinds_page import choice_object, choice_page
from pesto.reporting.show.status_line import LiveLine
from pesto.split.files.split_file import save_split
from pesto.split.typed_graph import TypedGraph


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of `pesto solve --split`."""

    cuts: str
    source: Source
    cluster: Cluster
    cluster_given: str
    """The preset or the file as the user named it."""
    settings: Settings
    out: Path


def refuse_beside(source: Source, apart: dict[str, Any]) -> None:
    """UsageError for cuts of a step without shapes, or beside an option that is for placements alone (`apart`)."""
    given = [f"--{name}" for name, value in apart.items() if value]
    if given == ["--beside"]:
        raise UsageError(
            f"--beside keeps variables whole where a plan has them, and {RUNS_ALONE} - leave out --split; or plan both "
            "steps as one, a function that calls both, to cut that"
        )
    if given:
        raise UsageError(f"{given[0]} is for placements alone - leave it out, or --split")
    if not source.has_shapes:
        raise UsageError(f"{source.file}: it has no shapes to split by - name the step, or leave out --split")


def cut(asked: Asked, *, as_json: bool, quiet: bool) -> None:
    """Every kind of plan, the shortest written and told."""
    cuts = cuts_of(asked.cuts, asked.cluster)
    check_outputs([asked.out], [asked.source.file] if asked.source.file else [], as_json=as_json)
    asked_s, deterministic = asked.settings.time_limit_s, asked.settings.deterministic
    counted = counted_s(startup_s(), asked_s, deterministic=deterministic)
    step = read_shapes(asked.source, quiet=quiet)
    costs = load_costs(step[0], asked.cluster, None)
    with LiveLine(quiet=quiet) as live:
        settings = replace(asked.settings, time_limit_s=asked_s - counted)
        choice = choose(step, asked.cluster, costs, settings, live, cuts=cuts)
    hold()
    _write(step[1], choice, asked)
    if as_json:
        answer(choice_object(step[1], choice, asked.out))
    else:
        click.echo(choice_page(step[1], choice, asked.out, asked.source, asked.cluster_given))
    if choice.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)


def _write(shaped: TypedGraph | str, choice: Choice, asked: Asked) -> None:
    """The chosen plan, or the chosen split, in its file."""
    if choice.chosen.outcome is not None:
        save(choice.chosen.outcome.plan, asked.out)
    elif choice.chosen.cut is not None and not isinstance(shaped, str):
        save_split(shaped, choice.chosen.cut.split, asked.out, time_limit_s=asked.settings.time_limit_s)
