import gzip
import json
import logging
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from pesto.core.errors import Exit, FileError, InputError
from pesto.core.files import graph_file
from pesto.core.files.graph_file import OpRecord
from pesto.core.graph import Graph

DATA = Path(__file__).resolve().parents[4] / "tests" / "data"
ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads(resources.files("pesto").joinpath("schema/graph-1.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SAMPLES = sorted(DATA.glob("*.graph.json"))


def document(ops: list[Any], **more: Any) -> bytes:
    """A graph file of these ops."""
    return json.dumps({"format": "pesto-graph", "format_version": 1, **more, "ops": ops}).encode()


def graph(ops: list[Any], **more: Any) -> Graph:
    """What loading them gives."""
    return graph_file.loads(document(ops, **more), "test")


def test_what_a_file_says():
    """Every key lands where it belongs, and what is absent has the documented default."""
    g = graph(
        [
            {"name": "late", "inputs": ["w:1", "w", "w:1"], "control": ["go"], "outputs": [5]},
            {
                "name": "w", "type": "Var", "runs_on": ["gpu"], "outputs": [100, 20], "group": "v", "param_bytes": 7,
                "flops": 1.5, "moved_bytes": 9, "launches": False, "time_s": {"V100": 2e-3},
            },
            {"name": "go", "group": "v"},
        ],
        source="by hand",
    )  # fmt: skip
    assert (g.names, g.source, g.kinds, g.given_kinds) == (("late", "w", "go"), "by hand", ("cpu", "gpu"), ("V100",))
    assert [g.types[t] for t in g.type_of] == ["", "Var", ""]
    assert g.tensor_op.tolist() == [0, 1, 1]  # late has one output, w two
    assert g.tensor_bytes.tolist() == [5, 100, 20]
    assert list(zip(g.src, g.dst, g.tensor, strict=True)) == [(1, 0, 2), (1, 0, 1), (1, 0, 2)]
    assert (g.control_src.tolist(), g.control_dst.tolist()) == ([2], [0])
    assert g.group.tolist() == [-1, 0, 0]
    assert g.runs_on.tolist() == [[True, True], [False, True], [True, True]]
    assert (g.param_bytes.tolist(), g.flops.tolist()) == ([0, 7, 0], [0, 1.5, 0])
    assert g.moved_bytes.tolist() == [20 + 100 + 20 + 5, 9, 0]  # inputs and outputs unless it is said
    assert g.launches.tolist() == [True, False, True]
    assert np.array_equal(g.given_s[:, 0], [np.nan, 2e-3, np.nan], equal_nan=True)


def test_least_files():
    """One op with nothing but a name is a graph, and so are ops without any edge."""
    assert graph([{"name": "a"}]).ops == 1
    assert graph([{"name": "a", "outputs": [0], "time_s": {"gpu": 0}}, {"name": "b"}]).ops == 2
    assert graph([{"name": "a", "runs_on": None, "group": None, "moved_bytes": None, "time_s": None}]).ops == 1


def test_save_and_load(tmp_path):
    """A file, packed when its name says so, comes back; equal graphs give equal files; the source is not the path."""
    g = graph([{"name": "a", "outputs": [1]}, {"name": "b", "inputs": ["a"]}], source="made here")
    for name in ("g.json", "g.json.gz"):
        graph_file.save(g, tmp_path / name)
        first = (tmp_path / name).read_bytes()
        again = graph_file.load(tmp_path / name)
        assert (again.fingerprint(), again.source) == (g.fingerprint(), "made here")
        graph_file.save(again, tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
    assert gzip.decompress((tmp_path / "g.json.gz").read_bytes()) == (tmp_path / "g.json").read_bytes()
    (tmp_path / "bare.json").write_bytes(document([{"name": "a"}]))
    assert graph_file.load(tmp_path / "bare.json").source == "bare.json"


def test_errors_name_the_file_as_given(tmp_path):
    """A missing file ends with exit 8, a refused one with exit 3, both with the path that the user gave."""
    path = tmp_path / "g.json"
    with pytest.raises(FileError, match=re.escape(f"cannot read {path}: no such file")) as missing:
        graph_file.load(path)
    path.write_bytes(document([]))
    with pytest.raises(InputError, match=re.escape(f"{path}: $.ops: there are no ops - list")) as refused:
        graph_file.load(path)
    assert (missing.value.exit_code, refused.value.exit_code) == (Exit.IO, Exit.INPUT)


A, AX = {"name": "a"}, {"name": "a", "outputs": [4]}
BAD_OPS: list[tuple[list[Any], str]] = [
    ([A, {"name": "b"}, A], "$.ops[2].name: 'a' is also $.ops[0] - rename one"),
    ([AX, {"name": "b", "inputs": ["aa"]}], "$.ops[1].inputs[0]: no op is named 'aa' - did you mean 'a'?"),
    ([AX, {"name": "b", "inputs": ["a", "zebra:1"]}], "$.ops[1].inputs[1]: no op is named 'zebra' - add the op"),
    ([AX, {"name": "b", "inputs": ["a:1"]}], "$.ops[1].inputs[0]: 'a' lists 1 outputs, none with index 1 - list"),
    ([AX, {"name": "b", "inputs": ["a:" + "9" * 5000]}], "'a' lists 1 outputs, none with index 9999999999"),
    ([A, {"name": "b", "inputs": ["a"]}], "'a' lists 0 outputs, none with index 0 - list the bytes"),
    ([AX, {"name": "b", "inputs": ["^a"]}], "no op is named '^a' - list 'a' under 'control'"),
    ([{"name": "a:1", "outputs": [1]}, {"name": "b", "inputs": ["a:1"]}], "write 'a:1:0' for that op's first output"),
    ([AX, {"name": "b", "control": ["a:0"]}], "$.ops[1].control[0]: no op is named 'a:0' - write 'a'"),
    ([AX, A | {"name": "b", "inputs": ["a"]}, {"name": "c", "inputs": ["a", "d"]}], "$.ops[2].inputs[1]: no op"),
    ([{"name": "a", "control": ["a"]}], "a cycle of 1 ops: a -> a - remove one of these edges; a loop must be one op"),
    ([AX | {"inputs": ["b"]}, {"name": "b", "inputs": ["a"], "outputs": [1]}], "cycle of 2 ops: "),
    ([{"name": "a", "runs_on": []}], "$.ops[0].runs_on: the op can run nowhere - use cpu, gpu or add to $.kinds"),
    (
        [A, {"name": "b", "runs_on": ["gpu", "tpu"]}],
        "$.ops[1].runs_on: no kind of device is named 'tpu' - use cpu, gpu",
    ),
    ([{"name": ""}], "$.ops[0].name: the name is empty - give it one"),
    ([A, {"name": "b\n"}], "$.ops[1].name: 'b\\n' holds a control character - take it out"),
    ([{"name": "\x00"}], "control character"),
    ([{"name": "a\u202eb"}], "control character"),
    ([{"name": "a", "type": "a\x7f"}], "$.ops[0].type: 'a\\x7f' holds a control character"),
    ([A, {"name": "b", "group": "\x85"}], "$.ops[1].group: '\\x85' holds a control character"),
    ([{"name": "a", "time_s": {"": 1}}], "time_s: the name is empty"),
    ([{"name": "é" * 2049}], "is longer than 4096 bytes - shorten it"),  # two bytes each
    ([{"name": "a", "outputs": [-1]}], "$.ops[0].outputs[0]: Expected `int` >= 0"),
    ([{"name": "a", "outputs": [1e3]}], "$.ops[0].outputs[0]: Expected `int`, got `float`"),
    ([{"name": "a", "param_bytes": 2**63}], "$.ops[0].param_bytes: Expected `int` <= 9223372036854775807"),
    ([{"name": "a", "flops": -1}], "$.ops[0].flops: Expected `float` >= 0"),
    ([{"name": "a", "time_s": {"gpu": -1e-9}}], "$.ops[0].time_s[...]: Expected `float` >= 0"),
    ([{"name": "a", "time_s": {"gpu": 1e7}}], "$.ops[0].time_s[...]: Expected `float` <= 1000000"),
    ([{"name": "a", "time_s": {"gpu": float("nan")}}], "malformed JSON"),
    ([{"name": "a", "time_s": {"gpu": float("inf")}}], "malformed JSON"),
    ([{"name": "a", "param_bytes": 2**62}, {"name": "b", "param_bytes": 2**62}], "param_bytes of all ops exceed 2**62"),
    ([{"name": "a", "moved_bytes": 2**63 - 1}], "moved_bytes of all ops exceed 2**62 - check the unit"),
    ([{"name": "a", "outputs": [2**61, 2**61]}, {"name": "b", "inputs": ["a", "a"]}], "the bytes of all inputs and"),
    ([{"type": "MatMul"}], "$.ops[0]: Object missing required field `name`"),
    ([{"name": 3}], "$.ops[0].name: Expected `str`, got `int`"),
    (["a"], "$.ops[0]: Expected `object`, got `str`"),
]


@pytest.mark.parametrize(("ops", "why"), BAD_OPS, ids=[why[:40] for _, why in BAD_OPS])
def test_bad_ops(ops, why):
    """Each mistake is one line with the file, the place and a remedy."""
    with pytest.raises(InputError) as error:
        graph(ops)
    message = str(error.value)
    assert message.startswith("test: ")
    assert why in message
    assert " - " in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kinds": []}, "$.kinds: there are none - list at least one"),
        ({"kinds": ["gpu", "gpu"]}, "$.kinds[1]: 'gpu' is repeated - keep one"),
        ({"kinds": ["g\tpu"]}, "$.kinds[0]: 'g\\tpu' holds a control character"),
        ({"kinds": [f"k{i}" for i in range(33)]}, "33 kinds, at most 32 are read"),
        ({"source": "a\nb"}, "$.source: 'a\\nb' holds a control character"),
        ({"format_version": 2}, "format_version 2 is not known, only 1 - update pesto"),
        ({"format": "pesto-plan"}, "format is 'pesto-plan', expected 'pesto-graph' - "),
    ],
)
def test_bad_files(more, why):
    """What is wrong with the file as a whole is said the same way."""
    with pytest.raises(InputError) as error:
        graph_file.loads(json.dumps(json.loads(document([A])) | more).encode(), "test")
    assert why in str(error.value)


def test_limits_before_allocation(monkeypatch):
    """Too many ops, edges, outputs, kinds: refused by their number, before anything is decoded."""
    monkeypatch.setattr(graph_file, "MAX_OPS", 3)
    monkeypatch.setattr(graph_file, "MAX_EDGES", 4)
    bad: dict[str, list[Any]] = {  # the fourth op and so on are not even objects of the right type
        "4 ops, at most 3": [1, 2, 3, 4],
        "5 edges, at most 4": [{"inputs": [1, 2, 3]}, {"control": [1, 2]}],
        "5 outputs, at most 4": [{"outputs": ["a", "b", "c", "d", "e"]}],
        "5 entries of runs_on": [{"runs_on": [[], [], [], [], []]}],
        "more than 32 kinds in time_s": [{"time_s": {f"k{i}": i for i in range(40)}}],
    }
    for why, ops in bad.items():
        with pytest.raises(InputError, match=why):
            graph(ops)
    fine = [AX, {"name": "b", "inputs": ["a", "a", "a", "a"], "runs_on": ["cpu"]}, {"name": "c", "outputs": [1, 2, 3]}]
    assert graph(fine).ops == 3


def test_misspelt_keys_are_warned_of(caplog):
    """A misspelt key costs nothing but is not silent."""
    with caplog.at_level(logging.WARNING, logger="pesto"):
        graph([{"name": "a", "input": ["b"], "_note": 1}], kind=["gpu"])
    assert [m.getMessage().partition("key ")[2] for m in caplog.records] == [
        "'kind' is not known and ignored - did you mean 'kinds'?",
        "'input' is not known and ignored - did you mean 'inputs'?",
    ]


def test_long_names_do_not_crowd_out_the_remedy():
    """With names of 4000 characters the message is still short and still says what to do."""
    ops: list[Any] = [{"name": f"{i}" * 4000, "control": [f"{(i + 1) % 9}" * 4000]} for i in range(9)]
    for bad, remedy in (
        (ops, "remove one of these edges"),
        ([ops[0]], "add the op"),
        ([{"name": "x" * 5000}], "shorten"),
    ):
        with pytest.raises(InputError, match=f" - {remedy}") as error:
            graph(bad)
        assert len(str(error.value)) < 2100


def test_graph_that_a_file_cannot_hold():
    """Names that loading would refuse are refused when saving, before anything is written."""
    g = graph([{"name": "a"}])
    for names, why in {("a\nb",): "control", ("",): "empty", ("x" * 5000,): "longer", ("\ud800",): "control"}.items():
        columns = {f: getattr(g, f) for f in Graph.__dataclass_fields__}
        with pytest.raises(InputError, match=why):
            graph_file.dumps(Graph(**columns | {"names": names}))


@pytest.mark.parametrize("path", SAMPLES, ids=[p.name for p in SAMPLES])
def test_samples(path):
    """The hand-written samples satisfy the schema and load."""
    VALIDATOR.validate(json.loads(path.read_text()))
    assert graph_file.load(path).ops >= 1


def test_schema_and_docs():
    """The schema is one, its examples and the documentation's load, and it knows the keys that the reader knows."""
    VALIDATOR.check_schema(SCHEMA)
    block = re.search(r"```json\n(.*?)```", (ROOT / "docs" / "reference" / "graph-file.md").read_text(), re.DOTALL)
    assert block is not None
    for example in [*SCHEMA["examples"], json.loads(block[1])]:
        VALIDATOR.validate(example)
        assert graph_file.loads(json.dumps(example).encode(), "x").ops >= 2
    op = SCHEMA["$defs"]["op"]
    fields = {f.encode_name: f.required for f in msgspec.structs.fields(OpRecord)}
    assert op["properties"].keys() == fields.keys()
    assert op["required"] == [name for name, required in fields.items() if required]


def test_schema_refuses_what_it_can():
    """The schema refuses what the reader refuses wherever a schema can say so."""
    # References, sums and cycles are beyond a schema; bytes are not characters; to a schema 1e3 is an integer.
    beyond = "is also|no op|lists|first output|cycle|no kind of|exceed|all inputs|4096|got `float`"
    for ops, why in BAD_OPS:
        if "malformed" not in why:
            assert VALIDATOR.is_valid(json.loads(document(ops))) is (re.search(beyond, why) is not None), why
