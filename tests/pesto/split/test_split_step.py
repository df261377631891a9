"""The divided step as a graph: every part on its worker's device, its work and bytes a share of the whole op's."""

import numpy as np
import pytest

from pesto.core.costs.analytical import model_costs
from pesto.core.errors import InputError, UsageError
from pesto.core.graph import MATMUL
from pesto.core.problem import build_problem
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.worker_parts import CLONE, build_split_step, build_worker_parts
from pesto.tf import named_sources


@pytest.fixture(scope="module")
def divided():
    """The step, its parts for two workers, and the divided step."""
    graph, shaped = named_sources.load_typed(Source(model="nmt", variant="tiny"))
    parts = build_worker_parts(shaped, divide(shaped, (2,), "exact", Rules(), seconds=60).division)
    return graph, parts, build_split_step(graph, parts, ("gpu:0", "gpu:1"))


def test_bytes_across_devices_are_the_planned_ones(divided):
    """What the problem sends between accelerators is what the division moves."""
    _, parts, step = divided
    cluster = load_cluster("v100x2-nvlink")
    problem = build_problem(step, model_costs(step, cluster), cluster, memory=step.param_bytes)
    device = problem.location[problem.allowed.argmax(axis=1)]
    at, ends = device[step.tensor_op[step.tensor]], device[step.dst]
    host = [d for d, found in enumerate(cluster.devices) if found.kind == "cpu"]
    across = (at != ends) & ~np.isin(at, host) & ~np.isin(ends, host)
    sent = np.unique(np.stack([step.tensor[across], ends[across]]), axis=1)[0]
    assert step.tensor_bytes[sent].sum() == parts.moved_bytes()
    assert (problem.allowed.sum(axis=1)[step.device_of >= 0] == 1).all()


def test_work_is_shared_out(divided):
    """Operations of all clones are the whole op's, or as many times as all workers do it."""
    graph, parts, step = divided
    clones = np.array([part.kind == CLONE for part in parts.parts])
    op = np.array([part.op for part in parts.parts])
    work = np.zeros(graph.ops)
    np.add.at(work, op[clones], step.flops[clones])
    runs = (parts.clone >= 0).sum(axis=1)
    cut = np.array(["whole" not in way.names and "once" not in way.names for way in parts.division.strategies])
    np.testing.assert_allclose(work, np.where(cut, 1, runs) * np.where(runs > 0, graph.flops, 0))
    matmuls = np.flatnonzero(clones & (step.kernels[:, 0] == MATMUL) & cut[op])
    whole = graph.kernels[op[matmuls], 1:5].prod(axis=1)
    assert (step.kernels[matmuls, 1:5].prod(axis=1) * 2 == whole).all()
    assert len(matmuls) > 50


def test_variables_are_held_in_parts(divided):
    """What a worker holds of all variables is what the division says."""
    graph, parts, step = divided
    worker = np.array([part.worker for part in parts.parts])
    held = [int(step.param_bytes[worker == w].sum()) for w in range(2)]
    assert held[0] == held[1]
    assert graph.param_bytes.sum() / 2 <= held[0] <= graph.param_bytes.sum() * 0.53


def test_workers_need_devices(divided):
    """Fewer devices than workers are refused; so is a device that the cluster does not have."""
    graph, parts, step = divided
    with pytest.raises(UsageError, match="2 workers for 1 accelerators"):
        build_split_step(graph, parts, ("gpu:0",))
    cluster = load_cluster("cpux2")
    with pytest.raises(InputError, match="pinned to gpu:0, the cluster has"):
        build_problem(step, model_costs(step, cluster), cluster, memory=step.param_bytes)


def test_pins_are_in_the_fingerprint(divided):
    """The same step on other devices is another one."""
    graph, parts, step = divided
    assert step.fingerprint() != build_split_step(graph, parts, ("gpu:1", "gpu:0")).fingerprint()
    assert step.fingerprint() == build_split_step(graph, parts, ("gpu:0", "gpu:1")).fingerprint()
