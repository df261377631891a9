"""Who waits and who runs, counted by the database: exact within a transaction, whatever other servers do."""

from typing import Protocol

from pesto.service.serve.store.database import Asked
from pesto.service.serve.store.ledger import UNLIMITED

_RUNNING = "state IN ('running', 'cancelling')"


class _Alone(Asked, Protocol):
    transactions: int

    def alone(self) -> None: ...


class CountedCrowd:
    """Counts are asked for once a transaction, while no other server takes in jobs, and kept up from there."""

    def __init__(self, database: _Alone) -> None:
        self._db, self._of = database, -1
        self._queued, self._all = dict[str, int](), 0
        self._has_all = False

    @property
    def running(self) -> dict[str, int]:
        """As of now; one that is begun elsewhere meanwhile is seen by `may_begin`."""
        asked = f"SELECT token, count(*) FROM jobs WHERE {_RUNNING} GROUP BY token"  # noqa: S608 - constants
        return dict(self._db.execute(asked).fetchall())

    def queued_of(self, token: str) -> int:
        """A token's waiting jobs."""
        self._afresh()
        if token not in self._queued:
            asked = "SELECT count(*) FROM jobs WHERE state = 'queued' AND token = ?"
            self._queued[token] = int(self._db.execute(asked, (token,)).fetchone()[0])
        return self._queued[token]

    def __len__(self) -> int:
        """All waiting jobs."""
        self._afresh()
        if not self._has_all:
            self._all = int(self._db.execute("SELECT count(*) FROM jobs WHERE state = 'queued'").fetchone()[0])
            self._has_all = True
        return self._all

    def may_begin(self, token: str, most: int) -> bool:
        """Whether one more may run; False, too, while another server begins one of the token's. It waits for nobody."""
        if most >= UNLIMITED:
            return True
        if not self._db.execute("SELECT pg_try_advisory_xact_lock(1, hashtext(?))", (token,)).fetchone()[0]:
            return False
        asked = f"SELECT count(*) FROM jobs WHERE token = ? AND {_RUNNING}"  # noqa: S608 - constants
        return int(self._db.execute(asked, (token,)).fetchone()[0]) < most

    def reload(self, database: Asked) -> None:  # noqa: ARG002 - what is counted is this session's
        """Count anew."""
        self._of = -1

    def join(self, token: str, priority: int, number: int) -> None:  # noqa: ARG002 - places are not kept here
        """One more waits."""
        self._change(token, 1)

    def leave(self, token: str, priority: int, number: int) -> None:  # noqa: ARG002
        """One less waits."""
        self._change(token, -1)

    def begin(self, token: str) -> None:
        """One more runs."""

    def end(self, token: str) -> None:
        """One less runs."""

    def _afresh(self) -> None:
        """Forget the counts of another transaction; keep others out before counting."""
        self._db.alone()
        if self._of != self._db.transactions:
            self._of, self._queued, self._has_all = self._db.transactions, {}, False

    def _change(self, token: str, by: int) -> None:
        if self._of == self._db.transactions:
            self._all += by
            if token in self._queued:
                self._queued[token] += by
