"""Checks of a GraphDef file's bytes before TensorFlow is loaded: damage, number of nodes, and names to fetch.

Counted before they are parsed, too: a parser turns 2 bytes into 100.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pesto.core.errors import InputError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown
from solvers.compiled.kernels import routine


def read_graph_def_bytes(path: Path) -> bytes:
    """Return the GraphDef in a `.pb`, `.pbtxt` or `.meta` file (gzip is unpacked), as far as its bytes can say.

    Raise FileError when it cannot be read; InputError, one line, for an empty, truncated or foreign file, one beyond
    the limits (2 GiB, 5 million nodes, those of functions included), or one without nodes.
    """
    data = read_bytes(path)
    where = shown(path)
    if not data.strip():
        raise InputError.build("the file is empty", where=where, remedy="export the graph again")
    if path.name in ("saved_model.pb", "saved_model.pbtxt"):
        raise InputError.build(
            "this is a SavedModel, not a GraphDef", where=where, remedy="give its folder as the SavedModel"
        )
    if path.suffix == ".meta":
        buffer, offset = np.frombuffer(data, dtype=np.uint8), 0
        while 0 <= offset < len(data):
            field, start, offset = _read_field(buffer, offset, len(data))
            if field == _META_GRAPH and start >= 0 and offset >= 0:
                data = data[start:offset]
                break
        else:
            raise InputError.build(
                "not a MetaGraphDef in binary, which tf.compat.v1.train.export_meta_graph writes",
                where=where,
                remedy="export it again",
            )
    text = path.suffix == ".pbtxt"
    count = sum(1 for _ in _TEXT_NODE.finditer(data)) if text else count_nodes(data, where)
    if count > MAX_NODES:
        raise InputError.build(
            f"{count} nodes, the limit is {MAX_NODES}", where=where, remedy="export only what the training step needs"
        )
    if count == 0:
        kind = "not a GraphDef in text" if text else "not a GraphDef"
        raise InputError.build(f"{kind}, or one that has no ops", where=where, remedy="export the graph again")
    return data


def check_graph_def(path: Path, fetches: Iterable[str]) -> None:
    """Raise InputError for what is no GraphDef (`read_graph_def_bytes`), and for a fetch that no node is called."""
    data, text = read_graph_def_bytes(path), path.suffix == ".pbtxt"
    for fetch in fetches:
        name = op_name(fetch).encode()
        # The name stands somewhere in the file, or no node has it: a search is quick, a list of names is not. A node's
        # name is encoded as field 1, its length in groups of seven bits, the bytes.
        length, size = bytearray(), len(name)
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        written = (b'"' + name + b'"', b"'" + name + b"'") if text else (bytes([10, *length, size]) + name,)
        if not any(words in data for words in written):
            node_names = map(bytes.decode, _TEXT_NAME.findall(data)) if text else _iter_names(data)
            check_fetches([fetch], dict.fromkeys(node_names, 1), f"file {shown(path.name)}")


def _iter_names(data: bytes) -> Iterator[str]:
    """Yield the names of the nodes of a serialized GraphDef, in order, without those of its functions."""
    buffer, offset = np.frombuffer(data, dtype=np.uint8), 0
    while offset < len(data):
        field, inside, offset = _read_field(buffer, offset, len(data))
        if field == _NODE:
            first, start, end = _read_field(buffer, inside, offset)
            yield data[start:end].decode("utf-8", "replace") if first == 1 and start >= 0 else ""


def op_name(tensor: str) -> str:
    """Return the op of a tensor name `op:k`, a control input `^op`, or an op's own name."""
    return tensor.removeprefix("^").partition(":")[0]


