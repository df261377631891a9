"""pesto solve with cuts: every kind of plan, and the shortest that fits."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import click

from pesto.cli.outputs import check_outputs
from pesto.cli.printed import answer
from pesto.cluster import Cluster
from pesto.errors import Exit, UsageError
from pesto.inputs.load import load_costs, load_shaped
from pesto.plans.plan_file import save
from pesto.settings import Settings
from pesto.show.kinds_page import kinds_object, kinds_page
from pesto.show.live_line import LiveLine
from pesto.show.solve_report import as_object, page
from pesto.show.split_page import split_object, split_page
from pesto.solving.ahead import beside
from pesto.solving.interrupt import received
from pesto.source import Source
from pesto.split.dividing import factors_of, uncovered
from pesto.split.files.split_file import save_split
from pesto.split.geometry import Shape
from pesto.split.shaped import Shaped
from pesto.weighing.choice import Choice, choose
from pesto.weighing.one_board import accelerators_of
from pesto.weighing.timed_split import factorings

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Asked:
    """What `pesto solve --split` is asked."""

    cuts: str
    source: Source
    cluster: Cluster
    settings: Settings
    out: Path


def cuts_of(words: str, cluster: Cluster) -> tuple[Shape, ...]:
    """The cuts that --split asks for; UsageError for what is no cut, or needs more accelerators than there are."""
    many = len(accelerators_of(cluster))
    if words == AUTO:
        return factorings(many)
    found = tuple(dict.fromkeys(factors_of(word.strip()) for word in words.split(",")))
    for factors in found:
        if prod(factors) > many:
            cut = "x".join(map(str, factors))
            raise UsageError(
                f"--split {cut} is for {prod(factors)} workers, {cluster.name} has {many} accelerators"
                " - give fewer, or another --cluster"
            )
    return found


def cut(asked: Asked, apart: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Every kind of plan, the shortest written and told.

    apart: options by name that are for placements alone: UsageError where one is given, or the step has no shapes.
    """
    given = [f"--{name}" for name, value in apart.items() if value]
    if given:
        raise UsageError(f"{given[0]} is for placements alone - leave it out, or --split")
    if not asked.source.has_shapes:
        raise UsageError(f"{asked.source.file}: it has no shapes to split by - name the step, or leave out --split")
    cuts = cuts_of(asked.cuts, asked.cluster)
    check_outputs([asked.out], [asked.source.file] if asked.source.file else [], as_json=as_json)
    beside()
    step = load_shaped(asked.source, quiet=True)
    costs = load_costs(step[0], asked.cluster, None)
    with LiveLine(quiet=quiet) as live:
        choice = choose(step, asked.cluster, costs, asked.settings, live, cuts=cuts)
    told, text = _written(step[1], choice, asked)
    if as_json:
        answer({**told, **kinds_object(choice)})
    else:
        click.echo(f"{text}\n\n{kinds_page(choice)}")
    interrupted = any(kind.outcome is not None and kind.outcome.interrupted for kind in choice.kinds)
    if interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)


def _written(shaped: Shaped, choice: Choice, asked: Asked) -> tuple[dict[str, Any], str]:
    """The chosen plan, or the chosen split, in its file; as keys and as a page."""
    timed, outcome, out = choice.chosen.cut, choice.chosen.outcome, asked.out
    if timed is not None:
        save_split(shaped, timed.split, out, time_limit_s=asked.settings.time_limit_s)
        left = uncovered(shaped)
        return split_object(shaped, timed.split, left, out, timed), split_page(shaped, timed.split, left, out, timed)
    if outcome is None:
        raise ValueError("a kind is a split or a placement")
    save(outcome.plan, out)
    told = as_object(outcome, outcome.stages_s, out)
    return told, page(outcome, outcome.stages_s, out, ["pesto", "check", out])
