"""Type checks of arguments: a value of a wrong type is refused with one line."""

import reprlib
from typing import Any


def expect(name: str, value: object, kind: Any, give: str) -> None:
    """Raise TypeError, with the argument's name and what to give, unless `value` is of a kind; a bool is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        shown = " ".join(reprlib.repr(value).split())
        raise TypeError(f"{name} is {shown} - give {give}")
