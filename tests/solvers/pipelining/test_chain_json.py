"""Chain files: exact round trips, the documented example, refusals of one line with the place."""

import json
import re
from fractions import Fraction
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nearly_valid import edited, torn, without_warnings
from pipelines import least_of_cuts

from pesto.core.errors import InputError
from pesto.core.files.solver_files import load_chain, save_chain
from solvers.pipelining import chain_json
from solvers.pipelining.chain import Chain, Machines
from solvers.pipelining.chain_json import MOST_LAYERS, ChainInstance, DeviceEntry, LinkEntry, dumps_chain, loads_chain
from solvers.pipelining.contiguous import best_cuts

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "chain-file.md"
SCHEMA = json.loads(resources.files("pesto").joinpath("schema/chain-1.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
AMOUNTS = st.integers(0, 9) | st.sampled_from([2**40, 2**58])
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.sampled_from(["pesto-chain", "a" * 5000, 2**62, 2**63, -1, 1.0, [[1]], {"forward": 1}]),
)  # fmt: skip
KEYS = (
    "name",
    "layers",
    "transfers",
    "forward",
    "weight_gradient",
    "output_bytes",
    "devices",
    "links",
    "speed",
    "between",
    "memory_bytes",
    "é",
    "_x",
)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Thousands of warnings about unknown keys are made but not kept."""
    with without_warnings():
        yield


@st.composite
def machines(draw):
    """The keys of some devices and links, as fast as the chain's ticks or faster."""
    speeds = st.sampled_from(["1", "2", "3/2", "6/4", "999999999/2"])
    devices = []
    for _ in range(draw(st.integers(0, 3))):
        each = {"speed": draw(speeds), "memory_bytes": draw(st.none() | AMOUNTS)}
        devices.append({key: each[key] for key in each if draw(st.booleans())})
    pairs = [[d, e] for e in range(len(devices)) for d in range(e)]
    links = [{"between": pair, "speed": draw(speeds)} for pair in pairs if draw(st.booleans())]
    return {"devices": devices, "links": links}


@st.composite
def documents(draw):
    """A valid file, with and without the keys that have defaults."""
    layers = []
    for _ in range(draw(st.integers(1, 5))):
        layer = {key: draw(AMOUNTS) for key in ("forward", "backward", "weights_bytes", "activation_bytes")}
        if draw(st.booleans()):
            layer |= {"output_bytes": draw(AMOUNTS), "weight_gradient": draw(st.integers(0, layer["backward"]))}
        layers.append(layer)
    found = {"format": "pesto-chain", "format_version": 1, "layers": layers}
    found["transfers"] = [draw(AMOUNTS) for _ in layers[1:]]
    if draw(st.booleans()):
        found |= {"name": draw(st.sampled_from(["", 'a "b"', "é/\\"])), "input_bytes": draw(AMOUNTS)}
        found["ticks_per_second"] = draw(st.none() | st.integers(1, 10**18))
    if draw(st.booleans()):
        found |= draw(machines())
    return found


def columns(chain: Chain) -> list[list[int]]:
    """Every number of a chain."""
    names = ("forward", "backward", "weights", "activation", "output", "transfers", "weight_gradient")
    return [getattr(chain, name).tolist() for name in names]


def told(machines):
    """All of them that is not taken for granted; None without any."""
    if machines is None:
        return None
    memory = [2**62] * machines.devices if machines.memory is None else machines.memory.tolist()
    return machines.speed, memory, {pair: speed for pair, speed in machines.links.items() if speed != 1}


def named(document):
    """The same, of a file."""
    devices, links = document.get("devices", []), document.get("links", [])
    if not devices:
        return None
    memory = [each.get("memory_bytes") for each in devices]
    return (
        tuple(Fraction(each.get("speed", "1")) for each in devices),
        [2**62 if held is None else held for held in memory],
        {tuple(x["between"]): Fraction(x["speed"]) for x in links if x["speed"] != "1"},
    )


@given(documents())
def test_a_chain_comes_back_exactly(document) -> None:
    """Every column, the name and the ticks a second; the same bytes again; and the schema agrees."""
    found = loads_chain(json.dumps(document).encode())
    data = dumps_chain(found)
    again = loads_chain(data)
    assert columns(again.chain) == columns(found.chain)
    assert (again.name, again.ticks_per_second) == (document.get("name", ""), document.get("ticks_per_second"))
    assert dumps_chain(again) == data
    VALIDATOR.validate(json.loads(data))
    assert told(again.machines) == told(found.machines) == named(document)
    assert found.chain.output.tolist() == [
        document.get("input_bytes", 0), *(x.get("output_bytes", x["activation_bytes"]) for x in document["layers"]),
    ]  # fmt: skip
    assert found.chain.weight_gradient.tolist() == [
        x.get("weight_gradient", x["backward"] // 2) for x in document["layers"]
    ]


@given(edited(documents(), JUNK, KEYS) | torn(documents()))
def test_a_nearly_valid_file_is_a_chain_or_one_line(data) -> None:
    """What is read is what the schema allows and is written again; all else is refused in one printable line."""
    try:
        found = loads_chain(data)
    except ValueError as error:
        assert re.search(r" - \w", str(error)), error
        assert str(error).isprintable()
        return
    VALIDATOR.validate(json.loads(data.removeprefix(b"\xef\xbb\xbf")))
    assert columns(loads_chain(dumps_chain(found)).chain) == columns(found.chain)


def example():
    """The file of the documentation."""
    return json.loads(re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)[0])


def test_the_documented_example() -> None:
    """It satisfies the schema, its cuts have the two periods that the page names, and the page names every key."""
    VALIDATOR.validate(example())
    chain = loads_chain(json.dumps(example()).encode()).chain
    periods = [least_of_cuts(chain, [0, cut, 3], 10**9, (1, 1), True) for cut in (2, 1)]
    assert periods == [30, 26]
    assert best_cuts(chain, Machines.alike(2)).period == 26
    readers = {"layer": chain_json._Layer, "device": DeviceEntry, "link": LinkEntry}
    for reader, schema in (
        (chain_json.ChainDocument, SCHEMA), *((reader, SCHEMA["$defs"][key]) for key, reader in readers.items())
    ):  # fmt: skip
        known = {f.name: f.required for f in msgspec.structs.fields(reader)}
        assert [key for key in schema["properties"] if key != "$schema"] == list(known)
        assert schema.get("required", []) == [key for key, required in known.items() if required]
        assert all(f"`{key}`" in DOCS.read_text() for key in known)


def with_layer(**values):
    """The example with another second layer."""
    document = example()
    document["layers"][1] |= values
    return document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (with_layer(forward=-1), r"\$\.layers\[1\]\.forward: Expected `int` >= 0 - correct it there"),
        (with_layer(forward=1.5), r"\$\.layers\[1\]\.forward: Expected `int`, got `float` - correct it there"),
        (with_layer(backward=float("nan")), r"line 1, column \d+: malformed JSON: .* - correct it there \(NaN"),
        (with_layer(weight_gradient=13), r"\$: weight_gradient\[1\] is longer than the backward half .* - correct"),
        (with_layer(forward=2**62), r"\$: .* more than 4611686018427387904, .* - correct the chain"),
        (example() | {"transfers": [1]}, r"\$\.transfers: 1 entries, expected 2, .* - correct one of them"),
        (example() | {"layers": [], "transfers": []}, r"\$\.layers: 0 layers, expected 1 to 16384 - give one"),
        (example() | {"format": "pesto-problem"}, r"format is 'pesto-problem', expected 'pesto-chain' - give a file"),
        (example() | {"format_version": 2}, r"format_version 2 is not known, only 1 - update pesto"),
        (example() | {"devices": [{}] * 65}, r"\$\.devices: 65 devices, expected at most 64 - leave some out"),
        (example() | {"devices": [{"speed": "0"}]}, r"\$\.devices\[0\]\.speed: Expected `str` matching .* - corr"),
        (example() | {"devices": [{"speed": 2}]}, r"\$\.devices\[0\]\.speed: Expected `str`, got `int` - correct it"),
        (example() | {"links": [{"between": [0, 1], "speed": "2"}]}, r"\$\.links\[0\]\.between: no two of 0 .* - corr"),
        (
            example() | {"devices": [{}] * 2, "links": [{"between": pair, "speed": "2"} for pair in ([0, 1], [1, 0])]},
            r"\$\.links\[1\]\.between: a link of 0 and 1 is there already - leave one out",
        ),
        (
            with_layer(forward=2**40) | {"devices": [{"speed": "1/99999999"}]},
            r"\$\.devices: ticks of the slowest sum to more than 46116860\d+ - give them higher speeds",
        ),
        ({"format": "pesto-chain", "format_version": 1}, r"missing required field `layers`.* - correct it there"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(document, said) -> None:
    """The place, what is wrong and a remedy."""
    with pytest.raises(ValueError, match=said):
        loads_chain(json.dumps(document).encode())


def test_chains_that_are_too_long_are_refused() -> None:
    """When they are read, before their layers are made, and when they are written."""
    document = example() | {"layers": [{}] * (MOST_LAYERS + 1)}
    said = r"\$\.layers: 16385 layers, expected 1 to 16384 - fold layers together"
    with pytest.raises(ValueError, match=said):
        loads_chain(json.dumps(document).encode())
    with pytest.raises(ValueError, match="8388609 bytes are more than 8388608 - fold layers together"):
        loads_chain(b" " * (2**23 + 1))
    ones = np.ones(MOST_LAYERS + 1, dtype=np.int64)
    chain = Chain(
        forward=ones, backward=ones, weights=ones, activation=ones, output=np.append(ones, 1), transfers=ones[1:]
    )
    with pytest.raises(ValueError, match=said):
        dumps_chain(ChainInstance(chain=chain))


def test_a_chain_goes_to_disk_and_back(tmp_path) -> None:
    """Packed or not; what is wrong with a file is said with its name."""
    instance = loads_chain(json.dumps(example()).encode())
    for name in ("chain.json", "chain.json.gz"):
        save_chain(instance, tmp_path / name)
        assert dumps_chain(load_chain(tmp_path / name)) == dumps_chain(instance)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match=r"bad\.json: no format is named, expected 'pesto-chain' - give"):
        load_chain(tmp_path / "bad.json")
