"""Jobs as work for an executor: what a worker is sent, how it does a job, and what it tells."""

from pathlib import Path

import msgspec

from pesto.errors import Exit, told
from pesto.executing.executor import Answered, Limits, Said, Work
from pesto.executing.line import Line
from pesto.jobs.job_events import Done, encode
from pesto.jobs.request import JobRequest
from pesto.jobs.run_job import run
from pesto.serve.serve_config import JobBounds
from pesto.serve.store.job_states import Begun, Event, Outcome
from pesto.solving.interrupt import install

PATIENCE_S = 600.0
"""Seconds that an interrupted job may take to end, before it is killed."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is sent."""

    request: JobRequest
    blobs: str
    """Where uploaded files lie under their SHA-256."""
    out: str
    """The folder for what it writes."""


def job_work(begun: Begun, blobs: Path, out: Path, bounds: JobBounds) -> Work:
    """An attempt of a job, to be begun; what its request leaves open has the service's bounds."""
    request = msgspec.json.decode(begun.request, type=JobRequest)
    asked = request.limits
    seconds = asked.seconds or bounds.seconds
    nodes = msgspec.structs.replace(asked, nodes=asked.nodes or bounds.nodes)
    order = Order(
        request=msgspec.structs.replace(request, limits=nodes), blobs=str(blobs.absolute()), out=str(out.absolute())
    )
    limits = Limits(
        interrupt_s=seconds,
        patience_s=seconds + PATIENCE_S,
        rss_bytes=asked.rss_bytes or int(bounds.rss_gib * 2**30),
        cores=asked.threads,
    )
    data = msgspec.json.encode(order)
    return Work(key=f"{begun.id}.{begun.attempt}", entry=f"{__name__}:answer", data=data, live=True, limits=limits)


def answer(data: bytes, line: Line) -> bytes:
    """Do a job, in the process of a worker."""
    order = msgspec.json.decode(data, type=Order)
    try:
        install()
        if line.interrupted() is not None:  # before anybody else looked to signals
            raise KeyboardInterrupt
        done = run(order.request, Path(order.blobs), Path(order.out), lambda event: line.tell(encode(event)))
    except KeyboardInterrupt as error:
        failure = told(error, Exit.INTERRUPTED)
        done = Done(exit_code=failure.exit_code, error=failure.what, remedy=failure.remedy)
    return msgspec.json.encode(done)


def event_of(said: Said) -> Event:
    """An event that a worker told."""
    data = msgspec.json.decode(said.data)
    return Event(kind=data.pop("event"), data=data)


def outcome_of(answered: Answered) -> Outcome:
    """How a job ended."""
    done = msgspec.json.decode(answered.data, type=Done)
    return Outcome(
        exit_code=done.exit_code, error=done.error, remedy=done.remedy, result=done.result, files=done.files,
        seconds=answered.seconds,
    )  # fmt: skip
