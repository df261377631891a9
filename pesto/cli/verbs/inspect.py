"""pesto inspect: what a training step is found to be, before it is planned."""

from dataclasses import replace

import click

from pesto.cli.options import json_option, source_options
from pesto.cli.printed import answer
from pesto.core.errors import UsageError
from pesto.core.source import Source
from pesto.inputs.load import inspect_source
from pesto.reporting.show.input_pages import inspection_object, inspection_page


@click.command("inspect")
@click.argument("callable_", metavar="[MODULE:CALLABLE]", required=False)
@source_options
@json_option()
def inspect_command(*, callable_: str | None, source: Source, as_json: bool) -> None:
    """Show what a step is found to be, without planning it.

    Its inputs with types and shapes, the batch, the optimizer and what it updates, variables, what ties ops to one
    device (groups of ops around variables; loops and branches that hold several), and why a plan would be refused:
    then the exit code is that of the refusal.

    \b
    pesto inspect mypackage.train:step
    pesto inspect --model nmt --variant tiny --json
    pesto inspect --graph program.pb
    """
    if callable_ is not None:
        if source.function is not None:
            raise UsageError.build(
                f"{callable_} and --function {source.function} are two steps", remedy="name one of them"
            )
        source = replace(source, function=callable_)
    facts = inspect_source(source.checked())
    if as_json:
        answer(inspection_object(facts))
    else:
        click.echo(inspection_page(facts))
    if facts.refused:
        raise click.exceptions.Exit(facts.refused[0].exit_code)
