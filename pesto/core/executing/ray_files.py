"""The files of a work on Ray: carried there and back as bytes, since nodes share no folder."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pesto.core.errors import FileError
from pesto.core.executing.executor import WorkFiles
from pesto.core.files.disk import make_folder, write_atomic

_NEW, _MADE = ".pesto-work-", "pesto-work-"
_BLOBS, _OUT = "blobs", "out"


class FileCopies:
    """The folders of a work's files as its worker has them."""

    def __init__(self, files: WorkFiles, folder: Path) -> None:
        self._out = folder / _OUT
        self._seen: dict[str, tuple[int, ...] | None] = {}
        self._here = {files.folder: str(folder / _BLOBS), files.out: str(self._out)} if files.out else {}

    def here(self, folder: str) -> str:
        """Where a folder of whoever began the work is here; one that is none of the work's is where it is."""
        return self._here.get(folder, folder)

    def written(self) -> dict[str, bytes]:
        """What lies in the folder of results."""
        found = self._out.iterdir() if self._out.is_dir() else ()
        return {path.name: path.read_bytes() for path in found if path.is_file() and not path.name.startswith(".")}

    def changes(self, names: Iterable[str]) -> dict[str, bytes | None]:
        """What those of these results hold that have changed since this was asked last; None for one that is gone."""
        found: dict[str, bytes | None] = {}
        for name in names:
            path = self._out / name
            try:
                state: tuple[int, ...] | None = (path.stat().st_ino, path.stat().st_mtime_ns)
                data: bytes | None = path.read_bytes() if state != self._seen.get(name) else None
            except FileNotFoundError:
                state = data = None
            if state != self._seen.get(name):
                self._seen[name], found[name] = state, data
        return found


def read_inputs(files: WorkFiles) -> Iterator[tuple[str, bytes]]:
    """What a work reads; a file that cannot be read is left out, and the work says so."""
    for name in files.reads:
        try:
            data = (Path(files.folder) / name).read_bytes()
        except OSError:
            continue
        yield name, data


def write_results(files: WorkFiles, written: Mapping[str, bytes | None]) -> None:
    """Write what a work wrote elsewhere, and remove what it removed (None); FileError where that cannot be done."""
    if files.out:
        make_folder(files.out)
    for name, data in written.items():
        if Path(name).name != name:
            raise FileError.build(f"{name!r} is no name of a result", remedy="run the same pesto on every node")
        if data is None:
            (Path(files.out) / name).unlink(missing_ok=True)
        else:
            write_atomic(Path(files.out) / name, data)


@contextmanager
def copied_files(files: WorkFiles, read: dict[str, bytes]) -> Iterator[FileCopies]:
    """Copies of what a work reads, and a folder for what it writes; then they are removed."""
    if not files.out:
        yield FileCopies(files, Path())
        return
    with _locked_folder() as folder:
        for part in (_BLOBS, _OUT):
            (folder / part).mkdir()
        for name, data in read.items():
            (folder / _BLOBS / name).write_bytes(data)
        yield FileCopies(files, folder)


@contextmanager
def _locked_folder() -> Iterator[Path]:
    """A folder with a lock that ends with this process; those whose process was killed are removed first."""
    _tidy()
    made = Path(tempfile.mkdtemp(prefix=_NEW))
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Named so once it is locked: a process that tidies up meanwhile finds either no such name or a lock.
        folder = made.rename(made.with_name(_MADE + made.name.removeprefix(_NEW)))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _tidy() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_MADE}*"):
        with suppress(OSError):  # it is held, is not ours, or is gone
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)
