"""Kinds of plans for a step that is fed in rows most of its time, however little time is left."""

from itertools import count
from types import SimpleNamespace

import pytest

from pesto.choosing.strategy_choice import partial_split as partial_split_module
from pesto.choosing.strategy_choice import timed_split
from pesto.choosing.strategy_choice.partial_split import Aim, _gain, split_partially
from pesto.choosing.strategy_choice.timed_split import cut_and_time, priced_rules
from pesto.core.costs.analytical import model_costs
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.flow import solve
from pesto.split.op_strategy import cut_ops
from pesto.split.program import CutGain, Rules
from pesto.split.split_search import divide, divide_partly
from pesto.tf import named_sources
from pesto.tf.tensorflow_start import load_tensorflow

CLUSTER = load_cluster("v100x2-nvlink")
NOW = Settings(time_limit_s=0.0)


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """One dense layer on 64 MiB that are fed, trained; with graph and shapes."""
    tf = load_tensorflow()
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(tf.float32, [64, 256, 1024], name="fed")
        weights = v1.get_variable("weights", [1024, 1024], use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.einsum("abc,cd->abd", fed, weights)), name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    file = tmp_path_factory.mktemp("step") / "step.pb"
    file.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return named_sources.load_typed(Source(file=file, fetch=("loss", "train")))


@pytest.fixture(scope="module")
def placed(step):
    """Placed without search."""
    return solve(step[0], CLUSTER, model_costs(step[0], CLUSTER), NOW, lambda _: None)


@pytest.fixture(scope="module")
def rows(step):
    """The split for seconds: it cuts what is fed along its rows."""
    return divide(step[1], (2,), "exact", priced_rules(step[0], CLUSTER, 2), seconds=60)


def einsum_cuts(step, split):
    """Along which letters the products are cut."""
    _, shaped = step
    types = [shaped.signature(op).type for op in range(shaped.ops)]
    return {way.names for way, name in zip(split.division.strategies, types, strict=True) if name == "Einsum"}


@pytest.mark.slow
def test_partial_rules_price_what_is_fed(step, placed):
    """Cut for bytes alone each worker is fed all; with the host's links counted each is fed its rows."""
    gain = _gain(placed, CLUSTER, Aim(0.0, alone=True), 2)
    assert gain.feed > 0 and gain.cut_out > 0
    found = divide_partly(step[1], 2, gain, seconds=60)
    assert einsum_cuts(step, found) == {("a",)}
    unfed = divide_partly(step[1], 2, CutGain(worth=gain.worth, transfer=gain.transfer), seconds=60)
    assert einsum_cuts(step, unfed) != {("a",)}


def test_a_partial_split_starts_from_the_whole_one(step, rows):
    """Each op that the split cuts is cut alike, all others are whole unless that sends more."""
    worth = [int(cut) for cut in cut_ops(rows.division.strategies)]
    found = divide_partly(step[1], 2, CutGain(worth=worth), start=rows.division, seconds=60)
    cut = [op for op, each in enumerate(cut_ops(rows.division.strategies)) if each]
    assert [found.division.strategies[op] for op in cut] == [rows.division.strategies[op] for op in cut]
    assert found.rules.partial


def test_without_time_what_the_whole_split_cuts_is_tried(step, placed, rows, monkeypatch):
    """Every look at the clock costs an hour: the cuts of the split are tried, and one aim, as before."""
    ticks, starts = count(), []

    def divided(*given, **options):
        starts.append(options["start"])
        return divide_partly(*given, **options)

    monkeypatch.setattr(partial_split_module, "time", SimpleNamespace(monotonic=lambda: 3600.0 * next(ticks)))
    monkeypatch.setattr(partial_split_module, "divide_partly", divided)
    found = split_partially(step, CLUSTER, NOW, [(CLUSTER, placed)], lambda _: None, [rows])
    assert starts[0] is rows.division and starts[1:] and set(starts[1:]) == {None}
    assert found.candidate.fits and found.candidate.makespan < 0.6 * placed.plan.schedule.makespan


def test_without_time_the_batch_is_cut(step, monkeypatch):
    """Where cutting for bytes has taken all, data parallelism is timed in place of the cut for seconds."""
    ticks = count()
    monkeypatch.setattr(timed_split, "time", SimpleNamespace(monotonic=lambda: 3600.0 * next(ticks)))
    *_, (found,) = cut_and_time(step, (2,), CLUSTER, NOW, seconds=60)
    assert found.split.method == "data-parallel" and found.split.rules == Rules()
    for_bytes, *_ = cut_and_time(step, (2,), CLUSTER, NOW, seconds=60)
    assert found.candidate.makespan < 0.8 * for_bytes[0].candidate.makespan
