"""A batch of the user's own as arrays by name, from a NumPy .npz file; nothing is unpickled."""

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
_READ_HEADER: Mapping[tuple[int, int], Any] = {
    (1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0, (3, 0): npy.read_array_header_2_0,
}  # fmt: skip


def read_batch(path: Path, check: Check) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file; each is checked by its header before it is read.

    Raise FileError for a file that is unreadable, InputError for no such file, a damaged one, or Python objects.
    """
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            arrays: dict[str, NDArray[Any]] = {}
            for file_name in archive.namelist():
                if not file_name.endswith(_END):
                    continue
                name = file_name.removesuffix(_END)
                with archive.open(file_name) as file:
                    version = npy.read_magic(file)
                    if version not in _READ_HEADER:
                        raise ValueError(f"version {version} of the format")
                    shape, _, dtype = _READ_HEADER[version](file)
                if dtype.hasobject:
                    raise InputError.build(
                        f"{shown(name)} holds Python objects, which are not loaded",
                        where=shown(path),
                        remedy="save an array of numbers, or of texts as numpy.array(texts, dtype='S')",
                    )
                check(name, shape, dtype)
                with archive.open(file_name) as file:
                    arrays[name] = npy.read_array(file, allow_pickle=False)
            return arrays
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError.build(
            f"not a whole .npz file ({shown(error, 80)})",
            where=shown(path),
            remedy="write it with numpy.savez(file, name=array)",
        ) from error
