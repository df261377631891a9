"""Jobs in workers: several in one process, interrupted at any moment, ended by limits; and on Ray alike."""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.executing.executor import Executor, WorkFailure, WorkFiles, WorkItem, WorkLimits, WorkResult
from pesto.core.executing.pool import Pool
from pesto.core.executing.ray_cluster import RayCluster
from pesto.core.executing.worker import PipeChannel, SignalLatch
from pesto.verbs.jobs import run_job
from pesto.verbs.jobs.job_events import Done, Event, IncumbentEvent, Stage, decode
from pesto.verbs.jobs.request import ENTRY, JobRequest, Order

CHECKED = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}}
TOWERS = (Path(__file__).parents[3] / "data" / "two-towers.graph.json").read_bytes()


def tangled(ops: int) -> bytes:
    """A graph that is not solved to its optimum soon: random times, each op reads three before it."""
    rng, listed = np.random.default_rng(3), []
    for k in range(ops):
        read = sorted({f"op{int(j)}" for j in rng.integers(0, k, 3)}) if k else []
        seconds = float(rng.integers(50, 500)) * 1e-6
        listed.append({"name": f"op{k}", "inputs": read, "outputs": [10**5], "time_s": {"gpu": seconds}})
    return json.dumps({"format": "pesto-graph", "format_version": 1, "source": "tangled", "ops": listed}).encode()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(1)
    yield made
    made.close()


def begin(
    executor: Executor, out: Path, graph: bytes, limits: WorkLimits | None = None, **settings: object
) -> WorkItem:
    """A solve, begun; its results go to the folder `out`, and the graph lies beside it."""
    blobs, sha = out.parent / "blobs", hashlib.sha256(graph).hexdigest()
    blobs.mkdir(exist_ok=True)
    (blobs / sha).write_bytes(graph)
    (out.parent / "step.json").write_bytes(graph)
    given = {"time_limit_s": 600, **settings}
    fields = {"kind": "solve", "source": {"blob": sha, "name": "step.json"}, "settings": given}
    order = Order(request=msgspec.convert(fields, JobRequest), blobs=str(blobs), out=str(out))
    data = msgspec.json.encode(order)
    files = WorkFiles(folder=str(blobs), reads=(sha,), out=str(out))
    work = WorkItem(key=out.name, entry=ENTRY, data=data, live=True, limits=limits or WorkLimits(), files=files)
    executor.begin(work)
    return work


def ended(executor: Executor, at: int | None = None) -> tuple[list[Event], Done | WorkFailure]:
    """What a job told and how it ended; it is interrupted at the event of that number."""
    told: list[Event] = []
    while True:
        for outcome in executor.collect():
            if isinstance(outcome, WorkFailure):
                return told, outcome
            if isinstance(outcome, WorkResult):
                return told, msgspec.json.decode(outcome.data, type=Done)
            told.append(decode(outcome.data))
            if len(told) - 1 == at:
                executor.cancel(outcome.key)


def plan_is_valid(out: Path) -> bool:
    words = ["check", str(out / "plan.json"), "--graph", str(out.parent / "step.json")]
    return CliRunner().invoke(pesto, words).exit_code == 0


@pytest.mark.slow
def test_one_worker_does_jobs_alike_and_one_after_the_other(tmp_path, pool) -> None:
    """A deterministic one twice; one between is cancelled before it finds anything, and its worker is replaced."""
    large = tangled(5000)  # whose first plan takes longer than a cancel does, however busy the machine is
    for key in ("first", "never", "second"):
        begin(pool, tmp_path / key, large if key == "never" else TOWERS, deterministic=True)
        if key == "never":
            assert pool.cancel(key)
        told, end = ended(pool)
        assert isinstance(end, Done)
        if key == "never":
            assert (end.exit_code, end.error) == (130, "interrupted; nothing was written")
            assert not any(isinstance(event, IncumbentEvent) for event in told)
        else:
            assert end.exit_code == 0 and "explain.json" in end.files
    assert (tmp_path / "first" / "plan.json").read_bytes() == (tmp_path / "second" / "plan.json").read_bytes()


