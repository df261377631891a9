"""A batch of one's own: read from a .npz file without unpickling, checked, fed, and named in the page."""

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pesto as face
from pesto.cli.main import pesto
from pesto.core.costs.measured import Profile
from pesto.core.errors import InputError, PestoError, UsageError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.core.source import Source  # noqa: E402
from pesto.inputs import load as inputs  # noqa: E402
from pesto.tf import named_sources  # noqa: E402
from pesto.tf.run.run_options import RunOptions  # noqa: E402  # after the quiet load
from pesto.tf.run.runnable import UserBatchStep, use_batch  # noqa: E402

X, LABELS = np.full((4, 6), 0.25, np.float32), np.array([2, 0, 1, 2], np.int64)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A classifier of 3 classes whose batch of 4 is fed."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 6], name="in/x")
        labels = v1.placeholder(tf.int64, [4], name="labels")
        w = v1.get_variable("w", [6, 3], use_resource=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x @ w)
        loss = tf.reduce_mean(losses, name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    path = tmp_path / "step.pb"
    path.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return Source(file=path, fetch=("train", "loss"))


def saved(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "batch.npz"
    np.savez(path, **arrays)
    return path


def step(source: Source) -> Any:
    return named_sources.load_runnable(source)[1]


def test_a_file_is_fed_in_every_step_and_what_it_lacks_is_drawn(source: Source, tmp_path: Path) -> None:
    """Names are those of the feeds, with or without the number of their output."""
    own = use_batch(step(source), saved(tmp_path, **{"in/x": X, "labels:0": LABELS}))
    fed = own.feed(np.random.default_rng(0))
    assert np.array_equal(fed["in/x:0"], X) and np.array_equal(fed["labels:0"], LABELS) and len(fed) == 2
    assert isinstance(own, UserBatchStep) and all("batch.npz" in str(values) for values in own.feed_values)
    some = use_batch(step(source), {"labels": LABELS})
    rng = np.random.default_rng(0)
    one, two = some.feed(rng), some.feed(rng)
    assert np.array_equal(one["labels:0"], two["labels:0"]) and not np.array_equal(one["in/x:0"], two["in/x:0"])
    assert [values.file is None for values in some.feed_values] == [True, False]
    assert use_batch(own, None) is own


def test_a_run_says_what_was_fed(source: Source, tmp_path: Path) -> None:
    """In the page and in the JSON object: ranges with their reason, or the file; both runs saw the same."""
    graph, plan = tmp_path / "step.pb", tmp_path / "p.json"
    arguments = ["--graph", str(graph), "--fetch", "train", "--fetch", "loss"]
    found = face.solve(inputs.load_graph(source), cluster="cpux2", time_limit_s=0, solver="list")
    face.save_plan(found, plan)
    ran = inputs.run_plan(found, source, RunOptions(steps=1, devices="cpu"))
    classes = next(values for values in ran.feeds if values.name == "labels")
    assert (classes.low, classes.high) == (0, 2) and "classes" in classes.why and ran.as_planned
    batch = saved(tmp_path, **{"in/x": X, "labels": LABELS})
    done = CliRunner().invoke(
        pesto, ["run", str(plan), *arguments, "--steps", "1", "--devices", "cpu", "--feeds", str(batch)]
    )
    assert done.exit_code == 0, done.output
    assert done.output.count("batch.npz") == 2 and "labels: int64 [4]" in done.output
    done = CliRunner().invoke(pesto, ["run", str(plan), *arguments, "--steps", "1", "--devices", "cpu", "--json"])
    fed = {feed["name"]: feed for feed in json.loads(done.stdout)["feeds"]}
    assert fed["labels"]["low"] == 0 and fed["labels"]["high"] == 2 and fed["labels"]["file"] is None
    assert fed["in/x"]["whole_numbers"] is False


def test_a_profile_takes_arrays_from_python(source: Source) -> None:
    """And refuses those that do not fit."""
    graph, profile = face.profile(
        source.file, fetch=source.fetch, iterations=2, keep_disturbed=True, feeds={"in/x": X, "labels": LABELS}
    )
    assert isinstance(profile, Profile) and graph.ops == len(profile.seconds)
    with pytest.raises(InputError, match=r"labels is \[3\], the feed \[4\]"):
        face.profile(source.file, fetch=source.fetch, iterations=2, feeds={"labels": LABELS[:3]})


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": X}, r"no feed is named y - name arrays as the feeds are: in/x, labels"),
        (
            {"labels": LABELS.astype(np.int32)},
            r"labels is of int32, the feed of int64 - save it with \.astype\('int64'\)",
        ),
        ({"labels": LABELS[:3]}, r"labels is \[3\], the feed \[4\] - give it in this shape"),
        ({"labels": np.array([None] * 4)}, "holds Python objects, which are not loaded"),
        ({}, "there is no array"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(
    arrays: dict[str, Any], said: str, source: Source, tmp_path: Path
) -> None:
    """With the feed, what it wants, and what to do."""
    with pytest.raises(InputError, match=said):
        use_batch(step(source), saved(tmp_path, **arrays))


class Executed:
    """Unpickling it would leave a file behind."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def __reduce__(self) -> Any:
        return (Path.touch, (self.where,))


def test_nothing_is_unpickled_and_damage_is_no_bug(source: Source, tmp_path: Path) -> None:
    """Pickles, other files, truncated ones, and headers that promise more than memory holds."""
    trap, made = tmp_path / "trap", step(source)
    (tmp_path / "batch.npz").write_bytes(pickle.dumps(Executed(trap)))
    with pytest.raises(InputError, match=r"not a whole \.npz file"):
        use_batch(made, tmp_path / "batch.npz")
    with pytest.raises(InputError, match="Python objects"):
        use_batch(made, saved(tmp_path, labels=np.array([Executed(trap)] * 4)))
    assert not trap.exists()
    whole = saved(tmp_path, **{"in/x": X, "labels": LABELS}).read_bytes()
    for size in range(0, len(whole), 7):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(PestoError):
            use_batch(made, tmp_path / "cut.npz")
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        (tmp_path / "cut.npz").write_bytes(damaged)
        try:
            use_batch(made, tmp_path / "cut.npz")
        except PestoError:
            continue
    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '<i8', 'fortran_order': False, 'shape': (9223372036854775807,), }".ljust(117)
        + b"\n"
    )
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("labels.npy", header)
    with pytest.raises(InputError, match="the feed"):
        use_batch(made, tmp_path / "huge.npz")


def test_emulations_take_no_batch(source: Source, tmp_path: Path) -> None:
    """They compute no values."""
    plan = tmp_path / "p.json"
    face.save_plan(face.solve(inputs.load_graph(source), cluster="cpux2", time_limit_s=0, solver="list"), plan)
    done = CliRunner().invoke(pesto, ["run", str(plan), "--emulate", "--feeds", str(saved(tmp_path, labels=LABELS))])
    assert isinstance(done.exception, UsageError) and "--feeds is for a run" in str(done.exception)
