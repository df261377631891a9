"""JSON as every file of the project is read: typed, bounded before it is decoded, no key twice, 64 levels at most."""

import difflib
import gc
import json
import logging
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

MAX_DEPTH = 64
"""Greatest number of levels of arrays and objects."""
MOST_VALUES = 1 << 27
"""Greatest number of values of one text: numbers, strings, arrays and objects."""
MOST_TEXT = 4096
"""Greatest number of characters of a label."""

T = TypeVar("T")
Path = tuple[str | None, ...]
"""Keys from the root; None stands for every element of an array: ("ops", None, "name")."""

_LOG = logging.getLogger("pesto")
_WARNINGS = 10
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],]', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """A family of documents that name themselves by the keys format and format_version."""

    format: str
    """Value of the key `format` in documents of the family."""
    version: int
    """The major version that is written, and the only one that is read unless `oldest` says so."""
    help: str
    """Remedy for a file of another family."""
    oldest: int | None = None
    """The oldest major version that is read as well."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """An array or object without its plain values; those that look alike are one and the same."""

    parts: tuple[tuple[str | None, "Shape | None"], ...]
    """The keys of an object with the shape of each value, None for a plain one; of an array, (None, shape) by shape."""
    height: int
    """Levels of arrays and objects within each other, from this one on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The structure of a JSON text, known before it is decoded."""

    shape: Shape | None
    """That of the whole text, None for a plain value."""
    items: Mapping[str, int]
    """For each key that is given arrays, wherever it stands: the elements of those arrays together."""

    def keys(self, path: Path) -> set[str]:
        """Return the keys of all objects at a path."""
        shapes = {self.shape}
        for step in path:
            shapes = {inner for shape in shapes if shape for key, inner in shape.parts if key == step}
        return {key for shape in shapes if shape for key, _ in shape.parts if key is not None}


_FLAT = Shape(parts=(), height=1)
_NESTED = {Shape, list}


class _FormatHead(msgspec.Struct):
    format: Any = None
    format_version: Any = None


class _RepeatedError(Exception):
    """An object names a key twice."""


def shown(text: object, limit: int = 200) -> str:
    """Return `text` on one line and in printable characters, cut to `limit`: fit for messages whatever it holds."""
    line = str(text)
    line = line if line.isprintable() else ascii(line)[1:-1]
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def quoted(text: object, limit: int = 200) -> str:
    """Return `text` as `shown`, in quotation marks: what cannot be printed is escaped once."""
    line = repr(str(text))
    return line if len(line) - 2 <= limit else f"{line[: limit - 2]}...{line[-1]}"


def check_label(text: str, where: str) -> None:
    """Raise ValueError unless `text` is printable and at most MOST_TEXT characters long."""
    if len(text) > MOST_TEXT or not text.isprintable():
        raise ValueError(f"{where}: text must be printable and have at most {MOST_TEXT} characters - shorten it")


@contextmanager
def without_collection() -> Iterator[None]:
    """Stop the search for reference cycles inside: among millions of new objects it takes most of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def decode(data: bytes, as_type: type[T]) -> T:
    """Return a value of `as_type` from JSON bytes; keys that the type lacks are ignored.

    Raise ValueError, one line with the place and a remedy, when the text is empty, cut short, malformed or not UTF-8;
    when it holds more than MOST_VALUES or nests deeper than MAX_DEPTH; when an object names a key twice, however
    written; when a number is NaN, infinite or outside what its type holds; when the text does not fit the type.
    """
    text = _text(data)
    return _decoded(text, as_type, outline(text))


def decode_document(
    data: bytes, as_type: type[T], kind: DocumentKind, limit: Callable[[Outline], None] | None = None, what: str = ""
) -> T:
    """Decode a document that names its format, as `decode`; log a warning for every key it does not know.

    Raise ValueError also when format or format_version is another than the `kind` has. `limit` may refuse the text by
    what it holds before anything is allocated for it. `what` names the document in warnings.
    """
    text = _text(data)
    found = outline(text)
    head = _decoded(text, _FormatHead, found)
    if head.format != kind.format:
        named = "no format is named" if head.format is None else f"format is '{shown(head.format)}'"
        raise ValueError(f"{named}, expected '{kind.format}' - {kind.help}")
    version = head.format_version
    if type(version) is not int or version < 1:
        raise ValueError(f"format_version must be an integer - write {kind.version}")
    if not (kind.oldest or kind.version) <= version <= kind.version:
        remedy = "update pesto" if version > kind.version else "write it anew"
        known = f"{kind.oldest} to {kind.version}" if kind.oldest else str(kind.version)
        raise ValueError(f"format_version {version} is not known, only {known} - {remedy}")
    if limit is not None and found is not None:
        limit(found)
    value = _decoded(text, as_type, found)
    if found is not None:
        _warn_unknown(text, found, as_type, f"{shown(what)}: " if what else "")
    return value


def bounded(data: bytes, most: int) -> None:
    """Raise ValueError when a text may hold more than `most` values."""
    # Every value but the first of an array or object follows a comma.
    if max(data.count(b","), data.count(b"["), data.count(b"{")) > most:
        raise ValueError(f"more than {most} numbers or arrays - make it smaller")


def line_and_column(text: bytes, at: int) -> str:
    """Return byte `at` as people count: line and column from 1, the column in bytes."""
    return f"line {text.count(10, 0, at) + 1}, column {at - text.rfind(10, 0, at)}"


