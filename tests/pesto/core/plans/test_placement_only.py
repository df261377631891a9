"""Plans that leave the order to the framework: chosen, predicted and said so, and nothing of an order is enforced."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
from click.testing import CliRunner

import pesto as face
from pesto.cli.main import pesto
from pesto.core.cluster import Path as Link
from pesto.core.errors import NothingFoundError, UsageError
from pesto.core.plans.plan import check_order
from pesto.core.problem import build_problem
from pesto.core.simulator import simulate
from pesto.core.source import Source
from pesto.inputs import load as inputs
from pesto.inputs.load import plan_source
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.tf.run.run_options import RunOptions
from solvers.timing.replay import fifo

# On one GPU, first in, first out runs the loose b (10 ms), which is listed first, before x, whose chain goes on at the
# other GPU. The order of a plan has x first.
OPS = [
    {"name": "b", "time_s": {"gpu": 10e-3}, "group": "left"},
    {"name": "x", "time_s": {"gpu": 1e-3}, "outputs": [4096], "group": "left"},
    {"name": "y", "inputs": ["x"], "time_s": {"gpu": 10e-3}},
]


def said(*words: object):
    """One object of JSON."""
    done = CliRunner().invoke(pesto, [*map(str, words), "--json"], standalone_mode=False)
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


@pytest.fixture
def step(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    file = {"format": "pesto-graph", "format_version": 1, "source": "b and x", "ops": OPS}
    Path("step.json").write_text(json.dumps(file))
    return "step.json"


def test_the_order_is_first_in_first_out(step) -> None:
    """With the order 11 ms, without 21 ms on two GPUs: solve, check and simulate agree, and say which it is."""
    asked = ("--graph", step, "--time-limit", 0, "--solver", "list")
    with_order = said("solve", *asked, "-q", "-o", "ordered.json")
    without = said("solve", *asked, "-q", "--placement-only", "-o", "placed.json")
    assert with_order["makespan_s"] == pytest.approx(11e-3, rel=0.01)
    assert without["makespan_s"] == pytest.approx(21e-3, rel=0.01)
    assert (without["as"], without["enforced_s"]) == ("placement", without["makespan_s"])
    assert without["order"]["fifo_s"] == without["makespan_s"]
    assert "left to the framework" in without["rule"]
    checked = said("check", "placed.json", "--graph", step)
    assert (checked["as"], checked["enforced_s"]) == ("placement", without["makespan_s"])
    simulated = said("simulate", "placed.json", "--graph", step)
    assert (simulated["as"], simulated["makespan_s"]) == ("placement", without["makespan_s"])
    page = CliRunner().invoke(pesto, ["solve", *map(str, asked), "-q", "--placement-only"], standalone_mode=False)
    assert "left to the framework: first in, first out is predicted" in " ".join(page.stdout.split())


def test_what_has_no_order_is_not_asked_for_one(step) -> None:
    """The authors' control edges, a way that keeps an order, and a choice among orders."""
    asked = ["solve", "--graph", step, "--time-limit", "0", "--solver", "list", "-q", "--placement-only"]
    for words, why in (([*asked, "--cdep", "c.json"], "--cdep is for the order"), ([*asked, "--robust"], "robust")):
        done = CliRunner().invoke(pesto, words, standalone_mode=False)
        assert isinstance(done.exception, UsageError)
        assert why in str(done.exception)
    said(*asked)
    words = ["simulate", "plan.json", "--graph", step, "--as", "session"]
    done = CliRunner().invoke(pesto, words, standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "leave --as session out" in str(done.exception)


@pytest.mark.slow
def test_the_best_placement_without_an_order_is_chosen() -> None:
    """Of all candidates the one whose placement is the shortest, first in, first out."""
    graph = face.load_graph(model="rnnlm", variant="tiny")
    plan = face.solve(graph, cluster="cpux2", time_limit_s=0, solver="list", placement_only=True)
    made = plan.provenance
    assert plan.placement_only
    assert plan.schedule.makespan == min(made.candidates_ticks.values())
    simulation = face.simulate(plan, graph)
    assert simulation.run.timeline.schedule.makespan == plan.schedule.makespan
    assert fifo(simulation.bench.problem, plan.schedule.device).makespan == plan.schedule.makespan
    assert simulation.as_meant().way == "placement"
    assert not face.solve(graph, cluster="cpux2", time_limit_s=0, solver="list").placement_only


def tight(gib: float) -> tuple[face.Graph, face.Cluster]:
    """30 ops on two GPUs of so much memory."""
    chance, dag = random.Random(3), networkx.DiGraph()  # noqa: S311
    for i in range(30):
        seconds, group = chance.randint(1, 20) * 1e-3, f"g{chance.randint(0, 30)}"
        dag.add_node(f"n{i}", seconds=seconds, group=group, param_bytes=chance.randint(0, 1 << 30))
    for j in range(30):
        for i in range(j):
            if chance.random() < 0.1:
                dag.add_edge(f"n{i}", f"n{j}", bytes=chance.randint(0, 1 << 26))
    machine = face.load_cluster("v100x2-nvlink")
    devices = [replace(d, memory_bytes=int(gib * 2**30)) if d.kind == "gpu" else d for d in machine.devices]
    return face.graph_from_networkx(dag), replace(machine, devices=tuple(devices))


@pytest.mark.slow
def test_what_fits_in_order_alone_is_repaired() -> None:
    """Every candidate that fits is too large first in, first out: ops are moved until one is not, or it is said."""
    asked = {"time_limit_s": 0, "solver": "list"}
    graph, machine = tight(7.9)
    assert face.solve(graph, cluster=machine, **asked).provenance.chosen == "list"
    plan = face.solve(graph, cluster=machine, placement_only=True, **asked)
    assert plan.provenance.chosen == "repaired" and "moved to fit the memory" in plan.provenance.rule
    simulation = face.simulate(plan, graph, cluster=machine)
    assert simulation.fits
    assert fifo(simulation.bench.problem, plan.schedule.device).makespan == plan.schedule.makespan
    graph, machine = tight(7.8)
    assert face.solve(graph, cluster=machine, **asked).placement_only is False
    with pytest.raises(NothingFoundError, match=r"peaks at 7.80 GiB on gpu:1, \d+\S* KiB more than its 7.80 GiB"):
        face.solve(graph, cluster=machine, placement_only=True, **asked)


def test_its_rivals_have_no_order_either(step) -> None:
    """Where times are wrong: what an order would gain is nothing that another placement has over the plan's."""
    asked = ("--graph", step, "--time-limit", 0, "--solver", "list", "-q")
    said("solve", *asked, "--placement-only", "-o", "placed.json")
    said("solve", *asked, "-o", "ordered.json")
    placed, ordered = (
        said("simulate", name, "--graph", step, "--noise", 0, "--draws", 1)["trust"]["rivals"]
        for name in ("placed.json", "ordered.json")
    )
    assert min(each["step_s"] for each in placed.values()) >= 21e-3
    assert min(each["step_s"] for each in ordered.values()) >= 11e-3


@pytest.mark.parametrize("asked", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_run_adds_no_control_edges(asked) -> None:
    """Whether the plan leaves the order to TensorFlow, or the run does; only the plan then predicts the step."""
    graph = face.load_graph(model="rnnlm", variant="tiny")
    plan = face.solve(graph, cluster="cpux2", time_limit_s=0, solver="list", placement_only=asked)
    ran = inputs.run_plan(plan, plan_source(plan, Source()), RunOptions(steps=1, devices="cpu", order=asked))
    assert (ran.chain_edges, ran.inversions, ran.moves, ran.as_planned) == (0, (), (), True)
    assert ran.predicted_step_s == (plan.makespan_s if asked else None)


def test_plans_of_steps_with_many_ties_are_the_run_itself(make_graph, make_cluster, make_costs, seeds) -> None:
    """Random steps with times of 0 to 2 µs on two GPUs: first in, first out to the tick, and so they are checked."""
    cluster, differ = make_cluster(path=Link(latency_s=1e-6, s_per_byte=0)), 0
    for seed in seeds(40):
        rng = np.random.default_rng(seed)
        ops = [
            {
                "name": f"{k}", "inputs": [f"{j}" for j in range(k) if rng.random() < 2 / (k + 1)],
                "bytes": int(rng.integers(2)), "s": int(rng.integers(3)) * 1e-6, "kinds": ["gpu"],
            }
            for k in range(30)
        ]  # fmt: skip
        graph = make_graph(ops)
        problem = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
        bench = CandidateEvaluator.of(graph, problem)
        device = rng.integers(1, 3, len(ops))
        listed = bench.placed("any", "", device)
        run = bench.unordered(listed)
        assert run.makespan == fifo(problem, device).makespan == simulate(problem, device, run.rank).schedule.makespan
        plan = plan_of(run, graph, cluster)
        assert check_order(plan, problem) == []
        if listed.makespan != run.makespan:
            differ += 1
            assert "first in first out" in check_order(plan_of(listed, graph, cluster), problem)[0]
    assert differ


def plan_of(run, graph, cluster) -> SimpleNamespace:
    """What of a plan its order is checked by."""
    schedule = run.timeline.schedule
    return SimpleNamespace(schedule=schedule, rank=run.rank, names=graph.names, placement_only=True)
