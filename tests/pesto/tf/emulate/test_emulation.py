"""Plans in TensorFlow's executor: as the prediction where all is chained, and what shows where something is not."""

import json
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.cli.main import main
from pesto.core.errors import UsageError, VerificationError
from pesto.core.graph import FUNCTION, SESSION
from pesto.core.plans import execution_modes
from pesto.core.plans.execution_modes import GRAPHDEF
from pesto.core.plans.plan import Plan
from pesto.core.plans.plan_file import save
from pesto.core.problem import TICK_S
from pesto.core.simulator import simulate
from pesto.core.source import Source
from pesto.inputs.load import planned_step
from pesto.tf.emulate.emulate_options import EmulationOptions, check_size
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()

from pesto.tf.apply_placement.placement import find_unchained_ops, place_trace  # noqa: E402
from pesto.tf.apply_placement.targets import device_targets  # noqa: E402
from pesto.tf.emulate import emulation  # noqa: E402
from pesto.tf.emulate.clocks import NominalClock, WallClock  # noqa: E402
from pesto.tf.emulate.emulation import execute  # noqa: E402
from pesto.tf.emulate.enforced_graph import (  # noqa: E402
    EnforcedStep,
    PlannedStep,
    build_work,
    enforce_step,
    partition_step,
)
from pesto.tf.enforce.edits import compute_edits, write_edits  # noqa: E402
from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.nodes.shape_inference import copy_graph_def  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

pytestmark = pytest.mark.slow  # half a minute in all
FUNCTION_FILE = """
import tensorflow as tf

a, b = (tf.Variable(tf.ones([64, 64]), name=name) for name in "ab")

@tf.function(input_signature=[tf.TensorSpec([32, 64])])
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(x @ a) + tf.nn.relu(x @ b)) ** 2)
    for variable, gradient in zip((a, b), tape.gradient(loss, (a, b))):
        variable.assign_sub(0.1 * gradient)
    return loss
"""
GRAPH_FILE = """
import tensorflow as tf

def step():
    v1, graph = tf.compat.v1, tf.Graph()
    with graph.as_default():
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [32, 64], name="x")
        w, u = (v1.get_variable(name, [64, 64], use_resource=True) for name in "wu")
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y @ w)), [0, x])[1]
        z = tf.cond(tf.reduce_sum(x) > 12.0, lambda: y * 2.0, lambda: y + x @ u)
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(z**2), name="train")
    v1.enable_control_flow_v2()
    return graph, ["train"]
"""
KEYS = {
    "emulation", "as", "clock", "ties", "scale", "handed_over", "predicted_step_s", "emulated_step_s", "error",
    "unordered_step_s", "order_gain", "ops", "unchained", "transfers", "unsent", "op_inversions", "link_inversions",
    "drift_max", "drift_mean", "threads", "starved", "seconds", "ranking", "ranked_otherwise",
}  # fmt: skip


@pytest.fixture(scope="module")
def stage() -> Any:
    """rnnlm tiny on 4 GPUs that are not there: (step, plan, what was predicted)."""
    return staged("v100x4")


def staged(cluster: str, model: str = "rnnlm") -> Any:
    graph, step = planned_step(Source(model=model, variant="tiny"))
    plan = api.solve(graph, cluster=cluster, time_limit_s=0, solver="list")
    whole = api.simulate(plan, graph)
    predicted = emulation.predict_step(plan, graph, whole.cluster, whole.run.timeline, whole.run.rank)
    return step, plan, predicted


@pytest.fixture(scope="module")
def laid(stage) -> EnforcedStep:
    step, plan, _ = stage
    return enforce_step(step, plan, way=FUNCTION, order=True)


def test_rnnlm_on_four_gpus_runs_as_predicted_where_all_is_chained(stage) -> None:
    """Only feeds and handles are in no chain, from which the feeds are sent a little earlier than planned."""
    step, plan, predicted = stage
    ran = emulation.emulate(step, plan, predicted, EmulationOptions(way=FUNCTION))
    assert abs(ran.error) < 0.002 and ran.drift_mean < 0.005
    assert (ran.op_inversions, ran.unsent, ran.starved) == ((), 0, 0)
    assert ran.ops == predicted.graph.ops and ran.unchained < 20 < ran.transfers
    assert ran.unordered_step_s > 0 and ran.scale is None


