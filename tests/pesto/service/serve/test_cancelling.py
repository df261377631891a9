"""Cancels of jobs that do not end, and jobs that failed since their worker was broken."""

import signal
import time

import pytest
from fake_jobs import FakeJobs
from serving import serving, submitted, told

from pesto.core.executing import child_process
from pesto.core.executing.executor import WorkFailure
from pesto.service.serve import scheduler, serve_config
from pesto.service.serve.serve_config import JobBounds, ServeConfig
from pesto.verbs.jobs.incumbent_file import SUMMARY


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_COLLECT_S", 0.01)
    monkeypatch.setattr(scheduler, "KILL_S", 0.05)
    made = FakeJobs()
    with serving(tmp_path / "data", made) as (client, _):
        yield client, made


def running(client, jobs, label):
    name = submitted(client, label)
    while not jobs.begun:
        time.sleep(0.005)
    return name


def test_a_second_cancel_ends_a_job_that_does_not_answer(jobs):
    """SIGINT, then SIGTERM and SIGKILL; the queue goes on."""
    client, executor = jobs
    name = running(client, executor, "deaf")
    assert client.delete(f"/v1/jobs/{name}").json()["state"] == "cancelling"
    while len(executor.signals) < 1:
        time.sleep(0.005)
    assert client.delete(f"/v1/jobs/{name}").json()["state"] == "cancelling"
    assert told(client, name)["state"] == "cancelled"
    assert [signum for _, signum in executor.signals] == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    assert told(client, submitted(client))["state"] == "done"


def test_a_job_that_is_cancelled_before_it_has_a_process_lost_no_worker(jobs):
    """As on a cluster without room: no death, no other attempt, and no seconds of workers."""
    client, executor = jobs
    name = running(client, executor, "unbegun")
    assert client.delete(f"/v1/jobs/{name}").json()["state"] == "cancelling"
    job = told(client, name)
    assert (job["state"], job["deaths"], job["attempt"], job["seconds"]) == ("cancelled", 0, 1, 0.0)


def test_a_job_that_does_not_answer_one_cancel_is_ended_after_a_while(jobs, monkeypatch):
    """A plan that it had written stays."""
    client, executor = jobs
    monkeypatch.setattr(scheduler, "ESCALATE_S", 0.05)
    name = running(client, executor, "deaf")
    (folder,) = executor.folders()
    (folder / "plan.json").write_bytes(b"{}")
    (folder / ".pesto-half.tmp").write_bytes(b"{")
    client.delete(f"/v1/jobs/{name}")
    job = told(client, name)
    assert (job["state"], job["files"]) == ("cancelled", ["plan.json"])
    assert client.get(f"/v1/jobs/{name}/plan").content == b"{}"
    assert [signum for _, signum in executor.signals] == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


def leave(jobs, plan, step_s):
    """The running attempt writes a plan, as a worker does while it goes on; its key and its folder."""
    key, folder = list(jobs.begun)[-1], jobs.folders()[-1]
    (folder / "plan.json").write_bytes(plan)
    (folder / SUMMARY).write_text(f'{{"makespan_s": {step_s}, "lower_bound_s": 0.5}}')
    return key


def lose(jobs, key, why="death"):
    jobs._hear(WorkFailure(key=key, why=why, detail="killed by SIGKILL", seconds=1.0))


@pytest.mark.parametrize(("first_s", "second_s", "kept"), [(2.0, 1.0, b"second"), (1.0, 2.0, b"first")])
def test_a_worker_that_is_killed_leaves_its_last_plan(jobs, first_s, second_s, kept):
    """The shorter step of its attempts is the job's, also where it fails at last."""
    client, executor = jobs
    name = running(client, executor, "wait")
    lose(executor, leave(executor, b"first", first_s))
    while len(executor.begun) < 2:
        time.sleep(0.005)
    assert client.get(f"/v1/jobs/{name}/plan").content == b"first"
    lose(executor, leave(executor, b"second", second_s))
    while len(executor.begun) < 3:
        time.sleep(0.005)
    assert client.get(f"/v1/jobs/{name}/plan").content == kept
    lose(executor, list(executor.begun)[-1])
    job = told(client, name)
    assert (job["state"], job["deaths"], job["files"]) == ("failed", 3, ["plan.json"])
    assert job["result"]["makespan_s"] == job["best_s"] == min(first_s, second_s)
    assert client.get(f"/v1/jobs/{name}/plan").content == kept


