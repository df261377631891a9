"""Files that are nearly valid: strategies that edit a valid document, or tear its bytes."""

import contextlib
import copy
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Thousands of warnings about unknown keys are made but not kept."""
    log = logging.getLogger("pesto")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) of a JSON value."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in places(inner)]


@st.composite
def edited(draw: st.DrawFn, documents: Any, junk: Any, keys: Sequence[str]) -> bytes:
    """A valid file with one to three edits: a value replaced, removed, doubled, renamed or taken from elsewhere."""
    doc = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(1, 3))):
        there = places(doc)
        if not there:
            break
        container, key = draw(st.sampled_from(there))
        edit = draw(st.integers(0, 4))
        if edit == 0:
            container[key] = copy.deepcopy(draw(junk))
        elif edit == 1:
            del container[key]
        elif edit == 2 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif edit == 3 and isinstance(container, dict):
            container[draw(st.sampled_from(keys))] = container.pop(key)
        else:
            other, place = draw(st.sampled_from(there))
            container[key] = copy.deepcopy(other[place]) if place in other or isinstance(other, list) else None
    return json.dumps(doc, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


@st.composite
def torn(draw: st.DrawFn, documents: Any) -> bytes:
    """A valid file with a slice of its bytes cut, doubled, or replaced by others."""
    data = json.dumps(draw(documents)).encode()
    a, b = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
    middle = draw(
        st.sampled_from([b"", data[a:b] * 2]) | st.binary(max_size=5) | st.sampled_from([b"[" * 99, b'"', b","])
    )
    return data[:a] + middle + data[b:]