@pytest.mark.parametrize("way", [SESSION, GRAPHDEF])
def test_a_session_leaves_more_out_of_the_chains(stage, way: str) -> None:
    """The same plan as `pesto apply` writes it takes as long."""
    step, plan, predicted = stage
    ran = emulation.emulate(step, plan, predicted, EmulationOptions(way=way))
    assert (ran.op_inversions, ran.unsent, ran.starved) == ((), 0, 0)
    assert abs(ran.error) < 0.002 and ran.unchained > 100


@pytest.mark.parametrize("seed", range(2))
def test_what_is_replayed_of_a_way_is_what_its_executor_does(seed: int) -> None:
    """Ops that start kernels beside the chains, relays in them, and links that several ask for at one instant."""
    step, plan, predicted = staged("v100x8", "wrn")
    graph, problem, rng = predicted.graph, predicted.timeline.problem, np.random.default_rng(seed)
    gpus = [k for k, name in enumerate(plan.lane_device) if name.startswith("gpu")]
    whole = np.where(problem.group < 0, problem.group.max() + 1 + np.arange(graph.ops), problem.group)
    free = np.ones(whole.max() + 1, dtype=bool)
    np.logical_and.at(free, whole, problem.allowed[:, gpus].all(axis=1) & (rng.random(len(free)) < 0.3)[whole])
    device = np.where(free[whole], rng.choice(gpus, len(free))[whole], plan.schedule.device)
    timeline = simulate(problem, device, plan.rank)
    moved = replace(plan, schedule=timeline.schedule)
    predicted = replace(predicted, timeline=timeline)
    for way in (SESSION, GRAPHDEF, FUNCTION):
        work = build_work(enforce_step(step, moved, way=way, order=True), predicted)
        ran = emulation.run_work(work, timeline.makespan_s, EmulationOptions(way=way))
        replayed = execution_modes.predict_mode(graph, timeline, plan.rank, way=way).makespan_s
        assert ran.step_s == pytest.approx(replayed, abs=TICK_S / 2), way


def without_relays(step: PlannedStep, plan: Plan) -> EnforcedStep:
    """As a session or `pesto apply` would have it if nothing stood for what ops out of the chains send."""
    done = enforce_step(step, plan, way=SESSION, order=True)
    bare = place_trace(
        plan, done.trace.graph, device_targets(plan, "cpu"), find_unchained_ops(step.captured.graph_def, done.trace)
    )
    bare = replace(bare, copies=done.placement.copies)
    graph_def = copy_graph_def(step.program)
    write_edits(graph_def, compute_edits(bare, done.trace, graph_def.node))
    return partition_step(graph_def, done.trace, bare)


def test_without_relays_links_fill_ahead_of_the_plan() -> None:
    """What ops out of the chains send on 8 GPUs leaves as the step begins then."""
    step, plan, predicted = staged("v100x8")
    assert abs(emulation.emulate(step, plan, predicted, EmulationOptions(way=SESSION)).error) < 0.002
    bare = without_relays(step, plan)
    ran = emulation.run_work(build_work(bare, predicted), predicted.timeline.makespan_s, EmulationOptions(way=SESSION))
    assert emulation.link_inversions(ran, predicted)
    assert emulation.drift(ran, bare, predicted).max() > 0.002


def test_a_run_repeats_to_the_tick(stage, laid: EnforcedStep) -> None:
    """The nominal clock does not depend on what the machine does meanwhile."""
    work = build_work(laid, stage[2])
    once, again = (emulation.run_work(work, 1.0, EmulationOptions()) for _ in range(2))
    assert np.array_equal(once.start, again.start) and np.array_equal(once.end, again.end)
    assert (once.end >= once.start).all() and (once.start >= 0).all()


