"""pesto profile: measure each op of a step on the devices at hand."""

from pathlib import Path

import click

from pesto.cli.options import json_option, source_options
from pesto.cli.printed import to_json
from pesto.costs.measured import save_profile, spread_quantiles
from pesto.files.disk import check_writable
from pesto.inputs.load import profile_source
from pesto.show.lines import paragraph
from pesto.source import Source

LEVELS = (0.5, 0.9, 0.99)
"""Shares of the ops whose normalised spread is reported (Pesto, Fig 4a)."""


@click.command("profile")
@source_options
@click.option("--iterations", type=click.IntRange(2), default=100, show_default=True, help="Traced steps (Pesto, 3.1).")
@click.option("-o", "--out", type=click.Path(path_type=Path), default="profile.json", show_default=True)
@json_option()
def profile_command(*, source: Source, iterations: int, out: Path, as_json: bool) -> None:
    """Trace a training step on this machine's devices and write each op's trimmed mean time.

    \b
    pesto profile --model nmt --variant tiny -o nmt.profile.json
    pesto solve --model nmt --variant tiny --costs nmt.profile.json
    """
    source.checked()
    check_writable(out)
    graph, profile = profile_source(source, iterations)
    save_profile(out, profile, graph)
    spread = spread_quantiles(profile, LEVELS)
    quantiles = {} if spread is None else {f"{level:.0%}": float(s) for level, s in zip(LEVELS, spread, strict=True)}
    seen = int((profile.seconds >= 0).sum())
    if as_json:
        result = {"profile": str(out), "device": profile.device, "ops": len(profile.seconds), "measured": seen}
        click.echo(to_json({**result, "iterations": iterations, "spread": quantiles}))
        return
    text = f"{profile.device}: {seen} of {len(profile.seconds)} ops measured over {iterations} steps -> {out}"
    click.echo(paragraph(text, 2))
    if quantiles:
        shown = ", ".join(f"{share} of ops {value:.3f}" for share, value in quantiles.items())
        click.echo(paragraph(f"normalised spread, at most: {shown}", 2))
