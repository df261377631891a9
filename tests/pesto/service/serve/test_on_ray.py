"""The service with its jobs on a Ray of this machine: solved, cancelled, lost with a worker, kept when it ends."""

import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from process_families import PATIENCE_S, descendants

from benchmarks.serve_kill import KilledServer

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
LONG = {"model": "rnnlm", "variant": "tiny"}, {"time_limit_s": 3600, "solver": "cpsat"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A service with a Ray cluster of its own."""
    made = KilledServer(tmp_path_factory.mktemp("service") / "data", 1, ray={})
    made.start()
    yield made
    made.end(signal.SIGKILL)


def submitted(server, source, settings):
    answer = httpx.post(
        f"{server.url}/v1/jobs", json={"kind": "solve", "source": source, "settings": settings}, timeout=60
    )
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def job(server, name):
    return httpx.get(f"{server.url}/v1/jobs/{name}", timeout=60).json()


def events(server, name, until):
    """Its events from the first to one of that kind."""
    found = []
    with httpx.stream("GET", f"{server.url}/v1/jobs/{name}/events", timeout=PATIENCE_S) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                if found[-1]["event"] == until:
                    return found
    raise AssertionError(found)


def worker(server):
    """The process that is at a job."""
    return next(pid for pid in descendants(server.process.pid) if title(pid).startswith("ray::_done"))


def title(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def awaited(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_job_is_solved_and_its_files_are_the_services(server):
    name = submitted(server, {"model": "rnnlm", "variant": "tiny"}, {"time_limit_s": 2, "solver": "list"})
    kinds = [event["event"] for event in events(server, name, "done")]
    assert {"stage", "incumbent", "done"} <= set(kinds)
    found = job(server, name)
    assert (found["state"], found["attempt"], found["deaths"]) == ("done", 1, 0)
    for what in ("plan", "report", "trace", "explain"):
        assert httpx.get(f"{server.url}/v1/jobs/{name}/{what}", timeout=60).status_code == 200


def test_a_killed_worker_is_another_attempt_and_a_cancel_keeps_the_best_plan(server):
    name = submitted(server, *LONG)
    awaited(lambda: list((server.folder / "jobs" / name).glob("*/.incumbent.json")))
    before = job(server, name)["attempt"]
    os.kill(worker(server), signal.SIGKILL)
    awaited(lambda: job(server, name)["attempt"] > before)
    assert httpx.get(f"{server.url}/v1/jobs/{name}/plan", timeout=60).status_code == 200  # of the killed worker
    awaited(lambda: job(server, name)["best_s"] and job(server, name)["stage"] not in ("", "reading the graph"))
    assert job(server, name)["deaths"] == 1
    assert httpx.delete(f"{server.url}/v1/jobs/{name}", timeout=60).json()["state"] in ("cancelling", "cancelled")
    assert events(server, name, "done")[-1]["state"] == "cancelled"
    assert httpx.get(f"{server.url}/v1/jobs/{name}/plan", timeout=60).status_code == 200


def test_at_the_end_the_best_plan_is_kept_and_the_job_waits(server):
    """It goes on where a server is started again."""
    name = submitted(server, *LONG)
    events(server, name, "incumbent")
    before = job(server, name)["attempt"]
    assert server.end(signal.SIGTERM) == 0
    awaited(lambda: not server.family())
    server.start()
    awaited(lambda: job(server, name)["attempt"] > before)
    assert httpx.get(f"{server.url}/v1/jobs/{name}/plan", timeout=60).status_code == 200
    httpx.delete(f"{server.url}/v1/jobs/{name}", timeout=60)
    told = events(server, name, "done")
    assert told[-1]["state"] == "cancelled"
    why = [
        event["why"] for event in told if event.get("name") == "queued"
    ]  # one more where Ray gave it a retired worker
    assert "the service ended; what was found is kept" in why


def test_a_second_cancel_ends_a_worker_that_does_not_answer(server):
    """It is stopped, so that it hears nothing, and its best plan is kept."""
    name = submitted(server, *LONG)
    awaited(lambda: list((server.folder / "jobs" / name).glob("*/.incumbent.json")))
    os.kill(worker(server), signal.SIGSTOP)
    for _ in range(2):
        assert httpx.delete(f"{server.url}/v1/jobs/{name}", timeout=60).json()["state"] == "cancelling"
    assert events(server, name, "done")[-1]["state"] == "cancelled"
    assert httpx.get(f"{server.url}/v1/jobs/{name}/plan", timeout=60).status_code == 200
    other = submitted(server, {"model": "rnnlm", "variant": "tiny"}, {"time_limit_s": 2, "solver": "list"})
    assert events(server, other, "done")[-1]["state"] == "done"
