"""pesto models, clusters and solvers: what there is to choose from."""

import click

from pesto.cli.options import json_option
from pesto.inputs.cluster_file import cluster_names, load_cluster
from pesto.show.solve_report import to_json


@click.command("models")
@click.option("--build", is_flag=True, help="Build every variant and count its ops afresh (minutes).")
@json_option()
def models_command(*, build: bool, as_json: bool) -> None:
    """List the built-in models, their variants and the ops of one training step."""
    from pesto.tf.models import FAMILIES, counts

    found = counts.measure_all() if build else counts.recorded()
    rows = [(f.name, v, v == f.default, found[f.name][v]) for f in FAMILIES for v in f.variants]
    if as_json:
        models = [{"model": m, "variant": v, "default": d, "ops": n} for m, v, d, n in rows]
        click.echo(to_json({"models": models}))
        return
    click.echo("model               variant        ops")
    for name, variant, default, ops in rows:
        click.echo(f"{name:18s}  {variant:12s} {ops:6d}{'  (default)' if default else ''}")


@click.command("clusters")
@json_option()
def clusters_command(*, as_json: bool) -> None:
    """List the cluster presets."""
    found = [load_cluster(name) for name in cluster_names()]
    if as_json:
        rows = [
            {
                "name": c.name,
                "devices": [
                    {
                        "name": d.name,
                        "kind": d.kind,
                        "preset": d.preset,
                        "memory_bytes": d.memory_bytes,
                        "cores": d.cores,
                    }
                    for d in c.devices
                ],
                "links": list(c.links),
            }
            for c in found
        ]
        click.echo(to_json({"clusters": rows}))
        return
    for cluster in found:
        kinds: dict[str, int] = {}
        for d in cluster.devices:
            text = f"{d.preset} {d.memory_bytes / 2**30:.0f} GiB" + (f" {d.cores} cores" if d.cores > 1 else "")
            kinds[text] = kinds.get(text, 0) + 1
        parts = ", ".join(f"{count} x {text}" for text, count in kinds.items())
        click.echo(f"{cluster.name:20s} {parts}; {len(cluster.links)} links")


@click.command("solvers")
@json_option()
def solvers_command(*, as_json: bool) -> None:
    """List the solvers, whether they are installed, and the integer programs that they can be given."""
    from solvers.api import SOLVERS, available

    found = [(row, SOLVERS[row.name].formulations) for row in available()]
    if as_json:
        rows = [
            {"name": row.name, "version": row.version, "why_not": row.why_not, "formulations": list(formulations)}
            for row, formulations in found
        ]
        click.echo(to_json({"solvers": rows}))
        return
    for row, formulations in found:
        programs = f"  ({', '.join(formulations)})" if formulations else ""
        click.echo(f"{row.name:18s} {row.why_not or f'{row.version}{programs}'}")
