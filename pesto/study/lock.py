"""One run at a time for a study's file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pesto.documents import shown
from pesto.errors import FileError, UsageError


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of the study's file `path`, in PATH.lock beside it; the system frees it when this process ends.

    UsageError when another process holds it; FileError when the folder cannot be written to.
    """
    beside = Path(f"{os.path.realpath(path)}.lock")
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
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _named(descriptor, beside):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _named(descriptor: int, beside: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), beside.stat())
    except FileNotFoundError:
        return False
