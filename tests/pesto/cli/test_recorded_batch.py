"""The batch size that a plan's or split's file has: taken where none is given, and named where another is."""

import re
import shlex
import sys
from types import ModuleType

import pytest

import pesto as library
from pesto.errors import Exit
from pesto.files.labels import apart
from pesto.inputs.load import source_of
from pesto.source import Source
from pesto.tf.start import tensorflow

tf = tensorflow()


def build(width=16):
    """A Keras model without a batch size, of layers of that width."""
    keras = tf.keras
    keras.backend.clear_session()  # or its layers have other names each time
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(width), keras.layers.Dense(width), keras.layers.Dense(2)]
    )
    model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    """Commands may name `recorded_batch_model:build`."""
    module = ModuleType("recorded_batch_model")
    module.build = build
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.slow
def test_files_give_the_batch_of_their_step(pesto, tmp_path):
    """A plan and a split of a model with batch 6 are checked, run and applied without it, and refused with another."""
    step = ("--function", "recorded_batch_model:build")
    plan, split = tmp_path / "plan.json", tmp_path / "split.json"
    solved = pesto("solve", *step, "--batch", 6, "--time-limit", 0, "--solver", "list", "-q", "-o", plan)
    assert solved[0] == Exit.OK, solved[2]
    assert library.load_plan(plan).provenance.graph_batch == 6
    assert "batch open, planned at 6;" in " ".join(solved[1].split())
    assert pesto("split", *step, "--batch", 6, "--workers", 2, "-o", split)[0] == Exit.OK
    for words in (
        ("check", plan), ("check", split), ("run", split, "--steps", 1, "--devices", "cpu"),
        ("run", plan, "--steps", 1, "--devices", "cpu"), ("apply", split, "--device", "cpu", "-o", tmp_path / "p.pb"),
    ):  # fmt: skip
        code, _, err = pesto(*words, *step)
        assert code == Exit.OK, (words, err)
    for words in (("check", plan), ("check", split), ("run", split), ("run", plan)):
        code, _, err = pesto(*words, *step, "--batch", 4)
        assert code == Exit.MISMATCH and ("batch=6" in err or "--batch 6" in err) and "batch=4" in err, (words, err)


@pytest.mark.parametrize(
    ("made", "given", "batch"),
    [
        ("function a:b", Source(function="a:b"), 6),
        ("function a:b", Source(function="a:b", batch=4), 4),
        ("model rnnlm tiny batch 8", Source(model="rnnlm", variant="tiny"), 8),
        ("model rnnlm tiny batch 8", Source(model="nmt"), 6),
        ("model rnnlm tiny batch 8", Source(), 8),
        ("function a:b batch 8, 2 micro-batches", Source(function="a:b"), 8),
    ],
)
def test_a_given_batch_wins(made, given, batch):
    """The file's own size, or the model's that it names, stands in for one that is left out."""
    assert source_of((made, 6), given, "the step", "then").batch == batch


def test_fingerprints_that_begin_alike_are_whole():
    """Two short fingerprints never read alike unless the whole ones are."""
    one, other = "0123456789abcdef", "0123456789abcdee"
    assert apart(one, other) == (one, other)
    assert apart(one, "f" + other) == ("0123456789ab", "f0123456789a")


@pytest.mark.parametrize(("width", "kind"), [pytest.param(16, "plan", marks=pytest.mark.slow), (2048, "split")])
def test_the_next_command_of_a_choice_works(pesto, tmp_path, monkeypatch, width, kind):
    """The last command on the page of `solve --split` names the step as its solve did, for a plan and for a split."""
    monkeypatch.setattr(sys.modules["recorded_batch_model"], "build", lambda: build(width))
    step, out = ("--function", "recorded_batch_model:build"), tmp_path / "out.json"
    words = ("--batch", width, "--split", "2", "--time-limit", 1, "--solver", "list", "-q", "-o", out)
    code, page, err = pesto("solve", *step, *words)
    assert code == Exit.OK, err
    assert f'"pesto-{kind}"' in out.read_text()
    following = re.search(r"^next +((?:.*\\\n)*.*)$", page, re.MULTILINE)
    assert following is not None
    monkeypatch.chdir(tmp_path)
    code, _, err = pesto(*shlex.split(following[1].replace("\\\n", " "))[1:])
    assert code == Exit.OK, err
