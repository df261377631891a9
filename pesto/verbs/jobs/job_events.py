"""Events of a job while it runs, and its end: one JSON object each, `{"event": "incumbent", ...}`."""

from typing import Any

import msgspec


class Stage(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="stage"):
    """A part of the work begins."""

    name: str


class IncumbentEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="incumbent"):
    """A better plan."""

    best_s: float
    """Predicted seconds of a training step."""
    bound_s: float
    """Seconds that no plan of the graph can be below."""
    gap: float
    """(best - bound) / best."""
    by: str
    """Name of the candidate that the plan is."""
    seconds: float
    """Since the solve began."""


class Bound(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="bound"):
    """A better lower bound."""

    bound_s: float
    gap: float
    seconds: float


class Log(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="log"):
    """A line for people."""

    level: str
    """info, warning or error."""
    text: str


class Done(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="done"):
    """How a job ended: as the verb of its kind would on the command line."""

    exit_code: int
    """One of `pesto.core.errors.Exit`; with an interruption there may be a plan."""
    error: str | None = None
    """The error and its place, on one line without a remedy."""
    where: str | None = None
    """File or name that the error is about, with which `error` begins; null where it names none."""
    remedy: str | None = None
    result: dict[str, Any] = {}
    """A summary, which differs by kind; the verb's whole JSON object is in answer.json."""
    files: tuple[str, ...] = ()
    """Names of what was written, whole each."""
    digests: dict[str, str] = {}
    """SHA-256 of those files, by name."""


Event = Stage | IncumbentEvent | Bound | Log | Done


def encode(event: Event) -> bytes:
    """Return the JSON object of an event."""
    return msgspec.json.encode(event)


def decode(data: bytes) -> Event:
    """Return the event of a JSON object; msgspec.ValidationError for what is none."""
    return _DECODER.decode(data)


_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
