"""The optimum of a tiny problem by enumeration: an oracle for tests, slow and plain.

For each placement, tasks and transfers are *operations*, each with its ticks, the resources that it holds together
(a device, or the links of a path) and the operations that it waits for. The search appends operations one by one,
each at the earliest time at which what it waits for and all its resources are free, in the order of
(start, finish, rank), rank being a topological order of the operations. It misses no optimum:

Take, of all optimal schedules with this placement, one S of least sum of starts, and its operations in that order.
If u waits for v, or u follows v on a resource, then v comes first and finishes by the start of u: v and u do not
overlap, and where one takes no time and both start together, the shorter comes first. So appending in this order
starts each operation no later than S does (by induction), hence when S does, S being least: the search visits S. Nor
is S lost to the rule that an operation v is not appended at s while another, u, could start before s and finish by
s: all that is still to come starts at s or later, so u could move there and the sum would be smaller.

With lives, an operation may also wait for bytes to go. In an S of least sum each starts at 0 or when one that takes
time finishes, which comes before it, as it could start sooner otherwise. So the search tries all these starts, not the
earliest alone, and the rule holds no more. What is surely alive prunes; the checker has the last word.
"""

from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Ints
from solvers.checker import check
from solvers.compiled.dag import topological_order
from solvers.problem import Problem
from solvers.schedule import Schedule

TASKS = 8
"""Tasks of a problem at most."""
LIVING = 12
"""The same with lives, which leave fewer choices where they are tight."""
PLACEMENTS = 1_000_000
"""Placements that are looked at together at most."""


def exhaustive(problem: Problem, *, below: int | None = None) -> Schedule | None:
    """An optimal schedule, or None when no placement satisfies memory and groups, or none is shorter than `below`.

    ValueError for more than TASKS tasks or PLACEMENTS placements, or when the ticks of all tasks and transfers
    together exceed 62 bits.
    """
    if problem.tasks > (TASKS if problem.lives is None else LIVING):
        raise ValueError(f"{problem.tasks} tasks are more than {TASKS}; use a solver")
    longest = sum(problem.duration.max(axis=1, initial=0).tolist())
    horizon = longest + problem.locations * sum(problem.transfer.max(axis=1, initial=0).tolist())
    if horizon >= 2**62:
        raise ValueError("the ticks of all tasks and transfers exceed 62 bits; use a coarser tick")
    placements = _placements(problem)
    if below is None and problem.lives is not None and not _somehow(problem, placements):
        return None
    bounds = _bounds(problem, placements)
    best: _Search | None = None
    for index in np.argsort(bounds, kind="stable"):
        if best is not None and bounds[index] >= best.makespan:
            break
        limit = best.makespan if best is not None else horizon + 1 if below is None else below
        if bounds[index] >= limit:
            break
        operations = _operations(problem, placements[index])
        search = _Search(operations, limit) if problem.lives is None else _Living(problem, operations, limit)
        if search.run():
            best = search
    return None if best is None else best.schedule()


def _placements(p: Problem) -> Ints:
    """[placements, n] devices: every placement that memory and groups allow, equal devices in order of first use."""
    rows, room = np.zeros((1, 0), dtype=np.int64), p.capacity[None, :]
    twin = _twins(p)
    for task in range(p.tasks):
        devices = np.flatnonzero(p.allowed[task])
        if len(rows) * len(devices) > PLACEMENTS:
            raise ValueError(f"the problem has more than {PLACEMENTS} placements; use a solver")
        row, device = np.repeat(np.arange(len(rows)), len(devices)), np.tile(devices, len(rows))
        at = p.location[device]
        fits = room[row, at] >= p.memory[task]
        mates = np.flatnonzero(p.group[:task] == p.group[task]) if p.group[task] >= 0 else ()
        for mate in mates:
            fits &= p.location[rows[row, mate]] == at
        fits &= (twin[device] < 0) | (rows[row] == twin[device][:, None]).any(axis=1)
        row, device, at = row[fits], device[fits], at[fits]
        rows, room = np.column_stack([rows[row], device]), room[row]
        room[np.arange(len(row)), at] -= p.memory[task]
    return rows


