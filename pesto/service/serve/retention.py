"""What is removed to make room: files of ended jobs and uploads, by age and by bytes; never what a job waits for."""

import logging
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pesto.core.files.json import shown
from pesto.service.protocol.job_states import FINAL
from pesto.service.serve.serve_config import KeepDays
from pesto.service.serve.store.ledger import BLOBS, JOBS, Ledger

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_DAY_S = 86_400.0
_BATCH = 200
"""Jobs of a transaction that deletes."""
_PAGES = 1000
"""Of the database, given to the disk in a transaction."""
STALE_S = 3600.0
"""Seconds without a byte of an upload after which it is taken for dead while servers run."""


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
    name: str
    """The job's id, or the upload's SHA-256."""


class Retention:
    """What goes stands in the ledger first, and is removed when that is on the disk: it is 410 then, whatever happens.

    Nothing else is ever removed: a file that the ledger does not name is not known to be the service's own.
    Files are looked at outside of transactions, and uploads removed while nobody takes any in.
    """

    def __init__(self, folder: Path, days: float, most: int, keep: KeepDays) -> None:
        """`folder`: of the service; `days`: of age of files and events; `most`: bytes of all files together.

        keep: days after which whole jobs are deleted, by state.
        """
        self._folder, self._days, self._most, self._keep = folder, days, most, keep
        self._jobs, self._blobs = folder / JOBS, folder / BLOBS

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
        count = do(lambda ledger: _forget(ledger, chosen)) if chosen else 0
        self._delete_old(do, moment)
        self.remove_listed(do)
        return count

    def _delete_old(self, do: Doing, now: float) -> None:
        """Delete jobs and events that are too old, a few in each transaction, and make the database smaller."""
        for state in FINAL:
            before = now - getattr(self._keep, state.value) * _DAY_S
            while do(partial(Ledger.purge_ended, state=state, before=before, most=_BATCH)) == _BATCH:
                pass
        before = now - self._days * _DAY_S
        while do(partial(Ledger.expire_events, before=before, most=_BATCH)) == _BATCH:
            pass
        do(Ledger.forget_usage)
        left = 0
        while (last := do(partial(Ledger.shrink, pages=_PAGES))) and last != left:
            left = last

    def tidy(self, do: Doing, stale_s: float) -> None:
        """Remove what a crash left: what was to be removed, and halves of files that grew for the last time long ago.

        stale_s: how many seconds ago that must be; 0 where nobody else writes to the folder.
        """
        stale = [part for part in do(lambda ledger: ledger.parts()) if self._age_s(part) >= stale_s]
        if stale:
            do(lambda ledger: self._drop(ledger, stale))
        self.remove_listed(do)

    def name_others(self, do: Doing) -> None:
        """Say in the log how many files of the folder of uploads are not the service's."""
        blobs, parts = do(lambda ledger: (ledger.blobs(), ledger.parts()))
        known = {digest for digest, _, _ in blobs} | {name for part in parts for name in part[:2]}
        if others := sum(path.name not in known for path in self._blobs.iterdir()):
            _LOG.warning("%d files in %s are not known to the service and stay there", others, shown(self._blobs))

    def _found(self, do: Doing) -> list[_Old]:
        ended = [
            _Old(finished, _size(self._jobs / name), number, name)
            for number, name, finished in do(lambda ledger: ledger.ended_with_files())
        ]
        needed, blobs = do(lambda ledger: (ledger.needed_blobs(), ledger.blobs()))
        files = [_Old(used, size, None, digest) for digest, size, used in blobs if digest not in needed]
        return ended + files

    def _age_s(self, part: tuple[str, str, float]) -> float:
        """Return the seconds since a part grew; since it began where it has no file."""
        name, _, since = part
        with suppress(FileNotFoundError):
            since = (self._blobs / name).stat().st_mtime
        return max(0.0, time.time() - since)

    def _drop(self, ledger: Ledger, parts: Iterable[tuple[str, str, float]]) -> None:
        """Act: remove parts, and the files that they became where no file of that name was remembered any more."""
        ledger.alone()
        for name, _, _ in parts:
            ledger.drop_part(name)
        known = {digest for digest, _, _ in ledger.blobs()} | {digest for _, digest, _ in ledger.parts()}
        for name, digest, _ in parts:
            part = self._blobs / name
            if part.exists():
                part.unlink()
            elif digest not in known:  # it had its name already, and was to be remembered
                (self._blobs / digest).unlink(missing_ok=True)

    def remove_listed(self, do: Doing) -> None:
        """Remove the paths that the ledger has for that."""
        for path in do(lambda ledger: ledger.removals()):
            if path.startswith(f"{JOBS}/"):
                shutil.rmtree(self._folder / path, ignore_errors=True)
            do(partial(self._unlink, path=path))

    def _unlink(self, ledger: Ledger, path: str) -> None:
        """Act: remove an upload, unless it has come again since; forget that it, or a job's folder, is to go."""
        ledger.alone()
        if path.startswith(f"{BLOBS}/") and path in ledger.removals():
            (self._folder / path).unlink(missing_ok=True)
        ledger.removed(path)


def _forget(ledger: Ledger, chosen: Iterable[_Old]) -> int:
    """Act: have removed what is to go and is wanted by nobody still; return how much that was."""
    ledger.alone()
    needed, count = ledger.needed_blobs(), 0
    for old in chosen:
        if old.job is not None:
            ledger.expire(old.job)
        elif old.name in needed or not ledger.forget_blob(old.name, old.since):
            continue
        count += 1
    return count


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
