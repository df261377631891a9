"""Uploaded files, each named by the SHA-256 of its bytes, and the removal of old files of jobs and uploads."""

import asyncio
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pesto.core.errors import FileError
from pesto.core.files.disk import file_sha256, make_folder, sync_folder
from pesto.core.files.json import quoted, shown
from pesto.core.quantities import size
from pesto.service.protocol import FINAL
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.serve_config import KeepDays
from pesto.service.serve.store.ledger import BLOBS, JOBS, Ledger
from pesto.service.serve.store.opening import Writer

LEAST_FREE = 0.05
"""Share of the disk below which nothing more is taken."""
LOOK_S = 0.5
"""Seconds between two looks at the disk."""
PART = ".part"
"""The ending of a file that is coming."""
_CHUNK = 1 << 20
_STEP = 16 << 20
"""Bytes that are reserved at first where nobody said how many will come."""
_SHA = re.compile(r"[0-9a-f]{64}")


def free_share(folder: Path) -> float:
    """Return the free share of the folder's disk."""
    usage = shutil.disk_usage(folder)
    return usage.free / usage.total


class Uploader(NamedTuple):
    """The token that uploads a file, and the most bytes that it may have uploaded."""

    token: str
    most: int


class Blobs:
    """The folder of uploaded files. Whatever is written to it stands in the ledger before, as a part."""

    def __init__(self, folder: Path, file_limit: int, space: Callable[[Path], float] = free_share) -> None:
        """`file_limit`: bytes of one file."""
        self.folder, self._most, self._space = folder, file_limit, space
        self._looked, self._free = -LOOK_S, 1.0
        make_folder(folder)

    def path(self, digest: str) -> Path:
        """Return the path of a file. RefusedError (400) for what is no SHA-256."""
        if not _SHA.fullmatch(digest):
            raise RefusedError(
                400, f"{quoted(digest)} is no SHA-256", remedy="give 64 hexadecimal digits, as sha256sum does"
            )
        return self.folder / digest

    async def intact(self, digest: str) -> bool:
        """Return True if the file is there with the bytes that it is called by."""
        try:
            return await asyncio.to_thread(file_sha256, self.path(digest)) == digest
        except OSError:
            return False

    def require_space(self) -> None:
        """RefusedError (507) when the disk is nearly full."""
        now = time.monotonic()
        if now >= self._looked + LOOK_S:
            self._looked, self._free = now, self._space(self.folder)
        if self._free < LEAST_FREE:
            raise RefusedError(507, f"the disk has less than {LEAST_FREE:.0%} left", 60, remedy="free some space on it")

    async def take_in(
        self, digest: str, chunks: AsyncIterator[bytes], announced: int | None, writer: Writer, by: Uploader
    ) -> int:
        """Keep a file as it comes; return its bytes, once it has its name and is remembered.

        announced: bytes that will come; None if nobody said so. Bytes are reserved before they are written.
        RefusedError when the bytes are others (422), too many (413), fewer than announced (400), or the disk is full
        (507); nothing is left then.
        """
        self.path(digest)
        self.require_space()
        part = self.folder / f"{os.urandom(8).hex()}{PART}"
        reserve = partial(self._reserve, part=part.name, digest=digest, by=by)
        kept = False
        try:
            room = await writer.ask(partial(reserve, needed=announced or 0, wanted=announced or _STEP))
            count, received = await self._written(part, chunks, room, writer, reserve)
            if announced is not None and count != announced:
                raise RefusedError(400, f"the upload ended at byte {count} of {announced}", remedy="send it again")
            if received != digest:
                what = f"the uploaded bytes have the SHA-256 {received}, not {digest}"
                raise RefusedError(422, what, remedy="send it to the path of its SHA-256", code="digest_differs")
            await writer.ask(lambda ledger: self._settle(ledger, part, digest, count, by))
            kept = True
        except OSError as error:
            raise _failed(error) from error
        finally:
            if not kept:
                part.unlink(missing_ok=True)
                with suppress(FileError):  # the reservation runs out
                    await writer.ask(lambda ledger: ledger.drop_part(part.name))
        return count

    def require_room(self, count: int, room: int) -> None:
        """RefusedError (413) for more bytes than a file may have, or than `room`, what the token may still upload."""
        if count > self._most:
            raise RefusedError(413, f"the file exceeds the limit of {size(self._most)}", remedy="compress it with gzip")
        if count > room:
            what = f"the upload exceeds the {size(max(room, 0))} that this token has left"
            raise RefusedError(413, what, remedy="ask the operator for a larger quota", code="quota_bytes")

    async def _written(
        self, part: Path, chunks: AsyncIterator[bytes], room: int, writer: Writer, reserve: Callable[..., int]
    ) -> tuple[int, str]:
        """Write the chunks to the disk as they come, in a thread; return how many bytes, and their SHA-256."""
        hashed, count, buffer = hashlib.sha256(), 0, bytearray()
        with part.open("xb") as file:

            def write(data: bytes) -> None:
                hashed.update(data)
                file.write(data)

            async for chunk in chunks:
                count += len(chunk)
                if count > room:
                    room = await writer.ask(partial(reserve, needed=count, wanted=2 * count))
                buffer += chunk
                if len(buffer) >= _CHUNK:
                    self.require_space()
                    await asyncio.to_thread(write, bytes(buffer))
                    buffer.clear()
            write(bytes(buffer))
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return count, hashed.hexdigest()

    def _reserve(self, ledger: Ledger, part: str, digest: str, by: Uploader, *, needed: int, wanted: int) -> int:
        """Act: reserve bytes for a part, as many of those wanted as there are; return how many it has."""
        ledger.alone()
        room = by.most - ledger.upload_bytes(by.token, part, digest)
        self.require_room(needed, room)
        reserved = min(wanted, room, self._most)
        ledger.put_part(part, digest, by.token, reserved)
        return reserved

    def _settle(self, ledger: Ledger, part: Path, digest: str, count: int, by: Uploader) -> None:
        """Act: give a whole file its name, and remember it."""
        ledger.alone()
        self.require_room(count, by.most - ledger.upload_bytes(by.token, part.name, digest))
        try:
            part.replace(self.folder / digest)
            sync_folder(self.folder)
        except OSError as error:
            raise _failed(error) from error
        ledger.add_blob(digest, count, by.token)
        ledger.drop_part(part.name)


