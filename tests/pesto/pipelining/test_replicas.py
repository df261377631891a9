"""Stages that several devices share: cut as exhaustive search cuts them, each batch done once, in order, whole."""

from itertools import combinations

import numpy as np
import pytest
from training_steps import pipelined, training_step

from pesto.inputs.cluster_file import load_cluster
from pesto.pipelining import step_pipeline
from pesto.pipelining.replicas import Replicas, in_flight, place_replicas, run_replicas, stage_divisions
from pesto.pipelining.schedules import ChainSchedule
from pesto.pipelining.step_pipeline import shared_step, step_stages
from solvers.arrays import ints
from solvers.pipelining.chain import BACKWARD, FORWARD, Chain


def _chain(rng, layers):
    forward, backward = rng.integers(0, 20, layers), rng.integers(0, 30, layers)
    return Chain(
        forward=forward, backward=backward, weights=rng.integers(0, 9, layers), activation=rng.integers(0, 9, layers),
        output=np.zeros(layers + 1, dtype=np.int64), transfers=rng.integers(0, 12, layers - 1),
    )  # fmt: skip


def _shares(devices, stages):
    """All numbers of devices that add up."""
    for bars in combinations(range(1, devices), stages - 1):
        yield np.diff([0, *bars, devices]).tolist()


def _worst(chain, first, counts):
    ends = [*first[1:], chain.layers]
    return max(
        max(chain.loads[a:b].sum() / r, (chain.transfers[a - 1] if a else 0) / r)
        for a, b, r in zip(first, ends, counts, strict=True)
    )


def test_divisions_are_the_best_of_all(seeds):
    """Of each number of stages, none of all cuts and shares has a lesser greatest load."""
    for seed in seeds(40):
        rng = np.random.default_rng(seed)
        chain, devices = _chain(rng, int(rng.integers(2, 6))), int(rng.integers(2, 5))
        found = stage_divisions(chain, devices)
        assert [len(first) for first, _ in found] == list(range(1, min(devices, chain.layers) + 1))
        for first, counts in found:
            assert counts.sum() == devices and first[0] == 0 and (np.diff(first) > 0).all()
            stages = len(first)
            least = min(
                _worst(chain, [0, *cuts], share)
                for cuts in combinations(range(1, chain.layers), stages - 1)
                for share in _shares(devices, stages)
            )
            assert _worst(chain, first.tolist(), counts.tolist()) == pytest.approx(least)


def _random_stages(rng, chain, devices):
    stages = int(rng.integers(1, min(devices, chain.layers) + 1))
    first = [0, *sorted(rng.choice(np.arange(1, chain.layers), stages - 1, replace=False).tolist())]
    shares = list(_shares(devices, stages))
    share = shares[int(rng.integers(len(shares)))]
    ends = np.cumsum(share)
    groups = tuple(tuple(range(end - r, end)) for end, r in zip(ends.tolist(), share, strict=True))
    homes = np.array([groups[s][0] for s in np.searchsorted(first, np.arange(chain.layers), side="right") - 1])
    return Replicas(first=ints(first), devices=groups, homes=ints(homes), in_turn=bool(rng.integers(2)))


