"""The events of one job as they come over any number of streams: none twice, and none left out."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from pesto.core.errors import FileError
from pesto.service.client.calls import job_path
from pesto.service.protocol.job_states import FINAL
from pesto.service.protocol.replies import JobReply

DONE = "done"
CUT_S = 0.2
"""Seconds before a stream that was cut is opened again."""
_MOST = 1 << 24
"""Bytes of one event."""


class JobEvent(NamedTuple):
    """One thing that a job told."""

    number: int
    """From 1, without a gap."""
    kind: str
    """stage, incumbent, bound, log or done."""
    data: dict[str, Any]
    """`name` of a stage; `best_s`, `bound_s`, `gap` and `by` of an incumbent; `level` and `text` of a log line;
    `exit_code`, `state`, `error`, `remedy`, `result` and `files` of the end."""


class Followed:
    """A job that is watched, and how far."""

    def __init__(self, name: str, after: int) -> None:
        """`after`: the number of the last event that is known."""
        self.name, self.path, self.last, self.over = name, f"{job_path(name)}/events", after, False
        self._left = b""

    @property
    def headers(self) -> dict[str, str]:
        """Of the next stream."""
        return {"Last-Event-ID": str(self.last), "Accept": "text/event-stream"}

    def begin(self) -> None:
        """A stream begins anew; half an event of the last one is forgotten."""
        self._left = b""

    def take(self, chunk: bytes) -> Iterator[JobEvent]:
        """The new events of the bytes that came."""
        *blocks, self._left = (self._left + chunk.replace(b"\r", b"")).split(b"\n\n")
        if len(self._left) > _MOST:
            raise FileError.build(
                "the service sends an event that does not end", remedy="look whether the address is right"
            )
        for block in blocks:
            event = _event(block)
            if event is not None and event.number > self.last:
                self.last, self.over = event.number, self.over or event.kind == DONE
                yield event

    def ended(self, job: JobReply) -> None:
        """A stream came to its end: over, where the job has no more to tell."""
        self.over = self.over or (job.state in FINAL and job.events <= self.last)


def _event(block: bytes) -> JobEvent | None:
    """What a block says; None for a comment."""
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
    if not {b"id", b"event", b"data"} <= fields.keys():
        return None
    try:
        data: dict[str, Any] = msgspec.json.decode(fields[b"data"], type=dict[str, Any])
        return JobEvent(int(fields[b"id"]), fields[b"event"].decode(), data)
    except ValueError as error:
        raise FileError.build(
            "the service sends what is no event", remedy="look whether the address is right"
        ) from error
