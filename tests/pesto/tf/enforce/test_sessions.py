"""v1 programs by plans: where and in which order every op runs, and that not a bit of what they compute changes."""

import gc
import importlib.util
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError, MismatchError, UsageError
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.inputs import load as inputs
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import formulate
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.apply_placement.placement import place_trace  # noqa: E402
from pesto.tf.nodes.needed_nodes import is_added_by_plan  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

FETCHES = ["loss:0", "train"]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark's module, for its programs and random plans."""
    path = Path(__file__).resolve().parents[4] / "benchmarks" / "enforce_sessions.py"
    spec = importlib.util.spec_from_file_location("benchmark_enforce_sessions", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "cluster", "plans"),
    [
        ("rnnlm", "cpux2", 1), ("nmt", "cpux3", 0), ("mlp reference", "v100x4", 0),
        *(pytest.param(*one, 0, marks=pytest.mark.slow) for one in
          (("transformer", "cpux4"), ("nasnet", "v100x2-nvlink"))),
        *(pytest.param(*one, 1, marks=pytest.mark.matrix) for one in
          (("nmt", "cpux3"), ("mlp reference", "v100x4"), ("lstm resource", "cpux3"))),
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
    return api.solve(graph, cluster="cpux3", time_limit_s=0, solver="list")


@pytest.fixture
def plans(benchmark: ModuleType, some_plan: Plan) -> Callable[..., list[Plan]]:
    """Random plans of a program for three CPUs, in whose order `also` are edges too."""

    def make(program: Any, count: int, *also: tuple[str, str], fetches: Sequence[str] = FETCHES) -> list[Plan]:
        graph, machine = sources.from_v1(program, list(fetches)), load_cluster("cpux3")
        problem = formulate(graph, inputs.load_costs(graph, machine, None), machine, Settings())
        for a, b in also:
            src, dst = np.append(problem.src, graph.names.index(a)), np.append(problem.dst, graph.names.index(b))
            problem = replace(problem, src=src, dst=dst, payload=np.append(problem.payload, -1))
        marks = {"graph_fingerprint": graph.fingerprint(), "graph_layout": graph.layout()}
        made = replace(some_plan.provenance, graph_listing=graph.listing(), **marks)
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


def pair(*, shared: bool = False, sizes: Sequence[int] = (8, 5), names: str = "ab", resource: bool = True) -> Any:
    """A training op `a/train` on one variable, `b/train` on another; `shared`, of one product that both need."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope(v1.get_variable_scope(), use_resource=resource):
        v1.set_random_seed(1)
        y = v1.placeholder(tf.float32, [4, 8], name="x")
        y = tf.tanh(y @ tf.reshape(tf.range(64.0) / 64, [8, 8])) if shared else y
        for name, size in zip(names, sizes, strict=True):
            with tf.name_scope(name):
                w = v1.get_variable(f"w{name}", [8, size])
                loss = tf.reduce_mean(tf.square(y @ w), name="loss")
                v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf.group(v1.global_variables_initializer(), name="start")
        v1.train.Saver()
    return graph


ONE, OTHER = ("a/loss:0", "a/train"), ("b/loss:0", "b/train")
X = {"x:0": np.arange(32, dtype=np.float32).reshape(4, 8) / 32}


def state(graph: Any) -> list[Any]:
    """All that plans change of a graph, but for nodes that nothing reads."""
    ops = [o for o in graph.get_operations() if not is_added_by_plan(o.name) or o.outputs[0].consumers()]
    return [(o.device, {*o.control_inputs}, {*map(str, o.node_def.attr.items())}) for o in ops]


def trained(graph: Any, config: Any, *steps: Sequence[str]) -> list[bytes]:
    """What each of the steps fetched, twice over, and the variables then."""
    with v1.Session(graph=graph, config=config) as session:
        session.run("start")
        found = [session.run(list(step), X)[0] for step in 2 * steps]
        found += session.run(graph.get_collection("variables"))
    return [np.asarray(value).tobytes() for value in found]


def test_two_training_ops_of_a_graph_run_by_two_plans(benchmark: ModuleType, plans: Callable[..., list[Plan]]) -> None:
    """By turns and in one run; every op of both is verified, and leaving takes both plans' edits back."""
    graph, settings = pair(), benchmark.config()
    both = [*ONE, *OTHER]
    wanted = trained(graph, settings, ONE, OTHER, both)
    before = state(graph)
    [one], [other] = (plans(graph, 1, fetches=step) for step in (ONE, OTHER))
    with api.apply(one, other, trace=True) as applied:
        assert trained(graph, settings, ONE, OTHER, both) == wanted
        placed = applied.sessions.placed[graph]
        assert [p.expected.placement.graph.names for p in placed] == [one.names, other.names]
        for p in placed:
            here = p.expected.placement
            devices = {here.device_of(i) for i, name in enumerate(here.graph.names) if name != "x"}
            assert {graph.get_operation_by_name(n).device for n in here.graph.names if n != "x"} == devices
    sizes = [f.ops for f in applied.findings]
    copied = [len({copy.constant for copy in p.expected.placement.copies}) for p in placed]
    for plan, most in zip((one, other), copied, strict=True):  # all but x, which is fed, and constants of which only
        assert any(len(plan.names) - 1 - most <= size < len(plan.names) for size in sizes)  # copies are read
    assert state(graph) == before


def test_plans_that_hold_the_same_op_are_refused(benchmark: ModuleType, plans: Callable[..., list[Plan]]) -> None:
    """A product that both steps need would have two places in an order; without, devices must agree."""
    graph = pair(shared=True)
    before = state(graph)
    [one], [other] = (plans(graph, 1, fetches=step) for step in (ONE, OTHER))
    here, there, elsewhere = everything(one, 0), everything(other, 0), everything(other, 1)
    for two, order in (((here, there), True), ((here, elsewhere), False)):
        with pytest.raises(UsageError, match=r"two plans .* hold op .* - fetch both"), api.apply(*two, order=order):
            trained(graph, benchmark.config(), ONE)
    assert state(graph) == before
    wanted = trained(graph, benchmark.config(), ONE, OTHER)
    with api.apply(here, there, order=False):
        assert trained(graph, benchmark.config(), ONE, OTHER) == wanted


def everything(plan: Plan, device: int) -> Plan:
    """The plan with all ops on one device."""
    return replace(plan, schedule=replace(plan.schedule, device=np.full(len(plan.names), device)))


def test_a_training_op_of_no_plan_is_refused_beside_one_that_has_a_plan(
    benchmark: ModuleType, plans: Callable[..., list[Plan]]
) -> None:
    graph = pair()
    [one] = plans(graph, 1, fetches=ONE)
    with api.apply(one):
        trained(graph, benchmark.config(), ONE)
        for step in (OTHER, [*ONE, *OTHER]):
            with pytest.raises(MismatchError, match=r"b/train/.* is in no plan .* - give a plan for each"):
                trained(graph, benchmark.config(), step)


@pytest.mark.parametrize("resource", [True, False])
def test_an_assignment_of_what_was_read_is_training(
    benchmark: ModuleType, plans: Callable[..., list[Plan]], resource: bool, tmp_path: Path
) -> None:
    """Descent by hand is refused without a plan; initialisers, restores and resets are not."""
    graph = pair(resource=resource)
    [one] = plans(graph, 1, fetches=ONE)
    with graph.as_default():
        w, fresh = graph.get_collection("trainable_variables")[1], v1.placeholder(tf.float32, [8, 5], name="fresh")
        by_hand = v1.assign(w, w - 0.1 * tf.gradients(graph.get_tensor_by_name("b/loss:0"), w)[0]).op
        resets = [v1.assign(w, fresh).op, v1.assign(w, tf.raw_ops.ZerosLike(x=w)).op, w.initializer]
    given = {**X, "fresh:0": np.ones((8, 5), np.float32)}
    with api.apply(one), v1.Session(graph=graph, config=benchmark.config()) as session:
        session.run("start")
        session.run("save/control_dependency:0", {"save/Const:0": str(tmp_path / "saved")})
        session.run("save/restore_all", {"save/Const:0": str(tmp_path / "saved")})
        for reset in resets:
            session.run(reset, given)
        with pytest.raises(MismatchError, match="trains a variable"):
            session.run(by_hand, given)


def test_an_update_in_a_branch_is_training(benchmark: ModuleType, plans: Callable[..., list[Plan]]) -> None:
    """The variable goes into the branch through a Switch."""
    v1.disable_control_flow_v2()
    try:
        graph = pair()
        [one] = plans(graph, 1, fetches=ONE)
        with graph.as_default():
            w = graph.get_collection("trainable_variables")[1]
            tf.cond(tf.constant(True), lambda: w.assign_sub(w * 0.1), w.read_value, name="maybe")
    finally:
        v1.enable_control_flow_v2()
    with api.apply(one), v1.Session(graph=graph, config=benchmark.config()) as session:
        session.run("start")
        with pytest.raises(MismatchError, match="trains a variable"):
            session.run("maybe/Merge:0")


def test_plans_of_one_program_at_two_sizes_are_told_apart(
    benchmark: ModuleType, plans: Callable[..., list[Plan]]
) -> None:
    """They have the same names; whichever is given first, each graph runs by its own, and a third size is refused."""
    programs = [pair(sizes=(size, 5)) for size in (8, 16)]
    made = [plans(program, 1, fetches=ONE)[0] for program in programs]
    assert made[0].names == made[1].names
    for some in (made, made[::-1]):
        with api.apply(*some) as applied:
            for program, own in zip(programs, made, strict=True):
                trained(program, benchmark.config(), ONE)
                [placed] = applied.sessions.placed[program]
                assert placed.expected.placement.graph.fingerprint() == own.provenance.graph_fingerprint
    with pytest.raises(MismatchError, match="plan this step"), api.apply(*made):
        trained(pair(sizes=(7, 5)), benchmark.config(), ONE)


def test_sessions_forget_the_context(benchmark: ModuleType, plans: Callable[..., list[Plan]]) -> None:
    """One that stays open has its make_callable again, and one that is dropped is freed, also before the end."""
    graph = pair()
    [one] = plans(graph, 1, fetches=ONE)
    with api.apply(one) as applied:
        kept, dropped = (v1.Session(graph=graph, config=benchmark.config()) for _ in range(2))
        for session in (kept, dropped):
            session.run("start")
            session.run(list(ONE), X)
        with pytest.raises(UsageError, match="make_callable"):
            kept.make_callable(graph.get_operation_by_name("a/train"))
        watched = weakref.ref(dropped)
        dropped.close()
        del dropped, session
        gc.collect()
        assert watched() is None
    assert applied.findings
    kept.make_callable(graph.get_tensor_by_name("a/loss:0"), ["x:0"])(X["x:0"])
    kept.close()


def test_names_that_went_to_a_twin_of_another_size_do_not_count(plans: Callable[..., list[Plan]]) -> None:
    """Two like rows of ops of 8 and 5 columns whose names are exchanged: by the index, sizes go where they were."""
    was, now = pair(), pair(names="ba")
    fetches = [*ONE, *OTHER], [*OTHER, *ONE]
    old, new = sources.from_v1(was, fetches[0]), sources.from_v1(now, fetches[1])
    assert set(old.names) == set(new.names) and old.names != new.names
    assert (old.fingerprint(), old.layout(), old.listing()) == (new.fingerprint(), new.layout(), new.listing())
    by_name = np.array([new.names.index(name) for name in old.names])
    assert new.layout(by_name) == old.layout()  # what the names alone would have passed by
    for plan in plans(was, 5, fetches=fetches[0]):
        placement = place_trace(plan, new, {f"cpu:{k}": f"/device:CPU:{k}" for k in range(3)})
        wanted = [name.replace("cpu", "/device:CPU") for name in plan.device_names()]
        assert [placement.device_of(i) for i in range(new.ops)] == wanted
