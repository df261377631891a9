"""pesto optimize: TensorFlow's graph optimizer, once and before planning."""

from pathlib import Path

import click

from pesto.cli.options import source_options
from pesto.core.errors import UsageError
from pesto.core.files.disk import check_writable, write_atomic
from pesto.core.source import EVERYTHING, Source
from pesto.inputs.load import precheck
from pesto.reporting.show.lines import command, paragraph

MOST_NAMED = 4
"""Ops that the next command fetches by name where nothing but the step is in the file."""


@click.command("optimize")
@source_options
@click.option("--keep", multiple=True, metavar="OP", help="Op beside the step that must survive; repeatable.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="GraphDef to write (.pb).")
def optimize_command(*, source: Source, keep: tuple[str, ...], out: Path) -> None:
    """Run TensorFlow's graph optimizer once, so that the step that is planned is the step that runs.

    The result computes the same, bit for bit. It holds the step, a built-in model's initializer and what --keep
    names; of a GraphDef without --fetch, everything. Plan it, and run it with Grappler off.

    \b
    pesto optimize --model nmt --variant tiny -o nmt.pb
    pesto optimize --graph program.pb --fetch train --keep init -o step.pb
    """
    source.checked()
    if out.suffix != ".pb":
        raise UsageError.build("the result is a GraphDef", where=out, remedy="give a name that ends in .pb")
    if source.file is not None and out.resolve() == source.file.resolve():
        raise UsageError.build(f"{out} is the graph itself", remedy="give the result a file of its own")
    check_writable(out)
    precheck(source)
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    from pesto.tf.grappler import optimize_source

    found = optimize_source(source, keep)
    write_atomic(out, found.graph_def.SerializeToString(deterministic=True))
    (nodes, fewer), (ops, left) = found.nodes, found.step
    click.echo(paragraph(f"{found.source}: {nodes} -> {fewer} nodes, the step {ops} -> {left} -> {out}", 2))
    whole = source.file is not None and not source.fetch and len(found.fetches) > 1
    named = EVERYTHING if left == fewer and len(found.fetches) > MOST_NAMED else found.fetches
    fetch = () if whole or (left == fewer and len(named) == 1 and named != EVERYTHING) else named
    verb = "inspect" if whole else "solve"  # initializers are no part of a step: the user has to say what is
    words = ["pesto", verb, "--graph", str(out), *(word for op in fetch for word in ("--fetch", op))]
    words += ["--batch", str(source.batch)] if source.batch and source.model is None else []
    click.echo(command("next", words))
