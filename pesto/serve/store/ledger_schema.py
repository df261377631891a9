"""The tables of the service's database: the same on SQLite and on PostgreSQL, but for the names of types."""

from typing import NamedTuple

SCHEMA = 1
"""The version of these tables; a database of another one is refused."""


class Types(NamedTuple):
    """What a database calls its types."""

    key: str
    """A number that grows with each row, its key."""
    whole: str
    real: str
    bytes: str
    strict: str = ""
    """After a table: values of other types are refused."""
    by_key: str = ""
    """After a table that is kept in the order of its key."""


_TABLES = """
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


def tables(types: Types) -> str:
    """The statements that make them."""
    return _TABLES.format(**types._asdict())
