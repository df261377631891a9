"""JSON as this project reads and writes it: typed, bounded, without repeated keys, NaN or unbounded nesting."""

import difflib
import gc
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from pesto.errors import InputError

if TYPE_CHECKING:
    from pesto.files.scan import Path, Scan

T = TypeVar("T")
_LOG = logging.getLogger("pesto")
_WARNINGS = 10

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""An integer >= 0 that fits an int64 array."""
Amount = Annotated[float, msgspec.Meta(ge=0)]
"""A finite number >= 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A family of documents that name themselves by the keys format and format_version."""

    format: str
    version: int
    """The only major version that is read."""
    help: str
    """Remedy for a file of another family."""


class _Head(msgspec.Struct):
    format: Any = None
    format_version: Any = None


def shown(text: object, limit: int = 200) -> str:
    """`text` on one line and in printable characters, cut to `limit`: fit for messages whatever it holds."""
    line = str(text)
    line = line if line.isprintable() else ascii(line)[1:-1]
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for reference cycles inside: among millions of new objects it takes most of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def encode_json(value: object) -> bytes:
    """Canonical JSON: UTF-8, keys of dicts in order and of structs as declared, no spaces, one newline at the end.

    Numpy arrays and scalars are written as lists and numbers. ValueError for NaN, infinity and unpaired surrogates,
    TypeError for values that JSON has no word for.
    """
    plain = msgspec.to_builtins(value, order="deterministic", enc_hook=_plain)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def decode_json(data: bytes, as_type: type[T], what: str) -> T:
    """A value of `as_type` from JSON bytes; `what` names them in errors.

    InputError, with the place, when the text is empty, cut short, malformed or not UTF-8; when it nests deeper than
    64 levels; when an object names a key twice, however written; when a number is NaN, infinite or outside what its
    type holds; when the text does not fit the type. Keys that the type lacks are ignored.
    """
    text = _text(data, what)
    return _decoded(text, as_type, what, _scanned(text, what))


def decode_document(
    data: bytes, as_type: type[T], what: str, kind: Kind, limit: "Callable[[Scan], None] | None" = None
) -> T:
    """Like `decode_json`, for a document that names its format; logs a warning for every key it does not know.

    InputError also when format or format_version is another than the `kind` has. `limit` may refuse the text by
    what it holds before anything is allocated for it.
    """
    text = _text(data, what)
    found = _scanned(text, what)
    _check_kind(_decoded(text, _Head, what, found), kind, what)
    if limit is not None:
        limit(found)
    value = _decoded(text, as_type, what, found)
    _warn_unknown(text, found, as_type, what)
    return value


def _text(data: bytes, what: str) -> bytes:
    text = data.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        raise InputError(f"{shown(what)}: empty - it must hold JSON text; write it again")
    return text


def _scanned(text: bytes, what: str) -> "Scan":
    from pesto.files.scan import MAX_DEPTH, MAX_KEYS, scan  # loads numba

    found = scan(text)
    fault = ""
    if found.too_deep:
        fault = f"nested deeper than {MAX_DEPTH} levels - flatten it"
    elif found.too_wide:
        fault = f"an object of more than {MAX_KEYS} keys - split it"
    elif found.repeated is not None:
        fault = f"key '{shown(found.repeated)}' is repeated - keep one of the two"
    if fault:
        raise InputError(f"{shown(what)}: {place(text, found.at)}: {fault}")
    return found


def place(text: bytes, at: int) -> str:
    """Byte `at` as people count: line and column from 1, the column in bytes."""
    return f"line {text.count(10, 0, at) + 1}, column {at - text.rfind(10, 0, at)}"


def _decoded(text: bytes, as_type: type[T], what: str, found: "Scan") -> T:
    try:
        with without_collection():
            return msgspec.json.decode(text, type=as_type)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).rpartition(" - at ")
        message = f"{where.strip('`')}: {problem}" if where.startswith("`$") else f"$: {error}"
        raise InputError(f"{shown(what)}: {shown(message)} - correct it there") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{shown(what)}: {_malformed(text, error, found)}") from error


def _malformed(text: bytes, error: Exception, found: "Scan") -> str:
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return f"{place(text, wrong.start)}: not UTF-8 - save the text as UTF-8"
    message = str(error)
    if "truncated" in message:
        if found.balanced:
            return "malformed JSON: an escape such as \\ud800 is half of a character - write both halves"
        return "the JSON text ends too early - the file was cut short; write it again"
    reason, _, tail = message.removeprefix("JSON is malformed: ").partition(" (byte ")
    where = place(text, int(tail[:-1])) if tail[:-1].isdigit() else "somewhere"
    return (
        f"{where}: malformed JSON: {shown(reason)} - correct it there (NaN, comments and trailing commas are not JSON)"
    )


def _check_kind(head: _Head, kind: Kind, what: str) -> None:
    if head.format != kind.format:
        named = "no format is named" if head.format is None else f"format is '{shown(head.format)}'"
        raise InputError(f"{shown(what)}: {named}, expected '{kind.format}' - {kind.help}")
    version = head.format_version
    if type(version) is not int or version < 1:
        raise InputError(f"{shown(what)}: format_version must be an integer - write {kind.version}")
    if version != kind.version:
        remedy = "update pesto" if version > kind.version else "write it anew"
        raise InputError(f"{shown(what)}: format_version {version} is not known, only {kind.version} - {remedy}")


def _warn_unknown(text: bytes, found: "Scan", as_type: Any, what: str) -> None:
    known = dict(_objects(msgspec.inspect.type_info(as_type), ()))
    unknown = [
        (path[-1], known[path[:-1]], seen.at)
        for path, seen in found.paths.items()
        if path and path[-1] is not None and path[-1] not in known.get(path[:-1], [path[-1]])
    ]
    unknown = [(key, keys, at) for key, keys, at in unknown if not key.startswith(("_", "$"))]
    for key, keys, at in unknown[:_WARNINGS]:
        close = difflib.get_close_matches(key, keys, n=1) if len(key) < 200 else []
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(keys)}"
        where = f"{shown(what)}: {place(text, at)}"
        _LOG.warning("%s: key '%s' is not known and ignored - %s", where, shown(key), hint)
    if len(unknown) > _WARNINGS:
        _LOG.warning("%s: %d more unknown keys are ignored", shown(what), len(unknown) - _WARNINGS)


def _objects(kind: Any, path: "Path") -> "Iterator[tuple[Path, list[str]]]":
    """Every object of a decoded type: its path and the keys it knows."""
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
