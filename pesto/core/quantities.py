"""Seconds, bytes, shares and names as people read them, in the unit of their size."""

import math
from collections.abc import Sequence

_TIMES = (("s", 10.0, 1.0), ("ms", 1e-3, 1e-3), ("µs", 0.0, 1e-6))
_SIZES = (("GiB", 2**30, 2**30), ("MiB", 2**20, 2**20), ("KiB", 2**10, 2**10), ("B", 0, 1))
"""Units: name, the least that is written in it, and what one of it is."""
_ROUND = 1e-3
"""Shares from here on have one digit behind the point; smaller ones, which would be 0.0 %, two significant digits."""


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit for a time, or for a column whose largest it is, and how many seconds it is."""
    return next((name, one) for name, least, one in _TIMES if seconds >= least) if seconds else ("ms", 1e-3)


def size_unit(size: float) -> tuple[str, int]:
    """The unit for a number of bytes, or for a column whose largest it is, and how many bytes it is."""
    return next((name, one) for name, least, one in _SIZES if size >= least)


def duration(seconds: float) -> str:
    """A time, such as 482.52 ms."""
    name, one = time_unit(seconds)
    return f"{seconds / one:.2f} {name}"


def durations(seconds: Sequence[float]) -> list[str]:
    """Times to be compared with each other: all in the unit of the longest, the shortest with three digits or more."""
    name, one = time_unit(max(seconds, default=0.0))
    shortest = min((value for value in seconds if value > 0), default=one)
    digits = max(2, 2 - math.floor(math.log10(shortest / one)))
    return [f"{value / one:.{digits}f} {name}" for value in seconds]


def size(count: float) -> str:
    """A number of bytes, such as 4.78 GiB."""
    name, one = size_unit(count)
    return f"{count / one:.2f} {name}" if one > 1 else f"{count:.0f} {name}"


def plural(count: int, one: str, many: str = "") -> str:
    """How many of something: 1 op, 2 ops; `many` where that is not `one` with an s, as boxes."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def percent(share: float, blank: str = "") -> str:
    """A share, such as 2.8%: only what is nothing is 0%, and only all is 100%."""
    value = 100 * share
    if share == 0:
        return f"0{blank}%"
    if 1 - _ROUND / 2 < abs(share) < 1:
        value = math.copysign(99.9, share)
    digits = 1 if abs(share) >= _ROUND else 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{digits}f}"
    return f"{text if digits == 1 else text.rstrip('0')}{blank}%"


def change(share: float) -> str:
    """How much more or less than something else, such as +2.1%."""
    return f"+{percent(share)}" if share > 0 else percent(share)


def shorten(name: str, most: int = 40) -> str:
    """A name of at most `most` characters, its middle left out: how it begins and ends tells ops apart."""
    if len(name) <= most:
        return name
    head = (most - 3) // 2
    return f"{name[:head]}...{name[len(name) - (most - 3 - head) :]}"
