"""Split and place at once: of two chains of small ops that end in one long op, the chains are placed, the op is cut."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.choosing.strategy_choice import partial_split as module
from pesto.choosing.strategy_choice.partial_split import Aim, _gain, cutting_order, idle_ticks, split_partially
from pesto.cli.main import pesto
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import NothingFoundError
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import shortest_fitting
from pesto.planning.solving.flow import solve
from pesto.split.op_strategy import ONCE_WAY, cut_ops
from pesto.split.program import CutGain
from pesto.split.split_search import divide_partly
from pesto.split.worker_parts import build_worker_parts
from pesto.tf import named_sources
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

CLUSTER = load_cluster("v100x2-nvlink")
CHAIN = 40


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two chains of products and one large product of both."""
    with tf.Graph().as_default() as graph:
        ends = []
        for name in ("left", "right"):
            end = v1.placeholder(tf.float32, [256, 256], name=name)
            for _ in range(CHAIN):
                end = tf.tanh(tf.matmul(end, end))
            ends.append(end)
        wide = v1.get_variable("wide", [512, 32768], use_resource=True)
        tf.reduce_sum(tf.matmul(tf.concat(ends, axis=1), wide, name="long"), name="loss")
    file = tmp_path_factory.mktemp("step") / "step.pb"
    file.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return Source(file=file, fetch=("loss",))


@pytest.fixture(scope="module")
def step(source):
    """The graph and its shapes."""
    return named_sources.load_typed(source)


@pytest.fixture(scope="module")
def placed(step):
    """Placed without search."""
    return solve(step[0], CLUSTER, model_costs(step[0], CLUSTER), Settings(time_limit_s=0.0), lambda _: None)


def test_others_idle_beside_the_long_op(step, placed):
    """As long as it takes; what one device does while the other works is not idled beside."""
    graph, run = step[0], placed.plan.schedule
    idle, took = idle_ticks(placed, CLUSTER), run.finish - run.start
    long = graph.names.index("long")
    assert idle[long] == took[long] == took.max()
    at = placed.problem.location[run.device]
    for op in np.flatnonzero(took).tolist():
        other = np.flatnonzero((at != at[op]) & (at > 0))
        meanwhile = np.minimum(run.finish[other], run.finish[op]) - np.maximum(run.start[other], run.start[op])
        assert idle[op] == (took[op] - np.maximum(meanwhile, 0).sum() if at[op] else 0)


def test_the_long_op_is_cut_and_the_chains_are_not(step, placed):
    """Both is shorter than the placement; parts of the op are on different devices, and so are the chains."""
    graph, shaped = step
    found = split_partially(step, CLUSTER, Settings(time_limit_s=0.5), [(CLUSTER, placed)], lambda _: None)
    long, cut = graph.names.index("long"), cut_ops(found.split.division.strategies)
    assert cut[long] and sum(cut) <= 6
    assert found.candidate.fits and found.candidate.makespan < 0.9 * placed.plan.schedule.makespan
    parts = build_worker_parts(shaped, found.split.division)
    assert len(set(parts.place[parts.clone[long]].tolist())) == 2
    whole = [
        op
        for op, way in enumerate(found.split.division.strategies)
        if ONCE_WAY in way.names and "MatMul" in graph.names[op]
    ]
    assert len(whole) == 2 * CHAIN
    assert len(set(parts.place[parts.clone[whole, 0]].tolist())) == 2
    assert found.bench.graph.ops == len(parts.parts)
    device = [found.bench.problem.location[d] for d in found.candidate.timeline.schedule.device]
    assert [d - 1 for d, place in zip(device, parts.place, strict=True) if d > 0] == [
        place for d, place in zip(device, parts.place, strict=True) if d > 0
    ]


def test_placing_a_partial_split_is_in_the_limit(step, placed, monkeypatch):
    """The time is over once it is known what to cut: it stays where the plan has it, and a moment is left to solve."""
    clock, offered, limits = [0.0], [], []

    def divided(*given, **options):
        found = divide_partly(*given, **options)
        clock[0] += 100.0
        return found

    def offer(candidates):
        offered.extend(candidate.name for candidate in candidates)
        return shortest_fitting(candidates)

    def unsolved(_graph, _cluster, _costs, settings, *_):
        limits.append(settings.time_limit_s)
        raise NothingFoundError("no plan")

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for name, replaced in (("divide_partly", divided), ("shortest_fitting", offer), ("solve", unsolved)):
        monkeypatch.setattr(module, name, replaced)
    split_partially(step, CLUSTER, Settings(time_limit_s=5), [(CLUSTER, placed)], lambda _: None)
    assert set(offered) == {"start", "single"} and limits == [0.1]


