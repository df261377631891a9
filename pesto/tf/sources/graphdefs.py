"""GraphDef files, binary and text, counted before they are parsed: a parser turns 2 bytes into 100."""

import re
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2

from pesto.errors import InputError
from pesto.files.disk import read_bytes
from pesto.files.json import shown
from pesto.tf.nodes.inline import MAX_NODES

Bytes = npt.NDArray[np.uint8]

_NODE, _LIBRARY = 1, 2
_FUNCTION, _NODE_DEF = 1, 3
_TEXT_NODE = re.compile(rb"\bnode(_def)?\s*:?\s*[{<]")


def read_graph_def(path: Path) -> Any:
    """The GraphDef in a `.pb` or `.pbtxt` file (gzip is unpacked).

    FileError when it cannot be read; InputError, one line, for an empty, truncated or foreign file, one beyond the
    limits (2 GiB, 5 million nodes, those of functions included), or one without ops.
    """
    data = read_bytes(path)
    where = shown(path)
    if not data.strip():
        raise InputError(f"{where}: the file is empty - export the graph again")
    if path.name == "saved_model.pb":
        raise InputError(f"{where}: this is a SavedModel, not a GraphDef - give its folder as the SavedModel")
    graph_def = _from_text(data, where) if path.suffix == ".pbtxt" else _from_binary(data, where)
    if not graph_def.node:
        raise InputError(f"{where}: the graph has no ops - export the graph again")
    return graph_def


def _from_text(data: bytes, where: str) -> Any:
    _limit(sum(1 for _ in _TEXT_NODE.finditer(data)), where)
    graph_def = graph_pb2.GraphDef()
    try:
        text_format.Parse(data, graph_def)
    except (text_format.ParseError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a GraphDef in text: {shown(error)} - export the graph again") from error
    return graph_def


def _from_binary(data: bytes, where: str) -> Any:
    _limit(count_nodes(data, where), where)
    graph_def = graph_pb2.GraphDef()
    try:
        graph_def.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise InputError(f"{where}: not a GraphDef: {shown(error)} - export the graph again") from error
    return graph_def


def count_nodes(data: bytes, where: str) -> int:
    """Nodes of a serialized GraphDef and of its functions, from the field tags alone: 10 million in about 0.1 s.

    InputError, with the offset, when the bytes are not a whole message.
    """
    count = int(_count(np.frombuffer(data, dtype=np.uint8)))
    if count < 0:
        raise InputError(f"{where}: not a GraphDef, or cut short, at byte {-1 - count} - export the graph again")
    return count


@numba.njit(cache=True)
def _count(buffer: Bytes) -> int:
    """Nodes, or -1 - offset of the first byte that cannot be."""
    at = nodes = 0
    while at < len(buffer):
        field, start, end = _field(buffer, at, len(buffer))
        if end < 0:
            return -1 - at
        at = end
        if field == _NODE:
            nodes += 1
        elif field == _LIBRARY and start >= 0:
            inner = _count_in_library(buffer, start, end)
            if inner < 0:
                return inner
            nodes += inner
    return nodes


@numba.njit(cache=True)
def _count_in_library(buffer: Bytes, at: int, stop: int) -> int:
    nodes = 0
    while at < stop:
        field, start, end = _field(buffer, at, stop)
        if end < 0:
            return -1 - at
        at = end
        inside = start if field == _FUNCTION and start >= 0 else end
        while inside < end:
            field, _, after = _field(buffer, inside, end)
            if after < 0:
                return -1 - inside
            inside = after
            nodes += field == _NODE_DEF
    return nodes


@numba.njit(cache=True)
def _field(buffer: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """(number, start of a submessage or -1, end) of the field at `at`; end -1 when it does not fit."""
    tag, at = _varint(buffer, at, stop)
    wire = tag & 7
    if at < 0 or tag < 8 or wire in (3, 4, 6, 7):
        return 0, -1, -1
    start = -1
    if wire == 0:
        _, at = _varint(buffer, at, stop)
    elif wire == 2:
        length, start = _varint(buffer, at, stop)
        at = start + length if start >= 0 and 0 <= length <= stop - start else -1
    else:
        at += 8 if wire == 1 else 4
    return tag >> 3, start, at if at <= stop else -1


@numba.njit(cache=True)
def _varint(buffer: Bytes, at: int, stop: int) -> tuple[int, int]:
    """(value, offset behind it); offset -1 when it is cut short or too long."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= stop:
            break
        byte = int(buffer[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    return 0, -1


def _limit(count: int, where: str) -> None:
    if count > MAX_NODES:
        raise InputError(f"{where}: {count} nodes, the limit is {MAX_NODES} - export only what the training step needs")
