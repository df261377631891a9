"""A job in the process of a worker: what that is sent, and what it answers."""

import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from pesto.core.errors import Exit, describe_error
from pesto.core.executing.worker import WorkerChannel
from pesto.core.files.disk import file_sha256
from pesto.planning.solving.interrupt import install, received
from pesto.verbs.jobs.job_events import Done, encode
from pesto.verbs.jobs.request import JobRequest
from pesto.verbs.jobs.run_job import run

ENTRY = f"{__name__}:answer"
READY = "pesto.verbs.jobs.ready:ready"
"""What a worker does before its first job; by name, since a server has no use for it."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is sent, as JSON; it has the folders, or copies of what it needs of them."""

    request: JobRequest
    blobs: str
    """Where uploaded files lie under their SHA-256."""
    out: str
    """The folder for what it writes."""


def answer(data: bytes, line: WorkerChannel) -> bytes:
    """Do a job, telling its events, and answer with its `Done`: Ctrl-C and SIGTERM interrupt it as they do a verb.

    The process is retired after a bug, and after an interruption before anything was written: what it was loading or
    setting up then may be broken.
    """
    order = msgspec.json.decode(data, type=Order)
    try:
        install()
        came = line.interrupted()
        if came is not None:  # before anybody else looked to signals
            signal.raise_signal(came)
        blobs, out = Path(line.here(order.blobs)), Path(line.here(order.out))
        done = run(order.request, blobs, out, lambda event: line.tell(encode(event)))
        with suppress(KeyboardInterrupt, OSError):  # what is written is kept, without digests then
            done = msgspec.structs.replace(done, digests={name: file_sha256(out / name) for name in done.files})
    except KeyboardInterrupt as error:
        failure = describe_error(error, received())
        done = Done(exit_code=failure.exit_code, error=failure.error, remedy=failure.remedy or None)
    if done.exit_code == Exit.BUG or (done.exit_code in (Exit.INTERRUPTED, Exit.TERMINATED) and not done.files):
        line.retire()
    return msgspec.json.encode(done)
