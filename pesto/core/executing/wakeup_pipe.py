"""What has a thread return that waits for connections."""

import socket
from contextlib import suppress


class WakeupPipe:
    """Rung by any thread; it is ready, beside connections, until it is heard."""

    def __init__(self) -> None:
        self.ear, self._rung = socket.socketpair()
        """`ear`: what is waited for."""
        for end in (self.ear, self._rung):
            end.setblocking(False)

    def ring(self) -> None:
        """From any thread."""
        with suppress(OSError):  # it is rung already, or closed
            self._rung.send(b"!")

    def hear(self) -> None:
        """However often it was rung."""
        with suppress(OSError):
            while self.ear.recv(4096):
                pass

    def close(self) -> None:
        """Nobody waits any more."""
        self._rung.close()
        self.ear.close()
