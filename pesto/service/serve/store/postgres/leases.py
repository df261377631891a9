"""A server's leases, renewed; what it must hear of others: jobs whose server is gone, cancels, and new events."""

import logging
import threading
import time
from collections.abc import Callable

from pesto.service.serve.store.database import LaterError
from pesto.service.serve.store.job_records import RunningJobs, WatchedJobs
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.postgres.session import LEASE_S, Session

_LOG = logging.getLogger(__name__)
TICK_S = 0.5
"""Seconds between two looks at the database."""
RENEW_S = 5.0
"""Seconds between two renewals of leases."""
GRACE_S = LEASE_S
"""Seconds after the database has come back in which nobody's lease is taken for run out."""


class Leases:
    """A thread with a session of its own, so that no long transaction costs a lease.

    It looks rather than listens (LISTEN, NOTIFY): a look finds everything after any cut, and NOTIFY would have all
    servers' commits wait in one line.
    """

    def __init__(
        self, session: Session, mend: Callable[[], None], server: str, works: RunningJobs, watched: WatchedJobs
    ) -> None:
        """`mend`: connects the server's other sessions again, whether or not anybody asks them; LaterError if away."""
        self._session, self._mend, self._server = session, mend, server
        self._works, self._watched = works, watched
        self._ledger = Ledger(session)
        self._events: dict[int, int] = {}
        self._renewed = -RENEW_S
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="leases")
        self._thread.start()

    def close(self) -> None:
        """End; leases run out unless they are given back."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        away = False
        while not self._ended.wait(TICK_S):
            try:
                self._mend()
                self._session.connect()
                self._tick()
                away = False
            except LaterError as error:
                if not away:
                    _LOG.warning("%s", error)
                away = True
            except Exception:  # whatever it is, leases must be renewed
                _LOG.exception("a look at the database failed")

    def _tick(self) -> None:
        mine = {begun.number: begun for begun in self._works.running()}
        if time.monotonic() >= self._renewed + RENEW_S:
            if mine:
                rows = self._session.execute(
                    f"UPDATE leases SET until = clock_timestamp() + interval '{LEASE_S} s'"  # noqa: S608 - a constant
                    " FROM unnest(?::bigint[], ?::bigint[]) AS mine (number, began)"
                    " WHERE job = number AND attempt = began AND server = ? RETURNING job",
                    (list(mine), [begun.attempt for begun in mine.values()], self._server),
                )
                for number in mine.keys() - {number for (number,) in rows}:  # another server has it by now
                    self._works.cancel(mine[number].id, mine[number].attempt, again=False)
            self._renewed = time.monotonic()
            self._take_over()
        if mine:
            sql = "SELECT id, attempt, hurried FROM jobs WHERE number = ANY(?::bigint[]) AND state = 'cancelling'"
            for name, attempt, hurried in self._session.execute(sql, (list(mine),)):
                self._works.cancel(name, attempt, again=bool(hurried))
        if watched := self._watched.watched():
            sql = "SELECT number, events FROM jobs WHERE number = ANY(?::bigint[])"
            counts = dict(self._session.execute(sql, (watched,)).fetchall())
            self._watched.announce({number for number, count in counts.items() if self._events.get(number) != count})
            self._events = counts

    def _take_over(self) -> None:
        """Queue what others left; not just after a time without the database, before they could renew their leases."""
        if time.monotonic() < self._session.mended + GRACE_S:
            return
        sql = f"SELECT clock_timestamp() < pg_postmaster_start_time() + interval '{GRACE_S} s'"
        if self._session.execute(sql).fetchone() == (True,):
            return
        self._session.begin()
        try:
            self._ledger.recover()
            self._session.commit()
        except BaseException:
            self._session.undo()
            self._ledger.reload()
            raise
