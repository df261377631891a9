"""A batch of one's own as arrays by name, from a NumPy .npz file; nothing is unpickled."""

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from pesto.core.errors import InputError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown

Check = Callable[[str, tuple[int, ...], Any], None]
"""Raises unless an array of that name may have this shape and type."""
_END = ".npy"


def read_batch(path: Path, check: Check) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file; each is checked by what its header says before it is read.

    FileError for a file that is unreadable, InputError for what is no such file, damaged, or holds Python objects.
    """
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name for name in archive.namelist() if name.endswith(_END)]
            return {name.removesuffix(_END): _array(archive, name, path, check) for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError.build(
            f"not a whole .npz file ({shown(error, 80)})",
            where=shown(path),
            remedy="write it with numpy.savez(file, name=array)",
        ) from error


def _array(archive: zipfile.ZipFile, name: str, path: Path, check: Check) -> NDArray[Any]:
    with archive.open(name) as file:
        read: Mapping[tuple[int, int], Any] = {
            (1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0, (3, 0): npy.read_array_header_2_0,
        }  # fmt: skip
        version = npy.read_magic(file)
        if version not in read:
            raise ValueError(f"version {version} of the format")
        shape, _, dtype = read[version](file)
    if dtype.hasobject:
        raise InputError.build(
            f"{shown(name.removesuffix(_END))} holds Python objects, which are not loaded",
            where=shown(path),
            remedy="save an array of numbers, or of texts as numpy.array(texts, dtype='S')",
        )
    check(name.removesuffix(_END), shape, dtype)
    with archive.open(name) as file:
        found: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return found
