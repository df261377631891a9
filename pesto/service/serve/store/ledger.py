"""The acts that change what the service remembers; each is called within a transaction, by one thread.

An act refuses before it writes, so that what shares its transaction is not touched by a refusal. These are the rules of
jobs, whichever database keeps them.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from pesto.core.errors import Exit
from pesto.service.protocol import FINAL, State
from pesto.service.serve.refusals import RefusedError, full, no_job
from pesto.service.serve.store.database import Database, Queryable, QueueStats
from pesto.service.serve.store.job_records import DEATHS, Attempt, Event, Outcome, Submission
from pesto.service.serve.tokens import MACHINE, Quota

HOUR_S = 3600.0
WINDOW_HOURS = 24
_OPEN = "token = ? AND state IN ('queued', 'running', 'cancelling')"


def add_usage(database: Queryable, number: int, seconds: float, now: float) -> None:
    """Count the seconds of an attempt of a job for its token; they stay when the job is deleted."""
    database.execute(
        "INSERT INTO usage SELECT token, CAST(? AS INTEGER), CAST(? AS DOUBLE PRECISION) FROM jobs WHERE number = ?"
        " ON CONFLICT (token, hour) DO UPDATE SET seconds = usage.seconds + excluded.seconds",
        (int(now / HOUR_S), seconds, number),
    )


def drop_usage(database: Queryable, now: float) -> None:
    """Delete seconds of twice as long ago, so that a clock that is set back by a day forgets none that count."""
    database.execute("DELETE FROM usage WHERE hour < ?", (int(now / HOUR_S) - 2 * WINDOW_HOURS,))


def ended_s(database: Queryable, token: str, now: float) -> float:
    """Return the seconds of a token's attempts that have ended."""
    sql = "SELECT coalesce(sum(seconds), 0) FROM usage WHERE token = ? AND hour > ?"
    return float(database.execute(sql, (token, int(now / HOUR_S) - WINDOW_HOURS)).fetchone()[0])


def ended_by_token(database: Queryable, now: float) -> dict[str, float]:
    """Return the seconds of the attempts that have ended, of each token that has any."""
    sql = "SELECT token, sum(seconds) FROM usage WHERE hour > ? GROUP BY token"
    return dict(database.execute(sql, (int(now / HOUR_S) - WINDOW_HOURS,)).fetchall())


def job_of(database: Queryable, token: str, key: str, digest: bytes) -> str | None:
    """Return the id of the job that a token's key made, or None; RefusedError (409) where its request was another."""
    if not key:
        return None
    sql = "SELECT digest, id FROM keys JOIN jobs ON number = job WHERE keys.token = ? AND key = ?"
    row = database.execute(sql, (token, key)).fetchone()
    if row is None:
        return None
    if bytes(row[0]) != digest:
        what = "this Idempotency-Key was sent before with a different request"
        raise RefusedError(409, what, remedy="send a new key", code="key_reused")
    return str(row[1])


JOBS, BLOBS = "jobs", "blobs"
"""Folders in that of the service: what jobs wrote, and uploaded files."""
RESERVED_S = 600.0
"""Most worker seconds that a job without a limit of its own reserves of its token's hours."""
MOST_UNTOLD = 200
"""Webhooks of a token that may wait; beyond, its jobs may name no address."""
_HEADS = """SELECT * FROM (WITH RECURSIVE tokens (token) AS (
    SELECT min(token) FROM {jobs} WHERE state = 'queued' UNION ALL
    SELECT (SELECT min(token) FROM {jobs} WHERE state = 'queued' AND token > tokens.token)
    FROM tokens WHERE token IS NOT NULL
) SELECT token, (SELECT priority {first}), (SELECT number {first}) FROM tokens WHERE token IS NOT NULL) AS heads"""
"""Token, priority and number of the first waiting job of each token: one look into an index for each."""
_FIRST = "FROM {jobs} WHERE state = 'queued' AND token = tokens.token ORDER BY priority DESC, number LIMIT 1"
_KEPT = ("best_s", "bound_s")
"""Keys of events that are kept with the job, too."""


