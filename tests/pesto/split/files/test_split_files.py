"""Files of shapes and of splits: what is written is read, splits need no TensorFlow, and lies are found out."""

import gzip
import json
from importlib import resources

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pesto.cli.main import pesto
from pesto.errors import Exit, InputError, MismatchError, PestoError, VerificationError
from pesto.source import Source
from pesto.split.dividing import divide
from pesto.split.files.checked import certified, verified
from pesto.split.files.shaped_file import dumps_shaped, load_shaped, loads_shaped, save_shaped
from pesto.split.files.split_file import division_of, dumps_split, load_split, loads_split, save_split
from pesto.split.program import Rules
from pesto.tf import named

SCHEMA = {
    name: json.loads(resources.files("pesto").joinpath(f"schema/{name}-1.json").read_text())
    for name in ("shaped", "split")
}


@pytest.fixture(scope="module")
def shaped():
    """A step."""
    return named.shaped(Source(model="rnnlm", variant="tiny"))[1]


@pytest.fixture(scope="module")
def split(shaped):
    """Cut in two and two."""
    return divide(shaped, (2, 2), "exact", Rules(), seconds=60)


@pytest.fixture(scope="module")
def text(shaped, split):
    """Its file."""
    return dumps_split(shaped, split, Rules(), time_limit_s=60.0)


def run(*words):
    """The command line, in this process."""
    return CliRunner().invoke(pesto, [str(word) for word in words])


def changed(text, **keys):
    """A file with other values."""
    return json.dumps({**json.loads(text), **keys}).encode()


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_shapes_come_back_as_they_were(shaped, tmp_path, name):
    """Every column, constant and attribute; and what is cut from the file is what is cut from the step."""
    save_shaped(shaped, tmp_path / name)
    again = load_shaped(tmp_path / name)
    assert dumps_shaped(again) == dumps_shaped(shaped)
    assert again.signatures == shaped.signatures and again.names == shaped.names
    assert (
        divide(again, (2,), "greedy", Rules(), seconds=60).division
        == divide(shaped, (2,), "greedy", Rules(), seconds=60).division
    )


def test_files_are_as_their_schemas_say(shaped, text):
    """Of shapes and of splits."""
    jsonschema.Draft202012Validator(SCHEMA["shaped"]).validate(json.loads(dumps_shaped(shaped)))
    jsonschema.Draft202012Validator(SCHEMA["split"]).validate(json.loads(text))


def test_a_split_comes_back_as_it_was(shaped, split, text, tmp_path):
    """The division, and what is known of it; the same split gives the same bytes."""
    save_split(shaped, split, Rules(), tmp_path / "split.json.gz", time_limit_s=60.0)
    found = load_split(tmp_path / "split.json.gz")
    assert division_of(found, shaped) == split.division == verified(found, shaped)
    assert (found.bytes, found.bound_bytes) == (split.moved_bytes, split.bound_bytes)
    assert gzip.decompress((tmp_path / "split.json.gz").read_bytes()) == text


def test_a_bound_is_found_once_more(shaped, text):
    """And one that is too high is refused."""
    found = loads_split(text, "split")
    again = certified(found, shaped, seconds=60)
    assert again.confirmed and again.found[-1] == found.bound_bytes
    cuts = json.loads(text)["cuts"]
    for cut in cuts:
        cut.update(bytes=cut["bytes"] + 8, bound_bytes=cut["bound_bytes"] + 8)
    with pytest.raises(VerificationError, match="can be made to send"):
        certified(loads_split(changed(text, cuts=cuts), "split"), shaped, seconds=60)


def test_bytes_that_were_changed_are_found(shaped, text):
    """Of what is sent, and of what a worker holds."""
    said = json.loads(text)
    for key in ("bytes", "params_per_worker_bytes"):
        with pytest.raises(VerificationError, match="and there are"):
            verified(loads_split(changed(text, **{key: said[key] + 4}), "split"), shaped)


def test_layouts_that_were_changed_are_found(shaped, text):
    """Whichever distinct layout, and whichever way of an op, is another: nothing of that passes as the same split."""
    said = json.loads(text)
    for at, layouts in enumerate(said["layouts"]):
        other = [1 - layouts[0] if layouts[0] in (0, 1) else 0, *layouts[1:]]
        rows = [*said["layouts"][:at], other, *said["layouts"][at + 1 :]]
        with pytest.raises((VerificationError, InputError)):
            verified(loads_split(changed(text, layouts=rows), "split"), shaped)
    for at in range(len(said["ways"])):
        rows = [*said["ways"][:at], ["nothing", *said["ways"][at][1:]], *said["ways"][at + 1 :]]
        with pytest.raises((VerificationError, InputError)):
            verified(loads_split(changed(text, ways=rows), "split"), shaped)


def test_a_split_of_another_step(shaped, text):
    """Is known by its fingerprint."""
    with pytest.raises(MismatchError):
        verified(loads_split(changed(text, fingerprint="0" * 64), "split"), shaped)


@given(st.integers(0, 2**20), st.integers(0, 255), st.booleans())
def test_broken_files_are_refused_in_one_line(shaped, text, place, byte, of_shapes):
    """A byte that is another: refused with an error of the project, or still a file."""
    data = bytearray(dumps_shaped(shaped) if of_shapes else text)
    data[place % len(data)] = byte
    try:
        loads_shaped(bytes(data), "file") if of_shapes else verified(loads_split(bytes(data), "file"), shaped)
    except PestoError as error:
        assert "\n" not in str(error)


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
