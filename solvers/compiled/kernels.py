"""How functions are compiled: without counting references where nothing is allocated, and callable only where needed.

What takes a function to compile is, for more than half, the code that unpacks Python's arguments: some tuples have
dozens of arrays. What only compiled functions call needs none. Called from Python, it would take the process down:
so a test holds that nothing does.

None that Python calls returns a named tuple, but a plain one: numba makes a named one by a call of Python, in which a
signal that came meanwhile is raised, and goes on with what that call did not return. A test holds that, too.

A function that is handed a constant is compiled for the constant and once more for any number: `int(np.int64(0))` is
any number to begin with.
"""

import functools
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.options import DefaultOptions

COMPILES = (b"solvers.compiled.kernels",)
"""Names by which a source file shows that it has compiled functions."""
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


def spliced(function: F) -> F:
    """Put a function in the place of the one call that compiled functions make of it, before types are found.

    It is compiled with its caller, counts references as that does, and by itself only if Python calls it. numba would
    optimise it by itself, and a copy of it again in each of those above it.
    """
    return _compiled(function, inline="always")


def routine(function: F) -> F:
    """Compile a function that may allocate; it releases the GIL."""
    return _compiled(function)


def subroutine(function: F) -> F:
    """`routine`, for a function that only compiled functions call."""
    return _compiled(function, no_cpython_wrapper=True)


def _compiled(function: F, **options: bool | str) -> F:
    # C calls none of them.
    compile_it = numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)
    try:
        compiled: F = compile_it(function)
    except RuntimeError:  # neither the packages' folders nor the user's own can be written
        numba.config.CACHE_DIR = str(private_folder())
        compiled = compile_it(function)
    _recompile_where_unreadable(compiled)
    return compiled


def _recompile_where_unreadable(dispatcher: Any) -> None:
    """Have numba compile again where its cache names a class that another version of the sources had.

    numba compares the time of a function's own file alone; a class that was renamed in another file would end the
    program with an AttributeError as the cache is read.
    """
    cache = dispatcher._cache._cache_file
    load_index, load_data = cache._load_index, cache._load_data

    def load_readable_index() -> Any:
        try:
            return load_index()
        except (AttributeError, ImportError):
            return {}

    def load_readable_data(name: str) -> Any:
        try:
            return load_data(name)
        except (AttributeError, ImportError) as error:
            raise FileNotFoundError(name) from error  # numba compiles again where a file is gone

    cache._load_index, cache._load_data = load_readable_index, load_readable_data


@functools.cache
def private_folder() -> Path:
    """Return a folder for temporary files that nobody else can write, the same each time: code is loaded from it."""
    folder = Path(tempfile.gettempdir(), f"pesto-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="pesto-"))


def _uncounted() -> dict[str, bool]:
    """The option for no counts, where this numba has it: of one that it does not know it says so at the first call."""
    return {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