class SubmitLimits(NamedTuple):
    """Limits that a submission is held to."""

    quota: Quota
    """Quota of the token that submits."""
    queued: int
    """Jobs of all tokens that may wait."""


class Ledger:
    """Acts that change jobs, uploads, tokens' hours and events; each within a transaction."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, stats: QueueStats | None = None
    ) -> None:
        """`clock`: seconds since 1970; it decides about ages and nothing else. `stats`: for who else looks at it."""
        self._db, self._clock = database, clock
        self.waiting = database.queue_stats() if stats is None else stats
        self._changed: set[int] = set()
        self.reload()

    @property
    def database(self) -> Database:
        """The database, for acts of other modules."""
        return self._db

    def reload(self) -> None:
        """Take what waits and runs from the database, after a rollback."""
        self.waiting.reload(self._db)
        self._changed = set()

    def changed_jobs(self) -> set[int]:
        """Return the numbers of the jobs that have new events since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def recover(self) -> None:
        """After a server's crash: what ran there is queued again, and what was being cancelled is cancelled."""
        for number, attempt in self._db.execute(self._db.dialect.left).fetchall():
            self.release(number, attempt, self._db.dialect.left_why)

    def alone(self) -> None:
        """From here to the end of the transaction no other server takes in jobs or files, or removes files."""
        self._db.alone()

    def submit(self, submission: Submission, limits: SubmitLimits | None = None) -> str:
        """Queue a job, and return its id; a key that is known is no new job.

        RefusedError for a key that came with another request, for more than the limits allow, and for a missing blob.
        """
        self._db.alone()
        known = job_of(self._db, submission.token, submission.key, submission.digest)
        if known is not None:
            return known
        reserved_s = 0.0 if limits is None else self._reserve(submission, limits)
        for digest in submission.blobs:
            if self._db.execute("SELECT 1 FROM blobs WHERE digest = ?", (digest,)).fetchone() is None:
                remedy = f"upload it: PUT /v1/blobs/{digest}"
                raise RefusedError(422, f"the file {digest} is not on the service", remedy=remedy, code="blob_missing")
        name, now = secrets.token_hex(8), self._clock()
        (number,) = self._db.execute(
            "INSERT INTO jobs (id, token, kind, model, label, priority, request, state, created, reserved_s, notify)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?) RETURNING number",
            (
                name,
                submission.token,
                submission.kind,
                submission.model,
                submission.label,
                submission.priority,
                submission.request,
                now,
                reserved_s,
                submission.notify,
            ),
        ).fetchone()
        if submission.key:
            self._db.execute(
                "INSERT INTO keys VALUES (?, ?, ?, ?)", (submission.token, submission.key, submission.digest, number)
            )
        for digest in set(submission.blobs):
            self._db.execute("INSERT INTO needs VALUES (?, ?)", (digest, number))
            self._db.execute("UPDATE blobs SET used = ? WHERE digest = ?", (now, digest))
        self.waiting.join(submission.token, submission.priority, number)
        return name

    def _reserve(self, submission: Submission, limits: SubmitLimits) -> float:
        """Return the worker seconds that a new job reserves of its token's hours; RefusedError beyond a limit."""
        token, quota = submission.token, limits.quota
        if self.waiting.queued_of(token) >= quota.queued:
            raise full(
                f"{quota.queued} jobs of this token wait already", 10, remedy="wait for them, or cancel some",
                code="quota_queued",
            )  # fmt: skip
        if len(self.waiting) >= limits.queued:
            raise full(f"the queue has its maximum of {limits.queued} jobs", 30, remedy="submit the job again later")
        if submission.notify:
            untold = "SELECT count(*) FROM webhooks JOIN jobs ON number = job WHERE token = ?"
            if self._db.execute(untold, (token,)).fetchone()[0] >= MOST_UNTOLD:
                what = f"{MOST_UNTOLD} webhooks of this token are not delivered yet"
                raise full(what, 60, remedy="wait until some are delivered, or leave out notify")
        if not token:
            return 0.0
        left_s = quota.hours * 3600 - self.claimed_s(token)
        if left_s <= 0 or (submission.limit_s or 0.0) > left_s:
            raise full(
                f"this token has {max(0.0, left_s):.0f} s left of its {quota.hours:g} hours of the last 24, "
                "after what its jobs have reserved",
                600,
                remedy="wait, lower limits.seconds, or ask the operator for more hours",
                code="quota_hours",
            )
        return submission.limit_s or min(RESERVED_S, left_s)

    def is_spent(self, token: str, quota: Quota) -> bool:
        """Return True if a token has had its hours, with those of what runs."""
        return token != "" and self.worked_s(token) >= quota.hours * 3600

    def begin(self, quota_of: Callable[[str], Quota] = lambda _: MACHINE) -> Attempt | None:
        """Begin the next job of a token with jobs and hours left of its quota (by its name); None for none.

        That of the highest priority is next. Among equals it is the turn of the token with the fewest running jobs,
        then of the one that has had the fewest seconds of workers in the last 24 hours, then of the earliest job.
        """
        for token in self._tokens_in_turn():
            quota = quota_of(token)
            if self.is_spent(token, quota) or not self.waiting.may_begin(token, quota.jobs):
                continue
            row = self._db.execute(
                "SELECT number, id, priority, attempt, kept, request, created FROM jobs"  # noqa: S608 - constants
                " WHERE state = 'queued' AND token = ?"
                f" ORDER BY priority DESC, number LIMIT 1{self._db.dialect.unless_locked}",
                (token,),
            ).fetchone()
            if row is None:  # another server is beginning it
                continue
            number, name, priority, attempt, kept, request, created = row
            now = self._clock()
            self._db.execute(
                "UPDATE jobs SET state = 'running', attempt = attempt + 1, started = ?, stage = '' WHERE number = ?",
                (now, number),
            )
            self._append(number, [Event(kind="stage", data={"name": "running", "attempt": attempt + 1})])
            self._db.lease(number, attempt + 1)
            self.waiting.leave(token, priority, number)
            self.waiting.begin(token)
            return Attempt(
                number=number, id=name, token=token, attempt=attempt + 1, kept=kept, request=request,
                waited_s=max(0.0, now - created),
            )  # fmt: skip
        return None

    def worked_s(self, token: str) -> float:
        """Return the worker seconds that a token has had in the last 24 hours, with those of running jobs."""
        now = self._clock()
        sql = f"SELECT coalesce(sum(? - started), 0) FROM jobs WHERE {_OPEN} AND state <> 'queued'"  # noqa: S608
        return ended_s(self._db, token, now) + float(self._db.execute(sql, (now, token)).fetchone()[0])

    def claimed_s(self, token: str) -> float:
        """Return the same with what the token's waiting and running jobs reserve, or have exceeded."""
        now = self._clock()
        exceeded = "state <> 'queued' AND ? - started > reserved_s"
        sql = (
            f"SELECT coalesce(sum(CASE WHEN {exceeded} THEN ? - started ELSE reserved_s END), 0)"  # noqa: S608
            f" FROM jobs WHERE {_OPEN}"
        )
        return ended_s(self._db, token, now) + float(self._db.execute(sql, (now, now, token)).fetchone()[0])

    def note(self, number: int, attempt: int, events: Sequence[Event]) -> bool:
        """Keep what a job's attempt tells; False, and nothing is kept, unless it is the one that runs."""
        if self._running(number, attempt) is None:
            return False
        self._append(number, events)
        return True

    def finish(self, number: int, attempt: int, state: State, outcome: Outcome, *, keeps: bool = False) -> bool:
        """End a job with its last event; `keeps`: the attempt's folder has its files. False as in `note`.

        They are the job's unless the attempt was cut short and an earlier one found a shorter step.
        """
        row = self._running(number, attempt)
        if row is None:
            return False
        keeps = keeps and _is_best(outcome, row)
        if row["state"] == State.CANCELLING and outcome.exit_code in (Exit.INTERRUPTED, Exit.TERMINATED):
            state = State.CANCELLED  # also before it had a plan
        self._end(number, state, outcome if keeps else _kept(outcome, row, state))
        if keeps:
            self._db.execute("UPDATE jobs SET kept = ? WHERE number = ?", (attempt, number))
        self._db.release_lease(number)
        self.waiting.end(row["token"])
        return True

    def release(
        self, number: int, attempt: int, why: str, *, rescued: Outcome | None = None, seconds: float = 0.0
    ) -> bool:
        """Queue a running job again, or end it where it was being cancelled. False as in `note`.

        rescued: outcome of the attempt, where its folder has files: they are the job's unless a later one has some.
        """
        row = self._running(number, attempt)
        if row is None:
            return False
        if rescued is not None and not _is_best(rescued, row):
            rescued = None
        if row["state"] == State.CANCELLING:
            ended = _cancelled(seconds) if rescued is None else rescued
            return self.finish(number, attempt, State.CANCELLED, ended, keeps=rescued is not None)
        self._append(number, [Event(kind="stage", data={"name": "queued", "attempt": attempt, "why": why})])
        kept = (row["kept"], row["outcome"]) if rescued is None else (attempt, msgspec.json.encode(rescued))
        self._db.execute(
            "UPDATE jobs SET state = 'queued', stage = '', seconds = seconds + ?, kept = ?, outcome = ?"
            " WHERE number = ?",
            (seconds, *kept, number),
        )
        add_usage(self._db, number, seconds, self._clock())
        self._db.release_lease(number)
        self.waiting.end(row["token"])
        self.waiting.join(row["token"], row["priority"], number)
        return True

    def kept(self, number: int) -> int:
        """Return the attempt of a job whose files are kept; 0 for none."""
        return int(self._db.execute("SELECT kept FROM jobs WHERE number = ?", (number,)).fetchone()[0])

    def lose(
        self, number: int, attempt: int, why: str, seconds: float, *, failure: Outcome | None = None,
        rescued: Outcome | None = None,
    ) -> bool:  # fmt: skip
        """Queue a job again whose worker died or may be broken, or fail it after the last time. False as in `note`.

        failure: how it ends then, where its worker could tell. rescued: as of `release`.
        """
        row = self._running(number, attempt)
        if row is None:
            return False
        self._db.execute("UPDATE jobs SET deaths = deaths + 1 WHERE number = ?", (number,))
        if row["state"] == State.CANCELLING or row["deaths"] + 1 < DEATHS:
            return self.release(number, attempt, why, rescued=rescued, seconds=seconds)
        if failure is not None:
            return self.finish(number, attempt, State.FAILED, failure)
        error = f"{DEATHS} workers died of it, the last one so: {why}"
        left = Outcome() if rescued is None else rescued
        outcome = msgspec.structs.replace(
            left,
            exit_code=Exit.SOLVER,
            error=error,
            where=None,
            remedy="give it less to do, or report it",
            seconds=seconds,
        )
        return self.finish(number, attempt, State.FAILED, outcome, keeps=rescued is not None)

    def cancel(self, name: str) -> State:
        """Cancel a job; its state then: cancelled, cancelling while a worker is at it, or the final one it had.

        One that is being cancelled is to end soon from then on, whichever server runs it.
        """
        row = self._row("id", name)
        if row is None:
            raise no_job(name)
        number, state = row["number"], State(row["state"])
        if state == State.QUEUED:
            self._end(number, State.CANCELLED, _kept(_cancelled(), row, State.CANCELLED))
            self.waiting.leave(row["token"], row["priority"], number)
            return State.CANCELLED
        if state == State.RUNNING:
            self._db.execute("UPDATE jobs SET state = 'cancelling' WHERE number = ?", (number,))
            return State.CANCELLING
        if state == State.CANCELLING:
            self._db.execute("UPDATE jobs SET hurried = 1 WHERE number = ?", (number,))
        return state

    def cancel_all(self, token: str, until: float) -> list[str]:
        """Cancel the jobs of a token that were submitted until then; the ids of those that a worker is at."""
        sql = "SELECT id FROM jobs WHERE token = ? AND created <= ? AND state IN (?, ?)"
        rows = self._db.execute(sql, (token, until, State.QUEUED, State.RUNNING)).fetchall()
        return [name for (name,) in rows if self.cancel(name) == State.CANCELLING]

    def give_all(self, token: str, to: str, until: float) -> None:
        """Make the jobs of a token that were submitted until then those of another; its keys find none of them more."""
        self._db.alone()
        sql = "SELECT number, priority, state FROM jobs WHERE token = ? AND created <= ? AND state IN (?, ?, ?)"
        going = (State.QUEUED, State.RUNNING, State.CANCELLING)
        for number, priority, state in self._db.execute(
            sql + self._db.dialect.locked, (token, until, *going)
        ).fetchall():
            if state == State.QUEUED:
                self.waiting.leave(token, priority, number)
                self.waiting.join(to, priority, number)
            else:
                self.waiting.end(token)
                self.waiting.begin(to)
        its = "SELECT number FROM jobs WHERE token = ? AND created <= ?"
        self._db.execute(f"DELETE FROM keys WHERE token = ? AND job IN ({its})", (token, token, until))  # noqa: S608
        self._db.execute("UPDATE jobs SET token = ? WHERE token = ? AND created <= ?", (to, token, until))

    def add_blob(self, digest: str, size: int, token: str) -> None:
        """Remember a file that lies in the folder."""
        self._db.execute(
            "INSERT INTO blobs VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE SET used = excluded.used",
            (digest, size, token, self._clock()),
        )
        self._db.execute("DELETE FROM removals WHERE path = ?", (f"{BLOBS}/{digest}",))

    def put_part(self, name: str, digest: str, token: str, size: int) -> None:
        """Remember a file that is coming, and the bytes that are reserved for it."""
        self._db.execute(
            "INSERT INTO parts VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes",
            (name, digest, token, size, self._clock()),
        )

    def drop_part(self, name: str) -> None:
        """Forget a file that was coming."""
        self._db.execute("DELETE FROM parts WHERE name = ?", (name,))

    def parts(self) -> list[tuple[str, str, float]]:
        """Return (name, SHA-256, when it began) of each file that is coming."""
        return self._db.execute("SELECT name, digest, since FROM parts").fetchall()

    def removals(self) -> list[str]:
        """Return the paths in the service's folder that are to be removed."""
        return [path for (path,) in self._db.execute("SELECT path FROM removals").fetchall()]

    def removed(self, path: str) -> None:
        """Forget a path that was removed."""
        self._db.execute("DELETE FROM removals WHERE path = ?", (path,))

    def _remove(self, path: str) -> None:
        self._db.execute("INSERT INTO removals VALUES (?) ON CONFLICT DO NOTHING", (path,))

    def touch_blob(self, digest: str) -> bool:
        """Remember that a file is wanted again; False where it is gone."""
        changed = self._db.execute("UPDATE blobs SET used = ? WHERE digest = ?", (self._clock(), digest))
        return changed.rowcount == 1

    def upload_bytes(self, token: str, part: str, digest: str) -> int:
        """Return the bytes of a token's uploads, also of those under way, without one part and one file."""
        sql = (
            "SELECT coalesce((SELECT sum(bytes) FROM blobs WHERE token = ? AND digest <> ?), 0)"
            " + coalesce((SELECT sum(bytes) FROM parts WHERE token = ? AND name <> ?), 0)"
        )
        return int(self._db.execute(sql, (token, digest, token, part)).fetchone()[0])

    def blobs(self) -> list[tuple[str, int, float]]:
        """(SHA-256, bytes, when it was wanted last) of each uploaded file."""
        return self._db.execute("SELECT digest, bytes, used FROM blobs").fetchall()

    def needed_blobs(self) -> set[str]:
        """Uploaded files that a job reads which has not ended."""
        sql = "SELECT DISTINCT digest FROM jobs JOIN needs ON job = number WHERE state IN (?, ?, ?)"
        going = (State.QUEUED, State.RUNNING, State.CANCELLING)
        return {digest for (digest,) in self._db.execute(sql, going)}

    def forget_blob(self, digest: str, used: float) -> bool:
        """Have an upload removed that was wanted last at `used`; return False where it was wanted since."""
        sql = f"SELECT used FROM blobs WHERE digest = ?{self._db.dialect.locked}"  # noqa: S608 - a constant
        if self._db.execute(sql, (digest,)).fetchone() != (used,):
            return False
        self._db.execute("DELETE FROM needs WHERE digest = ?", (digest,))
        self._db.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
        self._remove(f"{BLOBS}/{digest}")
        return True

    def ended_with_files(self) -> list[tuple[int, str, float]]:
        """(number, id, when it ended) of each job that has ended and has its files."""
        sql = "SELECT number, id, finished FROM jobs WHERE kept > 0 AND expired = 0 AND state IN (?, ?, ?)"
        return self._db.execute(sql, FINAL).fetchall()

    def expire(self, number: int) -> None:
        """Have a job's files removed."""
        (name,) = self._db.execute("UPDATE jobs SET expired = 1 WHERE number = ? RETURNING id", (number,)).fetchone()
        self._remove(f"{JOBS}/{name}")

    def purge(self, name: str) -> State:
        """Delete a job that has ended, with its events and files, and return its last state. RefusedError for others.

        404 for no job, and 409 for one that has not ended. What it adds to sums and to its token's hours stays.
        """
        self._db.alone()  # its key is free from here on
        row = self._row("id", name)
        if row is None:
            raise no_job(name)
        if row["state"] not in FINAL:
            what = f"the job {name} is {row['state']}, and only ended jobs can be deleted"
            raise RefusedError(409, what, remedy=f"cancel it first: DELETE /v1/jobs/{name}")
        self._delete(row["number"], name)
        return State(row["state"])

    def purge_ended(self, state: State, before: float, most: int) -> int:
        """Delete the oldest jobs that ended in a state before a time, so many at most; return how many."""
        sql = "SELECT number, id FROM jobs WHERE state = ? AND finished < ? ORDER BY finished LIMIT ?"
        rows = self._db.execute(sql, (state.value, before, most)).fetchall()
        if rows:
            self._db.alone()
        for number, name in rows:
            self._delete(number, name)
        return len(rows)

    def expire_events(self, before: float, most: int) -> int:
        """Delete all events but the last of jobs that ended before a time, so many at most; return of how many jobs."""
        sql = (
            "SELECT number, events FROM jobs WHERE finished IS NOT NULL AND events_expired = 0 AND finished < ?"
            " ORDER BY finished LIMIT ?"
        )
        rows = self._db.execute(sql, (before, most)).fetchall()
        for number, last in rows:
            self._db.execute("DELETE FROM events WHERE job = ? AND number < ?", (number, last))
            self._db.execute("UPDATE jobs SET events_expired = 1 WHERE number = ?", (number,))
        return len(rows)

    def forget_usage(self) -> None:
        """Delete the seconds of workers that count for no quota any more."""
        drop_usage(self._db, self._clock())

    def shrink(self, pages: int) -> int:
        """Give the disk so many free pages of the database at most; return how many are left."""
        return self._db.shrink(pages)

    def _delete(self, number: int, name: str) -> None:
        for table in ("events", "keys", "needs"):
            self._db.execute(f"DELETE FROM {table} WHERE job = ?", (number,))  # noqa: S608 - constants
        self._db.release_lease(number)
        self._db.execute("DELETE FROM jobs WHERE number = ?", (number,))
        self._remove(f"{JOBS}/{name}")

    def _tokens_in_turn(self) -> list[str]:
        """Return the tokens of waiting jobs, in the order of `begin`."""
        jobs = f"jobs{self._db.dialect.by_turn}"
        heads = self._db.execute(_HEADS.format(jobs=jobs, first=_FIRST.format(jobs=jobs))).fetchall()
        if len(heads) < 2:
            return [token for token, _, _ in heads]
        running, now = self.waiting.running, self._clock()

        def turn(head: tuple[str, int, int]) -> tuple[float, ...]:
            token, priority, number = head
            return (-priority, running.get(token, 0), ended_s(self._db, token, now), number)

        return [token for token, _, _ in sorted(heads, key=turn)]

    def _row(self, column: str, value: str | int) -> dict[str, Any] | None:
        names = ("number", "token", "priority", "state", "attempt", "deaths", "kept", "outcome")
        sql = f"SELECT {', '.join(names)} FROM jobs WHERE {column} = ?{self._db.dialect.locked}"  # noqa: S608 - constants
        row = self._db.execute(sql, (value,)).fetchone()
        return None if row is None else dict(zip(names, row, strict=True))

    def _running(self, number: int, attempt: int) -> dict[str, Any] | None:
        row = self._row("number", number)
        runs = row is not None and row["state"] in (State.RUNNING, State.CANCELLING) and row["attempt"] == attempt
        return row if runs else None

    def _append(self, number: int, events: Sequence[Event]) -> None:
        (last,) = self._db.execute("SELECT events FROM jobs WHERE number = ?", (number,)).fetchone()
        rows = [
            (number, last + k, event.kind, msgspec.json.encode({"event": event.kind} | event.data))
            for k, event in enumerate(events, 1)
        ]
        self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        self._changed.add(number)
        kept: dict[str, Any] = {"events": last + len(rows)}
        for event in events:
            kept |= {name: event.data[name] for name in _KEPT if name in event.data}
            if event.kind == "stage":
                kept["stage"] = str(event.data.get("name", ""))
        sets = ", ".join(f"{column} = ?" for column in kept)
        self._db.execute(f"UPDATE jobs SET {sets} WHERE number = ?", (*kept.values(), number))  # noqa: S608

    def _end(self, number: int, state: State, outcome: Outcome) -> None:
        data = msgspec.to_builtins(outcome) | {"state": state.value}
        self._append(number, [Event(kind="done", data=data)])
        result = outcome.result
        if result.get("makespan_s") is not None:  # of what was written, which need not be what was found last
            best = (result["makespan_s"], result.get("lower_bound_s"))
            self._db.execute("UPDATE jobs SET best_s = ?, bound_s = ? WHERE number = ?", (*best, number))
        self._db.execute(
            "UPDATE jobs SET state = ?, finished = ?, seconds = seconds + ?, outcome = ?, stage = '' WHERE number = ?",
            (state.value, self._clock(), outcome.seconds, msgspec.json.encode(outcome), number),
        )
        add_usage(self._db, number, outcome.seconds, self._clock())
        self._db.execute(
            "INSERT INTO webhooks SELECT number, notify, 0, 0 FROM jobs WHERE number = ? AND notify != ''", (number,)
        )
        self._db.execute(
            "INSERT INTO sums SELECT kind, model, state, 1, seconds,"
            " CASE WHEN best_s > bound_s THEN 1 - bound_s / best_s ELSE 0 END,"
            " CASE WHEN best_s > 0 AND bound_s IS NOT NULL THEN 1 ELSE 0 END FROM jobs WHERE number = ?"
            " ON CONFLICT (kind, model, state) DO UPDATE SET jobs = sums.jobs + 1,"
            " seconds = sums.seconds + excluded.seconds, gap = sums.gap + excluded.gap,"
            " gaps = sums.gaps + excluded.gaps",
            (number,),
        )


def _is_best(outcome: Outcome, row: dict[str, Any]) -> bool:
    """Return True if an attempt's files replace the kept ones, whose step may be shorter than what was cut."""
    if outcome.exit_code == Exit.OK or not row["kept"] or row["outcome"] is None:
        return True
    before = msgspec.json.decode(row["outcome"], type=Outcome).result.get("makespan_s")
    new = outcome.result.get("makespan_s")
    return before is None or new is None or bool(new <= before)


def _kept(outcome: Outcome, row: dict[str, Any], state: State) -> Outcome:
    """Return the outcome of a job whose last attempt has no files: that of the kept attempt, if there is one."""
    if not row["kept"] or row["outcome"] is None:
        return msgspec.structs.replace(outcome, files=(), digests={})
    kept = msgspec.json.decode(row["outcome"], type=Outcome)
    ended = msgspec.structs.replace(outcome, files=kept.files, digests=kept.digests, result=kept.result)
    return msgspec.structs.replace(ended, error=None, where=None, remedy=None) if state == State.CANCELLED else ended


def _cancelled(seconds: float = 0.0) -> Outcome:
    return Outcome(exit_code=130, error="cancelled before there was a plan", remedy="submit it again", seconds=seconds)
