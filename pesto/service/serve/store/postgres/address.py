"""Where a database is: the address that the user gives, which may hold a password that no message may show."""

from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pesto.core.errors import UsageError
from pesto.core.files.json import shown

SCHEMES = ("postgresql://", "postgres://")
CONNECT_S = 3
"""Seconds within which a connection must be made."""
_USUAL: dict[str, str | int] = {
    "application_name": "pesto serve", "client_encoding": "utf8", "connect_timeout": CONNECT_S,
    "tcp_user_timeout": 5000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
}  # fmt: skip
"""Of a connection, where the address says nothing else: a server that is gone is noticed within seconds."""


@dataclass(frozen=True, slots=True)
class Address:
    """A database of a PostgreSQL server."""

    conninfo: str = field(repr=False)
    """For libpq, with the password if there is one."""
    where: str
    """For people: host:port/name."""
    password: str = field(repr=False)

    def said(self, error: BaseException) -> str:
        """The first line of what an error says, without the password."""
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return shown(line.replace(self.password, "***") if self.password else line)


def addressed(url: str) -> Address:
    """Read an address. UsageError, without a word of it, for what is none."""
    remedy = "write postgresql://USER@HOST:5432/NAME, the password in PGPASSWORD or ~/.pgpass"
    if not url.startswith(SCHEMES):
        raise UsageError.build("the database's address is none of PostgreSQL", remedy=remedy)
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise UsageError.build("the database's address cannot be read", remedy=remedy) from None
    conninfo = make_conninfo("", **(_USUAL | {key: value for key, value in parts.items() if value is not None}))
    host, port, name = (parts.get(key) for key in ("host", "port", "dbname"))
    where = f"{host or 'localhost'}:{port or 5432}/{name or parts.get('user') or ''}"
    return Address(conninfo, shown(where), str(parts.get("password") or ""))
