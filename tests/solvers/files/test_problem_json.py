"""Problem and schedule files: exact round trips, the documented meaning, refusals of one line with the place."""

import copy
import hashlib
import json
import logging
import re
import tracemalloc
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from exhaustive import exhaustive
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.checker import check
from solvers.files import problem_json
from solvers.files.npz import pack_problem, pack_schedule, unpack_problem
from solvers.files.problem_json import (
    Instance,
    ScheduleInstance,
    dumps_problem,
    dumps_schedule,
    fingerprint,
    load_problem,
    loads_problem,
    loads_schedule,
)  # fmt: skip
from solvers.instances.random import generate
from solvers.instances.table import FAMILIES, label, make, optimum
from solvers.problem import Problem

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "problem-file.md"
SCHEMAS = {
    name: json.loads(resources.files("pesto").joinpath(f"schema/{name}-1.json").read_text())
    for name in ("problem", "schedule")
}
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.sampled_from([[[]], [[0]], [-1], 1.0, "\ud800", "a" * 5000, 2**62, 2**63, 2**24, {"a": [1]}]),
)  # fmt: skip


def examples() -> tuple[dict[str, Any], dict[str, Any]]:
    """The problem and the schedule of the documentation."""
    blocks = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) == 2
    return json.loads(blocks[0]), json.loads(blocks[1])


def problem_of(seed: int, tasks: int) -> Problem:
    return generate(np.random.default_rng(seed), tasks=tasks)


def encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@given(seed=st.integers(0, 10**6), tasks=st.integers(0, 12), name=st.text(max_size=5).filter(str.isprintable))
def test_a_problem_comes_back_exactly(seed: int, tasks: int, name: str) -> None:
    """Every column and its shape, empty ones too; the same bytes again; and the schema agrees."""
    instance = Instance(
        problem=problem_of(seed, tasks), name=name, optimum=seed or None, ticks_per_second=tasks or None
    )
    data = dumps_problem(instance)
    again = loads_problem(data)
    assert pack_problem(again.problem) == pack_problem(instance.problem)
    assert (again.name, again.optimum, again.ticks_per_second) == (name, seed or None, tasks or None)
    assert dumps_problem(again) == data
    jsonschema.Draft202012Validator(SCHEMAS["problem"]).validate(json.loads(data))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_problem_of_a_family_comes_back(name: str, tmp_path: Path) -> None:
    """With its name and its optimum, also by way of a file."""
    path = tmp_path / "problem.json"
    path.write_bytes(dumps_problem(Instance(problem=make(name), name=label(name), optimum=optimum(name))))
    assert pack_problem(load_problem(path)) == pack_problem(make(name))
    found = loads_problem(path.read_bytes())
    assert (found.name, found.optimum) == (label(name), optimum(name))


def test_schedules_come_back_exactly(cases: Any) -> None:
    """Every column and every claim; the same bytes again; and the schema agrees."""
    for p, s in cases[:60]:
        answer = ScheduleInstance(
            schedule=s, problem=fingerprint(p), solver="x 1", status="feasible", lower_bound=s.makespan // 2
        )
        data = dumps_schedule(answer)
        again = loads_schedule(data)
        assert pack_schedule(again.schedule) == pack_schedule(s)
        assert check(p, again.schedule) == ()
        assert dumps_schedule(again) == data
        assert (again.problem, again.solver, again.status) == (answer.problem, "x 1", "feasible")
        jsonschema.Draft202012Validator(SCHEMAS["schedule"]).validate(json.loads(data))


def test_the_documented_example_is_valid_and_optimal() -> None:
    """Both blocks satisfy their schemas; the schedule is valid for the problem; the oracle finds none shorter."""
    problem, schedule = examples()
    for name, document in (("problem", problem), ("schedule", schedule)):
        jsonschema.Draft202012Validator(SCHEMAS[name]).validate(document)
    instance, answer = loads_problem(encode(problem)), loads_schedule(encode(schedule))
    assert check(instance.problem, answer.schedule) == ()
    best = exhaustive(instance.problem)
    assert best is not None
    assert best.makespan == answer.schedule.makespan == instance.optimum == 14


