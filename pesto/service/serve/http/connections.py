"""Connections of clients: how many there may be, and how long requests may take to come and answers to be taken."""

import ipaddress
import logging
import time
from collections import Counter
from typing import Any

from pesto.service.serve.serve_config import ServeConfig

HEAD_S = 10.0
"""Seconds within which the head of a request must be there, of a connection's first one since its begin."""
BODY_S, BODY_RATE, BODY_MOST_S = 20.0, 1024, 60.0
"""Seconds that a body has at first, bytes for which it is given one more, and the most that it may have left."""
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

    def __init__(self, most: int, each: int, *, body_s: float = 3600.0) -> None:
        """`most`: connections in all; `each`: of one address; `body_s`: seconds that any body may take."""
        self._most, self._each, self.body_s = most, each, body_s
        self._open: dict[Any, str] = {}
        self._reserved: dict[Any, str] = {}
        self._by_address: Counter[str] = Counter()
        self.idle: dict[Any, None] = {}
        """Those that wait for a next request, the one that waits longest first."""
        self._noted: Counter[str] = Counter()
        self._logged = -LOG_S

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self._open) + len(self._reserved)

    def enter(self, connection: Any, peer: object) -> bool:
        """Count one more: True for any request, False for one of health alone.

        The reserve for health is never full: the one of the same address, or else of any, that has been there longest
        is dropped. A request that comes whole is answered before others of its address can take its place.
        """
        address = address_of(peer)
        if self._by_address[address] < self._each and (len(self._open) < self._most or self._made_room()):
            self._open[connection] = address
            self._by_address[address] += 1
            return True
        self.note(f"beyond {self._most} connections, or {self._each} of one address")
        same = [other for other, at in self._reserved.items() if at == address]
        crowd = same if len(same) >= RESERVE_EACH else list(self._reserved)
        if len(crowd) >= (RESERVE_EACH if crowd is same else RESERVE):
            self.leave(crowd[0])
            crowd[0].drop()
        self._reserved[connection] = address
        return False

    def leave(self, connection: Any) -> None:
        """Count one less, once."""
        self.idle.pop(connection, None)
        self._reserved.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

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
    return Gate(min(config.connections, room), config.connections_per_address, body_s=config.upload_seconds)


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
