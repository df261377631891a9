"""What v1 programs are refused under a plan, with the remedy; and that nothing stays changed, whatever happened."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError, MismatchError, PestoError, UsageError, VerificationError
from pesto.core.plans.plan import Plan
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from tensorflow.core.protobuf import config_pb2  # noqa: E402

from pesto.tf.nodes.needed_nodes import is_added_by_plan  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
FETCHES = ["loss:0", "train"]
BATCH = {"x:0": np.arange(12, dtype=np.float32).reshape(3, 4) / 12, "y:0": np.ones((3, 1), np.float32)}
SESSION = v1.Session.__mro__[1]


def perceptron(*, scope: str = "", wide: int = 5) -> Any:
    """Two layers, Adam with a global step, a table of one row, summaries, an initialiser and a saver."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope(v1.get_variable_scope(), use_resource=False):
        v1.set_random_seed(1)
        x, y = v1.placeholder(tf.float32, [3, 4], name="x"), v1.placeholder(tf.float32, [3, 1], name="y")
        with tf.name_scope(scope or "net"):
            hidden = tf.tanh(x @ v1.get_variable("w1", [4, wide]), name="hidden")
            out = tf.matmul(tf.nn.dropout(hidden, rate=0.5, seed=2), v1.get_variable("w2", [wide, 1]), name="out")
        loss = tf.reduce_mean(tf.exp(-y, name="weight") * tf.square(out - y), name="loss")
        v1.summary.scalar("report", loss)
        v1.summary.merge_all(name="summaries")
        v1.train.AdamOptimizer(0.1).minimize(loss, global_step=v1.train.get_or_create_global_step(), name="train")
        tf.group(v1.global_variables_initializer(), name="start")
        v1.train.Saver()
    return graph


def normal(graph: Any) -> list[bytes]:
    """The graph's nodes in full, up to the order of control inputs, and but for what plans added and nothing reads."""
    nodes = list(graph.as_graph_def().node)
    read = {text.strip("^").partition(":")[0] for node in nodes for text in node.input}
    nodes = [node for node in nodes if not is_added_by_plan(node.name) or node.name in read]
    for node in nodes:
        node.input[:] = [i for i in node.input if i[0] != "^"] + sorted(i for i in node.input if i[0] == "^")
    return [node.SerializeToString(deterministic=True) for node in nodes]


def config(**others: Any) -> Any:
    made = v1.ConfigProto(intra_op_parallelism_threads=1, **others)
    made.graph_options.rewrite_options.disable_meta_optimizer = True
    return made


def run(graph: Any, fetches: Any = FETCHES, feed: dict[str, Any] | None = None, *, steps: int = 2) -> list[Any]:
    """What a plain program gets from the last of two steps in a session of its own."""
    with v1.Session(graph=graph, config=config()) as session:
        session.run("start")
        for _ in range(steps):
            found = session.run(fetches, BATCH if feed is None else feed)
    return found


@pytest.fixture(scope="module")
def plan() -> Plan:
    """On two logical CPUs, by turns; only the order is the solver's."""
    graph = sources.from_v1(perceptron(), FETCHES)
    solved = api.solve(graph, cluster="cpux2", time_limit_s=0, solver="list")
    device = np.where(graph.group >= 0, graph.group, np.arange(graph.ops)) % 2
    return replace(solved, schedule=replace(solved.schedule, device=device))


def late_loss(plan: Plan) -> Plan:
    """The plan with all on one device, and `loss` and `net/out`, which leads to it, as late as the edges allow."""
    graph = sources.from_v1(perceptron(), FETCHES)
    held = {graph.names.index(name) for name in ("loss", "net/out")}
    waiting = np.bincount(graph.edge_dst, minlength=graph.ops)
    order: list[int] = []
    while len(order) < graph.ops:
        ready = [i for i in np.flatnonzero(waiting == 0).tolist() if i not in order]
        order.append(min(ready, key=lambda i: (i in held, i)))
        np.subtract.at(waiting, graph.edge_dst[graph.edge_src == order[-1]], 1)
    rank = np.empty(graph.ops, dtype=np.int64)
    rank[order] = np.arange(graph.ops)
    return replace(plan, rank=rank, schedule=replace(plan.schedule, device=np.zeros(graph.ops, dtype=np.int64)))


