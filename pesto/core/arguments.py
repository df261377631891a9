"""What a caller from Python hands in, refused in one line when it is of another type than its own."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from pesto.core.errors import UsageError
from solvers import arguments

T = TypeVar("T")


def expect(name: str, value: object, kind: Any, give: str) -> None:
    """UsageError, with the argument's name and what to give, unless `value` is of a kind; a truth is no number."""
    try:
        arguments.expect(name, value, kind, give)
    except TypeError as error:
        raise UsageError(str(error)) from None


def expect_count(name: str, value: object, least: int = 1) -> None:
    """UsageError unless `value` is a whole number that is large enough."""
    give = f"a whole number, at least {least}"
    expect(name, value, int, give)
    if isinstance(value, int) and value < least:
        raise UsageError.build(f"{name} is {value}", remedy=f"give {give}")


def expect_path(name: str, value: str | Path) -> Path:
    """The path of a file or folder; UsageError when it is of another type."""
    expect(name, value, str | Path, "a path")
    return Path(value)


def optional_path(name: str, value: str | Path | None) -> Path | None:
    """As `expect_path`, of what may be left out."""
    return None if value is None else expect_path(name, value)


def expect_names(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """The names of ops, also of one alone; UsageError for what is neither."""
    expect(name, value, Iterable, "the name of an op, or several")
    return (value,) if isinstance(value, str) else tuple(value)


def expect_listener(name: str, hear: Callable[[T], None] | None) -> Callable[[T], None]:
    """Who hears of progress; UsageError when it is no function."""
    expect(name, hear, Callable | None, "a function of what it is told")
    return hear or _ignore


def _ignore(told: object) -> None:
    """Hears of progress when nobody else does."""
    del told
