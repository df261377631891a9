"""SHA-256 of files."""

import hashlib
from functools import lru_cache
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits; OSError if it cannot be read.

    It is computed again only where the file's inode, size or time of modification are others than before.
    """
    found = path.stat()
    return _computed(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(1 << 16)
def _computed(path: Path, *_seen: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
