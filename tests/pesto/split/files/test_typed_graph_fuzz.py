"""Files of shapes that are valid, nearly valid or torn: a step that can be cut or a PestoError, and nothing else."""

import json
import math
from importlib import resources

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nearly_valid import edited, torn, without_warnings

from pesto.core.errors import InputError, PestoError
from pesto.split.files.split_check import verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.files.typed_graph_file import dumps_typed_graph, loads_typed_graph
from pesto.split.program import Rules
from pesto.split.split_search import divide

VALIDATOR = jsonschema.Draft202012Validator(
    json.loads(resources.files("pesto").joinpath("schema/shaped-1.json").read_text())
)
COLUMNS = (
    "signature_of", "src", "output", "dst", "input", "control_src", "control_dst", "handle", "tie", "use_op",
    "use_input", "use_variable", "once",
)  # fmt: skip
TYPES = (
    "AddN", "MatMul", "Sum", "Reshape", "Concat", "ConcatV2", "Conv2D", "Split", "Transpose", "Softmax", "GatherV2",
    "ReadVariableOp", "ResourceApplyMomentum", "NoOp", "VarHandleOp", "Nobody's", "RandomUniform", "Shape", "Pad",
)  # fmt: skip
EXTENTS = st.lists(st.sampled_from([0, 1, 2, 4, 6, 64]), max_size=4)
TEXTS = st.text(alphabet='abé/0 "\\', min_size=1, max_size=4)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1e-30, 1e300]) | st.sampled_from(["inf", "-inf"]).map(lambda w: {"float": w})
PLAIN = st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOATS
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["N", "T", "axis", "data_format", "é", "strides", "transpose_a"]),
    PLAIN | st.text(max_size=3) | st.lists(st.integers(0, 3), max_size=4) | st.lists(st.lists(PLAIN, max_size=2)),
    max_size=3,
)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.just("\x00"), st.just([]),
    st.just({}), st.sampled_from(["MatMul", "a" * 5000, 2**63, 2**36, 2**40, -1, 1e300, [[1]], {"float": "nan"}]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Thousands of warnings about unknown keys are made but not kept."""
    with without_warnings():
        yield


def nested(draw, shape):
    """A value as a shape says."""
    return [nested(draw, shape[1:]) for _ in range(shape[0])] if shape else draw(PLAIN)


@st.composite
def documents(draw):
    """A valid file: a step of random kinds of ops, each fed by those before it."""
    names = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
    kinds, made = [], []
    edges = {key: [] for key in ("src", "output", "dst", "input")}
    for op in range(len(names)):
        op_type = draw(st.sampled_from(TYPES))
        bare = op_type in ("NoOp", "VarHandleOp")
        fed = draw(st.lists(st.sampled_from(made), max_size=3)) if made and not bare else []
        inputs = []
        for at, (src, output, shape, dtype) in enumerate(fed):
            inputs.append({"shape": shape, "dtype": dtype})
            if shape is not None and math.prod(e or 1 for e in shape) <= 8 and draw(st.booleans()):
                inputs[-1]["value"] = nested(draw, shape)
            for key, value in zip(edges, (src, output, op, at), strict=True):
                edges[key].append(value)
        outputs = []
        for output in range(0 if bare else draw(st.integers(0, 2))):
            shape, dtype = draw(st.none() | EXTENTS), draw(st.sampled_from(["float32", "int8", "string", "float16"]))
            outputs.append({"shape": shape, "dtype": dtype})
            made.append((op, output, shape, dtype))
        kinds.append({"type": op_type, "attributes": draw(ATTRIBUTES), "inputs": inputs, "outputs": outputs})
    once = draw(st.lists(st.integers(0, len(names) - 1), max_size=2, unique=True))
    ops = {"name": names, "kind": list(range(len(names))), "once": sorted(once)}
    waits = draw(st.lists(st.tuples(*[st.integers(0, len(names) - 1)] * 2), max_size=2))
    waits = [sorted(pair) for pair in waits if pair[0] != pair[1]]
    controls = {"src": [a for a, _ in waits], "dst": [b for _, b in waits]}
    return {
        "format": "pesto-shaped", "format_version": 1, "source": draw(TEXTS), "fingerprint": draw(TEXTS),
        "kinds": kinds, "ops": ops, "edges": edges, "controls": controls,
    }  # fmt: skip


def outcome(data):
    """The step, which comes back as it was written; None where the file is refused, with a place and a remedy."""
    try:
        found = loads_typed_graph(data, "fuzz")
    except InputError as error:
        message = str(error)
        assert message.startswith("fuzz: ") and " - " in message and message.isprintable()
        return None
    again = loads_typed_graph(dumps_typed_graph(found), "again")
    assert dumps_typed_graph(again) == dumps_typed_graph(found)
    assert repr(again.signatures) == repr(found.signatures) and again.names == found.names
    assert all(np.array_equal(getattr(again, name), getattr(found, name)) for name in COLUMNS)
    return found


def cut(found):
    """Whether the step can be cut in two; then its file is confirmed."""
    try:
        split = divide(found, (2,), "greedy", Rules(), seconds=5)
    except PestoError as error:
        assert "\n" not in str(error)
        return
    verify_split(loads_split(dumps_split(found, split, time_limit_s=5), "split"), found)


@given(documents())
def test_valid_files_load(doc):
    """What the schema allows and is whole is read; what is read can be cut, or it is said why not."""
    VALIDATOR.validate(doc)
    found = outcome(json.dumps(doc).encode())
    assert found is not None and found.names == tuple(doc["ops"]["name"])
    assert len(found.src) == sum(len(kind["inputs"]) for kind in doc["kinds"])
    VALIDATOR.validate(json.loads(dumps_typed_graph(found)))
    cut(found)


@given(edited(documents(), JUNK, ["name", "src", "kinds", "shape", "nonsense", "_x"]))
def test_edited_files(data):
    """A valid file with a few edits is read or refused, and what is read can be cut, or it is said why not."""
    found = outcome(data)
    if found is not None:
        cut(found)


@given(torn(documents()))
def test_torn_files(data):
    """A valid file with bytes lost, doubled or replaced is read or refused."""
    outcome(data)
