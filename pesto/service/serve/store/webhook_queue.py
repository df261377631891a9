"""Webhooks that are to be told: kept from the end of their job until they were told, or were tried often enough."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pesto.service.serve.store.ledger import Ledger

_COLUMNS = ("id", "kind", "model", "label", "state", "best_s", "bound_s", "created", "finished", "seconds", "attempt")


class DueWebhook(NamedTuple):
    """One that is to be told now."""

    job: int
    url: str
    tries: int
    """With the one that is due."""
    token: str
    told: dict[str, Any] | None
    """The job as it has ended; None where it was deleted."""


MOST_UNTOLD = 200
"""Webhooks of a token that may wait; beyond, its jobs may name no address."""
_IN_TURN = """SELECT job FROM (
    SELECT job, due, row_number() OVER (PARTITION BY token ORDER BY due, job) AS turn
    FROM webhooks LEFT JOIN jobs ON number = job WHERE due <= ?
) AS ranked ORDER BY turn, due, job LIMIT ?"""


def untold_webhooks(ledger: Ledger, token: str) -> int:
    """Return how many webhooks of a token's jobs are to be told."""
    asked = "SELECT count(*) FROM webhooks JOIN jobs ON number = job WHERE token = ?"
    return int(ledger.database.execute(asked, (token,)).fetchone()[0])


def claim_webhooks(ledger: Ledger, now: float, most: int, pause_s: Callable[[int], float]) -> list[DueWebhook]:
    """Return what is due, tokens in turn, which is due again only after a pause: no other server takes it meanwhile."""
    database, found = ledger.database, list[DueWebhook]()
    locked = database.words.unless_locked
    # The outer condition is looked at again for a row that another server has changed since.
    asked = f"SELECT job, url, tries FROM webhooks WHERE job IN ({_IN_TURN}) AND due <= ? ORDER BY due{locked}"  # noqa: S608
    for job, url, tries in database.execute(asked, (now, most, now)).fetchall():
        again = now + pause_s(tries + 1)
        database.execute("UPDATE webhooks SET tries = ?, due = ? WHERE job = ?", (tries + 1, again, job))
        sql = f"SELECT token, {', '.join(_COLUMNS)} FROM jobs WHERE number = ?"  # noqa: S608 - constants
        row = database.execute(sql, (job,)).fetchone()
        told = None if row is None else {"event": "job.ended"} | dict(zip(_COLUMNS, row[1:], strict=True))
        found.append(DueWebhook(job, url, tries + 1, "" if row is None else row[0], told))
    return found


def drop_webhook(ledger: Ledger, job: int) -> None:
    """Forget one."""
    ledger.database.execute("DELETE FROM webhooks WHERE job = ?", (job,))
