"""pesto import: any supported graph as the project's own graph file."""

from pathlib import Path

import click

from pesto.cli.options import source_options
from pesto.files import graph_file
from pesto.files.disk import check_writable
from pesto.inputs.load import load_graph
from pesto.show.lines import paragraph
from pesto.source import Source


@click.command("import")
@source_options
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), required=True, help="Graph file to write (.json, .json.gz)."
)
def import_command(*, source: Source, out: Path) -> None:
    """Write a graph as the project's own graph file, so that it can be solved without TensorFlow.

    \b
    pesto import --model nmt --variant tiny -o nmt.json
    pesto import --graph step.pb --fetch train --batch 32 -o step.json.gz
    """
    source.checked()
    check_writable(out)
    graph = load_graph(source)
    graph_file.save(graph, out)
    click.echo(
        paragraph(
            f"{graph.source}: {graph.ops} ops, {len(graph.src)} data edges, {len(graph.control_src)} control edges -> "
            f"{out}",
            2,
        )
    )
