"""A running service: everything that its routes need, in one value."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from pesto.service.serve.access_log import AccessLog
from pesto.service.serve.blobs import Blobs
from pesto.service.serve.histogram import RequestTimes
from pesto.service.serve.scheduler import Scheduler
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.store.opening import Store
from pesto.service.serve.tokens import Doorkeeper
from pesto.service.serve.watchers import Watchers


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Open as long as the server runs."""

    config: ServeConfig
    folder: Path
    store: Store
    blobs: Blobs
    doors: Doorkeeper
    scheduler: Scheduler
    watchers: Watchers
    access_log: AccessLog
    request_times: RequestTimes
    diffs: asyncio.Semaphore
    """Plans that are compared at a time."""

    def trouble(self) -> str:
        """Return why jobs are not taken or not run now, on one line; empty where they are."""
        if self.watchers.closed or not self.scheduler.alive:
            return "the service begins or ends"
        if not self.store.there():
            return "the database does not answer"
        return self.scheduler.trouble
