"""JSON text as the problem and schedule files use it: bounded before it is decoded, no key twice, integers only."""

import difflib
import json
import logging
from typing import Any, NoReturn, TypeVar

import msgspec

LARGEST = 1 << 30
"""Bytes of text that are read at most."""
MOST_VALUES = 1 << 24
"""Numbers, and arrays, in one text at most."""
MOST_TEXT = 4096
"""Characters of one string at most."""

T = TypeVar("T", bound=msgspec.Struct)
_LOG = logging.getLogger("pesto")


def parsed(data: bytes) -> dict[str, Any]:
    """The object that JSON text holds; ValueError, one line with the place, for anything else.

    Refused are text beyond LARGEST or MOST_VALUES, before anything is allocated for it; text that is not UTF-8; NaN
    and infinity; a key that occurs twice in an object, however written.
    """
    bounded(data)
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start}: not UTF-8 - save the text as UTF-8") from error
    if not text.strip():
        raise ValueError("empty - it must hold JSON text; write it again")
    try:
        found = json.loads(text, object_pairs_hook=_distinct, parse_constant=_constant)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise ValueError(
            f"line {error.lineno}, column {error.colno}: malformed JSON: {reason} - correct it there"
        ) from error
    except RecursionError as error:
        raise ValueError("nested too deeply - the format needs four levels") from error
    except ValueError as error:
        if "digits" not in str(error):
            raise
        raise ValueError("a number has thousands of digits - 64 bits must hold it") from error
    if not isinstance(found, dict):
        raise ValueError("$: expected an object - see docs/problem-file.md")
    return found


def bounded(data: bytes) -> None:
    """ValueError when text is beyond LARGEST or MOST_VALUES."""
    if len(data) > LARGEST:
        raise ValueError(f"{len(data)} bytes are more than {LARGEST} - make the problem smaller")
    # Every value but the first of an array or object follows a comma.
    if max(data.count(b","), data.count(b"["), data.count(b"{")) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} numbers or arrays - make the problem smaller")


def converted(found: dict[str, Any], shape: type[T], family: str, version: int) -> T:
    """`found` as a `shape`, whose format and format_version must be these; unknown keys are logged and ignored.

    ValueError, one line with the path, when a key is missing or a value has another type or is out of range.
    """
    if found.get("format") != family:
        raise ValueError(f"$.format: {_shown(found.get('format'))}, expected {family!r} - give a file of that format")
    number = found.get("format_version")
    if type(number) is not int or number != version:
        raise ValueError(
            f"$.format_version: {_shown(number)}, only {version} is known - update pesto, or write it anew"
        )
    _warn_unknown(found, shape)
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).rpartition(" - at ")
        place = where.strip("`") if problem else "$"
        raise ValueError(f"{place}: {problem or error} - correct it there") from error


def encoded(values: dict[str, Any]) -> bytes:
    """An object, one key a line in the given order; equal values give equal bytes. ValueError as `bounded`."""
    encoder = msgspec.json.Encoder()
    rows = (encoder.encode(key) + b":" + encoder.encode(value) for key, value in values.items())
    data = b"{\n" + b",\n".join(rows) + b"\n}\n"
    bounded(data)
    return data


def check_label(text: str, where: str) -> None:
    """ValueError unless `text` is printable and at most MOST_TEXT characters long."""
    if len(text) > MOST_TEXT or not text.isprintable():
        raise ValueError(f"{where}: text must be printable and have at most {MOST_TEXT} characters - shorten it")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {_shown(again)} is repeated - keep one of the two")
    return found


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON - every number here is an integer")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _warn_unknown(found: dict[str, Any], shape: type[msgspec.Struct]) -> None:
    known = shape.__struct_fields__
    for key in [k for k in found if k not in known and not k.startswith(("_", "$"))][:10]:
        close = difflib.get_close_matches(key[:80], known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        _LOG.warning("key %s is not known and ignored - %s", _shown(key), hint)
