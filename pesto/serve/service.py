"""A running service: everything that its routes need, in one value."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from pesto.serve.blobs import Blobs
from pesto.serve.scheduler import Scheduler
from pesto.serve.serve_config import ServeConfig
from pesto.serve.store.group_commit import Writer
from pesto.serve.store.readings import Readings
from pesto.serve.store.waiting import Waiting
from pesto.serve.tokens import Doorkeeper
from pesto.serve.watchers import Watchers


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Open as long as the server runs."""

    config: ServeConfig
    folder: Path
    writer: Writer
    readings: Readings
    waiting: Waiting
    blobs: Blobs
    doors: Doorkeeper
    scheduler: Scheduler
    watchers: Watchers
    diffs: asyncio.Semaphore
    """Plans that are compared at a time."""
