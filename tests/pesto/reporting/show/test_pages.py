"""Pages for people: 80 columns, words explained, and a sign that is said in words."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import VERBS, pesto
from pesto.core.plans.execution_modes import OrderWorth
from pesto.planning.solving.flow import CANDIDATES
from pesto.reporting.show.lines import COLUMNS, command, fact, paragraph
from pesto.reporting.show.solve_report import LINES, WORDS, _order, layers_lines
from pesto.verbs import api

LONG = "layer_with_a_long_name/" * 12
OPS = [
    {"name": f"{LONG}{k}", "outputs": [2**20], "inputs": [f"{LONG}{k - 2}"] if k > 1 else [], "param_bytes": 2**20,
     "time_s": {"gpu": 1e-5 * (k + 1), "cpu": 1e-3}}
    for k in range(12)
]  # fmt: skip


def invoked(folder: Path, *words: object):
    done = CliRunner().invoke(pesto, [str(word) for word in words], standalone_mode=False)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > COLUMNS]


@pytest.fixture
def step(tmp_path, monkeypatch) -> str:
    """A graph in the current folder, with names of 276 characters."""
    monkeypatch.chdir(tmp_path)
    graph = {"format": "pesto-graph", "format_version": 1, "source": "long names", "ops": OPS}
    Path("step.json").write_text(json.dumps(graph))
    return "step.json"


def test_no_page_is_wider_than_80_columns(step, tmp_path) -> None:
    """What solve, check, simulate, compare, sweep, instance, schedule, import and doctor print, progress included."""
    given, short = ("--graph", step), ("--time-limit", "0.2")
    pages = [
        invoked(tmp_path, *words)
        for words in (
            ("solve", *given, *short, "--workers", 1, "-o", "plan.json"),
            ("check", "plan.json", *given, "--certificate"),
            ("simulate", "plan.json", *given),
            ("compare", *given, *short, "--methods", "pardnn-unrefined,linear-clustering,single,framework-default"),
            ("sweep", *given, *short, "--compute", "0.5,1", "--links", "0.1,1"),
            ("instance", *given, "--coarsen-to", 5, "-o", "problem.json"),
            ("schedule", "problem.json", "--solver", "list", *short),
            ("import", *given, "-o", "again.json"),
            ("instance", "--list"),
            ("models",), ("clusters",),
        )
    ]  # fmt: skip
    assert [line for done in pages for line in too_wide(done.output)] == []
    solved = pages[0].stdout
    assert " µs" in solved and " MiB" in solved and "\nwords  " in solved
    assert pages[2].stdout.count("MiB") == 2 and "GiB" not in pages[2].stdout


@pytest.mark.parametrize("verb", [*VERBS, "study run", "study status", "study report"])
def test_no_help_is_wider_than_80_columns(verb) -> None:
    done = CliRunner().invoke(pesto, [*verb.split(), "--help"])
    assert done.exit_code == 0 and too_wide(done.output) == []
    assert too_wide(CliRunner().invoke(pesto, ["--help"]).output) == []


def test_memory_that_lacks_is_said_with_the_ends_of_a_long_name(step) -> None:
    """A variable of 2 TiB: the op's name of 276 characters is shortened in its middle."""
    ops = [{**OPS[0], "param_bytes": 2**41}]
    Path(step).write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}))
    done = CliRunner().invoke(pesto, ["solve", "--graph", step, "-q"], standalone_mode=False)
    assert "2048.00 GiB (layer_with_a_long_..._with_a_long_name/0)" in str(done.exception)


def test_every_candidate_of_a_solve_is_explained() -> None:
    assert sorted(name for names, _ in WORDS for name in names) == sorted(CANDIDATES)


def test_a_step_of_no_time_has_a_page(tmp_path, monkeypatch) -> None:
    """Shares of nothing are not asked for."""
    monkeypatch.chdir(tmp_path)
    op = {"name": "only", "time_s": {"cpu": 0, "gpu": 0}}
    Path("zero.json").write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": [op]}))
    said = invoked(tmp_path, "solve", "--graph", "zero.json", "--time-limit", "0.2", "--solver", "list").stdout
    assert "1 op on v100x2-nvlink" in said


def test_every_line_of_a_solve_is_explained(step, tmp_path) -> None:
    """What begins a line of its page is a word of `--explain-output`, which needs nothing else on the command line."""
    said = invoked(tmp_path, "solve", "--graph", step, "--time-limit", "0.2", "--workers", 1).stdout
    labels = [line[:14].strip() for line in said.splitlines()[1:] if line[:1].strip()]
    assert set(labels) - {"words"} <= {label for name, _ in LINES for label in name.split(", ")}
    told = invoked(tmp_path, "solve", "--explain-output").stdout
    assert too_wide(told) == []
    assert all(name in told for names, _ in WORDS for name in names)


@pytest.mark.parametrize(("terminal", "widest"), [(30, 40), (60, 60), (80, 80), (300, 100)])
def test_lines_follow_the_terminal(monkeypatch, terminal, widest) -> None:
    """As wide as it is, within what can be read; a pipe has 80 columns."""
    assert 75 < max(map(len, fact("label", "word " * 99).splitlines())) <= 80
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", str(terminal))
    assert widest - 5 < max(map(len, fact("label", "word " * 99).splitlines())) <= widest


def test_layers_are_told_by_the_device_that_has_most_of_them(make_graph) -> None:
    """Of a scope on two devices its share there; gradients count with their scope; without scopes nothing is said."""
    ops = [{"name": name, "s": s, "kinds": ["gpu"]} for name, s in (
        ("a/x", 3e-6), ("a/y", 1e-6), ("b/x", 2e-6), ("gradients/b/x", 2e-6), ("end", 1e-6))]  # fmt: skip
    plan = api.solve(make_graph(ops), time_limit_s=0)
    on = {name: k for k, name in enumerate(plan.lanes)}
    device = np.array([on["gpu:0"], on["gpu:1"], on["gpu:1"], on["gpu:1"], on["gpu:1"]])
    placed = replace(plan, schedule=replace(plan.schedule, device=device))
    assert layers_lines(placed) == [
        fact("layers", "gpu:0: a (75.0% of it)"),
        fact("", "gpu:1: b, (no scope)"),
    ]
    assert layers_lines(replace(placed, names=tuple("abcde"))) == []


def test_an_order_that_costs_says_so() -> None:
    """100 ticks against 80 cost a quarter; priorities of links that give 110 are a tenth more."""
    worth = OrderWorth(enforced=100, fifo=80, listed=100, scheduled=110)
    assert "enforced it costs 25.0% against" in _order(worth) and "(10.0% more)" in _order(worth)
    better = replace(worth, fifo=200, scheduled=90)
    assert "enforced it saves 50.0% against" in _order(better) and "(10.0% less)" in _order(better)
    assert "(the same)" in _order(replace(worth, scheduled=100))


def test_lines_are_broken_between_words_below_each_other() -> None:
    text = fact("label", "word " * 40).splitlines()
    assert len(text) == 4 and text[0].startswith("label         word") and text[1].startswith(" " * 14 + "word")
    assert paragraph("a" * 100) == "a" * 100
    words = ["pesto", "check", "a plan.json", *("--fetch", "abcdefghijklmnop") * 6]
    typed = command("next", words)
    assert too_wide(typed) == [] and shlex.split(typed.replace("\\\n", " ")) == ["next", *words]
