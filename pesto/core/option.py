"""Options and arguments: one annotated field declares an option everywhere, and wrong values are refused in one line.

The command line's options, the JSON schema of a job, keyword arguments in Python and the reference tables are made from
the declared fields.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from pesto.core.errors import UsageError
from solvers import arguments

Group = Literal["Input", "Machine", "Search", "Output", "Expert"]
"""Section of a verb's help."""
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
REQUIRED = inspect.Parameter.empty
"""Stands for the default of an option without one."""
_KINDS: dict[Any, str] = {float: "a number", int: "a whole number", bool: "True or False", str: "a name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One field of a request, as it is declared."""

    name: str
    """Name of the field, and of the keyword argument."""
    kind: Any
    """Type of the field without metadata."""
    default: Any
    """Default value; REQUIRED where there is none."""
    meta: Meta
    """Description and bounds, as the JSON schema has them."""

    @property
    def text(self) -> str:
        """Description for people."""
        return self.meta.description or ""

    @property
    def values(self) -> Any:
        """Type of the values that can be given: `kind` without None."""
        some = [one for one in get_args(self.kind) if one is not type(None)]
        return some[0] if len(some) == 1 and type(None) in get_args(self.kind) else self.kind

    @property
    def accepted_kind(self) -> Any:
        """Type of the keyword argument: a path also as text, several names also as one or in any iterable."""
        if self.kind == tuple[str, ...]:
            return str | Iterable[str]
        return str | self.kind if Path in get_args(self.kind) else self.kind

    @property
    def checked_kind(self) -> Any:
        """Type of the field with its bounds and text, for msgspec, which takes bounds of numbers alone."""
        optional = self.values is not self.kind
        return Annotated[self.values, self.meta] | None if optional else Annotated[self.kind, self.meta]

    def note(self, name: str) -> Any:
        """Return what the declaration says beside bounds, None where it says nothing."""
        return (self.meta.extra or {}).get(name)


def option(
    text: str, group: Group, *, ge: float | None = None, gt: float | None = None, le: float | None = None,
    lt: float | None = None, **extra: str,
) -> Meta:  # fmt: skip
    """Return the metadata of one option, for `Annotated`.

    text: a sentence, with the unit of a quantity. extra: `called` and `give` word the error of a value out of bounds,
    `unit` follows the value there; `metavar` and `completes` (a function of `pesto.cli.completion`) are for the command
    line, `flag` is its name there where it differs.
    """
    bounds: dict[str, Any] = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return Meta(description=text, extra={"group": group, **extra}, **bounds)


@cache
def options_of(declared: Any) -> tuple[Option, ...]:
    """Return the options that a dataclass or struct declares with `option`, in the order of its fields."""
    is_struct = issubclass(declared, msgspec.Struct)
    hints = get_type_hints(declared, include_extras=True)
    return tuple(
        Option(
            name=each.name, kind=get_args(hint)[0], meta=hint.__metadata__[0],
            default=REQUIRED if each.default in (MISSING, msgspec.NODEFAULT) else each.default,
        )
        for each in (msgspec.structs.fields(declared) if is_struct else dataclass_fields(declared))
        if get_origin(hint := hints[each.name]) is Annotated and "group" in (hint.__metadata__[0].extra or {})
    )  # fmt: skip


def check_options(value: Any) -> None:
    """Raise UsageError, with a remedy, for an option of another type than its own or out of its bounds."""
    kind: Any = type(value)
    declared = options_of(kind)
    for each in declared:
        given = getattr(value, each.name)
        if each.kind in _KINDS and type(given) is not each.kind and not (each.kind is float and type(given) is int):
            raise UsageError.build(f"{each.name} is {given!r}", remedy=f"give {_KINDS[each.kind]}")
    for each in declared:
        given = getattr(value, each.name)
        if type(given) not in (int, float):
            continue
        ge, gt, le, lt = each.meta.ge, each.meta.gt, each.meta.le, each.meta.lt
        above = math.isfinite(given) and (ge is None or given >= ge) and (gt is None or given > gt)
        if not above or (le is not None and given > le) or (lt is not None and given >= lt):
            least = f"above {gt}" if gt is not None else f"{ge} or more"
            bounds = f"{ge} to {le}" if None not in (ge, le) else least if lt is None else f"{least}, below {lt}"
            called, unit = each.note("called") or each.name, each.note("unit")
            shown = f"{given} {unit}" if unit else f"{given}"
            raise UsageError.build(f"{called} is {shown}", remedy=f"give {each.note('give') or bounds}")


def with_options_of(declared: Any, *, but: str = "") -> Callable[[F], F]:
    """Show, in the signature of a function that ends in **options, the options of `declared` by name.

    but: the option that the function does not take.
    """

    def shown(function: F) -> F:
        own = inspect.signature(function)
        first = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.accepted_kind
            )
            for each in options_of(declared)
            if each.name not in (but, *own.parameters)
        ]
        function.__dict__["__signature__"] = own.replace(parameters=[*first, *more])
        return function

    return shown


def expect(name: str, value: object, kind: Any, give: str) -> None:
    """Raise UsageError, with the argument's name and what to give, unless `value` is of a kind; True is no number."""
    try:
        arguments.expect(name, value, kind, give)
    except TypeError as error:
        raise UsageError.of(error) from None


def expect_count(name: str, value: object, least: int = 1) -> None:
    """Raise UsageError unless `value` is a whole number of at least `least`."""
    give = f"a whole number, at least {least}"
    expect(name, value, int, give)
    if isinstance(value, int) and value < least:
        raise UsageError.build(f"{name} is {value}", remedy=f"give {give}")


def expect_path(name: str, value: str | Path) -> Path:
    """Return the path of a file or folder. Raise UsageError when it is of another type."""
    expect(name, value, str | Path, "a path")
    return Path(value)


def optional_path(name: str, value: str | Path | None) -> Path | None:
    """Return None, or what `expect_path` returns."""
    return None if value is None else expect_path(name, value)


def expect_names(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of ops, also of one alone. Raise UsageError for what is neither."""
    expect(name, value, Iterable, "the name of an op, or several")
    return (value,) if isinstance(value, str) else tuple(value)


def expect_listener(name: str, hear: Callable[[T], None] | None) -> Callable[[T], None]:
    """Return the listener to progress, for None one that ignores it. Raise UsageError when it is no function."""
    expect(name, hear, Callable | None, "a function of what it is told")
    return hear or (lambda _: None)
