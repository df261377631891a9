"""A plan of a version that had small constants sent: refused in one line where it is used, carried over by a solve."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pesto.cli.main import pesto
from pesto.core import problem
from pesto.core.errors import VerificationError
from pesto.core.graph import Graph
from pesto.core.plans import plan_file
from pesto.core.plans.plan import CONSTANTS_SENT, Plan
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1


def older(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Its halves by turns on two devices, and each constant that the other device reads is sent."""
    plan = api.solve(graph, cluster="cpux2", time_limit_s=0, solver="list")
    cluster = load_cluster("cpux2")
    with monkeypatch.context() as then:
        then.setattr(problem, "copied_constants", lambda g: np.zeros(len(g.tensor_bytes), dtype=np.bool_))
        sending = formulate(graph, load_costs(graph, cluster, None), cluster, Settings())
    device = np.arange(graph.ops) % 2
    device[graph.group >= 0] = 0
    found = replace(plan, schedule=simulate(sending, device, plan.rank).schedule)
    return replace(found, provenance=replace(found.provenance, transfers=CONSTANTS_SENT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GraphDef, step.pb, and an older plan of it, old.json."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [4, 6], name="x")
        w = v1.get_variable("w", [6, 6], use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ w) * 2.0 - 3.0 * x), name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    (tmp_path / "step.pb").write_bytes(graph.as_graph_def().SerializeToString())
    plan = older(api.load_graph(tmp_path / "step.pb", fetch=["train", "loss"]), monkeypatch)
    plan_file.save(plan, tmp_path / "old.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(verb: str, plan: str, *more: str) -> Result:
    return CliRunner().invoke(pesto, [verb, plan, "--graph", "step.pb", *more])


STEP = ("--fetch", "train", "--fetch", "loss")
USES = [("check", *STEP), ("simulate", *STEP), ("run", *STEP, "--steps", "1"), ("run", *STEP, "--emulate")]


@pytest.mark.usefixtures("folder")
def test_an_older_plan_is_refused_and_carried_over() -> None:
    """The remedy that is given, `pesto solve --start`, makes a plan of it that all take."""
    for verb, *more in (*USES, ("apply", "--out", "placed.pb")):
        refused = run(verb, "old.json", *more)
        assert isinstance(refused.exception, VerificationError), (verb, refused.output)
        said = str(refused.exception)
        assert "had small constants sent" in said and said.endswith(" - solve again, starting from it")
        assert "\n" not in said
    start = ["solve", "--graph", "step.pb", *STEP, "--cluster", "cpux2", "--time-limit", "0", "--solver", "list"]
    solved = CliRunner().invoke(pesto, [*start, "--start", "old.json", "-o", "new.json"])
    assert solved.exit_code == 0, solved.output
    for verb, *more in (*USES[:2], ("apply", "--out", "placed.pb")):
        assert run(verb, "new.json", *more).exit_code == 0
