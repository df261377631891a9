"""Batch size and shapes of feeds in files of plans and splits: taken where none is given, and named otherwise."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pesto as library
from pesto.core.errors import Exit, UsageError
from pesto.core.files.json import short_fingerprints
from pesto.core.source import Source, file_source, read_source
from pesto.inputs.load import recorded_source
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs.jobs.checks import named_source
from pesto.verbs.jobs.request import JobSource

tf = load_tensorflow()


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
    assert recorded_source(given, read_source(made), 6).batch == batch


@pytest.fixture
def without_rank(tmp_path):
    """A GraphDef whose feed has no rank, and the words that name its step."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        weights = v1.get_variable("w", [4, 2], initializer=v1.zeros_initializer(), use_resource=True)
        read = weights.read_value()
        rows = tf.reshape(v1.placeholder(tf.float32, name="x"), [-1, 4])
        with tf.control_dependencies([tf.matmul(rows, read)]):
            weights.assign_sub(read, name="end")
    (tmp_path / "step.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return ("--graph", tmp_path / "step.pb", "--fetch", "end")


def test_a_plan_has_the_shapes_of_its_feeds(pesto, tmp_path, without_rank):
    """A plan made with --shape is checked, shown, applied and run without it; with another shape it is refused."""
    plan = tmp_path / "plan.json"
    solve = ("solve", *without_rank, "--time-limit", 0, "--solver", "list", "--no-search", "-q", "-o", plan)
    code, _, err = pesto(*solve)
    assert code == Exit.INPUT and "give its shape (shape x=16,40)" in err
    assert pesto(*solve, "--shape", "x=6,4")[0] == Exit.OK
    assert library.load_plan(plan).feed_shapes == ("x=6,4",)
    for words in (
        ("check", plan), ("report", plan, "-o", tmp_path / "r.html"), ("run", plan, "--steps", 1, "--devices", "cpu"),
        ("apply", plan, "--device", "cpu", "-o", tmp_path / "placed.pb"),
    ):  # fmt: skip
        code, _, err = pesto(*words, *without_rank)
        assert code == Exit.OK, (words, err)
    assert pesto("check", plan, *without_rank, "--shape", "x=8,4")[0] == Exit.MISMATCH
    code, _, err = pesto("check", plan, *without_rank, "--shape", "x=7,3")
    assert code == Exit.INPUT and "x=7,3 do not fit the graph" in err


def test_a_split_has_the_shapes_of_its_feeds(pesto, tmp_path, without_rank):
    """A split made with --shape is checked without it, and so is a plan of a graph file that was made with it."""
    split, graph = tmp_path / "split.json", tmp_path / "graph.json"
    assert pesto("split", *without_rank, "--shape", "x=6,4", "--workers", 2, "-q", "-o", split)[0] == Exit.OK
    code, _, err = pesto("check", split, *without_rank)
    assert code == Exit.OK, err
    assert pesto("import", *without_rank, "--shape", "x=6,4", "-o", graph)[0] == Exit.OK
    assert library.load_graph(graph).feed_shapes == ("x=6,4",)


def test_recorded_shapes_are_of_feeds_that_have_none_given():
    """One that is given wins, by feed; a built-in model and a graph file take none."""
    recorded = file_source("a.pb"), None, ("x=6,4", "y=")
    named = recorded_source(Source(file=Path("a.pb"), shape=("x=8,4",)), *recorded)
    assert named.shapes == {"x": (8, 4), "y": ()}
    for other in (Source(model="nmt"), Source(file=Path("a.json"))):
        assert recorded_source(other, *recorded).shape == ()


def test_a_job_has_the_shapes_of_its_feeds():
    """A request names them as the verb does, and has them checked."""
    source = JobSource(blob="0" * 64, name="step.pb", shape=("x=6,4",))
    assert named_source(source).shapes == {"x": (6, 4)}
    with pytest.raises(UsageError, match="shapes go with"):
        named_source(JobSource(model="nmt", shape=("x=6,4",)))


def test_fingerprints_that_begin_alike_are_whole():
    """Two short fingerprints never read alike unless the whole ones are."""
    one, other = "0123456789abcdef", "0123456789abcdee"
    assert short_fingerprints(one, other) == (one, other)
    assert short_fingerprints(one, "f" + other) == ("0123456789ab", "f0123456789a")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "kind"), [(16, "plan"), (2048, "split")])
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