def refused(
    kind: type[PestoError], words: str, graph: Any, plan: Plan, program: Callable[[Any], Any] = run, **how: Any
) -> None:
    """`program` is refused for this reason, with a remedy, and leaves graph and hooks as they were."""
    before, methods = normal(graph), dict(vars(SESSION))
    with pytest.raises(kind, match=words) as caught, api.apply(plan, **how):
        program(graph)
    assert type(caught.value) is kind and " - " in str(caught.value)
    assert normal(graph) == before and dict(vars(SESSION)) == methods
    assert np.isfinite(run(graph)[0])


def test_plans_of_other_graphs_are_refused(plan: Plan) -> None:
    """Another size has the names but another fingerprint; another trace has other names; a third has neither."""
    refused(MismatchError, "ops\\), this step is .* - plan this step", perceptron(wide=6), plan)
    refused(MismatchError, "lacks .* such as net/.* - plan this one", perceptron(scope="net_1"), plan)


def twins(*, swapped: bool) -> Any:
    """Two rows of ops, each on a variable; swapped, each row has the names of the other and they are made in turns."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope(v1.get_variable_scope(), use_resource=True):
        rows = [_row(name, f) for name, f in zip("ba" if swapped else "ab", (tf.sin, tf.cos), strict=True)]
        for row in rows:
            next(row) if swapped else list(row)
        for row in rows:
            list(row)
        tf.group(*(graph.get_operation_by_name(f"update_{name}") for name in "ab"), name="train")
        tf.group(v1.global_variables_initializer(), name="start")
    return graph


def _row(name: str, function: Callable[..., Any]) -> Iterator[None]:
    w = v1.get_variable(f"w{name}", [4], initializer=v1.ones_initializer())
    read = tf.raw_ops.ReadVariableOp(resource=w.handle, dtype=tf.float32, name=f"read_{name}")
    yield
    tf.raw_ops.AssignAddVariableOp(resource=w.handle, value=function(read, name=name), name=f"update_{name}")


def test_names_that_stand_for_other_ops_now_are_refused() -> None:
    """The fingerprint does not see how ops are listed; here neither names nor places tell which op is which."""
    old, new = twins(swapped=False), twins(swapped=True)
    was, now = sources.from_v1(old, ["train"]), sources.from_v1(new, ["train"])
    assert set(was.names) == set(now.names) and was.fingerprint() == now.fingerprint()
    plan = api.solve(was, cluster="cpux2", time_limit_s=0, solver="list")
    before = normal(new)
    with pytest.raises(MismatchError, match=r"older trace .* - plan this trace"), api.apply(plan):
        run(new, ["train"], {})
    assert normal(new) == before and run(new, ["wa:0"], {})
    with api.apply(plan):
        run(old, ["train"], {})


def test_devices_that_are_not_there_are_refused(plan: Plan) -> None:
    """GPUs on a machine without; another job's CPU; a mapping with a gap; names that say nothing."""
    graph = perceptron()
    gpus = api.solve(sources.from_v1(graph, FETCHES), cluster="v100x2-nvlink", time_limit_s=0, solver="list")
    if not tf.config.list_physical_devices("GPU"):
        refused(InputError, "/device:GPU:.*, which this program does not have .* - plan for", graph, gpus)
    cpus = {"cpu:0": "/device:CPU:0"}
    elsewhere = cpus | {"cpu:1": "/job:worker/task:1/device:CPU:7"}
    refused(InputError, "cpu:1 is /job:worker.* does not have", graph, plan, devices=elsewhere)
    refused(UsageError, "'cpu:1' has no entry - map each", graph, plan, devices=cpus)
    for wrong in ("gpu one", "/device:CPU", "/job:worker"):
        refused(UsageError, "devices: ", graph, plan, devices=cpus | {"cpu:1": wrong})
    refused(UsageError, "is not known - give 'cpu'", graph, plan, devices="tpu")
    unnamed = replace(plan, lane_device=("left", "right"))
    refused(UsageError, "does not say which .* - give devices=", graph, unnamed)


