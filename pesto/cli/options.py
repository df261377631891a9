"""Options that several verbs share, and how they become values."""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pesto.choosing.whatif.grid import parse_values
from pesto.cli import completion
from pesto.cli.printed import PROGRESS
from pesto.core.costs.analytical import LaunchCost
from pesto.core.costs.disturbance import KEEP
from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.files.disk import check_exists
from pesto.core.files.reading import ShowPhase, phases_shown_by
from pesto.core.source import Source

_SECONDS = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h|d)?$")
_LAUNCH = re.compile(r"^(\d+(?:\.\d+)?)(ns|us|µs|ms)$")
_SMALL = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3}
_FACTOR = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Duration(click.ParamType[float]):
    """Seconds, as 60, 90s, 10m, 2h or 1d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; a click usage error for anything else."""
        if isinstance(value, float | int):
            return float(value)
        found = _SECONDS.match(value)
        if not found:
            self.fail(f"{value!r} is no duration - write 60, 90s, 10m or 2h", param, ctx)
        return float(found.group(1)) * _FACTOR[found.group(2)]


class NumberList(click.ParamType[tuple[float, ...]]):
    """Values of an axis of a sweep, as 0.5,1,2."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the values, ascending; UsageError for none, and for one out of range."""
        del ctx
        return parse_values(param.name or "", value) if isinstance(value, str) and param is not None else value


class LaunchTime(click.ParamType[LaunchCost]):
    """A time, as 5us, or `costs`."""

    name = "launch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LaunchCost:
        """The time; a click usage error for anything else."""
        if isinstance(value, LaunchCost):
            return value
        if value == "costs":
            return LaunchCost(each_s=None)
        found = _LAUNCH.match(value)
        if not found:
            self.fail(f"{value!r} is no time of a launch - write 5us, 0.01ms, or costs", param, ctx)
        return LaunchCost(each_s=float(found.group(1)) * _SMALL[found.group(2)])


def launch_option(text: str) -> Callable[..., Any]:
    """--launch TIME|costs."""
    return click.option("--launch", type=LaunchTime(), metavar="TIME|costs", help=text)


class Existing(click.Path):
    """A file that exists; what is wrong with its content is said later."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; FileError when nothing is there."""
        check_exists(value)
        return super().convert(value, param, ctx)


_SOURCE = (
    click.option(
        "--model", metavar="NAME", help="A built-in model: see pesto models.", shell_complete=completion.models
    ),
    click.option(
        "--variant",
        metavar="V",
        help="The model's variant; default: the paper's first.",
        shell_complete=completion.variants,
    ),
    click.option("--graph", "file", type=Existing(), help="The project's graph file, or a GraphDef (.pb, .pbtxt)."),
    click.option(
        "--fetch",
        multiple=True,
        metavar="OP",
        help="Op that the step ends with (GraphDef); repeatable; '*' for all that nothing reads.",
    ),
    click.option("--saved-model", type=Existing(), metavar="DIR", help="A SavedModel folder."),
    click.option("--signature", metavar="NAME", help="Of a SavedModel; default: serving_default, or the only one."),
    click.option(
        "--function",
        metavar="MODULE:CALLABLE",
        help="A tf.function with an input_signature, a compiled Keras model, or a callable without arguments that "
        "returns one of them, (model, (x, y)), (function, *specs) or (tf.Graph, fetches).",
    ),
    click.option("--batch", type=click.IntRange(1), help="Batch size where the graph leaves it open."),
    click.option(
        "--shape",
        multiple=True,
        metavar="NAME=16,40",
        help="Shape of a feed that the graph leaves open, or the largest of an op that nothing limits; repeatable.",
    ),
    click.option(
        "--micro-batches", type=click.IntRange(1), metavar="M", help="M batches, their gradients added up, one update."
    ),
)


SOURCE_NAMES = tuple(f.name for f in fields(Source) if f.name not in ("late", "every"))
"""The parameters of the options that name a graph."""


