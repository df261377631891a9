"""What is removed to make room: files of ended jobs and uploads, by age and by bytes; never what a job waits for."""

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from pesto.serve.blobs import PART
from pesto.serve.store.ledger import Ledger

T = TypeVar("T")
_DAY_S = 86_400.0


class Doing(Protocol):
    """Has an act on the ledger done, and waits for it."""

    def __call__(self, act: Callable[[Ledger], T], /) -> T:
        """What the act gives, once it is on the disk."""
        ...


class _Old(NamedTuple):
    since: float
    """When it ended, or was wanted last."""
    size: int
    job: int | None
    """The job's number; None for an upload."""
    path: Path


class Retention:
    """What goes stands in the ledger first, and is removed when that is on the disk: it is 410 then, whatever happens.

    Files are looked at outside of transactions, and uploads removed while nobody takes any in.
    """

    def __init__(self, jobs: Path, blobs: Path, days: float, most: int) -> None:
        """`jobs`, `blobs`: folders; `days`: of age; `most`: bytes of all together."""
        self._jobs, self._blobs, self._days, self._most = jobs, blobs, days, most

    def sweep(self, do: Doing, now: float | None = None) -> int:
        """Remove what is too old, and the oldest of what is too much; how much that was."""
        moment = time.time() if now is None else now
        found = sorted(self._found(do))
        total, chosen = sum(old.size for old in found), list[_Old]()
        for old in found:
            if moment - old.since < self._days * _DAY_S and total <= self._most:
                break
            total -= old.size
            chosen.append(old)
        gone = do(lambda ledger: _forgotten(ledger, chosen)) if chosen else []
        for old in gone:
            if old.job is not None:
                shutil.rmtree(old.path, ignore_errors=True)
        self._unlink(do, [old.path for old in gone if old.job is None])
        return len(gone)

    def tidy(self, do: Doing) -> None:
        """After a crash: remove files that the ledger does not know, or knows to be gone."""
        known = {digest for digest, _, _ in do(lambda ledger: ledger.blobs())}
        unknown = [path for path in self._blobs.iterdir() if path.name not in known and path.suffix != PART]
        self._unlink(do, unknown)
        names = [path.name for path in self._jobs.iterdir()]
        for gone in do(lambda ledger: [name for name in names if ledger.holds_files(name) is False]):
            shutil.rmtree(self._jobs / gone, ignore_errors=True)

    def _found(self, do: Doing) -> list[_Old]:
        ended = [
            _Old(finished, _size(self._jobs / name), number, self._jobs / name)
            for number, name, finished in do(lambda ledger: ledger.ended_with_files())
        ]
        needed, blobs = do(lambda ledger: (ledger.needed_blobs(), ledger.blobs()))
        files = [_Old(used, size, None, self._blobs / digest) for digest, size, used in blobs if digest not in needed]
        return ended + files

    def _unlink(self, do: Doing, paths: list[Path]) -> None:
        if paths:
            do(lambda ledger: _unlinked(ledger, paths))


def _forgotten(ledger: Ledger, chosen: Iterable[_Old]) -> list[_Old]:
    """An act: what is to go and is wanted by nobody still."""
    ledger.alone()
    needed, gone = ledger.needed_blobs(), list[_Old]()
    for old in chosen:
        if old.job is not None:
            ledger.expire(old.job)
        elif old.path.name in needed or not ledger.forget_blob(old.path.name, old.since):
            continue
        gone.append(old)
    return gone


def _unlinked(ledger: Ledger, paths: Iterable[Path]) -> Any:
    """An act: remove uploads, but for what has come again since."""
    ledger.alone()
    known = {digest for digest, _, _ in ledger.blobs()}
    for path in paths:
        if path.name not in known:
            path.unlink(missing_ok=True)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
