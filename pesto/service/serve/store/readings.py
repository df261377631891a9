"""Read-only queries of the store, as of the last commit, and pages of jobs with their filters."""

import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pesto.service.protocol import FINAL, State
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.database import Queryable
from pesto.service.serve.store.job_records import Job, Outcome, StoredEvent, Sums
from pesto.service.serve.store.ledger import ended_by_token, job_of
from pesto.service.serve.store.waiting import RECENT_S, Waiting

LOOKED = 2_500
"""Jobs that one page looks at, where an index finds more than what is asked for: the next page goes on after them."""
COUNTED = 10_000
"""A count that stands for this many or more."""
REQUEST_BYTES = 1 << 16
"""A request that is longer is not in a list; it is in the job itself."""
COLUMNS = (
    "number", "id", "token", "kind", "label", "priority", "request", "state", "attempt", "deaths", "events", "stage",
    "best_s", "bound_s", "created", "started", "finished", "seconds", "kept", "outcome", "expired", "model",
)  # fmt: skip
_LISTED = ", ".join(
    f"CASE WHEN length(request) <= {REQUEST_BYTES} THEN request END" if name == "request" else name for name in COLUMNS
)
CURSOR = r"n([0-9]{1,18})(?:t([0-9]{1,12}(?:\.[0-9]{1,9})?))?"
_INDEXED = ("label", "model", "kind", "state")
"""Columns with an index, those first by which fewer jobs are found, as a rule."""
_EQUAL = {name: f"{name} = ?" for name in _INDEXED} | {
    name: f"{name} = ? AND {name} != ''" for name in ("label", "model")
}
"""The index of a label or a model has no jobs without one."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a list of jobs; None for all."""

    owner: str | None = None
    """The name of a token."""
    kind: str | None = None
    model: str | None = None
    state: State | None = None
    label: str | None = None
    since: float | None = None
    """Submitted then or later, in seconds since 1970. Jobs are in the order of time where this or `until` is given."""
    until: float | None = None
    """Submitted earlier."""
    text: str | None = None
    """A part of label, model or kind, or the beginning of the id; letters of ASCII in either case."""

    @property
    def by_time(self) -> bool:
        """True if jobs are in the order of the time at which they were submitted, which clocks may have turned."""
        return self.since is not None or self.until is not None


class JobPage(NamedTuple):
    """Some jobs, the newest first."""

    jobs: list[Job]
    after: str | None
    """Cursor of the next page; None after the last."""


class _Part(NamedTuple):
    """A condition with its values."""

    sql: str
    given: tuple[Any, ...]


def job_page(database: Queryable, filters: JobFilter, after: str | None, limit: int) -> JobPage:
    """Return the next jobs after those of another page, fewer than `most` where that would take too long.

    after: what a page ends with, or the id of a job. RefusedError (400) for anything else.
    """
    order = "created DESC, number DESC" if filters.by_time else "number DESC"
    beyond = _Part("", ())
    if after is not None:
        match = re.fullmatch(CURSOR, after)
        if match is None or (filters.by_time and match[2] is None):
            raise RefusedError(
                400, "`after` is not a cursor of this list", remedy="give the `after` of the page before"
            )
        beyond = _Part("number < ?", (int(match[1]),))
        if filters.by_time:
            beyond = _Part("(created, number) < (?, ?)", (float(match[2]), int(match[1])))
    # A token with few jobs needs no other index: all of its jobs are looked at.
    is_few, indexed = False, filters.by_time or any(getattr(filters, name) is not None for name in _INDEXED)
    if filters.owner is not None and indexed:
        sql = f"SELECT 1 FROM jobs WHERE token = ? ORDER BY number DESC LIMIT 1 OFFSET {LOOKED}"  # noqa: S608
        is_few = database.execute(sql, (filters.owner,)).fetchone() is None
    within, others = _parts(filters, by_owner=is_few)
    if is_few:
        others = _joined(others, beyond)
    else:
        within = _joined(within, beyond)
    where = f" WHERE {within.sql}" if within.sql else ""
    if not others.sql:
        sql = f"SELECT {_LISTED} FROM jobs{where} ORDER BY {order} LIMIT ?"  # noqa: S608 - constants
        jobs = [job_of_row(row) for row in database.execute(sql, (*within.given, limit + 1))]
        return _page(jobs, limit, filters, None)
    names = "number, created, id, token, kind, model, state, label"
    inner = "number DESC" if is_few else order
    inner_sql = f"SELECT {names} FROM jobs{where} ORDER BY {inner} LIMIT {LOOKED}"  # noqa: S608
    sql = f"SELECT number FROM ({inner_sql}) AS looked WHERE {others.sql} ORDER BY {order} LIMIT ?"  # noqa: S608
    numbers = [number for (number,) in database.execute(sql, (*within.given, *others.given, limit + 1))]
    marks = ", ".join("?" * len(numbers)) or "NULL"
    sql = f"SELECT {_LISTED} FROM jobs WHERE number IN ({marks})"  # noqa: S608
    jobs = [job_of_row(row) for row in database.execute(sql, numbers)]
    place = {number: k for k, number in enumerate(numbers)}
    jobs.sort(key=lambda job: place[job.number])
    last = None
    if not is_few and len(jobs) <= limit:
        sql = f"SELECT number, created FROM jobs{where} ORDER BY {order} LIMIT 1 OFFSET {LOOKED - 1}"  # noqa: S608
        last = database.execute(sql, within.given).fetchone()
    return _page(jobs, limit, filters, None if last is None else _cursor(*last, by_time=filters.by_time))


