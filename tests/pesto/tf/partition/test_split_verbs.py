"""pesto apply and pesto run of a split: the graph that is written, the comparison, and wrong inputs."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import click
import pytest

from pesto.cli.verbs.plans import run as run_split
from pesto.core.errors import Exit, VerificationError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.partition.partition_run import PartitionRunResult  # noqa: E402  # after the quiet load


def small(folder):
    """A GraphDef whose product is worth cutting."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [32, 48], name="x")
        w = v1.get_variable("w", [48, 48], use_resource=True)
        loss = tf.reduce_mean(tf.tanh(x @ w) ** 2, name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    file = folder / "step.pb"
    file.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return "--graph", file, "--fetch", "train", "--fetch", "loss"


def test_a_split_is_written_and_run(pesto, tmp_path):
    """The file becomes a graph on its devices; its steps are compared; what does not go with it is refused."""
    step, split, out = small(tmp_path), tmp_path / "split.json", tmp_path / "parts.pb"
    assert pesto("split", *step, "--workers", "2x2", "-o", split)[0] == Exit.OK
    code, said, err = pesto("run", split, *step, "--steps", "2", "--devices", "cpu", "--json")
    assert code == Exit.OK, err
    ran = json.loads(said)
    assert ran["as_whole"] and ran["losses"] == ["loss:0"] and ran["variables"] == 1 and ran["variables_share"] == 0.25
    assert "variables" in pesto("run", split, *step, "--steps", "1", "--devices", "cpu")[1]
    pins = [word for k in range(4) for word in ("--device", f"worker:{k}=/job:worker/task:{k}/device:CPU:0")]
    code, said, err = pesto("apply", split, *step, "--out", out, *pins, "--device", "host=/job:worker/task:0", "--json")
    assert code == Exit.OK, err
    written = json.loads(said)
    found = v1.GraphDef.FromString(out.read_bytes())
    assert len(found.node) == written["nodes"]
    assert {node.device for node in found.node} == {
        "/job:worker/task:0", *(f"/job:worker/task:{k}/device:CPU:0" for k in range(4))
    }  # fmt: skip
    (variable,) = written["variables"]
    assert (variable["name"], len(variable["parts"])) == ("w", 4)
    assert "nodes for 4 workers" in pesto("apply", split, *step, "--out", out)[1]
    for words, code, told in (
        (("apply", split, *step, "--out", out, "--device", "worker:0=/device:GPU:0"), Exit.USAGE, "worker:1"),
        (("apply", split, *step, "--out", out, "--device", "gpu:0=/device:GPU:0"), Exit.USAGE, "worker:0 to worker:3"),
        (
            ("apply", split, *step, "--out", out, *pins[:-1], "worker:3=GPU three"),
            Exit.USAGE,
            "no device of TensorFlow",
        ),
        (("apply", split, *step, "--out", out, "--no-order"), Exit.USAGE, "leave out --no-order"),
        (("apply", split, "--out", out), Exit.USAGE, "--graph"),
        (("apply", split, "--out", tmp_path / "parts.txt"), Exit.USAGE, ".pb or .pbtxt"),
        (("run", split, *step, "--emulate"), Exit.USAGE, "leave out --emulate"),
        (("run", split, *step, "--devices", "gpu"), Exit.INPUT, "GPUs"),
        (("run", split, "--model", "rnnlm", "--variant", "tiny"), Exit.MISMATCH, "split this step"),
    ):
        ended, _, err = pesto(*words)
        assert ended == code and told in err, (words, err)


def parts_ran(distance, *, finite):
    """A run of a divided step whose losses are so far from the whole step's."""
    return PartitionRunResult(
        losses_distance=distance, variables_distance=0.0, furthest="loss:0" if distance else None, nudged_distance=None,
        losses=("loss:0",), variables=1, finite=finite, moves=(), steps=1, step_s=1.0, whole_step_s=1.0, held=0.5,
        moved_bytes=8, nodes=9, late=0, devices=("/device:CPU:1",), feeds=(),
    )  # fmt: skip


def test_the_page_of_a_step_that_is_not_finite_asks_for_other_feeds(monkeypatch, capsys):
    """NaN where the whole step has NaN is equal, which the page says; no failure is named."""
    monkeypatch.setattr(run_split, "run_split", lambda *_, **__: parts_ran(0.0, finite=False))
    run_split.run_divided(SimpleNamespace(what="step"), None, steps=1, devices=None, feeds=None, as_json=False)
    page = " ".join(capsys.readouterr().out.split())
    assert "the whole step itself gives NaN" in page and "give --feeds on which it is finite" in page


def test_what_is_finite_in_one_run_alone_is_a_difference(monkeypatch, capsys):
    """No NaN of the whole step excuses it, nor how far a rounding is carried; JSON has null for an infinite number."""
    ran = replace(parts_ran(math.inf, finite=False), nudged_distance=math.inf)
    monkeypatch.setattr(run_split, "run_split", lambda *_, **__: ran)
    asked = {"steps": 1, "devices": None, "feeds": None}
    with pytest.raises(VerificationError, match="loss:0 is infinitely far from the whole step's"):
        run_split.run_divided(SimpleNamespace(what="step"), None, **asked, as_json=False)
    assert "itself gives NaN" not in capsys.readouterr().out
    with click.Context(click.Command("run")), pytest.raises(VerificationError):
        run_split.run_divided(SimpleNamespace(what="step"), None, **asked, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["as_whole"], said["losses_distance"], said["nudged_distance"]) == (False, None, None)
