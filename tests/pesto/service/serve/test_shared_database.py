"""Several servers on one PostgreSQL database: what one does the others see, and nothing is done twice."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from litestar.testing import TestClient

from benchmarks.postgres_server import PASSWORD, PostgresServer, missing
from pesto.cli.main import pesto as command
from pesto.core.errors import FileError, UsageError
from pesto.service.serve import scheduler, tokens
from pesto.service.serve.blobs import Retention
from pesto.service.serve.http.app import application
from pesto.service.serve.serve_config import KeepDays, ServeConfig
from pesto.service.serve.server import opened
from pesto.service.serve.store.database import AwayError, UncertainError
from pesto.service.serve.store.job_records import Submission
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.opening import Writer
from pesto.service.serve.store.postgres import leases
from pesto.service.serve.store.postgres.session import Session, addressed
from pesto.service.serve.store.postgres.shared_tables import prepare

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
SOLVE = {"kind": "solve", "source": {"model": "rnnlm"}}
SUBMISSION = Submission(token="", kind="solve", request=b"{}")
LOCAL = {"base_url": "http://127.0.0.1"}


@pytest.fixture(scope="module")
def postgres():
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def url(postgres):
    """A database without the service's tables."""
    with psycopg.connect(postgres.url, autocommit=True) as made:
        made.execute("DROP SCHEMA IF EXISTS pesto_serve CASCADE")
    return postgres.url


@contextmanager
def serving(folder, url, jobs=None, **config):
    with (
        opened(folder, ServeConfig(database=url, **config), lambda: jobs or FakeJobs()) as service,
        TestClient(application(service), **LOCAL) as client,
    ):
        yield client, service


@pytest.fixture
def servers(tmp_path, url):
    """Two, each with a client, its service and what runs its jobs."""
    with ExitStack() as stack:
        jobs = FakeJobs(), FakeJobs()
        yield [(*stack.enter_context(serving(tmp_path / "data", url, one)), one) for one in jobs]


@pytest.fixture
def two(servers):
    """Clients of two servers, and what runs their jobs."""
    (a, _, jobs_a), (b, _, jobs_b) = servers
    return a, b, jobs_a, jobs_b


def asked(url, sql, *given):
    with psycopg.connect(url, autocommit=True, options="-c search_path=pesto_serve") as made:
        found = made.execute(sql, given)
        return found.fetchall() if found.description else []


def submitted(client, label="", **more):
    answer = client.post("/v1/jobs", json=SOLVE | {"label": label} | more)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def until(true):
    """Wait for it; pytest's own patience is the limit."""
    while not (found := true()):
        time.sleep(0.02)
    return found


def events(client, name):
    text = client.get(f"/v1/jobs/{name}/events").text
    blocks = [
        dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if "id: " in block
    ]
    return [(int(block["id"]), block["event"], json.loads(block["data"])) for block in blocks]


def state(client, name):
    return client.get(f"/v1/jobs/{name}").json()["state"]


def test_jobs_go_to_whichever_server_has_room_and_each_tells_of_all(two):
    a, b, jobs_a, jobs_b = two
    names = [submitted(a if k % 2 else b, "wait") for k in range(3)]
    until(lambda: len(jobs_a.begun) + len(jobs_b.begun) == 2)  # one each, whoever was asked
    begun = [key for jobs in (jobs_a, jobs_b) for key in jobs.begun]
    assert sorted(begun) == sorted(f"{name}.1" for name in names[:2])
    assert [job["id"] for job in a.get("/v1/jobs").json()["jobs"]] == names[::-1]
    until(lambda: a.get(f"/v1/jobs/{names[2]}").json()["place"] == 1)
    (of_a,) = jobs_a.begun
    jobs_a.end(of_a)  # a stream of the other server hears of it, and its plan is there
    told = events(b, of_a.split(".")[0])
    assert [number for number, _, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][1] == "done"
    assert b.get(f"/v1/jobs/{of_a.split('.')[0]}/plan").content == of_a.encode()


def test_a_cancel_reaches_the_server_that_runs_the_job(two):
    a, b, jobs_a, jobs_b = two
    name = submitted(a, "wait")
    until(lambda: jobs_a.begun or jobs_b.begun)
    other = b if jobs_a.begun else a
    assert other.delete(f"/v1/jobs/{name}").json()["state"] in ("cancelling", "cancelled")
    assert events(other, name)[-1][2]["state"] == "cancelled"
    assert other.get(f"/v1/jobs/{name}/plan").status_code == 200