def test_a_mapping_to_any_logical_cpu_runs_there(plan: Plan) -> None:
    """A v1 session makes as many logical CPUs as the mapping names."""
    graph = perceptron()
    wanted = run(graph)
    with api.apply(plan, devices={"cpu:0": "/device:CPU:3", "cpu:1": "/device:CPU:7"}, trace=True) as applied:
        assert run(graph)[0] == wanted[0]
        used = {graph.get_operation_by_name(name).device for name in plan.names}
        assert used == {"", "/device:CPU:3", "/device:CPU:7"}  # feeds have none
    assert applied.ops > 80


def test_plans_that_cannot_be_right_are_refused(plan: Plan) -> None:
    """A variable's ops on two devices, and an order against an edge; a file of an older version."""
    graph = perceptron()
    traced = sources.from_v1(graph, FETCHES)
    device = plan.schedule.device.copy()
    torn = graph_index(plan, "net/w1/Adam" if "net/w1/Adam" in plan.names else "w1/Adam")
    assert traced.group[torn] >= 0
    device[torn] = 1 - device[torn]
    split = replace(plan, schedule=replace(plan.schedule, device=device))
    refused(VerificationError, "splits a resource edge: .* - keep groups whole", graph, split)
    a, b = graph_index(plan, "net/hidden"), graph_index(plan, "net/out")
    rank = plan.rank.copy()
    rank[[a, b]] = rank[[b, a]]
    refused(VerificationError, "ranks op .* before .*, which it needs", graph, replace(plan, rank=rank))
    older = replace(plan, provenance=replace(plan.provenance, graph_layout=""))
    refused(InputError, "older version.* - solve again", graph, older)


def graph_index(plan: Plan, name: str) -> int:
    return plan.names.index(name)


def test_settings_that_void_a_plan_are_refused(plan: Plan) -> None:
    soft, fused = config(allow_soft_placement=True), config()
    fused.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
    graph = perceptron()
    refused(
        InputError, "allow_soft_placement=True.* - leave it", graph, plan, lambda g: v1.Session(graph=g, config=soft)
    )
    refused(InputError, "XLA's automatic .* - leave it", graph, plan, lambda g: v1.Session(graph=g, config=fused))


def test_sessions_from_before_do_not_train(plan: Plan) -> None:
    """TensorFlow would ignore the edits of their graph; whether the plan is for it or nothing is."""
    for scope, kind, words in (
        ("", UsageError, "opened before .* - open it"),
        ("other", MismatchError, "lacks .* - plan"),
    ):
        graph = perceptron(scope=scope)
        with v1.Session(graph=graph, config=config()) as session:
            session.run("start")
            refused(kind, words, graph, plan, lambda _, session=session: session.run(FETCHES, BATCH))
            assert np.isfinite(session.run(FETCHES, BATCH)[0])


def test_a_session_on_a_graph_that_is_built_later_does_not_train(plan: Plan) -> None:
    """It was opened inside, but with nothing in its graph to edit."""
    graph = tf.Graph()
    late = r"before its graph was complete.* - open it"
    with (
        pytest.raises(UsageError, match=late),
        api.apply(plan),
        v1.Session(graph=graph, config=config()) as session,
    ):
        with graph.as_default():
            tf.import_graph_def(perceptron().as_graph_def(), name="")
        graph.add_to_collection(v1.GraphKeys.TRAINABLE_VARIABLES, Named(graph.get_operation_by_name("w1")))
        session.run("start")
        session.run(FETCHES, BATCH)


@dataclass(frozen=True)
class Named:
    """What a collection of variables is read for."""

    op: Any


