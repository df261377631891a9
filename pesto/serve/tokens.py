"""Who may use the service, and how much of it: tokens, of which a file keeps hashes alone."""

import hashlib
import hmac
import logging
import secrets
import stat
import time
from pathlib import Path

import msgspec

from pesto.errors import FileError, InputError, PestoError, UsageError
from pesto.files.disk import read_bytes, write_atomic
from pesto.files.json import decode_json, encode_json, quoted, shown
from pesto.files.lock import Kind, held
from pesto.files.toml import closest
from pesto.quantities import size

FILE = "tokens.json"
"""Its name in the service's folder."""
VERSION = 1
LOOK_S = 0.5
"""Seconds between two looks at whether tokens were added or removed: a look costs as much as a small request."""
MOST = 10_000
"""Tokens of one service."""
_LOG = logging.getLogger(__name__)
_LOCK = Kind("token file", "process", "try again")
_BEGINS = "pesto"


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of one token may use together."""

    jobs: int = 4
    """Running at a time."""
    queued: int = 100
    """Waiting at a time."""
    bytes: int = 5 << 30
    """Of uploaded files."""
    hours: float = 10.0
    """Of workers, in the last 24 hours."""

    def __str__(self) -> str:
        """On one line."""
        return f"{self.jobs} jobs, {self.queued} queued, {size(self.bytes)}, {self.hours:g} h a day"


MACHINE = Quota(jobs=1 << 20, queued=1 << 40, bytes=1 << 50, hours=1e9)
"""Of the machine itself, where there are no tokens."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One token as it is kept."""

    name: str
    id: str
    """The part of the token that is no secret."""
    sha256: str
    """Of the part that is: 256 random bits, which nobody finds from their hash."""
    quota: Quota = Quota()


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "pesto-tokens"
    format_version: int = VERSION
    tokens: tuple[Token, ...] = ()
    removed: dict[str, Quota] = {}
    """Last quotas of removed tokens by name, for jobs that still wait."""


def listed(folder: Path) -> tuple[Token, ...]:
    """The tokens of the service's folder. InputError for a file that is something else."""
    return _read(folder).tokens


def _read(folder: Path) -> _File:
    """Read the token file; one without tokens where there is none. InputError for a file that is something else."""
    path = folder / FILE
    try:
        data = read_bytes(path, 1 << 24)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return _File()
        raise
    content = decode_json(data, _File, str(path))
    if (content.format, content.format_version) != (_File().format, VERSION):
        raise InputError(f"{shown(path)}: no tokens of version {VERSION} - move it away, and add tokens anew")
    return content


def add(folder: Path, name: str, quota: Quota) -> str:
    """Make a token, and keep its hash; the token itself, which is nowhere else. UsageError for a name that is taken."""
    if not name or len(name) > 100 or not name.isprintable():
        raise UsageError(f"no token can be called {quoted(name)} - give a short name, such as ann")
    if quota.jobs < 1 or quota.queued < 1 or quota.bytes < 0 or not quota.hours > 0:
        raise UsageError(f"the quota {quota} lets nothing be done - give more than nothing of each")
    secret, identity = secrets.token_urlsafe(32), secrets.token_hex(4)
    token = Token(name=name, id=identity, sha256=_hash(secret), quota=quota)
    with held(folder / FILE, _LOCK):
        content = _read(folder)
        if any(name == one.name for one in content.tokens):
            raise UsageError(f"there is a token {quoted(name)} already - remove it first, or choose another name")
        if len(content.tokens) >= MOST:
            raise UsageError(f"there are {MOST} tokens already - remove some")
        removed = {other: quota for other, quota in content.removed.items() if other != name}
        _write(folder, _File(tokens=(*content.tokens, token), removed=removed))
    return f"{_BEGINS}_{identity}_{secret}"


def remove(folder: Path, name: str) -> None:
    """Refuse a token from now on, and keep its quota for its jobs. UsageError when there is none of that name."""
    with held(folder / FILE, _LOCK):
        content = _read(folder)
        quotas = {one.name: one.quota for one in content.tokens}
        if name not in quotas:
            remedy = closest(name, quotas) if quotas else "there is none at all"
            raise UsageError(f"there is no token {quoted(name)} - {remedy}")
        rest = tuple(one for one in content.tokens if one.name != name)
        removed = {**content.removed, name: quotas[name]}
        _write(folder, _File(tokens=rest, removed=removed))


class Doorkeeper:
    """Authenticates requests by the folder's tokens, which are read again when their file changes.

    A service that others can reach answers nobody without a token, whatever becomes of the file. One on loopback does,
    as long as it has had no tokens, and again once `remove` has removed the last; a file that is gone, or that cannot
    be read, lets nobody in.
    """

    def __init__(self, folder: Path, *, loopback: bool, had_tokens: bool = False) -> None:
        """Read the folder's tokens; errors as of `listed`.

        loopback: whether this machine alone can reach the service. had_tokens: whether there are jobs of tokens.
        """
        self._folder, self._loopback, self._had_tokens = folder, loopback, had_tokens
        self._path, self._looked = folder / FILE, -LOOK_S
        self._seen: tuple[int, ...] | None = ()
        self._fault = ""
        self._by_id: dict[str, Token] = {}
        self._names: dict[str, Quota] = {}
        self.open = False
        """Whether requests of this machine need no token."""
        self._reload()

    def refresh(self) -> None:
        """Look now and then whether the file has changed; while it cannot be read, the tokens known before stay."""
        now = time.monotonic()
        if now < self._looked + LOOK_S:
            return
        self._looked = now
        try:
            self._reload()
        except PestoError as error:
            if str(error) != self._fault:
                _LOG.error("the tokens known before stay, and no others: %s", error)
            self._fault, self._seen = str(error), ()
        else:
            self._fault = ""

    def _reload(self) -> None:
        seen = self._signature()
        if seen == self._seen:
            return
        content = _read(self._folder)
        self._seen = seen
        self._by_id = {one.id: one for one in content.tokens}
        self._names |= content.removed | {one.name: one.quota for one in content.tokens}
        self._had_tokens |= bool(self._by_id)
        lost = seen is None and self._had_tokens
        self.open = self._loopback and not self._by_id and not lost
        if not self._by_id and not self.open:
            _LOG.warning(
                "there is no token, so every request is refused - add one: pesto serve token add NAME --data %s",
                shown(self._folder),
            )

    def _signature(self) -> tuple[int, ...] | None:
        """What changes when the file does; None where there is none. FileError for what cannot be a token file."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"cannot read {shown(self._path)}: {error.strerror} - change the permissions") from error
        if not stat.S_ISREG(found.st_mode):
            raise FileError(f"cannot read {shown(self._path)}: it is no file - move it away")
        return found.st_mtime_ns, found.st_ino, found.st_size

    def who(self, token: str) -> Token | None:
        """Whose it is; None for one that is not known. Takes as long whichever characters are wrong."""
        begins, _, rest = token.partition("_")
        identity, _, secret = rest.partition("_")
        known = self._by_id.get(identity)
        same = hmac.compare_digest(_hash(secret), known.sha256 if known else "0" * 64)
        return known if known and same and begins == _BEGINS else None

    def quota(self, name: str) -> Quota:
        """The quota of a token's jobs, also once it is removed; the machine's for jobs of no token."""
        return self._names.get(name, Quota() if name else MACHINE)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _write(folder: Path, content: _File) -> None:
    write_atomic(folder / FILE, encode_json(content))
