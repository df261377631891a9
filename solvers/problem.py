"""The scheduling problem: tasks with payloads to send, on devices joined by links. Integers only."""

from copy import copy
from dataclasses import dataclass, field, fields, replace

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.compiled.dag import topological_order
from solvers.footprint import Footprint, misfit

FORBIDDEN = -1
"""The duration of a task on a device that cannot run it."""
MOST = 2**62
"""Upper limit of the ticks of one schedule, and of the bytes of all tasks."""
_TOO_MANY = f"sum to more than {MOST}, beyond what 64 bits can add up"


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Problem:
    """Place n tasks on m devices and order them, so that the last one finishes as early as possible.

    Devices sit at one of l *locations*. A location is a memory: devices there (the cores of a host, or a GPU and
    the kernel lane that launches its work) see each other's data without a transfer and share one capacity. A
    *payload* is what one task sends: it crosses once to each location where some consumer runs, after its producer
    finishes and before that consumer starts, and holds every link of its path for the whole transfer. Links carry
    one transfer at a time; devices run one task at a time; nothing is preempted. (Pesto's paper counts a transfer
    per edge: give each edge its own payload for that mode.)

    All times are ticks >= 0, memory is bytes >= 0. Arrays are copied and made read-only. Raise ValueError, naming the
    first offender, when a field has the wrong shape, an index is out of range, a task can run nowhere, an edge does
    not carry its producer's payload, or the edges form a cycle.
    """

    duration: Ints
    """[n, m] ticks of a task on a device, FORBIDDEN where it cannot run."""
    location: Ints
    """[m] location of each device, 0..l-1."""
    memory: Ints
    """[n] bytes that a task occupies, for the whole schedule, at its location."""
    capacity: Ints
    """[l] bytes of each location."""
    src: Ints
    """[e] tail of each precedence edge."""
    dst: Ints
    """[e] head of each precedence edge."""
    payload: Ints
    """[e] payload that the edge carries, -1 for precedence alone."""
    producer: Ints
    """[p] task that produces each payload."""
    transfer: Ints
    """[p, c] ticks of a payload on a path of each class."""
    path_class: Ints
    """[l, l] column of `transfer` that holds between two locations; -1 on the diagonal."""
    path_links: Ints
    """[l, l, k] links that a transfer between two locations holds, in any numbering, padded with -1."""
    group: Ints
    """[n] tasks of one group (>= 0) share a location; -1 for none."""
    lives: Footprint | None = None
    """Bytes that come and go beside `memory`, which its `static` repeats: the bytes alive at a location at any tick
    must fit its capacity. None: `memory` alone counts."""
    allowed: Bools = field(init=False)
    """[n, m] whether a task can run on a device (derived)."""
    holds: Ints = field(init=False)
    """[l, l, k] `path_links` with the links in use numbered 0..links - 1, in the same order (derived)."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate every array."""
        for f in fields(self):
            if f.init and f.name != "lives":
                object.__setattr__(self, f.name, ints(getattr(self, f.name)))
        _shapes(self)
        _ranges(self)
        _bytes(self)
        carries = self.payload >= 0
        wrong = np.flatnonzero(self.producer[self.payload[carries]] != self.src[carries])
        if len(wrong):
            edge = np.flatnonzero(carries)[wrong[0]]
            sends = f"carries payload {self.payload[edge]} of another task"
            raise ValueError(f"edge {edge} from task {self.src[edge]} {sends}")
        if len(topological_order(self.tasks, self.src, self.dst)) != self.tasks:
            raise ValueError("the precedence edges form a cycle")
        _lives(self)
        allowed = self.duration != FORBIDDEN
        allowed.setflags(write=False)
        object.__setattr__(self, "allowed", allowed)
        # What solvers allocate for a link is for one that is used, however high a file numbers it.
        used = np.unique(self.path_links[self.path_links >= 0])
        holds = self.path_links
        if len(used) <= holds.max(initial=-1):
            holds = ints(np.where(holds >= 0, np.searchsorted(used, holds), -1))
        object.__setattr__(self, "holds", holds)
        nowhere = np.flatnonzero(~allowed.any(axis=1)) if self.devices else np.arange(self.tasks)
        if len(nowhere):
            raise ValueError(f"task {nowhere[0]} can run on no device")

    def __repr__(self) -> str:
        """Return one line, without arrays."""
        where = f"{self.devices} devices at {self.locations} locations"
        return (
            f"Problem({self.tasks} tasks on {where}, {self.edges} edges, {self.payloads} payloads, {self.links} links)"
        )

    def holding(self, *, memory: Ints | None = None, capacity: Ints | None = None) -> "Problem":
        """Return the problem with other bytes of its tasks, [n], or locations, [l]; raise ValueError as for a new one.

        All else is shared, and not validated again.
        """
        other = copy(self)
        for name, values in (("memory", memory), ("capacity", capacity)):
            if values is not None:
                object.__setattr__(other, name, ints(values))
        _shapes(other)
        _bytes(other)
        _lives(other)
        return other

    def living(self, lives: Footprint | None) -> "Problem":
        """Return the problem with these bytes that come and go, `memory` being their static ones; None: without any."""
        if lives is None:
            return replace(self, lives=None)
        return replace(self, memory=lives.static, lives=lives)

    @property
    def tasks(self) -> int:
        """Number of tasks, n."""
        return int(self.duration.shape[0])

    @property
    def devices(self) -> int:
        """Number of devices, m."""
        return int(self.duration.shape[1])

    @property
    def locations(self) -> int:
        """Number of locations, l."""
        return len(self.capacity)

    @property
    def edges(self) -> int:
        """Number of precedence edges, e."""
        return len(self.src)

    @property
    def payloads(self) -> int:
        """Number of payloads, p."""
        return len(self.producer)

    @property
    def links(self) -> int:
        """Number of links that some path holds."""
        return int(self.holds.max(initial=-1)) + 1


