"""pesto models, clusters, solvers and studies: list the values to choose from."""

from collections import Counter

import click

from pesto.cli import completion
from pesto.cli.options import json_option
from pesto.cli.printed import to_json
from pesto.core.errors import UsageError
from pesto.core.quantities import plural
from pesto.inputs.cluster_file import cluster_names, describe_cluster, load_cluster
from pesto.reporting.show.facts import clusters_object, models_object, solvers_object
from pesto.reporting.show.input_pages import cluster_object, cluster_page
from pesto.reporting.show.lines import align_rows, paragraph
from pesto.tf.models.counts import GPUS


@click.command("models")
@click.option("--build", is_flag=True, help="Build every variant and count its ops afresh (minutes).")
@json_option()
def models_command(*, build: bool, as_json: bool) -> None:
    """List the built-in models, their variants and the ops of one training step."""
    catalog = models_object(build)
    if as_json:
        click.echo(to_json(catalog))
        return
    rows = [("model", "variant", "ops", "", "batch on 1 to 16 GPUs")]
    for m in catalog["models"]:
        by_gpus = m["batch_by_gpus"]  # ParDNN, Table 6.1
        batches = ", ".join(str(by_gpus.get(gpus, "-")) for gpus in GPUS) if by_gpus else ""
        rows.append((m["model"], m["variant"], str(m["ops"]), "(default)" if m["default"] else "", batches))
    click.echo("\n".join(align_rows(rows, "<<><<", (18, 12, 5))))


@click.command("clusters")
@click.option(
    "--show",
    metavar="NAME|FILE",
    help="All of one, with sources.",
    shell_complete=completion.clusters,
)
@click.option("--toml", "as_toml", is_flag=True, help="With --show: its file, to start one of your own from.")
@json_option()
def clusters_command(*, show: str | None, as_toml: bool, as_json: bool) -> None:
    """List the cluster presets, or show one.

    \b
    pesto clusters --show v100x8
    pesto clusters --show v100x8 --toml > mine.toml
    """
    if as_toml and (show is None or as_json):
        raise UsageError.build(
            "--toml prints the file of one cluster", remedy="give it with --show NAME, and without --json"
        )
    if show is not None:
        one = describe_cluster(show)
        if as_toml:
            click.echo(one.text, nl=False)
        else:
            click.echo(to_json(cluster_object(one)) if as_json else cluster_page(one))
        return
    if as_json:
        click.echo(to_json(clusters_object()))
        return
    rows = []
    for cluster in map(load_cluster, cluster_names()):
        kinds = Counter[str]()
        for d in cluster.devices:
            tib, rest = divmod(d.memory_bytes, 2**40)
            memory = f"{tib} TiB" if tib and not rest else f"{d.memory_bytes / 2**30:.0f} GiB"
            kinds[f"{d.preset} {memory}" + (f" {d.cores} cores" if d.cores > 1 else "")] += 1
        devices = ", ".join(f"{count} x {text}" for text, count in kinds.items())
        rows.append((cluster.name, f"{devices}; {plural(len(cluster.links), 'link')}"))
    click.echo("\n".join(align_rows(rows, "<", (17,))))


@click.command("solvers")
@json_option()
def solvers_command(*, as_json: bool) -> None:
    """List the solvers, whether they are installed, and the integer programs that they can be given."""
    catalog = solvers_object()
    if as_json:
        click.echo(to_json(catalog))
        return
    rows = []
    for solver in catalog["solvers"]:
        programs = f"  ({', '.join(solver['formulations'])})" if solver["formulations"] else ""
        rows.append((solver["name"], solver["why_not"] or solver["version"] + programs))
    click.echo("\n".join(align_rows(rows, "<", (17,))))


@click.command("studies")
@json_option()
def studies_command(*, as_json: bool) -> None:
    """List the studies that ship: cells, the seconds that solvers get at most, one after another, and what is asked."""
    from pesto.research.study.cells import cells_of
    from pesto.research.study.spec import load_study, study_names

    studies = [load_study(name) for name in study_names()]
    sizes = [(len(cells), sum(cell.limit_s for cell in cells)) for cells in map(cells_of, studies)]
    if as_json:
        rows = [
            {"name": s.spec.name, "title": s.spec.title, "about": s.about, "cells": cells, "limits_s": limits_s}
            for s, (cells, limits_s) in zip(studies, sizes, strict=True)
        ]
        click.echo(to_json({"studies": rows}))
        return
    for s, (cells, limits_s) in zip(studies, sizes, strict=True):
        most = f"{plural(cells, 'cell')}, {limits_s / 60:.0f} min of limits"
        click.echo(paragraph(f"{s.spec.name}: {s.spec.title} ({most}). {s.about}", 2))
