"""Values of a node's or an edge's attribute, from memory or a file: numbers, truths and names, refused with where."""

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from pesto.core.errors import InputError
from pesto.core.files.json import shown

Pick = str | Mapping[Any, Any] | Callable[..., Any]
"""Where the value of each node or edge is: the name of an attribute, a mapping, or a function."""
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_MOST = 2**62


def number(value: Any, where: str, what: str, most: float) -> float:
    """A number from 0 to `most`, also from a string; InputError, with where it is, for NaN and all else."""
    found = _real(value)
    if found is None:
        raise InputError.build(
            f"{what} is {shown(repr(value), 60)}, which is no number", where=where, remedy="give one"
        )
    if not 0 <= found <= most:
        raise InputError.build(f"{what} is {found:g}", where=where, remedy=f"give a number from 0 to {most:g}")
    return found


def count(value: Any, where: str, what: str) -> int:
    """A whole number up to 2**62; InputError for fractions, which a wrong unit often gives, and all else."""
    exact = isinstance(value, Integral) and not isinstance(value, bool)
    found = int(value) if exact else number(value, where, what, _MOST)
    if not 0 <= found <= _MOST or found != int(found):
        raise InputError.build(
            f"{what} is {shown(value, 60)}", where=where, remedy="give a whole number from 0 to 2**62"
        )
    return int(found)


def truth(value: Any, where: str, what: str) -> bool:
    """Whether a mark is set, also by 1 or a string as files have it; InputError for what is neither."""
    said = _TRUTHS.get(str(value).lower())
    if said is None:
        raise InputError.build(f"{what} is {shown(repr(value), 60)}", where=where, remedy="give true or false")
    return said


def parts(value: Any, where: str, what: str) -> list[str]:
    """Names from a list, or from a string with commas between them; InputError for what is neither."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, Iterable):
        raise InputError.build(
            f"{what} is {shown(repr(value), 60)}", where=where, remedy="give names with commas between, or a list"
        )
    return [str(part) for part in value]


def _real(value: Any) -> float | None:
    """The number that a value is or says, None for none."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def pick_value(pick: Pick, at: tuple[Any, ...], data: Mapping[Any, Any], where: str) -> Any:
    """The value of the node (node,) or the edge (u, v) or (u, v, key) that `pick` gives; None for none.

    An edge's mapping may leave out the key, and a function gets none. InputError, with where it is, when a function
    fails.
    """
    if isinstance(pick, str):
        return data.get(pick)
    ends = at[:2]
    if isinstance(pick, Mapping):
        keys = [ends[0]] if len(ends) == 1 else [at, ends]
        return next((pick[key] for key in keys if key in pick), None)
    try:
        return pick(*ends, data)
    except Exception as error:
        said = shown(f"{type(error).__name__}: {error}", 120)
        raise InputError.build(
            f"the function that was given for it fails with {said}", where=where, remedy="correct it"
        ) from error


def missing_text(pick: Pick, data: Mapping[Any, Any]) -> str:
    """What a missing value is called, and what there is in its stead, for messages."""
    if not isinstance(pick, str):
        return "what was given for it has none"
    there = shown(", ".join(sorted(str(key) for key in data if key != pick)[:8]))
    lacks = f"it has no {'value of the ' if pick in data else ''}attribute {shown(repr(pick), 60)}"
    return f"{lacks}, {f'but {there}' if there else 'and no other'}"