def test_a_job_beyond_a_limit_keeps_its_last_plan(jobs):
    client, executor = jobs
    name = running(client, executor, "wait")
    lose(executor, leave(executor, b"last", 1.0), why="memory")
    job = told(client, name)
    assert (job["state"], job["error"], job["files"]) == ("failed", "killed by SIGKILL", ["plan.json"])
    assert client.get(f"/v1/jobs/{name}/plan").content == b"last"


def test_escalation_ends_within_a_minute_and_within_ten_seconds_of_a_second_cancel(monkeypatch):
    """SIGTERM, then SIGKILL, by the scheduler's own limits, which it looks at once a second."""
    clock = [100.0]
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: clock[0])

    def sent(seconds, hurried_at=None):
        """The signals of each second, and the second in which it came."""
        stop, came = scheduler._Stop(), []
        for k in range(seconds):
            clock[0] = 100.0 + k
            if k == hurried_at:
                stop.hurry()
            if (signum := stop.next_signal()) is not None:
                came.append((signum, k))
        clock[0] = 100.0
        return came

    (term, term_s), (kill, kill_s) = sent(61)
    assert (term, kill) == (signal.SIGTERM, signal.SIGKILL) and term_s < kill_s <= 60
    (term, term_s), (kill, kill_s) = sent(61, hurried_at=7)
    assert (term, kill) == (signal.SIGTERM, signal.SIGKILL) and 7 <= term_s < kill_s <= 7 + 10
    assert sent(61, hurried_at=59) == sent(61)  # it comes after SIGTERM


def test_one_cancel_alone_interrupts_once(jobs):
    client, executor = jobs
    name = running(client, executor, "wait")
    client.delete(f"/v1/jobs/{name}")
    assert told(client, name)["state"] == "cancelled"
    assert [signum for _, signum in executor.signals] == [signal.SIGINT]


def test_a_bug_in_a_worker_that_was_used_before_is_tried_again(jobs):
    """It may be the worker's fault; after the last attempt the job fails with its own error."""
    client, _ = jobs
    job = told(client, submitted(client, "broken once"))
    assert (job["state"], job["attempt"]) == ("done", 2)
    job = told(client, submitted(client, "broken"))
    assert (job["state"], job["attempt"]) == ("failed", 3)
    assert (job["exit_code"], job["error"]) == (1, "bug: half loaded")


def test_a_job_may_have_its_part_of_the_machine_s_memory(monkeypatch):
    """Four fifths are for all workers; what is configured holds as it is."""
    monkeypatch.setattr(serve_config, "usable_memory_bytes", lambda: 10 * 2**30)
    assert ServeConfig().bounds.rss_gib == pytest.approx(8)
    assert ServeConfig(workers=4).bounds.rss_gib == pytest.approx(2)
    assert ServeConfig(workers=4, job=JobBounds(rss_gib=3.0)).bounds.rss_gib == 3
    assert ServeConfig().bounds.seconds == 4 * 3600


@pytest.mark.parametrize(
    ("rows", "limits", "gib"),
    [
        ("0::/a/b\n", {"a/memory.max": "2147483648", "a/b/memory.max": "max"}, 2),
        ("0::/host/path\n", {"memory.max": "1073741824"}, 1),
        ("3:cpu:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "3221225472"}, 3),
    ],
)
def test_memory_is_that_of_the_control_group(rows, limits, gib, tmp_path, monkeypatch):
    """The least of the group's and of those above it; in a container the group's path may not be there."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(rows)
    for name, text in limits.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    physical = child_process.usable_memory_bytes()
    monkeypatch.setattr(child_process, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(child_process, "_CGROUPS", tmp_path / "groups")
    assert child_process.usable_memory_bytes() == min(physical, gib * 2**30)
