"""pesto apply and pesto run of a split: the graph that is written, the comparison, and wrong inputs."""

import json

from pesto.errors import Exit
from pesto.tf.start import tensorflow

tf = tensorflow()
v1 = tf.compat.v1


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