def test_the_documented_fingerprint() -> None:
    """Computed here from the text of the documentation alone."""
    document, _ = examples()
    z = document["sizes"]
    n, m, places, e, p, c, k = (z[key] for key in z)
    shapes = {
        "duration": (n, m), "location": (m,), "memory": (n,), "capacity": (places,), "src": (e,), "dst": (e,),
        "payload": (e,), "producer": (p,), "transfer": (p, c), "path_class": (places, places),
        "path_links": (places, places, k), "group": (n,),
    }  # fmt: skip
    text = b""
    for name, shape in shapes.items():
        flat = np.array(document[name]).ravel().tolist()
        text += f"{name}:{','.join(map(str, shape))};".encode() + b"".join(
            v.to_bytes(8, "little", signed=True) for v in flat
        )
    known = hashlib.sha256(text).hexdigest()
    assert fingerprint(loads_problem(encode(document)).problem) == known
    assert loads_problem(encode(document | {"fingerprint": known})).problem.tasks == 4
    with pytest.raises(ValueError, match=r"\$\.fingerprint: the content has another one"):
        loads_problem(encode(document | {"fingerprint": known, "memory": [0, 6, 6, 5]}))


@pytest.mark.parametrize(("name", "reader"), [("problem", problem_json._Problem), ("schedule", problem_json._Schedule)])
def test_the_schemas_know_the_keys_that_the_readers_know(name: str, reader: type[msgspec.Struct]) -> None:
    """The same keys, in the same order, and the same ones required."""
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    known = {f.name: f.required for f in msgspec.structs.fields(reader)}
    assert [key for key in schema["properties"] if key != "$schema"] == list(known)
    assert schema["required"] == [key for key, required in known.items() if required]
    assert all(f"`{key}`" in DOCS.read_text() for key in known)


LIVES = {
    "size": [4, 4], "maker": [0, 1], "passes": [-1, -1], "reuses": [-1, 0], "read_buffer": [0, 0, 1],
    "read_by": [1, 2, 3], "read_payload": [0, 0, 1], "scratch": [0, 1, 1, 0],
}  # fmt: skip


