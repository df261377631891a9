"""How event loops are compiled: without counting references."""

from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function that allocates nothing; it releases the GIL.

    numba counts a reference for every array of every tuple that one compiled function hands to another, atomically:
    two thirds of an event loop's time. What allocates nothing needs no counts. numba's switch for that is not
    documented, so without it the function is compiled as any other.
    """
    return _compiled(function)


def inlined(function: F) -> F:
    """`kernel`, for a small function: it becomes part of what calls it."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: bool) -> F:
    try:
        return numba.njit(cache=True, nogil=True, _nrt=False, **options)(function)
    except KeyError:
        return numba.njit(cache=True, nogil=True, **options)(function)
