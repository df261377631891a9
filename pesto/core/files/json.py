"""JSON as this package reads and writes it, with the file's name in errors, and the names that a file may hold."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec

from pesto.core.errors import InputError
from solvers.files import json_text
from solvers.files.json_text import DocumentKind, Outline, quoted, shown, without_collection

__all__ = [
    "Amount", "Count", "DocumentKind", "Outline",
    "check_labels", "decode_document", "decode_json", "encode_json", "format_of", "quoted", "short_fingerprints",
    "shown", "without_collection",
]  # fmt: skip

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""An integer >= 0 that fits an int64 array."""
Amount = Annotated[float, msgspec.Meta(ge=0)]
"""A finite number >= 0."""


def encode_json(value: object) -> bytes:
    """Canonical JSON: UTF-8, keys of dicts in order and of structs as declared, no spaces, one newline at the end.

    Numpy arrays and scalars are written as lists and numbers. ValueError for NaN, infinity and unpaired surrogates,
    TypeError for values that JSON has no word for.
    """
    plain = msgspec.to_builtins(value, order="deterministic", enc_hook=_to_plain)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _to_plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def decode_json(data: bytes, as_type: type[T], what: str) -> T:
    """A value of `as_type` from JSON bytes; `what` names them in errors. InputError as `json_text.decode` says."""
    with _as_input_error(what):
        return json_text.decode(data, as_type)


def decode_document(
    data: bytes, as_type: type[T], what: str, kind: DocumentKind, limit: Callable[[Outline], None] | None = None
) -> T:
    """Like `decode_json`, for a document that names its format. InputError as `json_text.decode_document` says."""
    with _as_input_error(what):
        return json_text.decode_document(data, as_type, kind, limit, what)


class _NamedFormat(msgspec.Struct):
    format: Any = None


def format_of(data: bytes, what: str) -> str:
    """The format that a document names, empty for none; InputError as `decode_json`."""
    named = decode_json(data, _NamedFormat, what).format
    return named if isinstance(named, str) else ""


def refuse_document(what: object, error: Exception) -> InputError:
    """Return the error of the document `what` that is refused, each part on one line and no longer than is read."""
    fault = InputError.of(error)
    return InputError.build(shown(fault.message, 2000), where=shown(what), remedy=shown(fault.remedy, 2000))


@contextmanager
def _as_input_error(what: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError.of(error, where=shown(what)) from error


MAX_NAME_BYTES = 4096
_DIGITS = 12
# Line breaks and other control characters, overrides of the writing direction, and halves of characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def check_labels(labels: Sequence[str], where: Callable[[int], str], empty: bool = False) -> None:
    """InputError for a label that is empty, holds control characters or is too long; `where` names the k-th."""
    fine = empty or all(labels)
    if fine and max(map(len, labels), default=0) <= MAX_NAME_BYTES // 4 and not _CONTROL.search("".join(labels)):
        return
    for k, label in enumerate(labels):
        if not label and not empty:
            raise InputError.build("the name is empty", where=where(k), remedy="give it one")
        if _CONTROL.search(label):
            raise InputError.build(f"'{shown(label)}' holds a control character", where=where(k), remedy="take it out")
        if len(label.encode()) > MAX_NAME_BYTES:
            raise InputError.build(
                f"'{shown(label)}' is longer than {MAX_NAME_BYTES} bytes", where=where(k), remedy="shorten it"
            )


def short_fingerprints(one: str, other: str) -> tuple[str, str]:
    """Two fingerprints in short for people: twelve digits of each, and all where those are equal."""
    long = None if one[:_DIGITS] == other[:_DIGITS] else _DIGITS
    return one[:long], other[:long]
