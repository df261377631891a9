"""pesto profile and calibrate: measure ops and links on the devices at hand."""

from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from pesto.cli.options import (
    Existing,
    chart_option,
    cluster_option,
    disturbed_told,
    feeds_option,
    json_option,
    keep_option,
    out_option,
    quiet_option,
    refuse,
    source_options,
)
from pesto.cli.printed import answer, aside, check_outputs, picture_format, to_json
from pesto.core.costs.calibration import fits_by_type
from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.costs.measured import Profile, save_profile, spread_quantiles
from pesto.core.errors import UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.files.json import shown
from pesto.core.quantities import duration, percent, plural
from pesto.core.source import Source
from pesto.inputs.calibrated_cluster import calibrate_cluster, cluster_from_samples
from pesto.inputs.load import profile_source
from pesto.reporting.show.input_pages import draw_spread
from pesto.reporting.show.lines import command, paragraph

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
    """Return the seconds of all ops by their medians, by the means of all samples, and of launching them, if known."""
    columns = {"median_s": profile.median, "untrimmed_mean_s": profile.mean, "launch_s": profile.launch}
    return {name: float(np.nansum(column)) for name, column in columns.items() if column is not None}


@click.command("calibrate")
@cluster_option(default=None)
@click.option("--samples", type=Existing(), metavar="FILE", help="Fit these: CSV of from,to,bytes,seconds.")
@click.option("--passes", type=click.IntRange(2, 1000), default=8, show_default=True, help="At least.")
@keep_option()
@out_option("calibrated.toml")
@json_option()
@quiet_option()
def calibrate_command(
    *,
    cluster: str | None,
    samples: Path | None,
    passes: int,
    keep_disturbed: bool,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure transfers between this machine's devices, fit them, and write a cluster file with these links.

    \b
    pesto calibrate -o mine.toml
    pesto calibrate --cluster v100x4 -o mine.toml
    pesto calibrate --cluster v100x4 --samples measured.csv -o mine.toml

    Sizes from 4 B to 64 MiB, one way, both ways at once, and two of one way at once; every second size is held out, and
    how far off it is predicted is said. The devices are the cluster's; without one they are two logical CPU devices.
    What other programs disturbed is left out; ends with 5, and who was busy, where that leaves too little, and where
    samples do not settle.
    """
    if samples is not None and cluster is None:
        raise UsageError.build(
            "--samples says nothing of devices", remedy="give the --cluster that they were measured on"
        )
    if samples is not None:
        refuse("--samples are fitted, and nothing is measured", "passes", "keep_disturbed")
    inputs = [path for path in (samples, Path(cluster) if cluster and cluster.endswith(".toml") else None) if path]
    check_outputs([out], inputs, as_json=as_json)
    if samples is not None and cluster is not None:
        made = cluster_from_samples(cluster, samples)
    else:
        with disturbed_told():
            heard = (lambda _: None) if quiet else aside
            made = calibrate_cluster(cluster, passes, DisturbanceWatch(keep=keep_disturbed), heard)
    write_atomic(out, made.text.encode())
    if as_json:
        others = made.others
        answer({
            "cluster": str(out),
            "kept_disturbed": keep_disturbed,
            "others_cores": None if others is None else others.cores,
            "busy": [] if others is None else [list(row) for row in others.who[:3]],
            "types": {name: asdict(line) for name, line in fits_by_type(made.found).items()},
            "links": [
                {
                    "from": one.source, "to": one.target, "latency_s": one.latency_s, "s_per_byte": one.s_per_byte,
                    "lines": [list(line) for line in one.lines], "line": asdict(one.line), "shares": one.shares or None,
                    "error": one.error, "line_error": one.line_error, "halves_apart": one.apart, "samples": one.samples,
                    "held_out": [
                        {"bytes": size, "seconds": took, "predicted_s": said} for size, took, said in one.held_out
                    ],
                }
                for one in made.found
            ],
        })  # fmt: skip
        return
    errors = sorted(one.error for one in made.found)
    off = f"sizes that were held out are {percent(errors[0])} to {percent(errors[-1])} off"
    count = plural(len(made.found), "link")
    click.echo(paragraph(f"{made.cluster.name}: {count}, {off} -> {out}", 2))
    for name, line in fits_by_type(made.found).items():
        rate = f"{line.s_per_byte * 1e6:.4g} µs a byte"
        click.echo(paragraph(f"{name}: {line.latency_s * 1e6:.4g} µs and {rate}, R² {line.r2:.3f}", 2))
    click.echo(command("all of it", ["pesto", "clusters", "--show", out if "/" in str(out) else f"./{out}"]))
