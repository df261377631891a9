"""Databases of earlier versions are brought to this one with all that they have; those of later ones are refused."""

import sqlite3
from contextlib import closing

import psycopg
import pytest
from fake_jobs import FakeJobs
from old_database import SHA, UPLOAD, postgres_database, sqlite_database

from benchmarks.postgres_server import PostgresServer, missing
from pesto.core.errors import FileError, UsageError
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.server import opened
from pesto.service.serve.store import ledger_schema
from pesto.service.serve.store.readings import JobFilter
from pesto.service.serve.store.sqlite_file import FILE, connected

STEP = "ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'; CREATE TABLE more (n {whole}){strict};"


def require_all(service):
    """Everything that the old server left is there; its running job has no worker any more, and is queued again."""
    readings = service.store.readings
    jobs = {job.id: job for job in readings.jobs(JobFilter(owner="ann")).jobs}
    assert {name: (job.state, job.attempt) for name, job in jobs.items()} == {
        "d0": ("done", 1), "e0": ("queued", 1), "f0": ("queued", 0),
    }  # fmt: skip
    assert [event.kind for event in readings.events(jobs["d0"].number, 0)] == ["done"]
    assert service.scheduler.results("d0", 1).joinpath("plan.json").read_bytes() == b"{}"
    assert readings.blob(SHA) == len(UPLOAD)
    assert service.blobs.path(SHA).read_bytes() == UPLOAD
    assert [(row.model, row.jobs) for row in readings.sums()] == [("rnnlm", 1)]


def test_a_database_of_the_first_version_keeps_its_jobs(tmp_path):
    sqlite_database(tmp_path)
    for _ in range(2):  # and then it is of this version
        with opened(tmp_path, ServeConfig(), lambda: FakeJobs(slots=0)) as service:
            require_all(service)


def test_old_and_new_databases_have_the_same_tables(tmp_path):
    described = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        if name == "old":
            sqlite_database(tmp_path / name)
        with closing(connected(tmp_path / name)) as found:
            described.append(found.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall())
    assert described[0] == described[1]


def test_a_migration_happens_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    sqlite_database(tmp_path)
    with closing(connected(tmp_path)):
        version = ledger_schema.newest_version()
    monkeypatch.setattr(ledger_schema, "MIGRATIONS", (*ledger_schema.MIGRATIONS, f"{STEP} INSERT INTO nothing;"))
    with pytest.raises(FileError, match="syntax error"):
        connected(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as found:
        assert found.execute("PRAGMA user_version").fetchone() == (version,)
        assert found.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").fetchone() == (0,)
    monkeypatch.setattr(ledger_schema, "MIGRATIONS", (*ledger_schema.MIGRATIONS[:-1], STEP))
    with closing(connected(tmp_path)) as found:
        assert found.execute("SELECT id, colour FROM jobs WHERE number = 1").fetchone() == ("d0", "red")
        assert found.execute("PRAGMA user_version").fetchone() == (version + 1,)
    monkeypatch.undo()
    with pytest.raises(UsageError, match=f"version {version + 1}, .* up to {version} - use the newer pesto"):
        connected(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_same_on_postgresql(tmp_path, monkeypatch):
    def asked(sql):
        with psycopg.connect(server.url, autocommit=True) as other:
            return other.execute(sql).fetchone()

    with closing(PostgresServer()) as server:
        config = ServeConfig(database=server.url)
        postgres_database(server.url, tmp_path)
        with opened(tmp_path, config, lambda: FakeJobs(slots=0)) as service:
            service.store.writer.do(lambda ledger: ledger.recover())
            require_all(service)
        version = ledger_schema.newest_version()
        assert asked("SELECT version FROM pesto_serve.about") == (version,)
        monkeypatch.setattr(ledger_schema, "MIGRATIONS", (*ledger_schema.MIGRATIONS, STEP))
        with opened(tmp_path, config, lambda: FakeJobs(slots=0)) as service:
            require_all(service)
        assert asked("SELECT colour FROM pesto_serve.jobs WHERE number = 1") == ("red",)
        monkeypatch.undo()
        refused = f"version {version + 1}, .* up to {version} - use the newer pesto"
        with pytest.raises(UsageError, match=refused), opened(tmp_path, config, FakeJobs):
            pass
