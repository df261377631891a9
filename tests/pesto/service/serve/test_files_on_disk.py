"""The service's files after somebody else was at the disk: nothing foreign is removed, nothing lost or changed used."""

import hashlib
import sqlite3

import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from serving import refused, serving, submitted, told

from pesto.cli.main import pesto as command
from pesto.core.errors import FileError, UsageError
from pesto.service.serve import tokens
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.server import opened
from pesto.service.serve.store.sqlite_file import FILE
from pesto.verbs.jobs.request import JobRequest, JobSource
from pesto.verbs.jobs.run_job import linked_files

DATA = b"a graph"
SHA = hashlib.sha256(DATA).hexdigest()
ASKED = {"kind": "solve", "source": {"blob": SHA, "name": "g.json"}}


def put(client, data=DATA, **more):
    return client.put(f"/v1/blobs/{hashlib.sha256(data).hexdigest()}", content=data, **more).status_code


def test_files_of_others_stay_whatever_they_are_called(tmp_path, caplog):
    blobs = tmp_path / "blobs"
    with serving(tmp_path) as (client, _):
        assert put(client) == 201
    others = [blobs / name for name in ("notes.txt", "0" * 64, "half.part")]
    for path in others:
        path.write_bytes(b"mine")
    with serving(tmp_path) as (client, service):
        assert service.blobs.path(SHA).read_bytes() == DATA
    assert all(path.read_bytes() == b"mine" for path in others)
    assert "3 files in" in caplog.text


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_lost_database_beside_files_is_refused_and_they_stay(tmp_path, how):
    with serving(tmp_path) as (client, _):
        assert put(client) == 201
    for path in tmp_path.glob(f"{FILE}*"):
        if how == "cut" and path.name == FILE:
            path.write_bytes(b"")
        else:
            path.unlink()
    with pytest.raises(UsageError, match=r"blobs has files.* - restore"), opened(tmp_path, ServeConfig(), FakeJobs):
        pass
    assert (tmp_path / "blobs" / SHA).read_bytes() == DATA


@pytest.mark.parametrize("damage", [b"no database at all" * 100, None])
def test_a_damaged_database_is_one_line_and_exit_code_8(tmp_path, damage):
    with serving(tmp_path) as (client, _):
        for _ in range(30):
            submitted(client, "x" * 200)
    path = tmp_path / FILE
    path.write_bytes(damage or path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(FileError, match="- restore a backup") as told_so, opened(tmp_path, ServeConfig(), FakeJobs):
        pass
    assert "\n" not in str(told_so.value)
    found = CliRunner().invoke(command, ["serve", "--data", str(tmp_path), "--port", "0"])
    assert (found.exit_code if isinstance(found.exception, SystemExit) else found.exception.exit_code) == 8


def test_a_database_that_becomes_unreadable_is_no_bug_of_the_service(tmp_path, monkeypatch):
    def fail(*_):
        raise sqlite3.DatabaseError("database disk image is malformed")

    with serving(tmp_path) as (client, service):
        monkeypatch.setattr(service.store.readings, "job", fail)
        refused(client.get("/v1/jobs/abc"), 507, "malformed", "restore a backup")


def test_a_lost_or_changed_upload_is_refused_until_it_is_sent_again(tmp_path):
    with serving(tmp_path) as (client, service):
        path = service.blobs.path(SHA)
        assert put(client) == 201
        for harm in (path.unlink, lambda: path.write_bytes(b"A graph")):
            harm()
            assert client.get(f"/v1/blobs?sha256={SHA}").json() == []
            refused(client.post("/v1/jobs", json=ASKED), 422, SHA, "deleted, or changed", "upload it: PUT")
            assert put(client) == 201
            assert path.read_bytes() == DATA
            assert put(client) == 200
            assert client.post("/v1/jobs", json=ASKED).status_code == 202


def test_a_worker_reads_no_changed_upload(tmp_path):
    (tmp_path / SHA).write_bytes(b"A graph")
    request = JobRequest(kind="solve", source=JobSource(blob=SHA, name="g.json"))
    with pytest.raises(FileError, match=r"changed .* upload it again"), linked_files(request, tmp_path, tmp_path):
        pass


class WithDigests(FakeJobs):
    """Jobs that tell the SHA-256 of what they leave, as workers do."""

    def _answer(self, work, done, reused=False):
        out = self.folders()[-1]
        digests = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in done.files}
        super()._answer(work, type(done)(exit_code=0, files=done.files, digests=digests), reused)


def test_a_changed_plan_is_not_handed_out(tmp_path):
    with serving(tmp_path, WithDigests()) as (client, service):
        name = submitted(client)
        job = told(client, name)
        found = client.get(f"/v1/jobs/{name}/plan")
        assert found.headers["etag"] == f'"{hashlib.sha256(found.content).hexdigest()}"'
        assert job["digests"]["plan.json"] == hashlib.sha256(found.content).hexdigest()
        service.scheduler.results(name, 1).joinpath("plan.json").write_bytes(b"another")
        refused(client.get(f"/v1/jobs/{name}/plan"), 410, "changed on the disk")
        check = {"kind": "check", "plan": {"job": name}}
        refused(client.post("/v1/jobs", json=check), 422, "changed")
        assert client.get(f"/v1/jobs/{name}/report").status_code == 200


def test_unfinished_uploads_count_and_run_out(tmp_path):
    token = tokens.add(tmp_path, "ann", tokens.Quota(bytes=10))
    headers = {"Authorization": f"Bearer {token}"}
    with serving(tmp_path) as (client, service):
        do = service.store.writer.do
        do(lambda ledger: ledger.put_part("1.part", "f" * 64, "ann", 8))
        assert put(client, b"12345", headers=headers) == 413
        chunked = client.put(f"/v1/blobs/{SHA}", content=iter([b"123", b"45"]), headers=headers)
        refused(chunked, 413, "2 B")
        assert put(client, b"12", headers=headers) == 201
        retention = service.scheduler._retention
        retention.tidy(do, 3600.0)
        assert put(client, b"12345", headers=headers) == 413
        (service.blobs.folder / "1.part").write_bytes(b"half")
        retention.tidy(do, 0.0)
        assert list(service.blobs.folder.glob("*.part")) == []
        assert put(client, b"12345", headers=headers) == 201
        assert do(lambda ledger: ledger.parts()) == []


def test_what_a_crash_left_of_an_upload_is_removed(tmp_path):
    """Once before it had its name, once between that and the commit."""
    with serving(tmp_path) as (_, service):
        blobs = service.blobs.folder
        service.store.writer.do(lambda ledger: ledger.put_part("1.part", "e" * 64, "", 4))
        service.store.writer.do(lambda ledger: ledger.put_part("2.part", "f" * 64, "", 4))
    (blobs / "1.part").write_bytes(b"half")
    (blobs / ("f" * 64)).write_bytes(b"all")
    with serving(tmp_path):
        assert list(blobs.iterdir()) == []


def test_files_to_be_removed_are_removed_after_a_crash(tmp_path):
    with serving(tmp_path) as (client, service):
        assert put(client) == 201
        job = told(client, submitted(client))
        for act in (
            lambda ledger: ledger.forget_blob(SHA, ledger.blobs()[0][2]),
            lambda ledger: ledger.expire(job["number"]),
        ):
            service.store.writer.do(act)
        assert service.blobs.path(SHA).exists()
    with serving(tmp_path) as (client, service):
        assert not service.blobs.path(SHA).exists()
        assert not (tmp_path / "jobs" / job["id"]).exists()
        assert service.store.writer.do(lambda ledger: ledger.removals()) == []
