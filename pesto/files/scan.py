"""One pass over JSON text before it is decoded: how deep it is, which keys repeat, and how much of what it holds.

Decoders keep the last of two equal keys and allocate before they count; this pass finds the first and bounds the
second at several hundred megabytes a second. It does not validate: where the text is malformed it stops, and so does
the decoder, no later.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from solvers.arrays import Ints
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine

MAX_DEPTH = 64
"""Arrays and objects within each other."""
MAX_KEYS = 1 << 24
"""Keys of all objects that are open at one place."""
MAX_PATHS = 4096
"""Distinct paths that are counted apart; the last one stands for all others."""

Bytes = npt.NDArray[np.uint8]
Path = tuple[str | None, ...]
"""Keys from the root; None stands for every element of an array: ("ops", None, "name")."""

_FINE, _DEEP, _REPEATED, _WIDE = range(4)
_ROOT, _OTHER = 0, MAX_PATHS - 1
_SLOTS = 4 * MAX_PATHS
_ELEMENT = 1  # stands in for the hash of a key
_FEW = 32  # keys of one object that are compared one by one; more are sorted when it closes
_QUOTE, _BACKSLASH, _COMMA = 34, 92, 44
_OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125
_BASIS, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, as signed 64-bit integers

# The state is one array, because compiled calls pay for each array that they pass. Scalars first: how many levels are
# open, how many keys they hold, the path of the value that follows a key, the number of paths, the byte of a fault.
_DEPTH, _KEYS, _NEXT, _PATHS, _AT = range(5)
# Of each open level: whether it is an object, its path, and where its keys start.
_IS_OBJECT, _PATH, _FIRST = (8 + k * (MAX_DEPTH + 2) for k in range(3))
# Of each path: its parent, the hash and byte of its key, its values and its items; then a hash table of paths.
_PARENT, _HASH, _START, _VALUES, _ITEMS, _SLOT = (256 + k * MAX_PATHS for k in range(6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What stands at one path."""

    at: int
    """Byte of the first key there, or -1."""
    values: int
    """Times that the key, or an array or object in an array, occurs."""
    items: int
    """Elements of all arrays there together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a text holds."""

    paths: dict[Path, Seen]
    crowded: bool
    """Whether there are more than MAX_PATHS paths, so that `paths` lacks some."""
    balanced: bool
    """Whether every array and object is closed."""
    too_deep: bool
    too_wide: bool
    repeated: str | None
    """The first key found twice in one object."""
    at: int
    """Byte of the fault, or where the scan ended."""