def source_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a graph; the verb gets one `source: Source`, and what it reads has a live line."""

    @functools.wraps(verb)
    def with_source(**given: Any) -> None:
        named = {name: given.pop(name) for name in SOURCE_NAMES}
        with nullcontext() if given.get("quiet") else phases_shown_by(_reading_line):
            verb(source=Source(**named), **given)

    for option in reversed(_SOURCE):
        option(with_source)
    return with_source


def _reading_line() -> AbstractContextManager[ShowPhase]:
    from pesto.reporting.show.status_line import ReadingLine  # not for --help, which it would slow down

    return ReadingLine()


def cluster_option(default: str | None = "v100x2-nvlink") -> Callable[..., Any]:
    """--cluster NAME|FILE."""
    return click.option(
        "--cluster",
        default=default,
        show_default=True,
        metavar="NAME|FILE",
        help="Preset or TOML file: see pesto clusters.",
        shell_complete=completion.clusters,
    )


def solver_option(text: str = "See pesto solvers.") -> Callable[..., Any]:
    """--solver NAME."""
    return click.option(
        "--solver", default="cpsat", show_default=True, help=text, shell_complete=completion.solvers, metavar="NAME"
    )


def costs_option() -> Callable[..., Any]:
    """--costs PROFILE|CSV, once."""

    def one(ctx: click.Context, param: click.Parameter, given: tuple[Path, ...]) -> Path | None:
        del ctx, param
        if len(given) > 1:
            raise UsageError.build(f"--costs is given {len(given)} times", remedy="give one file")
        return given[0] if given else None

    return click.option(
        "--costs",
        type=Existing(),
        multiple=True,
        callback=one,
        metavar="PROFILE|CSV",
        help="Op times: measured, from pesto profile, or your own (.csv, from pesto costs).",
    )


def quiet_option(text: str = "No progress.") -> Callable[..., Any]:
    """-q, which also keeps out of the log which large files are read and written."""

    def hush(ctx: click.Context, param: click.Parameter, quiet: bool) -> bool:
        del ctx, param
        if quiet:
            logging.getLogger(PROGRESS).setLevel(logging.WARNING)
        return quiet

    return click.option("-q", "--quiet", is_flag=True, help=text, callback=hush, is_eager=True)


def json_option() -> Callable[..., Any]:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object on stdout.")


def out_option(default: str, text: str | None = None) -> Callable[..., Any]:
    """-o FILE, which goes to a file of that name where it is left out."""
    return click.option("-o", "--out", type=click.Path(path_type=Path), default=default, show_default=True, help=text)


def chart_option(text: str) -> Callable[..., Any]:
    """--chart FILE, which a verb has as `picture`."""
    return click.option("--chart", "picture", type=click.Path(path_type=Path), help=f"{text} (.png or .svg).")


def token_option() -> Callable[..., Any]:
    """--token FILE."""
    return click.option("--token", metavar="FILE", help="File with the token; default: PESTO_TOKEN, if it is set.")


def feeds_option() -> Callable[..., Any]:
    """--feeds, a batch of one's own."""
    return click.option(
        "--feeds",
        type=Existing(),
        metavar="FILE.npz",
        help="A batch of your own: arrays named as the feeds (numpy.savez); feeds that it lacks get random values.",
    )


def keep_option() -> Callable[..., Any]:
    """--keep-disturbed."""
    return click.option(
        "--keep-disturbed", is_flag=True, help="Runs count also while other programs are busy; the file says so."
    )


def first_given(*names: str, but: Iterable[str] = ()) -> str | None:
    """The first of the verb's options that the command line gives, as it is spelt; of all of them without names.

    but: options that are not meant, by the name of the verb's parameter, as `names` are.
    """
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        if not isinstance(option, click.Option) or name in but or (names and name not in names):
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            off = option.secondary_opts and context.params.get(name) is False
            return max(option.secondary_opts if off else option.opts, key=len)
    return None


def refuse(why: str, *names: str, but: Iterable[str] = ()) -> None:
    """UsageError where an option is given that says nothing here."""
    if flag := first_given(*names, but=but):
        raise UsageError.build(f"{why}", remedy=f"leave out {flag}")


@contextmanager
def disturbed_told() -> Iterator[None]:
    """Name the option in what is said of a machine that is too busy to be measured."""
    try:
        yield
    except NothingFoundError as error:
        if KEEP not in str(error):
            raise
        raise NothingFoundError.build(
            error.message, where=error.where, remedy=f"{error.remedy} (--keep-disturbed)"
        ) from error
