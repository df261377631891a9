"""One run at a time for a study's file."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pesto.errors import FileError, UsageError
from pesto.files.json import shown

_MARK = b"pesto study lock\n"
"""What a lock holds: anything else of that name is not ours."""


def real_path(path: Path) -> Path:
    """Where the file of a study really is: a plain name too (":memory:"), and links followed.

    FileError for what is there and is no regular file, and for a name that cannot be one.
    """
    remedy = "name a file, such as study.sqlite"
    try:
        real = Path(os.path.realpath(path))
        regular = stat.S_ISREG(real.stat().st_mode)
    except FileNotFoundError:
        return real
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise FileError(f"cannot use {shown(path)}: {shown(error)} - {remedy}") from error
    if not regular:
        raise FileError(f"cannot use {shown(path)}: it is a folder or a device - {remedy}")
    return real


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of the study's file NAME, in .NAME.pesto-lock beside it; the system frees it with this process.

    UsageError when another process holds it; FileError when the folder cannot be written to, or something else has
    that name.
    """
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.pesto-lock")
    try:
        descriptor = _taken(beside)
    except OSError as error:
        raise FileError(f"cannot write {shown(beside)}: {error.strerror} - name another place") from error
    if descriptor is None:
        raise UsageError(f"{shown(path)}: another run is writing it - wait for it, or give another --db")
    try:
        yield
    finally:
        # Removed while it is held: whoever opened it meanwhile notices, in `_taken`, that it has no name any more.
        beside.unlink(missing_ok=True)
        os.close(descriptor)


def _taken(beside: Path) -> int | None:
    """An open file with the lock, None when it is another's."""
    while True:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _require_ours(descriptor, beside)
            if _named(descriptor, beside):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _require_ours(descriptor: int, beside: Path) -> None:
    """Mark a new lock; FileError for somebody's file, which is left as it is."""
    found = os.pread(descriptor, len(_MARK) + 1, 0) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b"?"
    if not found:
        os.pwrite(descriptor, _MARK, 0)
    elif found != _MARK:
        raise FileError(f"{shown(beside)} is in the way: it is no lock of a study - move it, or give another --db")


def _named(descriptor: int, beside: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), beside.stat())
    except FileNotFoundError:
        return False