def scan(data: bytes) -> Scan:
    """Scan JSON text; never fails, whatever the bytes are."""
    state = np.zeros(_SLOT + _SLOTS, dtype=np.int64)
    state[_SLOT:] = -1
    state[_PATHS] = 1
    # A key takes three bytes of text at least; the system commits only the pages that open objects really use.
    keys = np.empty((min(len(data) // 3 + 2, MAX_KEYS), 2), dtype=np.int64)
    code = int(_scan(np.frombuffer(data, dtype=np.uint8), state, keys))
    at = int(state[_AT])
    return Scan(
        paths=_paths(data, state),
        crowded=bool(state[_PATHS] >= _OTHER),
        balanced=bool(state[_DEPTH] == 0),
        too_deep=code == _DEEP,
        too_wide=code == _WIDE,
        repeated=_key_text(data, at) if code == _REPEATED else None,
        at=at,
    )


def _paths(data: bytes, state: Ints) -> dict[Path, Seen]:
    used = min(int(state[_PATHS]), _OTHER)
    names: list[Path] = [()]
    for k in range(1, used):
        element = state[_HASH + k] == _ELEMENT
        names.append((*names[state[_PARENT + k]], None if element else _key_text(data, int(state[_START + k]))))
    return {
        name: Seen(at=int(state[_START + k]), values=int(state[_VALUES + k]), items=int(state[_ITEMS + k]))
        for k, name in enumerate(names)
    }


def _key_text(data: bytes, at: int) -> str:
    end = at + 1
    while end < len(data) and data[end] != _QUOTE:
        end += 2 if data[end] == _BACKSLASH else 1
    try:
        return str(msgspec.json.decode(data[at : end + 1], type=str))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data[at + 1 : end].decode("utf-8", "replace")


@routine
def _scan(text: Bytes, s: Ints, keys: Ints) -> int:
    at = last = token = int(np.int64(0))
    code = _FINE
    while at < len(text) and code == _FINE and s[_DEPTH] >= 0:
        c, token = text[at], at
        if c == _QUOTE:
            if s[_IS_OBJECT + s[_DEPTH]] and last in (_OPEN_OBJECT, _COMMA):
                at, code = _key(text, at, s, keys)
            else:
                at = _skip(text, at)
        elif c in (_OPEN_OBJECT, _OPEN_ARRAY):
            code = _open(c, s)
        elif c in (_CLOSE_OBJECT, _CLOSE_ARRAY):
            code = _close(c, last, s, keys)
        elif c == _COMMA:
            s[_ITEMS + s[_PATH + s[_DEPTH]]] += 1 - s[_IS_OBJECT + s[_DEPTH]]
        last = c if c > 32 else last
        at += 1
    if s[_AT] == 0:
        s[_AT] = token
    return code


@subroutine
def _skip(text: Bytes, at: int) -> int:
    """The closing quote of the string that opens at `at`."""
    at += 1
    while at < len(text) and text[at] != _QUOTE:
        at += 2 if text[at] == _BACKSLASH else 1
    return at


@subroutine
def _open(c: int, s: Ints) -> int:
    depth = s[_DEPTH]
    if depth == MAX_DEPTH:
        return _DEEP
    path = int(np.int64(_ROOT))
    if depth > 0:
        element, nowhere = int(np.int64(_ELEMENT)), int(np.int64(-1))
        path = s[_NEXT] if s[_IS_OBJECT + depth] else _child(s, s[_PATH + depth], element, nowhere)
        if not s[_IS_OBJECT + depth]:
            s[_VALUES + path] += 1
    s[_DEPTH] = depth + 1
    s[_IS_OBJECT + depth + 1] = c == _OPEN_OBJECT
    s[_PATH + depth + 1] = path
    s[_FIRST + depth + 1] = s[_KEYS]
    return _FINE


@subroutine
def _close(c: int, last: int, s: Ints, keys: Ints) -> int:
    depth = s[_DEPTH]
    s[_DEPTH] = depth - 1
    if depth <= 0 or s[_IS_OBJECT + depth] != (c == _CLOSE_OBJECT):
        s[_DEPTH] = -1
        return _FINE
    if c == _CLOSE_ARRAY:
        s[_ITEMS + s[_PATH + depth]] += last != _OPEN_ARRAY
        return _FINE
    first, end = s[_FIRST + depth], s[_KEYS]
    s[_KEYS] = first
    if end - first > _FEW:
        size, digest, start = end - first, keys[first:end, 0].copy(), keys[first:end, 1].copy()
        for k in range(size):
            push(digest, start, k, (digest[k], start[k]))
        while size > 1:
            least = digest[0]
            size = drop(digest, start, size)
            if digest[0] == least:
                s[_AT] = start[0]
                return _REPEATED
    return _FINE


@subroutine
def _key(text: Bytes, start: int, s: Ints, keys: Ints) -> tuple[int, int]:
    at = start + 1
    digest = int(np.int64(_BASIS))
    while at < len(text) and text[at] != _QUOTE:
        if text[at] == _BACKSLASH:
            at, digest = _escaped(text, at, digest)
        else:
            digest = (digest ^ text[at]) * _PRIME
            at += 1
    depth, end = s[_DEPTH], s[_KEYS]
    if end - s[_FIRST + depth] < _FEW:
        for k in range(s[_FIRST + depth], end):
            if keys[k, 0] == digest:
                return at, _REPEATED
    if end == len(keys):
        return at, _WIDE
    keys[end, 0], keys[end, 1] = digest, start
    s[_KEYS] = end + 1
    path = _child(s, s[_PATH + depth], digest, start)
    s[_VALUES + path] += 1
    s[_NEXT] = path
    return at, _FINE


@subroutine
def _escaped(text: Bytes, at: int, digest: int) -> tuple[int, int]:
    """Add the character that the escape at `at` stands for, so that "a" and "\\u0061" are the same key."""
    if at + 1 >= len(text):
        return at + 1, digest
    if text[at + 1] != ord("u"):
        short = text[at + 1]
        for letter, meant in ((98, 8), (102, 12), (110, 10), (114, 13), (116, 9)):
            short = meant if short == letter else short
        return at + 2, (digest ^ short) * _PRIME
    point = _four(text, at + 2)
    at += 6
    if 0xD800 <= point < 0xDC00 and at + 6 <= len(text) and text[at] == _BACKSLASH and text[at + 1] == ord("u"):
        point = 0x10000 + ((point - 0xD800) << 10) + ((_four(text, at + 2) - 0xDC00) & 0x3FF)
        at += 6
    size = 0 if point < 0x80 else 1 if point < 0x800 else 2 if point < 0x10000 else 3
    lead = point if size == 0 else (0xF0 << (3 - size)) & 0xFF | (point >> (6 * size))
    digest = (digest ^ lead) * _PRIME
    for k in range(size - 1, -1, -1):
        digest = (digest ^ (0x80 | ((point >> (6 * k)) & 0x3F))) * _PRIME
    return at, digest


@subroutine
def _four(text: Bytes, at: int) -> int:
    value = 0
    for k in range(at, min(at + 4, len(text))):
        c = text[k]
        value = value * 16 + (c - 48 if c < 58 else (c & 7) + 9)
    return value


@subroutine
def _child(s: Ints, parent: int, digest: int, at: int) -> int:
    """The path index of a key (or of the elements) below `parent`, made when it is new."""
    if parent == _OTHER:
        return _OTHER
    slot = ((parent * 40503) ^ digest ^ (digest >> 32)) % _SLOTS
    while s[_SLOT + slot] >= 0:
        known = s[_SLOT + slot]
        if s[_PARENT + known] == parent and s[_HASH + known] == digest:
            return known
        slot = (slot + 1) % _SLOTS
    path = s[_PATHS]
    if path >= _OTHER:
        return _OTHER
    s[_SLOT + slot] = path
    s[_PARENT + path], s[_HASH + path], s[_START + path] = parent, digest, at
    s[_PATHS] = path + 1
    return path
