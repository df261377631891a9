"""Options of the command line made from the fields that a request declares, and help in groups."""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from pesto.cli import completion
from pesto.cli.options import SOURCE_NAMES, Duration, Existing, NumberList
from pesto.core.option import REQUIRED, Group, Option, options_of

_GROUPS: dict[str, Group] = {
    **dict.fromkeys((*SOURCE_NAMES, "costs"), "Input"),
    **dict.fromkeys(("cluster", "server", "token"), "Machine"),
}
"""Groups of options that several verbs share; all others without a declaration are of the output."""
_SECONDS, _GIB = "_s", "_gib"
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
    nested: dict[str, Any] = {
        name: kind for name, kind in hints.items() if hasattr(kind, "__dataclass_fields__") and options_of(kind)
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
    flag = each.note("flag") or "--" + each.name.removesuffix(_SECONDS).removesuffix(_GIB).replace("_", "-")
    kind, default = each.values, each.default
    how: dict[str, Any] = {"help": each.text, "group": each.note("group"), "cls": _Declared}
    if kind is bool:
        negative = flag.replace("--", "--no-", 1)
        name = f"{flag}/{negative}" if default else flag
        return click.option(name, each.name, is_flag=True, default=default, show_default=bool(default), **how)
    if default is not REQUIRED and default is not None:
        how |= {"default": f"{default:g}" if isinstance(default, float) else default, "show_default": True}
    if each.note("completes"):
        how["shell_complete"] = getattr(completion, each.note("completes"))
    if each.note("metavar") or _is_duration(each):
        how["metavar"] = each.note("metavar") or "60|90s|10m"
    return click.option(flag, each.name, type=_click_type(each, kind, checked=checked), **how)


def _click_type(each: Option, kind: Any, *, checked: bool) -> Any:
    """Return the type of an option's values."""
    meta = each.meta
    if get_origin(kind) is Literal:
        return click.Choice(list(get_args(kind)))
    if Path in get_args(kind):
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
    return each.values is float and each.name.endswith(_SECONDS)
