"""What a verb prints: one JSON object on stdout, and lines beside it on stderr."""

import json
import math
import sys
from contextlib import suppress
from typing import Any

import click

from pesto.reporting.show.lines import paragraph

PROGRESS = "pesto.core.files.disk"
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


def finite_or_none(number: float | None) -> float | None:
    """Return a number for a JSON object, which takes no infinite one."""
    return None if number is None or math.isinf(number) else number


def finite_facts(step: str, *, finite: bool, alike: bool) -> dict[str, str]:
    """Return a fact for a page of two runs that agree but are not finite; nothing for others.

    step: the run that is compared with, in words.
    """
    if finite or not alike:
        return {}
    text = f"{step} itself gives NaN or infinite numbers on these feeds; equal NaNs say little"
    return {"not finite": f"{text} - give --feeds on which it is finite"}


def aside(text: str) -> None:
    """A line on stderr, broken between words on a terminal alone; whoever does not read it loses no result."""
    with suppress(BrokenPipeError):
        if sys.stderr is not None and sys.stderr.isatty():
            text = "\n".join(paragraph(line, 2) for line in text.splitlines())
        click.echo(text, err=True)
