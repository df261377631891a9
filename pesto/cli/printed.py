"""What a verb prints: one JSON object on stdout, and lines beside it on stderr."""

import json
import sys
from contextlib import suppress
from typing import Any

import click

from pesto.show.lines import paragraph

PROGRESS = "pesto.files.disk"
"""The log that tells which large files are read and written."""
ANSWERED = "answered"
"""Key of the context's object: whether the one JSON object of --json is printed."""


def to_json(value: dict[str, Any]) -> str:
    """One JSON object on one line; refuses NaN."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def answer(value: dict[str, Any]) -> None:
    """Print the one object of --json: an error that follows is said on stderr alone."""
    click.echo(to_json(value))
    click.get_current_context().find_root().ensure_object(dict)[ANSWERED] = True


def aside(text: str) -> None:
    """A line on stderr, broken between words on a terminal alone; whoever does not read it loses no result."""
    with suppress(BrokenPipeError):
        if sys.stderr is not None and sys.stderr.isatty():
            text = "\n".join(paragraph(line, 2) for line in text.splitlines())
        click.echo(text, err=True)
