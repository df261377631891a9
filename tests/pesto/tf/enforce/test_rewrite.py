"""A plan written into a GraphDef: another program runs it, bit for bit, where and in the order that was planned."""

import functools
import heapq
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from pesto.cli.main import main
from pesto.core.errors import InputError, MismatchError, UsageError, VerificationError
from pesto.core.plans.plan import Plan
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.apply_placement.placement import trace_step  # noqa: E402
from pesto.tf.apply_placement.targets import ApplyOptions  # noqa: E402
from pesto.tf.enforce import rewrite  # noqa: E402
from pesto.tf.enforce.partitions import ExpectedPlacement  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

ROWS, COLUMNS = 6, 5


def dense(x: Any, name: str, *, ref: bool = False) -> Any:
    w = v1.get_variable(name, [COLUMNS, COLUMNS], use_resource=not ref)
    return tf.tanh(x @ w)


def resources(x: Any) -> Any:
    return v1.nn.dropout(dense(dense(x, "a"), "b"), rate=0.5)


def references(x: Any) -> Any:
    return dense(dense(x, "a", ref=True), "b", ref=True)


def loop(x: Any) -> Any:
    w = v1.get_variable("w", [COLUMNS, COLUMNS], use_resource=True)
    return dense(tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y @ w)), [0, x])[1], "b")


def branches(x: Any) -> Any:
    a, b = dense(x, "a"), dense(x, "b")
    return tf.cond(tf.reduce_sum(x) > 12.0, lambda: a * 2.0, lambda: b + a)


def calls(x: Any) -> Any:
    inner = tf.function(lambda y: tf.tanh(y) * 2.0)
    return dense(tf.function(lambda y: inner(y) + inner(y * 0.5))(dense(x, "a")), "b")


def elsewhere(x: Any) -> Any:
    """Its variables, and what initialises and saves them, ask for devices that the plan may not choose."""
    with tf.device("/device:CPU:2"):
        a = dense(x, "a")
    with tf.device("/device:CPU:1"):
        return dense(a, "b", ref=True)


def barrier(x: Any) -> Any:
    """What passes one IdentityN is no more tied together by it, nor by a second behind it."""
    pair = tf.raw_ops.IdentityN(input=[dense(x, "a"), dense(x, "b")])
    with tf.control_dependencies([pair[0].op]):
        late = tf.raw_ops.IdentityN(input=[pair[1], x])
    first, second = tf.raw_ops.IdentityN(input=[tf.identity(pair[0]), late[0]])
    return first + second


PROGRAMS = {f.__name__: f for f in (resources, references, loop, branches, calls, elsewhere, barrier)}


@dataclass(frozen=True, eq=False)
class Program:
    graph_def: Any
    plan: Plan
    """Of the graph in memory."""
    problem: Any


