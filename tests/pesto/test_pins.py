"""Ops that are pinned to a device: kept in files, obeyed by whatever plans, refused where they cannot be met."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import pesto
from pesto.choosing.comparison.contest import Entrants, chosen_methods, compete
from pesto.cli.main import pesto as command
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import InputError
from pesto.core.files import graph_file
from pesto.core.plans.plan import verify
from pesto.core.problem import build_problem
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving import quick_candidates
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.flow import solve
from solvers import check

CLUSTER = load_cluster("v100x2-nvlink")
GPUS = ("gpu:0", "gpu:1")


def chain(pins, *, group=()):
    """Two chains of a matmul an op; `pins` are places in GPUS, or -1."""
    ops = [
        {"name": f"op{k}", "inputs": [f"op{k - 2}"] if k > 1 else [], "outputs": [1 << 20], "flops": 1e9 + 1e7 * k}
        | ({"device": GPUS[pin]} if pin >= 0 else {})
        | ({"group": "one"} if k in group else {})
        for k, pin in enumerate(pins)
    ]
    head = {"format": "pesto-graph", "format_version": 1, "kinds": ["cpu", "gpu"], "ops": ops}
    return graph_file.loads(json.dumps(head).encode(), "chain")


PINS = st.lists(st.integers(-1, 1), min_size=3, max_size=12)


@given(PINS)
def test_pins_come_back_from_files(pins):
    """The project's own, and networkx; a graph without pins has the fingerprint that it had."""
    graph = chain(pins)
    found = [graph.devices[d] if d >= 0 else None for d in graph.device_of.tolist()]
    assert found == [GPUS[pin] if pin >= 0 else None for pin in pins]
    again = graph_file.loads(graph_file.dumps(graph), "again")
    assert again.fingerprint() == graph.fingerprint()
    assert pesto.graph_from_networkx(graph.to_networkx()).fingerprint() == graph.fingerprint()
    free = replace(graph, devices=(), device_of=np.empty(0, dtype=np.int64))
    assert (free.fingerprint() == graph.fingerprint()) is (max(pins) < 0)


@settings(max_examples=8)
@given(PINS)
def test_plans_obey_pins(pins):
    """Every candidate of a solve, with search and without; the checker refuses a plan that does not obey."""
    graph = chain(pins)
    costs = model_costs(graph, CLUSTER)
    outcome = solve(graph, CLUSTER, costs, Settings(time_limit_s=0.0), lambda _: None)
    names = [device.name for device in CLUSTER.devices]
    for candidate in filter(None, outcome.candidates.values()):
        run = candidate.timeline
        at = run.problem.location[run.schedule.device]
        assert all(names[place] == GPUS[pin] for place, pin in zip(at.tolist(), pins, strict=True) if pin >= 0)
    if len(graph.devices) == 2:
        other = build_problem(replace(graph, devices=graph.devices[::-1]), costs, CLUSTER, memory=graph.param_bytes)
        assert check(other, outcome.plan.schedule)
    verify(outcome.plan, graph, outcome.problem, CLUSTER)


def test_methods_obey_pins_or_have_no_plan():
    """Each method of the comparison: its plan has pinned ops at their device, or says why there is none."""
    pins = [0, 1, 1, 0, -1, 0, 1, -1, 0, 1]
    graph = chain(pins)
    names = chosen_methods("all")
    found = compete(
        graph,
        CLUSTER,
        model_costs(graph, CLUSTER),
        Settings(time_limit_s=0.5),
        lambda _: None,
        entrants=Entrants(names),
    )
    for entry in found.entries:
        if entry.plan is None:
            assert entry.detail, entry.method
            continue
        device = [entry.plan.lane_device[d] for d in entry.plan.schedule.device.tolist()]
        assert all(device[k] == GPUS[pin] for k, pin in enumerate(pins) if pin >= 0), entry.method
    assert sum(entry.plan is not None for entry in found.entries) > len(names) // 2


def test_a_group_follows_its_pin():
    """Where one of it is pinned all are there; two pins of one group contradict each other."""
    graph = chain([0, -1, -1, -1], group=(0, 3))
    problem = build_problem(graph, model_costs(graph, CLUSTER), CLUSTER, memory=graph.param_bytes)
    assert problem.allowed[3].tolist() == problem.allowed[0].tolist()
    assert problem.allowed[0].sum() == 1
    torn = chain([0, -1, -1, 1], group=(0, 3))
    with pytest.raises(InputError, match="pinned to two devices"):
        build_problem(torn, model_costs(torn, CLUSTER), CLUSTER, memory=torn.param_bytes)


def test_a_device_that_is_not_there():
    """Is named, with those that are."""
    graph = replace(chain([0, 1, -1]), devices=("gpu:0", "gpu:7"))
    with pytest.raises(InputError, match="pinned to gpu:7, the cluster has cpu:0, gpu:0, gpu:1"):
        build_problem(graph, model_costs(graph, CLUSTER), CLUSTER, memory=graph.param_bytes)


def test_inspect_counts_pinned_ops(tmp_path):
    """Ops of each device, as text and as JSON; a step without pins says none."""
    for pins, counts, told in (
        ([0, 1, 1, -1], {"gpu:0": 1, "gpu:1": 2}, "pinned 2 ops to gpu:1, 1 op to gpu:0; 1 op without"),
        ([1, 1], {"gpu:1": 2}, "pinned 2 ops to gpu:1; none without"),
        ([-1, -1], {}, ""),
    ):
        path = tmp_path / "chain.json"
        path.write_bytes(graph_file.dumps(chain(pins)))
        words = ["inspect", "--graph", str(path)]
        assert json.loads(CliRunner().invoke(command, [*words, "--json"]).stdout)["pinned"] == counts
        page = " ".join(CliRunner().invoke(command, words).stdout.split())
        assert told in page and ("pinned" in page) is bool(counts)


def test_sizes_that_pins_put_out_of_reach_are_left_out(monkeypatch):
    """200 ops in pairs that cross from GPU to GPU: 101 nodes at least, so that only the target follows 80 nodes."""
    monkeypatch.setattr(quick_candidates, "SIZES", (80, 60, 40))
    graph = chain([(k + k // 2) % 2 for k in range(200)])
    problem = build_problem(graph, model_costs(graph, CLUSTER), CLUSTER, memory=graph.param_bytes)
    found = [
        each.rule
        for each in quick_candidates.multilevel(CandidateEvaluator.of(graph, problem), problem, Settings(coarsen_to=20))
    ]
    assert len(found) == 3
    assert all("of 101 nodes" in rule for rule in found)
