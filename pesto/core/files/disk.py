"""Bytes to and from disk: whole or not at all, bounded, and every failure one line that says what to do."""

import errno
import hashlib
import logging
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.quantities import size

MAX_BYTES = 2 << 30
"""Bytes of one file, as stored and as unpacked."""
MAX_RATIO = 200
"""Bytes that one compressed byte may stand for."""

LARGE = 1 << 24
"""Bytes of a file from which on the log says that it is read: it takes seconds."""
LARGE_OPS = 100_000
"""Ops of a graph or plan from which on the log says that it is written."""

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
_REMEDY = {
    errno.ENOENT: "check the name, and that its folder exists",
    errno.ENOTDIR: "a part of the name is a file, not a folder",
    errno.EISDIR: "name a file, not a folder",
    errno.EACCES: "change the permissions or name another place",
    errno.EPERM: "change the permissions or name another place",
    errno.EROFS: "the file system is read-only; name another place",
    errno.ENOSPC: "free some space or name another place",
    errno.EDQUOT: "free some of your quota or name another place",
    errno.EFBIG: "the file size is limited here; name another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "the symbolic links lead in a circle; name the file itself",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the disk reports a fault; name another place",
    errno.EPIPE: "the reader has gone away",
}


@contextmanager
def _explain_errors(act: str, path: Path) -> Iterator[None]:
    """Turn a failure of the system into a FileError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        remedy = _REMEDY.get(error.errno or 0, "try another place")
        raise FileError.build(f"cannot {act} {shown(path)}: {reason}", remedy=remedy) from error
    except ValueError as error:  # a null byte, or a character that the file system cannot spell
        raise FileError.build(f"cannot {act} {shown(path)}: {shown(error)}", remedy="choose another name") from error


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` so that `path` holds, whatever happens and when, either what it held or all of it.

    A temporary file beside the target is written, synced and renamed, then the folder is synced. The file keeps the
    mode it had; a new one gets the usual mode. A symbolic link is followed and stays. A pipe or a character device
    (/dev/stdout, /dev/null) is written to directly. Another hard link to the file keeps the old content. A file that
    is read-only, a folder, a disk and a socket are refused.
    Raise FileError when it fails: then no temporary file is left, and only if it was the folder's sync that failed is
    the new content there already. (A killed process may leave one, named .pesto-*.tmp.)
    """
    target = Path(path)
    with _explain_errors("write", target):
        found = _inspect(target)
        if found is not None and not stat.S_ISREG(found.st_mode):
            # Appending keeps what the shell already sent to the same file; pipes and devices do not care.
            descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                _write_all(descriptor, data)
            finally:
                os.close(descriptor)
        else:
            _replace(Path(os.path.realpath(target)), data, found)


def log_writing(path: str | os.PathLike[str], ops: int) -> None:
    """Say in the log that a large graph or plan is encoded and written."""
    if ops >= LARGE_OPS:
        _LOG.info("writing %s, %d ops ...", shown(path), ops)


def make_folder(path: str | os.PathLike[str], *, private: bool = False) -> None:
    """Make a folder, with those above it, unless it is there. Raise FileError when that cannot be.

    private: True if nobody but its owner may look into one that is made.
    """
    target = Path(path)
    with _explain_errors("make the folder", target):
        target.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)


def check_exists(path: str | os.PathLike[str]) -> None:
    """Raise FileError when nothing is at the path."""
    with _explain_errors("read", Path(path)):
        Path(path).stat()


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise now the FileError that `make_folder` would meet later; make nothing."""
    target = Path(path)
    with _explain_errors("make the folder", target):
        above = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
        _require(above.is_dir(), errno.ENOTDIR)
        _require(os.access(above, os.W_OK | os.X_OK), errno.EACCES)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise now the FileError that `write_atomic` would meet after hours of work; leave nothing behind."""
    target = Path(path)
    with _explain_errors("write", target):
        found = _inspect(target)
        if found is not None and not stat.S_ISREG(found.st_mode):
            _require(os.access(target, os.W_OK), errno.EACCES)
            return
        descriptor, temporary = _create(Path(os.path.realpath(target)).parent)
        try:
            _write_all(descriptor, bytes(4096))
        finally:
            os.close(descriptor)
            temporary.unlink()


def _inspect(target: Path) -> os.stat_result | None:
    """The state of the target, None where nothing is there. Raise OSError when it may not be written to."""
    if str(target).startswith(_STREAMS):
        return os.stat_result((stat.S_IFIFO, *[0] * 9))
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    _require(not stat.S_ISDIR(found.st_mode), errno.EISDIR)
    _require(not (stat.S_ISBLK(found.st_mode) or stat.S_ISSOCK(found.st_mode)), errno.EPERM)
    _require(os.access(target, os.W_OK), errno.EACCES)
    return found


