"""What is fed under a name of a rewritten GraphDef reaches all that read it, or the name is gone, which is an error."""

import functools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.cli.main import main
from pesto.core.errors import UsageError
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.inputs import load as inputs
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import formulate
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.apply_placement.targets import ApplyOptions  # noqa: E402
from pesto.tf.enforce import rewrite  # noqa: E402
from pesto.tf.nodes.needed_nodes import RELAY  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

X = {"x:0": np.arange(24, dtype=np.float32).reshape(4, 6) / 24}
RATE = {"rate:0": np.float32(0.7)}
Value = tuple[bytes, ...]


@dataclass(frozen=True, eq=False)
class Program:
    graph_def: Any
    plan: Plan
    """Each of two layers on a CPU of its own; both updates read `rate`, a constant, and one tensor of a barrier."""


@functools.cache
def program() -> Program:
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(3)
        x = v1.placeholder(tf.float32, [4, 6], name="x")
        rate = tf.constant(0.3, name="rate")
        a, b = (v1.get_variable(name, [6, 6], use_resource=True) for name in "ab")
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ a) @ b - x), name="loss")
        passed = tf.raw_ops.IdentityN(input=tf.gradients(loss, [a, b]), name="passed")
        pairs = zip((a, b), passed, strict=True)
        updates = [
            tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=rate, delta=d) for v, d in pairs
        ]  # fmt: skip
        tf.group(*updates, name="train")
        v1.global_variables_initializer()
    step = sources.from_v1(graph, ["train", "loss"])
    plan = api.solve(step, cluster="cpux2", time_limit_s=0, solver="list")
    cluster = load_cluster("cpux2")
    problem = formulate(step, inputs.load_costs(step, cluster, None), cluster, Settings())
    device = np.zeros(step.ops, dtype=np.int64)
    device[step.group == step.group[step.names.index("b")]] = 1
    return Program(graph.as_graph_def(), replace(plan, schedule=simulate(problem, device, plan.rank).schedule))


def ran(graph_def: Any, feeds: Mapping[str, Any], mapped: bool = False) -> Value:
    """Loss and variables after three steps in a plain session; feeds, or a map of inputs to constants."""
    graph = tf.Graph()
    with graph.as_default():
        wanted = {name: tf.constant(value) for name, value in feeds.items()} if mapped else {}
        tf.import_graph_def(graph_def, name="", input_map=wanted)
    with v1.Session(graph=graph, config=rewrite.logical_cpu_config(2)) as session:
        session.run("init")
        losses = [session.run(["loss:0", "train"], {**X, **({} if mapped else feeds)})[0] for _ in range(3)]
        return tuple(
            v.tobytes() for v in (*losses, *session.run(["a/Read/ReadVariableOp:0", "b/Read/ReadVariableOp:0"]))
        )


@functools.cache
def written(*keep: str, order: bool = True) -> rewrite.RewrittenGraph:
    return rewrite.rewrite_with_report(program().graph_def, program().plan, ApplyOptions(order=order), keep=keep)


@pytest.mark.parametrize("keep", [(), ("rate",)])
@pytest.mark.parametrize("order", [True, False])
def test_what_is_not_fed_is_bit_for_bit_as_before(keep: tuple[str, ...], order: bool) -> None:
    done = written(*keep, order=order)
    assert ran(done.graph_def, {}) == ran(program().graph_def, {})
    assert (done.findings.moves, done.findings.inversions, done.findings.absent) == ((), (), ())
    assert done.findings.ops == written().findings.ops


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("order", [True, False])
def test_a_constant_that_is_kept_is_fed_everywhere(mapped: bool, order: bool) -> None:
    """By a feed or a map of inputs: as without a plan, which is another result than without the feed."""
    done = written("rate:0", order=order)
    exact = ran(program().graph_def, RATE, mapped)
    assert ran(done.graph_def, RATE, mapped) == exact != ran(program().graph_def, {})
    assert (done.kept, done.kept_sent) == (("rate",), 1) and "rate" not in done.gone
    assert not any(copy.constant == "rate" for copy in done.placement.copies)
    through = [node for node in done.graph_def.node if node.name.startswith(f"rate{RELAY}")]
    assert len(through) == order  # a relay has a place in the order