def test_a_second_cancel_counts_at_whichever_server(two, monkeypatch):
    monkeypatch.setattr(scheduler, "KILL_S", 0.05)
    a, b, jobs_a, jobs_b = two
    name = submitted(a, "deaf")
    until(lambda: jobs_a.begun or jobs_b.begun)
    other, its = (b, jobs_a) if jobs_a.begun else (a, jobs_b)
    other.delete(f"/v1/jobs/{name}")
    until(lambda: its.signals)
    time.sleep(1.5)  # looks at cancels are no further ones
    assert len(its.signals) == 1
    other.delete(f"/v1/jobs/{name}")
    assert events(other, name)[-1][2]["state"] == "cancelled"
    assert [signum for _, signum in its.signals] == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


def test_keys_quotas_and_uploads_hold_over_all_servers(tmp_path, url):
    few = tokens.Quota(jobs=1, queued=2, bytes=10)
    (tmp_path / "data").mkdir()
    headers = {"Authorization": f"Bearer {tokens.add(tmp_path / 'data', 'ann', few)}"}
    with ExitStack() as stack:
        jobs = FakeJobs(slots=2), FakeJobs(slots=2)
        a, b = (stack.enter_context(serving(tmp_path / "data", url, one))[0] for one in jobs)
        post = lambda client, label, key: client.post(  # noqa: E731
            "/v1/jobs", json=SOLVE | {"label": label}, headers=headers | {"Idempotency-Key": key}
        )
        first = post(a, "wait", "k")
        assert post(b, "wait", "k").json() == first.json()
        assert post(b, "other", "k").status_code == 409
        until(lambda: jobs[0].begun or jobs[1].begun)
        assert [post(client, "wait", f"k{k}").status_code for k, client in enumerate((a, b, a, b))] == [
            202,
            202,
            429,
            429,
        ]
        time.sleep(2.5)  # each server has looked for more to begin
        assert len(jobs[0].begun) + len(jobs[1].begun) == 1

        def put(client, data):
            sha = hashlib.sha256(data).hexdigest()
            return client.put(f"/v1/blobs/{sha}", content=data, headers=headers).status_code

        assert [put(a, b"x" * 6), put(b, b"x" * 6), put(b, b"y" * 5), put(b, b"y" * 4)] == [201, 200, 413, 201]


def test_no_server_removes_what_anothers_job_reads(tmp_path, servers):
    (a, service, jobs_a), (b, _, jobs_b) = servers
    data = [b"old", b"needed", b"again"]
    old, needed, again = (hashlib.sha256(one).hexdigest() for one in data)
    for one in data:
        assert a.put(f"/v1/blobs/{hashlib.sha256(one).hexdigest()}", content=one).status_code == 201
    for _ in range(3):  # two run, one waits
        submitted(b, "wait", source={"blob": needed, "name": "g.json"})
    until(lambda: jobs_a.begun and jobs_b.begun)
    retention = Retention(tmp_path / "data", 1.0, 1 << 40, KeepDays())
    assert retention.sweep(service.store.writer.do, time.time() + 90_000) == 2
    left = lambda: sorted(path.name for path in (tmp_path / "data/blobs").iterdir())  # noqa: E731
    assert left() == [needed]
    assert b.post("/v1/jobs", json=SOLVE | {"source": {"blob": old, "name": "g.json"}}).status_code == 422
    assert b.put(f"/v1/blobs/{again}", content=data[2]).status_code == 201
    coming = tmp_path / "data/blobs/coming.part"  # another server's, of now
    service.store.writer.do(lambda ledger: ledger.put_part(coming.name, "0" * 64, "", 4))
    coming.write_bytes(b"half")
    retention.tidy(service.store.writer.do, 60.0)
    assert left() == sorted([needed, again, coming.name])


@pytest.fixture
def hasty(monkeypatch):
    """Servers that look often, also just after the database has come."""
    monkeypatch.setattr(leases, "GRACE_S", 0)
    monkeypatch.setattr(leases, "RENEW_S", 0.2)


@pytest.mark.usefixtures("hasty")
def test_what_a_lost_lease_still_says_is_refused(tmp_path, url):
    """The first server is taken for dead while its worker goes on: the other finishes the job, with its own plan."""
    dead, alive = FakeJobs(), FakeJobs()
    with serving(tmp_path / "data", url, dead) as (a, service):
        name = submitted(a, "wait")
        until(lambda: dead.begun)
        service.scheduler.running = list  # it renews nothing any more, and stops nothing
        with serving(tmp_path / "data", url, alive) as (b, _):
            asked(url, "UPDATE leases SET until = '-infinity'")
            until(lambda: alive.begun)
            dead.end(f"{name}.1")
            until(lambda: not service.scheduler._running)
            assert state(b, name) == "running"
            alive.end(f"{name}.2")
            told = events(b, name)
            assert [number for number, _, _ in told] == list(range(1, len(told) + 1))
            assert [kind for _, kind, _ in told] == ["stage"] * 5 + ["done"]
            found = b.get(f"/v1/jobs/{name}").json()
            assert (found["state"], found["attempt"], found["deaths"]) == ("done", 2, 0)
            assert b.get(f"/v1/jobs/{name}/plan").content == f"{name}.2".encode()
            assert [path.name for path in (tmp_path / "data/jobs" / name).iterdir()] == ["2"]


