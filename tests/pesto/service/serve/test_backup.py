"""A backup of a service that runs has all of its jobs, and a restored folder is a service like it."""

import hashlib
import io
import sqlite3
import tarfile
import threading

import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from old_database import SHA as OLD_SHA
from old_database import sqlite_database
from serving import serving, submitted, told

from pesto.cli.main import pesto as command
from pesto.core.errors import FileError, PestoError, UsageError
from pesto.service.serve import backup, tokens
from pesto.service.serve.backup import back_up, restore
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.server import opened
from pesto.service.serve.store.readings import JobFilter
from pesto.service.serve.store.sqlite_file import FILE
from pesto.service.serve.webhooks import webhook_key

DATA = b"a graph"
SHA = hashlib.sha256(DATA).hexdigest()


def run(*words):
    return CliRunner().invoke(command, ["serve", *map(str, words)], standalone_mode=False)


def test_a_backup_while_jobs_come_restores_all_that_was_acknowledged(tmp_path):
    source, file, target = tmp_path / "a", tmp_path / "backup.tar", tmp_path / "b"
    names, ended = [], threading.Event()
    with serving(source) as (client, _):
        assert client.put(f"/v1/blobs/{SHA}", content=DATA).status_code == 201
        done = submitted(client)
        told(client, done)
        waiting = submitted(client, "wait", source={"blob": SHA, "name": "g.json"})

        def submit():
            while not ended.is_set():
                names.append(submitted(client, "wait"))

        busy = threading.Thread(target=submit)
        busy.start()
        while len(names) < 5:
            pass
        before = [done, waiting, *names]
        saved = back_up(source, file)
        ended.set()
        busy.join()
        plan = client.get(f"/v1/jobs/{done}/plan").content
        assert saved.jobs >= len(before)
        assert (saved.files, saved.lost) == (3, 0)  # the upload, a plan and a report
    assert restore(file, target).lost == 0
    with serving(target, FakeJobs(slots=0)) as (client, _):
        jobs = {job["id"]: job["state"] for job in client.get("/v1/jobs?most=500").json()["jobs"]}
        assert set(before) <= set(jobs)
        assert jobs.pop(done) == "done"
        assert set(jobs.values()) == {"queued"}  # also what ran
        assert client.get(f"/v1/jobs/{done}/plan").content == plan
        assert client.get(f"/v1/blobs?sha256={SHA}").json() == [SHA]
        assert client.put(f"/v1/blobs/{SHA}", content=DATA).status_code == 200


def test_files_that_are_removed_meanwhile_are_not_missed(tmp_path, monkeypatch):
    """A job is deleted between the copy of the database and that of its files: the next copy knows nothing of it."""
    source, file, target = tmp_path / "a", tmp_path / "backup.tar", tmp_path / "b"
    with serving(source) as (client, _):
        kept, gone = submitted(client), submitted(client)
        told(client, gone)
        copied = backup._copy_database

        def copy(*given):
            result = copied(*given)
            client.delete(f"/v1/jobs/{gone}?purge")
            return result

        monkeypatch.setattr(backup, "_copy_database", copy)
        saved = back_up(source, file)
        assert (saved.jobs, saved.lost) == (1, 0)
    restore(file, target)
    with serving(target) as (client, _):
        assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]] == [kept]


def test_by_the_command_line_with_tokens_and_a_lost_file(tmp_path):
    source, file, target = tmp_path / "a", tmp_path / "backup.tar", tmp_path / "b"
    source.mkdir()
    token = tokens.add(source, "ann", tokens.Quota())
    sqlite_database(source)
    (source / "blobs" / ("0" * 64)).touch()  # not the service's
    key = webhook_key(source, "ann")
    made = run("backup", file, "--data", source)
    assert made.exception is None, made.output
    assert "3 jobs, 2 files" in made.output
    assert file.stat().st_mode & 0o077 == 0
    (source / "blobs" / OLD_SHA).unlink()
    assert "1 file of the database lost" in run("backup", file, "--data", source).output
    made = run("restore", file, "--data", target)
    assert "3 jobs, 1 file" in made.output
    assert tokens.listed(target)[0].name == "ann"
    assert webhook_key(target, "ann") == key  # receivers know signatures by it
    assert (target / "webhook.key").stat().st_mode & 0o077 == 0
    with opened(target, ServeConfig(), lambda: FakeJobs(slots=0)) as service:
        assert service.authenticator.find(token).name == "ann"
        assert len(service.store.readings.jobs(JobFilter(owner="ann")).jobs) == 3


def archive(path, *members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_what_is_no_whole_backup_is_refused_and_leaves_nothing(tmp_path):
    source, file, target = tmp_path / "a", tmp_path / "backup.tar", tmp_path / "new" / "b"
    source.mkdir()
    sqlite_database(source)
    back_up(source, file)
    whole, wrong = file.read_bytes(), tmp_path / "wrong.tar"
    about = ("pesto-serve-backup.json", b'{"format":"pesto-serve-backup","format_version":1}')
    with tarfile.open(file) as tar:
        assert tar.getnames()[0] == about[0]
    cases = [whole[: len(whole) // 2], b"", b"text" * 1000]
    for members in (
        [("x", b"")],
        [about],
        [about, ("../x", b"")],
        [about, ("jobs/ab/1/../../x", b"")],
        [about, (FILE, b"no")],
    ):
        archive(wrong, *members)
        cases.append(wrong.read_bytes())
    for data in cases:
        wrong.write_bytes(data)
        with pytest.raises(FileError) as refused:
            restore(wrong, target)
        assert "\n" not in str(refused.value)
        assert " - " in str(refused.value)
        assert list(tmp_path.joinpath("new").iterdir()) == []
    restore(file, target)
    with pytest.raises(UsageError, match="there already"):
        restore(file, target)


def test_folders_that_cannot_be_backed_up(tmp_path):
    file, folder = tmp_path / "backup.tar", tmp_path / "data"
    folder.mkdir()
    with pytest.raises(UsageError, match="no service"):
        back_up(folder, file)
    with sqlite3.connect(folder / FILE) as made:
        made.execute("PRAGMA user_version = 99")
    made.close()
    with pytest.raises(UsageError, match="version 99"):
        back_up(folder, file)
    (folder / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(FileError):
        back_up(folder, file)
    with pytest.raises(PestoError, match="name another place"):
        back_up(folder, tmp_path / "no" / "x.tar")
    assert not file.exists()


@pytest.mark.parametrize("name", [FILE, tokens.FILE, "backup.tar", "../a/jobs/backup.tar", "linked"])
def test_a_backup_is_never_written_over_what_it_is_of(tmp_path, name):
    """As where the words of the command are given the wrong way round."""
    source = tmp_path / "a"
    (tmp_path / "elsewhere").symlink_to(source)
    with serving(source) as (client, _):
        submitted(client)
    tokens.add(source, "ann", tokens.Quota())
    before = {path: path.read_bytes() for path in source.iterdir() if path.is_file()}
    file = tmp_path / "elsewhere" / FILE if name == "linked" else source / name
    came = run("backup", file, "--data", source)
    assert isinstance(came.exception, UsageError) and "name a file elsewhere" in str(came.exception)
    assert {path: path.read_bytes() for path in source.iterdir() if path.is_file()} == before
