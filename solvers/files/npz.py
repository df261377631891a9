"""Problems and schedules to and from bytes: NumPy's `.npz`, of int64 arrays alone.

The file has one member a field and one that names the kind of value and its version. Members are stored, not
compressed, so that no small file asks for much memory, and their headers are matched, not evaluated.
"""

import io
import math
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from solvers.arrays import Ints
from solvers.footprint import Footprint
from solvers.problem import Problem
from solvers.schedule import Schedule

VERSION = 1
"""Version of both formats; a reader refuses every other."""
LARGEST = 2**31
"""Greatest number of bytes of input."""

_MAGIC = b"\x93NUMPY\x01\x00"
_SHAPE = rb"\(((?:[0-9]{1,18}, ?)*[0-9]{0,18})\)"
_HEADER = re.compile(rb"\{'descr': '<i8', 'fortran_order': False, 'shape': " + _SHAPE + rb", \} *\n")
_DIRECTORY = 4096
"""Greatest number of bytes of an archive's directory; ours takes some 1 000."""


def pack_problem(problem: Problem) -> bytes:
    """Return the problem as bytes; equal problems give equal bytes."""
    lives = {} if problem.lives is None else {_LIVES + name: getattr(problem.lives, name) for name in _LIVING}
    return _pack("problem", {name: getattr(problem, name) for name in _PROBLEM} | lives)


def unpack_problem(data: bytes) -> Problem:
    """Return the problem that `pack_problem` wrote; raise ValueError, one line, for any other bytes."""
    try:
        found = _unpack("problem", _PROBLEM, data, [_LIVES + name for name in _LIVING])
        held = {name.removeprefix(_LIVES): found.pop(name) for name in list(found) if name.startswith(_LIVES)}
        return Problem(**found, lives=Footprint(static=found["memory"], **held) if held else None)
    except Exception as error:  # whatever hostile bytes set off, the caller sees one kind of error
        raise ValueError(_line("problem", error)) from error


def pack_schedule(schedule: Schedule) -> bytes:
    """Return the schedule as bytes; equal schedules give equal bytes."""
    return _pack("schedule", {name: getattr(schedule, name) for name in _names(Schedule)})


def unpack_schedule(data: bytes) -> Schedule:
    """Return the schedule that `pack_schedule` wrote, unchecked; raise ValueError, one line, for any other bytes."""
    try:
        return Schedule(**_unpack("schedule", _names(Schedule), data))
    except Exception as error:  # as above
        raise ValueError(_line("schedule", error)) from error


def _names(kind: type[Problem] | type[Schedule] | type[Footprint]) -> list[str]:
    return [f.name for f in fields(kind) if f.init]


_PROBLEM = [name for name in _names(Problem) if name != "lives"]
_LIVES = "lives_"
"""Prefix of the members for a problem's lives; their static bytes are the problem's memory."""
_LIVING = [name for name in _names(Footprint) if name != "static"]


def _line(kind: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return f"not a {kind} file: {reason}"


def _pack(kind: str, arrays: dict[str, Ints]) -> bytes:
    out = io.BytesIO()
    little = {name: array.astype("<i8", copy=False) for name, array in arrays.items()}
    np.savez(out, allow_pickle=False, **{kind: np.array([VERSION], dtype="<i8")}, **little)
    return out.getvalue()


def _unpack(kind: str, names: list[str], data: bytes, more: Sequence[str] = ()) -> dict[str, Ints]:
    """Return the members of these names, and of all of `more` or none."""
    if len(data) > LARGEST:
        raise ValueError(f"{len(data)} bytes are more than {LARGEST}")
    if data[-22:-18] != b"PK\x05\x06" or data[-42:-38] == b"PK\x06\x07":
        raise ValueError("it does not end as a .npz file does; it may be truncated")
    if int.from_bytes(data[-10:-6], "little") > _DIRECTORY:
        raise ValueError(f"its directory is larger than {_DIRECTORY} bytes")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(info.file_size for info in archive.infolist()) > len(data):
            raise ValueError("its members are larger than the file; they must be stored, not compressed")
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if kind not in members:
            raise ValueError(f"it has no member {kind}")
        version = _read(archive, members.pop(kind))
        if version.shape != (1,) or version[0] != VERSION:
            raise ValueError(f"version {version.tolist()} of the format, expected [{VERSION}]")
        names = [*names, *more] if any(name in members for name in more) else names
        if sorted(members) != sorted(names) or len(archive.infolist()) != len(names) + 1:
            raise ValueError(f"its members are {sorted(members)}, expected {sorted(names)}")
        return {name: _read(archive, members[name]) for name in names}


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Ints:
    """Return the int64 array of a member, whose sizes are checked before anything is allocated."""
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise ValueError(f"member {info.filename} is compressed")
    raw = archive.read(info)
    if not raw.startswith(_MAGIC) or len(raw) < len(_MAGIC) + 2:
        raise ValueError(f"member {info.filename} is not a .npy file of version 1.0")
    begin = len(_MAGIC) + 2
    end = begin + int.from_bytes(raw[len(_MAGIC) : begin], "little")
    header = _HEADER.fullmatch(raw[begin:end])
    if header is None:
        raise ValueError(f"member {info.filename} is not an int64 array in row order")
    shape = tuple(int(size) for size in header[1].split(b",") if size.strip())
    if 8 * math.prod(shape) != len(raw) - end:
        raise ValueError(f"member {info.filename} holds {len(raw) - end} bytes, not those of shape {shape}")
    return np.frombuffer(raw, dtype="<i8", offset=end).astype(np.int64).reshape(shape)


def serve_arrays(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read arrays by name from standard input, as npz, and write those that a function makes of them to the output."""
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as file:
        given = dict(file)
    made = io.BytesIO()
    np.savez(made, **answer(given))
    sys.stdout.buffer.write(made.getvalue())