def test_bytes_that_come_and_go_come_back() -> None:
    """The problem has another fingerprint then; what is written is read, in either form, and fits its schema."""
    document = examples()[0] | {"lives": LIVES}
    jsonschema.Draft202012Validator(SCHEMAS["problem"]).validate(document)
    bare, problem = (loads_problem(encode(each)).problem for each in (examples()[0], document))
    assert fingerprint(problem) != fingerprint(bare) == fingerprint(problem.living(None))
    text = dumps_problem(Instance(problem=problem))
    for found in (loads_problem(text).problem, unpack_problem(pack_problem(problem))):
        assert found.lives.static.tolist() == [0, 6, 6, 6]
        assert all(getattr(found.lives, key).tolist() == column for key, column in LIVES.items())
    # Payload 0 lies at the host until its last transfer has ended, and at each GPU from the start of one.
    schedule = loads_schedule(encode(examples()[1])).schedule
    assert check(problem.holding(capacity=[4, 17, 11]), schedule) == ()
    for capacity in ([3, 17, 11], [4, 16, 11], [4, 17, 10]):
        assert [v.kind for v in check(problem.holding(capacity=capacity), schedule)] == ["peak"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another format": ({"format": "pesto-graph"}, "format is 'pesto-graph', expected 'pesto-problem'"),
    "a future version": ({"format_version": 2}, "format_version 2 is not known, only 1 - update pesto"),
    "a version that is true": ({"format_version": True}, "format_version must be an integer - write 1"),
    "a fraction": ({"memory": [0, 6, 6, 6.5]}, "$.memory[3]: Expected `int`, got `float`"),
    "a whole float": ({"memory": [0, 6, 6, 6.0]}, "$.memory[3]: Expected `int`, got `float`"),
    "a boolean": ({"group": [-1, 0, -1, True]}, "$.group[3]: Expected `int`, got `bool`"),
    "a short row": ({"duration": [[3, -1, -1], [-1, 5, 5], [-1, 5], [-1, 2, 2]]}, "$.duration[2]: 2 entries, expected"),
    "a short column": ({"src": [0, 0, 1]}, "$.src: 3 entries, expected 4 by $.sizes"),
    "-2": ({"group": [-1, 0, -1, -2]}, "$.group[3]: Expected `int` >= -1"),
    "negative memory": ({"memory": [0, 6, 6, -1]}, "$: memory: -1 is out of range"),
    "too many ticks": ({"duration": [[2**62, -1, -1], [-1, 5, 5], [-1, 5, 5], [-1, 2, 2]]}, "sum to more than"),
    "a huge link": ({"path_links": [[[-1], [2**24], [0]], [[0], [-1], [1]], [[0], [1], [-1]]]}, "$.path_links[0][1]"),
    "a cycle": ({"dst": [1, 0, 3, 3]}, "cycle"),
    "another's payload": ({"payload": [0, 0, 2, 1]}, "carries payload 2 of another task"),
    "runs nowhere": ({"duration": [[-1, -1, -1], [-1, 5, 5], [-1, 5, 5], [-1, 2, 2]]}, "task 0 can run on no device"),
    "a name of two lines": ({"name": "a\nb"}, "$.name: text must be printable"),
    "no clock": ({"ticks_per_second": 0}, "$.ticks_per_second: Expected `int` >= 1"),
    "a digest of letters": ({"fingerprint": "xyz"}, "$.fingerprint"),
    "lives of nobody": ({"lives": LIVES | {"read_by": [1, 2, 9]}}, "$.lives: read_by points at nothing"),
    "lives that nothing brings": ({"lives": LIVES | {"read_payload": [0, 0, 2]}}, "payload of another task than"),
    "lives read without an edge": ({"lives": LIVES | {"read_by": [1, 2, 2]}}, "no edge brings payload 1 to task 2"),
    "lives of two in one": ({"lives": LIVES | {"maker": [0, 0], "reuses": [-1, -1], "read_payload": [0, 0, 0]}}, "two"),
    "lives in a ring": ({"lives": LIVES | {"maker": [1, 1], "read_buffer": [0, 1, 1], "read_by": [1, 1, 3],
                                           "read_payload": [-1, -1, 1], "passes": [1, 0]}}, "in a cycle"),
    "lives too short": ({"lives": LIVES | {"scratch": [0]}}, "$.lives: scratch has 1 entries, expected 4"),
    "sizes without one": ({"sizes": {"tasks": 4}}, "$.sizes: Object missing required field"),
}  # fmt: skip
BYTES = {
    "nothing": (b" \n", "empty"),
    "cut short": (b'{"format": "pesto-pro', "ends too early"),
    "an array": (b"[]", "$: Expected `object`, got `array`"),
    "not a number": (b'{"format": NaN}', "line 1, column 12: malformed JSON"),
    "infinity": (b'{"x": -Infinity}', "line 1, column 8: malformed JSON"),
    "a key twice": (b'{"a": 1, "\\u0061": 2}', "line 1, column 10: key 'a' is repeated"),
    "not UTF-8": (b'{"a": "\xff"}', "line 1, column 8: not UTF-8"),
    "a deep nest": (b"[" * 100_000, "line 1, column 65: nested deeper than 64 levels"),
    "a long number": (b'{"format_version": ' + b"9" * 5000 + b"}", "$.format_version: Integer value out of range"),
}  # fmt: skip


def refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError) as error:
        loads_problem(data)
    text = str(error.value)
    assert says in text
    assert " - " in text
    assert text.isprintable()


@pytest.mark.parametrize("case", BAD)
def test_refused_content(case: str) -> None:
    """The documented example with one key changed: one line with the place and a remedy."""
    edit, says = BAD[case]
    refused(encode(examples()[0] | edit), says)


@pytest.mark.parametrize("case", BYTES)
def test_refused_bytes(case: str) -> None:
    """What is no JSON, or no JSON that could be meant."""
    refused(*BYTES[case])