def outline(text: bytes) -> Outline | None:
    """Scan the structure of a text; None if it is malformed, which the decoder explains better.

    Raise ValueError with the place when an object names a key twice or the text nests too deeply. Each object is
    forgotten when it closes, so that the memory needed is that of the largest one.
    """
    try:
        with without_collection():
            found = _read(text.decode())
    except (_RepeatedError, RecursionError):
        found = None
    except ValueError:
        return None
    if found is None or (found.shape is not None and found.shape.height > MAX_DEPTH):
        deque(_keys(text), maxlen=0)  # stops at the fault
    return found


def _read(text: str) -> Outline:
    shapes: dict[object, Shape] = {}
    items: dict[str, int] = defaultdict(int)

    def shape_of(row: Any) -> Shape:
        found = shapes.get(row)
        if found is None:
            if row.__class__ is tuple and len(dict(row)) < len(row):
                raise _RepeatedError
            height = 1 + max((inner.height for _, inner in row if inner), default=0)
            found = shapes[row] = Shape(parts=tuple(row), height=height)
        return found

    def array(values: list[Any]) -> Shape:
        if _NESTED.isdisjoint(map(type, values)):
            return _FLAT
        inside = [v for v in values if v.__class__ is Shape] + [array(v) for v in values if v.__class__ is list]
        return shape_of(frozenset((None, shape) for shape in inside))

    def closed(pairs: list[tuple[str, Any]]) -> Shape:
        row: list[tuple[str, Shape | None]] = []
        for key, value in pairs:
            if value.__class__ is list:
                items[key] += len(value)
                value = array(value)  # noqa: PLW2901
            row.append((key, value if value.__class__ is Shape else None))
        return shape_of(tuple(row))

    # The length stands in for a number, which may have more digits than Python would convert.
    whole = json.loads(text, object_pairs_hook=closed, parse_int=len, parse_float=len)
    return Outline(shape=closed([("", whole)]).parts[0][1], items=items)


def _text(data: bytes) -> bytes:
    text = data.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        raise ValueError("empty - it must hold JSON text; write it again")
    bounded(text, MOST_VALUES)
    return text


def _keys(text: bytes) -> Iterator[tuple[Path, int]]:
    """Yield the path and the byte of every key that json would read; raise ValueError for a repeated or deep one."""
    path: list[str | None] = []
    seen: list[set[str]] = []  # the keys so far of each open object
    due = False
    for token in _TOKEN.finditer(text):
        mark, at = token[0], token.start()
        if mark in b"{[":
            due = mark == b"{"
            path.append("" if due else None)
            seen.append(set())
            if len(path) > MAX_DEPTH:
                raise ValueError(f"{line_and_column(text, at)}: nested deeper than {MAX_DEPTH} levels - flatten it")
        elif mark in b"}]":
            due = False
            path.pop()
            seen.pop()
        elif mark == b",":
            due = path[-1] is not None
        elif due:
            due, key = False, json.loads(mark)
            if key in seen[-1]:
                raise ValueError(f"{line_and_column(text, at)}: key '{shown(key)}' is repeated - keep one of the two")
            seen[-1].add(key)
            path[-1] = key
            yield tuple(path), at


def _decoded(text: bytes, as_type: type[T], found: Outline | None) -> T:
    try:
        with without_collection():
            value = msgspec.json.decode(text, type=as_type)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).rpartition(" - at ")
        message = f"{where.strip('`')}: {problem}" if where.startswith("`$") else f"$: {error}"
        raise ValueError(f"{shown(message)} - correct it there") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(_malformed(text, error, found)) from error
    if found is None:  # what the decoder skips it does not read closely
        raise ValueError(_malformed(text, ValueError("inside of what is ignored"), found))
    return value


def _malformed(text: bytes, error: Exception, found: Outline | None) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return f"{line_and_column(text, wrong.start)}: not UTF-8 - save the text as UTF-8"
    message = str(error)
    if "truncated" in message:
        if found is not None:
            return "malformed JSON: an escape such as \\ud800 is half of a character - write both halves"
        return "the JSON text ends too early - the file was cut short; write it again"
    reason, _, tail = message.removeprefix("JSON is malformed: ").partition(" (byte ")
    where = line_and_column(text, int(tail[:-1])) if tail[:-1].isdigit() else "somewhere"
    return (
        f"{where}: malformed JSON: {shown(reason)} - correct it there (NaN, comments and trailing commas are not JSON)"
    )


def _warn_unknown(text: bytes, found: Outline, as_type: Any, named: str) -> None:
    unknown = {
        (*path, key): known
        for path, known in _objects(msgspec.inspect.type_info(as_type), ())
        for key in found.keys(path).difference(known)
        if not key.startswith(("_", "$"))
    }
    places: dict[Path, int] = {}
    if unknown:
        for path, at in _keys(text):
            if path in unknown and path not in places:
                places[path] = at
            if len(places) == min(len(unknown), _WARNINGS):
                break
    for path, at in places.items():
        key, known = str(path[-1]), unknown[path]
        close = difflib.get_close_matches(key, known, n=1) if len(key) < 200 else []
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        _LOG.warning("%s%s: key '%s' is not known and ignored - %s", named, line_and_column(text, at), shown(key), hint)
    if len(unknown) > _WARNINGS:
        _LOG.warning("%s%d more unknown keys are ignored", named, len(unknown) - _WARNINGS)


def _objects(kind: Any, path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield every object of a decoded type: its path and the keys it knows."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield path, [f.encode_name for f in kind.fields]
        for f in kind.fields:
            yield from _objects(f.type, (*path, f.encode_name))
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from _objects(kind.item_type, (*path, None))
    elif isinstance(kind, msgspec.inspect.Metadata):
        yield from _objects(kind.type, path)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for member in kind.types:
            yield from _objects(member, path)