def check_fetches(fetches: Iterable[Any], outputs: Mapping[str, int], where: str) -> tuple[str, ...]:
    """Return the names of the ops to fetch, each once, from tensors, ops, variables or names of any.

    `outputs` maps op names to their number of outputs. Raise InputError for a name that the graph lacks, with the
    nearest.
    """
    names: dict[str, None] = {}
    for fetch in fetches:
        name = fetch if isinstance(fetch, str) else str(getattr(fetch, "name", fetch))
        op = op_name(name)
        if op not in outputs:
            near = difflib.get_close_matches(op, outputs, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]!r}?" if near else "name an op of the graph"
            raise InputError.build(f"no op is named {op!r}", where=where, remedy=remedy)
        index = name.partition(":")[2]
        if index and not (index.isdigit() and int(index) < outputs[op]):
            raise InputError.build(f"op {op!r} has no output {index!r}", where=where, remedy=f"it has {outputs[op]}")
        names[op] = None
    if not names:
        raise InputError.build(
            "nothing to fetch", where=where, remedy="name the training op and the loss as what to fetch"
        )
    return tuple(names)


MAX_NODES = 5_000_000

Bytes = npt.NDArray[np.uint8]

_NODE, _LIBRARY = 1, 2
_FUNCTION, _NODE_DEF = 1, 3
_META_GRAPH = 2
_TEXT_NODE = re.compile(rb"\bnode(_def)?\s*:?\s*[{<]")
_TEXT_NAME = re.compile(rb"\bnode\s*:?\s*[{<]\s*name\s*:\s*[\"']([^\"']*)")


def count_nodes(data: bytes, where: str) -> int:
    """Count the nodes of a serialized GraphDef and of its functions, by field tags alone: 10 million in about 0.1 s.

    Raise InputError, with the offset, when the bytes are not a whole message.
    """
    count = int(_count_in_graph(np.frombuffer(data, dtype=np.uint8)))
    if count < 0:
        raise InputError.build(
            f"not a GraphDef, or cut short, at byte {-1 - count}", where=where, remedy="export the graph again"
        )
    return count


@routine
def _count_in_graph(buffer: Bytes) -> int:
    """Nodes, or -1 - offset of the first byte that cannot be."""
    offset = nodes = 0
    while offset < len(buffer):
        field, start, end = _read_field(buffer, offset, len(buffer))
        if end < 0 or (field == _NODE and start < 0):
            return -1 - offset
        offset = end
        if field == _NODE:
            nodes += 1
        elif field == _LIBRARY and start >= 0:
            inner = _count_in_library(buffer, start, end)
            if inner < 0:
                return inner
            nodes += inner
    return nodes


@routine
def _count_in_library(buffer: Bytes, offset: int, stop: int) -> int:
    nodes = 0
    while offset < stop:
        field, start, end = _read_field(buffer, offset, stop)
        if end < 0:
            return -1 - offset
        offset = end
        inside = start if field == _FUNCTION and start >= 0 else end
        while inside < end:
            field, _, after = _read_field(buffer, inside, end)
            if after < 0:
                return -1 - inside
            inside = after
            nodes += field == _NODE_DEF
    return nodes


@routine
def _read_field(buffer: Bytes, offset: int, stop: int) -> tuple[int, int, int]:
    """(number, start of a submessage or -1, end) of the field at `offset`; end -1 when it does not fit."""
    tag, offset = _read_varint(buffer, offset, stop)
    wire = tag & 7
    if offset < 0 or tag < 8 or wire in (3, 4, 6, 7):
        return 0, -1, -1
    start = -1
    if wire == 0:
        _, offset = _read_varint(buffer, offset, stop)
    elif wire == 2:
        length, start = _read_varint(buffer, offset, stop)
        offset = start + length if start >= 0 and 0 <= length <= stop - start else -1
    else:
        offset += 8 if wire == 1 else 4
    return tag >> 3, start, offset if offset <= stop else -1


@routine
def _read_varint(buffer: Bytes, offset: int, stop: int) -> tuple[int, int]:
    """(value, offset behind it); offset -1 when it is cut short or too long."""
    value = 0
    for shift in range(0, 64, 7):
        if offset >= stop:
            break
        byte = int(buffer[offset])
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    return 0, -1