def test_an_evaluation_graph_of_its_own_runs_inside(plan: Plan) -> None:
    """Only what trains needs a plan: another graph with variables is initialised and read as ever."""
    other = perceptron(scope="other")
    with api.apply(plan), v1.Session(graph=perceptron(), config=config()) as session:
        session.run("start")
        session.run(FETCHES, BATCH)
        with v1.Session(graph=other, config=config()) as evaluation:
            evaluation.run("start")
            assert np.isfinite(evaluation.run("loss:0", BATCH))
            with pytest.raises(MismatchError, match=r"trains a variable, but the graph lacks .* - plan this one"):
                evaluation.run(FETCHES, BATCH)


def test_ops_in_functions_of_a_v1_graph_are_refused_with_the_way_out(plan: Plan) -> None:
    """A session cannot place what lies in a function; a GraphDef can be rewritten."""
    graph = perceptron(scope="other")
    with graph.as_default():
        tf.function(lambda v: v + 1.0)(tf.constant(1.0))
    refused(MismatchError, "inside tf.functions .* - use pesto.rewrite", graph, plan)


def test_runs_that_cannot_be_watched_are_refused(plan: Plan) -> None:
    def partial(graph: Any) -> None:
        with v1.Session(graph=graph, config=config()) as session:
            session.run("start")
            handle = session.partial_run_setup(
                [graph.get_tensor_by_name("loss:0")], list(map(graph.get_tensor_by_name, BATCH))
            )
            session.partial_run(handle, "loss:0", BATCH)

    def callables(feeds: list[Any] | None) -> Callable[[Any], None]:
        def program(graph: Any) -> None:
            with v1.Session(graph=graph, config=config()) as session:
                session.run("start")
                session.make_callable(graph.get_operation_by_name("train"), feeds)

        return program

    def low(graph: Any) -> None:
        with v1.Session(graph=graph, config=config()) as session:
            session._make_callable_from_options(config_pb2.CallableOptions(target=["train"]))

    graph = perceptron()
    refused(UsageError, "partial_run .* - use session.run", graph, plan, partial)
    for program in (callables(None), callables([]), low):
        refused(UsageError, "make_callable .* - use session.run", graph, plan, program)


def test_a_callable_beside_the_step_is_allowed(plan: Plan) -> None:
    """Queue runners make one of what they enqueue; it runs nothing of the ordered step."""
    graph = perceptron()
    with graph.as_default():
        queue = v1.FIFOQueue(4, [tf.float32])
        enqueue, size = queue.enqueue(tf.constant(1.0)), queue.size()
    with api.apply(plan), v1.Session(graph=graph, config=config()) as session:
        session.run("start")
        session.make_callable(enqueue)()
        session.run(FETCHES, BATCH)
        assert session.run(size) == 1
        for refused_one in ("train", "summaries/summaries:0"):
            with pytest.raises(UsageError, match="make_callable"):
                session.make_callable(refused_one)
    assert "make_callable" not in vars(session)


def test_contexts_that_apply_nothing_or_twice_are_refused(plan: Plan) -> None:
    graph = perceptron()
    refused(MismatchError, "nothing ran by the plan .* - put the training inside", graph, plan, lambda _: None)

    def nested(_: Any) -> None:
        with api.apply(plan):
            pass

    refused(UsageError, "being applied already - give all plans to one", graph, plan, nested)
    with pytest.raises(UsageError, match="no plan is given - give one"), api.apply():
        pass


def test_parts_of_a_step_that_would_change_state_are_refused(plan: Plan) -> None:
    """The loss alone, when the order puts updates in front of it; an output that needs no labels, when they are."""
    late, graph = late_loss(plan), perceptron()
    refused(UsageError, "fetching loss .* - fetch it together", graph, late, lambda g: run(g, ["loss:0"]))
    without = {"x:0": BATCH["x:0"]}
    hidden = run(graph, "net/hidden:0", without)
    refused(UsageError, "fetching net/out .* state or feeds", graph, late, lambda g: run(g, ["net/out:0"], without))
    with api.apply(plan, order=False):
        assert np.array_equal(run(graph, "net/hidden:0", without), hidden)