def _twins(p: Problem) -> Ints:
    """[m] the last device before each that is its equal (location and every duration), -1 for none."""
    twin = np.full(p.devices, -1, dtype=np.int64)
    for one in range(p.devices):
        for two in range(one):
            if p.location[one] == p.location[two] and (p.duration[:, one] == p.duration[:, two]).all():
                twin[one] = two
    return twin


def _bounds(p: Problem, placements: Ints) -> Ints:
    """[placements] a lower bound of the makespan: the critical path with transfers, and the load of each device."""
    at = p.location[placements]
    ticks = p.duration[np.arange(p.tasks), placements]
    finish = np.zeros_like(placements)
    for task in topological_order(p.tasks, p.src, p.dst):
        for edge in np.flatnonzero(p.dst == task):
            tail = p.src[edge]
            arrival = finish[:, tail]
            if p.payload[edge] >= 0:
                cut = at[:, tail] != at[:, task]
                path = p.path_class[at[:, tail], at[:, task]]
                arrival = arrival + np.where(cut, p.transfer[p.payload[edge], path], 0)
            finish[:, task] = np.maximum(finish[:, task], arrival)
        finish[:, task] += ticks[:, task]
    bound = finish.max(axis=1, initial=0)
    for device in range(p.devices):
        bound = np.maximum(bound, np.where(placements == device, ticks, 0).sum(axis=1))
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operations:
    """The tasks (first) and transfers of one placement."""

    device: Ints
    crossing: list[tuple[int, int]]
    """Payload and target location of each transfer."""
    ticks: list[int]
    resources: list[list[int]]
    waits: list[set[int]]
    """What each operation waits for."""


def _operations(p: Problem, device: Ints) -> _Operations:
    at = p.location[device].tolist()
    waits: list[set[int]] = [set() for _ in range(p.tasks)]
    number: dict[tuple[int, int], int] = {}
    for src, dst, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        if payload < 0 or at[src] == at[dst]:
            waits[dst].add(src)
            continue
        transfer = number.setdefault((payload, at[dst]), p.tasks + len(number))
        if transfer == len(waits):
            waits.append({src})
        waits[dst].add(transfer)
    ticks = p.duration[np.arange(p.tasks), device].tolist()
    resources = [[unit] for unit in device.tolist()]
    for payload, to in number:
        origin = at[p.producer[payload]]
        ticks.append(int(p.transfer[payload, p.path_class[origin, to]]))
        resources.append([p.devices + link for link in np.unique(p.path_links[origin, to]).tolist() if link >= 0])
    return _Operations(device=device, crossing=list(number), ticks=ticks, resources=resources, waits=waits)


