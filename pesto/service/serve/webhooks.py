"""Webhooks: the end of a job, signed, sent to the address of its request and tried again, but to no private network."""

import hashlib
import hmac
import http.client
import ipaddress
import logging
import os
import random
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from pesto.core.errors import FileError, InputError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.opening import Writer

_COLUMNS = ("id", "kind", "model", "label", "state", "best_s", "bound_s", "created", "finished", "seconds", "attempt")


class DueWebhook(NamedTuple):
    """One that is to be told now."""

    job: int
    url: str
    tries: int
    """With the one that is due."""
    token: str
    content: dict[str, Any] | None
    """The job as it has ended; None where it was deleted."""


_IN_TURN = """SELECT job FROM (
    SELECT job, due, row_number() OVER (PARTITION BY token ORDER BY due, job) AS turn
    FROM webhooks LEFT JOIN jobs ON number = job WHERE due <= ?
) AS ranked ORDER BY turn, due, job LIMIT ?"""


def claim_webhooks(ledger: Ledger, now: float, most: int, pause_s: Callable[[int], float]) -> list[DueWebhook]:
    """Return what is due, tokens in turn, which is due again only after a pause: no other server takes it meanwhile."""
    database, claimed = ledger.database, list[DueWebhook]()
    locked = database.dialect.unless_locked
    # The outer condition is looked at again for a row that another server has changed since.
    sql = f"SELECT job, url, tries FROM webhooks WHERE job IN ({_IN_TURN}) AND due <= ? ORDER BY due{locked}"  # noqa: S608
    for job, url, tries in database.execute(sql, (now, most, now)).fetchall():
        again = now + pause_s(tries + 1)
        database.execute("UPDATE webhooks SET tries = ?, due = ? WHERE job = ?", (tries + 1, again, job))
        row_sql = f"SELECT token, {', '.join(_COLUMNS)} FROM jobs WHERE number = ?"  # noqa: S608 - constants
        row = database.execute(row_sql, (job,)).fetchone()
        content = None if row is None else {"event": "job.ended"} | dict(zip(_COLUMNS, row[1:], strict=True))
        claimed.append(DueWebhook(job, url, tries + 1, "" if row is None else row[0], content))
    return claimed


def drop_webhook(ledger: Ledger, job: int) -> None:
    """Forget a webhook."""
    ledger.database.execute("DELETE FROM webhooks WHERE job = ?", (job,))


def check_url(url: str, *, enabled: bool) -> None:
    """Raise RefusedError (422) for an invalid URL of a receiver, and where webhooks are disabled."""
    if not enabled:
        raise RefusedError(422, "webhooks are disabled on this service", remedy="leave out notify", code="webhooks_off")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url or parts.username is not None:
        raise RefusedError(
            422, "notify is not a valid URL of a receiver", remedy="give https://HOST/PATH without a user name"
        )


def origin_of(url: str) -> str:
    """Return an address without what only its receiver should know."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


KEY_FILE = "webhook.key"
"""Name of the file with the key in the service's folder: 32 random bytes as hexadecimal digits."""
LOOK_S = 1.0
"""Seconds between two looks at what is to be told."""
ANSWER_S = 10.0
"""Seconds for which a receiver may be silent, and within which it must have answered."""
FIRST_S, LONGEST_S = 5.0, 3600.0
"""Seconds before the second try; each time four times as long, up to the other."""
AT_ONCE = 4
_LOG = logging.getLogger(__name__)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is given out for the Internet; other addresses are of a link or site, or have one of IPv4 within."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebhookError(Exception):
    """A receiver that was not told, with why on one line."""


def webhook_key(folder: Path, name: str) -> str:
    """Return the key by which the webhooks of a token's jobs are signed, as hexadecimal digits.

    It is made of the service's own key, which is made the first time. FileError when that cannot be read or written.
    """
    path = folder / KEY_FILE
    try:
        with suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as key:
                key.write(secrets.token_hex(32).encode())
                key.flush()
                os.fsync(key.fileno())
    except OSError as error:
        raise FileError.build(
            f"cannot write {shown(path)}: {error.strerror}", remedy="check the folder and the disk"
        ) from error
    own = read_bytes(path, 100).strip()
    if len(own) != 64:
        raise InputError.build(f"{shown(path)} is no key", remedy="remove it, and tell receivers their new keys")
    return hmac.new(own, name.encode(), hashlib.sha256).hexdigest()


