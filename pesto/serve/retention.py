"""What is removed to make room: files of ended jobs and uploads, by age and by bytes; never what a job waits for."""

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from pesto.serve.store.ledger import Ledger

_DAY_S = 86_400.0


class _Old(NamedTuple):
    since: float
    """When it ended, or was wanted last."""
    size: int
    job: int | None
    """The job's number; None for an upload."""
    path: Path


class Retention:
    """Called by the writer's thread alone, within a transaction."""

    def __init__(self, jobs: Path, blobs: Path, days: float, most: int) -> None:
        """`jobs`, `blobs`: folders; `days`: of age; `most`: bytes of all together."""
        self._jobs, self._blobs, self._days, self._most = jobs, blobs, days, most

    def sweep(self, ledger: Ledger, now: float | None = None) -> int:
        """Remove what is too old, and the oldest of what is too much; how much that was.

        What is removed stands in the ledger first where a job speaks of it: its files are 410 then, whatever happens.
        """
        moment = time.time() if now is None else now
        found = sorted(self._found(ledger))
        total, removed = sum(old.size for old in found), 0
        for old in found:
            if moment - old.since < self._days * _DAY_S and total <= self._most:
                break
            if old.job is None:
                ledger.forget_blob(old.path.name)
                old.path.unlink(missing_ok=True)
            else:
                ledger.expire(old.job)
                shutil.rmtree(old.path, ignore_errors=True)
            total -= old.size
            removed += 1
        return removed

    def tidy(self, ledger: Ledger) -> None:
        """After a crash: remove files that the ledger does not know, or knows to be gone."""
        known = {digest for digest, _, _ in ledger.blobs()}
        for path in self._blobs.iterdir():
            if path.name not in known:
                path.unlink()
        for path in self._jobs.iterdir():
            if ledger.holds_files(path.name) is False:
                shutil.rmtree(path, ignore_errors=True)

    def _found(self, ledger: Ledger) -> list[_Old]:
        ended = [
            _Old(finished, _size(self._jobs / name), number, self._jobs / name)
            for number, name, finished in ledger.ended_with_files()
        ]
        needed = ledger.needed_blobs()
        files = [
            _Old(used, size, None, self._blobs / digest)
            for digest, size, used in ledger.blobs()
            if digest not in needed
        ]
        return ended + files


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
