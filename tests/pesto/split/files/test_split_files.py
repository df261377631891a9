"""Files of shapes and of splits: what is written is read, splits need no TensorFlow, and lies are found out."""

import gzip
import json
from dataclasses import replace
from importlib import resources
from itertools import product

import jsonschema
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pesto.cli.main import pesto
from pesto.core.errors import Exit, InputError, MismatchError, PestoError, VerificationError
from pesto.core.source import Source
from pesto.split.division import moved_bytes, parameter_bytes
from pesto.split.files.recount import recount_bytes, recount_parameters, strategy_fault
from pesto.split.files.split_check import certify_bounds, verify_split
from pesto.split.files.split_file import division_of, dumps_split, load_split, loads_split, save_split
from pesto.split.files.typed_graph_file import dumps_typed_graph, load_typed_graph, loads_typed_graph, save_typed_graph
from pesto.split.geometry import WHOLE
from pesto.split.program import Rules, build_program
from pesto.split.split_search import divide
from pesto.split.typed_graph import Operand, Signature, TypedGraph
from pesto.tf import named_sources
from pesto.tf.models import FAMILIES

SCHEMA = {
    name: json.loads(resources.files("pesto").joinpath(f"schema/{name}-1.json").read_text())
    for name in ("shaped", "split")
}


@pytest.fixture(scope="module")
def shaped():
    """A step."""
    return named_sources.load_typed(Source(model="rnnlm", variant="tiny"))[1]


@pytest.fixture(scope="module")
def split(shaped):
    """Cut in two and two."""
    return divide(shaped, (2, 2), "exact", Rules(), seconds=60)


@pytest.fixture(scope="module")
def text(shaped, split):
    """Its file."""
    return dumps_split(shaped, split, time_limit_s=60.0)


def run(*words):
    """The command line, in this process."""
    return CliRunner().invoke(pesto, [str(word) for word in words])


def changed(text, **keys):
    """A file with other values."""
    return json.dumps({**json.loads(text), **keys}).encode()


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_shapes_come_back_as_they_were(shaped, tmp_path, name):
    """Every column, constant and attribute; and what is cut from the file is what is cut from the step."""
    save_typed_graph(shaped, tmp_path / name)
    again = load_typed_graph(tmp_path / name)
    assert dumps_typed_graph(again) == dumps_typed_graph(shaped)
    assert again.signatures == shaped.signatures and again.names == shaped.names
    assert (
        divide(again, (2,), "greedy", Rules(), seconds=60).division
        == divide(shaped, (2,), "greedy", Rules(), seconds=60).division
    )


def test_files_are_as_their_schemas_say(shaped, text):
    """Of shapes and of splits."""
    jsonschema.Draft202012Validator(SCHEMA["shaped"]).validate(json.loads(dumps_typed_graph(shaped)))
    jsonschema.Draft202012Validator(SCHEMA["split"]).validate(json.loads(text))


def test_a_split_comes_back_as_it_was(shaped, split, text, tmp_path):
    """The division, and what is known of it; the same split gives the same bytes."""
    save_split(shaped, split, tmp_path / "split.json.gz", time_limit_s=60.0)
    found = load_split(tmp_path / "split.json.gz")
    assert division_of(found, shaped) == split.division == verify_split(found, shaped)
    assert (found.bytes, found.bound_bytes) == (split.moved_bytes, split.bound_bytes)
    assert gzip.decompress((tmp_path / "split.json.gz").read_bytes()) == text


def test_a_bound_is_found_once_more(shaped, text):
    """And one that is too high is refused."""
    found = loads_split(text, "split")
    again = certify_bounds(found, shaped, seconds=60)
    assert again.confirmed and again.recomputed[-1] == found.bound_bytes
    cuts = json.loads(text)["cuts"]
    for cut in cuts:
        cut.update(bytes=cut["bytes"] + 8, bound_bytes=cut["bound_bytes"] + 8)
    with pytest.raises(VerificationError, match="can be made to send"):
        certify_bounds(loads_split(changed(text, cuts=cuts), "split"), shaped, seconds=60)


def test_bytes_that_were_changed_are_found(shaped, text):
    """Of what is sent, and of what a worker holds."""
    said = json.loads(text)
    for key in ("bytes", "params_per_worker_bytes"):
        with pytest.raises(VerificationError, match="and there are"):
            verify_split(loads_split(changed(text, **{key: said[key] + 4}), "split"), shaped)


def test_a_bound_that_is_not_that_of_the_last_cut_is_found(shaped, text):
    """Also a lower one, which would hold."""
    forged = changed(text, bound_bytes=json.loads(text)["bound_bytes"] - 4)
    with pytest.raises(VerificationError, match="its bound is not that of its last cut"):
        verify_split(loads_split(forged, "split"), shaped)


