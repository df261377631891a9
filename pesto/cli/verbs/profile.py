"""pesto profile: measure each op of a step on the devices at hand."""

from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from pesto.cli.options import (
    chart_option,
    disturbed_told,
    feeds_option,
    json_option,
    keep_option,
    out_option,
    source_options,
)
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import to_json
from pesto.core.costs.measured import Profile, save_profile, spread_quantiles
from pesto.core.files.disk import write_atomic
from pesto.core.files.json import shown
from pesto.core.quantities import duration
from pesto.core.source import Source
from pesto.inputs.load import profile_source
from pesto.reporting.show.input_pages import draw_spread
from pesto.reporting.show.lines import paragraph

LEVELS = (0.5, 0.9, 0.99)
"""Shares of the ops whose normalised spread is reported (Pesto, Fig 4a)."""

_NAMES = ("medians", "means of all samples", "their launches on the host")


@click.command("profile")
@source_options
@click.option("--iterations", type=click.IntRange(2), default=100, show_default=True, help="Traced steps (Pesto, 3.1).")
@out_option("profile.json")
@chart_option("Also draw the spread here")
@feeds_option()
@keep_option()
@json_option()
def profile_command(
    *,
    source: Source,
    iterations: int,
    picture: Path | None,
    feeds: Path | None,
    keep_disturbed: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Trace a training step on this machine's devices and write the time of each op, and how noisy it was.

    \b
    pesto profile --model nmt --variant tiny -o nmt.profile.json
    pesto solve --model nmt --variant tiny --costs nmt.profile.json

    Steps during which other programs used the processors are left out; ends with 5, and who was busy, where that leaves
    too few.
    """
    source.checked()
    form = picture_format(picture)
    check_outputs([out, *([picture] if picture else [])], [source.file] if source.file else [], as_json=as_json)
    with disturbed_told():
        graph, profile = profile_source(source, iterations, keep_disturbed=keep_disturbed, feeds=feeds)
    save_profile(out, profile, graph)
    if picture is not None:
        write_atomic(picture, draw_spread(profile, form))
    spread = spread_quantiles(profile, LEVELS)
    quantiles = {} if spread is None else {f"{level:.0%}": float(s) for level, s in zip(LEVELS, spread, strict=True)}
    seen = int((profile.seconds >= 0).sum())
    if as_json:
        result = {"profile": str(out), "device": profile.device, "ops": len(profile.seconds), "measured": seen}
        noise = asdict(profile.noise) if profile.noise else None
        sums = {"low_s": float(np.nansum(profile.times)), "mean_s": float(np.nansum(profile.seconds)), **_sums(profile)}
        click.echo(to_json({**result, "iterations": iterations, "spread": quantiles, **sums, "noise": noise}))
        return
    text = f"{seen} of {len(profile.seconds)} ops measured over {iterations} steps -> {out}"
    click.echo(paragraph(text, 2))
    low = duration(float(np.nansum(profile.times)))
    click.echo(paragraph(f"{shown(profile.device, 80)}: all ops take {low} by their lower deciles; {profile.noise}", 2))
    others = [f"{duration(seconds)} by {name}" for name, seconds in zip(_NAMES, _sums(profile).values(), strict=False)]
    if others:
        click.echo(paragraph(f"and {', '.join(others)}, and {duration(float(np.nansum(profile.seconds)))} trimmed", 2))
    if quantiles:
        shares = ", ".join(f"{share} of ops {value:.3f}" for share, value in quantiles.items())
        click.echo(paragraph(f"normalised spread, at most: {shares}", 2))


def _sums(profile: Profile) -> dict[str, float]:
    """Seconds of all ops by their medians and by the means of all samples, and of launching them; what there is."""
    columns = {"median_s": profile.median, "untrimmed_mean_s": profile.mean, "launch_s": profile.launch}
    return {name: float(np.nansum(column)) for name, column in columns.items() if column is not None}
