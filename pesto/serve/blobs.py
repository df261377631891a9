"""Uploaded files, each called by the SHA-256 of its bytes; what is in them is for workers alone."""

import asyncio
import hashlib
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from pesto.errors import FileError
from pesto.files.disk import make_folder, sync_folder
from pesto.files.json import quoted, shown
from pesto.quantities import size
from pesto.serve.refusals import RefusedError
from pesto.serve.store.ledger import Ledger

LEAST_FREE = 0.05
"""Share of the disk below which nothing more is taken."""
LOOK_S = 0.5
"""Seconds between two looks at the disk."""
PART = ".part"
"""The ending of a file that is coming."""
_CHUNK = 1 << 20
_SHA = re.compile(r"[0-9a-f]{64}")


def free_share(folder: Path) -> float:
    """How much of the folder's disk is free, as a share."""
    found = shutil.disk_usage(folder)
    return found.free / found.total


class Part(NamedTuple):
    """A whole file that has no name yet."""

    sha256: str
    size: int
    path: Path


class Blobs:
    """The folder of uploaded files."""

    def __init__(
        self, folder: Path, most: int, space: Callable[[Path], float] = free_share, *, stale_s: float = 0.0
    ) -> None:
        """`most`: bytes of one file. Removes half of files to which nothing was added for `stale_s`.

        That is what a killed process left, where no other process writes to the folder or none is so slow.
        """
        self.folder, self._most, self._space = folder, most, space
        self._looked, self._free = -LOOK_S, 1.0
        make_folder(folder)
        for left in folder.glob(f"*{PART}"):
            _remove_stale(left, stale_s)

    def path(self, digest: str) -> Path:
        """Where a file lies. RefusedError (400) for what is no SHA-256."""
        if not _SHA.fullmatch(digest):
            raise RefusedError(400, f"{quoted(digest)} is no SHA-256 - give 64 hexadecimal digits, as sha256sum does")
        return self.folder / digest

    def require_space(self) -> None:
        """RefusedError (507) when the disk is nearly full."""
        now = time.monotonic()
        if now >= self._looked + LOOK_S:
            self._looked, self._free = now, self._space(self.folder)
        if self._free < LEAST_FREE:
            raise RefusedError(507, f"the disk has less than {LEAST_FREE:.0%} left - free some of it", 60)

    @asynccontextmanager
    async def coming(
        self, digest: str, chunks: AsyncIterator[bytes], told: int | None, room: int
    ) -> AsyncIterator[Part]:
        """A file as it came, its bytes on the disk, until it is settled; else it is removed.

        told: bytes that are announced. room: bytes that the token may still upload. RefusedError when the bytes are
        others (422), too many (413), fewer than announced (400), or the disk is full (507); nothing is left then.
        """
        self.path(digest)
        self.require_room(told or 0, room)
        self.require_space()
        part = self.folder / f"{os.urandom(8).hex()}{PART}"
        try:
            count, found = await self._written(part, chunks, room)
            if told is not None and count != told:
                raise RefusedError(400, f"{count} of {told} announced bytes came - send the file again")
            if found != digest:
                raise RefusedError(422, f"the bytes that came have the SHA-256 {found} - send the file that it names")
            await asyncio.to_thread(_sync, part)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise _failed(error) from error
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        try:
            yield Part(digest, count, part)
        finally:
            part.unlink(missing_ok=True)

    def settle(self, part: Part) -> None:
        """Give a file its name; by the thread that also removes files."""
        try:
            part.path.replace(self.folder / part.sha256)
            sync_folder(self.folder)
        except OSError as error:
            raise _failed(error) from error

    def copied(self, file: Path) -> Part:
        """A copy of a file of this machine, to be settled."""
        hashed, count = hashlib.sha256(), 0
        part = self.folder / f"{os.urandom(8).hex()}{PART}"
        try:
            with file.open("rb") as source, part.open("xb") as copy:
                while chunk := source.read(_CHUNK):
                    hashed.update(chunk)
                    copy.write(chunk)
                    count += len(chunk)
            _sync(part)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise _failed(error) from error
        return Part(hashed.hexdigest(), count, part)

    def require_room(self, count: int, room: int) -> None:
        """RefusedError (413) for more bytes than a file may have, or than `room`, what the token may still upload."""
        if count > self._most:
            raise RefusedError(413, f"a file may have {size(self._most)} here - split it, or pack it with gzip")
        if count > room:
            raise RefusedError(413, f"this token may upload {size(max(room, 0))} more - ask for a larger quota")

    async def _written(self, part: Path, chunks: AsyncIterator[bytes], room: int) -> tuple[int, str]:
        """Write the chunks as they come, in a thread: how many bytes, and their SHA-256."""
        hashed, count, held = hashlib.sha256(), 0, bytearray()
        with part.open("xb") as file:

            def write(data: bytes) -> None:
                hashed.update(data)
                file.write(data)

            async for chunk in chunks:
                count += len(chunk)
                self.require_room(count, room)
                held += chunk
                if len(held) >= _CHUNK:
                    self.require_space()
                    await asyncio.to_thread(write, bytes(held))
                    held.clear()
            write(bytes(held))
        return count, hashed.hexdigest()


def taken_in(ledger: Ledger, blobs: Blobs, part: Part, token: str, most: int) -> None:
    """An act: a file gets its name, and is remembered. RefusedError (413) beyond `most` bytes of the token's files."""
    ledger.alone()
    blobs.require_room(part.size, most - ledger.blob_bytes(token))
    blobs.settle(part)
    ledger.add_blob(part.sha256, part.size, token)


def _remove_stale(part: Path, stale_s: float) -> None:
    try:
        if time.time() - part.stat().st_mtime >= stale_s:
            part.unlink()
    except FileNotFoundError:  # another server has removed it, or given it its name
        return


def _sync(part: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())


def _failed(error: OSError) -> FileError:
    return FileError(f"cannot keep the file: {error.strerror or shown(error)} - check the service's disk")