def test_bytes_of_a_cut_that_were_changed_are_found(shaped, text):
    """Whichever cut is said to send less than it does, by its number; the last counts what the split sends."""
    said = json.loads(text)["cuts"]
    for at, cut in enumerate(said):
        less = {**cut, "bytes": cut["bytes"] - 4, "bound_bytes": cut["bytes"] - 4}
        cuts = [*said[:at], less, *said[at + 1 :]]
        forged = changed(text, cuts=cuts, status="feasible", bound_bytes=cuts[-1]["bound_bytes"])
        with pytest.raises(VerificationError, match=f"cut {at + 1} counts {cut['bytes'] - 4} bytes, and "):
            verify_split(loads_split(forged, "split"), shaped)


def test_a_limit_below_nothing_is_refused(text):
    with pytest.raises(InputError, match="memory_bytes"):
        loads_split(changed(text, rules={"memory_bytes": -5}), "split")


def test_layouts_that_were_changed_are_found(shaped, text):
    """Whichever distinct layout, and whichever way of an op, is another: nothing of that passes as the same split."""
    said = json.loads(text)
    for at, layouts in enumerate(said["layouts"]):
        other = [1 - layouts[0] if layouts[0] in (0, 1) else 0, *layouts[1:]]
        rows = [*said["layouts"][:at], other, *said["layouts"][at + 1 :]]
        with pytest.raises((VerificationError, InputError)):
            verify_split(loads_split(changed(text, layouts=rows), "split"), shaped)
    for at in range(len(said["ways"])):
        rows = [*said["ways"][:at], ["nothing", *said["ways"][at][1:]], *said["ways"][at + 1 :]]
        with pytest.raises((VerificationError, InputError)):
            verify_split(loads_split(changed(text, ways=rows), "split"), shaped)


def test_a_split_of_another_step(shaped, text):
    """Is known by its fingerprint."""
    with pytest.raises(MismatchError):
        verify_split(loads_split(changed(text, fingerprint="0" * 64), "split"), shaped)


@given(st.integers(0, 2**20), st.integers(0, 255), st.booleans())
def test_broken_files_are_refused_in_one_line(shaped, text, place, byte, of_shapes):
    """A byte that is another: refused with an error of the project, or still a file."""
    data = bytearray(dumps_typed_graph(shaped) if of_shapes else text)
    data[place % len(data)] = byte
    try:
        loads_typed_graph(bytes(data), "file") if of_shapes else verify_split(loads_split(bytes(data), "file"), shaped)
    except PestoError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
def test_the_bound_of_all_cuts_at_once_is_found_once_more(shaped, split, text):
    """By messages, in whole numbers; one that is above what they find a way to send is refused."""
    cut = {"status": "feasible", "bytes": split.moved_bytes, "bound_bytes": 1}
    said = {"status": "feasible", "cuts": [cut], "bound_bytes": 1}
    again = certify_bounds(loads_split(changed(text, **said), "split"), shaped, seconds=60)
    assert again.confirmed and 1 < again.recomputed[-1] <= split.moved_bytes
    assert not any("HiGHS" in word for word in again.rests_on)
    higher = replace(again, claimed=(msgspec.structs.replace(again.claimed[0], bound_bytes=again.recomputed[-1] + 1),))
    assert not higher.confirmed
    with pytest.raises(VerificationError, match="can be made to send"):
        certify_bounds(
            loads_split(changed(text, **said | {"bound_bytes": split.moved_bytes}), "split"), shaped, seconds=60
        )


def test_ways_that_are_none_are_found(shaped, split):
    """A way as the search makes it is one; with any layout of an input or output that is another it is none."""
    tried = 0
    for signature, way in {(shaped.signature(op), way) for op, way in enumerate(split.division.strategies)}:
        once = "once" in way.names
        assert strategy_fault(signature, way, (2, 2), once=once) == ""
        assert once or strategy_fault(signature, way, (2, 2), once=True)
        for at, (name, layouts) in product(
            range(2), [*(("needs", n) for n in way.needs), *(("gives", g) for g in way.gives)]
        ):
            rows = getattr(way, name)
            place = rows.index(layouts)
            other = (*layouts[:at], 0 if layouts[at] else WHOLE, *layouts[at + 1 :])
            wrong = replace(way, **{name: (*rows[:place], other, *rows[place + 1 :])})
            assert strategy_fault(signature, wrong, (2, 2), once=once), (signature, wrong)
            tried += 1
    assert tried > 500


def test_bytes_are_counted_alike_by_two_counts(shaped):
    """That of the search, by boxes in numpy, and that of the check, by ranges; for divisions that are far from good."""
    rng = np.random.default_rng(5)
    for factors in ((2, 3), (4,), (2, 2, 2)):
        made = build_program(shaped, None, factors, Rules(replicate=True))
        for _ in range(3):
            labels = [int(rng.integers(many)) for many in made.problem.labels]
            division = made.division(labels)
            assert recount_bytes(shaped, division) == moved_bytes(shaped, division) > 0
            assert recount_parameters(shaped, division) == parameter_bytes(shaped, division).sum()


