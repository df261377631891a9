"""Training steps folded, cut into stages, laid out op by op: the order holds, and the plan is a checked one."""

from dataclasses import replace

import numpy as np
import pytest
from training_steps import BACKWARD, FORWARD, pipelined, training_step

from pesto.core.errors import InfeasibleError, NothingFoundError, UsageError
from pesto.core.source import Source
from pesto.core.step_parts import step_parts
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_graph
from pesto.pipelining.schedules import NAMES
from pesto.pipelining.staged_step import build_step_chain, fold
from pesto.reporting.show.pipeline_page import step_object, step_page


@pytest.mark.parametrize("seed", range(12))
def test_a_fold_goes_forward_and_back(make_graph, seed):
    """Places never fall along forward edges, never rise along backward ones; gradients of weights stand with them."""
    step = training_step(seed, layers=9, momentum=bool(seed % 2))
    graph = make_graph(step.ops)
    place = dict(zip(graph.names, fold(graph, step_parts(graph)).place.tolist(), strict=True))
    for op in step.ops:
        for tail in op["inputs"]:
            if step.kind[op["name"]] == step.kind[tail] == FORWARD:
                assert place[tail] <= place[op["name"]]
            if step.kind[op["name"]] == step.kind[tail] == BACKWARD:
                assert place[tail] >= place[op["name"]]
    for k in range(9):
        assert place[f"f{k}"] == place[f"r{k}"] == place[f"w{k}"] <= place[f"dw{k}"] <= place[f"f{min(k + 1, 8)}"]


def test_a_mask_of_all_layers_drags_nothing_back(make_graph):
    """Backward ops that read what the first layer made, and every layer reads, stay where they are."""
    step = training_step(0, layers=6)
    ops = [
        {**op, "inputs": [*op["inputs"], "x"]} if op["name"][0] == "f" or op["name"].startswith("dw") else op
        for op in step.ops
    ]
    graph = make_graph(ops)
    place = dict(zip(graph.names, fold(graph, step_parts(graph)).place.tolist(), strict=True))
    assert [place[f"dw{k}"] >= place[f"f{k}"] for k in range(6)] == [True] * 6


def test_a_chain_has_all_the_work(make_graph):
    """Ticks and bytes of layers add up to those of the step."""
    graph = make_graph(training_step(4, layers=8).ops)
    cluster, parts = load_cluster("v100x2-nvlink"), step_parts(graph)
    from pesto.core.costs.analytical import model_costs

    costs = model_costs(graph, cluster)
    found = build_step_chain(graph, parts, fold(graph, parts), costs, cluster, batches=4)
    ticks = np.ceil(np.round(costs.compute_s[:, 1] * 1e9, 3))
    assert found.chain.forward.sum() == ticks[parts.part == 1].sum()
    assert (
        found.chain.backward.sum() == ticks[parts.part == 2].sum() and found.once.sum() == ticks[parts.part == 3].sum()
    )
    assert found.chain.weights.sum() == 2 * graph.param_bytes.sum()
    assert found.chain.weight_gradient.sum() >= ticks[[graph.names.index(f"dw{k}") for k in range(8)]].sum()


@pytest.mark.parametrize("seed", range(3))
def test_every_schedule_is_laid_out(make_graph, seed):
    """No op is forgotten, each schedule runs; the least that fits is the plan, which the reference simulator took."""
    graph = make_graph(training_step(seed, layers=10, momentum=True, clipped=seed == 2).ops)
    found = pipelined(graph, load_cluster("v100x2-nvlink"), batches=4, search_s=0)
    ran = {each.schedule.name: each.candidate for each in found.mapped if each.candidate}
    assert set(NAMES) - set(ran) <= {"exact", "free", "interleaved-2", "zero-bubble-v"}  # two stages a device each
    assert found.plan.makespan_s == pytest.approx(min(each.makespan for each in ran.values()) * 1e-9, rel=0.01)
    assert found.bound_ticks <= found.chosen.candidate.makespan
    assert found.plan.names == found.staged.step.graph.names
    # One stage a device: all of a batch's forward ops of a layer, and the variable that they read, are on it.
    device = ran["1f1b"].timeline.problem.location[ran["1f1b"].timeline.schedule.device]
    at = dict(zip(found.staged.step.graph.names, device.tolist(), strict=True))
    for k in range(10):
        assert len({at[f"w{k}"], at[f"u{k}"], *(at[f"f{k}/batch{b}"] for b in range(4))}) == 1
    start = dict(zip(found.staged.step.graph.names, ran["gpipe"].timeline.schedule.start.tolist(), strict=True))
    for stage in set(at.values()):
        mine = [name for name in at if at[name] == stage]
        forward = [start[name] for name in mine if name[0] == "f"]
        backward = [start[name] for name in mine if name.startswith("dw") and "batch" in name]
        assert not forward or not backward or max(forward) <= min(backward)


