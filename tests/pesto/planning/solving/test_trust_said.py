"""How far to trust a plan, as the command line says it: of a solve, of a simulation, and what it refuses."""

import json
from dataclasses import asdict

import pytest
from click.testing import CliRunner

import pesto
from pesto.cli.main import pesto as command
from pesto.core.errors import UsageError
from pesto.planning.solving.trust import DRAWS
from pesto.reporting.show.facts import trust_table

TYPES = ("MatMul", "Mul", "Conv2D", "Sum")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a graph of twelve ops and its plan, from the command line."""
    folder = tmp_path_factory.mktemp("trust")
    ops = [
        {"name": f"op{k}", "type": TYPES[k % 4], "inputs": [f"op{k - 2}"] if k > 1 else [], "outputs": [2**20],
         "time_s": {"gpu": 1e-3 * (k + 1), "cpu": 1}}
        for k in range(12)
    ]  # fmt: skip
    (folder / "g.json").write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}))
    return folder


def run(folder, verb, *words):
    return CliRunner().invoke(command, [verb, "--graph", str(folder / "g.json"), *map(str, words)])


@pytest.mark.slow
def test_solve_and_simulate_say_it(files) -> None:
    """One line of a solve; a table of a simulation; in both the JSON; the same for the same seed, as from Python."""
    plan = files / "p.json"
    quick = ("--time-limit", "0", "--no-search", "--deterministic", "-q", "-o", plan)
    said = [json.loads(run(files, "solve", *quick, "--json").stdout)["trust"] for _ in range(2)]
    assert said[0] == said[1] and said[0]["noise"] == 0.25 and said[0]["draws"] == DRAWS
    lines = run(files, "solve", *quick).stdout.splitlines()
    assert sum(line.startswith("trust  ") for line in lines) == 1
    noisy = ("--noise", 0.5, "--draws", 20, "--seed", 3)
    found = json.loads(run(files, "simulate", plan, *noisy, "--json").stdout)["trust"]
    assert (found["noise"], found["draws"], found["seed"]) == (0.5, 20, 3)
    assert found["plan"]["p10_s"] < found["plan"]["p90_s"] and found["rivals"]
    graph = pesto.load_graph(files / "g.json")
    again = pesto.simulate(plan, graph, noise=0.5, draws=20, seed=3)
    assert asdict(again.trust) == found and pesto.simulate(plan, graph).trust is None
    shown = run(files, "simulate", plan, *noisy).stdout
    assert shown.endswith("\n".join(trust_table(again.trust)) + "\n") and "  plan  " in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "trust" not in json.loads(run(files, "simulate", plan, "--json").stdout)
    still = json.loads(run(files, "simulate", plan, "--noise", "0", "--json").stdout)
    assert [still["trust"]["plan"][p] for p in ("p10_s", "p50_s", "p90_s")] == [still["makespan_s"]] * 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--noise", "2.1"), "give a number from 0 to 2, such as 0.25"),
        (("--noise", "nan"), "give a number from 0 to 2, such as 0.25"),
        (("--noise", "0.2", "--draws", "0"), "give a whole number from 1 to 10000"),
        (("--noise", "0.2", "--draws", "10000000"), "give a whole number from 1 to 10000"),
        (("--noise", "0.2", "--seed", "-1"), "give a whole number from 0 to 2147483647"),
        (("--draws", "5"), "give --noise as well"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(words, says, files) -> None:
    """Even the plan's file, which is none."""
    (files / "none.json").write_text("nothing")
    refused = run(files, "simulate", files / "none.json", *words)
    assert isinstance(refused.exception, UsageError) and says in str(refused.exception)


def test_a_placement_of_the_authors_files_is_timed_again_too(files) -> None:
    """All on one GPU; its rivals are on two."""
    (files / "part.json").write_text(json.dumps([{f"op{k}": "gpu:0"} for k in range(12)]))
    words = ("--part", files / "part.json", "--noise", 0.25, "--json")
    found = json.loads(run(files, "simulate", *words).stdout)["trust"]
    assert found["plan"]["best"] < 0.1 and found["rivals"]
