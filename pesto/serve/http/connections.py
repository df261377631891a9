"""Connections of clients: how many there may be, and how long requests may take to come and answers to be taken."""

import ipaddress
import logging
import time
from collections import Counter
from typing import Any

from pesto.serve.serve_config import ServeConfig

HEAD_S = 10.0
"""Seconds within which the head of a request must be there, of a connection's first one since its begin."""
BODY_S, BODY_RATE = 20.0, 1024
"""Seconds within which a body must be there, and bytes for each of which so many seconds' share is added."""
IDLE_S = 75
"""Seconds for which a connection may wait for its next request."""
UNREAD_S = 60.0
"""Seconds for which an answer may wait for its reader."""
RESERVE, RESERVE_EACH, RESERVE_S = 32, 4, 3.0
"""Connections beyond the most, in all and of one address, for health alone, and the seconds of their heads."""
SPARE_FILES = 128
"""Open files that are not connections: of the database, of workers, and of uploads."""
LOG_S = 10.0
"""Seconds between two lines of the log about connections."""
_LOG = logging.getLogger(__name__)


class Gate:
    """Counts the connections of a server, by address, and ends those that take too long."""

    def __init__(self, most: int, each: int) -> None:
        """`most`: connections in all; `each`: of one address."""
        self._most, self._each = most, each
        self._open: dict[Any, str] = {}
        self._reserved: dict[Any, str] = {}
        self._by_address: Counter[str] = Counter()
        self._reserved_by: Counter[str] = Counter()
        self.idle: dict[Any, None] = {}
        """Those that wait for a next request, the one that waits longest first."""
        self._noted: Counter[str] = Counter()
        self._logged = -LOG_S

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self._open) + len(self._reserved)

    def enter(self, connection: Any, peer: object) -> bool | None:
        """Count one more: True for any request, False for one of health alone, None for no place."""
        address = address_of(peer)
        if self._by_address[address] < self._each and (len(self._open) < self._most or self._made_room()):
            self._open[connection] = address
            self._by_address[address] += 1
            return True
        self.note(f"beyond {self._most} connections, or {self._each} of one address")
        if len(self._reserved) < RESERVE and self._reserved_by[address] < RESERVE_EACH:
            self._reserved[connection] = address
            self._reserved_by[address] += 1
            return False
        return None

    def leave(self, connection: Any) -> None:
        """Count one less, once."""
        self.idle.pop(connection, None)
        for places, counts in ((self._open, self._by_address), (self._reserved, self._reserved_by)):
            address = places.pop(connection, None)
            if address is not None:
                counts[address] -= 1
                if not counts[address]:
                    del counts[address]

    def note(self, what: str) -> None:
        """Remember for the log that a connection was ended or refused."""
        self._noted[what] += 1

    def sweep(self) -> None:
        """End what takes too long, and log what was ended since the last line; about once a second."""
        now = time.monotonic()
        for connection in [*self._open, *self._reserved]:
            why = connection.late(now)
            if why:
                self.note(why)
                connection.cut()
        if self._noted and now >= self._logged + LOG_S:
            said = ", ".join(f"{count} {what}" for what, count in self._noted.most_common())
            _LOG.warning("ended or refused connections: %s; %d are open", said, self.count)
            self._noted.clear()
            self._logged = now

    def _made_room(self) -> bool:
        """End the connection that has waited longest for a next request; False where none waits."""
        for connection in self.idle:
            self.leave(connection)
            connection.transport.close()
            return True
        return False


def gate_for(config: ServeConfig, files: int) -> Gate:
    """Return the gate of a server that may have `files` open files."""
    room = max(1, files - SPARE_FILES - RESERVE)
    if room < config.connections:
        _LOG.warning("at most %d connections, since %d files may be open - raise it: ulimit -n", room, files)
    return Gate(min(config.connections, room), config.connections_per_address)


def address_of(peer: object) -> str:
    """Return what is counted as one address: one of IPv4, or the network of 64 bits of one of IPv6."""
    if not isinstance(peer, tuple) or not peer:
        return ""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return str(peer[0])
    if address.version == 4:
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((address, 64), strict=False))
