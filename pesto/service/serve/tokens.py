"""Who may use the service, and how much of it: tokens, of which a file keeps hashes alone."""

import hashlib
import hmac
import logging
import secrets
import stat
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from pesto.core.errors import FileError, InputError, PestoError, UsageError
from pesto.core.files.disk import read_bytes, write_atomic
from pesto.core.files.json import decode_json, encode_json, quoted, shown
from pesto.core.files.lock import LockKind, hold_lock
from pesto.core.files.toml import suggest
from pesto.core.quantities import size
from pesto.service.serve.refusals import RefusedError

FILE = "tokens.json"
"""Name of the token file in the service's folder."""
USES = "token-uses.json"
"""File with each token's last use, apart so that the server never writes the one with hashes."""
SAVE_S = 60.0
"""Seconds between two times that uses are written."""
VERSION = 1
LOOK_S = 0.5
"""Seconds between two looks at whether tokens were added or removed: a look costs as much as a small request."""
MOST = 10_000
"""Tokens of one service."""
NOTICE_S = 5.0
"""Seconds after a removal in which every server has noticed it: jobs that came meanwhile are as those before."""
_LOG = logging.getLogger(__name__)
_LOCK = LockKind("token file", "process", "try again")
_BEGINS = "pesto"


MOST_PRIORITY = 100
"""The highest priority of a job."""


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one token's jobs together."""

    jobs: int = 4
    """Running at a time."""
    queued: int = 100
    """Waiting at a time."""
    bytes: int = 5 << 30
    """Bytes of uploaded files."""
    hours: float = 10.0
    """Wall-clock hours of workers in the last 24 hours."""
    priority: int = 0
    """The highest that its jobs may have."""

    def __str__(self) -> str:
        """On one line."""
        return f"{self.jobs} jobs, {self.queued} queued, {size(self.bytes)}, {self.hours:g} h a day"


MACHINE = Quota(jobs=1 << 20, queued=1 << 40, bytes=1 << 50, hours=1e9, priority=MOST_PRIORITY)
"""Quota of the machine itself, where there are no tokens."""


class Role(StrEnum):
    """Role of a token; `pesto.service.serve.http.caller` has its access to each route."""

    ADMIN = "admin"
    """Submits jobs, and sees, cancels and deletes those of everybody."""
    USER = "user"
    """Submits jobs, and sees, cancels and deletes its own."""
    READER = "reader"
    """Sees the jobs of everybody, and changes nothing."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One token as it is kept."""

    name: str
    id: str
    """The part of the token that is no secret."""
    sha256: str
    """Bytes of the secret part: 256 random bits, which nobody finds from their hash."""
    quota: Quota = Quota()
    role: Role = Role.USER
    expires: float | None = None
    """Seconds since 1970 from which it is refused; None for never."""

    def valid(self, now: float) -> bool:
        """Return True if it has not expired."""
        return self.expires is None or now < self.expires


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of the jobs of a removed token."""

    name: str
    until: float
    """Seconds since 1970: a job that was submitted later belongs to a new token of the same name."""
    to: str = ""
    """The name of the token that has all of its jobs from now on; empty to cancel those that have not ended."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "pesto-tokens"
    format_version: int = VERSION
    tokens: tuple[Token, ...] = ()
    removed: dict[str, Quota] = {}
    """Last quotas of removed tokens by name, for jobs that still wait."""
    departures: tuple[Departure, ...] = ()


