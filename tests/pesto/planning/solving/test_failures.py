"""Ends of the command line that no bad input reaches: a missing solver, a full stdout, user code that prints."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forked
import pytest

import pesto
from pesto.cli.main import main
from solvers.api import SOLVERS

CHATTY = """
import tensorflow as tf
print("importing")

@tf.function(input_signature=[tf.TensorSpec([4, 4])])
def step(x):
    print("tracing")
    return x @ x
"""


def graph(tmp_path: Path, *, output: int) -> Path:
    """A chain of six ops, each with `output` bytes."""
    ops = [
        {"name": f"op{k}", "inputs": [f"op{k - 1}"] if k else [], "outputs": [output], "time_s": {"gpu": 1e-3}}
        for k in range(6)
    ]
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "source": "chain", "ops": ops}))
    return path


@pytest.fixture
def broken_cpsat(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where a package that the exact solver imports is broken."""
    monkeypatch.setitem(SOLVERS, "cpsat", replace(SOLVERS["cpsat"], module="solvers.no_such_module"))


def solve(path: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.chdir(path.parent)
    options = ["--graph", str(path), "--cluster", "v100x4", "--time-limit", "0.1"]
    monkeypatch.setattr(sys, "argv", ["pesto", "solve", "-q", "--json", *options, *more])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_where_the_exact_solver_fails_a_plan_is_found_and_the_user_warned(
    broken_cpsat: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A grid of cells with slow transfers is not proven by the baselines, so the exact solver is asked, and fails."""
    path = graph(tmp_path, output=8)
    text = json.loads(path.read_text())
    text["ops"] = [
        {"name": f"c{a}.{b}", "inputs": [f"c{a - 1}.{b}"] * (a > 0) + [f"c{a}.{b - 1}"] * (b > 0), "outputs": [10**7],
         "runs_on": ["gpu"], "time_s": {"gpu": 3e-4}}
        for a in range(4) for b in range(6)
    ]  # fmt: skip
    path.write_text(json.dumps(text))
    assert solve(path, monkeypatch, "--no-search", "--time-limit", "60") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["coarse"]["status"] == "missing"
    assert json.loads(out)["coarse"]["makespan_s"] is None
    assert "cpsat missing" in err


def test_a_solver_that_is_not_installed_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit code 7 with the command that installs it, though the graph is none and the heuristics could answer."""
    monkeypatch.setitem(SOLVERS, "gurobi", replace(SOLVERS["gurobi"], package="no-such-package"))
    path = tmp_path / "no.graph.json"
    path.write_text("no graph")
    assert solve(path, monkeypatch, "--solver", "gurobi") == 7
    assert "gurobi needs the package no-such-package - pip install no-such-package" in capfd.readouterr().err
    with pytest.raises(pesto.SolverError, match="needs the package no-such-package"):
        pesto.solve(pesto.load_graph(graph(tmp_path, output=8)), cluster="v100x4", solver="gurobi")


def test_exit_7_when_nothing_fits_and_the_solver_fails(
    broken_cpsat: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An op that reads 12 GiB and makes 12 GiB fits no GPU of 16 GiB, and no exact solver could look further."""
    assert solve(graph(tmp_path, output=12 * 2**30), monkeypatch) == 7
    out, err = capfd.readouterr()
    assert (json.loads(out)["exit_code"], (tmp_path / "plan.json").exists()) == (7, False)
    assert "no plan fits, and cpsat failed: missing" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_full_stdout_is_exit_8(flags: tuple[str, ...], tmp_path: Path) -> None:
    """One line on stderr, as for any file that cannot be written."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "pesto", "clusters", *flags]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (8, False)


@pytest.mark.parametrize("verb", [pytest.param("solve", marks=pytest.mark.slow), "profile"])
def test_what_user_code_prints_does_not_mix_with_the_json(verb: str, tmp_path: Path) -> None:
    """stdout holds one object; the prints of an imported and traced module go to stderr."""
    (tmp_path / "chatty.py").write_text(CHATTY)
    options = ["--time-limit", "0"] if verb == "solve" else ["--iterations", "3", "--keep-disturbed"]
    done = forked.run("pesto", verb, "--function", "chatty:step", "--json", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert json.loads(done.stdout)
    assert "importing" in done.stderr


@pytest.mark.parametrize("quiet", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_quiet_leaves_out_what_libraries_say_and_keeps_what_is_printed(quiet: bool, tmp_path: Path) -> None:
    """A library writes to the descriptor, Keras warns; the user's own print to stderr is the user's."""
    said = 'os.write(2, b"of C++\\n"); warnings.warn("a warning"); print("mine", file=sys.stderr)'
    (tmp_path / "chatty.py").write_text(f"import os, sys, warnings\n{said}\n{CHATTY}")
    words = ("solve", "--function", "chatty:step", "--time-limit", "0", "--no-search", "--solver", "list")
    done = forked.run("pesto", *words, *(["-q"] if quiet else []), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stderr and "importing" in done.stderr
    assert [text in done.stderr for text in ("of C++", "a warning")] == [not quiet] * 2


def test_doctor_knows_which_solvers_promise_no_optimum(monkeypatch) -> None:
    """Two equal tasks on two devices: a placement method may put both on one; a solver that does is not well."""
    from pesto.cli.verbs import doctor
    from solvers.api import available

    few = [row for row in available() if row.name in ("list", "single", "random", "m-topo", "round-robin")]
    monkeypatch.setattr(doctor, "available", lambda: few)
    assert doctor._check_solvers() == {f"solver {row.name}": "ok" for row in few}