@pytest.mark.kill
def test_an_interruption_keeps_the_best_plan(tmp_path, pool) -> None:
    """When search begins, which would go on for ten minutes."""
    begin(pool, tmp_path / "mine", tangled(25), solver="list")
    told: list[Event] = []
    while not any(isinstance(event, Stage) and event.name == "search" for event in told):
        told += [decode(outcome.data) for outcome in pool.collect()]
    assert pool.cancel("mine", signal.SIGTERM)
    more, end = ended(pool)
    assert isinstance(end, Done) and (end.exit_code, end.error) == (143, None)
    best = [event.best_s for event in told + more if isinstance(event, IncumbentEvent)][-1]
    assert end.result["makespan_s"] == best and end.result["interrupted"]
    assert plan_is_valid(tmp_path / "mine")


@pytest.mark.kill
def test_an_interruption_at_any_event(tmp_path, pool) -> None:
    """Whatever the job is at: a valid plan once one was told, else nothing."""
    for at in range(8):  # search begins later
        out = tmp_path / f"at {at}"
        begin(pool, out, tangled(25), solver="list")
        told, end = ended(pool, at)
        assert isinstance(end, Done), end
        assert end.exit_code == 130, end
        if end.error is None:
            assert plan_is_valid(out)
        else:
            assert not out.exists() or list(out.iterdir()) == []
        assert (end.error is None) >= any(isinstance(event, IncumbentEvent) for event in told[: at + 1])


@pytest.mark.kill
def test_limits_of_a_job(tmp_path) -> None:
    """More memory than it may have ends its worker; seconds interrupt it."""
    pool = Pool(1)
    try:
        begin(pool, tmp_path / "large", TOWERS, WorkLimits(rss_bytes=10**8))
        _, end = ended(pool)
        assert isinstance(end, WorkFailure) and (end.why, end.detail) == ("memory", "needed more than 95.37 MiB")
        begin(pool, tmp_path / "long", tangled(25), WorkLimits(interrupt_s=5, cores=1))
        _, end = ended(pool)
        assert isinstance(end, Done) and end.exit_code == 130
    finally:
        pool.close()


@pytest.mark.slow
def test_a_job_on_ray_gives_the_same_plan(tmp_path, pool) -> None:
    """And is heard of and interrupted there as here."""
    pytest.importorskip("ray")
    begin(pool, tmp_path / "here", TOWERS, deterministic=True)
    _, end = ended(pool)
    cluster = RayCluster(1)
    try:
        begin(cluster, tmp_path / "there", TOWERS, deterministic=True)
        told, far = ended(cluster)
        assert isinstance(end, Done) and isinstance(far, Done) and far.files == end.files
        assert any(isinstance(event, IncumbentEvent) for event in told)
        assert (tmp_path / "here" / "plan.json").read_bytes() == (tmp_path / "there" / "plan.json").read_bytes()
        begin(cluster, tmp_path / "long", tangled(25), solver="list")
        _, far = ended(cluster, 5)
        assert isinstance(far, Done) and far.exit_code == 130 and "plan.json" in far.files
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("done", "retired"),
    [
        (Done(exit_code=1, error="bug: half loaded"), True),
        (Done(exit_code=130, error="interrupted; nothing was written"), True),
        (Done(exit_code=143, error="interrupted; nothing was written"), True),
        (Done(exit_code=130, files=("plan.json",)), False),
        (Done(exit_code=3, error="a cycle"), False),
        (Done(exit_code=0, files=("plan.json",)), False),
    ],
)
def test_a_worker_that_may_be_broken_is_retired(done: Done, retired: bool, tmp_path, monkeypatch, signals) -> None:
    """After a bug, and after an interruption before anything was there."""
    line = PipeChannel(Pipe()[0], SignalLatch())
    monkeypatch.setattr(run_job, "run", lambda *_: done)
    order = Order(request=msgspec.convert(CHECKED, JobRequest), blobs=str(tmp_path), out=str(tmp_path))
    assert msgspec.json.decode(run_job.answer(msgspec.json.encode(order), line), type=Done) == done
    assert line.retired == retired


@pytest.mark.slow
def test_workers_load_tensorflow_before_their_first_job(tmp_path) -> None:
    """It can be done, where a pool would pass over an error, and leaves no file."""
    code = "import sys; from pesto.core.executing.worker import function_of; "
    code += "from pesto.verbs.jobs.request import READY; "
    code += "function_of(READY)(); assert 'tensorflow' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
