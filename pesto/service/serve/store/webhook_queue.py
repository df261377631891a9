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


def claim_webhooks(ledger: Ledger, now: float, most: int, pause_s: Callable[[int], float]) -> list[DueWebhook]:
    """Return what is due, which is due again only after a pause: no other server takes it meanwhile."""
    database, found = ledger.database, list[DueWebhook]()
    locked = database.words.unless_locked
    asked = f"SELECT job, url, tries FROM webhooks WHERE due <= ? ORDER BY due LIMIT ?{locked}"  # noqa: S608 - constants
    for job, url, tries in database.execute(asked, (now, most)).fetchall():
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
