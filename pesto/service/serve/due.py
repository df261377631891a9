"""What is to be written and is not yet: done in its order, and kept while the disk is full or the database away."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pesto.core.errors import FileError
from pesto.service.serve.store.database import UncertainError
from pesto.service.serve.store.group_commit import Act, Writer

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
UNWRITTEN = "the database cannot be written to"
AGAIN_S = 1.0
"""Seconds between two tries to write."""


class _Due(NamedTuple):
    act: Act
    then: Callable[[Any], None]


class Dues:
    """Of one thread. Who waits for none of it goes on with other things meanwhile, as workers do."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._due = writer, deque[_Due]()
        self._failed = -AGAIN_S
        self.trouble = ""
        """Why jobs wait, for everybody; empty while everything can be written."""

    def add(self, act: Callable[..., T], then: Callable[[T], None] = lambda _: None) -> None:
        """One more act, after all before; `then` hears what it gave."""
        self._due.append(_Due(act, then))

    def work(self) -> bool:
        """Do what is due, unless that failed a moment ago; whether all of it is done."""
        if time.monotonic() < self._failed + AGAIN_S:
            return False
        try:
            self.finish()
        except FileError as error:
            if self._failed < 0:
                _LOG.warning("%s; jobs wait until it can be written", error)
            self._failed, self.trouble = time.monotonic(), UNWRITTEN
            return False
        self._failed, self.trouble = -AGAIN_S, ""
        return True

    def finish(self) -> None:
        """Do what is due. FileError where it cannot be done now; what is not done stays due."""
        while self._due:
            act, then = self._due[0]
            try:
                given = self._writer.do(act)
            except UncertainError as lost:
                self._due[0] = _Due(lost.again(act), then)
                raise
            self._due.popleft()
            then(given)
