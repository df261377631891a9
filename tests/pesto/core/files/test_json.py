import json
import logging
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.errors import InputError, PestoError
from pesto.core.files.json import DocumentKind, decode_document, decode_json, encode_json, quoted, shown
from solvers.files.json_text import MAX_DEPTH

ROOT = Path(__file__).parents[4]

KIND = DocumentKind(format="thing", version=2, help="make one")


class Part(msgspec.Struct):
    name: str
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


class Thing(msgspec.Struct):
    format: str
    format_version: int
    parts: list[Part] = []
    s: dict[str, float] = {}


def refused(text: str | bytes, why: str, as_type: Any = dict[str, Any]) -> None:
    """The text is refused with one line that names it and holds `why` and a remedy."""
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(InputError) as error:
        decode_json(data, as_type, "file.json")
    message = str(error.value)
    assert message.startswith("file.json: ")
    assert why in message
    assert " - " in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        ('{"a": 1', "ends too early"),
        ('{"a": "b', "ends too early"),
        ('{"a": 1}\n\n  x', "malformed JSON: trailing characters"),
        ('{\n "a": NaN}', "line 2, column 7: malformed JSON"),
        ('{"a": -Infinity}', "line 1, column 8: malformed JSON"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": 1,}', "malformed JSON"),
        ("{'a': 1}", "malformed JSON"),
        ('{"a": "b\nc"}', "malformed JSON"),
        (b'{\n"a": "\xff"}', "line 2, column 7: not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        ('{"a": "\\ud800"}', "half of a character"),
        (b"\x1f\x8b\x08\x00", "not UTF-8"),
        ("[]", "Expected `object`, got `array`"),
    ],
)
def test_refuses_malformed_text(text, why):
    """Each kind of broken text gets its own reason, with the line and column where there is one."""
    refused(text, why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format_version": 2, "format": 1}', "$.format: Expected `str`, got `int`"),
        ('{"format": "x", "format_version": 2, "parts": [{"name": "a"}, {}]}', "$.parts[1]: Object missing required"),
        ('{"format": "x", "format_version": 2, "parts": [{"name": "a", "bytes": -1}]}', "$.parts[0].bytes: Expected"),
        (
            '{"format": "x", "format_version": 2, "parts": [{"name": "a", "bytes": ' + "9" * 4999 + "}]}",
            "parts[0].bytes: Integer value out",
        ),
        ('{"format": "x", "format_version": 2, "parts": [{"name": "a", "bytes": 9223372036854775808}]}', "parts[0]"),
        ('{"format": "x", "format_version": 2, "parts": [{"name": "a", "bytes": 1.5}]}', "$.parts[0].bytes: Expected"),
        ('{"format": "x", "format_version": 2, "s": {"a": "b"}}', "$.s[...]: Expected `float`"),
    ],
)
def test_refuses_wrong_types_with_the_path(text, why):
    """What does not fit the type is named by its path from the root."""
    refused(text, why, Thing)


@pytest.mark.parametrize("open_, close", [("[", "]"), ('{"a":', "}")])
def test_depth(open_, close):
    """64 levels are read, 65 are refused, and a million are refused as fast and without a crash."""
    nested = open_ * (MAX_DEPTH - 1) + "1" + close * (MAX_DEPTH - 1)
    assert decode_json(f"[{nested}]".encode(), Any, "x")
    refused(f"[[{nested}]]", f"nested deeper than {MAX_DEPTH} levels", Any)
    refused(f"[{open_ * 1_000_000}", "nested deeper", Any)
    assert decode_json(f'["{open_[:1] * 1000}", [], []]'.encode(), Any, "x")  # brackets in strings do not nest


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('[{"b": {"c": 1}}, {"b": {"c": 1, "d": [{"c": 1}], "c": 1}}]', "c"),
        ('{"a": 1, "\\u0061": 2}', "a"),
        ('{"\\u00e9": 1, "\u00e9": 2}', "\u00e9"),
        ('{"\\u20ac": 1, "\u20ac": 2}', "\u20ac"),
        ('{"\\ud83d\\ude00": 1, "\U0001f600": 2}', "\U0001f600"),
        ('{"\\u000A\\/\\"\\\\\\b\\f\\r\\t": 1, "\\n/\\"\\\\\\u0008\\u000c\\u000d\\u0009": 2}', "\\n/"),
        ('{"": 1, "": 2}', ""),
        ("{" + ",".join(f'"k{i % 999}": 1' for i in range(1000)) + "}", "k0"),
    ],
)
def test_refuses_repeated_keys(text, key):
    """A key that is repeated in one object is found, however deep, long the object, or differently escaped."""
    refused(text, f"key '{key}", Any)
    refused(text, "is repeated - keep one of the two", Any)


