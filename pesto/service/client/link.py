"""Where a service is, who asks, and for how long its silence is borne."""

import os
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from pesto.core.errors import UsageError
from pesto.core.files.json import shown

TOKEN = "PESTO_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable that has the token."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FIRST_S, _LONGEST_S = 0.1, 5.0
"""Seconds between two tries: at first, and at most."""


def checked_url(url: str) -> str:
    """The address of a service without a path's last slash. UsageError for what is none."""
    try:
        found = urlsplit(url)
        whole = found.scheme in ("http", "https") and bool(found.hostname) and (found.port or 1) > 0
    except ValueError:
        whole = False
    if not whole or found.query or found.fragment or not url.isprintable():
        raise UsageError.build(
            f"{shown(url)} is no address of a service", remedy="give one such as http://127.0.0.1:8780"
        )
    if found.username is not None or found.password is not None:
        raise UsageError.build(
            "the address of a service has no name and no password", remedy=f"give the token, or set {TOKEN}"
        )
    return url.rstrip("/")


def own_machine(url: str) -> bool:
    """Whether a service is on this machine, which no proxy reaches."""
    return urlsplit(url).hostname in _LOOPBACK


def headers(token: str | None) -> dict[str, str]:
    """What every request has: the token that is given, or that of the environment. UsageError for one that is none."""
    given = os.environ.get(TOKEN, "") if token is None else token
    if not given:
        return {}
    if not (given.isascii() and given.isprintable()) or " " in given:
        raise UsageError.build(
            "the token has characters that no token has", remedy="give it as pesto serve token add printed it"
        )
    return {"Authorization": f"Bearer {given}"}


class Patience:
    """For how long a service that has answered once may be silent, and when it is asked again."""

    def __init__(self, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`most_s`: seconds of silence; before its first answer none are borne."""
        self._most_s, self._clock = most_s, clock
        self._reached, self._since, self._pause_s = False, 0.0, 0.0

    def answered(self) -> None:
        """It has answered."""
        self._reached, self._pause_s = True, 0.0

    def pause(self, wished_s: float | None = None) -> float | None:
        """Seconds to wait before it is asked again, `wished_s` where it said so; None once that is too long."""
        now = self._clock()
        if not self._pause_s:
            self._since = now
        self._pause_s = min(_LONGEST_S, 2 * self._pause_s or _FIRST_S)
        pause = self._pause_s if wished_s is None else wished_s
        return pause if self._reached and now + pause - self._since <= self._most_s else None


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, a number or a date; None where it says nothing."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
