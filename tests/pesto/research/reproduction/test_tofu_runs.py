"""What Tofu's cells compute: an order that holds little, the largest batch that fits, layers in turn, weights."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pesto.core.memory import footprint
from pesto.core.problem import build_problem
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_shaped
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.research.reproduction.cached_cells import CellSettings
from pesto.research.reproduction.cell_lists import RNN, TOFU_FAMILIES, WRN
from pesto.research.reproduction.grids import load_printed
from pesto.research.reproduction.work import tofu_runs
from pesto.research.reproduction.work.tofu_runs import lean_order
from solvers.memory.usage import usage

ASKED = CellSettings(graphs=Path(), drawn=Path(), seconds=1.0, tiny=False)


@pytest.fixture(scope="module")
def recurrent():
    """The tiny recurrent network, on eight GPUs."""
    graph, shaped = load_shaped(Source(model="tofu-rnn", variant="tiny"), quiet=True)
    cluster = load_cluster("k80x8")
    problem = build_problem(graph, load_costs(graph, cluster, None), cluster, memory=graph.param_bytes)
    return graph, shaped, cluster, problem


def test_a_lean_order_is_an_order_and_frees_gradients_at_once(recurrent):
    """Every op behind what it reads; less is alive at the peak of one GPU than in list order."""
    graph, _, cluster, problem = recurrent
    rank = lean_order(graph)
    assert sorted(rank.tolist()) == list(range(graph.ops))
    assert (rank[graph.src] < rank[graph.dst]).all() and (rank[graph.control_src] < rank[graph.control_dst]).all()
    device = tofu_runs._on_one(graph, problem, cluster)
    bench = CandidateEvaluator.of(graph, problem)
    lean, listed = bench.ordered("", "", device, rank), bench.placed("", "", device)
    assert lean.peak.max() < 0.9 * listed.peak.max()
    held = usage(lean.timeline.problem, footprint(graph), lean.timeline.schedule)
    assert (held.peak == lean.peak).all()


def test_layers_go_to_gpus_in_turn(recurrent):
    """Layer k, with its gradients and its variables' updates, on GPU k."""
    graph, _, cluster, problem = recurrent
    device = tofu_runs.in_turn(graph, problem, cluster)
    where = {name: cluster.devices[problem.location[d]].name for name, d in zip(graph.names, device, strict=True)}
    assert {where[f"layer_{k}/step_3/MatMul"] for k in (0, 1)} == {"gpu:0", "gpu:1"}
    for k in (0, 1):
        assert where[f"layer_{k}/kernel/Momentum"] == where[f"layer_{k}/kernel"] == where[f"layer_{k}/step_0/MatMul"]
        assert where[f"gradients/layer_{k}/step_2/MatMul_grad/MatMul_1"] == where[f"layer_{k}/kernel"]


@pytest.mark.parametrize(("alike", "batch"), [(0, 512), (3, 256), (40, 8), (1000, 1)])
def test_the_largest_batch_that_fits_is_found_though_some_are_left_out(alike: int, batch: int) -> None:
    """A peak of `alike` bytes and 2 for each of the batch, on a device of 600 bytes and more."""
    tried = []

    def attempt(size: int) -> tofu_runs.BatchRun[int]:
        room = {0: 1024, 3: 600, 40: 64, 1000: 900}[alike]
        peak = alike + 2 * size
        tried.append(size)
        problem = SimpleNamespace(capacity=np.array([10**6, room]))
        run = SimpleNamespace(fits=peak <= room, peak=np.array([5, peak]), timeline=SimpleNamespace(problem=problem))
        return tofu_runs.BatchRun(run, size)

    found, last = tofu_runs._largest(attempt, ASKED)
    assert (found, last.of) == (batch, batch) and tried == sorted(tried, reverse=True)
    assert all(size & (size - 1) == 0 for size in tried)


def test_weights_are_those_that_are_trained(recurrent):
    """Of two layers of 32 units, 8 features and 8 classes; neither momentum nor anything else."""
    layers = (8 + 32) * 128 + 128 + (32 + 32) * 128 + 128
    assert tofu_runs.weights(recurrent[0]).sum() == 4 * (layers + 32 * 8 + 8)


def test_the_printed_weights_follow_from_the_layers_sizes() -> None:
    """Table 1: three times (8 (L - 1) + 4) H^2 numbers of 4 bytes, in GiB, but for RNN-8-6K, whose digit is another."""
    numbers = load_printed()["tofu-table1"].numbers
    assert len(numbers) == len(RNN) + len(WRN) == sum(map(len, TOFU_FAMILIES.values()))
    for variant in RNN:
        layers, hidden = map(int, variant.split("x"))
        weights = 4 * (8 * (layers - 1) + 4) * hidden**2 / 2**30
        wrong = abs(3 * weights - numbers[f"tofu-rnn/{variant}"]["gb"])
        assert (wrong > 3) == (variant == "8x6144") and (wrong < 0.31 or variant == "8x6144")


@pytest.mark.slow
def test_a_cell_of_each_kind_of_a_tiny_model(monkeypatch) -> None:
    """Cuts, layers in turn, one GPU and one method: each has what its page reads; transfers cost time."""
    monkeypatch.setattr(tofu_runs, "FACTORS", (2, 2))
    asked = CellSettings(graphs=Path(), drawn=Path(), seconds=1.0, tiny=True)
    key = ("tofu-rnn", "6x4096", "k80x8")
    cut = tofu_runs.divided(key, asked)
    assert cut["batch"] == 8 and cut["bytes"]["exact"] <= cut["bytes"]["tofu"]
    assert all(run["fits"] for runs in cut["runs"].values() for run in runs.values())
    assert set(cut["runs"]) == set(tofu_runs.placed(key, asked)["runs"]) == {"k80x8", tofu_runs.SWITCHED}
    assert tofu_runs.small(key, asked)["step_s"] == pytest.approx(cut["single_s"])
    one = tofu_runs.compared((*key, "rows"), asked)
    assert one["silent_s"] < one["runs"][tofu_runs.SWITCHED]["step_s"] <= one["runs"]["k80x8"]["step_s"]
