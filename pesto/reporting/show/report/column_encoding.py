"""Columns of integers as text for a page: differences as bytes of varying number, deflated, in base64."""

import base64
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints

_LEVEL = 9
"""Compression level of deflate: pages are written once."""


class PackedColumns(NamedTuple):
    """Columns as a page holds them."""

    lengths: dict[str, int]
    """Entries of each column, in the order in which the bytes have them."""
    text: str
    """Base64 of the deflated bytes (RFC 1951, no header)."""


def pack_columns(columns: Mapping[str, Ints]) -> PackedColumns:
    """The columns, in order; entries are 64-bit integers, small ones cost least."""
    squeezed = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
    data = b"".join(squeezed.compress(varints(column)) for column in columns.values()) + squeezed.flush()
    return PackedColumns({name: len(column) for name, column in columns.items()}, base64.b64encode(data).decode())


def varints(values: Ints) -> bytes:
    """Each integer as 1 to 10 bytes: the first has the sign in bit 0 and 6 bits of the size, each other 7 bits more.

    Bit 7 says that another byte follows. The sign is no part of the size, as it is in zigzag, so that a reader that
    counts in doubles loses the last digits beyond 2^53, and no signs.
    """
    given = np.asarray(values, dtype=np.int64)
    code = (np.abs(given).astype(np.uint64) << np.uint64(1)) | (given < 0).astype(np.uint64)
    count = np.ones(len(code), dtype=np.int64)
    for byte in range(1, 10):
        count += code >= np.uint64(1) << np.uint64(7 * byte)
    first = np.cumsum(count) - count
    result = np.zeros(int(count.sum()), dtype=np.uint8)
    for byte in range(10):
        has = np.flatnonzero(count > byte)
        low = (code[has] >> np.uint64(7 * byte)).astype(np.uint8) & np.uint8(127)
        result[first[has] + byte] = low | ((count[has] > byte + 1).astype(np.uint8) << np.uint8(7))
    return result.tobytes()


def differences(values: Ints) -> Ints:
    """[n] what each entry is more than the one before it, the first more than 0."""
    return np.diff(values, prepend=np.int64(0))


def since_alike(values: Ints, alike: Ints) -> Ints:
    """[n] what each entry is more than the last before it of the same class, the first of a class more than 0.

    alike: [n] the class of each entry, such as its op type: entries of one class are mostly equal.
    """
    by = np.argsort(alike, kind="stable")
    there, kind = values[by], alike[by]
    before = np.where(np.diff(kind, prepend=-1) != 0, 0, np.roll(there, 1))
    result = np.empty(len(values), dtype=np.int64)
    result[by] = there - before
    return result