@pytest.mark.usefixtures("hasty")
def test_a_server_stops_what_is_anothers_by_now(tmp_path, url):
    jobs = FakeJobs()
    with serving(tmp_path / "data", url, jobs) as (client, service):
        name = submitted(client, "wait")
        until(lambda: jobs.begun)
        asked(url, "UPDATE leases SET server = 'another'")
        until(lambda: not service.scheduler._running)  # interrupted, and what it answered refused or taken
        assert not service.scheduler._interrupted
        assert state(client, name) in ("running", "cancelled", "done", "queued")


def test_while_the_database_is_away(tmp_path, url, postgres):
    jobs = FakeJobs()
    with serving(tmp_path / "data", url, jobs) as (client, service):
        name = submitted(client, "wait")
        until(lambda: jobs.begun)
        postgres.kill()
        try:
            answer = client.post("/v1/jobs", json=SOLVE)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert PASSWORD not in answer.text
            assert "try again" in answer.json()["remedy"]
            until(lambda: client.get("/readyz").status_code == 503)
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/jobs").status_code == 503
            jobs.end(f"{name}.1")  # work goes on, and its end is kept
            time.sleep(1.5)
        finally:
            postgres.start()
        told = until(lambda: client.get(f"/v1/jobs/{name}/events").status_code == 200 and events(client, name))
        assert [(number, kind) for number, kind, _ in told] == [(1, "stage"), (2, "stage"), (3, "done")]
        until(lambda: client.get("/readyz").status_code == 200)
        assert state(client, name) == "done"
        again = submitted(client)
        assert events(client, again)[-1][2]["state"] == "done"
        assert service.scheduler.alive


def test_while_the_database_is_frozen(tmp_path, url, postgres):
    """It keeps its connections and answers nothing: who asks is told so, and it is ready again by itself."""
    jobs = FakeJobs()
    with serving(tmp_path / "data", url, jobs) as (client, service):
        name = submitted(client, "wait")  # from here on nothing is written: the only worker is busy
        until(lambda: jobs.begun and not service.store.writer.waiting)
        for session in (service.store.readings._db, service.store.writer._db):
            session._connection.answer_s = 0.3
        postgres.freeze()
        try:
            answers = [client.get("/v1/jobs"), client.post("/v1/jobs", json=SOLVE), client.get("/metrics")]
            assert [(answer.status_code, answer.headers["retry-after"]) for answer in answers] == [(503, "2")] * 3
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["why"]) == (503, "the database does not answer")
            assert client.get("/healthz").status_code == 200
        finally:
            postgres.thaw()
        until(lambda: client.get("/readyz").status_code == 200)
        jobs.end(f"{name}.1")
        assert events(client, name)[-1][2]["state"] == "done"


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_whose_answer_was_lost_is_known(tmp_path, url, happened):
    """It happened, and is answered as such; it did not, and is done again."""
    address = addressed(url)
    with closing(Session(address, "first")) as first:
        prepare(first, tmp_path, address.where)
    submit = lambda ledger: ledger.submit(SUBMISSION)  # noqa: E731
    count = lambda: asked(url, "SELECT count(*) FROM jobs")  # noqa: E731
    with closing(Session(address, "server", turns=True)) as session:
        session.connect()
        with closing(Writer(session, Ledger(session))) as writer:
            writer.do(submit)
            session.execute = lambda sql, given=(): _cut(session, sql, given, happened)
            with pytest.raises(UncertainError) as lost:
                writer.do(submit)
            del session.execute
            assert count() == [(2 if happened else 1,)]
            until(lambda: _connects(session))
            name = writer.do(lost.value.again(submit))
            assert count() == [(2,)]
            assert asked(url, "SELECT count(*) FROM jobs WHERE id = %s", name) == [(1,)]


def _connects(session):
    with suppress(AwayError):
        session.connect()
    return session.there


def _cut(session, sql, given, happened):
    """The connection breaks at the commit: before it was heard, or after."""
    if sql == "COMMIT":
        if happened:
            session._connection.execute("COMMIT")
        session._connection.close()
    return Session.execute(session, sql, given)