def least_ticks(problem: Problem) -> Ints:
    """Return [n] ticks of each task on the device that runs it fastest."""
    return np.where(problem.allowed, problem.duration, np.iinfo(np.int64).max).min(axis=1)


def mean_ticks(problem: Problem) -> Ints:
    """Return [n] mean ticks of each task over the devices that can run it, rounded up, as in HEFT (Topcuoglu 2002)."""
    allowed = np.count_nonzero(problem.allowed, axis=1)
    return -(-np.where(problem.allowed, problem.duration, 0).sum(axis=1) // allowed)


def mean_transfers(problem: Problem, places: Ints | None = None) -> Ints:
    """Return [p] mean ticks of each payload over all ordered pairs of `places`, rounded; 0 without a pair.

    places: locations; None for all.
    """
    places = np.arange(problem.locations) if places is None else places
    if len(places) < 2:
        return np.zeros(problem.payloads, dtype=np.int64)
    pairs = problem.path_class[np.ix_(places, places)][~np.eye(len(places), dtype=bool)]
    share = np.bincount(pairs, minlength=problem.transfer.shape[1]) / len(pairs)
    return np.rint(problem.transfer @ share).astype(np.int64)


def _shapes(p: Problem) -> None:
    if p.duration.ndim != 2 or p.transfer.ndim != 2:
        raise ValueError("duration must be [tasks, devices] and transfer [payloads, path classes]")
    for name in ("capacity", "src", "producer"):
        if getattr(p, name).ndim != 1:
            raise ValueError(f"{name} must have one dimension")
    n, m = p.duration.shape
    l_, e, pay = len(p.capacity), len(p.src), len(p.producer)
    want = {
        "location": (m,), "memory": (n,), "capacity": (l_,), "src": (e,), "dst": (e,), "payload": (e,),
        "producer": (pay,), "transfer": (pay, p.transfer.shape[1]), "path_class": (l_, l_),
        "path_links": (l_, l_, p.path_links.shape[2] if p.path_links.ndim == 3 else 0), "group": (n,),
    }  # fmt: skip
    for name, shape in want.items():
        if getattr(p, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(p, name).shape}, expected {shape}")


def _ranges(p: Problem) -> None:
    n, l_ = p.tasks, p.locations
    diagonal = np.arange(l_)
    off = p.path_class[diagonal[:, None] != diagonal[None, :]]
    limits = {
        "duration": (p.duration, FORBIDDEN, None), "location": (p.location, 0, l_),
        "src": (p.src, 0, n), "dst": (p.dst, 0, n),
        "payload": (p.payload, -1, p.payloads), "producer": (p.producer, 0, n), "transfer": (p.transfer, 0, None),
        "path_class off the diagonal": (off, 0, p.transfer.shape[1]),
        "path_class on the diagonal": (p.path_class[diagonal, diagonal], -1, 0),
        "path_links": (p.path_links, -1, None), "group": (p.group, -1, None),
    }  # fmt: skip
    for name, (values, least, beyond) in limits.items():
        bad = values < least if beyond is None else (values < least) | (values >= beyond)
        if bad.any():
            raise ValueError(f"{name}: {values[bad].flat[0]} is out of range")
    ticks = _total(p.duration.max(axis=1, initial=0)) + p.locations * _total(p.transfer.max(axis=1, initial=0))
    if ticks > MOST:
        raise ValueError(f"ticks {_TOO_MANY}")


def _bytes(p: Problem) -> None:
    for name, values in (("memory", p.memory), ("capacity", p.capacity)):
        if (values < 0).any():
            raise ValueError(f"{name}: {values[values < 0][0]} is out of range")
    if _total(p.memory) > MOST:
        raise ValueError(f"bytes {_TOO_MANY}")


def _total(values: Ints) -> int:
    """Return the sum, found in Python's integers when 64 bits could overflow."""
    return int(values.sum()) if values.sum(dtype=np.float64) < MOST else sum(values.tolist())


def _lives(p: Problem) -> None:
    if p.lives is None:
        return
    if not isinstance(p.lives, Footprint):
        raise ValueError("lives must be a solvers.Footprint")
    sent = p.payload >= 0
    wrong = misfit(p.lives, p.memory, p.producer, ints(np.column_stack([p.payload[sent], p.dst[sent]])))
    if wrong:
        raise ValueError(f"lives: {wrong}")
    if p.locations * _total(p.lives.size) + _total(p.lives.scratch) > MOST - _total(p.memory):
        raise ValueError(f"bytes {_TOO_MANY}")
