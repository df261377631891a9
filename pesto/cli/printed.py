"""Output of verbs: JSON on stdout, lines beside it on stderr, paths checked before the work."""

import json
import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import click

from pesto.core.distribution import install_command
from pesto.core.errors import SolverError, UsageError
from pesto.reporting.show import drawing
from pesto.reporting.show.lines import paragraph

PROGRESS = "pesto.core.files.disk"
"""Name of the log of large files that are read and written."""
ANSWERED = "answered"
"""Key of the context's object: True once the JSON object of --json is printed."""


def to_json(value: dict[str, Any]) -> str:
    """Write one JSON object on one line; ValueError for NaN."""
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
    """Write a line to stderr, broken between words on a terminal alone; whoever does not read it loses no result."""
    with suppress(BrokenPipeError):
        if sys.stderr is not None and sys.stderr.isatty():
            text = "\n".join(paragraph(line, 2) for line in text.splitlines())
        click.echo(text, err=True)


_STREAMS = ("/dev/stdout", "/dev/fd/", "/proc/")


class Beside(NamedTuple):
    """Files that a solve writes beside its plan, each None for no."""

    report: Path | None
    """The plan as a page of HTML."""
    part: Path | None
    """The placement, in the format of the authors' program."""
    cdep: Path | None
    """The order, in the format of the authors' program."""


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path], *, as_json: bool) -> None:
    """UsageError where two of the files are one, or one is stdout beside --json; FileError for one not writable."""
    written = list(outputs)
    for one, other in combinations([*written, *inputs], 2):
        if one.resolve() == other.resolve() and one in written:
            raise UsageError.build(f"{one} is named twice", remedy="give every output a file of its own")
    if as_json and any(str(path).startswith(_STREAMS) for path in written):
        raise UsageError.build("--json prints one object on stdout", remedy="write to a file")
    from pesto.core.files.disk import check_writable  # late: --help does without msgspec

    for path in written:
        check_writable(path)


def present(*paths: Path | None) -> list[Path]:
    """Return the files that are named."""
    return [path for path in paths if path is not None]


def picture_format(picture: Path | None) -> str:
    """Return the format of what `--chart` names, "" for none; UsageError when it cannot be drawn."""
    form = picture.suffix.lower().lstrip(".") if picture is not None else ""
    if picture is not None and form not in drawing.FORMATS:
        raise UsageError.build(f"--chart {picture}: no picture format", remedy="end the name in .png or .svg")
    if picture is not None and not drawing.available():
        raise SolverError.build("--chart needs matplotlib", remedy=f"{install_command('study')}")
    return form