def neighbours(laid: EnforcedStep) -> list[tuple[str, str]]:
    names = laid.placement.graph.names
    before, after = laid.placement.neighbours()
    return [(names[i], names[j]) for i, j in zip(before.tolist(), after.tolist(), strict=True)]


def alone_in_its_way(run: emulation.EmulatedRun, before: str, after: str) -> bool:
    """Whether `after` could ask for its processor before `before` can, if it did not wait for that."""
    work, place = run.work, {name: k for k, name in enumerate(run.work.names) if run.work.op[k] >= 0}
    a, b = place[before], place[after]
    first = max((run.end[p] for p in (*work.data[a], *work.controls[a])), default=0.0)
    free = all(run.end[p] < first for p in (*work.data[b], *work.controls[b]) if p != a)
    return bool(first > 0 and free and a not in work.data[b] and work.ticks[a])


def test_a_chain_edge_that_is_missing_shows_as_an_inversion(stage, laid: EnforcedStep) -> None:
    """Dropped from a partition graph between two ops of which nothing else delays the second: it begins first."""
    _, _, predicted = stage
    whole = emulation.run_work(build_work(laid, predicted), 1.0, EmulationOptions())
    assert emulation.op_inversions(whole, laid, predicted) == ()
    a, b = next(pair for pair in neighbours(laid) if alone_in_its_way(whole, *pair))
    partitions = [copy_graph_def(part) for part in laid.partitions]
    (node,) = (node for part in partitions for node in part.node if node.name == b)
    node.input.remove(f"^{a}")
    hurt = replace(laid, partitions=partitions)
    found = emulation.op_inversions(
        emulation.run_work(build_work(hurt, predicted), 1.0, EmulationOptions()), hurt, predicted
    )
    assert f"op {b} ran before {a} had ended" in found


def test_a_transfer_that_goes_too_early_shows_as_an_inversion(stage, laid: EnforcedStep) -> None:
    """The last transfer of a link that carries several does not wait for what makes its tensor."""
    _, _, predicted = stage
    whole = emulation.run_work(build_work(laid, predicted), 1.0, EmulationOptions())
    work, start = whole.work, whole.start
    carried = [links for links, sent in zip(work.holds, work.sent, strict=True) if sent[0] >= 0]
    link = max(carried, key=carried.count)
    last = max((k for k in range(work.functions) if work.holds[k] == link), key=lambda k: start[k])
    early = replace(work, data=tuple(() if k == last else read for k, read in enumerate(work.data)))
    found = emulation.link_inversions(emulation.run_work(early, 1.0, EmulationOptions()), predicted)
    assert len(found) > len(emulation.link_inversions(whole, predicted))
    assert any(line.startswith(f"a link sends what {work.names[last]} made") for line in found)


def test_the_wall_clock_keeps_each_reservation_and_order(stage, laid: EnforcedStep) -> None:
    """However long it takes: one at a time on each processor and link, and behind what it waits for."""
    work = build_work(laid, stage[2])
    clock = WallClock(work, tick_s=1e-9)
    execute(work, clock, threads=64)
    times = clock.times()
    for k, (start, end) in enumerate(times):
        assert start >= 0 and end == pytest.approx(start + work.ticks[k])
        for p in (*work.data[k], *work.controls[k]):
            assert times[p][1] <= start + 1
    for held in {h for holds in work.holds for h in holds}:
        mine = sorted(times[k] for k in range(work.functions) if held in work.holds[k])
        assert all(a[1] <= b[0] + 1 for a, b in pairwise(mine))


def test_what_the_executor_does_not_finish_is_an_error(stage, laid: EnforcedStep) -> None:
    class Broken:
        def pass_by(self, k: int) -> float:
            raise RuntimeError(f"lost {k}")

        def times(self) -> list[tuple[float, float]]:
            return []

        def stop(self) -> None:
            pass

    with pytest.raises(VerificationError, match="emulation failed in TensorFlow"):
        execute(build_work(laid, stage[2]), Broken(), threads=4)


