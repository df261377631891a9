"""pesto costs: what each op of a step costs, why, and a file to put other numbers in."""

from pathlib import Path

import click

from pesto.cli.options import cluster_option, costs_option, json_option, source_options
from pesto.cli.printed import answer
from pesto.core.cluster import Cluster
from pesto.core.costs.analytical import BY, list_costs
from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.files.toml import suggest
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs, load_graph
from pesto.reporting.show.input_pages import OpTimes, costs_csv, costs_object, costs_page


@click.command("costs")
@source_options
@cluster_option()
@click.option("--device", metavar="NAME", help="Such as gpu:0; default: the first on which each op may be placed.")
@costs_option()
@click.option("--by", type=click.Choice(BY), help="Sums, in place of op by op.")
@click.option("--csv", "csv_", is_flag=True, help="All rows as CSV; op by op it is a file for --costs.")
@json_option()
def costs_command(
    *, source: Source, cluster: str, device: str | None, costs: Path | None, by: str | None, csv_: bool, as_json: bool
) -> None:
    """List what each op of a step costs, the longest first, and why.

    \b
    pesto costs --model nmt --cluster v100x2-nvlink
    pesto costs --model nmt --by type
    pesto costs --model nmt --csv > own.csv
    pesto solve --model nmt --costs own.csv

    Of each op: type, data type, operations, bytes, seconds, where these come from (modelled, given, measured), and
    the form of kernel that the model found quickest. In own.csv change seconds (per execution), or leave them empty and
    give a scale; rows that you leave out or leave as they are change nothing. A row with a type and no name is of all
    ops of that type. docs/guides/costs.md, "Times of your own", says the rest.
    """
    source.checked()
    if csv_ and as_json:
        raise UsageError.build("--csv and --json both write to stdout", remedy="give one of them")
    machine = load_cluster(cluster)
    index = None if device is None else _index(machine, device)
    graph = load_graph(source, quiet=True)
    times = load_costs(graph, machine, costs)
    found = OpTimes(graph=graph, cluster=machine, costs=times, found=list_costs(graph, machine, times, index), by=by)
    if as_json:
        answer(costs_object(found))
    elif csv_:
        # What is printed has line feeds alone: a carriage return would be shown, not sent.
        click.echo(costs_csv(found).decode().replace("\r\n", "\n"), nl=False)
    else:
        click.echo(costs_page(found, "; --csv and --json have them all"))


def _index(cluster: Cluster, device: str) -> int:
    names = [d.name for d in cluster.devices]
    if device not in names:
        raise UsageError.build(f"--device {shown(device, 80)}: not in {cluster.name}", remedy=suggest(device, names))
    return names.index(device)
