"""Databases as the first version of their tables was: what a server of that time left, on SQLite and on PostgreSQL."""

import hashlib
import json
import sqlite3
import time

import psycopg

from pesto.service.serve.store.sqlite_file import FILE, MARK

SQLITE = {
    "key": "INTEGER PRIMARY KEY AUTOINCREMENT", "whole": "INTEGER", "real": "REAL", "bytes": "BLOB",
    "strict": " STRICT", "by_key": " STRICT, WITHOUT ROWID",
}  # fmt: skip
POSTGRES = {
    "key": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "whole": "BIGINT", "real": "DOUBLE PRECISION",
    "bytes": "BYTEA", "strict": "", "by_key": "",
}  # fmt: skip
TABLES = """
CREATE TABLE jobs (
    number {key},
    id TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    label TEXT NOT NULL,
    priority {whole} NOT NULL,
    request {bytes} NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'cancelling', 'done', 'failed', 'cancelled')),
    attempt {whole} NOT NULL DEFAULT 0,
    deaths {whole} NOT NULL DEFAULT 0,
    events {whole} NOT NULL DEFAULT 0,
    stage TEXT NOT NULL DEFAULT '',
    best_s {real},
    bound_s {real},
    created {real} NOT NULL,
    started {real},
    finished {real},
    seconds {real} NOT NULL DEFAULT 0,
    kept {whole} NOT NULL DEFAULT 0,
    outcome {bytes},
    expired {whole} NOT NULL DEFAULT 0
){strict};
CREATE INDEX jobs_waiting ON jobs (priority DESC, number) WHERE state = 'queued';
CREATE INDEX jobs_under_way ON jobs (number) WHERE state IN ('running', 'cancelling');
CREATE INDEX jobs_of_token ON jobs (token, number);
CREATE INDEX jobs_labelled ON jobs (label, number) WHERE label != '';
CREATE INDEX jobs_kept ON jobs (finished) WHERE kept > 0 AND expired = 0;
CREATE TABLE events (
    job {whole} NOT NULL REFERENCES jobs (number),
    number {whole} NOT NULL,
    kind TEXT NOT NULL,
    data {bytes} NOT NULL,
    PRIMARY KEY (job, number)
){by_key};
CREATE TABLE keys (
    token TEXT NOT NULL,
    key TEXT NOT NULL,
    digest {bytes} NOT NULL,
    job {whole} NOT NULL REFERENCES jobs (number),
    PRIMARY KEY (token, key)
){by_key};
CREATE TABLE sums (
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs {whole} NOT NULL,
    seconds {real} NOT NULL,
    gap {real} NOT NULL,
    gaps {whole} NOT NULL,
    PRIMARY KEY (kind, model, state)
){by_key};
CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    bytes {whole} NOT NULL,
    token TEXT NOT NULL,
    used {real} NOT NULL
){by_key};
CREATE TABLE needs (
    digest TEXT NOT NULL REFERENCES blobs (digest),
    job {whole} NOT NULL REFERENCES jobs (number),
    PRIMARY KEY (digest, job)
){by_key};
"""
ABOUT = """
CREATE TABLE about (version BIGINT NOT NULL, folder TEXT NOT NULL, paired BOOLEAN NOT NULL);
CREATE TABLE servers (id TEXT PRIMARY KEY, turn BIGINT NOT NULL, seen TIMESTAMPTZ NOT NULL);
CREATE TABLE leases (
    job BIGINT PRIMARY KEY REFERENCES jobs (number),
    attempt BIGINT NOT NULL,
    server TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
"""
REQUEST = {"kind": "solve", "source": {"model": "rnnlm"}}
UPLOAD = b"an uploaded file"
SHA = hashlib.sha256(UPLOAD).hexdigest()
JOBS = {"d0": "done", "e0": "running", "f0": "queued"}
"""The state of each job by its id."""


def sqlite_database(folder):
    """Write the database, the upload and a plan of an old server into a folder."""
    with sqlite3.connect(folder / FILE) as made:
        made.executescript(f"{TABLES.format(**SQLITE)} PRAGMA user_version = 1;")
        _fill(made.execute)
    made.close()
    _write_files(folder)


def postgres_database(url, folder):
    """The same on PostgreSQL, in its schema, paired with the folder."""
    with psycopg.connect(url) as made:
        made.execute("CREATE SCHEMA pesto_serve")
        made.execute("SET search_path = pesto_serve")
        made.execute(f"{TABLES.format(**POSTGRES)} {ABOUT}")
        made.execute("INSERT INTO about VALUES (1, 'abc', true)")
        _fill(lambda sql, given: made.execute(sql.replace("?", "%s"), given))
        made.execute("INSERT INTO leases VALUES (2, 1, 'gone', '-infinity')")
    _write_files(folder)
    (folder / MARK).write_text("abc\n")


def _fill(execute):
    now = time.time()
    for name, state in JOBS.items():
        begun = 0 if state == "queued" else 1
        execute(
            "INSERT INTO jobs (id, token, kind, model, label, priority, request, state, attempt, created)"
            " VALUES (?, 'ann', 'solve', 'rnnlm', 'old', 0, ?, ?, ?, 1.0)",
            (name, json.dumps(REQUEST).encode(), state, begun),
        )
    outcome = {"exit_code": 0, "files": ["plan.json"], "seconds": 60.0}
    execute(
        "UPDATE jobs SET kept = 1, events = 1, finished = ?, seconds = 60, outcome = ? WHERE id = 'd0'",
        (now, json.dumps(outcome).encode()),
    )
    execute("INSERT INTO events VALUES (1, 1, 'done', ?)", (json.dumps({"event": "done"} | outcome).encode(),))
    execute("INSERT INTO blobs VALUES (?, ?, 'ann', ?)", (SHA, len(UPLOAD), now))
    execute("INSERT INTO needs VALUES (?, 3)", (SHA,))
    execute("INSERT INTO sums VALUES ('solve', 'rnnlm', 'done', 1, 60.0, 0.0, 0)", ())


def _write_files(folder):
    for path, data in ((f"blobs/{SHA}", UPLOAD), ("jobs/d0/1/plan.json", b"{}")):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(data)