@functools.cache
def program(name: str) -> Program:
    """A v1 training program with initialiser, saver and a report, and a plan for three CPUs."""
    graph = tf.Graph()
    with graph.as_default():
        v1.disable_control_flow_v2()
        v1.set_random_seed(3)
        x = v1.placeholder(tf.float32, [ROWS, COLUMNS], name="x")
        loss = tf.reduce_mean(tf.square(PROGRAMS[name](x) - x), name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train", colocate_gradients_with_ops=True)
        v1.summary.scalar("report", loss)
        v1.train.Saver()
        v1.global_variables_initializer()
        v1.enable_control_flow_v2()
    from pesto.core.settings import Settings
    from pesto.inputs import load as inputs
    from pesto.inputs.cluster_file import load_cluster
    from pesto.planning.solving.candidates import formulate

    step = sources.from_v1(graph, ["train", "loss"])
    cluster = load_cluster("cpux3")
    problem = formulate(step, inputs.load_costs(step, cluster, None), cluster, Settings())
    # Without add_shapes the shapes of what a loop's gradient remembers are lost.
    plan = api.solve(step, cluster="cpux3", time_limit_s=0, solver="list")
    return Program(graph.as_graph_def(add_shapes=name == "loop"), plan, problem)


def scattered(name: str, seed: int) -> Plan:
    """A valid plan at random: any device for each group, any topological order."""
    from pesto.core.simulator import simulate

    made, rng = program(name), np.random.default_rng(seed)
    n = made.problem.tasks
    after: list[list[int]] = [[] for _ in range(n)]
    waiting = np.zeros(n, dtype=int)
    for a, b in zip(made.problem.src.tolist(), made.problem.dst.tolist(), strict=True):
        after[a].append(b)
        waiting[b] += 1
    heap = [(rng.random(), i) for i in np.flatnonzero(waiting == 0).tolist()]
    heapq.heapify(heap)
    rank = np.zeros(n, dtype=np.int64)
    for position in range(n):
        i = heapq.heappop(heap)[1]
        rank[i] = position
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(heap, (rng.random(), j))
    group = np.asarray(made.problem.group)
    device = rng.integers(0, 3, n)
    device[group >= 0] = rng.integers(0, 3, n)[group[group >= 0]]
    return replace(made.plan, rank=rank, schedule=simulate(made.problem, device, rank).schedule)


def losses(graph_def: Any, folder: Path | None = None) -> tuple[list[bytes], dict[str, str]]:
    """Five losses in a plain session, saved, spoiled and restored on the way; and where each op ran."""
    graph, where, rng = tf.Graph(), {}, np.random.default_rng(1)
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    config = v1.ConfigProto(device_count={"CPU": 3}, intra_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    found = []
    with v1.Session(graph=graph, config=config) as s:
        s.run("init")
        for k in range(5):
            record, feed = v1.RunMetadata(), {"x:0": rng.random((ROWS, COLUMNS))}
            options = v1.RunOptions(output_partition_graphs=True)
            found.append(s.run(["loss:0", "train"], feed, options, record)[0].tobytes())
            where.update({node.name: node.device for part in record.partition_graphs for node in part.node})
            if folder is not None and k == 2:
                path = {"save/Const:0": str(folder / "model")}
                s.run("save/control_dependency", path)
                s.run("init")
                s.run("save/restore_all", path)
    return found, where


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plain_session_runs_it_as_planned(name: str, tmp_path: Path) -> None:
    """The same bits as without a plan, over random plans, saving and restoring; each op on its device."""
    made = program(name)
    exact, _ = losses(made.graph_def, tmp_path)
    assert len(set(exact)) == 5
    for plan in (made.plan, *(scattered(name, seed) for seed in range(3))):
        done = rewrite.rewrite_with_report(made.graph_def, plan, ApplyOptions())
        found, where = losses(done.graph_def, tmp_path)
        assert found == exact
        carried = {n.name for n in made.graph_def.node if n.op == "Switch"}  # TensorFlow puts them with their data
        ran = [n for n in done.edits.device if n in where and n not in carried]
        assert len(ran) > 0.8 * len(plan.names)
        assert all(where[n].endswith(done.edits.device[n]) for n in ran)
        not_planned = {n.name for n in made.graph_def.node if n.op in ("Placeholder", "Switch")}
        assert done.findings.ops == len(set(plan.names) - not_planned)
        gone = {node.name for node in made.graph_def.node} - {node.name for node in done.graph_def.node}
        assert gone == set(done.gone)
        assert done.graph_def.library == made.graph_def.library


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_made_from_the_file_apply_to_it(name: str, tmp_path: Path) -> None:
    """What `pesto solve --graph` plans, and the same plan as from memory."""
    made, path = program(name), tmp_path / "program.pb"
    path.write_bytes(made.graph_def.SerializeToString())
    plan = api.solve(api.load_graph(path, fetch=["train", "loss"]), cluster="cpux3", time_limit_s=0, solver="list")
    assert plan.names == made.plan.names
    assert api.rewrite(made.graph_def, plan) == api.rewrite(made.graph_def, replace(plan, names=made.plan.names))


def test_every_neighbour_waits_in_the_file_itself() -> None:
    """Counted on the GraphDef without the project's own checks; without order=True nothing is added."""
    made, plan = program("resources"), scattered("resources", 7)
    done = rewrite.rewrite_with_report(made.graph_def, plan, ApplyOptions())
    bare = rewrite.rewrite_with_report(made.graph_def, plan, ApplyOptions(order=False))

    def broken(graph_def: Any) -> int:
        edges = [
            (t.removeprefix("^").partition(":")[0], node.name) for node in graph_def.node for t in node.input
        ]  # fmt: skip
        graph, place = nx.DiGraph(edges), done.placement
        chained = [i for i in np.argsort(place.rank).tolist() if place.chained[i]]
        rows = [[i for i in chained if place.device[i] == d] for d in range(3)]
        names = [done.renamed.get(name, name) for name in place.graph.names]
        bare_names = [bare.renamed.get(name, name) for name in place.graph.names]
        assert names == bare_names and all(len(row) > 5 for row in rows)
        return sum(not nx.has_path(graph, names[a], names[b]) for row in rows for a, b in itertools.pairwise(row))

    assert broken(done.graph_def) == 0 < broken(bare.graph_def)
    assert not bare.edits.waits
    assert "report" in done.behind


def test_reports_behind_a_step_of_one_op_are_named() -> None:
    """They need the step's only ordered op, one of them through others; what needs none of it is not named."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [ROWS], name="x")
        y = tf.tanh(x, name="y")
        v1.summary.histogram("near", y)
        v1.summary.scalar("far", tf.reduce_sum(tf.square(y)))
        v1.summary.scalar("apart", tf.reduce_sum(x))
    plan = api.solve(sources.from_v1(graph, ["y"]), cluster="cpux3", time_limit_s=0, solver="list")
    done = rewrite.rewrite_with_report(graph.as_graph_def(), plan, ApplyOptions())
    assert done.placement.chained.sum() == 1
    assert done.behind == ("near", "far")


def tampered(spoil: Callable[[Any, Any], Any], name: str = "resources") -> None:
    """Rehearse a rewritten graph after `spoil(graph_def, rewritten)`."""
    made = program(name)
    done = rewrite.rewrite_with_report(made.graph_def, scattered(name, 7), ApplyOptions())
    captured = sources.capture_graph_def(made.graph_def, made.plan.names, "test")
    expected = ExpectedPlacement(placement=done.placement, loops=trace_step(captured, None).loops, renamed=done.renamed)
    graph_def = v1.GraphDef.FromString(done.graph_def.SerializeToString())
    assert not rewrite.check_without_running(graph_def, expected).moves
    spoil(graph_def, done)
    rewrite.check_without_running(graph_def, expected)


@pytest.mark.parametrize("name", ["resources", "references", "loop"])
def test_an_order_that_is_lost_is_seen(name: str) -> None:
    def spoil(graph_def: Any, done: Any) -> None:
        nodes = {node.name: node for node in graph_def.node}
        b, before = next((b, w) for b, w in done.edits.waits.items() if b in done.placement.graph.names)
        nodes[b].input.remove(f"^{before[0]}")

    with pytest.raises(VerificationError, match=r"0 ops moved, [1-9]\d* pairs? out of order, 0 missing"):
        tampered(spoil, name)


def test_an_op_that_moved_is_seen() -> None:
    """By another device, and by a colocation that is left in."""

    def device(graph_def: Any, done: Any) -> None:
        node = next(n for n in graph_def.node if n.op == "Tanh")
        node.device = next(d for d in done.placement.devices if d != node.device)

    def colocation(graph_def: Any, done: Any) -> None:
        there = done.edits.device
        pairs = ((a, b) for a in done.edits.unbound for b in there if a in there and there[a] != there[b])
        bound, other = next(pairs)
        node = next(n for n in graph_def.node if n.name == bound)
        node.attr["_class"].list.s.append(f"loc:@{other}".encode())

    with pytest.raises(VerificationError, match=r"op .*anh is on /device:CPU:., planned on /device:CPU:"):
        tampered(device)
    with pytest.raises(VerificationError, match=r"moved|refuses"):
        tampered(colocation)


def test_devices_are_named_as_one_wants() -> None:
    made = program("resources")
    wanted = {f"cpu:{k}": f"/job:worker/task:{k}/device:CPU:0" for k in range(3)}
    after = api.rewrite(made.graph_def, scattered("resources", 7), devices=wanted)
    assert set(wanted.values()) <= {node.device for node in after.node}


def test_refusals() -> None:
    made, other = program("resources"), program("references")
    with pytest.raises(MismatchError, match=r"lacks \d+ of the \d+ ops of the plan .* - give the graph that was"):
        api.rewrite(other.graph_def, made.plan)
    changed = v1.GraphDef.FromString(made.graph_def.SerializeToString())
    next(node for node in changed.node if node.op == "Tanh").op = "Sigmoid"
    with pytest.raises(MismatchError, match="of other types, sizes or edges"):
        api.rewrite(changed, made.plan)
    bare = v1.GraphDef.FromString(program("loop").graph_def.SerializeToString())
    for node in bare.node:
        node.attr.pop("_output_shapes", None)
    with pytest.raises(MismatchError, match=r"export it with as_graph_def\(add_shapes=True\)"):
        api.rewrite(bare, program("loop").plan)
    with pytest.raises(UsageError, match=r"give graph\.as_graph_def"):
        api.rewrite(tf.Graph(), made.plan)
    with pytest.raises(UsageError, match="nothing is run"):
        api.rewrite(made.graph_def, made.plan, trace=True)
    with pytest.raises(InputError, match="older version"):
        api.rewrite(made.graph_def, replace(made.plan, provenance=replace(made.plan.provenance, graph_layout="")))
    before = made.graph_def.SerializeToString(deterministic=True)
    api.rewrite(made.graph_def, made.plan)
    assert made.graph_def.SerializeToString(deterministic=True) == before


Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pesto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Called:
    """The command line in a folder with a plan and its graph: (exit code, stdout, stderr)."""
    made = program("calls")
    (tmp_path / "in.pb").write_bytes(made.graph_def.SerializeToString())
    api.save_plan(scattered("calls", 1), tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pesto", "apply", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_the_verb_writes_a_graph_that_runs(pesto: Called) -> None:
    """Binary and text hold the same graph; what is printed is what was done."""
    code, text, wrong = pesto("plan.json", "--graph", "in.pb", "--out", "out.pb")
    assert code == 0, wrong
    assert "disable_meta_optimizer = True" in text and "pesto optimize" in text and "verified" in text
    code, said, _ = pesto("plan.json", "--graph", "in.pb", "--out", "out.pbtxt", "--json")
    found = json.loads(said)
    binary = sources.read_graph_def(Path("out.pb"))
    assert code == 0 and sources.read_graph_def(Path("out.pbtxt")) == binary
    assert losses(binary)[0] == losses(program("calls").graph_def)[0]
    assert found["verified"] == {"ops": found["ops"], "moves": 0, "inversions": 0, "absent": 0}
    assert sum(found["ops_per_device"].values()) == found["ops"] and found["control_edges"] > 0
    assert found["nodes"] == len(binary.node)
    code, said, _ = pesto("plan.json", "--graph", "in.pb", "--out", "bare.pb", "--json", "--no-order")
    assert code == 0 and json.loads(said)["control_edges"] == 0


def test_the_verb_takes_devices(pesto: Called) -> None:
    pairs = [a for k in range(3) for a in ("--device", f"cpu:{k}=/job:w/task:{k}/device:CPU:0")]
    code, said, wrong = pesto("plan.json", "--graph", "in.pb", "--out", "out.pb", "--json", *pairs)
    assert code == 0, wrong
    assert list(json.loads(said)["ops_per_device"]) == [f"/job:w/task:{k}/device:CPU:0" for k in range(3)]
    for given, match in {
        "gpu:7=/device:GPU:0": "no such device",
        "cpu:0=/device:CPU:0": "has no entry",
        "tpu": "is not known",
        "cpu:0=": "no pair",
    }.items():
        code, _, wrong = pesto("plan.json", "--graph", "in.pb", "--out", "out.pb", "--device", given)
        assert code == 2 and match in wrong and wrong.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        (("plan.json", "--graph", "in.pb", "--out", "in.pb"), 2, "a file of its own"),
        (("plan.json", "--graph", "in.pb", "--out", "out.json"), 2, "ends in .pb"),
        (("plan.json", "--graph", "plan.json", "--out", "out.pb"), 2, "give a GraphDef"),
        (("none.json", "--graph", "in.pb", "--out", "out.pb"), 8, "none.json"),
        (("plan.json", "--graph", "none.pb", "--out", "out.pb"), 8, "none.pb"),
        (("plan.json", "--graph", "in.pb", "--out", "no/folder/out.pb"), 8, "folder"),
        (("in.pb", "--graph", "in.pb", "--out", "out.pb"), 3, "in.pb"),
        (("plan.json", "--graph", "bad.pb", "--out", "out.pb"), 3, "not a GraphDef"),
        (("plan.json", "--graph", "other.pb", "--out", "out.pb"), 9, "give the graph that was planned"),
    ],
)
def test_wrong_requests_are_one_line(pesto: Called, arguments: tuple[str, ...], code: int, match: str) -> None:
    before = Path("in.pb").read_bytes()
    Path("bad.pb").write_bytes(b"no graph at all")
    Path("other.pb").write_bytes(program("references").graph_def.SerializeToString())
    found, out, wrong = pesto(*arguments)
    assert (found, out) == (code, "") and match in wrong and wrong.count("\n") == 1
    assert Path("in.pb").read_bytes() == before and not Path("out.pb").exists()
    assert not list(Path().glob(".pesto-*"))


def test_the_verb_takes_the_fetches_of_the_plan(pesto: Called) -> None:
    """The command of a solve with --fetch applies its plan too; a fetch that was not planned is refused."""
    made = program("calls")
    fetched = scattered("calls", 1).names[-1]
    code, _, wrong = pesto("plan.json", "--graph", "in.pb", "--fetch", fetched, "--out", "out.pb")
    assert code == 0, wrong
    other = next(node.name for node in made.graph_def.node if node.name not in set(scattered("calls", 1).names))
    code, _, wrong = pesto("plan.json", "--graph", "in.pb", "--fetch", other, "--out", "other.pb")
    assert code == 2 and f"no op {other}" in wrong and not Path("other.pb").exists()
    code, _, wrong = pesto("plan.json", "--graph", "in.pb", "--fetch", "nowhere", "--out", "other.pb")
    assert code == 3 and "nowhere" in wrong and not Path("other.pb").exists()