@pytest.mark.parametrize("name", ["rate:0", "passed:0"])
def test_a_name_that_would_not_reach_all_its_readers_is_an_error(name: str) -> None:
    """Of a constant with copies, and of a barrier that is gone around; what is fetched is an error, too."""
    done = written()
    assert {"rate", "passed"} <= set(done.gone)
    value = np.zeros((6, 6), np.float32) if name == "passed:0" else np.float32(0.7)
    assert ran(program().graph_def, {name: value}) != ran(program().graph_def, {})
    with pytest.raises(TypeError, match="refers to a Tensor which does not exist"):
        ran(done.graph_def, {name: value})
    with pytest.raises(ValueError, match="not found in graph_def"):
        ran(done.graph_def, {name: value}, mapped=True)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(done.graph_def, name="")
    with v1.Session(graph=graph) as session, pytest.raises(ValueError, match="refers to a Tensor which does not exist"):
        session.run(name)


def test_all_other_names_stay() -> None:
    done = written()
    before, after = ({node.name for node in g.node} for g in (program().graph_def, done.graph_def))
    assert before - after == set(done.gone) and set(done.renamed.values()) <= after
    constants = {node.name for node in program().graph_def.node if node.op == "Const"}
    assert set(done.gone) - {"passed"} <= constants


def test_what_is_tied_to_a_name_that_goes_follows_it() -> None:
    """A reference variable's op keeps its colocation, by the name that the constant has then."""
    given = v1.GraphDef.FromString(program().graph_def.SerializeToString())
    other = given.node.add(name="other", op="VariableV2")
    other.attr["dtype"].type = tf.float32.as_datatype_enum
    other.attr["shape"].shape.SetInParent()
    other.attr["_class"].list.s.append(b"loc:@rate")
    given.node.add(name="late", op="NoOp", input=["^rate"])
    nodes = {node.name: node for node in rewrite.rewrite(given, program().plan, ApplyOptions()).node}
    own = written().renamed["rate"]
    assert list(nodes["other"].attr["_class"].list.s) == [f"loc:@{own}".encode()]
    assert list(nodes["late"].input) == [f"^{own}"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("rat", r"no op is named 'rat' - did you mean 'rate'\?"),
        ("q" * 9, "name a constant of the step"),
        ("x", "x is no constant that a plan copies, so its name stays - leave it out"),
        ("^rate", r"\^rate names an op to wait for, no tensor to feed, map or fetch - give rate$"),
        ("passed", r"passed passes tensors on, .* - feed or fetch these: gradients"),
    ],
)
def test_what_cannot_be_kept_is_refused(name: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        api.rewrite(program().graph_def, program().plan, keep=["rate", name])


def test_the_verb_says_what_is_gone_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.pb").write_bytes(program().graph_def.SerializeToString())
    api.save_plan(program().plan, tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pesto", "apply", "plan.json", "--graph", "in.pb", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    code, page, wrong = call("--out", "out.pb")
    assert code == 0, wrong
    (line,) = (line for line in page.splitlines() if line.startswith("gone"))
    assert line.split()[1] == str(len(written().gone)) and "--keep" in page and "\nkept" not in page
    code, page, _ = call("--out", "kept.pb", "--keep", "rate")
    assert code == 0 and "rate: sent 1 time a step, which the plan does not" in page
    assert ran(sources.read_graph_def(Path("kept.pb")), RATE) == ran(program().graph_def, RATE)
    found = json.loads(call("--out", "out.pb", "--json", "--keep", "rate")[1])
    assert (found["gone"], found["kept"], found["kept_sent"]) == (list(written("rate").gone), ["rate"], 1)
    code, out, wrong = call("--out", "none.pb", "--keep", "train")
    assert (code, out, wrong.count("\n")) == (2, "", 1) and not Path("none.pb").exists()


def test_a_session_passes_a_feed_on_or_refuses_it() -> None:
    """A live graph keeps its nodes: a constant's copies are fed, too, and nothing can be fed to a barrier's readers."""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(program().graph_def, name="")
    with api.apply(program().plan, devices="cpu"), v1.Session(graph=graph) as session:
        session.run("init")
        found = [session.run(["loss:0", "train"], {**X, **RATE})[0].tobytes() for _ in range(3)]
        with pytest.raises(UsageError, match=r"feeding passed, .* would break its order"):
            session.run("train", {**X, "passed:0": np.zeros((6, 6), np.float32)})
    assert tuple(found) == ran(program().graph_def, RATE)[:3]
