"""Ctrl-C, SIGTERM, SIGHUP and kill -9 in the middle of a solve: the best plan is kept, and no process stays behind."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from process_families import descendants, gone

from pesto.cli.main import pesto


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An LSTM grid of 6 layers x 35 steps: too hard to be proven on 4 GPUs in the time of a test."""
    rng = np.random.default_rng(11)
    ops = []
    for layer in range(6):
        for step in range(35):
            before = [(layer - 1, step)] * (layer > 0) + [(layer, step - 1)] * (step > 0)
            ops.append(
                {"name": f"cell{layer}.{step}", "inputs": [f"cell{a}.{b}" for a, b in before], "outputs": [2 * 10**6],
                 "runs_on": ["gpu"], "time_s": {"gpu": float(rng.integers(150, 350)) * 1e-6}}
            )  # fmt: skip
    path = tmp_path_factory.mktemp("graphs") / "grid.json"
    path.write_text(json.dumps({"format": "pesto-graph", "format_version": 1, "source": "grid", "ops": ops}))
    return path


def begin(graph: Path, tmp_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pesto", "solve", "--graph", str(graph), "--cluster", "v100x4", "--out", "p.json"]
    command += ["--time-limit", "120"]
    hear = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731 - also where nohup began the tests
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear,  # noqa: PLW1509
    )


def working(run: subprocess.Popen[str]) -> set[int]:
    """The processes below a solve, once there are any: those of the exact solver."""
    until = time.monotonic() + 600
    while not (below := descendants(run.pid)) and time.monotonic() < until:
        time.sleep(0.1)
    assert below, "the exact solver never started"
    return below


def first_plan(run: subprocess.Popen[str]) -> None:
    assert run.stderr is not None
    for line in run.stderr:
        if "first valid plan" in line:
            return
    raise AssertionError("the solve ended before its first plan")


MOMENTS = [
    (number, code, seconds)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143))
    for seconds in np.random.default_rng(number).uniform(0, 6, 3).tolist()
]
"""Signals, their exit codes, and when they come, in seconds after the first plan."""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
@pytest.mark.parametrize(
    ("sent", "code", "seconds"),
    [(signal.SIGINT, 130, None), *(pytest.param(*moment, marks=pytest.mark.kill) for moment in MOMENTS)],
)
def test_an_interrupted_solve_saves_a_valid_plan(
    sent: int, code: int, seconds: float | None, graph: Path, tmp_path: Path
) -> None:
    """While the exact solver runs, or any time after the first plan: exit code, a plan that checks, no process left."""
    run = begin(graph, tmp_path)
    first_plan(run)
    below = working(run) if seconds is None else set()
    time.sleep(seconds or 0)
    below |= descendants(run.pid)
    run.send_signal(sent)
    out, err = run.communicate(timeout=600)
    assert run.returncode == code, err
    assert "written to p.json" in out
    assert gone(*below), "a process outlived the solve"
    checked = CliRunner().invoke(
        pesto, ["check", str(tmp_path / "p.json"), "--graph", str(graph), "--cluster", "v100x4"]
    )
    assert checked.exit_code == 0, checked.output


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_a_killed_solve_leaves_no_solver_behind(graph: Path, tmp_path: Path) -> None:
    """kill -9 gives the parent no chance to clean up; the solver goes with it all the same."""
    run = begin(graph, tmp_path)
    first_plan(run)
    below = working(run)
    run.kill()
    run.communicate()
    assert gone(*below), "the solver outlived its parent"
    assert not (tmp_path / "p.json").exists()
