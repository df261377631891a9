"""Jobs as work for an executor, within the bounds of the service, and what workers tell of them."""

from pathlib import Path

import msgspec

from pesto.core.executing.executor import ProgressMessage, WorkFiles, WorkItem, WorkLimits, WorkResult
from pesto.service.serve.serve_config import JobBounds
from pesto.service.serve.store.job_records import Begun, Event, Outcome
from pesto.verbs.jobs.job_events import Done
from pesto.verbs.jobs.job_progress import INCUMBENTS
from pesto.verbs.jobs.request import ENTRY, Order, blobs_of, kept_request

PATIENCE_S = 600.0
"""Seconds that an interrupted job may take to end, before it is killed."""


def job_work(begun: Begun, blobs: Path, out: Path, bounds: JobBounds) -> WorkItem | None:
    """An attempt of a job, to be begun; what its request leaves open has the service's bounds.

    None for a request of another version, which this one cannot do.
    """
    request = kept_request(begun.request)
    if request is None:
        return None
    asked = request.limits
    seconds = asked.seconds or bounds.seconds
    nodes = msgspec.structs.replace(asked, nodes=asked.nodes or bounds.nodes)
    order = Order(
        request=msgspec.structs.replace(request, limits=nodes), blobs=str(blobs.absolute()), out=str(out.absolute())
    )
    limits = WorkLimits(
        interrupt_s=seconds,
        patience_s=seconds + PATIENCE_S,
        rss_bytes=asked.rss_bytes or int(bounds.rss_gib * 2**30),
        cores=asked.threads,
    )
    data = msgspec.json.encode(order)
    files = WorkFiles(folder=order.blobs, reads=blobs_of(request), out=order.out, early=INCUMBENTS)
    return WorkItem(key=begun.key, entry=ENTRY, data=data, live=True, limits=limits, files=files)


def event_of(said: ProgressMessage) -> Event:
    """Return the event of a worker's message."""
    data = msgspec.json.decode(said.data)
    return Event(kind=data.pop("event"), data=data)


def outcome_of(answered: WorkResult) -> Outcome:
    """Return the outcome of a job that its worker has answered."""
    done = msgspec.json.decode(answered.data, type=Done)
    return Outcome(
        exit_code=done.exit_code, error=done.error, where=done.where, remedy=done.remedy,
        result=done.result, files=done.files, digests=done.digests, seconds=answered.seconds,
    )  # fmt: skip
