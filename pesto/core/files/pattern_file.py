"""Pattern files on disk (docs/reference/pattern-file.md): `solvers.pipelining.pattern_json` knows their content."""

import os
from pathlib import Path

from pesto.core.errors import InputError
from pesto.core.files.disk import gzipped, read_bytes, write_atomic
from pesto.core.files.json import shown
from solvers.pipelining.pattern_json import LARGEST, PatternInstance, dumps_pattern, loads_pattern


def read_pattern(data: bytes, what: str) -> PatternInstance:
    """The pattern of a file's bytes, which `what` names in errors; InputError when its content is refused."""
    try:
        return loads_pattern(data)
    except ValueError as error:
        raise InputError(f"{shown(what)}: {shown(error, 2000)}") from error


def load_pattern(path: str | os.PathLike[str]) -> PatternInstance:
    """Read a pattern, gzip or not; FileError when it cannot be read, InputError when its content is refused.

    What is read need not be a valid schedule: `pesto.pipelining.pattern_certificate.verify_pattern` says so.
    """
    return read_pattern(read_bytes(path, LARGEST), str(path))


def save_pattern(found: PatternInstance, path: str | os.PathLike[str]) -> None:
    """Write a pattern whole or not at all, as gzip when its name ends in .gz.

    FileError when it fails, InputError for a pattern that is too long for a file.
    """
    try:
        data = dumps_pattern(found)
    except ValueError as error:
        raise InputError(f"{shown(path)} cannot be written: {shown(error, 2000)}") from error
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)
