"""The tables of the service's database: the same on SQLite and on PostgreSQL, but for the names of types.

To change them, add a text at the end of MIGRATIONS; those before it are in use and stay as they are.
"""

from typing import NamedTuple


class Types(NamedTuple):
    """Names of column types in a database."""

    key: str
    """A number that grows with each row, its key."""
    whole: str
    real: str
    bytes: str
    strict: str = ""
    """After a table: values of other types are refused."""
    by_key: str = ""
    """After a table that is kept in the order of its key."""


_VERSION_1 = """
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
_FILES_ON_DISK = """
CREATE TABLE parts (
    name TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    token TEXT NOT NULL,
    bytes {whole} NOT NULL,
    since {real} NOT NULL
){by_key};
CREATE TABLE removals (
    path TEXT PRIMARY KEY
){by_key};
"""
"""Uploads under way with the bytes reserved for them, and paths in the service's folder that are to be removed."""
_QUOTAS = """
ALTER TABLE jobs ADD COLUMN reserved_s {real} NOT NULL DEFAULT 0;
CREATE TABLE usage (
    token TEXT NOT NULL,
    hour {whole} NOT NULL,
    seconds {real} NOT NULL,
    PRIMARY KEY (token, hour)
){by_key};
INSERT INTO usage SELECT token, CAST(finished / 3600 AS {whole}), sum(seconds) FROM jobs
    WHERE finished IS NOT NULL AND seconds > 0 GROUP BY 1, 2;
DROP INDEX jobs_waiting;
CREATE INDEX jobs_next_of_token ON jobs (token, priority DESC, number) WHERE state = 'queued';
CREATE INDEX jobs_open_of_token ON jobs (token, state, reserved_s, started)
    WHERE state IN ('queued', 'running', 'cancelling');
"""
"""Seconds of workers by token and hour since 1970, and those that a job reserves until it has ended."""
_RETENTION = """
ALTER TABLE jobs ADD COLUMN events_expired {whole} NOT NULL DEFAULT 0;
CREATE INDEX jobs_ended ON jobs (state, finished) WHERE finished IS NOT NULL;
CREATE INDEX jobs_with_events ON jobs (finished) WHERE finished IS NOT NULL AND events_expired = 0;
"""
_FILTERS = """
DROP INDEX jobs_labelled;
CREATE INDEX jobs_by_label ON jobs (label, number) WHERE label != '';
CREATE INDEX jobs_by_model ON jobs (model, number) WHERE model != '';
CREATE INDEX jobs_by_kind ON jobs (kind, number);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_time ON jobs (created, number);
"""
"""One index for each filter of a list; each costs 2 µs of a submission."""
_HURRIED = "ALTER TABLE jobs ADD COLUMN hurried {whole} NOT NULL DEFAULT 0;"
"""1 for a job that was cancelled once more while it was being cancelled."""
_WEBHOOKS = """
ALTER TABLE jobs ADD COLUMN notify TEXT NOT NULL DEFAULT '';
CREATE TABLE webhooks (
    job {whole} PRIMARY KEY,
    url TEXT NOT NULL,
    tries {whole} NOT NULL,
    due {real} NOT NULL
){strict};
CREATE INDEX webhooks_due ON webhooks (due);
"""
"""Addresses that are told of a job's end, and which of them have not been told."""
MIGRATIONS = (_VERSION_1, _FILES_ON_DISK, _QUOTAS, _RETENTION, _FILTERS, _HURRIED, _WEBHOOKS)
"""The statements that make each version of the tables from the one before it, the first from nothing.

They are SQL that both databases take, with {key}, {whole}, {real}, {bytes}, {strict} and {by_key} of `Types` (double
other braces) and no question mark. A database is brought to the last version in one transaction when a server opens it.
"""


def newest_version() -> int:
    """Return the version of the tables that this program uses."""
    return len(MIGRATIONS)


def statements_since(version: int, types: Types) -> str:
    """Return the statements that bring tables of a version to the newest one; 0 is a database without tables."""
    return "".join(text.format(**types._asdict()) for text in MIGRATIONS[version:])


def wrong_version(version: int) -> str:
    """Say in one clause that tables are of a version that this program does not know."""
    return f"its tables are of version {version}, and this program knows them up to {newest_version()}"


NEWER_REMEDY = "use the newer pesto that wrote them"
"""The first half of the remedy for such tables."""
