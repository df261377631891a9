"""A disk or a database that fails: the service stays, says why jobs wait, and goes on by itself."""

import asyncio
import threading
import time

import pytest
from fake_jobs import FakeJobs
from serving import serving, submitted, told

from pesto.service.serve import scheduler
from pesto.service.serve.store.opening import Reader


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_COLLECT_S", 0.01)
    jobs = FakeJobs()
    with serving(tmp_path / "data", jobs) as (client, _):
        yield client, jobs, tmp_path / "data" / "jobs"


def until(true):
    while not true():
        time.sleep(0.005)


def test_a_folder_that_cannot_be_made_has_jobs_wait(served):
    """A file in the place of the folder of all jobs fails as a full or read-only disk does, for root, too."""
    client, jobs, folder = served
    folder.rmdir()
    folder.write_bytes(b"")
    name = submitted(client)
    until(lambda: client.get("/readyz").status_code == 503)
    assert client.get("/readyz").json() == {
        "status": "not ready",
        "why": "no folder for a job can be made: not a directory",
    }
    assert client.get("/healthz").json() == {"status": "ok"}
    until(lambda: client.get(f"/v1/jobs/{name}").json()["state"] == "queued")
    assert not jobs.begun
    folder.unlink()
    folder.mkdir()
    found = told(client, name)
    assert (found["state"], found["deaths"]) == ("done", 0)
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_job_alone_whose_folder_cannot_be_made_fails(served):
    client, jobs, folder = served
    first, second, third = submitted(client, "wait"), submitted(client), submitted(client)
    until(lambda: jobs.begun)
    (folder / second).write_bytes(b"")
    client.delete(f"/v1/jobs/{first}")
    found = told(client, second)
    assert (found["state"], found["exit_code"]) == ("failed", 8)
    assert "not a directory" in found["error"]
    assert told(client, third)["state"] == "done"
    assert client.get("/readyz").status_code == 200


def test_a_request_of_another_version_fails_its_job_and_nothing_else(tmp_path, monkeypatch):
    """As after a return to an older version: the service would end at each start, and no list could be made."""
    monkeypatch.setattr(scheduler, "_COLLECT_S", 0.01)
    with serving(tmp_path, FakeJobs(slots=0)) as (client, service):
        old, good = submitted(client), submitted(client)
        asked = "UPDATE jobs SET request = ? WHERE id = ?"
        newer = b'{"kind": "solve", "source": {"model": "rnnlm"}, "newer": 1}'
        service.store.writer.do(lambda ledger: ledger.database.execute(asked, (newer, old)))
    with serving(tmp_path) as (client, _):
        found = told(client, old)
        assert (found["state"], found["exit_code"], found["request"]) == ("failed", 2, None)
        assert "another version" in found["error"] and "submit it again" in found["remedy"]
        assert told(client, good)["state"] == "done"
        assert [job["state"] for job in client.get("/v1/jobs").json()["jobs"]] == ["done", "failed"]
        assert client.get("/readyz").status_code == 200


def test_a_question_that_is_not_answered_leaves_the_loop_alone():
    answered = threading.Event()

    async def main():
        reader = Reader("readings", lambda: "waiting", apart=True)
        asked = asyncio.create_task(reader.ask(lambda readings: (readings, answered.wait(60.0))))
        await asyncio.sleep(0)
        answered.set()
        assert await asked == ("readings", True)
        assert await reader.waiting() == "waiting"
        reader.close()

    asyncio.run(main())
