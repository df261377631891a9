"""JSON as this package reads and writes it: the gate of `solvers.files.json_text`, with the file's name in errors."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec

from pesto.core.errors import InputError
from solvers.files import json_text
from solvers.files.json_text import DocumentKind, Outline, quoted, shown, without_collection

__all__ = [
    "Amount", "Count", "DocumentKind", "Outline",
    "decode_document", "decode_json", "encode_json", "format_of", "quoted", "shown", "without_collection",
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


@contextmanager
def _as_input_error(what: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError(f"{shown(what)}: {error}") from error