def _require(fine: bool, otherwise: int) -> None:
    if not fine:
        raise OSError(otherwise, os.strerror(otherwise))


def _replace(target: Path, data: bytes, found: os.stat_result | None) -> None:
    descriptor, temporary = _create(target.parent)
    try:
        try:
            if found is not None:
                # Only root may give files away, and some file systems have no modes: neither is a reason not to save.
                with suppress(PermissionError):
                    os.fchown(descriptor, found.st_uid, found.st_gid)
                with suppress(PermissionError):
                    os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)  # noqa: PTH105  # beside its siblings of os
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    sync_folder(target.parent)


def _create(folder: Path) -> tuple[int, Path]:
    temporary = folder / f".pesto-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(temporary, flags, 0o666), temporary


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:_CHUNK]) :]


def sync_folder(folder: Path) -> None:
    """Make a rename last; some file systems cannot sync folders, which is no failure of the save."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def read_bytes(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes:
    """Return the content of a file or pipe, unpacked when it is gzip, whatever its name.

    Raise FileError when it cannot be read; UsageError where it may not be (`confine_to`); InputError when it holds more
    than `limit` bytes, packed or not, when one packed byte stands for more than 200 (beyond the first MiB), or when the
    gzip data is damaged or in several parts.
    """
    source = Path(path)
    require_inside(source)
    with _explain_errors("read", source):
        found = source.stat()
        _require(not stat.S_ISDIR(found.st_mode), errno.EISDIR)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
            raise FileError.build(f"cannot read {shown(source)}: it is a device", remedy="name a file")
        if found.st_size > limit:
            raise _too_large(source, limit)
        if found.st_size >= LARGE:
            _LOG.info("reading %s, %s ...", shown(source), size(found.st_size))
        parts: list[bytes] = []
        left = limit + 1
        with source.open("rb") as file:
            while left > 0 and (part := file.read(min(left, max(found.st_size + 1, _CHUNK)))):
                parts.append(part)
                left -= len(part)
        data = b"".join(parts)
    if len(data) > limit:
        raise _too_large(source, limit)
    return _unpack(data, source, limit) if data.startswith(_GZIP) else data


def _too_large(source: Path, limit: int) -> InputError:
    return InputError.build(
        f"larger than {limit} bytes", where=shown(source), remedy="split it or leave out what is not needed"
    )


def _unpack(data: bytes, source: Path, limit: int) -> bytes:
    # A little more than is allowed is enough to know that it is exceeded.
    most = min(limit, max(MAX_RATIO * len(data), _CHUNK))
    stream = zlib.decompressobj(wbits=31)
    try:
        content = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise InputError.build("damaged gzip data", where=shown(source), remedy="write it again") from error
    if len(content) > limit:
        raise _too_large(source, limit)
    if len(content) > most:
        raise InputError.build(
            f"unpacks to more than {MAX_RATIO} times its size", where=shown(source), remedy="pass it unpacked"
        )
    if not stream.eof:
        raise InputError.build(
            "the gzip data ends too early", where=shown(source), remedy="the file was cut short; write it again"
        )
    if stream.unused_data.strip(b"\0"):
        raise InputError.build(
            "more data follows the gzip data", where=shown(source), remedy="pack one text into one gzip file"
        )
    return content


def gzipped(data: bytes) -> bytes:
    """Return `data` as gzip without name or date: equal data gives equal bytes."""
    stream = zlib.compressobj(6, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


@lru_cache(1 << 16)
def _sha256_of(path: Path, *_state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits. Raise OSError if it cannot be read.

    It is computed again only where the file's inode, size or time of modification changed.
    """
    state = path.stat()
    return _sha256_of(path, state.st_ino, state.st_size, state.st_mtime_ns)


# While a job runs, no path is opened but those of its uploads.

_OWN = str(Path(__file__).resolve().parents[2])
"""The folder of the package, which has the presets."""


class _Confinement:
    folders: tuple[str, ...] | None = None
    """Folders that may be read; None: all."""


@contextmanager
def confine_to(folder: Path) -> Iterator[None]:
    """Have the whole process read files of this folder and of the package alone, whatever a file names."""
    before = _Confinement.folders
    _Confinement.folders = (os.path.abspath(folder), _OWN)  # noqa: PTH100  # links in the folder are the job's own
    try:
        yield
    finally:
        _Confinement.folders = before


def is_confined() -> bool:
    """Return True if only files of some folders may be read."""
    return _Confinement.folders is not None


def require_inside(path: Path) -> None:
    """Raise UsageError for a file that may not be read; nothing is asked of the system for it."""
    if _Confinement.folders is None:
        return
    whole = os.path.abspath(path)  # noqa: PTH100
    if not any(whole.startswith(folder + os.sep) for folder in _Confinement.folders):
        raise UsageError.build(
            f"a job reads its uploads alone, and no {shown(path)}", remedy="upload the file, and give it as a blob"
        )
