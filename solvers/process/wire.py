"""Wire format between a solver's process and its parent: frames of a typed header (JSON) and a body (arrays).

A frame is a magic number, the lengths of both parts, the header and the body. Nothing is executed or unpickled, and
sizes are checked before anything is allocated.
"""

import struct
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import BinaryIO

import msgspec

from solvers.base import SolverEntry
from solvers.files.npz import pack_problem, pack_schedule, unpack_problem, unpack_schedule
from solvers.problem import Problem
from solvers.result import Limit, Options, Status

_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"PSV1"
_SETTINGS = tuple(field.name for field in fields(Options) if field.name != "start")
_FOREVER_S = 1e9
"""Seconds that stand for an infinite limit, which JSON does not have."""
LONGEST_HEADER = 1 << 20
LONGEST_BODY = 1 << 33


class RequestFrame(msgspec.Struct, kw_only=True, frozen=True, tag="request"):
    """Which solver is to run, and how; the body is the problem, and where `start` holds, a `StartFrame` follows."""

    module: str
    attribute: str
    arguments: tuple[str, ...]
    seconds: float
    gap: float
    seed: int
    workers: int
    deterministic: bool
    lower_bound: int
    formulation: str
    start: bool
    begun: float
    """`time.monotonic()` when the limit began, which is one clock for all processes of a machine."""


class StartFrame(msgspec.Struct, kw_only=True, frozen=True, tag="start"):
    """The schedule to start from is the body."""


class LoadedFrame(msgspec.Struct, kw_only=True, frozen=True, tag="loaded"):
    """The solver is loaded; it may compile what its solve will run before it starts."""


class ReadyFrame(msgspec.Struct, kw_only=True, frozen=True, tag="ready"):
    """The solver starts now."""


class ImprovedFrame(msgspec.Struct, kw_only=True, frozen=True, tag="improved"):
    """A `Progress`; the body is its schedule, empty for none."""

    lower_bound: int
    seconds: float
    bound_by: str = ""
    log: tuple[str, ...] = ()


class EndedFrame(msgspec.Struct, kw_only=True, frozen=True, tag="ended"):
    """A `Result`, as claimed; the body is its schedule, empty for none."""

    status: Status
    limit: Limit
    lower_bound: int
    seconds: float
    version: str
    detail: str
    bound_by: str = ""


Message = RequestFrame | StartFrame | LoadedFrame | ReadyFrame | ImprovedFrame | EndedFrame
_DECODER = msgspec.json.Decoder(Message)


def encode(message: Message, body: bytes = b"") -> bytes:
    """Return one frame."""
    header = msgspec.json.encode(message)
    return b"".join((_HEAD.pack(_MAGIC, len(header), len(body)), header, body))


def read(stream: BinaryIO) -> tuple[Message, bytes]:
    """Read the next frame of a blocking stream; raise EOFError at its end, ValueError for anything else."""
    head = _exactly(stream, _HEAD.size)
    header_length, body_length = _lengths(head)
    return _message(_exactly(stream, header_length)), _exactly(stream, body_length)


def encode_request(problem: Problem, entry: SolverEntry, options: Options) -> bytes:
    """Return the frames that ask a worker to run a solver; its limit begins now."""
    request = RequestFrame(
        module=entry.module,
        attribute=entry.attribute,
        arguments=entry.arguments,
        **{name: getattr(options, name) for name in _SETTINGS} | {"seconds": min(options.seconds, _FOREVER_S)},
        start=options.start is not None,
        begun=time.monotonic(),
    )
    body, start = pack_problem(problem), None if options.start is None else pack_schedule(options.start)
    return encode(request, body) + (b"" if start is None else encode(StartFrame(), start))


def read_request(stream: BinaryIO) -> tuple[SolverEntry, Problem, Options, float]:
    """Return the solver, what it is given, and when its limit began."""
    request, body = read(stream)
    if not isinstance(request, RequestFrame):
        raise TypeError(f"a request expected, found {type(request).__name__}")
    start = unpack_schedule(read(stream)[1]) if request.start else None
    settings = {name: getattr(request, name) for name in _SETTINGS}
    entry = SolverEntry(module=request.module, attribute=request.attribute, arguments=request.arguments, isolated=True)
    return entry, unpack_problem(body), Options(**settings, start=start), request.begun


class Frames:
    """Frames out of a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Message, bytes]]:
        """Add what arrived and yield every frame now complete; raise ValueError for anything else but frames."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            header_length, body_length = _lengths(bytes(self._buffer[: _HEAD.size]))
            body_at = _HEAD.size + header_length
            end = body_at + body_length
            if len(self._buffer) < end:
                return
            header, body = bytes(self._buffer[_HEAD.size : body_at]), bytes(self._buffer[body_at:end])
            del self._buffer[:end]
            yield _message(header), body


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the stream ended within a frame")
    return data


def _lengths(head: bytes) -> tuple[int, int]:
    magic, header_length, body_length = _HEAD.unpack(head)
    if magic != _MAGIC or header_length > LONGEST_HEADER or body_length > LONGEST_BODY:
        raise ValueError("not a frame of this protocol")
    return header_length, body_length


def _message(header: bytes) -> Message:
    try:
        message: Message = _DECODER.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"a frame with a malformed header: {error}") from error
    return message