@given(st.one_of(st.binary(max_size=60), st.text(alphabet='{}[],:"\\u0aé1 ntf', max_size=60).map(str.encode)))
def test_any_bytes_are_decoded_or_refused(data):
    """Whatever the bytes, the outcome is a value or a PestoError, and every value is the one that json reads."""
    try:
        value = decode_json(data, Any, "x")
    except PestoError:
        return
    assert value == json.loads(data)


def test_document_kind():
    """A document of another format, without one, of another version or with a nonsense one is told apart."""
    for head, why in {
        '"format": "other", "format_version": 2': "format is 'other', expected 'thing' - make one",
        '"format_version": 2': "no format is named, expected 'thing' - make one",
        '"format": "thing"': "format_version must be an integer - write 2",
        '"format": "thing", "format_version": true': "must be an integer",
        '"format": "thing", "format_version": "2"': "must be an integer",
        '"format": "thing", "format_version": 3': "format_version 3 is not known, only 2 - update pesto",
        '"format": "thing", "format_version": 1': "only 2 - write it anew",
    }.items():
        with pytest.raises(InputError, match=why):
            decode_document(f'{{{head}, "parts": 5}}'.encode(), Thing, "x", KIND)


def test_unknown_keys_are_warned_of(caplog):
    """Keys that the type lacks are ignored with a warning and the nearest known key, once each, and some in silence."""
    text = (
        '{"format": "thing", "format_version": 2, "_mine": 1, "$schema": "s", "prats": {"q": {}},\n'
        '"parts": [{"name": "a", "byts": 3}, {"name": "b", "byts": 4}], "s": {"any": 1, "key": 2}}'
    )
    with caplog.at_level(logging.WARNING, logger="pesto"):
        thing = decode_document(text.encode(), Thing, "x", KIND)
    assert thing.parts[0].bytes == 0
    assert [r.getMessage() for r in caplog.records] == [
        "x: line 1, column 70: key 'prats' is not known and ignored - did you mean 'parts'?",
        "x: line 2, column 25: key 'byts' is not known and ignored - did you mean 'bytes'?",
    ]


def test_warnings_are_bounded(caplog):
    """A document full of unknown keys gives ten warnings and one that counts the rest."""
    text = '{"format": "thing", "format_version": 2' + "".join(f', "k{i}": 1' for i in range(100)) + "}"
    with caplog.at_level(logging.WARNING, logger="pesto"):
        decode_document(text.encode(), Thing, "x", KIND)
    assert len(caplog.records) == 11
    assert caplog.records[-1].getMessage() == "x: 90 more unknown keys are ignored"


def test_limit_comes_before_decoding():
    """The limit sees what is there before the decoder does: it refuses a text that the type would refuse too."""

    def limit(found: Any) -> None:
        raise InputError(f"{found.items['parts']} parts")

    with pytest.raises(InputError, match=r"^4 parts$"):
        decode_document(b'{"format": "thing", "format_version": 2, "parts": [1, 2, 3, 4]}', Thing, "x", KIND, limit)


def test_encoding_is_canonical():
    """Keys are in order, numpy values are numbers, and NaN has no word."""
    value = {"b": np.arange(3), "a": np.float64(0.1), "c": Part(name="é", bytes=3)}
    assert encode_json(value) == '{"a":0.1,"b":[0,1,2],"c":{"name":"é","bytes":3}}\n'.encode()
    assert encode_json(dict(reversed(value.items()))) == encode_json(value)
    for bad in (float("nan"), float("inf"), np.array([1.0, np.nan]), "\ud800"):
        with pytest.raises(ValueError, match=r"JSON|surrogates"):
            encode_json(bad)
    with pytest.raises(TypeError, match="object cannot be written"):
        encode_json(object())


def test_shown_is_one_line():
    """Whatever it is given, `shown` prints on one line in bounded space."""
    assert shown("a\nb\x1b[0m\u202e\ud800") == "a\\nb\\x1b[0m\\u202e\\ud800"
    assert shown("é" * 200) == "é" * 200
    assert shown("x" * 201) == "x" * 197 + "..."


def test_what_is_quoted_is_escaped_once():
    """In bounded space as well, and nowhere is what is escaped already quoted by `!r`, which escapes it again."""
    assert quoted("a\nb\x1b[0m\u202e\ud800") == "'a\\nb\\x1b[0m\\u202e\\ud800'"
    assert quoted("é'\\") == repr("é'\\")
    assert quoted("x" * 200) == f"'{'x' * 200}'" and quoted("x" * 201) == f"'{'x' * 197}...'"
    files = [path for room in ("pesto", "solvers") for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 500
    assert [path for path in files if re.search(r"\{shown\([^{}]*\)!r\}", path.read_text())] == []