def test_harmless_parts_of_a_step_run(plan: Plan) -> None:
    """The number of the step and variables by themselves, summaries and gradients with the step."""
    graph, late = perceptron(), late_loss(plan)
    reads = ["global_step:0", "w1:0", "w2/read:0", "beta1_power:0", "w1/Adam:0"]
    together = [*FETCHES, "summaries/summaries:0", "net/hidden:0"]
    wanted = {}
    for under in (None, plan, late):
        with (
            api.apply(under, trace=True) if under else nullcontext(),
            v1.Session(graph=graph, config=config()) as session,
        ):
            session.run("start")
            found = [session.run(together, BATCH) for _ in range(2)] + [
                session.run(reads),
                session.run("global_step:0"),
            ]
        values = [np.asarray(v).tobytes() for row in found for v in (row if isinstance(row, list) else [row])]
        assert values == wanted.setdefault("values", values)


def test_what_the_step_computes_cannot_be_fed(plan: Plan) -> None:
    """It would take a link out of a chain. Without order, and for what has no place in a chain, it can."""
    graph = perceptron()
    feed = {"net/hidden:0": np.ones((3, 5), np.float32) / 3, **BATCH}
    refused(UsageError, "feeding net/hidden, .* - feed", graph, plan, lambda g: run(g, FETCHES, feed))
    rate = {"train/learning_rate:0": np.float32(0.5), **BATCH}
    wanted = run(graph, FETCHES, feed), run(graph, FETCHES, rate)
    with api.apply(plan, order=False):
        assert run(graph, FETCHES, feed) == wanted[0]
    with api.apply(plan, trace=True):
        assert run(graph, FETCHES, rate) == wanted[1]
    assert wanted[0] != wanted[1] != run(graph)


def test_leaving_undoes_every_edit(plan: Plan) -> None:
    """Devices, control inputs and `_class` of each op are as before, whether the body ended well or not."""
    graph = perceptron()
    before, wanted = normal(graph), run(graph)
    with api.apply(plan):
        run(graph)
        assert normal(graph) != before
    assert normal(graph) == before and run(graph) == wanted
    with pytest.raises(ZeroDivisionError), api.apply(plan):
        run(graph)
        raise ZeroDivisionError
    assert normal(graph) == before and run(graph) == wanted


def test_edits_that_fail_midway_are_undone(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = perceptron()

    def fail(*_: Any) -> None:
        raise InputError("cannot clear - try again")

    monkeypatch.setattr("pesto.tf.private.clear_attr", fail)
    refused(InputError, "cannot clear", graph, plan)


def test_the_signature_that_a_plan_is_for_is_refused_when_it_is_called(tmp_path: Path) -> None:
    """It was traced when it was exported. Another one is left alone, and that nothing ran is said at the end."""
    module = tf.Module()
    module.w = tf.Variable(tf.ones([3, 3]))
    asked = {"input_signature": [tf.TensorSpec([4, 3])]}
    signatures = {
        "serving_default": tf.function(lambda x: {"y": tf.nn.relu(x @ module.w)}, **asked),
        "other": tf.function(lambda x: {"y": x + 1.0}, **asked),
    }
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    plan = api.solve(api.load_graph(saved_model=tmp_path), cluster="cpux2", solver="list", time_limit_s=0)
    loaded = tf.saved_model.load(str(tmp_path))
    after: list[str] = []
    with pytest.raises(UsageError, match=r"is the signature that the plan .* is for"), api.apply(plan):
        loaded.signatures["serving_default"](tf.ones([4, 3]))
        after.append("ran")
    assert not after
    with pytest.raises(MismatchError, match="nothing ran by the plan"), api.apply(plan):
        assert loaded.signatures["other"](tf.ones([4, 3]))["y"].shape == [4, 3]
