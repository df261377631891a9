"""pesto explain and pesto diff as a user meets them: exit codes, one object of JSON, one line of error."""

import json
import subprocess
from pathlib import Path

import forked
import numpy as np
import pytest

from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.plans.plan_file import save
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_graph
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.tracker import SolveRecord, make_plan
from solvers.arrays import ints
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound

OP = {"name": "net/a", "outputs": [8], "time_s": {"gpu": 1e-3, "cpu": 1e-3}}
GRAPH = {
    "format": "pesto-graph",
    "format_version": 1,
    "source": "two branches",
    "ops": [
        OP,
        {**OP, "name": "net/b", "inputs": ["net/a"]},
        {**OP, "name": "net/<script>", "inputs": ["net/a"]},
        {**OP, "name": "d", "inputs": ["net/b", "net/<script>"], "outputs": []},
    ],
}


def pesto(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return forked.run("pesto", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, another, and a plan of each; what is in it stays as it is."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "graph.json").write_text(json.dumps(GRAPH))
    (folder / "other.json").write_text(json.dumps({**GRAPH, "ops": GRAPH["ops"][:3]}))
    for graph, plan in (("graph", "one"), ("other", "two")):
        save(by_list(load_graph(Source(file=folder / f"{graph}.json"))), folder / f"{plan}.json")
    return folder


def by_list(graph: Graph) -> Plan:
    """A plan of a graph on two GPUs, in list order, on the GPU of their place in it."""
    cluster = load_cluster("v100x2-nvlink")
    costs, settings = load_costs(graph, cluster, None), Settings()
    problem = formulate(graph, costs, cluster, settings)
    run = CandidateEvaluator.of(graph, problem).placed(
        "list", "by hand", ints(problem.devices - 1 - np.arange(graph.ops) % 2)
    )
    bound = FullBound(*quick_bounds.best(problem))
    record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=settings, bound=bound)
    return make_plan(record, run, {"list": run})


def test_explain_prints_sentences_or_one_object(there: Path) -> None:
    """The kinds of the path sum to the step to the tick; a page says of each op that is asked for."""
    done = pesto("explain", "one.json", "--graph", "graph.json", "--json", cwd=there)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert sum(round(seconds * 1e9) for seconds in said["path"].values()) == round(said["step_s"] * 1e9)
    assert {"path", "step_s", "blockers", "helps", "ties"} <= set(said)
    page = pesto("explain", "one.json", "--graph", "graph.json", "--op", "net/<script>", cwd=there)
    assert page.returncode == 0
    assert "would help" in page.stdout
    assert "net/<script> runs on gpu:" in page.stdout
    assert max(map(len, page.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("plan", "more", "code", "text"),
    [
        ("one.json", ["--graph", "graph.json", "--op", "net/c"], 2, "near it are"),
        ("one.json", [], 2, "give it with --graph"),
        ("one.json", ["--graph", "other.json"], 9, "the plan is for graph"),
        ("none.json", ["--graph", "graph.json"], 8, "none.json"),
        ("cut.json", ["--graph", "graph.json"], 3, "cut.json"),
        ("newer.json", ["--graph", "graph.json"], 3, "newer.json"),
    ],
)
def test_what_cannot_be_explained_is_one_line_and_an_exit_code(
    there: Path, plan: str, more: list[str], code: int, text: str
) -> None:
    """An unknown op, a graph that is missing or another's, and plans that are missing, cut off or newer."""
    whole = (there / "one.json").read_text()
    (there / "cut.json").write_text(whole[: len(whole) // 2])
    (there / "newer.json").write_text(json.dumps({**json.loads(whole), "format_version": 2}))
    done = pesto("explain", plan, *more, cwd=there)
    assert done.returncode == code
    assert text in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_diff_ends_with_ten_only_where_it_is_asked_and_plans_differ(there: Path) -> None:
    """Of one plan with itself 0; of two 0, and 10 with --exit-code; the object says the same."""
    for first, second, code in (("one", "one", 0), ("one", "two", 10)):
        for more in ([], ["--exit-code"]):
            done = pesto("diff", f"{first}.json", f"{second}.json", "--json", *more, cwd=there)
            assert (done.returncode, done.stderr) == (code if more else 0, "")
            assert json.loads(done.stdout)["differ"] == (first != second)
    assert "10 two plans differ" in pesto("--help", cwd=there).stdout.replace("\n", " ").replace("  ", " ")


def test_diff_counts_bytes_of_the_graph_that_is_given(there: Path) -> None:
    """With the graph of one plan, its bytes; with a graph of neither, exit code 9."""
    said = json.loads(pesto("diff", "one.json", "two.json", "--graph", "graph.json", "--json", cwd=there).stdout)
    assert isinstance(said["sent_bytes"][0], int)
    assert said["sent_bytes"][1] is None
    (there / "third.json").write_text(json.dumps({**GRAPH, "ops": GRAPH["ops"][:1]}))
    done = pesto("diff", "one.json", "two.json", "--graph", "third.json", cwd=there)
    assert done.returncode == 9
    page = pesto("diff", "one.json", "two.json", cwd=there)
    assert page.returncode == 0
    assert "known again by their names" in page.stdout.replace("\n", " ")