def test_what_is_sent_is_what_the_simulated_devices_send(step, placed):
    """Each tensor that one accelerator makes and another reads, whole or cut, once to each."""
    found = split_partially(step, CLUSTER, Settings(time_limit_s=0.5), [(CLUSTER, placed)], lambda _: None)
    graph = found.bench.graph
    at = found.bench.problem.location[found.candidate.timeline.schedule.device]
    across = (at[graph.src] != at[graph.dst]) & (at[graph.src] > 0) & (at[graph.dst] > 0)
    sent = set(zip(graph.tensor[across].tolist(), at[graph.dst[across]].tolist(), strict=True))
    assert found.sent_bytes == sum(int(graph.tensor_bytes[tensor]) for tensor, _ in sent) > 0


def test_nothing_is_cut_that_is_worth_nothing(step):
    """Where all ops are whole there is no split; what is worth the bytes is cut alone."""
    _, shaped = step
    assert divide_partly(shaped, 2, CutGain(), seconds=10) is None
    worth = [1 << 40 if name == "long" else 0 for name in shaped.names]
    found = divide_partly(shaped, 2, CutGain(worth=worth), seconds=10)
    assert found.moved_bytes == build_worker_parts(shaped, found.division).moved_bytes() > 0
    assert (found.status, found.bound_bytes, found.counted_bytes) == ("feasible", 0, found.moved_bytes)


def test_transfers_have_a_price(step):
    """The other worker needs a tensor at least, so an op is cut where it is worth more than a transfer, and large."""
    _, shaped = step
    worth = [1 << 22 if name == "long" else 0 for name in shaped.names]
    assert divide_partly(shaped, 2, CutGain(worth=worth), seconds=10) is not None
    assert divide_partly(shaped, 2, CutGain(worth=worth, transfer=1 << 22), seconds=10) is None
    much, wide = [1 << 18 << 22 if each else 0 for each in worth], 512 * 32768 * 4
    assert divide_partly(shaped, 2, CutGain(worth=much, transfer=2 * wide), seconds=10) is not None
    assert divide_partly(shaped, 2, CutGain(worth=much, transfer=2 * wide + 2), seconds=10) is None


def test_as_if_alone_all_that_takes_long_is_worth_its_time(step, placed):
    """Beside the others an op is worth no more; a transfer costs half the link's latency."""
    beside, alone = (_gain(placed, CLUSTER, Aim(0.0, alone=each), 2) for each in (False, True))
    run = placed.plan.schedule
    assert all(b <= a for b, a in zip(beside.worth, alone.worth, strict=True)) and beside.worth != alone.worth
    fast = placed.problem.location[run.device] > 0
    order = np.argsort(np.where(fast, run.finish - run.start, 0), kind="stable")
    assert (np.diff(np.array(alone.worth)[order]) >= 0).all()
    path = CLUSTER.paths[1][2]
    assert beside.transfer == 0 and alone.transfer == int(path.latency_s / path.s_per_byte / 2)


@pytest.mark.slow
def test_a_placement_that_takes_far_longer_is_cut_last() -> None:
    """That of one board goes first where it is about as short as that of the cluster."""
    assert cutting_order([1.0]) == [0] and cutting_order([1.1, 1.0]) == cutting_order([1.0, 1.0]) == cutting_order(
        [1.0, 1.1]
    ) == [0, 1]
    assert cutting_order([1.6, 1.0]) == [1, 0] and cutting_order([1.6, 1.0, 1.7]) == [1, 0, 2]


@pytest.mark.slow
def test_both_from_the_command_line_to_a_run(source, tmp_path):
    """It is the shortest; it is written as a split with places, confirmed, and runs as the whole step."""
    step, out = ["--graph", source.file, "--fetch", "loss"], tmp_path / "both.json"
    words = [
        "solve",
        *step,
        "--cluster",
        "v100x2-nvlink",
        "--split",
        "2",
        "--time-limit",
        "20",
        "-q",
        "-o",
        out,
        "--json",
    ]
    done = CliRunner().invoke(pesto, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["strategy"], said["chosen_kind"], said["method"]) == ("both", "both 2", "partial")
    times = {name: kind["makespan_s"] for name, kind in said["kinds"].items()}
    assert said["makespan_s"] == times["both 2"] < min(times["place"], times["split 2"])
    assert json.loads(out.read_text())["rules"]["partial"] and set(json.loads(out.read_text())["places"]) == {0, 1}
    told = []
    for words in (
        ["check", out, *step, "--certificate"],
        ["run", out, *step, "--steps", "1", "--devices", "cpu", "--json"],
    ):
        done = CliRunner().invoke(pesto, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        told.append(done)
    page = " ".join(told[0].output.split())
    assert "for what is cut" in page and "no bound is known" in page
    ran = json.loads(told[1].stdout)
    assert ran["bytes"] == said["bytes"] == said["kinds"]["both 2"]["bytes"] and ran["variables_share"] < 1
