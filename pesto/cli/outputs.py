"""Where the results of a verb go, checked before the work begins."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from pesto.core.distribution import install_command
from pesto.core.errors import SolverError, UsageError
from pesto.core.files.disk import check_writable
from pesto.reporting.show import drawing

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
    for path in written:
        check_writable(path)


def present(*paths: Path | None) -> list[Path]:
    """The files that are named."""
    return [path for path in paths if path is not None]


def picture_format(picture: Path | None) -> str:
    """The format of what `--chart` names, before anything is done, "" for none; UsageError when it cannot be drawn."""
    form = picture.suffix.lower().lstrip(".") if picture is not None else ""
    if picture is not None and form not in drawing.FORMATS:
        raise UsageError.build(f"--chart {picture}: no picture format", remedy="end the name in .png or .svg")
    if picture is not None and not drawing.available():
        raise SolverError.build("--chart needs matplotlib", remedy=f"{install_command('study')}")
    return form
