"""Uploaded files, each called by the SHA-256 of its bytes; what is in them is for workers alone."""

import asyncio
import hashlib
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pesto.core.errors import FileError
from pesto.core.files.disk import file_sha256, make_folder, sync_folder
from pesto.core.files.json import quoted, shown
from pesto.core.quantities import size
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.group_commit import Writer
from pesto.service.serve.store.ledger import Ledger

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
    """How much of the folder's disk is free, as a share."""
    found = shutil.disk_usage(folder)
    return found.free / found.total


class Uploader(NamedTuple):
    """Whose a file is, and how many bytes of files they may have."""

    token: str
    most: int


class Blobs:
    """The folder of uploaded files. Whatever is written to it stands in the ledger before, as a part."""

    def __init__(self, folder: Path, most: int, space: Callable[[Path], float] = free_share) -> None:
        """`most`: bytes of one file."""
        self.folder, self._most, self._space = folder, most, space
        self._looked, self._free = -LOOK_S, 1.0
        make_folder(folder)

    def path(self, digest: str) -> Path:
        """Where a file lies. RefusedError (400) for what is no SHA-256."""
        if not _SHA.fullmatch(digest):
            raise RefusedError(400, f"{quoted(digest)} is no SHA-256 - give 64 hexadecimal digits, as sha256sum does")
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
            raise RefusedError(507, f"the disk has less than {LEAST_FREE:.0%} left - free some of it", 60)

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
            room = await writer.asked(partial(reserve, needed=announced or 0, wanted=announced or _STEP))
            count, found = await self._written(part, chunks, room, writer, reserve)
            if announced is not None and count != announced:
                raise RefusedError(400, f"{count} of {announced} announced bytes came - send the file again")
            if found != digest:
                what = f"the bytes that came have the SHA-256 {found} - send the file that it names"
                raise RefusedError(422, what, code="digest_differs")
            await asyncio.to_thread(_sync, part)
            await writer.asked(lambda ledger: self._settle(ledger, part, digest, count, by))
            kept = True
        except OSError as error:
            raise _failed(error) from error
        finally:
            if not kept:
                part.unlink(missing_ok=True)
                with suppress(FileError):  # the reservation runs out
                    await writer.asked(lambda ledger: ledger.drop_part(part.name))
        return count

    def require_room(self, count: int, room: int) -> None:
        """RefusedError (413) for more bytes than a file may have, or than `room`, what the token may still upload."""
        if count > self._most:
            raise RefusedError(413, f"a file may have {size(self._most)} here - split it, or pack it with gzip")
        if count > room:
            raise RefusedError(
                413, f"this token may upload {size(max(room, 0))} more - ask for a larger quota", code="quota_bytes"
            )

    async def _written(
        self, part: Path, chunks: AsyncIterator[bytes], room: int, writer: Writer, reserve: Callable[..., int]
    ) -> tuple[int, str]:
        """Write the chunks as they come, in a thread: how many bytes, and their SHA-256."""
        hashed, count, held = hashlib.sha256(), 0, bytearray()
        with part.open("xb") as file:

            def write(data: bytes) -> None:
                hashed.update(data)
                file.write(data)

            async for chunk in chunks:
                count += len(chunk)
                if count > room:
                    room = await writer.asked(partial(reserve, needed=count, wanted=2 * count))
                held += chunk
                if len(held) >= _CHUNK:
                    self.require_space()
                    await asyncio.to_thread(write, bytes(held))
                    held.clear()
            write(bytes(held))
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


def _sync(part: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())


def _failed(error: OSError) -> FileError:
    return FileError.build(f"cannot keep the file: {error.strerror or shown(error)}", remedy="check the service's disk")