def test_every_half_is_done_once_and_in_order(seeds):
    """One thing at a time on a device; a half after what it waits for and the way from there; few batches in flight."""
    shared = 0
    for seed in seeds(60):
        rng = np.random.default_rng(seed)
        chain, devices, batches = _chain(rng, int(rng.integers(2, 7))), int(rng.integers(1, 5)), int(rng.integers(1, 9))
        stages = _random_stages(rng, chain, devices)
        run = run_replicas(chain, stages, batches)
        assert len(run.kind) == 2 * chain.layers * batches
        at = {
            (kind, layer, b): o for o, (kind, layer, b) in enumerate(zip(run.kind, run.layer, run.batch, strict=True))
        }
        assert len(at) == len(run.kind)
        stage, taker = stages.stage, stages.taker(batches)
        for (kind, layer, batch), o in at.items():
            assert run.resource[o] == taker[stage[layer], batch]
            before = _before(kind, layer, chain.layers)
            if before is not None:
                crosses = stage[before[1]] != stage[layer]
                there = chain.transfers[min(before[1], layer)] if crosses else 0
                there = there // 2 if kind == FORWARD else there - there // 2
                assert run.start[o] >= run.finish[at[*before, batch]] + there
        for device in range(devices):
            own = np.flatnonzero(run.resource == device)
            own = own[np.lexsort((run.finish[own], run.start[own]))]
            assert (run.start[own][1:] >= run.finish[own][:-1]).all()
        assert run.step >= shared_step(chain, stages, batches).value
        most = [-(-sum(map(len, stages.devices[s:])) // len(each)) for s, each in enumerate(stages.devices)]
        assert (in_flight(stages, run) <= np.array(most)[stage]).all()
        shared += len(stages.first) < devices
    assert shared > 10


def _before(kind, layer, layers):
    """What a half waits for."""
    if kind == FORWARD:
        return (FORWARD, layer - 1) if layer else None
    return (BACKWARD, layer + 1) if layer < layers - 1 else (FORWARD, layer)


@pytest.mark.parametrize(("extra", "most"), [(0, [2, 1]), (1, [3, 1]), (2, [4, 1])])
def test_more_batches_in_flight_where_more_are_allowed(extra, most):
    """Before a stage of 10 + 10 ticks one of 1 + 1 runs ahead as far as it may: by the later devices, and `extra`."""
    chain = Chain(forward=[1, 10], backward=[1, 10], weights=[0, 0], activation=[0, 0], output=[0, 0, 0], transfers=[0])
    stages = Replicas(first=ints([0, 1]), devices=((0,), (1,)), homes=ints([0, 1]), in_turn=True)
    run = run_replicas(chain, stages, 6, extra)
    assert in_flight(stages, run).tolist() == most
    assert run.step == 1 + 6 * 20 + 1


def test_one_stage_on_all_devices():
    """Six batches on four devices: two at most on one, so twice the load, which is the bound."""
    chain = _chain(np.random.default_rng(1), 5)
    cluster = load_cluster("v100x4")
    for in_turn, second in ((True, [0, 1, 2, 3, 0, 1]), (False, [0, 0, 1, 2, 2, 3])):
        stages = place_replicas(chain, (ints([0]), ints([4])), cluster, ints([1, 2, 3, 4]), in_turn=in_turn)
        assert stages.taker(6).tolist() == [second]
        run = run_replicas(chain, stages, 6)
        assert run.step == 2 * chain.loads.sum() == shared_step(chain, stages, 6).value
        held = np.bincount(stages.homes, weights=chain.weights, minlength=4)
        assert held.max() - held.min() <= chain.weights.max()


@pytest.fixture(name="heavy")
def _heavy(make_graph):
    """A step of long ops and small tensors."""
    ops = training_step(3, layers=6, momentum=True).ops
    return make_graph([{**op, "s": 100 * op["s"]} for op in ops])


@pytest.mark.slow
def test_devices_share_a_stage_where_that_is_shorter(heavy):
    """Whole batches are where they are taken, variables where they live; shorter than any stages of one device each."""
    cluster = load_cluster("v100x4")
    found = pipelined(heavy, cluster, batches=8, search_s=0)
    alone = pipelined(heavy, cluster, batches=8, search_s=0, contiguous=True)
    schedule, candidate = found.chosen.schedule, found.chosen.candidate
    assert schedule.name == "replicated" and candidate.makespan < alone.chosen.candidate.makespan
    assert "replicated" not in {each.candidate.name for each in alone.mapped if each.candidate}
    location = candidate.timeline.problem.location[candidate.timeline.schedule.device]
    at = dict(zip(found.staged.step.graph.names, location.tolist(), strict=True))
    taker, stage = schedule.shared.taker(8), schedule.shared.stage
    layer = dict(zip(heavy.names, found.staged.chain.layer.tolist(), strict=True))
    for k in range(6):
        assert at[f"w{k}"] == at[f"r{k}"] == at[f"u{k}"] == found.staged.fast[schedule.shared.homes[layer[f"w{k}"]]]
        assert [at[f"f{k}/batch{b}"] for b in range(8)] == found.staged.fast[taker[stage[layer[f"f{k}"]]]].tolist()
    listed = [line.split(",") for line in step_stages(found).splitlines()]
    assert listed[0] == ["op", "part", "layer", "stage", "devices"] and len(listed) == heavy.ops + 1
    rows = {row[0]: row[1:] for row in listed}
    assert rows["f0"][0] == "forward" and rows["u0"][0] == "update" and rows["w0"][0] == "once"
    assert set(rows["f0"][3].split()) == {
        cluster.devices[device].name for device in {at[f"f0/batch{b}"] for b in range(8)}
    }
    assert rows["w0"][3] == cluster.devices[at["w0"]].name


@pytest.mark.slow
def test_search_is_never_longer_and_says_where_it_began(heavy):
    """From all schedules, and from one that is named; what it gives is an ordinary, verified plan."""
    cluster = load_cluster("v100x2-nvlink")
    for options in ({"contiguous": True}, {"schedule": "1f1b"}, {"schedule": "replicated"}):
        plain = pipelined(heavy, cluster, batches=4, search_s=0, **options)
        found = pipelined(heavy, cluster, batches=4, search_s=600, **options)
        assert found.bound_ticks <= found.chosen.candidate.makespan <= plain.chosen.candidate.makespan
        if found.search is not None:
            assert found.chosen.candidate.makespan < plain.chosen.candidate.makespan
            assert found.search.begun in {each.schedule.name for each in found.mapped} and found.search.tried > 0
            assert options.get("schedule") in (None, found.search.begun)


@pytest.mark.parametrize("when", [2, *(pytest.param(when, marks=pytest.mark.slow) for when in (1, 5))])
def test_ctrl_c_keeps_what_was_found(heavy, monkeypatch, when):
    """In search, and before it once a schedule fits: a verified plan, and the mark of the interruption."""
    calls = []

    def interrupted(*given, **more):
        calls.append(given)
        if len(calls) >= when:
            raise KeyboardInterrupt
        return whole(*given, **more)

    whole = step_pipeline._listed
    monkeypatch.setattr(step_pipeline, "_listed", interrupted)
    found = pipelined(heavy, load_cluster("v100x2-nvlink"), batches=4, search_s=600)
    assert found.interrupted and found.chosen.fits and len(calls) == when
    monkeypatch.setattr("pesto.pipelining.step_pipeline.best_replicated", lambda _: interrupted())
    found = pipelined(heavy, load_cluster("v100x2-nvlink"), batches=4, search_s=600)
    assert found.interrupted and found.search is None and found.chosen.schedule.name != "replicated"


def test_after_ctrl_c_nothing_more_is_laid_out(heavy, monkeypatch):
    """But for what was asked for, which is laid out where it comes later."""
    ended = ChainSchedule(name="free", why="interrupted", interrupted=True)
    monkeypatch.setattr("pesto.pipelining.schedules._free", lambda *_: ended)
    found = pipelined(heavy, load_cluster("v100x2-nvlink"), batches=4)
    assert found.interrupted and [each.schedule.name for each in found.mapped][-1] == "free"
    found = pipelined(heavy, load_cluster("v100x2-nvlink"), batches=4, schedule="1f1b")
    assert found.interrupted and found.chosen.schedule.name == "1f1b" == found.mapped[-1].schedule.name
