"""What the graph says of ops that have no place in the order is what enforcement finds in the program."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pesto.core.graph import BOUND, BRANCHED, FREE, FUNCTION, SESSION, SHARED, Graph
from pesto.core.plans.execution_modes import EXECUTION_MODES, GRAPHDEF, relayed_edges, unordered_ops
from pesto.core.plans.plan import Plan
from pesto.core.problem import build_problem
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api
from solvers.arrays import Bools

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import models  # noqa: E402
from pesto.tf.apply_placement.placement import (  # noqa: E402
    StepTrace,
    find_unchained_ops,
    place_with_relays,
    trace_step,
)
from pesto.tf.apply_placement.targets import device_targets  # noqa: E402
from pesto.tf.nodes.captured import CapturedStep  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def model(name: str) -> CapturedStep:
    step = models.build(name, "tiny", None)
    return sources.capture_v1(step.graph, step.fetches, source=name)


def with_branches() -> CapturedStep:
    """A v1 program with reference variables, a conditional of Switches, a loop, an initialiser and a report."""
    was = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with v1.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [64, 64], name="x")
            w = v1.get_variable("w", [64, 64], use_resource=False)
            rate = v1.get_variable("rate", [], use_resource=False)
            steps = v1.get_variable("steps", [], dtype=tf.int64, use_resource=True)
            y = tf.matmul(x, w)
            z = v1.cond(tf.reduce_sum(y) > 0, lambda: tf.matmul(y, w), lambda: tf.tanh(y) + 1.0)
            v = v1.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, tf.matmul(a, w)), [0, z])[1]
            done = [v1.assign_sub(w, rate * tf.matmul(x, v)), v1.assign_add(steps, 1)]
            train = tf.group(*done, name="train")
            tf.identity(rate, name="report")
            v1.global_variables_initializer()
        return sources.capture_v1(graph, [train], source="branches")
    finally:
        if was:
            v1.enable_control_flow_v2()


def function() -> CapturedStep:
    """Two towers with arguments and an optimizer written out, as a tf.function."""
    weights = [tf.Variable(tf.ones([32, 32]), name=f"w{k}") for k in range(4)]
    steps = tf.Variable(0, dtype=tf.int64, name="steps")

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            one = tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, weights[0])), weights[1]))
            two = tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, weights[2])), weights[3]))
            loss = tf.reduce_mean((one + two - y) ** 2)
        for w, g in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(0.1 * g)
        steps.assign_add(1)
        return loss, tf.shape(x), tf.constant(3.0)

    spec = tf.TensorSpec([None, 32])
    return sources.capture_function(step, spec, spec)


PROGRAMS = {"branches": with_branches, "function": function}


def captured(name: str) -> CapturedStep:
    return PROGRAMS[name]() if name in PROGRAMS else model(name)


def random_plans(graph: Graph, count: int) -> Iterator[Plan]:
    """Every group somewhere at random on three devices."""
    plan = api.solve(graph, cluster="cpux3", time_limit_s=0, solver="list")
    rng = np.random.default_rng(5)
    for _ in range(count):
        device, home = rng.integers(0, 3, (2, graph.ops))
        device[graph.group >= 0] = home[graph.group[graph.group >= 0]]
        yield replace(plan, schedule=replace(plan.schedule, device=device))


def enforced(plan: Plan, given: CapturedStep, step: StepTrace, way: str) -> tuple[Bools, set[tuple[str, int]]]:
    """[n] by the plan's index: ops that have no place in a chain; and those that a relay sends for, to which device."""
    out = None if way == FUNCTION else find_unchained_ops(given.graph_def, step)
    placement = place_with_relays(plan, step, device_targets(plan, "cpu"), out)
    found = np.empty(len(plan.names), dtype=np.bool_)
    found[placement.planned] = ~placement.chained
    op = {node.name: op for node, op in zip(step.nodes.defs, step.op_of_node, strict=True)}
    relays = [relay for relay in placement.relays if not placement.chained[relay.op]]
    passed = {(step.graph.names[r.op], int(placement.device[op[name]])) for r in relays for name in r.readers}
    return found, passed


def modelled(graph: Graph, plan: Plan, way: str) -> tuple[Bools, set[tuple[str, int]]]:
    """The same as `pesto.core.plans.execution_modes` has it."""
    cluster = load_cluster("cpux3")
    problem = build_problem(graph, load_costs(graph, cluster, None), cluster, memory=graph.param_bytes)
    sent = relayed_edges(graph, problem, plan.schedule.device, way)
    pairs = zip(problem.src[sent].tolist(), plan.schedule.device[problem.dst[sent]].tolist(), strict=True)
    return unordered_ops(graph, way), {(graph.names[op], device) for op, device in pairs}


@pytest.mark.parametrize(
    "name", ["rnnlm", "nmt", "transformer", pytest.param("nasnet", marks=pytest.mark.slow), *PROGRAMS]
)
def test_what_is_outside_is_what_enforcement_leaves_outside(name: str) -> None:
    """Of every way, whatever the placement; and so is what they send at a place in the order."""
    given = captured(name)
    step = trace_step(given, 8 if name == "function" else None)
    graph = step.graph
    passed = 0
    for plan in random_plans(graph, 3):
        for way in (SESSION, GRAPHDEF, FUNCTION):
            mine, through = modelled(graph, plan, way)
            if way == FUNCTION and name == "branches":
                continue  # no tf.function has branches of v1
            theirs, relays = enforced(plan, given, step, way)
            assert (mine == theirs).all(), [graph.names[i] for i in np.flatnonzero(mine != theirs)]
            assert through == relays
            assert 0 < mine.sum() < graph.ops
            passed += len(relays)
        assert unordered_ops(graph, EXECUTION_MODES[-1]).all()
    assert passed > 0


def test_why_an_op_is_outside() -> None:
    """Switches, branches and references let nothing stand for them; steps, rates and what init reads are shared."""
    graph = trace_step(captured("branches"), None).graph
    of = dict(zip(graph.names, graph.loose.tolist(), strict=True))
    assert (of["x"], of["w"], of["steps"], of["MatMul"]) == (FREE, BRANCHED, FREE, BOUND)
    assert of["cond/MatMul"] == of["cond/Tanh"] == of["cond/MatMul/Switch"] == BRANCHED
    assert (of["cond/Merge"], of["train"], of["rate/read"]) == (BOUND, BOUND, SHARED)
    assert graph.way == SESSION
    assert trace_step(captured("function"), 8).graph.way == FUNCTION


def test_what_a_step_draws_has_a_place_in_its_order() -> None:
    """However small, since it starts a kernel in every step; what other programs read has none."""
    with v1.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 8], name="x")
        kept = tf.random.uniform([4, 1], name="kept")
        begun = tf.random.uniform([4, 1], name="begun")
        w = v1.get_variable("w", initializer=begun)
        out = tf.reduce_sum(x * kept * w * begun)
    step = trace_step(sources.capture_v1(graph, [out], source="drawn"), None).graph
    of = dict(zip(step.names, step.loose.tolist(), strict=True))
    assert (of["kept/RandomUniform"], of["begun/RandomUniform"]) == (BOUND, SHARED)
