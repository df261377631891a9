"""Backups of a service that goes on running: its database, uploads, results, tokens and keys in one tar file."""

import io
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from pesto.core.errors import FileError, UsageError
from pesto.core.files.disk import file_sha256, make_folder, sync_folder
from pesto.core.files.json import shown
from pesto.service.serve import tokens
from pesto.service.serve.store.ledger import BLOBS, JOBS
from pesto.service.serve.store.ledger_schema import NEWER_REMEDY, newest_version, wrong_version
from pesto.service.serve.store.sqlite_file import FILE, MARK, explained_damage, reading
from pesto.service.serve.webhooks import KEY_FILE

_ABOUT = "pesto-serve-backup.json"
_TRIES = 5
"""Snapshots of the database, until all files of one are copied: those of the one before may be removed meanwhile."""
_SECRETS = (tokens.FILE, tokens.USES, KEY_FILE)
_MEMBER = re.compile(
    rf"{re.escape(FILE)}|{'|'.join(map(re.escape, _SECRETS))}|{BLOBS}/[0-9a-f]{{64}}|{JOBS}/[0-9a-f]+/[0-9]+/[^/\0]+"
)


class _About(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "pesto-serve-backup"
    format_version: int = 1


class Saved(NamedTuple):
    """Counts of the jobs, files and bytes in a backup."""

    jobs: int
    files: int
    """Uploads and files of results."""
    bytes: int
    """Size of the tar file."""
    lost: int
    """Files that the database names, and that are not there or not as they were."""


def back_up(folder: Path, file: Path) -> Saved:
    """Write a backup of the service of a folder, whether it runs or not.

    The database is copied as of one moment, and each file that it names then is in the backup, but for those that the
    disk has lost. The file is there once it is whole. UsageError for a folder without a database of its own, for tables
    of a newer version and for a file in that folder; FileError where something cannot be read or written.
    """
    if (folder / MARK).exists():
        raise UsageError.build(
            f"{shown(folder)} has its database elsewhere",
            remedy="use pg_dump, then copy the folder (docs/guides/service.md)",
        )
    if not (folder / FILE).is_file():
        raise UsageError.build(
            f"{shown(folder)} has no service", remedy="give the folder that pesto serve has as --data"
        )
    if file.resolve().is_relative_to(folder.resolve()):
        raise UsageError.build(f"{shown(file)} is in the folder of the service", remedy="name a file elsewhere")
    try:
        with tempfile.TemporaryDirectory(prefix=".pesto-backup-", dir=file.absolute().parent) as scratch:
            archive, snapshot = Path(scratch) / "backup.tar", Path(scratch) / FILE
            with _create(archive) as raw:
                with tarfile.open(fileobj=raw, mode="w") as tar:
                    jobs, files, lost = _fill(tar, folder, snapshot)
                raw.flush()
                os.fsync(raw.fileno())
            archive.replace(file)
        sync_folder(file.absolute().parent)
        return Saved(jobs, files, file.stat().st_size, lost)
    except OSError as error:
        reason = error.strerror or shown(error)
        raise FileError.build(f"cannot write {shown(file)}: {reason.lower()}", remedy="name another place") from error


def _fill(tar: tarfile.TarFile, folder: Path, snapshot: Path) -> tuple[int, int, int]:
    """Add everything; the database last, so that a backup with one is whole."""
    about = msgspec.json.encode(_About())
    info = tarfile.TarInfo(_ABOUT)
    info.size = len(about)
    tar.addfile(info, io.BytesIO(about))
    added: set[str] = set()
    for _ in range(_TRIES):
        jobs, named = _copy_database(folder, snapshot)
        lost = sum(not _add(tar, folder, path, added) for path in named)
        if not lost:
            break
    for name in _SECRETS:
        if (folder / name).is_file():
            tar.add(folder / name, name, recursive=False)
    tar.add(snapshot, FILE, recursive=False)
    return jobs, len(added), lost


def _copy_database(folder: Path, snapshot: Path) -> tuple[int, list[str]]:
    """Copy the database as of now; return how many jobs it has, and the paths of its uploads and results."""
    snapshot.unlink(missing_ok=True)
    with (
        explained_damage(folder / FILE),
        closing(reading(folder)) as source,
        closing(sqlite3.connect(snapshot)) as copy,
    ):
        source.backup(copy)
        _require_known(copy, folder / FILE)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        (jobs,) = copy.execute("SELECT count(*) FROM jobs").fetchone()
        paths = [f"{BLOBS}/{digest}" for (digest,) in copy.execute("SELECT digest FROM blobs")]
        results = "SELECT id, kept FROM jobs WHERE kept > 0 AND expired = 0"
        paths += [f"{JOBS}/{name}/{attempt}" for name, attempt in copy.execute(results)]
    return jobs, paths


def _require_known(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > newest_version():
        raise UsageError.build(f"{wrong_version(version)}", where=shown(path), remedy=NEWER_REMEDY)


def _add(tar: tarfile.TarFile, folder: Path, path: str, added: set[str]) -> bool:
    """Add an upload, or the files of an attempt, unless they are in; False if they are not there."""
    real = folder / path
    try:
        names = [path] if path.startswith(BLOBS) else [f"{path}/{file.name}" for file in sorted(real.iterdir())]
        for name in names:
            if name not in added and _MEMBER.fullmatch(name):
                with (folder / name).open("rb") as file:  # the open file is there to its end whoever removes it
                    tar.addfile(tar.gettarinfo(arcname=name, fileobj=file), file)
                added.add(name)
    except FileNotFoundError:
        return False
    return True


def restore(file: Path, folder: Path) -> Saved:
    """Make a folder from a backup, for `pesto serve --data`; it is there once it is whole.

    UsageError for a folder that has something already and for a backup of a newer version; FileError for what is no
    backup or only a part of one, and where something cannot be read or written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError.build(f"{shown(folder)} is there already", remedy="give another --data, or move it away")
    make_folder(folder.absolute().parent)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".pesto-restore-", dir=folder.absolute().parent))
        try:
            files = _extract(file, scratch)
            with explained_damage(file), closing(sqlite3.connect(scratch / FILE)) as database:
                _require_known(database, file)
                if (result := database.execute("PRAGMA quick_check").fetchone()) != ("ok",):
                    raise FileError.build(
                        f"its database is damaged: {shown(result)}", where=shown(file), remedy="use another backup"
                    )
                (jobs,) = database.execute("SELECT count(*) FROM jobs").fetchone()
                blobs = [digest for (digest,) in database.execute("SELECT digest FROM blobs")]
            paths = [scratch / BLOBS / digest for digest in blobs]
            lost = sum(not path.exists() or file_sha256(path) != path.name for path in paths)
            os.sync()
            if folder.exists():
                folder.rmdir()
            scratch.replace(folder)
            sync_folder(folder.absolute().parent)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(scratch)
            raise
        return Saved(jobs, files, file.stat().st_size, lost)
    except OSError as error:
        reason = error.strerror or shown(error)
        raise FileError.build(
            f"cannot restore {shown(file)}: {reason.lower()}", remedy="check the file and the disk"
        ) from error


def _extract(file: Path, scratch: Path) -> int:
    """Write the members of a backup below a folder; return how many of them are uploads or results."""
    count, last = 0, ""
    try:
        with tarfile.open(file, "r:") as tar:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == _ABOUT else None
            if content is None or msgspec.json.decode(content.read(1000), type=_About) != _About():
                raise _no_backup(file)
            for member in tar:
                if member is first:
                    continue
                source = tar.extractfile(member) if member.isreg() and _MEMBER.fullmatch(member.name) else None
                if source is None:
                    raise _no_backup(file)
                target = scratch / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with _create(target) as copy:
                    shutil.copyfileobj(source, copy)
                count, last = count + ("/" in member.name), member.name
    except (tarfile.TarError, EOFError, msgspec.DecodeError) as error:
        raise _no_backup(file) from error
    if last != FILE:
        raise FileError.build(f"{shown(file)} ends before its database", remedy="use a backup that is whole")
    return count


def _no_backup(file: Path) -> FileError:
    return FileError.build(
        f"{shown(file)} is no backup of this service, or damaged", remedy="use one of pesto serve backup"
    )


def _create(path: Path) -> BinaryIO:
    """Make a file that nobody else may read: a backup has the hashes of tokens."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