def job_counts(database: Queryable, token: str | None) -> dict[str, int]:
    """Return how many jobs are in each state, of one token or of all; COUNTED for as many or more."""
    whose = "" if token is None else "token = ? AND "
    sql = f"SELECT count(*) FROM (SELECT 1 FROM jobs WHERE {whose}state = ? LIMIT {COUNTED}) AS counted"  # noqa: S608
    given = () if token is None else (token,)
    return {state.value: int(database.execute(sql, (*given, state.value)).fetchone()[0]) for state in State}


def job_of_row(row: Sequence[Any]) -> Job:
    """Return the job of a row of COLUMNS."""
    named = dict(zip(COLUMNS, row, strict=True))
    outcome = named["outcome"]
    return Job(
        **named
        | {
            "request": named["request"] or b"",
            "state": State(named["state"]),
            "outcome": None if outcome is None else msgspec.json.decode(outcome, type=Outcome),
            "expired": bool(named["expired"]),
        }
    )


def _parts(filters: JobFilter, *, by_owner: bool) -> tuple[_Part, _Part]:
    """Return what one index finds, and what is looked for among that; `by_owner`: the first is a token's jobs."""
    owner: list[tuple[str, Any]] = [] if filters.owner is None else [("token = ?", filters.owner)]
    given = [(name, value) for name in _INDEXED if (value := getattr(filters, name)) is not None]
    equal = [(_EQUAL[name], value) for name, value in given if value]
    bare = [(f"{name} = ?", value) for name, value in given if not value]
    times: list[tuple[str, Any]] = []
    times += [("created >= ?", filters.since)] if filters.since is not None else []
    times += [("created < ?", filters.until)] if filters.until is not None else []
    if by_owner or not (times or equal):
        first, rest = owner, times + equal + bare
    elif times:
        first, rest = times, owner + equal + bare
    else:
        first, rest = equal[:1], owner + equal[1:] + bare
    others = _conjunction(rest)
    if filters.text is not None:
        # The text as it is and in small letters, as databases differ in what lower() and LIKE do.
        plain, small = (re.sub(r"([!%_])", r"!\1", one) for one in (filters.text, filters.text.lower()))
        tries = [(name, f"%{plain}%") for name in ("label", "model")]
        tries += [(f"lower({name})", f"%{small}%") for name in ("label", "model", "kind")] + [("id", f"{small}%")]
        clauses = " OR ".join(f"{name} LIKE ? ESCAPE '!'" for name, _ in tries)
        others = _joined(others, _Part(f"({clauses})", tuple(pattern for _, pattern in tries)))
    return _conjunction(first), others


def _conjunction(parts: Sequence[tuple[str, Any]]) -> _Part:
    return _Part(" AND ".join(sql for sql, _ in parts), tuple(value for _, value in parts))


def _joined(first: _Part, second: _Part) -> _Part:
    return _Part(" AND ".join(filter(None, (first.sql, second.sql))), (*first.given, *second.given))


