"""Pictures cut along convolutions and pools: what crosses workers is as planned, and the step is the whole one."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from partition_bytes import moved

from pesto.cli.main import pesto
from pesto.split.files.recount import recount_bytes
from pesto.split.files.typed_graph_file import save_typed_graph
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.partition.partition_run import TOLERANCE, run_parts  # noqa: E402
from pesto.tf.partition.partitioned import partition  # noqa: E402
from pesto.tf.run.runnable import make_runnable  # noqa: E402
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def network():
    """A step of convolutions and pools on one picture, padded and not, by strides, by channels; channels are odd."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(5)
        x = v1.placeholder(tf.float32, [1, 48, 48, 3], name="x")
        sizes = {"a": [5, 5, 3, 7], "b": [3, 3, 7, 5], "c": [3, 3, 5, 5], "d": [3, 3, 5, 1], "e": [3, 3, 5, 3]}
        w = {name: v1.get_variable(name, size, use_resource=True) for name, size in sizes.items()}
        h = tf.nn.relu(tf.nn.conv2d(tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]]), w["a"], 1, "VALID"))
        h = tf.nn.relu(tf.nn.conv2d(tf.nn.max_pool2d(h, 2, 2, "VALID"), w["b"], 1, "SAME"))
        h = tf.nn.relu(tf.nn.depthwise_conv2d(h + tf.nn.conv2d(h, w["c"], 1, "SAME"), w["d"], [1, 1, 1, 1], "SAME"))
        h = tf.nn.avg_pool2d(tf.nn.relu(tf.nn.conv2d(h, w["e"], 2, "SAME")), 2, 2, "VALID")
        loss = tf.square(tf.reduce_mean(tf.square(h)), name="loss")
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
    captured = sources.capture_v1(graph, ["loss", "train"], source="a convnet")
    return captured, shape(captured)[1], make_runnable(captured, resolve_shapes(captured, None))


@pytest.fixture(scope="module")
def net():
    return network()


def check(net, factors):
    """The split with a halo, and its run beside the whole step."""
    captured, shaped, step = net
    split = divide(shaped, factors, "exact", Rules(halo=True), seconds=60)
    assert split.moved_bytes < divide(shaped, factors, "exact", Rules(), seconds=60).moved_bytes
    devices = [f"/device:CPU:{k + 1}" for k in range(split.division.workers)]
    made = partition(captured.graph_def, shaped, split.division, captured.fetches, devices=devices)
    assert moved(made.graph_def) == split.moved_bytes == made.parts.moved_bytes()
    assert recount_bytes(shaped, split.division) == split.moved_bytes
    ran = run_parts(captured, shaped, split.division, step, steps=3)
    assert ran.as_whole and ran.finite and not ran.moves, ran
    assert ran.variables_distance <= TOLERANCE
    cut = {shaped.signature(op).type for op, way in enumerate(split.division.strategies) if way.rims}
    assert {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "DepthwiseConv2dNative"} <= cut
    return made


def test_a_convnet_runs_with_its_picture_in_a_grid(net):
    """In two by two: built bytes are the planned ones, losses and variables are the whole step's; borders alone pad."""
    nodes = {node.name: node for node in check(net, (2, 2)).graph_def.node}
    first = [nodes[name] for name in nodes if name.endswith("/Conv2D_1") and nodes[name].op == "Conv2D"]
    sides = [tuple(node.attr["explicit_paddings"].list.i) for node in first]
    assert len({*sides}) == np.prod((2, 2)) and {sum(each) for each in sides} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("factors", [(2,), (3,), (4,), (2, 2, 2)])
def test_a_convnet_runs_with_its_picture_in_parts(net, factors):
    """Ditto by others."""
    check(net, factors)


def test_the_command_cuts_checks_and_explains(net, tmp_path):
    """A file of shapes is cut, the split confirmed with its bound, and an op says what windows it reads."""
    save_typed_graph(net[1], tmp_path / "net.shaped.json")

    def run(*words):
        found = CliRunner().invoke(pesto, [str(word) for word in words])
        assert found.exit_code == 0, found.output
        return found.output

    words = ["split", tmp_path / "net.shaped.json", "--workers", "4"]
    plain = json.loads(run(*words, "--json"))
    cut = json.loads(run(*words, "--halo", "--explain", "Conv2D_1", "-o", tmp_path / "split.json", "--json"))
    assert cut["bytes"] < plain["bytes"]
    assert any(each["variable"] == "x0" for each in cut["op"]["strategies"][0]["found"])
    picture = cut["op"]["inputs"][0]
    assert picture["bytes"] > 0 and len({tuple(map(tuple, part)) for part in picture["parts"]}) == 4
    checked = run("check", tmp_path / "split.json", "--graph", tmp_path / "net.shaped.json", "--certificate", "--json")
    assert json.loads(checked)["valid"]
    assert "windows of 8, 6 apart" in run(*words, "--halo", "--explain", "Conv2D_1")