SCHEDULES: dict[str, tuple[dict[str, Any], str]] = {
    "another makespan": ({"makespan": 13}, "$.makespan: 13, but the last task finishes at 14"),
    "a bound above it": ({"lower_bound": 15}, "$.lower_bound: 15 is above the makespan 14"),
    "unequal columns": ({"start": [0]}, "one entry a task"),
    "unequal transfers": ({"sent_to": []}, "equally long"),
    "a negative time": ({"start": [-1, 7, 5, 12]}, "$.start[0]: Expected `int` >= 0"),
    "a problem": ({"format": "pesto-problem"}, "format is 'pesto-problem'"),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEDULES)
def test_refused_schedules(case: str) -> None:
    """The documented schedule with one key changed."""
    edit, says = SCHEDULES[case]
    with pytest.raises(ValueError, match=re.escape(says)):
        loads_schedule(encode(examples()[1] | edit))


@pytest.mark.parametrize("character", [b"[", b"{", b","])
def test_too_much_is_refused_before_anything_is_allocated(character: bytes) -> None:
    """16 MiB that would decode to a gigabyte of lists: refused within a megabyte."""
    data = character * (problem_json.MOST_NUMBERS + 1)
    tracemalloc.start()
    try:
        refused(data, f"more than {problem_json.MOST_NUMBERS} numbers")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_what_a_reader_would_refuse_is_not_written() -> None:
    """Numbers of groups that solvers would count up to."""
    p = problem_of(0, 3)
    columns = {f: getattr(p, f) for f in Problem.__dataclass_fields__ if f not in ("allowed", "holds")}
    with pytest.raises(ValueError, match="group: 16777216 is beyond 16777215"):
        dumps_problem(Instance(problem=Problem(**columns | {"group": np.full(3, 2**24)})))


def test_unknown_keys_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With the nearest known key; the user's own keys, _x and $x, in silence."""
    caplog.set_level(logging.WARNING, "pesto")
    document, _ = examples()
    assert loads_problem(encode(document | {"optimun": 3, "_mine": 1, "$schema": "x"})).optimum == 14
    assert [r.getMessage() for r in caplog.records] == [
        "line 1, column 624: key 'optimun' is not known and ignored - did you mean 'optimum'?"
    ]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in list(items) for found in [(value, key), *places(inner)]]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """The documented problem or schedule with one to three values replaced, removed or taken from elsewhere."""
    document = copy.deepcopy(examples()[draw(st.integers(0, 1))])
    for _ in range(draw(st.integers(1, 3))):
        there = places(document)
        container, key = draw(st.sampled_from(there))
        edit = draw(st.integers(0, 2))
        if edit == 0:
            container[key] = copy.deepcopy(draw(JUNK))
        elif edit == 1:
            del container[key]
        else:
            other, place = draw(st.sampled_from(there))
            container[key] = copy.deepcopy(other[place]) if isinstance(other, list) or place in other else None
    return encode(document)


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """The documented problem or schedule with a slice of its bytes cut, doubled or replaced."""
    data = encode(examples()[draw(st.integers(0, 1))])
    a, b = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
    return data[:a] + draw(st.sampled_from([b"", data[a:b] * 2]) | st.binary(max_size=5)) + data[b:]


@settings(max_examples=3 * settings.default.max_examples)  # three kinds of bytes
@given(st.one_of(mutants(), torn(), st.binary(max_size=100)))
def test_anything_at_all_is_read_or_refused_in_one_line(data: bytes) -> None:
    """Whatever the bytes, there is a problem or schedule that writes and reads again, or a ValueError of one line."""
    for loads, dumps in ((loads_problem, dumps_problem), (loads_schedule, dumps_schedule)):
        try:
            found = loads(data)
        except ValueError as error:
            assert str(error).isprintable()
            assert " - " in str(error)
        else:
            written = dumps(found)  # type: ignore[operator]
            assert dumps(loads(written)) == written  # type: ignore[operator]