def signature(key: str, timestamp: str, body: bytes) -> str:
    """Return what X-Pesto-Signature has."""
    return "sha256=" + hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def is_public(address: Address) -> bool:
    """Return True for an address of the Internet, also where it stands within one of IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST or address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast


def send(url: str, body: bytes, headers: dict[str, str], *, private: bool) -> None:
    """Tell one receiver, once. WebhookError unless it answers 2xx in time; no redirection is followed."""

    def cut() -> None:
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise WebhookError(f"cannot find its host: {error}") from error
    # The name is resolved once, so that the address that was checked is the one that is used.
    for *_, place in addresses:
        address = str(place[0])
        if private or is_public(ipaddress.ip_address(address.partition("%")[0])):
            break
    else:
        raise WebhookError("its host is in a private network, which serve.toml does not allow")
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    late = threading.Timer(ANSWER_S, cut)
    late.daemon = True
    try:
        connection.sock = socket.create_connection((address, port), ANSWER_S)
        late.start()
        if parts.scheme == "https":
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named = parts.netloc.rpartition("@")[2]
        connection.request("POST", path, body, headers | {"Host": named, "Connection": "close"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise WebhookError(f"{type(error).__name__}: {error}") from error
    finally:
        late.cancel()
        connection.close()
    if not 200 <= status < 300:
        raise WebhookError(f"it answered {status}")


def pause_s(tries: int) -> float:
    """Return the seconds to the next try after so many; up to a tenth more, so that not all come at once."""
    return float(min(LONGEST_S, FIRST_S * 4.0 ** (tries - 1)) * random.uniform(1.0, 1.1))  # noqa: S311


class Webhooks:
    """A thread that tells receivers what is due; what it could not tell is kept, and told by whoever runs next."""

    def __init__(
        self, writer: Writer, folder: Path, *, private: bool, tries: int, clock: Callable[[], float] = time.time
    ) -> None:
        """`private`: whether receivers may be in private networks. `tries`: of one webhook, before it is given up."""
        self._writer, self._folder, self._private, self._tries = writer, folder, private, tries
        self._clock, self._ended = clock, threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE, "webhook")
        self._thread = threading.Thread(target=self._look, name="webhooks")
        self._thread.start()

    def close(self) -> None:
        """End, after the webhooks under way."""
        self._ended.set()
        self._thread.join()
        self._pool.shutdown()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                self.tell_due()
            except Exception as error:  # whatever it is, the next look may go well
                _LOG.warning("webhooks wait: %s", error)

    def tell_due(self) -> int:
        """Tell what is due now; return how many were tried. Each is due again, later, until it was told."""
        now = self._clock()
        due: Sequence[DueWebhook] = self._writer.do(lambda ledger: claim_webhooks(ledger, now, AT_ONCE, pause_s))
        for job in self._pool.map(self._tell, due):
            if job is not None:
                self._writer.do(partial(drop_webhook, job=job))
        return len(due)

    def _tell(self, webhook: DueWebhook) -> int | None:
        """Tell one; the number of its job where it is not to be told again."""
        if webhook.content is None:  # the job was deleted
            return webhook.job
        body, timestamp = msgspec.json.encode(webhook.content), f"{self._clock():.0f}"
        headers = {
            "Content-Type": "application/json", "User-Agent": "pesto-serve",
            "X-Pesto-Delivery": str(webhook.content["id"]), "X-Pesto-Timestamp": timestamp,
            "X-Pesto-Signature": signature(webhook_key(self._folder, webhook.token), timestamp, body),
        }  # fmt: skip
        try:
            send(webhook.url, body, headers, private=self._private)
        except WebhookError as error:
            last = webhook.tries >= self._tries
            then = "it is given up" if last else "it is tried again"
            receiver: Any = shown(origin_of(webhook.url))
            _LOG.warning("the end of job %s was not told to %s: %s; %s", webhook.content["id"], receiver, error, then)
            return webhook.job if last else None
        return webhook.job
