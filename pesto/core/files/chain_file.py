"""Chain files on disk (docs/reference/chain-file.md): `solvers.pipelining.chain_json` knows their content."""

import os
from pathlib import Path

from pesto.core.errors import InputError
from pesto.core.files.disk import gzipped, read_bytes, write_atomic
from pesto.core.files.json import shown
from solvers.pipelining.chain_json import LARGEST, ChainInstance, dumps_chain, loads_chain


def load_chain(path: str | os.PathLike[str]) -> ChainInstance:
    """Read a chain, gzip or not; FileError when it cannot be read, InputError when its content is refused."""
    data = read_bytes(path, LARGEST)
    try:
        return loads_chain(data)
    except ValueError as error:
        raise InputError(f"{shown(path)}: {shown(error, 2000)}") from error


def save_chain(instance: ChainInstance, path: str | os.PathLike[str]) -> None:
    """Write a chain whole or not at all, as gzip when its name ends in .gz.

    FileError when it fails, InputError for a chain that is too long for a file.
    """
    try:
        data = dumps_chain(instance)
    except ValueError as error:
        raise InputError(f"{shown(path)} cannot be written: {shown(error, 2000)}") from error
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)
