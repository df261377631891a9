"""What the service remembers, read: never written, and as of the last commit."""

import time

from pesto.service.protocol.job_states import FINAL, State
from pesto.service.serve.store.database import Asked
from pesto.service.serve.store.job_list import COLUMNS, JobFilter, JobPage, job_counts, job_of_row, job_page
from pesto.service.serve.store.job_records import Job, Numbered, Sums
from pesto.service.serve.store.keys import job_of
from pesto.service.serve.store.usage import ended_by_token
from pesto.service.serve.store.waiting import RECENT_S, Waiting

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM jobs"  # noqa: S608 - constants


class Readings:
    """Questions to the store, each a short one: for one thread."""

    def __init__(self, database: Asked) -> None:
        """`database`: a connection of its own, beside the writer's."""
        self._db = database
        self._had_s, self._had_s_until = dict[str, float](), 0.0

    def job(self, name: str) -> Job | None:
        """The job with that id."""
        row = self._db.execute(f"{_SELECT} WHERE id = ?", (name,)).fetchone()
        return None if row is None else job_of_row(row)

    def job_of_key(self, token: str, key: str, digest: bytes) -> str | None:
        """As `pesto.service.serve.store.keys.job_of`."""
        return job_of(self._db, token, key, digest)

    def jobs(self, wanted: JobFilter, after: str | None = None, most: int = 50) -> JobPage:
        """As `pesto.service.serve.store.job_list.job_page`."""
        return job_page(self._db, wanted, after, most)

    def counts(self, token: str | None) -> dict[str, int]:
        """As `pesto.service.serve.store.job_list.job_counts`."""
        return job_counts(self._db, token)

    def place(self, job: Job, waiting: Waiting) -> int | None:
        """Return the place of a job in the queue, from 1 (`Waiting.place`); None for one that does not wait."""
        if job.state != State.QUEUED:
            return None
        return waiting.place(job.token, job.priority, job.number, self._seconds_of)

    def events(self, number: int, after: int, most: int = 200) -> list[Numbered]:
        """A job's events after a number, in their order."""
        rows = self._db.execute(
            "SELECT number, kind, data FROM events WHERE job = ? AND number > ? ORDER BY number LIMIT ?",
            (number, after, most),
        )
        return [Numbered(number=n, kind=kind, data=data) for n, kind, data in rows]

    def ended(self, number: int) -> bool:
        """Whether a job has told its last event."""
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
        """When the job was submitted that waits longest."""
        first = "SELECT created FROM jobs WHERE state = 'queued' ORDER BY number LIMIT 1"
        row = self._db.execute(first).fetchone()
        return None if row is None else float(row[0])

    def sums(self) -> list[Sums]:
        """Of all jobs that have ended, by kind, model and state."""
        rows = self._db.execute("SELECT kind, model, state, jobs, seconds, gap, gaps FROM sums")
        return [Sums(**dict(zip(Sums.__struct_fields__, row, strict=True))) for row in rows]

    def _seconds_of(self, token: str) -> float:
        """Return the seconds of workers that a token has had in 24 hours, as of less than a second ago."""
        if time.monotonic() >= self._had_s_until:
            self._had_s = ended_by_token(self._db, time.time())
            self._had_s_until = time.monotonic() + RECENT_S
        return self._had_s.get(token, 0.0)
