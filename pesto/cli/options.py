"""Options that several verbs share, how they become values, and options made from the fields of a request."""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import msgspec
from click.core import ParameterSource

from pesto.choosing.whatif.grid import parse_values
from pesto.cli import completion
from pesto.cli.printed import PROGRESS
from pesto.core.costs.analytical import LaunchCost
from pesto.core.costs.disturbance import KEEP
from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.files.disk import check_exists
from pesto.core.files.reading import ShowPhase, phases_shown_by
from pesto.core.option import REQUIRED, Group, Option, options_of
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


SOURCE_NAMES = tuple(each.name for each in options_of(Source))
"""The parameters of the options that name a graph."""


def source_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a graph; the verb gets one `source: Source`, and what it reads has a live line."""

    @functools.wraps(verb)
    def with_source(**given: Any) -> None:
        named = {name: given.pop(name) for name in SOURCE_NAMES}
        with nullcontext() if given.get("quiet") else phases_shown_by(_reading_line):
            verb(source=Source(**named), **given)

    for each in reversed(options_of(Source)):
        _click_option(each, checked=False)(with_source)
    return with_source


def _reading_line() -> AbstractContextManager[ShowPhase]:
    """Return the live line of what is read."""
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


_GROUPS: dict[str, Group] = {
    "costs": "Input",
    **dict.fromkeys(("cluster", "server", "token"), "Machine"),
}
"""Groups of options that several verbs share; all others without a declaration are of the output."""
_SECONDS_FIELD, _GIB = "_s", "_gib"
"""Ends of the names of fields that hold seconds or GiB; the option is called without it."""


class GroupedCommand(click.Command):
    """A verb whose help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group that has options."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in get_args(Group)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                group: str = param.group if isinstance(param, _Declared) else _GROUPS.get(param.name or "", "Output")
                rows[group].append(record)
        for group, records in rows.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)


class _Declared(click.Option):
    """An option with the group of its help."""

    def __init__(self, *names: Any, group: Group, **how: Any) -> None:
        super().__init__(*names, **how)
        self.group = group


def request_options(
    declared: type[msgspec.Struct], *, late: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each that a request declares, those of its settings too; the verb gets one `request`.

    Fields that are not declared as options are taken from parameters of their names. late: the verb gets
    `make_request` instead, which takes the fields that the verb has to find out, and makes the request.
    """
    hints = get_type_hints(declared)
    nested: dict[str, Any] = {  # the options of its source are those of `source_options`
        name: kind
        for name, kind in hints.items()
        if kind is not Source and hasattr(kind, "__dataclass_fields__") and options_of(kind)
    }

    def with_options(verb: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(verb)
        def with_request(**given: Any) -> None:
            own = {each.name: given.pop(each.name) for each in options_of(declared)}
            parts = {name: {each.name: given.pop(each.name) for each in options_of(nested[name])} for name in nested}

            def make(**more: Any) -> msgspec.Struct:
                return declared(**own, **{name: nested[name](**part) for name, part in parts.items()}, **more)

            if late:
                verb(make_request=make, **given)
            else:
                verb(request=make(**{name: given.pop(name) for name in hints if name in given}), **given)

        kinds: list[Any] = [*reversed(nested.values()), declared]
        for kind in kinds:
            for each in reversed(options_of(kind)):
                _click_option(each, checked=kind in nested.values())(with_request)
        return with_request

    return with_options


def _click_option(each: Option, *, checked: bool) -> Callable[..., Any]:
    """Return the option of one field; `checked`: the value's own type refuses what is out of bounds."""
    flag = each.note("flag") or "--" + each.name.removesuffix(_SECONDS_FIELD).removesuffix(_GIB).replace("_", "-")
    kind, default = each.values, each.default
    how: dict[str, Any] = {"help": each.text, "group": each.note("group"), "cls": _Declared}
    if kind is bool:
        negative = flag.replace("--", "--no-", 1)
        name = f"{flag}/{negative}" if default else flag
        return click.option(name, each.name, is_flag=True, default=default, show_default=bool(default), **how)
    if kind == tuple[str, ...]:
        how["multiple"] = True
    elif default is not REQUIRED and default is not None:
        how |= {"default": f"{default:g}" if isinstance(default, float) else default, "show_default": True}
    if each.note("completes"):
        how["shell_complete"] = getattr(completion, each.note("completes"))
    if each.note("metavar") or _is_duration(each):
        how["metavar"] = each.note("metavar") or "60|90s|10m"
    return click.option(flag, each.name, type=_click_type(each, checked=checked), **how)


def _click_type(each: Option, *, checked: bool) -> Any:
    """Return the type of an option's values."""
    meta, kind = each.meta, each.values
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    if kind is Path or Path in get_args(kind):
        return Existing()
    if _is_duration(each):
        return Duration()
    if kind == Iterable[float]:
        return NumberList()
    if kind in (int, float) and not checked:
        ranged = click.IntRange if kind is int else click.FloatRange
        least, most = (meta.ge if meta.gt is None else meta.gt), (meta.le if meta.lt is None else meta.lt)
        return ranged(least, most, min_open=meta.gt is not None, max_open=meta.lt is not None)  # type: ignore[arg-type]
    return kind if isinstance(kind, type) else str


def _is_duration(each: Option) -> bool:
    return each.values is float and each.name.endswith(_SECONDS_FIELD)
