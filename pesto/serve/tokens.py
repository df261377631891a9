"""Who may use the service, and how much of it: tokens, of which a file keeps hashes alone."""

import hashlib
import hmac
import secrets
import time
from pathlib import Path

import msgspec

from pesto.errors import InputError, UsageError
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


def listed(folder: Path) -> tuple[Token, ...]:
    """The tokens of the service's folder. InputError for a file that is something else."""
    path = folder / FILE
    if not path.exists():
        return ()
    found = decode_json(read_bytes(path, 1 << 24), _File, str(path))
    if (found.format, found.format_version) != (_File().format, VERSION):
        raise InputError(f"{shown(path)}: no tokens of version {VERSION} - move it away, and add tokens anew")
    return found.tokens


def add(folder: Path, name: str, quota: Quota) -> str:
    """Make a token, and keep its hash; the token itself, which is nowhere else. UsageError for a name that is taken."""
    if not name or len(name) > 100 or not name.isprintable():
        raise UsageError(f"no token can be called {quoted(name)} - give a short name, such as ann")
    if quota.jobs < 1 or quota.queued < 1 or quota.bytes < 0 or not quota.hours > 0:
        raise UsageError(f"the quota {quota} lets nothing be done - give more than nothing of each")
    secret, identity = secrets.token_urlsafe(32), secrets.token_hex(4)
    token = Token(name=name, id=identity, sha256=_hash(secret), quota=quota)
    with held(folder / FILE, _LOCK):
        known = listed(folder)
        if any(name == one.name for one in known):
            raise UsageError(f"there is a token {quoted(name)} already - remove it first, or choose another name")
        if len(known) >= MOST:
            raise UsageError(f"there are {MOST} tokens already - remove some")
        _write(folder, (*known, token))
    return f"{_BEGINS}_{identity}_{secret}"


def remove(folder: Path, name: str) -> None:
    """Forget a token: from then on it is refused. UsageError when there is none of that name."""
    with held(folder / FILE, _LOCK):
        known = listed(folder)
        rest = tuple(one for one in known if one.name != name)
        if len(rest) == len(known):
            names = [one.name for one in known]
            remedy = closest(name, names) if names else "there is none at all"
            raise UsageError(f"there is no token {quoted(name)} - {remedy}")
        _write(folder, rest)


class Doorkeeper:
    """Tells who asks; what is added and removed meanwhile is noticed."""

    def __init__(self, folder: Path) -> None:
        """Read the folder's tokens."""
        self._folder = folder
        self._path, self._looked = folder / FILE, -LOOK_S
        self._seen: tuple[int, int] | None = None
        self._by_id: dict[str, Token] = {}
        self._names: dict[str, Quota] = {}
        self.refresh()

    @property
    def open(self) -> bool:
        """Whether there are no tokens, so that whoever reaches the machine itself may come in."""
        return not self._by_id

    def refresh(self) -> None:
        """Look now and then whether the file has changed; what was known stays where it cannot be read."""
        now = time.monotonic()
        if now < self._looked + LOOK_S:
            return
        self._looked = now
        try:
            found = self._path.stat()
        except FileNotFoundError:
            seen = None
        else:
            seen = found.st_mtime_ns, found.st_ino
        if seen != self._seen:
            tokens = listed(self._folder)
            self._seen = seen
            self._by_id = {one.id: one for one in tokens}
            self._names = {one.name: one.quota for one in tokens}

    def who(self, token: str) -> Token | None:
        """Whose it is; None for one that is not known. Takes as long whichever characters are wrong."""
        begins, _, rest = token.partition("_")
        identity, _, secret = rest.partition("_")
        known = self._by_id.get(identity)
        same = hmac.compare_digest(_hash(secret), known.sha256 if known else "0" * 64)
        return known if known and same and begins == _BEGINS else None

    def quota(self, name: str) -> Quota:
        """Of a token's name; of one that is gone, that of the machine: its jobs were accepted."""
        return self._names.get(name, MACHINE)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _write(folder: Path, tokens: tuple[Token, ...]) -> None:
    write_atomic(folder / FILE, encode_json(_File(tokens=tokens)))
