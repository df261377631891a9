"""pesto run of a split: the step whole and in parts, compared, for people and as JSON."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pesto.cli.printed import answer, finite_facts, finite_or_none
from pesto.core.errors import VerificationError
from pesto.core.files.json import shown
from pesto.core.quantities import duration, percent, plural, size
from pesto.core.source import Source
from pesto.inputs.load import run_split
from pesto.reporting.show.facts import fed_lines
from pesto.reporting.show.lines import fact, paragraph
from pesto.split.files.split_file import SplitFile

if TYPE_CHECKING:
    from pesto.tf.partition.partition_run import PartitionRunResult


def run_divided(
    found: SplitFile, source: Source, *, steps: int, devices: str | None, feeds: Path | None, as_json: bool
) -> None:
    """Run a split's step whole and in parts; VerificationError unless both compute the same."""
    ran = run_split(found, source, steps=steps, devices=devices, feeds=feeds)
    if as_json:
        answer(_object(ran, found))
    else:
        click.echo(_page(ran, found))
    if not ran.as_whole:
        far = max(ran.losses_distance, ran.variables_distance)
        apart = f"{far:.1e}" if math.isfinite(far) else "infinitely far"
        wrong = ran.moves[0] if ran.moves else f"{ran.furthest} is {apart} from the whole step's"
        raise VerificationError.build(
            f"the divided step does not run as the whole one: {wrong}", remedy="report it with pesto doctor"
        )


def _object(ran: "PartitionRunResult", found: SplitFile) -> dict[str, Any]:
    return {
        "split": found.what,
        "workers": len(ran.devices),
        "devices": list(ran.devices),
        "as_whole": ran.as_whole,
        "losses": list(ran.losses),
        "losses_distance": finite_or_none(ran.losses_distance),
        "variables": ran.variables,
        "variables_distance": finite_or_none(ran.variables_distance),
        "furthest": ran.furthest,
        "nudged_distance": finite_or_none(ran.nudged_distance),
        "finite": ran.finite,
        "moves": len(ran.moves),
        "steps": ran.steps,
        "step_s": ran.step_s,
        "whole_step_s": ran.whole_step_s,
        "variables_share": ran.held,
        "bytes": ran.moved_bytes,
        "nodes": ran.nodes,
        "late": ran.late,
        "feeds": [feed.as_object() for feed in ran.feeds],
    }


def _page(ran: "PartitionRunResult", found: SplitFile) -> str:
    where = ", ".join(ran.devices)
    more = f" and {plural(len(ran.losses) - 3, 'other')}" if len(ran.losses) > 3 else ""
    names = f"{', '.join(map(shown, ran.losses[:3])) or 'nothing'}{more}"
    far = max(ran.losses_distance, ran.variables_distance)
    least = f"; {shown(ran.furthest)} is furthest" if ran.furthest else ""
    facts = {
        "losses": f"{names} of {plural(ran.steps, 'step')}: at most {ran.losses_distance:.1e} from the whole "
        "step's, relative to its largest number",
        **finite_facts("the whole step", finite=ran.finite, alike=math.isfinite(far)),
        **_rounding(ran),
        "variables": f"{plural(ran.variables, 'variable')} at the end: at most {ran.variables_distance:.1e}{least}",
        "held": f"{percent(ran.held)} of all variables on the fullest worker",
        "sent": f"{size(ran.moved_bytes)} a step; {plural(ran.late, 'tensor')} late, shortly before their use",
        "devices": f"{plural(len(ran.moves), 'op')} moved, in the partition graphs of the first step",
        "step time": f"{duration(ran.step_s)} in parts, {duration(ran.whole_step_s)} whole (medians); workers on "
        "logical CPUs share this machine, and say nothing of speed",
    }
    head = paragraph(f"{found.what}: {plural(ran.nodes, 'node')} on {where}", 2)
    return "\n".join([head, *(fact(label, text) for label, text in facts.items()), *fed_lines(ran.feeds)])


def _rounding(ran: "PartitionRunResult") -> dict[str, str]:
    """How far the whole step carries a rounding, where that was asked."""
    if ran.nudged_distance is None:
        return {}
    told = "which explains it" if ran.as_whole else "which does not explain it"
    moved = f"move the whole step's own by {ran.nudged_distance:.1e}, {told}"
    return {"rounding": f"variables changed in their last two digits {moved}"}
