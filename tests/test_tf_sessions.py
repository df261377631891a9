"""v1 programs by plans: where and in which order every op runs, and that not a bit of what they compute changes."""

import importlib.util
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pesto import api, flow, inputs
from pesto.errors import InputError
from pesto.plan import Plan
from pesto.settings import Settings
from pesto.tf.load import tensorflow

tf = tensorflow()
v1 = tf.compat.v1

from pesto.tf import sources  # noqa: E402  # after the quiet load

FETCHES = ["loss:0", "train"]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark's module, for its programs and random plans."""
    path = Path(__file__).parent.parent / "benchmarks" / "enforce_sessions.py"
    spec = importlib.util.spec_from_file_location("benchmark_enforce_sessions", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "cluster", "plans"),
    [
        ("rnnlm", "cpux2", 1), ("nmt", "cpux3", 1), ("transformer", "cpux4", 0), ("nasnet", "v100x2-nvlink", 0),
        ("mlp reference", "v100x4", 1), ("lstm resource", "cpux3", 1),
    ],
)  # fmt: skip
def test_a_program_computes_the_same_by_any_plan(benchmark: ModuleType, name: str, cluster: str, plans: int) -> None:
    """One solved plan and random ones: losses, variables, and checkpoints that go either way."""
    found = benchmark.compared(benchmark.case(name), cluster, plans, 2, every=1, limit_s=0)
    wanted = {"plans": plans + 1, "steps": 4 * (plans + 1), "moves": 0, "inversions": 0, "traced_plans": plans + 1}
    wanted |= dict.fromkeys(("losses_equal", "variables_equal", "checkpoints_equal"), True)
    assert "error" not in found and found | wanted == found
    assert found["verified_runs"] >= 4 * (plans + 1)  # initialiser or restore, and step, of both of a plan's sessions


def branching(kind: str, *, resource: bool, new: bool) -> Any:
    """A product, `kind` of control flow around another, a loss and its training op; x and `flag` are fed."""
    graph = tf.Graph()
    (v1.enable_control_flow_v2 if new else v1.disable_control_flow_v2)()
    with graph.as_default(), v1.variable_scope(v1.get_variable_scope(), use_resource=resource):
        v1.set_random_seed(1)
        x, flag = v1.placeholder(tf.float32, [4, 8], name="x"), v1.placeholder(tf.bool, [], name="flag")
        w, u = v1.get_variable("w", [8, 8]), v1.get_variable("u", [8, 8])
        y = BRANCHES[kind](x @ w, u, flag)
        loss = tf.reduce_mean(tf.square(y), name="loss")
        number = v1.train.get_or_create_global_step()
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=number, name="train")
        tf.group(v1.global_variables_initializer(), name="start")
    v1.enable_control_flow_v2()
    return graph


def loop(y: Any, u: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 5, lambda i, y: (i + 1, tf.tanh(y @ u)), (0, y))[1]


def updated(y: Any, u: Any, flag: Any, *, ordered: bool) -> Any:
    """A counter goes up in one branch; what comes after the conditional reads it, whether it waits for it or not."""
    resource = hasattr(u, "handle")
    count = v1.get_variable("count", [8, 8], initializer=v1.zeros_initializer(), use_resource=resource)

    def up() -> Any:
        change = count.assign_add(tf.ones([8, 8]), read_value=False) if resource else count.assign_add(tf.ones([8, 8]))
        with tf.control_dependencies([change]):
            return tf.constant(1.0)

    done = tf.cond(flag, up, lambda: tf.constant(0.0))
    with tf.control_dependencies([done] if ordered else []):
        seen = count.read_value() if resource else count + 0.0
    return tf.tanh(y @ u) * (1.0 + done) + tf.reduce_sum(seen)


BRANCHES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cond": lambda y, u, flag: tf.cond(flag, lambda: tf.tanh(y @ u) * 2.0, lambda: tf.sigmoid(y) + tf.reduce_sum(u)),
    "loop": lambda y, u, _: loop(y, u),
    "loop in cond": lambda y, u, flag: tf.cond(flag, lambda: loop(y, u), lambda: tf.sigmoid(y @ u)),
    "update": lambda y, u, flag: updated(y, u, flag, ordered=True),
    "unordered update": lambda y, u, flag: updated(y, u, flag, ordered=False),
}