def test_what_cannot_be_laid_out_is_refused(make_graph, make_cluster):
    """One accelerator, no such schedule, too many batches, too little memory: each with a remedy."""
    graph = make_graph(training_step(0, layers=6).ops)
    with pytest.raises(UsageError, match="one accelerator"):
        pipelined(graph, make_cluster(gpus=1), batches=2)
    cluster = load_cluster("v100x2-nvlink")
    for more, what in (
        ({"schedule": "gpip"}, "give one of"), ({"k": -1}, "give 0 to 64"), ({"search_s": -1.0}, "0 or more"),
        ({"schedule": "replicated", "contiguous": True}, "do not ask for contiguous ones"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=what):
            pipelined(graph, cluster, batches=2, **more)
    with pytest.raises(UsageError, match="give 1 or more"):
        pipelined(graph, cluster, batches=0)
    heavy = make_graph([{**op, "param": 10**12} if "param" in op else op for op in training_step(0, layers=6).ops])
    with pytest.raises(InfeasibleError, match="do not fit"):
        pipelined(heavy, load_cluster("v100x2-nvlink"), batches=2)
    wide = make_graph([{**op, "bytes": 9 * 10**9} if op["name"][0] == "f" else op for op in training_step(0).ops])
    with pytest.raises(NothingFoundError, match="lacks"):
        pipelined(wide, load_cluster("v100x2-nvlink"), batches=4)


def test_the_memory_that_is_named_suffices(make_graph):
    """Where nothing fits, devices of the bytes that the refusal names do."""
    cluster = load_cluster("v100x2-nvlink")
    wide = make_graph([{**op, "bytes": 9 * 10**9} if op["name"][0] == "f" else op for op in training_step(0).ops])
    with pytest.raises(NothingFoundError, match="lacks") as refused:
        pipelined(wide, cluster, batches=2, search_s=0, contiguous=True)
    least = int(str(refused.value).split("give devices of ")[1].split()[0])
    larger = replace(cluster, devices=tuple(replace(device, memory_bytes=least) for device in cluster.devices))
    found = pipelined(wide, larger, batches=2, search_s=0, contiguous=True)
    assert found.chosen.fits and found.chosen.candidate.peak.max() <= least


def test_devices_without_a_stage_are_named(make_graph):
    """Two layers on four devices of one stage each."""
    graph = make_graph(training_step(1, layers=2).ops)
    found = pipelined(graph, load_cluster("v100x4"), batches=2, search_s=0, contiguous=True, schedule="1f1b")
    said, page = step_object(found, None), step_page(found, None)
    used = {stage["device"] for stage in said["stages"]}
    assert said["idle"] and set(said["idle"]) | used == {f"gpu:{k}" for k in range(4)} and not used & set(said["idle"])
    assert "unused" in page and said["idle"][0] in page


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rnnlm", "nmt", "transformer", "nasnet", "wrn"])
def test_built_in_models_are_pipelined(model):
    """On four GPUs: a checked plan, in memory, of all ops; the fold goes forward and back."""
    graph = load_graph(Source(model=model, variant="tiny"), quiet=True)
    parts = step_parts(graph)
    place = fold(graph, parts).place
    for part, sign in ((1, 1), (2, -1)):
        inner = (parts.part[graph.src] == part) & (parts.part[graph.dst] == part)
        assert (sign * (place[graph.dst[inner]] - place[graph.src[inner]]) >= 0).all()
    found = pipelined(graph, load_cluster("v100x4"), batches=8)
    assert found.chosen.fits and found.bound_ticks <= found.chosen.candidate.makespan
    laid = {each.schedule.name: each.candidate.makespan for each in found.mapped if each.candidate is not None}
    assert {"gpipe", "1f1b", "interleaved-2", "zero-bubble"} <= set(laid)
    assert found.chosen.candidate.makespan <= min(laid.values())
