"""Jobs are deleted when that is asked for, and when they are old; the database gets smaller."""

import time

import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from old_database import sqlite_database
from serving import refused, serving, submitted, told

from pesto.cli.main import pesto as command
from pesto.service.serve import server
from pesto.service.serve.blobs import Retention
from pesto.service.serve.serve_config import KeepDays, configured
from pesto.service.serve.store.sqlite_file import FILE, connected

DAY_S = 86_400.0


def rows(service, table):
    asked = f"SELECT count(*) FROM {table}"  # noqa: S608
    return service.store.writer.do(lambda ledger: ledger._db.execute(asked).fetchone()[0])


def test_a_job_that_has_ended_is_deleted_with_all_it_left(tmp_path):
    with serving(tmp_path) as (client, service):
        kept, gone = (
            submitted(client),
            client.post(
                "/v1/jobs", json={"kind": "solve", "source": {"model": "rnnlm"}}, headers={"Idempotency-Key": "k"}
            ).json()["id"],
        )
        number = told(client, gone)["number"]
        answer = client.delete(f"/v1/jobs/{gone}?purge")
        assert (answer.status_code, answer.json()) == (200, {"id": gone, "state": "done"})
        for route in ("", "/plan", "/events"):
            refused(client.get(f"/v1/jobs/{gone}{route}"), 404)
        refused(client.delete(f"/v1/jobs/{gone}?purge=true"), 404)
        assert not (tmp_path / "jobs" / gone).exists()
        assert rows(service, f"events WHERE job = {number}") == rows(service, "keys") == rows(service, "removals") == 0
        assert told(client, kept)["state"] == "done"
        assert client.get(f"/v1/jobs/{kept}/plan").status_code == 200
        assert sum(row.jobs for row in service.store.readings.sums()) == 2


def test_a_job_that_has_not_ended_is_cancelled_first(tmp_path):
    with serving(tmp_path) as (client, _):
        name = submitted(client, "wait")
        refused(client.delete(f"/v1/jobs/{name}?purge=true"), 409, "cancel it first")
        assert client.delete(f"/v1/jobs/{name}?purge=false").status_code == 200
        assert told(client, name)["state"] == "cancelled"
        assert client.delete(f"/v1/jobs/{name}?purge").status_code == 200
        refused(client.delete(f"/v1/jobs/{name}?purge=perhaps"), 400, "purge")


def test_old_jobs_go_by_their_state_and_old_events_before(tmp_path):
    with serving(tmp_path) as (client, service):
        done, failed, other = submitted(client, "talk 20"), submitted(client, "wrong"), submitted(client)
        number = told(client, done)["number"]
        told(client, failed)
        told(client, other)
        do, now = service.store.writer.do, time.time()
        client.delete(f"/v1/jobs/{other}?purge")
        retention = Retention(tmp_path, 2.0, 1 << 40, KeepDays(failed=3.0, done=9.0))
        retention.sweep(do, now + 1 * DAY_S)
        assert rows(service, f"events WHERE job = {number}") > 20
        retention.sweep(do, now + 2.5 * DAY_S)
        assert rows(service, f"events WHERE job = {number}") == 1
        assert told(client, done)["state"] == "done"  # from the last event, which is kept
        assert client.get(f"/v1/jobs/{failed}").status_code == 200
        retention.sweep(do, now + 4 * DAY_S)
        refused(client.get(f"/v1/jobs/{failed}"), 404)
        assert client.get(f"/v1/jobs/{done}").json()["expired"]
        retention.sweep(do, now + 10 * DAY_S)
        refused(client.get(f"/v1/jobs/{done}"), 404)
        assert rows(service, "jobs") == rows(service, "events") == 0


@pytest.mark.parametrize("old", [False, True])
def test_the_database_gets_smaller(tmp_path, old):
    if old:
        sqlite_database(tmp_path)
    with serving(tmp_path, FakeJobs(slots=0)) as (_, service):
        do = service.store.writer.do
        do(lambda ledger: ledger._db.execute("CREATE TABLE filler (x BLOB)"))
        do(lambda ledger: ledger._db.execute("INSERT INTO filler VALUES (zeroblob(8000000))"))
        do(lambda ledger: ledger._db.execute("DELETE FROM filler"))
        Retention(tmp_path, 30.0, 1 << 40, KeepDays()).sweep(do)
        assert rows(service, "pragma_freelist_count WHERE freelist_count > 0") == 0
    connected(tmp_path).close()
    assert (tmp_path / FILE).stat().st_size < 1_000_000


def test_how_long_jobs_are_kept_is_said_by_state(tmp_path, monkeypatch):
    chosen = []
    monkeypatch.setattr(server, "serve", lambda _, config, __: chosen.append(config.keep))
    (tmp_path / "serve.toml").write_text("[keep]\ndone = 5.0\ncancelled = 6.0\n")
    serve = ["serve", "--data", str(tmp_path), "-c", str(tmp_path / "serve.toml")]
    for more in ([], ["--keep", "30d"], ["--keep", "2d", "--keep", "failed=12h"]):
        assert CliRunner().invoke(command, [*serve, *more], standalone_mode=False).exception is None
    assert chosen == [
        KeepDays(done=5.0, cancelled=6.0),
        KeepDays(done=30.0, failed=30.0, cancelled=30.0),
        KeepDays(done=2.0, failed=0.5, cancelled=2.0),
    ]
    wrong = CliRunner().invoke(command, [*serve, "--keep", "running=1d"])
    assert wrong.exit_code == 2
    assert "no state that jobs end in" in wrong.output + str(wrong.exception)
    assert configured(None).keep == KeepDays()