class _Search:
    """Depth first over the orders of the operations; keeps the first schedule shorter than `makespan`, then shorter."""

    def __init__(self, operations: _Operations, makespan: int) -> None:
        self.operations = operations
        self.makespan = makespan
        self.start: list[int] = []
        count = len(operations.ticks)
        self._next: list[list[int]] = [[v for v in range(count) if u in operations.waits[v]] for u in range(count)]
        self._rank = self._topological()
        self._tail = [0] * count
        for u in sorted(range(count), key=self._rank.__getitem__, reverse=True):
            self._tail[u] = operations.ticks[u] + max((self._tail[v] for v in self._next[u]), default=0)
        self._placed = [-1] * count
        self._free = {unit: 0 for held in operations.resources for unit in held}
        self._load = dict.fromkeys(self._free, 0)
        for held, ticks in zip(operations.resources, operations.ticks, strict=True):
            for unit in held:
                self._load[unit] += ticks

    def run(self) -> bool:
        """Whether a schedule shorter than `makespan` was found."""
        before = self.makespan
        self._descend((0, 0, -1), 0)
        return self.makespan < before

    def schedule(self) -> Schedule:
        """The best schedule found."""
        o, n = self.operations, len(self.operations.device)
        finish = [start + ticks for start, ticks in zip(self.start, o.ticks, strict=True)]
        return Schedule(
            device=o.device,
            start=np.array(self.start[:n], dtype=np.int64),
            finish=np.array(finish[:n], dtype=np.int64),
            sent_payload=np.array([payload for payload, _ in o.crossing], dtype=np.int64),
            sent_to=np.array([to for _, to in o.crossing], dtype=np.int64),
            sent_start=np.array(self.start[n:], dtype=np.int64),
            sent_finish=np.array(finish[n:], dtype=np.int64),
        )

    def _topological(self) -> list[int]:
        left = [len(waits) for waits in self.operations.waits]
        order = [u for u, waits in enumerate(left) if not waits]
        for u in order:
            for v in self._next[u]:
                left[v] -= 1
                if not left[v]:
                    order.append(v)
        rank = [0] * len(order)
        for place, u in enumerate(order):
            rank[u] = place
        return rank

    def _descend(self, last: tuple[int, int, int], done: int) -> None:
        if done == len(self._placed):
            self.start = self._placed.copy()
            self.makespan = max((s + t for s, t in zip(self._placed, self.operations.ticks, strict=True)), default=0)
            return
        ready = self._ready()
        for start, finish, rank, u in ready:
            beaten = any(s < start and f <= start for s, f, _, _ in ready)
            if beaten or (start, finish, rank) < last:
                continue
            if any(s + self._tail[v] >= self.makespan for s, _, _, v in ready):
                return
            if any(self._free[unit] + load >= self.makespan for unit, load in self._load.items() if load):
                return
            self._append(u, (start, finish, rank), done)

    def _ready(self) -> list[tuple[int, int, int, int]]:
        """(start, finish, rank, operation) of each operation that waits for nothing more."""
        o, found = self.operations, []
        for u, waits in enumerate(o.waits):
            if self._placed[u] >= 0 or any(self._placed[v] < 0 for v in waits):
                continue
            arrivals = [self._placed[v] + o.ticks[v] for v in waits]
            start = max([*arrivals, *(self._free[unit] for unit in o.resources[u])], default=0)
            found.append((start, start + o.ticks[u], self._rank[u], u))
        return sorted(found)

    def _append(self, u: int, key: tuple[int, int, int], done: int) -> None:
        held = self.operations.resources[u]
        before = [self._free[unit] for unit in held]
        for unit in held:
            self._free[unit] = key[1]
            self._load[unit] -= self.operations.ticks[u]
        self._placed[u] = key[0]
        self._descend(key, done + 1)
        self._placed[u] = -1
        for unit, free in zip(held, before, strict=True):
            self._free[unit] = free
            self._load[unit] += self.operations.ticks[u]


class _Living(_Search):
    """The same with lives: operations also wait for bytes to go."""

    def __init__(self, problem: Problem, operations: _Operations, makespan: int) -> None:
        super().__init__(operations, makespan)
        self.problem = problem
        self.cells = _cells(problem, operations)
        self.room = problem.capacity.copy()
        np.subtract.at(self.room, problem.location[operations.device], problem.memory)

    def _descend(self, last: tuple[int, int, int], done: int) -> None:
        if done == len(self._placed):
            before = self.start, self.makespan
            self.start = self._placed.copy()
            self.makespan = max((s + t for s, t in zip(self._placed, self.operations.ticks, strict=True)), default=0)
            if check(self.problem, self.schedule()):
                self.start, self.makespan = before
            return
        ready = self._ready()
        # All that is still to come starts when the last did, or later.
        if not self._fits(last[0]) or any(max(s, last[0]) + self._tail[v] >= self.makespan for s, _, _, v in ready):
            return
        if any(max(self._free[unit], last[0]) + load >= self.makespan for unit, load in self._load.items() if load):
            return
        finishes = {s + t for s, t in zip(self._placed, self.operations.ticks, strict=True) if s >= 0 and t}
        for earliest, _, rank, u in ready:
            for start in sorted({earliest, *(f for f in finishes if f > earliest)}):
                key = start, start + self.operations.ticks[u], rank
                if start + self._tail[u] >= self.makespan:
                    break
                if key >= last:
                    self._append(u, key, done)

    def _fits(self, tick: int) -> bool:
        """Whether what is surely alive at a tick fits, where no more starts before it.

        What takes no time may still be at that tick, and so counts for nothing.
        """
        o, level = self.operations, self.room.copy()
        finish = [s + t if s >= 0 else HORIZON * (t > 0) for s, t in zip(self._placed, o.ticks, strict=True)]
        names = self.names = dict(self.cells.names)
        for cell, (target, others) in self.cells.takes.items():
            start = self._placed[self.cells.maker[cell]]
            if start >= 0 and all(finish[u] <= start or not o.ticks[u] for u in others):
                names[cell] = target
        end: dict[int, int] = {}
        for cell, uses in enumerate(self.cells.uses):
            root = cell
            while root in names:
                root = names[root]
            if self._placed[self.cells.maker[cell]] >= 0:
                end[root] = max(end.get(root, 0), *(finish[u] for u in (*uses, self.cells.maker[cell])))
        for cell, last in end.items():
            if self._placed[self.cells.maker[cell]] <= tick < last:
                level[self.cells.place[cell]] -= self.cells.size[cell]
        for u, start in enumerate(self._placed[: len(o.device)]):
            if 0 <= start <= tick < finish[u]:
                level[self.problem.location[o.device[u]]] -= self.problem.lives.scratch[u]
        return bool((level >= 0).all())


