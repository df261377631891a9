"""Declared options: one annotated field says type, default, bounds, unit, group and text of an option everywhere.

The command line's options, the JSON schema of a job, keyword arguments in Python and the reference tables are made from
such fields.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from pesto.core.errors import UsageError

Group = Literal["Input", "Machine", "Search", "Output", "Expert"]
"""Section of a verb's help."""
F = TypeVar("F", bound=Callable[..., Any])
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
        return some[0] if len(some) == 1 and get_origin(self.kind) is not Literal else self.kind

    def note(self, name: str) -> Any:
        """Return what the declaration says beside bounds, None where it says nothing."""
        return (self.meta.extra or {}).get(name)


def option(
    text: str, group: Group, *, ge: float | None = None, gt: float | None = None, le: float | None = None,
    lt: float | None = None, **extra: str,
) -> Meta:  # fmt: skip
    """Metadata of one option, for `Annotated`.

    text: a sentence, with the unit of a quantity. extra: `called` and `give` word the error of a value out of bounds,
    `unit` follows the value there; `metavar` and `completes` (a function of `pesto.cli.completion`) are for the command
    line, `flag` is its name there where it differs.
    """
    bounds: dict[str, Any] = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return Meta(description=text, extra={"group": group, **extra}, **bounds)


@cache
def options_of(declared: Any) -> tuple[Option, ...]:
    """Return the options that a dataclass or struct declares with `option`, in the order of its fields."""
    hints = get_type_hints(declared, include_extras=True)
    return tuple(
        Option(name=name, kind=get_args(hint)[0], default=default, meta=hint.__metadata__[0])
        for name, default in _defaults(declared).items()
        if get_origin(hint := hints[name]) is Annotated and "group" in (hint.__metadata__[0].extra or {})
    )


def check_options(value: Any) -> None:
    """UsageError, with a remedy, for an option of another type than its own or out of its bounds."""
    kind: Any = type(value)
    declared = options_of(kind)
    for each in declared:
        given = getattr(value, each.name)
        if each.kind in _KINDS and type(given) is not each.kind and not (each.kind is float and type(given) is int):
            raise UsageError.build(f"{each.name} is {given!r}", remedy=f"give {_KINDS[each.kind]}")
    for each in declared:
        given = getattr(value, each.name)
        if type(given) in (int, float) and not _within(given, each.meta):
            called, unit = each.note("called") or each.name, each.note("unit")
            shown = f"{given} {unit}" if unit else f"{given}"
            raise UsageError.build(f"{called} is {shown}", remedy=f"give {each.note('give') or _bounds(each.meta)}")


def with_options_of(declared: Any) -> Callable[[F], F]:
    """Show, in the signature of a function that ends in **options, the options of `declared` by name."""

    def shown(function: F) -> F:
        own = inspect.signature(function)
        first = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.kind)
            for each in options_of(declared)
        ]
        function.__dict__["__signature__"] = own.replace(parameters=[*first, *more])
        return function

    return shown


def _within(given: float, meta: Meta) -> bool:
    return (
        math.isfinite(given)
        and (meta.ge is None or given >= meta.ge)
        and (meta.gt is None or given > meta.gt)
        and (meta.le is None or given <= meta.le)
        and (meta.lt is None or given < meta.lt)
    )


def _bounds(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f"{meta.ge} to {meta.le}"
    least = f"above {meta.gt}" if meta.gt is not None else f"{meta.ge} or more"
    return least if meta.lt is None else f"{least}, below {meta.lt}"


def _defaults(declared: Any) -> dict[str, Any]:
    if issubclass(declared, msgspec.Struct):
        struct = msgspec.structs.fields(declared)
        return {each.name: REQUIRED if each.default is msgspec.NODEFAULT else each.default for each in struct}
    return {
        each.name: REQUIRED if each.default is MISSING else each.default for each in dataclass_fields(declared)
    }  # fmt: skip
