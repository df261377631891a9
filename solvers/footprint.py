"""Memory of tasks over time: scratch bytes while they run, and outputs until the last read."""

from dataclasses import dataclass, field, fields

import numpy as np

from solvers.arrays import Ints, ints
from solvers.compiled.dag import topological_order


def _none() -> Ints:
    return ints([])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """Bytes that the n tasks of a problem hold, independent of place and time.

    A *buffer* is what a task makes: it is alive at its maker's location from the maker's start until the last read
    or send there has finished, and at every other location with a reader from the start of its transfer until the
    last read there has finished. A payload brings one buffer. Raise ValueError when shapes differ, an index is out of
    range, or a buffer names the read of a task that did not make it.
    """

    static: Ints
    """[n] bytes that a task holds at its location for the whole schedule (variables)."""
    size: Ints
    """[b] bytes of each buffer."""
    maker: Ints
    """[b] task that makes each buffer."""
    passes: Ints
    """[b] the read (0..r-1, one of the maker's) whose bytes this buffer is another name of; -1: bytes of its own."""
    read_buffer: Ints
    """[r] buffer of each read."""
    read_by: Ints
    """[r] task that reads it."""
    read_payload: Ints
    """[r] payload of the problem that brings it there, where maker and reader are apart; -1: they never are."""
    scratch: Ints = field(default_factory=_none)
    """[n] bytes that are alive at a task's location only while it runs; empty: none."""
    reuses: Ints = field(default_factory=_none)
    """[b] the read (one of the maker's) whose bytes this buffer takes over in place, where both are equally large and
    every other use of them at that location (reads, sends, also under another name) has finished when the maker
    starts, as TensorFlow forwards an input's buffer to an output; -1, or empty: none."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        for f in fields(self):
            object.__setattr__(self, f.name, ints(getattr(self, f.name)))
        n, b, r = len(self.static), len(self.size), len(self.read_buffer)
        if not len(self.scratch):
            object.__setattr__(self, "scratch", ints(np.zeros(n, dtype=np.int64)))
        if not len(self.reuses):
            object.__setattr__(self, "reuses", ints(np.full(b, -1)))
        for length, names in (
            (n, ("scratch",)), (b, ("maker", "passes", "reuses")), (r, ("read_by", "read_payload")),
        ):  # fmt: skip
            for name in names:
                if len(getattr(self, name)) != length:
                    raise ValueError(f"{name} has {len(getattr(self, name))} entries, expected {length}")
        limits = {
            "maker": (0, n), "read_by": (0, n), "read_buffer": (0, b), "passes": (-1, r), "reuses": (-1, r),
        }  # fmt: skip
        for name, (least, beyond) in limits.items():
            values = getattr(self, name)
            if len(values) and not least <= values.min() <= values.max() < beyond:
                raise ValueError(f"{name} points at nothing (0..{beyond - 1} exist)")
        for name in ("passes", "reuses"):
            buffer = np.flatnonzero(getattr(self, name) >= 0)
            foreign = buffer[self.read_by[getattr(self, name)[buffer]] != self.maker[buffer]]
            if len(foreign):
                raise ValueError(f"{name}: buffer {foreign[0]} names a read of another task than its maker")
        for name in ("static", "size", "scratch"):
            if getattr(self, name).min(initial=0) < 0:
                raise ValueError(f"{name} must be at least 0")


def misfit(f: Footprint, memory: Ints, producer: Ints, carries: Ints) -> str:
    """Return why a footprint is not one of the n tasks of a problem, in one line; "" where it is.

    memory: [n] bytes held for ever, which `static` repeats; producer: [p] task of each payload; carries: [e, 2]
    payload and reader of each edge. What a task reads of another, an edge brings with a payload; a payload brings one
    buffer, of its producer; and no buffer is, by way of others, another name of itself.
    """
    if not np.array_equal(f.static, memory):
        return "static must be the memory of the tasks"
    if len(f.read_payload) and f.read_payload.max() >= len(producer):
        return f"read_payload points at nothing ({len(producer)} payloads exist)"
    known = np.flatnonzero(f.read_payload >= 0)
    unsent = known[producer[f.read_payload[known]] != f.maker[f.read_buffer[known]]]
    if len(unsent):
        return f"read {unsent[0]} names a payload of another task than its buffer's maker"
    buffer = np.full(len(producer), -1, dtype=np.int64)
    buffer[f.read_payload[known]] = f.read_buffer[known]
    two = known[buffer[f.read_payload[known]] != f.read_buffer[known]]
    if len(two):
        return f"payload {f.read_payload[two[0]]} brings two buffers"
    unread = _unread(f, carries)
    other = np.where(f.passes >= 0, f.passes, f.reuses)
    named = np.flatnonzero(other >= 0)
    circular = len(topological_order(len(f.size), f.read_buffer[other[named]], named)) < len(f.size)
    return unread or ("buffers pass each other on in a cycle" if circular else "")


def _unread(f: Footprint, carries: Ints) -> str:
    edges = set(zip(carries[:, 0].tolist(), carries[:, 1].tolist(), strict=True))
    for read, (payload, by) in enumerate(zip(f.read_payload.tolist(), f.read_by.tolist(), strict=True)):
        if payload < 0 and by != f.maker[f.read_buffer[read]]:
            return f"read {read} by task {by} of what another task made needs a payload"
        if payload >= 0 and (payload, by) not in edges:
            return f"read {read}: no edge brings payload {payload} to task {by}"
    return ""
