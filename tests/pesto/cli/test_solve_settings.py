"""Settings of a solve from the command line and the face: what each changes, and that the plan file says so."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pesto as face
from pesto.cli.main import pesto
from pesto.core.errors import UsageError
from pesto.core.settings import Settings
from pesto.planning.coarsen import Caps, Coarsening, Round, coarsen
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.quick_candidates import multilevel

TRANSFER_S = 300e-6
SENT = round((TRANSFER_S - 40.771e-6) / 2.07573e-11)
"""Bytes that take so long between the GPUs of v100x2-nvlink."""


def solved(*words: object):
    """What `pesto solve --json` says of it, and the settings in the plan file."""
    done = CliRunner().invoke(pesto, ["solve", *map(str, words), "--json", "-q"], standalone_mode=False)
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout), json.loads(Path("plan.json").read_text())["provenance"]["settings"]


@pytest.fixture
def step(tmp_path, monkeypatch) -> str:
    """Ten producers of 10 us that share a GPU, each with a consumer of 100 us."""
    monkeypatch.chdir(tmp_path)
    made = [{"name": f"p{k}", "outputs": [SENT], "time_s": {"gpu": 1e-5}, "group": "p"} for k in range(10)]
    read = [{"name": f"c{k}", "inputs": [f"p{k}"], "time_s": {"gpu": 1e-4}} for k in range(10)]
    file = {"format": "pesto-graph", "format_version": 1, "source": "shared link", "ops": [*made, *read]}
    Path("step.json").write_text(json.dumps(file))
    return "step.json"


def test_without_congestion_the_solver_promises_what_links_do_not_keep(step) -> None:
    """Pesto, Fig 5. Four transfers at once promise 0.71 ms; one after another, the best takes 0.9 ms."""
    asked = ("--graph", step, "--time-limit", 600, "--no-search", "--coarsen-to", 50)
    free, said = solved(*asked, "--no-congestion")
    assert said["congestion"] is False
    assert free["coarse"]["makespan_s"] == pytest.approx(0.71e-3, rel=1e-4)
    assert free["makespan_s"] >= 0.9e-3 * (1 - 1e-4)
    queued, said = solved(*asked)
    assert said["congestion"] is True
    assert queued["makespan_s"] == pytest.approx(0.9e-3, rel=1e-4)
    checked = CliRunner().invoke(pesto, ["check", "plan.json", "--graph", step], standalone_mode=False)
    assert checked.exit_code == 0, checked.output


def test_caps_of_merged_nodes_and_the_edges_that_are_removed(step) -> None:
    """In the plan file only where they are asked for; all ten edges lie inside of nine nodes."""
    asked = ("--graph", step, "--time-limit", 0, "--no-search", "--solver", "list", "--coarsen-to", 9)
    found, said = solved(*asked, "--merge-time", 0.5, "--merge-members", 3, "--headroom", 0.2)
    assert (said["merge_time"], said["merge_members"], said["headroom"]) == (0.5, 3.0, 0.2)
    assert found["coarse"]["batches"] > 0
    assert found["coarse"]["edges_removed"] == 1 - found["coarse"]["edges"] / 10
    assert 0 < found["coarse"]["most_edges_removed_in_a_batch"] <= 1
    _, said = solved(*asked)
    assert not {"merge_time", "merge_members", "headroom"} & set(said)


def test_caps_reach_the_coarsening(make_graph, make_cluster, make_costs) -> None:
    """`levels` coarsens under the caps of the settings, and other caps make another graph; the face takes them, too."""
    rng = np.random.default_rng(4)
    ops = [
        {"name": f"op{k}", "s": float(rng.integers(1, 30)) * 1e-5, "bytes": int(rng.integers(0, 10**6)),
         "kinds": ("gpu",), "inputs": tuple(f"op{j}" for j in rng.permutation(k)[: rng.integers(0, 3)])}
        for k in range(120)
    ]  # fmt: skip
    graph, cluster = make_graph(ops), make_cluster()
    problem = formulate(graph, make_costs(graph, cluster), cluster, Settings())
    bench, made = CandidateEvaluator.of(graph, problem), {}
    for asked in (Settings(coarsen_to=12), Settings(coarsen_to=12, merge_time=0.2, merge_members=1)):
        stage = multilevel(bench, problem, asked)
        try:
            while True:
                next(stage)
        except StopIteration as done:
            made[asked] = done.value[0].coarsening.node_of.tolist()
        caps = Caps(time=asked.merge_time, members=asked.merge_members)
        assert made[asked] == coarsen(problem, 12, caps=caps).node_of.tolist()
    one, other = made.values()
    assert one != other
    plan = face.solve(graph, time_limit_s=0, search=False, solver="list", coarsen_to=12, merge_members=1)
    assert plan.provenance.settings["merge_members"] == 1


def test_edges_that_are_counted_once() -> None:
    """0 -> 1 twice, 0 -> 2 and 1 -> 3: three edges. One batch merges 0 and 1, one 2 and 3: two are left, then one."""
    rounds = tuple(Round(step="edges", nodes=4 - k, edges=3 - k, merged=1, cap=-1) for k in range(2))
    found = Coarsening(
        node_of=np.array([0, 0, 1, 1]), nodes=2, rank=np.arange(4), target=2, reason="by hand", rounds=rounds,
        largest_group_share=0.0,
    )  # fmt: skip
    removed = found.removed(np.array([0, 0, 0, 1]), np.array([1, 1, 2, 3]))
    assert (removed.edges, removed.left, removed.batches, removed.most) == (3, 1, 2, 0.5)
    assert removed.share == pytest.approx(2 / 3)


@pytest.mark.parametrize("wrong", [{"merge_time": 1e-300}, {"merge_members": 1e300}, {"headroom": 1.0}])
def test_settings_out_of_range(wrong) -> None:
    """Named, with what would be right."""
    with pytest.raises(UsageError, match=r"give a (number from 0.001|fraction)"):
        Settings(**wrong)