async def chunks_of(file: Path) -> AsyncIterator[bytes]:
    """Read a file of this machine, a chunk at a time."""
    with await asyncio.to_thread(file.open, "rb") as source:
        while chunk := await asyncio.to_thread(source.read, _CHUNK):
            yield chunk


def _failed(error: OSError) -> FileError:
    return FileError.build(f"cannot keep the file: {error.strerror or shown(error)}", remedy="check the service's disk")


T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_DAY_S = 86_400.0
_BATCH = 200
"""Jobs of a transaction that deletes."""
_PAGES = 1000
"""Pages of the database that one transaction gives back to the disk."""
STALE_S = 3600.0
"""Seconds without a byte of an upload after which it is taken for dead while servers run."""


class Doing(Protocol):
    """Has an act on the ledger done, and waits for it."""

    def __call__(self, act: Callable[[Ledger], T], /) -> T:
        """Do an act; return what it gives, once that is on the disk."""


class _Old(NamedTuple):
    since: float
    """Time of its end, or of its last use, in seconds since 1970."""
    size: int
    job: int | None
    """The job's number; None for an upload."""
    name: str
    """The job's id, or the upload's SHA-256."""


class Retention:
    """Removes old files: each stands in the ledger first and goes once that is on the disk, so it is 410 after a crash.

    Nothing else is ever removed: a file that the ledger does not name is not known to be the service's own.
    Files are looked at outside of transactions, and uploads removed while nobody takes any in.
    """

    def __init__(self, folder: Path, days: float, byte_limit: int, keep: KeepDays) -> None:
        """`folder`: of the service; `days`: of age of files and events; `byte_limit`: bytes of all files together.

        keep: days after which whole jobs are deleted, by state.
        """
        self._folder, self._days, self._most, self._keep = folder, days, byte_limit, keep
        self._jobs, self._blobs = folder / JOBS, folder / BLOBS

    def sweep(self, do: Doing, now: float | None = None) -> int:
        """Remove the files that are too old, and the oldest beyond the limit; return how many jobs and uploads."""
        moment = time.time() if now is None else now
        files = list[_Old]()
        for number, name, finished in do(lambda ledger: ledger.ended_with_files()):
            sizes = (file.stat().st_size for file in (self._jobs / name).rglob("*") if file.is_file())
            files.append(_Old(finished, sum(sizes), number, name))
        needed, blobs = do(lambda ledger: (ledger.needed_blobs(), ledger.blobs()))
        files += [_Old(used, size, None, digest) for digest, size, used in blobs if digest not in needed]
        total, chosen = sum(old.size for old in files), list[_Old]()
        for old in sorted(files):
            if moment - old.since < self._days * _DAY_S and total <= self._most:
                break
            total -= old.size
            chosen.append(old)
        count = do(lambda ledger: _forget(ledger, chosen)) if chosen else 0
        # Delete jobs and events that are too old, a few in each transaction, and make the database smaller.
        for state in FINAL:
            before = moment - getattr(self._keep, state.value) * _DAY_S
            while do(partial(Ledger.purge_ended, state=state, before=before, most=_BATCH)) == _BATCH:
                pass
        before = moment - self._days * _DAY_S
        while do(partial(Ledger.expire_events, before=before, most=_BATCH)) == _BATCH:
            pass
        do(Ledger.forget_usage)
        left = 0
        while (last := do(partial(Ledger.shrink, pages=_PAGES))) and last != left:
            left = last
        self.remove_listed(do)
        return count

    def tidy(self, do: Doing, stale_s: float) -> None:
        """Remove what a crash left: what was to be removed, and halves of files that grew for the last time long ago.

        stale_s: how many seconds ago that must be; 0 where nobody else writes to the folder.
        """
        stale = list[tuple[str, str, float]]()
        for part in do(lambda ledger: ledger.parts()):
            name, _, since = part
            with suppress(FileNotFoundError):
                since = (self._blobs / name).stat().st_mtime
            if max(0.0, time.time() - since) >= stale_s:
                stale.append(part)
        if stale:
            do(lambda ledger: self._drop(ledger, stale))
        self.remove_listed(do)

    def name_others(self, do: Doing) -> None:
        """Say in the log how many files of the folder of uploads are not the service's."""
        blobs, parts = do(lambda ledger: (ledger.blobs(), ledger.parts()))
        known = {digest for digest, _, _ in blobs} | {name for part in parts for name in part[:2]}
        if others := sum(path.name not in known for path in self._blobs.iterdir()):
            _LOG.warning("%d files in %s are not known to the service and stay there", others, shown(self._blobs))

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
        """Remove the paths that the ledger lists; an upload stays if it has come again since."""

        def unlink(ledger: Ledger, path: str) -> None:
            ledger.alone()
            if path.startswith(f"{BLOBS}/") and path in ledger.removals():
                (self._folder / path).unlink(missing_ok=True)
            ledger.removed(path)

        for path in do(lambda ledger: ledger.removals()):
            if path.startswith(f"{JOBS}/"):
                shutil.rmtree(self._folder / path, ignore_errors=True)
            do(partial(unlink, path=path))


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
