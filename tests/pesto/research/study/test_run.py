"""Studies as they are run: killed anywhere and resumed, interrupted, over several processes, over Ray."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import forked
import numpy as np
import pytest
from click.testing import CliRunner
from process_families import alive, descendants

from pesto.cli.main import pesto
from pesto.core.executing import ray_cluster
from pesto.core.executing.executor import WorkFailure
from pesto.core.executing.pool import Pool
from pesto.research.study import runner
from pesto.research.study.cells import cells_of
from pesto.research.study.runner import answer_of
from pesto.research.study.spec import load_study

SMALL = """
format_version = 1
name = "small"
[[grid]]
solvers = ["list", "single"]
limits_s = [30]
deterministic = true
[[grid.families]]
name = "layered"
seeds = [0, 1, 2, 3, 4, 5]
params = { layers = 40, width = [5, 6, 7] }
"""
LONG = """
format_version = 1
name = "long"
[[grid]]
solvers = ["cpsat"]
limits_s = [100]
[[grid.families]]
name = "lstm-grid"
params = { layers = 6, steps = [20, 21], gpus = 4 }
"""
COMMAND = ("study", "run", "study.toml", "--db", "s.sqlite", "-q")


def begin(folder: Path, text: str, *options: str) -> subprocess.Popen[str]:
    (folder / "study.toml").write_text(text)
    command = [sys.executable, "-m", "pesto", *COMMAND, *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(folder: Path, text: str, *options: str) -> str:
    (folder / "study.toml").write_text(text)
    ended = forked.run("pesto", *COMMAND, *options, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def query(folder: Path, text: str) -> list:
    connection = sqlite3.connect(folder / "s.sqlite", timeout=30)
    try:
        return connection.execute(text).fetchall()
    except sqlite3.OperationalError:  # not there yet
        return []
    finally:
        connection.close()


def done(folder: Path) -> int:
    return sum(n for (n,) in query(folder, "SELECT count(*) FROM cells WHERE state = 'done'"))


def everything(folder: Path) -> list:
    """All that the file holds but the times."""
    rows = query(folder, "SELECT * FROM cells ORDER BY ordinal")
    found = query(folder, "SELECT * FROM results ORDER BY key")
    columns = [name for _, name, *_ in query(folder, "PRAGMA table_info(results)")]
    timed = columns.index("seconds")
    results = [row[:timed] + row[timed + 1 :] for row in found]
    traces = query(folder, "SELECT key, makespan, lower_bound FROM traces ORDER BY key, rowid")
    return [query(folder, "SELECT * FROM study"), rows, results, traces]


def until(true, seconds: float = 600.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(true())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder, SMALL, "--jobs", "2")
    assert done(folder) == 36
    return everything(folder)


@pytest.mark.kill
@pytest.mark.parametrize("kills", [1, 3])
def test_killed_at_random_moments_and_resumed(tmp_path, undisturbed, kills):
    """Runs end by kill -9 at random moments; the last ends by itself, and the file is that of one run."""
    rng, reached = np.random.default_rng(), []
    for _ in range(kills):
        before = done(tmp_path)
        run = begin(tmp_path, SMALL, "--jobs", "2")
        more = int(rng.integers(1, 11))
        assert until(
            lambda more=more, before=before, run=run: done(tmp_path) >= before + more or run.poll() is not None
        )
        time.sleep(rng.random() * 0.05)
        below = descendants(run.pid)
        run.kill()
        run.communicate()
        assert until(lambda below=below: not alive(below)), "a process outlived its run"
        reached.append(done(tmp_path))
        states = dict(query(tmp_path, "SELECT state, count(*) FROM cells GROUP BY state"))
        assert states.get("done", 0) == query(tmp_path, "SELECT count(*) FROM results")[0][0]
    assert 0 < reached[0] < 36
    finish(tmp_path, SMALL, "--jobs", "2")
    assert everything(tmp_path) == undisturbed
    assert not [p for p in tmp_path.iterdir() if p.name not in ("study.toml", "s.sqlite")]


@pytest.mark.kill
def test_killed_workers_are_replaced(tmp_path, undisturbed):
    """Two are killed while the run goes on: it ends by itself and nothing is missing or different."""
    run, rng, killed = begin(tmp_path, SMALL, "--jobs", "2"), np.random.default_rng(), 0
    for more in (1, 8):
        assert until(lambda more=more: done(tmp_path) >= more)
        time.sleep(rng.random() * 0.05)
        workers = sorted(alive(descendants(run.pid)))
        if workers:
            os.kill(int(rng.choice(workers)), signal.SIGKILL)
            killed += 1
    _, err = run.communicate(timeout=600)
    assert run.returncode == 0, err
    assert killed
    assert everything(tmp_path) == undisturbed


@pytest.mark.slow
def test_a_second_run_does_nothing_again(tmp_path):
    finish(tmp_path, SMALL, "--limit-cells", "5")
    assert done(tmp_path) == 5
    first = query(tmp_path, "SELECT key, seconds FROM results ORDER BY key")
    out = finish(tmp_path, SMALL, "--limit-cells", "3", "--json")
    assert json.loads(out) == {"db": "s.sqlite", "cells": 36, "done": 8, "pending": 28}
    assert set(first) <= set(query(tmp_path, "SELECT key, seconds FROM results"))
    ordinals = [n for (n,) in query(tmp_path, "SELECT ordinal FROM rows ORDER BY ordinal")]
    assert ordinals == list(range(8))
    finish(tmp_path, SMALL.replace("[5, 6, 7]", "[6, 7]"), "--limit-cells", "0")
    said = CliRunner().invoke(pesto, ["study", "status", str(tmp_path / "s.sqlite")]).output
    assert "small: 24 cells: 0 done, 0 running, 24 pending" in said
    assert "12 cells of a former version of the study: 8 done, 4 that will not be run" in said


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.kill)]
)
def test_an_interrupt_ends_every_process_and_leaves_the_rest_pending(tmp_path, sent, code):
    run = begin(tmp_path, LONG, "--jobs", "1")
    assert until(lambda: len(alive(descendants(run.pid))) >= 3)  # worker, guard, solver
    below = descendants(run.pid)
    second = begin(tmp_path, LONG)
    assert "another run is writing it" in second.communicate(timeout=600)[1]
    assert second.returncode == 2
    run.send_signal(sent)
    _, err = run.communicate(timeout=600)
    assert run.returncode == code, err
    assert "0 of 2 cells are done - run it again to go on" in err
    assert until(lambda: not alive(below))
    assert query(tmp_path, "SELECT state, owner FROM cells") == [("pending", None)] * 2


@pytest.mark.kill
def test_a_killed_run_takes_its_solver_along_and_the_next_one_frees_its_cell(tmp_path):
    """kill -9 of the run while CP-SAT works on a cell: nobody is left, and the lease of the dead is worth nothing."""
    run = begin(tmp_path, LONG, "--jobs", "1")
    assert until(lambda: len(alive(descendants(run.pid))) >= 3)
    below = descendants(run.pid)
    run.kill()
    run.communicate()
    assert until(lambda: not alive(below))
    ((state, owner),) = query(tmp_path, "SELECT state, owner FROM cells WHERE ordinal = 0")
    assert (state, owner.split()[1]) == ("running", str(run.pid))
    finish(tmp_path, LONG, "--limit-cells", "0")
    assert query(tmp_path, "SELECT state, owner FROM cells") == [("pending", None)] * 2


@pytest.mark.kill
def test_a_killed_worker_takes_its_solver_along_and_is_replaced(tmp_path):
    """kill -9 of the worker while CP-SAT runs: the pool says so, and the solver does not outlive it."""
    (tmp_path / "study.toml").write_text(LONG)
    cell = cells_of(load_study(str(tmp_path / "study.toml")))[0]
    workers, others = Pool(1), descendants(os.getpid())

    def mine() -> set[int]:
        return alive(descendants(os.getpid()) - others)

    try:
        workers.begin(runner.cell_work(cell))
        assert until(lambda: len(mine()) >= 3)
        below = mine()
        (worker,) = (p for p in below if b"pesto.core.executing.worker" in Path(f"/proc/{p}/cmdline").read_bytes())
        os.kill(worker, signal.SIGKILL)
        (lost,) = workers.collect()
        assert isinstance(lost, WorkFailure)
        assert (lost.key, lost.detail) == (cell.key, "the worker ended: killed by SIGKILL")
        assert lost.seconds > 0
        assert until(lambda: not alive(below))
        workers.begin(runner.cell_work(cell))
        assert until(lambda: len(mine()) >= 3)
    finally:
        workers.close()
    assert until(lambda: not mine())


@pytest.mark.slow
def test_ray_gives_the_same_file(tmp_path, undisturbed):
    """The cells as remote tasks of a local Ray; this process writes the file."""
    pytest.importorskip("ray")
    finish(tmp_path, SMALL, "--executor", "ray", "--jobs", "2")
    mine, theirs = everything(tmp_path), undisturbed
    assert [mine[0], mine[1], mine[3]] == [theirs[0], theirs[1], theirs[3]]
    assert [row[:-1] for row in mine[2]] == [row[:-1] for row in theirs[2]]
    (cores,) = query(tmp_path, "SELECT DISTINCT json_extract(measures, '$.cores') FROM results")[0]
    assert cores == max(1, len(os.sched_getaffinity(0)) // 2)  # what Ray gave each of two


class Endless:
    """Ray, as far as it is used, on a cluster where no task ever ends by itself."""

    def __init__(self, deaf=0):
        """`deaf`: how often it does not mind a cancel."""
        self.cancelled, self.exceptions, self.deaf = [], SimpleNamespace(RayError=RuntimeError), deaf

    def init(self, **_):
        pass

    def remote(self, **_):
        return lambda _: SimpleNamespace(remote=lambda *_: "reference")

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 2.0}}]

    def wait(self, references, *, num_returns, timeout):
        time.sleep(min(timeout, 0.05) * num_returns)
        return [r for r in references if self.cancelled.count((r, True)) > self.deaf], []

    def cancel(self, reference, *, force):
        self.cancelled.append((reference, force))

    def get(self, reference):
        raise RuntimeError(f"{reference} is cancelled")

    def shutdown(self):
        pass


def begun(tmp_path, monkeypatch, executor):
    """The answer to a cell for which there is hardly any patience, with the cell."""
    monkeypatch.setattr(runner, "patience_s", lambda _: 0.2)
    (tmp_path / "study.toml").write_text(LONG)
    cell = cells_of(load_study(str(tmp_path / "study.toml")))[0]
    executor.begin(runner.cell_work(cell))
    (outcome,) = executor.collect()
    answer = answer_of(outcome)
    assert (answer.key, answer.status) == (cell.key, "hung")
    assert answer.seconds >= 0.2


def test_a_task_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    ray = Endless()
    monkeypatch.setitem(sys.modules, "ray", ray)
    executor = ray_cluster.RayCluster(1)
    begun(tmp_path, monkeypatch, executor)
    assert ray.cancelled == [("reference", True)]
    assert executor.collect() == []


def test_ray_is_asked_again_to_end_a_task(tmp_path, monkeypatch):
    """It promises no more than to try."""
    ray = Endless(deaf=2)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_cluster, "_AGAIN_S", 0.05)
    begun(tmp_path, monkeypatch, ray_cluster.RayCluster(1))
    assert ray.cancelled == [("reference", True)] * 3


def test_a_worker_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    workers = Pool(1)
    try:
        begun(tmp_path, monkeypatch, workers)
    finally:
        workers.close()


@pytest.mark.slow
def test_other_versions_are_warned_of_once(tmp_path):
    """Of the project at the beginning; of a solver with its first answer."""
    finish(tmp_path, SMALL, "--limit-cells", "3")
    with sqlite3.connect(tmp_path / "s.sqlite") as file:
        file.execute("""UPDATE results SET version = '0.1', measures = '{"pesto": "0.2"}'""")
    err = forked.run("pesto", *COMMAND, "--limit-cells", "6", cwd=tmp_path).stderr
    warned = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert [line.split(",")[1].split(" - ")[0] for line in warned if "pesto" in line.split()[1]] == [
        " and done cells come from pesto 0.2"
    ]
    assert sum("from list 0.1" in line for line in warned) == 1
    assert len(warned) == 3  # and `single`
    again = forked.run("pesto", *COMMAND, "--limit-cells", "0", cwd=tmp_path)
    assert "from list" not in again.stderr
