"""How functions are compiled: without counting references where nothing is allocated, and callable only where needed.

What takes a function to compile is, for more than half, the code that unpacks Python's arguments: some tuples have
dozens of arrays. What only compiled functions call needs none. Called from Python, it would take the process down:
so a test holds that nothing does.

A function that is handed a constant is compiled for the constant and once more for any number: `int(np.int64(0))` is
any number to begin with.
"""

from collections.abc import Callable
from typing import TypeVar

import numba
from numba.core.options import DefaultOptions

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function that allocates nothing; it releases the GIL.

    numba counts a reference for every array of every tuple that one compiled function hands to another, atomically:
    two thirds of an event loop's time. What allocates nothing needs no counts. numba's switch for that is not
    documented, so without it the function is compiled as any other.
    """
    return _compiled(function, **_uncounted())


def subkernel(function: F) -> F:
    """`kernel`, for a function that only compiled functions call."""
    return _compiled(function, no_cpython_wrapper=True, **_uncounted())


def inlined(function: F) -> F:
    """`subkernel`, for a small function: it becomes part of what calls it."""
    return _compiled(function, no_cpython_wrapper=True, forceinline=True, **_uncounted())


def routine(function: F) -> F:
    """Compile a function that may allocate; it releases the GIL."""
    return _compiled(function)


def subroutine(function: F) -> F:
    """`routine`, for a function that only compiled functions call."""
    return _compiled(function, no_cpython_wrapper=True)


def _compiled(function: F, **options: bool) -> F:
    # C calls none of them.
    compiled: F = numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
    return compiled


def _uncounted() -> dict[str, bool]:
    """The option for no counts, where this numba has it: of one that it does not know it says so at the first call."""
    return {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
