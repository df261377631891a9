"""What a step offers to several devices, by hand, and ParDNN in the order of its emulator."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.choosing.comparison.contest import Entrants, compete, shape_of
from pesto.cli.main import pesto
from pesto.core.files.graph_file import save
from pesto.core.settings import Settings
from pesto.core.source import model_source
from pesto.planning.solving.candidates import formulate
from pesto.reporting.show.comparison_page import comparison_page
from solvers.heuristics.pardnn import emulator
from solvers.heuristics.pardnn.emulator import emulate
from solvers.heuristics.pardnn.place import place
from solvers.result import Options

ROWS = [
    {"name": "a", "s": 1e-3, "bytes": 999_000},
    {"name": "b", "s": 2e-3, "inputs": ("a",), "bytes": 1_999_000},
    {"name": "c", "s": 3e-3, "inputs": ("a",), "bytes": 0},
    {"name": "d", "s": 2e-3, "inputs": ("b", "c")},
]  # 1 us and 1 ns a byte: a's edges take 1 ms each, b's 2 ms, c's 1 us


@pytest.mark.parametrize(("gpus", "ccr"), [(2, (2 * 1e-3 + 2e-3 + 1e-6) / 8e-3), (1, None)])
def test_parallelism_and_ccr_by_hand(make_graph, make_cluster, make_costs, gpus, ccr) -> None:
    """8 ms of ops over the 6 ms of a, c, d; four edges of 4.001 ms over the 8 ms; nothing to send to on one GPU."""
    graph, cluster = make_graph(ROWS), make_cluster(gpus=gpus)
    problem = formulate(graph, make_costs(graph, cluster), cluster, Settings())
    found = shape_of(graph, problem, cluster)
    assert found.parallelism == pytest.approx(8 / 6)
    assert found.ccr == (None if ccr is None else pytest.approx(ccr))
    assert found.batch is None


def test_throughput_where_the_batch_is_known(make_graph, tmp_path) -> None:
    """A label of a built-in model with a batch tells it; a graph of unknown batch has no throughput."""
    rows = {}
    for source in (model_source("rnnlm", "tiny", 16), "unknown"):
        save(make_graph(ROWS, source=source), tmp_path / "step.json")
        asked = ["compare", "--graph", str(tmp_path / "step.json"), "--methods", "single,list", "--json", "-q"]
        done = CliRunner().invoke(pesto, [*asked, "-o", str(tmp_path / "plans")], standalone_mode=False)
        assert done.exit_code == 0, done.output
        rows[source] = json.loads(done.stdout)
    known, unknown = rows.values()
    assert (known["batch"], unknown["batch"]) == (16, None)
    for name in ("single", "list"):
        row = known["methods"][name]
        assert row["examples_per_s"] == pytest.approx(16 / row["makespan_s"])
        assert "examples_per_s" not in unknown["methods"][name]
    assert known["parallelism"] == unknown["parallelism"] == pytest.approx(8 / 6)


def test_the_page_says_both(make_graph, make_cluster, make_costs) -> None:
    """Ratios with three digits."""
    graph, cluster = make_graph(ROWS), make_cluster()
    contest = compete(
        graph, cluster, make_costs(graph, cluster), Settings(), lambda _: None, entrants=Entrants(("single",))
    )
    text = " ".join(comparison_page(contest, None).split())
    assert "parallelism 1.33 (all ops / the longest path), communication / computation 0.5" in text


def test_pardnn_runs_and_is_repaired_in_its_emulators_order(make_graph, make_cluster, make_costs, monkeypatch) -> None:
    """Its step is that of the emulator; where it does not fit, the emulator times the repair, which fits."""
    rng = np.random.default_rng(2)
    rows = [
        {"name": f"op{k}", "s": float(rng.integers(1, 9)) * 1e-4, "param": int(rng.integers(1, 400)), "kinds": ("gpu",),
         "inputs": tuple(f"op{j}" for j in rng.permutation(k)[: rng.integers(0, 3)])}
        for k in range(40)
    ]  # fmt: skip
    graph = make_graph(rows)
    short = int(graph.param_bytes.sum()) * 52 // 100
    asked = []
    monkeypatch.setattr(emulator, "emulate", lambda *given: asked.append(given) or emulate(*given))
    for memory in (10**9, short):
        cluster = make_cluster(memory=memory)
        costs = make_costs(graph, cluster)
        contest = compete(graph, cluster, costs, Settings(), lambda _: None, entrants=Entrants(("pardnn-emulated",)))
        (entry,) = contest.entries
        assert entry.plan is not None
        problem = formulate(graph, costs, cluster, Settings())
        made = emulate(problem, entry.plan.schedule.device)
        assert entry.plan.schedule.makespan == made.makespan
        if memory == 10**9:
            assert entry.plan.schedule.device.tolist() == place(problem, Options()).device.tolist()
            assert not asked
    assert asked