class _Uses(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "pesto-token-uses"
    format_version: int = 1
    uses: dict[str, float] = {}
    """Seconds since 1970 by the id of a token."""


Content = TypeVar("Content", _File, _Uses)


def listed(folder: Path) -> tuple[Token, ...]:
    """Return the tokens of the service's folder. InputError for a file that is something else."""
    return _read(folder).tokens


def _read(folder: Path) -> _File:
    """Read the token file; one without tokens where there is none. InputError for a file that is something else."""
    content = _load(folder / FILE, _File)
    if (content.format, content.format_version) != (_File().format, VERSION):
        raise InputError.build(
            f"no tokens of version {VERSION}", where=shown(folder / FILE), remedy="move it away, and add tokens anew"
        )
    return content


def _load(path: Path, kind: type[Content]) -> Content:
    """Read a file of a type; its default where there is none. InputError for a file that is something else."""
    try:
        data = read_bytes(path, 1 << 24)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return kind()
        raise
    return decode_json(data, kind, str(path))


def last_uses(folder: Path) -> dict[str, float]:
    """Return each token's last use by its id, in seconds since 1970. InputError for any other file."""
    return _load(folder / USES, _Uses).uses


def add(folder: Path, name: str, quota: Quota, *, role: Role = Role.USER, expires_s: float | None = None) -> str:
    """Make a token, and keep its hash; the token itself, which is nowhere else. UsageError for a name that is taken.

    expires_s: seconds from now after which it is refused; None for never.
    """
    if not name or len(name) > 100 or not name.isprintable():
        raise UsageError.build(f"no token can be called {quoted(name)}", remedy="give a short name, such as ann")
    if quota.jobs < 1 or quota.queued < 1 or quota.bytes < 0 or not quota.hours > 0:
        raise UsageError.build(f"the quota {quota} lets nothing be done", remedy="give more than nothing of each")
    for what, given in (("jobs", quota.jobs), ("queued", quota.queued), ("bytes", quota.bytes), ("hours", quota.hours)):
        limit = getattr(MACHINE, what)
        if given > limit:
            raise UsageError.build(f"a quota of {what} is {limit:g} at most", remedy="give less")
    if expires_s is not None and not 0 < expires_s < 1e10:
        raise UsageError.build(f"a token cannot expire after {expires_s:g} s", remedy="give a time such as 90d")
    secret, identity, now = secrets.token_urlsafe(32), secrets.token_hex(4), time.time()
    expires = None if expires_s is None else now + expires_s
    token = Token(name=name, id=identity, sha256=_hash(secret), quota=quota, role=role, expires=expires)
    with hold_lock(folder / FILE, _LOCK):
        content = _read(folder)
        if any(name == other.name for other in content.tokens):
            raise UsageError.build(
                f"there is a token {quoted(name)} already", remedy="remove it first, or choose another name"
            )
        if len(content.tokens) >= MOST:
            raise UsageError.build(f"there are {MOST} tokens already", remedy="remove some")
        removed = {other: quota for other, quota in content.removed.items() if other != name}
        before = tuple(
            msgspec.structs.replace(departure, until=min(departure.until, now)) if departure.name == name else departure
            for departure in content.departures
        )
        _write(folder, _File(tokens=(*content.tokens, token), removed=removed, departures=before))
    return f"{_BEGINS}_{identity}_{secret}"


def remove(folder: Path, name: str, *, cancel: bool = False, give: str | None = None) -> None:
    """Refuse a token from now on, and keep its quota for its jobs. UsageError when there is none of that name.

    cancel: its jobs are cancelled that have not ended. give: the token, by its name, that has all of its jobs then.
    By default they stay as they are.
    """
    with hold_lock(folder / FILE, _LOCK):
        content = _read(folder)
        quotas = {token.name: token.quota for token in content.tokens}
        for required in (name, name if give is None else give):
            if required not in quotas:
                remedy = suggest(required, quotas) if quotas else "there is none at all"
                raise UsageError.build(f"there is no token {quoted(required)}", remedy=remedy)
        if give == name:
            raise UsageError.build(f"the jobs of {quoted(name)} cannot be given to it", remedy="name another token")
        rest = tuple(token for token in content.tokens if token.name != name)
        departures = content.departures
        if cancel or give is not None:
            departures += (Departure(name=name, until=time.time() + NOTICE_S, to=give or ""),)
        removed = {**content.removed, name: quotas[name]}
        _write(folder, _File(tokens=rest, removed=removed, departures=departures))


class TokenAuthenticator:
    """Authenticates requests by the folder's tokens, which are read again when their file changes.

    A service that others can reach answers nobody without a token, whatever becomes of the file. One on loopback does,
    as long as it has had no tokens, and again once `remove` has removed the last. With a file that cannot be read the
    tokens known before stay, and nobody else is let in; so it is, with no tokens, where a file is gone.
    """

    def __init__(
        self, folder: Path, *, loopback: bool, had_tokens: bool = False, changed: Callable[[], None] = lambda: None
    ) -> None:
        """Read the folder's tokens; errors as of `listed`.

        loopback: whether this machine alone can reach the service. had_tokens: whether there are jobs of tokens.
        changed: called, by any thread, once a token is there no more.
        """
        self._changed, self._looking = changed, threading.Lock()
        self._uses: dict[str, float] = {}
        self._saved, self._valid = time.monotonic(), frozenset[str]()
        self.departures: tuple[Departure, ...] = ()
        """Removed tokens whose jobs are to be cancelled or given to another."""
        self._folder, self._loopback, self._had_tokens = folder, loopback, had_tokens
        self._path, self._looked = folder / FILE, -LOOK_S
        self._seen: tuple[int, ...] | None = ()
        self._fault = ""
        self._by_id: dict[str, Token] = {}
        self._names: dict[str, Quota] = {}
        self.open = False
        """True while requests of this machine need no token."""
        self._reload()
        self._was_open = self.open

    def refresh(self, *, at_once: bool = False) -> None:
        """Look now and then, or `at_once`, whether the file has changed; known tokens stay while it cannot be read.

        From any thread. A call that comes while another looks returns, and with `at_once` waits and looks then.
        """
        recent = not at_once and time.monotonic() < self._looked + LOOK_S
        if recent or not self._looking.acquire(blocking=at_once):
            return
        try:
            self._looked = time.monotonic()
            self._reload()
            self._fault = ""
        except PestoError as error:
            if str(error) != self._fault:
                _LOG.error("the tokens known before stay, and no others: %s", error)
            self._fault, self._seen, self.open = str(error), (), False
        finally:
            self._looking.release()
        now, before = time.time(), self._valid
        self._valid = frozenset(token.id for token in self._by_id.values() if token.valid(now))
        if before - self._valid or (self._was_open and not self.open):
            self._changed()
        self._was_open = self.open

    def _reload(self) -> None:
        seen = self._signature()
        if seen == self._seen:
            return
        content = _read(self._folder)
        self._seen = seen
        self._by_id = {token.id: token for token in content.tokens}
        self._names |= content.removed | {token.name: token.quota for token in content.tokens}
        self.departures = content.departures
        self._had_tokens |= bool(self._by_id)
        lost = seen is None and self._had_tokens
        self.open = self._loopback and not self._by_id and not lost
        if not self._by_id and not self.open:
            _LOG.warning(
                "there is no token, so every request is refused - add one: pesto serve token add NAME --data %s",
                shown(self._folder),
            )

    def _signature(self) -> tuple[int, ...] | None:
        """Return a mark that changes with the file; None without one. FileError for what cannot be a token file."""
        try:
            info = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError.build(
                f"cannot read {shown(self._path)}: {error.strerror}", remedy="change the permissions"
            ) from error
        if not stat.S_ISREG(info.st_mode):
            raise FileError.build(f"cannot read {shown(self._path)}: it is no file", remedy="move it away")
        return info.st_mtime_ns, info.st_ino, info.st_size

    def authenticate(self, authorization: str) -> Token | None:
        """Return the token of an Authorization header, also an expired one; None while this machine needs none.

        RefusedError (401) for a header without a known token.
        """
        self.refresh()
        if self.open:
            return None
        scheme, _, secret = authorization.partition(" ")
        token = self.find(secret.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise RefusedError(401, "no known token in the request", remedy="send Authorization: Bearer TOKEN")
        return token

    def find(self, token: str) -> Token | None:
        """Return the token of a secret, also an expired one; None for one that is not known.

        The file is looked at for an unknown one, so that a new token is known at once. Takes as long whichever
        characters of the secret are wrong.
        """
        begins, _, rest = token.partition("_")
        identity, _, secret = rest.partition("_")
        if identity not in self._by_id:
            self.refresh(at_once=True)
        known = self._by_id.get(identity)
        same = hmac.compare_digest(_hash(secret), known.sha256 if known else "0" * 64)
        if not known or not same or begins != _BEGINS:
            return None
        self._uses[known.id] = time.time()
        return known

    def admits(self, identity: str) -> bool:
        """Return True as long as the token with this id is valid; for none (""), as long as none is needed."""
        if not identity:
            return self.open
        known = self._by_id.get(identity)
        return known is not None and known.valid(time.time())

    def save_uses(self, *, now: bool = False) -> None:
        """Write when tokens were used last, every SAVE_S seconds or `now`; for one thread, which may wait for the disk.

        A folder that cannot be written to is no fault of the service: uses are written the next time.
        """
        if not self._uses or (not now and time.monotonic() < self._saved + SAVE_S):
            return
        self._saved = time.monotonic()
        uses = dict(self._uses)
        try:
            with hold_lock(self._folder / USES, _LOCK):
                written = last_uses(self._folder)
                known = {token.id for token in listed(self._folder)}
                merged = {key: max(when, written.get(key, 0.0)) for key, when in (written | uses).items()}
                kept = {key: when for key, when in merged.items() if key in known}
                write_atomic(self._folder / USES, encode_json(_Uses(uses=kept)))
        except PestoError as error:
            _LOG.warning("cannot write when tokens were used: %s", error)
            return
        for key, when in uses.items():
            if self._uses.get(key) == when:
                self._uses.pop(key, None)

    def quota(self, name: str) -> Quota:
        """Return the quota of a token's jobs, also once it is removed; the machine's for jobs of no token."""
        return self._names.get(name, Quota() if name else MACHINE)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _write(folder: Path, content: _File) -> None:
    write_atomic(folder / FILE, encode_json(content))