@pytest.mark.parametrize("clock", ["nominal", "wall"])
def test_ctrl_c_ends_it_at_once(stage, laid: EnforcedStep, monkeypatch, clock: str) -> None:
    """The main thread is interrupted in a step that would sleep for weeks, or is in the middle."""
    work = build_work(laid, stage[2])
    began = threading.Event()
    made = WallClock(work, tick_s=1.0) if clock == "wall" else NominalClock(work, threads=64)
    original = made.pass_by

    def pass_by(k: int) -> float:
        began.set()
        return original(k)

    def interrupted(*futures: Any, timeout: float) -> None:
        began.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "pass_by", pass_by)
    monkeypatch.setattr(emulation, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(work, made, threads=64)


def run(monkeypatch, *words: str) -> int:
    """The exit code of the command line."""
    monkeypatch.setattr(sys, "argv", ["pesto", "run", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("way", [SESSION, GRAPHDEF, FUNCTION])
def test_a_v1_loop_is_one_function_and_both_branches_run(tmp_path: Path, monkeypatch, way: str) -> None:
    """Of the loops, forward and backward, only the ops of the graph are left; nothing runs twice or not at all."""
    (tmp_path / "looped_step.py").write_text(GRAPH_FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    graph, step = planned_step(Source(function="looped_step:step"))
    assert graph.way == SESSION  # what the function gives is a v1 graph
    plan = api.solve(graph, cluster="cpux4", time_limit_s=0, solver="list")
    whole = api.simulate(plan, graph)
    predicted = emulation.predict_step(plan, graph, whole.cluster, whole.run.timeline, whole.run.rank)
    done = enforce_step(step, plan, way=way, order=True)
    assert done.trace.loops and len(done.trace.nodes.defs) > graph.ops
    work = build_work(done, predicted)
    ops = [op for op in work.op if op >= 0]
    assert len(ops) == len(set(ops)) and graph.ops - len(ops) <= 10  # copies of constants stand for the rest
    ran = emulation.run_work(work, predicted.timeline.makespan_s, EmulationOptions(way=way))
    assert (ran.start >= 0).all() and emulation.op_inversions(ran, done, predicted) == ()
    sys.modules.pop("looped_step", None)


def test_functions_that_a_graph_calls_are_placed_in_a_graphdef_alone() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 6], name="x")
        tf.reduce_sum(tf.function(lambda y: tf.tanh(y) * 2.0)(x), name="y")
    given = graph.as_graph_def(add_shapes=True)
    step = PlannedStep(captured=sources.capture_graph_def(given, ["y"], "test"), program=given)
    plan = api.solve(build_graph(step.captured, batch=None), cluster="cpux2", time_limit_s=0, solver="list")
    assert (step.meant(SESSION), step.meant(FUNCTION)) == (GRAPHDEF, FUNCTION)
    assert len(enforce_step(step, plan, way=GRAPHDEF, order=True).placement.graph.names) == len(plan.names)
    with pytest.raises(UsageError, match="which no session can place - emulate it as graphdef"):
        enforce_step(step, plan, way=SESSION, order=True)


def test_a_tf_function_from_the_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    """One JSON object, as a function because the source is one, and the ranking that was asked for."""
    (tmp_path / "emulated_step.py").write_text(FUNCTION_FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = tmp_path / "plan.json"
    graph = api.load_graph(function="emulated_step:step")
    save(api.solve(graph, cluster="cpux4", time_limit_s=0, solver="list"), plan)
    asked = [str(plan), "--function", "emulated_step:step", "--emulate", "--against", "single,random", "--json"]
    assert run(monkeypatch, *asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.keys() == KEYS and "an emulation" in said["emulation"] and "none about hardware" in said["emulation"]
    assert (said["as"], said["clock"], said["scale"]) == ("function", "nominal", None)
    assert abs(said["error"]) < 0.05 and said["op_inversions"] == 0
    assert [row["method"] for row in said["ranking"]] == ["plan", "single", "random"]
    assert run(monkeypatch, *asked[:-1]) == 0
    page = capsys.readouterr().out
    assert "an emulation" in page and "ranking" in page
    sys.modules.pop("emulated_step", None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--clock", "wall"], "--clock is for an emulation - add --emulate"),
        (["--as", "session"], "--as is for an emulation"),
        (["--against", "expert"], "--against is for an emulation"),
        (["--cluster", "v100x4"], "--cluster is for an emulation"),
        (["--emulate", "--steps", "3"], "--steps is for a run on this machine - leave it out"),
        (["--emulate", "--devices", "cpu"], "--devices is for a run"),
        (["--emulate", "--scale", "100"], "a scale is a positive number for the wall clock"),
        (["--emulate", "--clock", "wall", "--scale", "0"], "a scale is a positive number"),
        (["--emulate", "--clock", "wall", "--scale", "nan"], "a scale is a positive number"),
        (
            ["--emulate", "--clock", "wall", "--scale", "1e-320"],
            "a scale is a positive number for the wall clock, at least",
        ),
        (["--ties", "reached"], "--ties is for an emulation"),
        (["--emulate", "--clock", "wall", "--ties", "reached"], "ties are for the nominal clock"),
        (["--emulate", "--against", "nobody"], "no method is called 'nobody'"),
    ],
)
def test_options_that_do_not_go_together(
    stage, tmp_path: Path, monkeypatch, capsys, options: list[str], says: str
) -> None:
    save(stage[1], tmp_path / "plan.json")
    assert run(monkeypatch, str(tmp_path / "plan.json"), *options) == 2
    assert says in capsys.readouterr().err


def test_a_scale_at_which_it_would_take_hours(stage, laid: EnforcedStep) -> None:
    how = EmulationOptions(clock="wall", scale=1e7)
    with pytest.raises(UsageError, match="at most 600 s are emulated - give a scale below"):
        emulation.run_work(build_work(laid, stage[2]), stage[2].timeline.makespan_s, how)


def test_a_rival_that_is_too_long_at_the_scale_leaves_the_plan_its_result(
    stage, tmp_path: Path, monkeypatch, capsys
) -> None:
    """Its row says the scale that would do, with which it is emulated; the ranking is of those that were."""
    plan = stage[1]
    save(plan, tmp_path / "plan.json")
    most = 1.01 * plan.makespan_s * 500
    monkeypatch.setattr("pesto.tf.emulate.emulate_options.MOST_S", most)
    asked = [str(tmp_path / "plan.json"), "--emulate", "--clock", "wall", "--against", "random"]
    assert run(monkeypatch, *asked, "--scale", "500", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    mine, theirs = said["ranking"]
    assert said["emulated_step_s"] == mine["emulated_step_s"] > 0 and mine["why"] == ""
    assert theirs["emulated_step_s"] is None and theirs["predicted_step_s"] > 1.01 * plan.makespan_s
    would = float(theirs["why"].split("give a scale below ")[1].split(",")[0])
    assert would == pytest.approx(most / theirs["predicted_step_s"], rel=0.01)
    assert said["ranked_otherwise"] == []
    assert run(monkeypatch, *asked, "--scale", "500") == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "ms, not emulated: a step of" in page and f"give a scale below {would:g}, or leave it out" in page
    assert run(monkeypatch, *asked, "--scale", f"{0.99 * would:g}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ranking"][1]["emulated_step_s"] > 0


def test_more_than_sixteen_accelerators(stage) -> None:
    """16 GPUs and their host are emulated; one more is not."""
    sixteen = tuple(f"gpu:{k}" for k in range(16))
    check_size(replace(stage[1], lanes=("cpu:0", *sixteen), lane_device=("cpu:0", *sixteen)))
    more = ("cpu:0", *sixteen, "gpu:16")
    with pytest.raises(UsageError, match="17 devices, and an emulation has at most 16"):
        check_size(replace(stage[1], lanes=more, lane_device=more))
