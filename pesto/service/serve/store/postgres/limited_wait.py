"""A connection that waits for an answer so many seconds, whatever has become of the server or of the network."""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class LimitedConnection(psycopg.Connection[Any]):
    """As psycopg's, but closed by a statement that was not answered within `answer_s` seconds.

    A server that is stopped, or cut off, does not keep its own `statement_timeout`.
    """

    answer_s = 12.0

    def wait(self, gen: Generator[Any, Any, T], *given: Any, **named: Any) -> T:
        """Wait for a statement. OperationalError after `answer_s` seconds without an answer."""
        try:
            return super().wait(_limited(gen, self.answer_s), *given, **named)
        except _SlowError as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s") from error


class _SlowError(Exception):
    """There was no answer in time."""


def _limited(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The generator, which is sent a false value each time that psycopg has waited for its socket in vain."""
    until, ready = time.monotonic() + seconds, None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            found: T = end.value
            return found
        ready = yield wanted
        if not ready and time.monotonic() >= until:
            raise _SlowError