def _somehow(p: Problem, placements: Ints) -> bool:
    """Whether anything fits; what fits at all also does one operation at a time. True where some may take no time."""
    timeless = (p.duration == 0).any() or (p.transfer == 0).any()
    return bool(timeless) or any(_OneByOne(p, _operations(p, device)).leads(0) for device in placements)


class _OneByOne(_Living):
    """Every order of a placement, one operation a tick; what was seen is known by what is done and taken over."""

    def __init__(self, problem: Problem, operations: _Operations) -> None:
        super().__init__(problem, replace(operations, ticks=[1] * len(operations.ticks)), HORIZON)
        self.seen: set[tuple[frozenset[int], frozenset[int]]] = set()

    def leads(self, tick: int) -> bool:
        """Whether all that is not placed yet can be, from a tick on."""
        left = [u for u, start in enumerate(self._placed) if start < 0]
        for u in left:
            if any(self._placed[v] < 0 for v in self.operations.waits[u]):
                continue
            self._placed[u] = tick
            if self._fits(tick):
                key = frozenset(left) - {u}, frozenset(self.names)
                new, _ = key not in self.seen, self.seen.add(key)
                if new and self.leads(tick + 1):
                    return True
            self._placed[u] = -1
        return not left


HORIZON = 2**62
"""When what is not placed yet has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """Buffers where they are made, then received copies, in one placement."""

    maker: list[int]
    """Operation that makes each cell."""
    place: list[int]
    size: list[int]
    uses: list[list[int]]
    """Operations that read or send each cell."""
    names: dict[int, int]
    """Cells that are other names of cells."""
    takes: dict[int, tuple[int, list[int]]]
    """Cells that may take over a cell in place, with what else uses its bytes."""


def _cells(p: Problem, o: _Operations) -> _Cells:
    f, at = p.lives, p.location[o.device].tolist()
    maker, place, size = f.maker.tolist(), [at[m] for m in f.maker], f.size.tolist()
    brings = dict(zip(f.read_payload.tolist(), f.read_buffer.tolist(), strict=True))
    number = {(b, at[m], -1): b for b, m in enumerate(maker)}
    uses: list[list[int]] = [[] for _ in maker]
    for k, (payload, to) in enumerate(o.crossing):
        if payload in brings:
            number[brings[payload], to, payload] = len(size)
            uses[brings[payload]].append(p.tasks + k)
            maker, place = [*maker, p.tasks + k], [*place, to]
            size, uses = [*size, size[brings[payload]]], [*uses, []]
    found = []
    for read, by in enumerate(f.read_by.tolist()):
        b = int(f.read_buffer[read])
        apart = at[f.maker[b]] != at[by]
        found.append(number[b, at[by], int(f.read_payload[read]) if apart else -1])
        uses[found[-1]].append(by)
    names = {b: found[r] for b, r in enumerate(f.passes.tolist()) if r >= 0}

    def root(cell: int) -> int:
        return root(names[cell]) if cell in names else cell

    takes = {}
    for b, r in enumerate(f.reuses.tolist()):
        if r >= 0 > f.passes[b] and size[root(found[r])] == size[b]:
            every = [u for cell, used in enumerate(uses) if root(cell) == root(found[r]) for u in used]
            every.remove(int(f.read_by[r]))
            takes[b] = found[r], every
    return _Cells(maker=maker, place=place, size=size, uses=uses, names=names, takes=takes)
