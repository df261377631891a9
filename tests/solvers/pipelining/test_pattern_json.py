"""Pattern files: exact round trips, the documented example, refusals of one line with the place, breaches found."""

import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nearly_valid import edited, torn, without_warnings

from benchmarks.chain_families import make_case
from pesto.core.errors import InputError, VerificationError
from pesto.core.files.solver_files import load_pattern, save_pattern
from pesto.pipelining.pattern_certificate import certify_pattern, chosen_pattern, verify_pattern
from pesto.pipelining.pipeline import find_pipeline
from pesto.pipelining.schedules import NAMES, ChainRequest
from solvers.pipelining import pattern_json
from solvers.pipelining.chain import KINDS, Allocation, Machines, MemoryModel
from solvers.pipelining.chain_json import ChainInstance
from solvers.pipelining.pattern_json import MOST_ROWS, PatternInstance, dumps_pattern, loads_pattern

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "pattern-file.md"
SCHEMA = json.loads(resources.files("pesto").joinpath("schema/pattern-1.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.sampled_from(["pesto-pattern", "pesto-chain", "forward", "a" * 5000, 2**62, 2**20, -(2**62), -1, 1.0, [[1]]]),
)  # fmt: skip
KEYS = ("schedule", "rows", "device", "chain", "shift", "memory_model", "é", "_x")


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Thousands of warnings about unknown keys are made but not kept."""
    with without_warnings():
        yield


@st.composite
def documents(draw):
    """A file that is read, whether or not its rows are a schedule, with and without the keys that have defaults."""
    many, devices, k, ticks = draw(st.tuples(*[st.integers(1, 3)] * 4))
    layer = {"forward": 1, "backward": 2, "weights_bytes": 3, "activation_bytes": 4}
    row = st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS), "layer": st.integers(0, many - 1), "copy": st.integers(0, k - 1),
            "t": st.integers(0, ticks - 1), "shift": st.integers(-3, 3) | st.just(2**61),
        }
    ).filter(lambda row: not row["kind"].startswith("send") or row["layer"] + 1 < many)  # fmt: skip
    found = {
        "format": "pesto-pattern", "format_version": 1, "devices": devices, "k": k, "T": ticks,
        "device": draw(st.lists(st.integers(0, devices - 1), min_size=many, max_size=many)),
        "peak_bytes": draw(st.lists(st.integers(0, 9), min_size=devices, max_size=devices)),
        "rows": draw(st.lists(row, min_size=1, max_size=4)),
        "chain": {
            "format": "pesto-chain", "format_version": 1, "layers": [layer] * many, "transfers": [2] * (many - 1)
        },
    }  # fmt: skip
    if draw(st.booleans()):
        found |= {"schedule": draw(st.sampled_from(["", 'a "b"', "é"])), "memory_model": "paper"}
        found["memory_bytes"] = draw(st.none() | st.integers(0, 2**62))
    return found


def columns(found: PatternInstance) -> list[object]:
    """All that a file says of a pattern, beside its chain."""
    p = found.pattern
    rows = [getattr(p, name).tolist() for name in ("kind", "layer", "copy", "resource", "t", "shift")]
    where = [found.allocation.device.tolist(), found.allocation.devices, found.peaks.tolist()]
    return [p.k, p.T, *rows, *where, found.memory, found.model, found.schedule, repr(found.of.chain)]


@given(documents())
def test_a_pattern_comes_back_exactly(document) -> None:
    """Every column, the memory and its model; the same bytes again; the schema agrees; links are those of the cuts."""
    found = loads_pattern(json.dumps(document).encode())
    data = dumps_pattern(found)
    assert columns(loads_pattern(data)) == columns(found)
    assert dumps_pattern(loads_pattern(data)) == data
    VALIDATOR.validate(json.loads(data))
    assert json.loads(data)["rows"] == document["rows"]
    for row, resource in zip(document["rows"], found.pattern.resource.tolist(), strict=True):
        device, at = document["device"], row["layer"]
        if row["kind"].startswith("send"):
            low, high = sorted(device[at : at + 2])
            assert resource == document["devices"] * (1 + low) + high
        else:
            assert resource == device[at]


@given(edited(documents(), JUNK, KEYS) | torn(documents()))
def test_a_nearly_valid_file_is_a_pattern_or_one_line(data) -> None:
    """What is read is what the schema allows, is written again, and is checked without a fault; else one line."""
    try:
        found = loads_pattern(data)
    except ValueError as error:
        assert re.search(r" - \w", str(error)), error
        assert str(error).isprintable()
        return
    VALIDATOR.validate(json.loads(data.removeprefix(b"\xef\xbb\xbf")))
    assert columns(loads_pattern(dumps_pattern(found))) == columns(found)
    try:
        verify_pattern(found, "it")
    except VerificationError as error:
        assert str(error).isprintable()


def example():
    """The file of the documentation."""
    return json.loads(re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)[0])


def test_the_documented_example() -> None:
    """It satisfies the schema, is a schedule with the bytes that it claims meets its bound; the page names all keys."""
    VALIDATOR.validate(example())
    found = loads_pattern(json.dumps(example()).encode())
    verify_pattern(found, "it")
    assert (found.pattern.period, certify_pattern(found).bound.value, certify_pattern(found).gap) == (3, 3, 0)
    for reader, schema in ((pattern_json._PatternDocument, SCHEMA), (pattern_json._PatternRow, SCHEMA["$defs"]["row"])):
        known = {f.name: f.required for f in msgspec.structs.fields(reader)}
        assert [key for key in schema["properties"] if key != "$schema"] == list(known)
        assert schema["required"] == [key for key, required in known.items() if required]
        assert all(f"`{key}`" in DOCS.read_text() for key in known)
    assert SCHEMA["$defs"]["row"]["properties"]["kind"]["enum"] == list(KINDS)
    assert SCHEMA["properties"]["memory_model"]["enum"] == [model.value for model in MemoryModel]


def with_row(at, **values):
    """The example with another row."""
    document = example()
    document["rows"][at] |= values
    return document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (with_row(0, kind="sideways"), r"\$\.rows\[0\]\.kind: Invalid enum value 'sideways' - correct it there"),
        (with_row(3, layer=2), r"\$: rows\[3\]: there is no backward of layer 2 - correct it there"),
        (with_row(1, layer=1), r"\$: rows\[1\]: there is no send forward of layer 1 - correct it there"),
        (with_row(2, t=3), r"\$: t\[2\] is 3, out of range - correct it there"),
        (with_row(2, t=-1), r"\$\.rows\[2\]\.t: Expected `int` >= 0 - correct it there"),
        (with_row(2, copy=1), r"\$: copy\[2\] is 1, out of range - correct it there"),
        (example() | {"rows": []}, r"\$\.rows: 0 rows, expected 1 to 1048576 - give one"),
        (example() | {"device": [0]}, r"\$\.device: 1 entries, expected 2 - correct it there"),
        (example() | {"device": [0, 2]}, r"\$: device\[1\] is 2, of 2 devices - correct it there"),
        (example() | {"peak_bytes": [1]}, r"\$\.peak_bytes: 1 entries, expected 2 - correct it there"),
        (example() | {"T": 0}, r"\$\.T: Expected `int` >= 1 - correct it there"),
        (example() | {"chain": {**example()["chain"], "format_version": 2}}, r"\$\.chain: no pesto-chain of version 1"),
        (example() | {"chain": {**example()["chain"], "transfers": []}}, r"\$\.chain\.transfers: 0 entries, exp"),
        (example() | {"format": "pesto-chain"}, r"format is 'pesto-chain', expected 'pesto-pattern' - give a file"),
        (example() | {"format_version": 2}, r"format_version 2 is not known, only 1 - update pesto"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(document, said) -> None:
    """The place, what is wrong and a remedy."""
    with pytest.raises(ValueError, match=said):
        loads_pattern(json.dumps(document).encode())


def test_what_is_too_long_is_refused(monkeypatch) -> None:
    """When it is read, before rows are made, and when it is written."""
    document = example() | {"rows": [{}] * (MOST_ROWS + 1)}
    with pytest.raises(ValueError, match=r"\$\.rows: 1048577 rows, .* - keep a pattern of fewer batches"):
        loads_pattern(json.dumps(document).encode())
    found = loads_pattern(json.dumps(example()).encode())
    monkeypatch.setattr(pattern_json, "MOST_ROWS", 5)
    with pytest.raises(ValueError, match=r"\$\.rows: 6 rows, expected 1 to 5 - keep a pattern of fewer batches"):
        dumps_pattern(found)


def test_rows_elsewhere_are_not_written() -> None:
    """The file has no word for a row that is not where its layer is."""
    found = loads_pattern(json.dumps(example()).encode())
    moved = PatternInstance(
        of=found.of, allocation=Allocation(device=[1, 0], devices=2), pattern=found.pattern, memory=None,
        model=found.model, peaks=found.peaks,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"one is not on the device .* - check the pattern first"):
        dumps_pattern(moved)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (with_row(2, t=1), "dependency: forward of layer 1 begins before send forward of layer 0 ends"),
        (with_row(4, shift=2), "dependency: send backward of layer 0 begins before backward of layer 1 ends"),
        (with_row(0, t=2, shift=3), "overlap: backward of layer 0 and forward of layer 0 overlap on resource 0"),
        (with_row(5, kind="weight gradient"), "rows: "),
        (example() | {"rows": example()["rows"][:-1]}, "rows: layer 0 lacks a half"),
        (example() | {"k": 2}, "copies: forward of layer 0 does not do each batch once"),
        (example() | {"memory_bytes": 13}, "memory: device 0 holds 14 bytes, and has 13"),
        (example() | {"memory_model": "paper"}, "device 0 holds 10 bytes at its most, the file says 14"),
        (example() | {"schedule": "gpipe"}, "its rows are not those of gpipe on these stages"),
        (example() | {"peak_bytes": [14, 12]}, "device 1 holds 13 bytes at its most, the file says 12"),
    ],
)  # fmt: skip
def test_breaches_are_found(document, said) -> None:
    """A file that was tampered with is told by what is broken."""
    with pytest.raises(VerificationError, match=rf"it: the pattern is invalid: {said}.* - make it anew"):
        verify_pattern(loads_pattern(json.dumps(document).encode()), "it")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exact"])
def test_every_named_schedule_is_kept(name, tmp_path) -> None:
    """Packed or not, it comes back and is verified; under another schedule's name it is refused."""
    chain = make_case("random-chain", 3, layers=8, devices=3).chain
    asked = ChainRequest(chain=chain, machines=Machines.alike(3), batches=6, contiguous=name != "free")
    found = chosen_pattern(find_pipeline(asked, name), ChainInstance(chain=chain))
    for path in (tmp_path / "pattern.json", tmp_path / "pattern.json.gz"):
        save_pattern(found, path)
        again = load_pattern(path)
        verify_pattern(again, "it")
        assert columns(again) == columns(found) and again.schedule == name
        same = {name, "free", *(["exact"] if again.allocation.contiguous else [])}
        for other in set(NAMES) - (same | {"1f1b*", "thinned"} if again.pattern.k == 1 else same):
            with pytest.raises(VerificationError, match="its rows are not those of"):
                verify_pattern(replace(again, schedule=other), "it")
        assert certify_pattern(again).bound.value <= certify_pattern(again).stage_bound.value
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match=r"bad\.json: no format is named, expected 'pesto-pattern' - give"):
        load_pattern(tmp_path / "bad.json")


def test_what_does_not_fit_is_not_kept() -> None:
    """A file would be refused."""
    chain = make_case("random-chain", 3, layers=8, devices=3).chain
    least = int(find_pipeline(ChainRequest(chain=chain, machines=Machines.alike(3))).chosen.peaks.max())
    found = find_pipeline(ChainRequest(chain=chain, machines=Machines.alike(3, least), batches=99), "gpipe")
    assert not found.chosen.fits
    with pytest.raises(ValueError, match=r"gpipe: out of memory on device \d - give more memory"):
        chosen_pattern(found, ChainInstance(chain=chain))
