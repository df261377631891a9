"""How many seconds of workers a token has had in the last 24 hours, and how many its jobs may still take."""

from pesto.service.serve.store.database import Asked

HOUR_S = 3600.0
WINDOW_HOURS = 24
_OPEN = "token = ? AND state IN ('queued', 'running', 'cancelling')"


def add_usage(database: Asked, number: int, seconds: float, now: float) -> None:
    """Count the seconds of an attempt of a job for its token; they stay when the job is deleted."""
    database.execute(
        "INSERT INTO usage SELECT token, CAST(? AS INTEGER), CAST(? AS DOUBLE PRECISION) FROM jobs WHERE number = ?"
        " ON CONFLICT (token, hour) DO UPDATE SET seconds = usage.seconds + excluded.seconds",
        (int(now / HOUR_S), seconds, number),
    )


def drop_usage(database: Asked, now: float) -> None:
    """Delete seconds of twice as long ago, so that a clock that is set back by a day forgets none that count."""
    database.execute("DELETE FROM usage WHERE hour < ?", (int(now / HOUR_S) - 2 * WINDOW_HOURS,))


def ended_s(database: Asked, token: str, now: float) -> float:
    """Return the seconds of a token's attempts that have ended."""
    asked = "SELECT coalesce(sum(seconds), 0) FROM usage WHERE token = ? AND hour > ?"
    return float(database.execute(asked, (token, int(now / HOUR_S) - WINDOW_HOURS)).fetchone()[0])


def ended_by_token(database: Asked, now: float) -> dict[str, float]:
    """Return the seconds of the attempts that have ended, of each token that has any."""
    asked = "SELECT token, sum(seconds) FROM usage WHERE hour > ? GROUP BY token"
    return dict(database.execute(asked, (int(now / HOUR_S) - WINDOW_HOURS,)).fetchall())


def worked_s(database: Asked, token: str, now: float) -> float:
    """Return the seconds of a token's attempts, with those that run."""
    asked = f"SELECT coalesce(sum(? - started), 0) FROM jobs WHERE {_OPEN} AND state <> 'queued'"  # noqa: S608
    return ended_s(database, token, now) + float(database.execute(asked, (now, token)).fetchone()[0])


def claimed_s(database: Asked, token: str, now: float) -> float:
    """Return the seconds of a token's attempts, with what its waiting and running jobs reserve, or have exceeded."""
    exceeded = "state <> 'queued' AND ? - started > reserved_s"
    asked = (
        f"SELECT coalesce(sum(CASE WHEN {exceeded} THEN ? - started ELSE reserved_s END), 0)"  # noqa: S608
        f" FROM jobs WHERE {_OPEN}"
    )
    return ended_s(database, token, now) + float(database.execute(asked, (now, now, token)).fetchone()[0])
