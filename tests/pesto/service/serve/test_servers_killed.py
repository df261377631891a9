"""Two servers on one PostgreSQL, processes of their own: the database and a server are killed while both solve."""

import time
from contextlib import ExitStack, closing

import httpx
import psycopg
import pytest

from benchmarks.postgres_server import PostgresServer, missing
from benchmarks.serve_kill import JobWatch, KilledServer

pytestmark = [pytest.mark.kill, pytest.mark.skipif(bool(missing()), reason=missing())]


def submitted(server, key, seconds):
    """Queue a job that takes so long; asked for until it is acknowledged."""
    settings = {"time_limit_s": seconds, "solver": "cpsat"}
    body = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}, "settings": settings}
    while True:
        answer = httpx.post(f"{server.url}/v1/jobs", json=body, headers={"Idempotency-Key": key}, timeout=30)
        if answer.status_code == 202:
            return answer.json()["id"]
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2"), answer.text
        time.sleep(0.1)


def held_by(postgres, name):
    """The process of the server that has a job's lease; None where nobody runs it."""
    with psycopg.connect(postgres.url, options="-c search_path=pesto_serve") as session:
        found = session.execute("SELECT server FROM leases JOIN jobs ON job = number WHERE id = %s", (name,)).fetchone()
    return None if found is None else int(found[0].rsplit("-", 2)[1])


def await_plan(server, name):
    """Until the attempt that runs now has found something."""
    found = httpx.get(f"{server.url}/v1/jobs/{name}").json()
    with httpx.stream(
        "GET", f"{server.url}/v1/jobs/{name}/events", headers={"Last-Event-ID": str(found["events"])}, timeout=60
    ) as stream:
        next(line for line in stream.iter_lines() if line == "event: incumbent")


def test_nothing_is_lost_and_nothing_has_two_results(tmp_path):
    with ExitStack() as stack:
        postgres = stack.enter_context(closing(PostgresServer()))
        servers = [KilledServer(tmp_path / "data", 1, postgres.url) for _ in range(2)]
        for server in servers:
            stack.callback(server.end, 9)
            server.start()
        names = [submitted(servers[k % 2], f"key-{k}", seconds) for k, seconds in enumerate((3600, 2, 2))]
        watches = [JobWatch([server.url for server in servers], name) for name in names]
        for watch in watches:
            watch.start()
        while watches[0].last == 0:  # its worker has begun
            time.sleep(0.1)
        postgres.kill()
        postgres.start()
        names.append(submitted(servers[1], "key-3", 2))
        victim = next(server for server in servers if server.process.pid == held_by(postgres, names[0]))
        (other,) = [server for server in servers if server is not victim]
        victim.end(9)
        while held_by(postgres, names[0]) != other.process.pid:  # once its lease has run out
            time.sleep(0.5)
        await_plan(other, names[0])
        assert httpx.delete(f"{other.url}/v1/jobs/{names[0]}").json()["state"] in ("cancelling", "cancelled")
        watches.append(JobWatch([other.url], names[3]))
        watches[-1].start()
        for watch in watches:
            watch.join()
        jobs = [httpx.get(f"{other.url}/v1/jobs/{name}").json() for name in names]
        assert [job["state"] for job in jobs] == ["cancelled", "done", "done", "done"]
        assert jobs[0]["attempt"] == 2
        assert [watch.last for watch in watches] == [job["events"] for job in jobs]
        assert [(watch.repeated, watch.missing) for watch in watches] == [(0, 0)] * 4
        for name in names[1:]:
            assert httpx.get(f"{other.url}/v1/jobs/{name}/plan").status_code == 200
        assert other.end(15) == 0
