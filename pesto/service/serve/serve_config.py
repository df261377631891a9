"""Settings of a service: serve.toml, the options of the command line, and the TLS certificate."""

import ssl
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.executing.child_process import usable_memory_bytes
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown
from pesto.core.files.toml import load

MOST_BYTES = 1 << 24
"""Limit on the size of each file, in bytes."""


class _EncryptedKeyError(Exception):
    """The key asks for a password."""


class Certificate:
    """A certificate chain with its private key, both PEM files."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Read both. FileError for one that cannot be read; UsageError for what is none, or do not belong together."""
        self._chain, self._key = chain, key
        self.context = self._read()
        """For handshakes from now on."""

    def reload(self) -> None:
        """Read both again; errors as at first, and what was read before stays."""
        self.context = self._read()

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        for path in (self._chain, self._key):
            read_bytes(path, MOST_BYTES)
        key, chain = shown(self._key), shown(self._chain)
        try:
            context.load_cert_chain(self._chain, self._key, _no_password)
        except _EncryptedKeyError:
            raise UsageError.build(
                f"the key {key} is encrypted", remedy=f"decrypt it: openssl pkey -in {key} -out server.key"
            ) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UsageError.build(
                    f"the key {key} is not that of the certificate {chain}", remedy="give the key that it was made with"
                ) from error
            raise UsageError.build(
                f"{chain} and {key} are no certificate and key",
                remedy="give PEM files, the server's certificate first",
            ) from error
        return context


def _no_password() -> str:
    raise _EncryptedKeyError


EXECUTORS = ("local", "ray")
MEMORY_SHARE = 0.8
"""Part of the machine's memory for jobs: the rest is for the server, the system, and what grows between two looks."""
_POSITIVE = (
    "workers",
    "queued",
    "upload_gib",
    "upload_seconds",
    "keep_days",
    "keep_gib",
    "connections",
    "connections_per_address",
)
_MOST = {"workers": 4096, "nodes": 2**31 - 1}
"""Largest values of settings by name."""
_MOST_OF_OTHERS = 1e12
"""Upper limit of all other settings, also where bytes are made of GiB."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBounds:
    """Upper limits of one job, whatever limits it asks for."""

    seconds: float = 14_400.0
    """Upper limit on its wall-clock seconds."""
    threads: int = 64
    rss_gib: float = 0.0
    """Upper limit on the resident memory of its processes together; 0: by the machine's (`ServeConfig.bounds`)."""
    nodes: int = 5_000_000
    """Ops of its graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepDays:
    """Days after which jobs that ended in a state are deleted, with all that is kept of them."""

    done: float = 365.0
    failed: float = 365.0
    cancelled: float = 365.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Settings of webhooks, by which jobs tell an address of their end."""

    enabled: bool = False
    private: bool = False
    """True if receivers may be in a private network or on this machine."""
    tries: int = 8
    """Before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """One value holds all of it; UsageError when one is out of range."""

    host: str = "127.0.0.1"
    port: int = 8780
    workers: int = 1
    """Jobs at a time."""
    executor: str = "local"
    database: str = ""
    """The address of a PostgreSQL database for several servers; empty for a file in the service's folder."""
    access_log: str = ""
    """A file for one JSON object a request, - for standard output; empty for none."""
    queued: int = 100_000
    """Jobs of all tokens that may wait."""
    upload_gib: float = 2.0
    """Limit on one uploaded file, in GiB."""
    upload_seconds: float = 3600.0
    """That the body of a request may take, however fast it comes."""
    keep_days: float = 30.0
    """After which files and events of a job that has ended, and uploads that nothing waits for, are removed."""
    keep_gib: float = 50.0
    """GiB of uploads and of files of ended jobs together, beyond which the oldest are removed."""
    connections: int = 4096
    """Connections of clients at a time."""
    connections_per_address: int = 2048
    """Connections of one address, or of one IPv6 network of 64 bits."""
    tls_cert: str = ""
    """PEM file of the server's certificate and those that it rests on; empty for no TLS."""
    tls_key: str = ""
    """PEM file of its key."""
    keep: KeepDays = KeepDays()
    webhooks: WebhookConfig = WebhookConfig()
    job: JobBounds = JobBounds()

    @property
    def bounds(self) -> JobBounds:
        """Limits of a job; unless set, each worker has an equal part of MEMORY_SHARE."""
        if self.job.rss_gib:
            return self.job
        return replace(self.job, rss_gib=MEMORY_SHARE * usable_memory_bytes() / 2**30 / self.workers)

    def certificate(self) -> Certificate | None:
        """Read the certificate and its key; None for no TLS. Errors as of `Certificate`."""
        return Certificate(Path(self.tls_cert), Path(self.tls_key)) if self.tls_cert else None

    def __post_init__(self) -> None:
        """Validate."""
        if not 0 <= self.port <= 65535:
            raise UsageError.build(f"the port is {self.port}", remedy="give 1 to 65535, or 0 for any that is free")
        if self.executor not in EXECUTORS:
            raise UsageError.build(
                f"no executor is called {self.executor!r}", remedy=f"choose one of {', '.join(EXECUTORS)}"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            given, other = ("certificate", "key") if self.tls_cert else ("key", "certificate")
            raise UsageError.build(
                f"a {given} for TLS is given without a {other}", remedy="give tls_cert and tls_key, or neither"
            )
        bounds = [(f.name, getattr(self.job, f.name)) for f in fields(self.job)]
        rest = [(name, getattr(self, name)) for name in _POSITIVE]
        rest.append(("webhooks.tries", self.webhooks.tries))
        kept = [(f"keep.{f.name}", getattr(self.keep, f.name)) for f in fields(self.keep)]
        for name, value in [*rest, *bounds, *kept]:
            if not value > 0 and (name, value) != ("rss_gib", 0):
                raise UsageError.build(f"{name} is {value}", remedy="give more than 0")
            limit = _MOST.get(name, _MOST_OF_OTHERS)
            if value > limit:
                raise UsageError.build(f"{name} is {value}", remedy=f"give {limit:.10g} at most")


def configured(file: Path | None, *, keep_days: dict[str, float] | None = None, **given: Any) -> ServeConfig:
    """Return the configuration of a file, or the usual one, with what the command line gives in its place.

    keep_days: those of `KeepDays` that are given.
    """
    config = load(file, ServeConfig) if file is not None else ServeConfig()
    config = replace(config, keep=replace(config.keep, **keep_days or {}))
    return replace(config, **{name: value for name, value in given.items() if value is not None})