def _cursor(number: int, created: float, *, by_time: bool) -> str:
    return f"n{number}t{created:.9f}" if by_time else f"n{number}"


def _page(jobs: list[Job], limit: int, filters: JobFilter, after: str | None) -> JobPage:
    if len(jobs) > limit:
        last = jobs[limit - 1]
        after = _cursor(last.number, last.created, by_time=filters.by_time)
    return JobPage(jobs[:limit], after)


_SELECT = f"SELECT {', '.join(COLUMNS)} FROM jobs"  # noqa: S608 - constants


class Readings:
    """Questions to the store, each a short one: for one thread."""

    def __init__(self, database: Queryable) -> None:
        """`database`: a connection of its own, beside the writer's."""
        self._db = database
        self._had_s, self._had_s_until = dict[str, float](), 0.0

    def job(self, name: str) -> Job | None:
        """Return the job with that id."""
        row = self._db.execute(f"{_SELECT} WHERE id = ?", (name,)).fetchone()
        return None if row is None else job_of_row(row)

    def job_of_key(self, token: str, key: str, digest: bytes) -> str | None:
        """Return the job of an idempotency key (`pesto.service.serve.store.ledger.job_of`)."""
        return job_of(self._db, token, key, digest)

    def jobs(self, filters: JobFilter, after: str | None = None, most: int = 50) -> JobPage:
        """Return a page of jobs (`job_page`)."""
        return job_page(self._db, filters, after, most)

    def counts(self, token: str | None) -> dict[str, int]:
        """Return the number of jobs in each state (`job_counts`)."""
        return job_counts(self._db, token)

    def place(self, job: Job, waiting: Waiting) -> int | None:
        """Return the place of a job in the queue, from 1 (`Waiting.place`); None for one that does not wait."""
        if job.state != State.QUEUED:
            return None
        return waiting.place(job.token, job.priority, job.number, self._seconds_of)

    def events(self, number: int, after: int, most: int = 200) -> list[StoredEvent]:
        """Return a job's events after a number, in their order."""
        rows = self._db.execute(
            "SELECT number, kind, data FROM events WHERE job = ? AND number > ? ORDER BY number LIMIT ?",
            (number, after, most),
        )
        return [StoredEvent(number=n, kind=kind, data=data) for n, kind, data in rows]

    def ended(self, number: int) -> bool:
        """Return True if a job has told its last event."""
        row = self._db.execute("SELECT state FROM jobs WHERE number = ?", (number,)).fetchone()
        return row is None or row[0] in FINAL

    def blob(self, digest: str) -> int | None:
        """Bytes of an uploaded file; None when it is not there."""
        row = self._db.execute("SELECT bytes FROM blobs WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else int(row[0])

    def blob_bytes(self, token: str | None = None) -> int:
        """Bytes of all uploaded files, or of those of a token."""
        where, given = ("", ()) if token is None else (" WHERE token = ?", (token,))
        return int(self._db.execute(f"SELECT coalesce(sum(bytes), 0) FROM blobs{where}", given).fetchone()[0])  # noqa: S608

    def had_tokens(self) -> bool:
        """Return True if any job was submitted with a token."""
        return self._db.execute("SELECT 1 FROM jobs WHERE token > '' LIMIT 1").fetchone() is not None

    def oldest_waiting(self) -> float | None:
        """Return the submission time of the job that waits longest; None if none waits."""
        first = "SELECT created FROM jobs WHERE state = 'queued' ORDER BY number LIMIT 1"
        row = self._db.execute(first).fetchone()
        return None if row is None else float(row[0])

    def sums(self) -> list[Sums]:
        """Return the totals of ended jobs by kind, model and state."""
        rows = self._db.execute("SELECT kind, model, state, jobs, seconds, gap, gaps FROM sums")
        return [Sums(**dict(zip(Sums.__struct_fields__, row, strict=True))) for row in rows]

    def _seconds_of(self, token: str) -> float:
        """Return the seconds of workers that a token has had in 24 hours, as of less than a second ago."""
        if time.monotonic() >= self._had_s_until:
            self._had_s = ended_by_token(self._db, time.time())
            self._had_s_until = time.monotonic() + RECENT_S
        return self._had_s.get(token, 0.0)