def test_another_version_another_folder_and_other_refusals(tmp_path, url):
    ready = lambda folder, at=url: opened(folder, ServeConfig(database=at), FakeJobs)  # noqa: E731
    with ready(tmp_path / "a"):
        pass
    with ready(tmp_path / "a"):  # again: it is the one
        pass
    with pytest.raises(UsageError, match="not the folder of that database's servers"), ready(tmp_path / "b"):
        pass
    with pytest.raises(UsageError, match="give --database"), opened(tmp_path / "a", ServeConfig(), FakeJobs):
        pass
    with opened(tmp_path / "sqlite", ServeConfig(), FakeJobs):
        pass
    with pytest.raises(UsageError, match="without --database"), ready(tmp_path / "sqlite"):
        pass
    asked(url, "UPDATE about SET folder = 'another'")
    with pytest.raises(UsageError, match="folder of another database"), ready(tmp_path / "a"):
        pass
    asked(url, "UPDATE about SET version = 99")
    with pytest.raises(UsageError, match=r"of version 99, .* or give another database"), ready(tmp_path / "a"):
        pass
    wrong = url.replace(PASSWORD, "opened")
    with pytest.raises(FileError, match="password authentication failed") as refused, ready(tmp_path / "a", wrong):
        pass
    assert "opened" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("mysql://u:opensesame@h/d", 2, "none of PostgreSQL"),
        ("postgresql://u:opensesame@h/d?sauce=1", 2, "cannot be read"),
        ("postgresql://u:opensesame@127.0.0.1:1/d", 8, "127.0.0.1:1/d"),
    ],
)
def test_addresses_that_are_none_and_passwords_that_nobody_sees(tmp_path, address, code, words):
    found = CliRunner().invoke(command, ["serve", "--data", str(tmp_path), "--port", "0", "--database", address])
    error = found.exception if not isinstance(found.exception, SystemExit) else None
    text = f"{found.output}{error or ''}"
    assert words in text
    assert "opensesame" not in text
    assert (int(error.exit_code) if error else found.exit_code) == code


@pytest.mark.skipif(shutil.which("pg_restore") is None, reason="no clients of PostgreSQL")
def test_the_documented_backup_restores_a_service_into_another_database(tmp_path, url):
    """By the commands of docs/guides/service.md, while jobs run and wait."""
    page = (Path(__file__).parents[4] / "docs" / "guides" / "service.md").read_text()
    (block,) = re.findall(r"^```sh\n(pg_dump.*?)^pesto serve .*?^```", page, re.M | re.S)
    for named, real in (
        ("postgresql://pesto@db.example:5432/pesto", url),
        ("postgresql://pesto@db.example:5432/restored", url.removesuffix("postgres") + "restored"),
        ("/shared/", f"{tmp_path}/"),
    ):
        block = block.replace(named, real)
    data = b"a graph"
    sha = hashlib.sha256(data).hexdigest()
    with serving(tmp_path / "service", url) as (client, _):
        assert client.put(f"/v1/blobs/{sha}", content=data).status_code == 201
        names = {}
        for label, more in (("", {}), ("wait", {}), ("wait", {"source": {"blob": sha, "name": "g.json"}})):
            names[client.post("/v1/jobs", json=SOLVE | {"label": label} | more).json()["id"]] = label
        done, running, waiting = names
        until(lambda: state(client, done) == "done")
        until(lambda: state(client, running) == "running")
        plan = client.get(f"/v1/jobs/{done}/plan").content
        subprocess.run(["bash", "-euc", block], check=True, cwd=tmp_path, capture_output=True)
    restored = url.removesuffix("postgres") + "restored"
    with psycopg.connect(restored, autocommit=True) as database:  # rather than wait for 30 s
        database.execute("UPDATE pesto_serve.leases SET until = '-infinity'")
    with serving(tmp_path / "restored", restored, FakeJobs(slots=0)) as (client, _):
        found = {job["id"]: job for job in client.get("/v1/jobs").json()["jobs"]}
        assert {name: job["label"] for name, job in found.items()} == names
        assert found[done]["state"] == "done" and client.get(f"/v1/jobs/{done}/plan").content == plan
        assert found[waiting]["state"] == "queued" and client.get(f"/v1/blobs?sha256={sha}").json() == [sha]
        until(lambda: state(client, running) == "queued")
        name = client.post("/v1/jobs", json=SOLVE).json()["id"]  # its numbers go on after those of the dump
        assert client.get(f"/v1/jobs/{name}").json()["number"] > max(job["number"] for job in found.values())