def outcome(graph: Any, benchmark: ModuleType, target: str = "") -> list[bytes]:
    """Six losses, the branch taken in every second step, and all variables."""
    found = []
    with v1.Session(target, graph=graph, config=benchmark.config()) as session:
        session.run("start")
        for k in range(6):
            feed = {"x:0": np.random.default_rng(k).random((4, 8), np.float32), "flag:0": k % 2 == 1}
            found.append(session.run(FETCHES, feed)[0])
        found += session.run(graph.get_collection("variables"))
    return [np.asarray(value).tobytes() for value in found]


@pytest.fixture(scope="module")
def some_plan() -> Plan:
    """A plan to take the rest from."""
    graph = sources.from_v1(branching("cond", resource=True, new=True), FETCHES)
    return api.solve(graph, cluster="cpux3", time_limit_s=0)


@pytest.fixture
def plans(benchmark: ModuleType, some_plan: Plan) -> Callable[..., list[Plan]]:
    """Random plans of a program for three CPUs, in whose order `also` are edges too."""

    def make(program: Any, count: int, *also: tuple[str, str]) -> list[Plan]:
        graph, machine = sources.from_v1(program, FETCHES), inputs.load_cluster("cpux3")
        problem = flow.formulate(graph, inputs.load_costs(graph, machine, None), machine, Settings())
        for a, b in also:
            src, dst = np.append(problem.src, graph.names.index(a)), np.append(problem.dst, graph.names.index(b))
            problem = replace(problem, src=src, dst=dst, payload=np.append(problem.payload, -1))
        made = replace(some_plan.provenance, graph_fingerprint=graph.fingerprint(), graph_layout=graph.layout())
        template = replace(some_plan, names=graph.names, provenance=made)
        return [benchmark.random_plan(template, problem, np.random.default_rng(seed)) for seed in range(count)]

    return make


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("kind", [k for k in BRANCHES if k != "unordered update"])
def test_loops_and_branches_run_by_plans(
    benchmark: ModuleType, plans: Callable[..., list[Plan]], kind: str, new: bool, resource: bool
) -> None:
    """Loops run whole on their device, branches that are not taken kill nothing, and nothing else computes anew."""
    if kind == "update" and new and not resource:
        pytest.skip("TensorFlow hands no references into the functions of branches")
    program = branching(kind, resource=resource, new=new)
    wanted = outcome(program, benchmark)
    for plan in plans(program, 2):
        with api.apply(plan, trace=True) as applied:
            assert outcome(program, benchmark) == wanted
        assert len({d for f in applied.findings for d in f.moves + f.inversions}) == 0
        assert max(f.ops for f in applied.findings) > 20
    assert outcome(program, benchmark) == wanted


def test_what_an_update_in_a_branch_leaves_open_is_ordered_or_refused(
    benchmark: ModuleType, plans: Callable[..., list[Plan]]
) -> None:
    """A read after the conditional in program order alone: it waits for the Merge, or the plan is refused."""
    program = branching("unordered update", resource=True, new=False)
    wanted = outcome(branching("update", resource=True, new=False), benchmark)
    for plan in plans(program, 3, ("cond/Merge", "Read/ReadVariableOp")):
        with api.apply(plan, trace=True):
            assert outcome(program, benchmark) == wanted
    [early] = plans(program, 1, ("Read/ReadVariableOp", "cond/Merge"))
    with pytest.raises(InputError, match=r"updates in a branch.* - make it wait"), api.apply(early):
        outcome(program, benchmark)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_workers_run_by_a_plan(benchmark: ModuleType, plans: Callable[..., list[Plan]]) -> None:
    """Two workers behind one session, over loopback; a third, which the plan is mapped to next, does not exist."""
    threads = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    spec = {"worker": [free_address(), free_address()]}
    workers = [
        tf.distribute.Server(spec, job_name="worker", task_index=k, config=threads) for k in range(len(spec["worker"]))
    ]
    program = branching("loop in cond", resource=True, new=False)
    wanted = outcome(program, benchmark, workers[0].target)
    task = {f"cpu:{k}": f"/job:worker/task:{k % 2}/device:CPU:0" for k in range(3)}
    for plan in plans(program, 2):
        with api.apply(plan, devices=task, trace=True) as applied:
            assert outcome(program, benchmark, workers[0].target) == wanted
        assert max(f.ops for f in applied.findings) > 20
    gone = task | {"cpu:2": "/job:worker/task:2/device:CPU:0"}
    with pytest.raises(InputError, match=r"task:2.* does not have .* - plan for"), api.apply(plan, devices=gone):
        outcome(program, benchmark, workers[0].target)
