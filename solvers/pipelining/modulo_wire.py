"""Messages to and from the process for modulo scheduling, as lines of JSON.

A chain's line, or each of several, is answered by a result. A race's line is followed by those of allocations, the
least bound first, and is answered by improvements and one end.
"""

import msgspec


class ChainSpec(msgspec.Struct, kw_only=True, frozen=True, tag=True):
    """n operations of a batch, in an order in which each stands behind what it waits for; k batches of a period."""

    ticks: list[int]
    """[n] ticks of each operation."""
    resource: list[int]
    """[n] the resource that each takes."""
    waits: list[tuple[int, int]]
    """(before, after) of two operations of one batch."""
    held: list[tuple[int, int, int, int, int, int]]
    """(first operation, ticks after its start, last operation, ticks before its end, room, bytes) of what is held."""
    room: list[int]
    """Bytes of each room."""
    summed: bool
    """True if a room must hold the sum of each thing's maximum bytes; otherwise the bytes present at each tick."""
    k: int
    least: int
    """No period is shorter."""
    most: int
    """No period is looked for that is longer."""
    flushed: bool
    """True if there are k batches only, and `least` and `most` bound the tick at which they end."""
    seconds: float
    workers: int


class ModuloResult(msgspec.Struct, kw_only=True, frozen=True):
    """The best found."""

    T: int
    """The period, or the tick of the end; 0: none found."""
    least: int
    """No period is shorter, which is proven."""
    starts: list[list[int]]
    """[n][k] start of each operation of each batch; empty: none found."""


class RaceRequest(msgspec.Struct, kw_only=True, frozen=True, tag=True):
    """The request for a race of many allocations."""

    seconds: float
    """For all of them."""
    below: int
    """Only shorter periods are of use."""


class RaceImprovement(msgspec.Struct, kw_only=True, frozen=True, tag=True):
    """An allocation that is better than all before it."""

    at: int
    told: ModuloResult


class RaceEnd(msgspec.Struct, kw_only=True, frozen=True, tag=True):
    """The end."""

    least: int
    """None of the allocations has a shorter period."""
