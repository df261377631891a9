"""pesto calibrate: measure the links at hand, and write a cluster file with them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pesto.cli.options import (
    Existing,
    cluster_option,
    disturbed_told,
    json_option,
    keep_option,
    out_option,
    quiet_option,
    refuse,
)
from pesto.cli.outputs import check_outputs
from pesto.cli.printed import answer, aside
from pesto.core.costs.calibration import Calibration, fits_by_type
from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.errors import UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.quantities import percent, plural
from pesto.inputs.calibrated_cluster import CalibratedCluster, calibrate_cluster, cluster_from_samples
from pesto.reporting.show.lines import command, paragraph


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
        answer(_object(made, out, keep_disturbed))
        return
    errors = sorted(one.error for one in made.found)
    off = f"sizes that were held out are {percent(errors[0])} to {percent(errors[-1])} off"
    count = plural(len(made.found), "link")
    click.echo(paragraph(f"{made.cluster.name}: {count}, {off} -> {out}", 2))
    for name, line in fits_by_type(made.found).items():
        rate = f"{line.s_per_byte * 1e6:.4g} µs a byte"
        click.echo(paragraph(f"{name}: {line.latency_s * 1e6:.4g} µs and {rate}, R² {line.r2:.3f}", 2))
    click.echo(command("all of it", ["pesto", "clusters", "--show", out if "/" in str(out) else f"./{out}"]))


def _object(made: CalibratedCluster, out: Path, kept: bool) -> dict[str, Any]:
    others = made.others
    return {
        "cluster": str(out),
        "kept_disturbed": kept,
        "others_cores": None if others is None else others.cores,
        "busy": [] if others is None else [list(row) for row in others.who[:3]],
        "types": {name: asdict(line) for name, line in fits_by_type(made.found).items()},
        "links": [_link(one) for one in made.found],
    }


def _link(one: Calibration) -> dict[str, Any]:
    return {
        "from": one.source, "to": one.target, "latency_s": one.latency_s, "s_per_byte": one.s_per_byte,
        "lines": [list(line) for line in one.lines], "line": asdict(one.line), "shares": one.shares or None,
        "error": one.error, "line_error": one.line_error, "halves_apart": one.apart, "samples": one.samples,
        "held_out": [{"bytes": size, "seconds": took, "predicted_s": said} for size, took, said in one.held_out],
    }  # fmt: skip