@pytest.mark.parametrize(
    ("dtype", "op_type", "told"),
    [
        ("float16", "Sum", "order of sums"),
        ("int8", "Sum", ""),
        ("float32", "Sum", ""),
    ],
)
def test_sums_of_few_bits_are_told(dtype, op_type, told):
    """Parts of halves are added up in another order."""
    given = Signature("Placeholder", (), (), (((64, 64), dtype),))
    axes = Operand((2,), "int32", (0, 1))
    reduced = Signature(op_type, (), (Operand((64, 64), dtype), axes), (((), dtype),))
    const = Signature("Const", (), (), (((2,), "int32"),))
    none = np.zeros(0, dtype=np.int64)
    step = TypedGraph(
        names=("x", "axes", "y"), signatures=(given, const, reduced), signature_of=np.arange(3), src=np.array([0, 1]),
        output=np.zeros(2, dtype=int), dst=np.array([2, 2]), input=np.arange(2), control_src=none, control_dst=none,
        handle=none, tie=none, use_op=none, use_input=none, use_variable=none, once=np.zeros(3, dtype=bool),
        source="a sum", fingerprint="",
    )  # fmt: skip
    split = divide(step, (2,), "exact", Rules(), seconds=10)
    notes = loads_split(dumps_split(step, split, time_limit_s=10), "split").notes
    assert len(notes) == bool(told) and all(told in note for note in notes)


def test_more_bytes_than_can_be_counted():
    """A step whose tensors are too large for so many workers is refused; with fewer it is cut."""
    extent, layers = 2**17, 400
    tensor = {"shape": [extent, extent], "dtype": "float64"}
    tails = [op for op in range(layers) for _ in range(2)]
    doc = {
        "format": "pesto-shaped", "format_version": 1, "fingerprint": "",
        "kinds": [
            {"type": "Placeholder", "outputs": [tensor]},
            {"type": "MatMul", "inputs": [tensor, tensor], "outputs": [tensor]},
        ],
        "ops": {"name": [f"o{op}" for op in range(layers + 1)], "kind": [0, *[1] * layers]},
        "edges": {
            "src": tails, "output": [0] * len(tails), "dst": [op + 1 for op in tails], "input": [0, 1] * layers,
        },
    }  # fmt: skip
    step = loads_typed_graph(json.dumps(doc).encode(), "step")
    with pytest.raises(InputError, match="give fewer workers"):
        divide(step, (1024,), "greedy", Rules(), seconds=10)
    assert divide(step, (2,), "greedy", Rules(), seconds=10).moved_bytes > 2**40


@pytest.mark.slow
@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_every_family_comes_back(family):
    """Shapes of all built-in families, and their splits, are read as they were written, and confirmed."""
    step = named_sources.load_typed(Source(model=family, variant="tiny"))[1]
    again = loads_typed_graph(dumps_typed_graph(step), "step")
    assert again.signatures == step.signatures and dumps_typed_graph(again) == dumps_typed_graph(step)
    split = divide(again, (2, 2), "greedy", Rules(), seconds=60)
    text = dumps_split(again, split, time_limit_s=60.0)
    assert verify_split(loads_split(text, "split"), step) == split.division


def test_the_verbs(tmp_path):
    """Shapes written, split without TensorFlow, checked; tampering ends with 6, another step with 9."""
    shapes, out, other = tmp_path / "step.shaped.json", tmp_path / "split.json", tmp_path / "other.json"
    words = ["--model", "rnnlm", "--variant", "tiny"]
    assert run("import", *words, "--shapes", "-o", shapes).exit_code == 0
    assert run("split", shapes, "--workers", "2", "--method", "greedy", "-o", out).exit_code == 0
    assert run("check", out, "--graph", shapes).exit_code == 0
    found = json.loads(run("check", out, "--json").stdout)
    assert found["valid"] and found["factors"] == [2]
    said = json.loads(out.read_text())
    other.write_text(json.dumps({**said, "bytes": said["bytes"] + 1}))
    assert run("check", other).exception.exit_code == Exit.VERIFICATION
    assert run("import", "--model", "nmt", "--variant", "tiny", "--shapes", "-o", shapes).exit_code == 0
    assert run("check", out, "--graph", shapes).exception.exit_code == Exit.MISMATCH
    assert "has no shapes" in str(run("split", "tests/data/names.graph.json", "--workers", "2").exception)


@pytest.mark.parametrize("workers", ["0", "3x", "1e9", "1", "2000", "x2", "-2", ""])
def test_workers_that_are_none(workers):
    """Refused before anything is read."""
    done = run("split", "--model", "rnnlm", "--variant", "tiny", "--workers", workers)
    assert done.exception.exit_code == Exit.USAGE
