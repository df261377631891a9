"""Graph files that are valid, nearly valid or anything: the outcome is a graph or a PestoError, and nothing else."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nearly_valid import edited, torn, without_warnings

from pesto.core.errors import InputError
from pesto.core.files import graph_file
from pesto.core.files.disk import gzipped, read_bytes
from pesto.core.files.graph_file import OpRecord

BYTES = st.integers(0, 2**40)
NAMES = st.text(alphabet='abé:/0 ^"\\', min_size=1, max_size=4)
SECONDS = st.dictionaries(st.sampled_from(["gpu", "V100", "é"]), st.floats(0, 1e6), max_size=2)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.just("\x00"), st.just([]),
    st.just({}), st.sampled_from(["a:0", "gpu", "a" * 5000, 2**63, 2**62, -1, 1e300, [[1]], {"a": {"b": []}}]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Thousands of warnings about unknown keys are made but not kept."""
    with without_warnings():
        yield


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid graph file: edges go from earlier to later ops, which are then shuffled."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    ops: list[dict[str, Any]] = []
    for name in names:
        op: dict[str, Any] = {"name": name, "outputs": draw(st.lists(BYTES, max_size=3))}
        refs = [f"{p['name']}:{k}" for p in ops for k in range(len(p["outputs"]))]
        op["inputs"] = draw(st.lists(st.sampled_from(refs), max_size=3)) if refs else []
        op["control"] = draw(st.lists(st.sampled_from([p["name"] for p in ops]), max_size=2)) if ops else []
        optional = {
            "type": NAMES, "runs_on": st.sampled_from([["cpu"], ["gpu", "cpu"], None]), "group": st.none() | NAMES,
            "param_bytes": BYTES, "flops": st.floats(0, 1e24), "moved_bytes": st.none() | BYTES,
            "launches": st.booleans(), "time_s": st.none() | SECONDS,
        }  # fmt: skip
        ops.append(op | draw(st.fixed_dictionaries({}, optional=optional)))
    return {"format": "pesto-graph", "format_version": 1, "ops": draw(st.permutations(ops))}


def outcome(data: bytes) -> bool:
    """Whether the file loads; when it does, it saves and loads again as the same graph, and else says why in a line."""
    try:
        graph = graph_file.loads(data, "fuzz")
    except InputError as error:
        message = str(error)
        assert message.startswith("fuzz: ")
        assert " - " in message
        assert message.isprintable()
        return False
    assert graph_file.loads(graph_file.dumps(graph), "again").fingerprint() == graph.fingerprint()
    return True


@given(documents())
def test_valid_files_load(doc):
    """What the documentation allows is read, whatever the order of the ops, and ops and edges are all there."""
    graph = graph_file.loads(json.dumps(doc).encode(), "fuzz")
    assert graph.names == tuple(op["name"] for op in doc["ops"])
    assert len(graph.src) == sum(len(op["inputs"]) for op in doc["ops"])
    given_times = sum(len(op.get("time_s") or ()) for op in doc["ops"])
    assert sum(not math.isnan(s) for row in graph.given_s.tolist() for s in row) == given_times
    assert outcome(json.dumps(doc).encode())


@given(edited(documents(), JUNK, [*OpRecord.__struct_fields__, "nonsense", "_x"]))
def test_edited_files(data):
    """A valid file with a few edits is read or refused."""
    outcome(data)


@given(torn(documents()))
def test_torn_files(data):
    """A valid file with bytes lost, doubled or replaced is read or refused."""
    outcome(data)


@given(st.binary(max_size=200))
def test_any_bytes(data):
    """Anything at all is refused: nobody meets a valid file by chance."""
    assert not outcome(data)


@given(st.one_of(st.binary(max_size=100), torn(documents())), st.integers(0, 200), st.binary(max_size=3))
def test_damaged_gzip(tmp_path_factory, content, at, noise):
    """Packed data with a few bytes replaced gives the content back or is refused."""
    path = tmp_path_factory.getbasetemp() / "fuzz.gz"
    packed = gzipped(content)
    path.write_bytes(packed[:at] + noise + packed[at + len(noise) :])
    try:
        found = read_bytes(path)
    except InputError:
        return
    assert found == content or not found.startswith(b"\x1f\x8b")
