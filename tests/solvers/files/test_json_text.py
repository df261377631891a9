"""What the gate knows of a text before it is decoded, on random texts and on texts made to defeat it."""

import json
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from solvers.files import json_text
from solvers.files.json_text import Outline, decode, outline


def random_json(rng: random.Random, depth: int, keys: int) -> tuple[str, bool]:
    """A JSON value and whether some object in it repeats a key; keys come from so few that many do."""
    kind = rng.randrange(4) if depth else 3
    if kind == 0:
        parts = [random_json(rng, depth - 1, keys) for _ in range(rng.randrange(4))]
        return "[" + ",".join(text for text, _ in parts) + "]", any(bad for _, bad in parts)
    if kind < 3:
        names = [rng.choice("ab{}[],:\\é") + str(rng.randrange(keys)) for _ in range(rng.randrange(5))]
        parts = [random_json(rng, depth - 1, keys) for _ in names]
        rows = [
            f"{json.dumps(n, ensure_ascii=rng.random() < 0.5)} : {text}"
            for n, (text, _) in zip(names, parts, strict=True)
        ]
        return "{" + " , ".join(rows) + "}", len(set(names)) < len(names) or any(bad for _, bad in parts)
    return rng.choice(["1", '"{[\\","', "null", '""', "-1.5e3", "[]", "{}"]), False


def refusal(text: str) -> str:
    """Why a text is refused; "" when it is not."""
    try:
        outline(text.encode())
    except ValueError as error:
        return str(error)
    return ""


def seen(text: str) -> Outline:
    found = outline(text.encode())
    assert found is not None
    return found


def test_repeated_keys_against_an_oracle(seeds: Callable[[int], range]) -> None:
    """A document is refused when it was made with a key twice in an object, and the place named is that of such a key.

    What is cut off before that place is then no object with the key twice, so that closing it there is accepted.
    """
    cases, found = seeds(3000), 0
    for seed in cases:
        rng = random.Random(seed)  # noqa: S311  # seeded, for a test
        text, expected = random_json(rng, 5, 8)
        why = refusal(text)
        assert ("is repeated - keep one of the two" in why) == expected == bool(why), text
        if expected:
            column = int(why.split(": ")[0].removeprefix("line 1, column "))
            before, after = text.encode()[: column - 1].decode(), text.encode()[column - 1 :].decode()
            key, _ = json.JSONDecoder().raw_decode(after)
            assert f"key '{key}'" in why
            assert refusal(before.rstrip(" ,") + "}" * 9) == ""  # malformed in the end, not repeated
        found += expected
    assert len(cases) / 12 < found < len(cases) * 9 / 10  # the sample holds plenty of both


def test_what_is_there_is_counted() -> None:
    """Elements are counted by key, empty arrays and strings with brackets included; keys are told apart by path."""
    found = seen('{"ops":[{"in":["a,]","b"],"out":[]},{"in":[ ],"x":{"in":[1,2,3],"y":0}},{"in":[[1],[{"z":1}]]}]}')
    assert found.items == {"ops": 3, "in": 2 + 0 + 3 + 2, "out": 0}
    assert found.keys(()) == {"ops"}
    assert found.keys(("ops", None)) == {"in", "out", "x"}
    assert found.keys(("ops", None, "x")) == {"in", "y"}
    assert found.keys(("ops", None, "in", None, None)) == {"z"}
    assert found.keys(("ops", None, "in")) == found.keys(("x",)) == set()


@pytest.mark.parametrize("levels", [1, 63, 64, 65, 500])
def test_the_levels_of_a_text_are_counted_where_it_is_deepest(levels: int) -> None:
    """Arrays and objects count alike; brackets in strings do not; the place is the 65th bracket that is open."""
    rng = random.Random(levels)  # noqa: S311  # seeded, for a test
    kinds = [rng.choice(["[]", '{"[[":}']) for _ in range(levels)]
    inner = "".join(k[:-1] for k in kinds) + '"]{"' + "".join(k[-1] for k in reversed(kinds))
    before = '"[[[[", [], 1, ' if kinds[0] == "[]" else '"a": ["[[[["], '
    text = inner[0] + before + inner[1:]
    if levels <= 64:
        assert refusal(text) == ""
    else:
        column = len(before) + len("".join(k[:-1] for k in kinds[:64])) + 1
        assert refusal(text) == f"line 1, column {column}: nested deeper than 64 levels - flatten it"


def test_many_shapes() -> None:
    """Twenty thousand objects of which no two look alike: all keys are known, and the one that is repeated is found."""
    text = "{" + ",".join(f'"k{i}":{{"a{i}":1}}' for i in range(20_000)) + "}"
    assert len(seen(text).keys(())) == 20_000
    assert seen(text).keys(("k7",)) == {"a7"}
    assert "key 'k7' is repeated" in refusal(text[:-1] + ',"k7":1}')


def test_many_values_are_refused_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two MiB of them, whatever they are, within a megabyte, and as many as are allowed are read."""
    monkeypatch.setattr(json_text, "MOST_VALUES", 2**20)
    assert len(decode(b"[" + b"1," * (2**20 - 1) + b"1]", list[int])) == 2**20
    for character in (b"[", b"{", b","):
        data = character * (2**20 + 1)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=r"^more than 1048576 numbers or arrays - make it smaller$"):
                decode(data, list[Any])
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_an_object_is_forgotten_when_it_closes() -> None:
    """100 000 objects of twelve numbers are looked through in less than a tenth of what they would take as dicts."""
    row = "{" + ",".join(f'"key{k}":{k + 1000}' for k in range(12)) + "}"
    data = ("[" + ",".join([row] * 100_000) + "]").encode()
    tracemalloc.start()
    try:
        outline(data)
        used = tracemalloc.get_traced_memory()[1] - len(data)
    finally:
        tracemalloc.stop()
    assert used < 4 * 2**20
