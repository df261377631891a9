"""Files that a study or the service keeps: one process at a time, and SQLite's errors as one line."""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pesto.core.errors import FileError, PestoError, UsageError
from pesto.core.files.json import shown


@dataclass(frozen=True, slots=True)
class LockKind:
    """Kind of file that is locked, and the words of its refusals."""

    what: str
    """Name of the kind; a lock holds these words, and anything else of its name is not ours."""
    holder: str
    """Process that holds it."""
    remedy: str
    """Advice when it is held by another."""

    @property
    def mark(self) -> bytes:
        """Content of a lock."""
        return f"pesto {self.what} lock\n".encode()


def real_path(path: Path) -> Path:
    """Return where such a file really is: a plain name too (":memory:"), and links followed.

    Raise FileError for what is there and is no regular file, and for a name that cannot be one.
    """
    remedy = "name a file, such as study.sqlite"
    try:
        real = Path(os.path.realpath(path))
        regular = stat.S_ISREG(real.stat().st_mode)
    except FileNotFoundError:
        return real
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise FileError.build(f"cannot use {shown(path)}: {shown(error)}", remedy=remedy) from error
    if not regular:
        raise FileError.build(f"cannot use {shown(path)}: it is a folder or a device", remedy=remedy)
    return real


@contextmanager
def hold_lock(path: Path, kind: LockKind) -> Iterator[None]:
    """Hold the lock of the file NAME, in .NAME.pesto-lock beside it; the system frees it with this process.

    Raise UsageError when another process holds it; FileError when the folder cannot be written to, or something else
    has that name.
    """
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.pesto-lock")
    try:
        descriptor = _open_locked(beside, kind)
    except OSError as error:
        raise FileError.build(f"cannot write {shown(beside)}: {error.strerror}", remedy="name another place") from error
    if descriptor is None:
        raise UsageError.build(
            f"another {kind.holder} is writing it", where=shown(path), remedy=f"wait for it, or {kind.remedy}"
        )
    try:
        yield
    finally:
        # Removed while it is held: whoever opened it meanwhile notices that it has no name any more.
        beside.unlink(missing_ok=True)
        os.close(descriptor)


def _open_locked(beside: Path, kind: LockKind) -> int | None:
    """An open file with the lock, None when it is another's."""
    while True:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Mark a new lock; FileError for somebody's file, which is left as it is.
            state = os.fstat(descriptor)
            mark = os.pread(descriptor, len(kind.mark) + 1, 0) if stat.S_ISREG(state.st_mode) else b"?"
            if not mark:
                os.pwrite(descriptor, kind.mark, 0)
            elif mark != kind.mark:
                raise FileError.build(
                    f"{shown(beside)} is in the way: it is no lock of a {kind.what}",
                    remedy=f"move it, or {kind.remedy}",
                )
            # The holder before may have removed it between the opening and the locking: then open again.
            with suppress(FileNotFoundError):
                if os.path.samestat(state, beside.stat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def explain_errors(path: Path, remedy: str, wrong: type[PestoError]) -> Iterator[None]:
    """Raise SQLite's errors as one line: FileError where it cannot write, `wrong` for a file that is not its own."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise FileError.build(
            f"cannot write {shown(path)}: {shown(error)}", remedy="check the folder and the disk"
        ) from error
    except sqlite3.DatabaseError as error:
        raise wrong.build(f"{shown(error)}", where=shown(path), remedy=remedy) from error
