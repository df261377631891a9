"""The offline graph optimizer: fewer ops, the same bits, and everything that the program needs still there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest

from pesto.core.errors import InputError, UsageError
from pesto.core.source import Source
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import grappler, models  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

X = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
C = np.float32


def graph_of(build: Callable[[Any], Any]) -> Any:
    """The GraphDef of y = build(x), x a feed of 1000 numbers."""
    graph = tf.Graph()
    with graph.as_default():
        tf.identity(build(v1.placeholder(tf.float32, [1000], name="x")), name="y")
    return graph.as_graph_def()


def session(graph_def: Any) -> Any:
    """A session that runs the graph as it is."""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return v1.Session(graph=graph, config=config)


def value(graph_def: Any) -> bytes:
    with session(graph_def) as s:
        return s.run("y:0", {"x:0": X}).tobytes()


def names(graph_def: Any) -> set[str]:
    return {node.name for node in graph_def.node}


ROUNDED = {  # case: (a pass that changes its bits, y of x)
    "division by a constant": ("constfold", lambda x: x / C(3)),
    "two constants added": ("constfold", lambda x: tf.add(tf.add(x, C(1e8)), C(-1e8))),
    "two constants multiplied": ("constfold", lambda x: (x * C(1.1)) * C(0.7)),
    "a constant divided": ("constfold", lambda x: (x * C(1.1)) / C(0.7)),
    "constants among the terms": (
        "constfold",
        lambda x: tf.add_n([x, tf.constant(np.full(1000, C(0.1))), x * 2, tf.constant(np.full(1000, C(0.3)))]),
    ),
    "five terms in this order": (
        "common_subgraph_elimination",
        lambda x: tf.add_n([tf.multiply(x, C(k), name=f"t{k}") for k in (5.1, 0.3, 4.7, 0.9, 2.3)]),
    ),
    "a scaled convolution": (
        "constfold",
        lambda x: C(0.3) * tf.nn.conv2d(tf.reshape(x, [1, 10, 10, 10]), np.full((3, 3, 10, 10), C(0.7)), 1, "SAME"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROUNDED)
def test_no_rewrite_changes_a_bit(case: str) -> None:
    """Each graph is one that the named pass, run as TensorFlow runs it, changes; `optimize` does not."""
    harmful, build = ROUNDED[case]
    graph_def = graph_of(build)
    exact = value(graph_def)
    assert value(grappler.run_grappler(graph_def, [harmful], ["y"])) != exact
    assert value(grappler.optimize(graph_def, ["y"])) == exact


def test_constants_are_folded_and_equal_ops_merged() -> None:
    """2 * 3 and shapes become constants, two equal products one, an unused op goes; no guard is left."""

    def build(x: Any) -> Any:
        six = tf.constant(2.0) * tf.constant(3.0)
        tf.exp(x, name="unused")
        rows = tf.cast(tf.shape(x)[0], tf.float32)
        return tf.concat([x * six, tf.tanh(x) * rows, tf.tanh(x) * rows], 0)

    graph_def = graph_of(build)
    found = grappler.optimize(graph_def, ["y:0"])
    assert sorted(node.op for node in found.node if node.op != "Const") == [
        "ConcatV2", "Identity", "Mul", "Mul", "Placeholder", "Tanh",
    ]  # fmt: skip
    assert value(found) == value(graph_def)
    assert not any("pesto" in text for node in found.node for text in (node.name, *node.input))


def program() -> Any:
    """A v1 training program: a random variable, dropout, a step, an initializer and a saver."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(3)
        x = v1.placeholder(tf.float32, [4, 8], name="x")
        with tf.device("/cpu:0"):
            w = v1.get_variable("w", [8, 3], use_resource=True)
        loss = tf.reduce_mean(tf.square(v1.nn.dropout(x, rate=0.5) @ w / 3.0), name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
        v1.train.Saver()
        v1.global_variables_initializer()
    return graph.as_graph_def()


def trained(graph_def: Any, folder: Path) -> list[bytes]:
    """The bits of three losses, the saved variable and one more loss after it was restored."""
    rng = np.random.default_rng(1)
    with session(graph_def) as s:
        s.run("init")
        losses = [s.run(["loss:0", "train"], {"x:0": rng.random((4, 8))})[0] for _ in range(3)]
        s.run("save/control_dependency", {"save/Const:0": str(folder / "model")})
        saved = tf.train.load_checkpoint(str(folder / "model")).get_tensor("w")
        s.run("init")
        s.run("save/restore_all", {"save/Const:0": str(folder / "model")})
        losses.append(s.run("loss:0", {"x:0": np.ones((4, 8))}))
    return [np.asarray(found).tobytes() for found in (*losses, saved)]


def test_a_program_keeps_what_it_runs_on(tmp_path: Path) -> None:
    """Variables, random draws, the feeds, initializer, saver and devices survive; the results are the same bits."""
    before = program()
    keep = ["init", "save/control_dependency", "save/restore_all"]
    after = grappler.optimize(before, ["train", "loss"], keep)
    assert {"train", "loss", "x", "w", *keep} <= names(after) and len(after.node) < len(before.node)
    assert next(node.device for node in after.node if node.name == "w") == "/device:CPU:0"
    assert trained(after, tmp_path) == trained(before, tmp_path)
    alone = grappler.optimize(before, ["train"])
    assert not names(alone) & {"init", "save/restore_all"} and "w" in names(alone)


FAMILIES = [
    pytest.param(family.name, marks=() if family.name in ("rnnlm", "transformer") else pytest.mark.matrix)
    for family in models.FAMILIES
]


@pytest.mark.parametrize("family", FAMILIES)
def test_models_train_bit_for_bit_on_fewer_ops(family: str) -> None:
    """Ten steps of every tiny model: the same losses to the last bit, from a step that is a tenth smaller at least."""
    step = models.build(family, "tiny")
    found = grappler.optimize_source(Source(model=family, variant="tiny"))
    assert found.step[1] < 0.9 * found.step[0] and found.fetches == step.fetches
    losses = []
    for graph_def in (step.graph.as_graph_def(), found.graph_def):
        rng = np.random.default_rng(0)
        with session(graph_def) as s:
            s.run(step.init)
            train = s.graph.get_operation_by_name(step.fetches[0])
            losses.append([float(s.run([step.loss, train], step.feed(rng))[0]) for _ in range(10)])
    assert losses[0] == losses[1] and np.isfinite(losses[0]).all() and len(set(losses[0])) > 1


def test_calls_are_inlined_and_loops_stay() -> None:
    """A function's call becomes its body, as in planning; a While stays one op."""

    @tf.function
    def double(x: Any) -> Any:
        return x * 2.0

    @tf.function
    def step(x: Any) -> Any:
        for _ in tf.range(3):
            x = x + 1.0
        return double(x)

    captured = sources.capture_func_graph(step.get_concrete_function(tf.TensorSpec([4])).graph, "f")
    ops = [node.op for node in grappler.optimize(captured.graph_def, captured.fetches).node]
    assert "PartitionedCall" not in ops and "StatefulPartitionedCall" not in ops and "Mul" in ops
    assert sum("While" in op for op in ops) == 1


def test_the_verb_writes_a_graph_that_can_be_planned(tmp_path: Path) -> None:
    """The line it prints names the sizes and the next command; the file holds the step and its initializer."""
    done = forked.run("pesto", "optimize", "--model", "rnnlm", "--variant", "tiny", "-o", "r.pb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    step = models.build("rnnlm", "tiny")
    found = grappler.optimize_source(Source(model="rnnlm", variant="tiny"))
    (nodes, fewer), (ops, left) = found.nodes, found.step
    assert f"{nodes} -> {fewer} nodes, the step {ops} -> {left} -> r.pb" in done.stdout
    assert f"pesto solve --graph r.pb --fetch {step.fetches[0]} --fetch {step.fetches[1]}" in done.stdout
    written = v1.GraphDef.FromString((tmp_path / "r.pb").read_bytes())
    assert len(written.node) == fewer and step.init in names(written)
    assert sources.from_graph_def_file(tmp_path / "r.pb", step.fetches).ops == left


@pytest.mark.slow
def test_a_file_without_fetches_is_kept_whole(tmp_path: Path) -> None:
    """Every op that nothing reads stays, and so what it needs; with --fetch only that and --keep."""
    path = tmp_path / "program.pb"
    path.write_bytes(program().SerializeToString())
    whole = grappler.optimize_source(Source(file=path))
    assert {"train", "init", "save/restore_all"} <= names(whole.graph_def)
    some = grappler.optimize_source(Source(file=path, fetch=("loss:0",)), ("init",))
    assert some.fetches == ("loss",) and {"loss", "init"} <= names(some.graph_def)
    assert not {"train", "save/restore_all"} & names(some.graph_def)
    done = forked.run("pesto", "optimize", "--graph", path, "--batch", "4", "-o", "whole.pb", cwd=tmp_path)
    assert done.stdout.endswith("pesto inspect --graph whole.pb --batch 4\n"), done.stderr
    same = grappler.optimize_source(Source(file=path, fetch=("*",)))
    assert same.graph_def == whole.graph_def and same.fetches == whole.fetches


def test_wrong_requests_are_one_line(tmp_path: Path) -> None:
    """Unknown names with the nearest, a file of the wrong kind, options that do not go together."""
    path, data = tmp_path / "program.pb", program().SerializeToString()
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"^file program\.pb: no op is named 'trian' - did you mean 'train'\?"):
        grappler.optimize_source(Source(file=path, fetch=("trian",)))
    with pytest.raises(InputError, match="no op is named 'inti' - did you mean 'init'"):
        grappler.optimize_source(Source(file=path), ("inti",))
    with pytest.raises(InputError, match="nothing to fetch"):
        grappler.optimize(program(), [])
    with pytest.raises(UsageError, match=r"only TensorFlow's graphs"):
        grappler.optimize_source(Source(file=tmp_path / "step.json"))
    with pytest.raises(UsageError, match="see pesto models"):
        grappler.optimize_source(Source(model="rnlm"))
    done = forked.run("pesto", "optimize", "--graph", path, "-o", path, cwd=tmp_path)
    assert done.returncode == 2 and "own" in done.stderr and path.read_bytes() == data
    done = forked.run("pesto", "optimize", "--graph", path, "-o", "out.json", cwd=tmp_path)
    assert done.returncode == 2 and ".pb" in done.stderr and not (tmp_path / "out.json").exists()
