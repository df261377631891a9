"""TOML to frozen dataclasses: a key that is not known, or a value of the wrong type, is refused by name."""

import codecs
import json
import math
import tomllib
from collections.abc import Iterable
from dataclasses import Field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from pesto.core.errors import PestoError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown

T = TypeVar("T")

MOST_BYTES = 1 << 20
"""Larger configuration files are refused: they are something else."""

MOST_TEXT = 4096
"""Characters of one string."""


def load(path: Path, shape: type[T], *, error: type[PestoError] = UsageError) -> T:
    """Read a file as a `shape`, a dataclass whose fields are numbers, strings, tuples and further such dataclasses.

    Raise `error`, naming the file, the key and a suggestion, when the content does not fit; FileError when the file
    cannot be read.
    """
    return parse(read_bytes(path, MOST_BYTES), shape, shown(path), error)


def parse(data: bytes, shape: type[T], where: str, error: type[PestoError] = UsageError) -> T:
    """Parse content already read, as `load`; `where` names it in errors."""
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise error.build(f"{where}: begins with a byte order mark (BOM)", remedy="save the file as UTF-8 without one")
    try:
        table = tomllib.loads(data.decode("utf-8"))
        _check_keys(shape, table, "")
        return msgspec.convert(table, shape, strict=True)
    except UnicodeDecodeError as e:
        raise error.build(f"{where}: not UTF-8 text (byte {e.start})", remedy="save the file as UTF-8") from e
    except tomllib.TOMLDecodeError as e:
        raise error.build(f"{where}: not TOML: {shown(e)}", remedy="correct it there") from e
    except RecursionError as e:
        raise error.build(f"{where}: nested too deeply", remedy="a table and its lists suffice") from e
    except msgspec.ValidationError as e:
        # The key first: msgspec says "Expected `int`, got `str` - at `$.hosts[0].cores`".
        text, _, at = str(e).partition(" - at `$.")
        fault = f"{at.rstrip('`')}: {text}" if at else text
        raise error.build(f"{where}: {fault}", remedy="correct it there") from e
    except ValueError as e:
        raise error.of(e, where=where) from e


def quoted(text: str) -> str:
    """Return a text as TOML's basic string."""
    # What JSON escapes, TOML does alike; but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def dumps(value: object) -> str:
    """Write a frozen dataclass as TOML that `parse` gives back, without defaults; tuples of dataclasses are tables."""
    rows = [(f.name, getattr(value, f.name)) for f in _table_text(value)]
    tables = [(key, item) for key, item in rows if isinstance(item, tuple) and item and is_dataclass(item[0])]
    text = "".join(f"{key} = {_value(item)}\n" for key, item in rows if (key, item) not in tables)
    return text + "".join(f"\n[[{key}]]\n{dumps(one)}" for key, item in tables for one in item)


def _table_text(value: Any) -> "list[Field[Any]]":
    return [f for f in fields(value) if getattr(value, f.name) != f.default]


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case dict():
            return "{" + ", ".join(f"{quoted(str(key))} = {_value(item)}" for key, item in value.items()) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _ if is_dataclass(value):
            return "{" + ", ".join(f"{f.name} = {_value(getattr(value, f.name))}" for f in _table_text(value)) + "}"
    return repr(value)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the remedy for a wrong name: the nearest of the known ones, and all of them."""
    names = list(known)
    near = [n for n in names if word and n.startswith(word)] or get_close_matches(word, names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"known: {', '.join(names)}"


def _check_keys(shape: object, value: object, at: str) -> None:
    """Refuse, with ValueError, what a conversion by type alone would let through."""
    if isinstance(value, str) and (len(value) > MOST_TEXT or not value.isprintable()):
        raise ValueError(f"{at}: text must be printable and have at most {MOST_TEXT} characters")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{at}: {value} is not a finite number")
    if isinstance(value, list):
        for i, item in enumerate(value):
            _check_keys(next(iter(get_args(_plain(shape))), None), item, f"{at}[{i}]")
    inner = _plain(shape)
    if isinstance(value, dict) and isinstance(inner, type) and is_dataclass(inner):
        names = [f.name for f in fields(inner)]
        hints = get_type_hints(inner)
        for key, item in value.items():
            if key not in names:
                raise ValueError(f"{at or 'the file'} has the unknown key {key[:80]!r} - {suggest(key, names)}")
            _check_keys(hints[key], item, f"{at}.{key}" if at else key)


def _plain(shape: object) -> object:
    """`shape` without None."""
    rest = [x for x in get_args(shape) if x is not NoneType]
    return rest[0] if NoneType in get_args(shape) and len(rest) == 1 else shape
