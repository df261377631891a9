"""Bytes alive over time, against an oracle that counts them tick by tick."""

from dataclasses import replace

import numpy as np
import pytest
from footprints import footprint_for

from solvers.footprint import Footprint
from solvers.instances.random import generate
from solvers.memory.peaks import gauge, peaks
from solvers.memory.usage import over_time, usage
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.replay import replay


class Slow:
    """The rules of `Footprint`, read one by one: cells of bytes with who uses them until when."""

    def __init__(self, p: Problem, f: Footprint, s: Schedule) -> None:
        self.p, self.f, self.s = p, f, s
        self.at = p.location[s.device].tolist()
        self.begin: dict[tuple, int] = {}
        self.uses: dict[tuple, list[tuple[int, object]]] = {}
        self.bytes: dict[tuple, int] = {}
        self.alias: dict[tuple, tuple] = {}
        for b, maker in enumerate(f.maker.tolist()):
            self._open(("made", b), int(s.start[maker]), int(f.size[b]))
            self._use(("made", b), int(s.finish[maker]), None)
        for k, payload in enumerate(s.sent_payload.tolist()):
            read = np.flatnonzero(f.read_payload == payload)
            if len(read):
                b = int(f.read_buffer[read[0]])
                self._open(("copy", payload, int(s.sent_to[k])), int(s.sent_start[k]), int(f.size[b]))
                self._use(("made", b), int(s.sent_finish[k]), ("send", k))
                self._use(("copy", payload, int(s.sent_to[k])), int(s.sent_finish[k]), None)
        for r, task in enumerate(f.read_by.tolist()):
            self._use(self.cell(r), int(s.finish[task]), ("read", r))
        for b in np.flatnonzero(f.passes >= 0).tolist():
            self.alias["made", b] = self.cell(int(f.passes[b]))
        for b in sorted(np.flatnonzero((f.reuses >= 0) & (f.passes < 0)).tolist(), reverse=True):
            self._reuse(b)

    def _open(self, cell, begin, size):
        self.begin[cell], self.bytes[cell], self.uses[cell] = begin, size, []

    def _use(self, cell, until, who):
        self.uses[cell].append((until, who))

    def cell(self, r):
        """What a read finds."""
        b, task = int(self.f.read_buffer[r]), int(self.f.read_by[r])
        here = self.at[task]
        return ("made", b) if self.at[int(self.f.maker[b])] == here else ("copy", int(self.f.read_payload[r]), here)

    def root(self, cell, names):
        while cell in names:
            cell = names[cell]
        return cell

    def _reuse(self, b):
        """A buffer takes over what it may reuse if nobody else has a use for it when its maker starts."""
        read, start = int(self.f.reuses[b]), int(self.s.start[self.f.maker[b]])
        names = {c: o for c, o in self.alias.items() if self.f.passes[c[1]] >= 0}
        target = self.root(self.cell(read), names)
        if self.bytes[target] != self.f.size[b]:
            return
        for cell, uses in self.uses.items():
            if self.root(cell, names) == target:
                others = [until for until, who in uses if who is not None and who != ("read", read)]
                if any(until > start for until in others):
                    return
        if any(self.f.passes[c[1]] < 0 and self.root(o, names) == target for c, o in self.alias.items()):
            return
        self.alias["made", b] = self.cell(read)

    def level(self, location, tick):
        """Bytes alive at one location and tick."""
        f, s = self.f, self.s
        end: dict[tuple, int] = {}
        for cell, uses in self.uses.items():
            top = self.root(cell, self.alias)
            end[top] = max(end.get(top, 0), *(until for until, _ in uses))
        total = sum(int(f.static[i]) for i in range(self.p.tasks) if self.at[i] == location)
        for i in range(self.p.tasks):
            if self.at[i] == location and s.start[i] <= tick < s.finish[i]:
                total += int(f.scratch[i])
        for cell, last in end.items():
            place = self.at[int(f.maker[cell[1]])] if cell[0] == "made" else cell[2]
            if place == location and self.begin[cell] <= tick < last:
                total += self.bytes[cell]
        return total


def test_equals_what_is_counted_tick_by_tick(cases) -> None:
    """Random valid schedules of random problems: the level at every tick, the peak, and who is alive at it.

    The slow reading shares no code: cells of bytes in dicts, names followed one at a time, levels summed anew each
    tick. Copies, scratch and static bytes occur, and at least 50 names of other buffers and as many in-place writes.
    """
    rng, shared, taken = np.random.default_rng(3), 0, 0
    for p, s in cases:
        f = footprint_for(rng, p)
        slow, found = Slow(p, f, s), usage(p, f, s)
        shared += sum(f.passes[c[1]] >= 0 for c in slow.alias)
        taken += sum(f.passes[c[1]] < 0 for c in slow.alias)
        last = max([s.makespan, *s.sent_finish.tolist()])
        curves = over_time(p, f, s)
        for location in range(p.locations):
            levels = [slow.level(location, tick) for tick in range(last + 1)]
            ticks, level = curves[location]
            there = np.searchsorted(ticks, np.arange(last + 1), side="right") - 1
            assert level[there].tolist() == levels
            assert found.peak[location] == max(levels) == levels[found.when[location]]
            mine = p.location[s.device] == location
            assert ticks[0] == 0
            assert (np.diff(ticks) > 0).all()
            assert found.static[location] == f.static[mine].sum()
    assert min(shared, taken) > 50


def test_who_is_alive_sums_to_the_peak(cases) -> None:
    """Every byte of a peak belongs to a task: summed over all, the charges are the sum of all peaks."""
    rng = np.random.default_rng(4)
    for p, s in cases[:100]:
        found = usage(p, footprint_for(rng, p), s)
        assert found.alive.sum() == found.peak.sum()


def chain(sizes, reads, *, locations=(0, 0, 0, 0), ticks=1, **columns):
    """A footprint of one buffer a task on tasks 0, 1, ... that take `ticks` each, run one after the other."""
    n = len(sizes)
    src, dst = (np.array([r[k] for r in reads], dtype=np.int64) for k in (0, 1))
    p = Problem(
        duration=np.full((n, 2), ticks), location=[0, 1], memory=np.zeros(n, dtype=np.int64), capacity=[10**6] * 2,
        src=src, dst=dst, payload=src, producer=np.arange(n), transfer=np.full((n, 1), 1),
        path_class=[[-1, 0], [0, -1]], path_links=np.array([[[-1], [0]], [[1], [-1]]]), group=np.full(n, -1),
    )  # fmt: skip
    f = Footprint(
        static=np.zeros(n, dtype=np.int64), size=sizes, maker=np.arange(n), read_buffer=src, read_by=dst,
        read_payload=src, **{"passes": np.full(n, -1), **columns},
    )  # fmt: skip
    return p, f, replay(p, np.array(locations[:n]), np.arange(n))


def test_scratch_is_there_only_while_its_task_runs() -> None:
    """a makes 10 and needs 5 for it, b makes 1 of a and needs 7: 15 in the first tick, 10 + 1 + 7 in the second."""
    p, f, s = chain([10, 1], [(0, 1)], scratch=[5, 7])
    assert over_time(p, f, s)[0][1].tolist() == [15, 18, 0]


@pytest.mark.parametrize(
    ("reads", "first", "peak"),
    [
        ([(0, 1)], 0, 10),
        ([(0, 1), (0, 2)], 0, 20),
        ([(0, 1), (0, 1)], 0, 20),
    ],
)
def test_the_last_reader_may_write_in_place(reads, first, peak) -> None:
    """b (10) of a (10): in place if b alone still reads a; not if c reads it later, nor if b reads it twice."""
    p, f, s = chain([10, 10, 0], reads, reuses=[-1, first, -1])
    assert usage(p, f, s).peak[0] == peak


def test_what_is_not_as_large_is_not_taken_over() -> None:
    """b makes 9 of a's 10: another buffer."""
    p, f, s = chain([10, 9], [(0, 1)], reuses=[-1, 0])
    assert usage(p, f, s).peak[0] == 19


def test_a_received_copy_is_taken_over_where_it_lies() -> None:
    """b at the other location writes into its copy of a's 10 bytes; c, at home, still reads a."""
    p, f, s = chain([10, 10, 0], [(0, 1), (0, 2)], locations=(0, 1, 0), reuses=[-1, 0, -1])
    assert usage(p, f, s).peak.tolist() == [10, 10]


def test_a_payload_of_no_read_brings_nothing() -> None:
    """Task 0's payload goes to the other location for order's sake; no buffer is copied there."""
    p, f, s = chain([10, 3], [(0, 1)], locations=(0, 1))
    empty = np.zeros(0, dtype=np.int64)
    silent = Footprint(
        static=f.static, size=f.size, maker=f.maker, passes=f.passes, read_buffer=empty, read_by=empty,
        read_payload=empty,
    )  # fmt: skip
    assert usage(p, f, s).peak.tolist() == [10, 13]
    assert usage(p, silent, s).peak.tolist() == [10, 3]


def test_wrong_columns_are_refused() -> None:
    """A name of another task's read, an index beyond the end, a column too short, negative bytes."""
    for columns, message in (
        ({"passes": [0, -1]}, "passes: buffer 0 names a read of another task"),
        ({"reuses": [-1, 5]}, "reuses points at nothing"),
        ({"scratch": [1]}, "scratch has 1 entries, expected 2"),
        ({"scratch": [1, -1]}, "scratch must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            chain([10, 3], [(0, 1)], **columns)


def test_a_schedule_that_lacks_a_transfer_is_refused() -> None:
    """Reader and maker apart, and nothing sent: no bytes are invented."""
    p, f, s = chain([10, 3], [(0, 1)])
    apart = Schedule(
        device=[0, 1], start=s.start, finish=s.finish, sent_payload=[], sent_to=[], sent_start=[], sent_finish=[]
    )
    with pytest.raises(ValueError, match="does not bring buffer 0 to read 0"):
        usage(p, f, apart)


@pytest.mark.parametrize("sent", [[], [0]])
@pytest.mark.parametrize(("payload", "message"), [(-1, "does not bring buffer 0 to read 0"), (7, "points at nothing")])
def test_a_read_without_a_payload_is_refused_where_it_is_apart(sent, payload, message) -> None:
    """Reader and maker apart, and no payload of the problem to bring the buffer, whether or not something was sent."""
    p, f, s = chain([10, 3], [(0, 1)], locations=(0, 1))
    f = replace(f, read_payload=[payload])
    s = replace(s, **{name: getattr(s, name)[: len(sent)] for name in ("sent_payload", "sent_to")},
                **{name: getattr(s, name)[: len(sent)] for name in ("sent_start", "sent_finish")})  # fmt: skip
    with pytest.raises(ValueError, match=message):
        usage(p, f, s)


def test_random_problems_have_peaks_at_least_as_large_as_what_is_static() -> None:
    """And at most as large as everything together."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        p = generate(rng, tasks=60, gpus=3)
        f = footprint_for(rng, p)
        device = p.allowed.argmax(axis=1)
        found = usage(p, f, replay(p, device, np.zeros(p.tasks, dtype=np.int64), strict=False))
        assert (found.peak >= found.static).all()
        assert found.peak.sum() <= f.static.sum() + p.locations * f.size.sum() + f.scratch.sum()


def test_compiled_peaks_are_those_of_usage(cases) -> None:
    """Random schedules, large ones of the event loop too: the peak of every location, with all kinds of sharing."""
    rng, held = np.random.default_rng(5), 0
    large = [generate(rng, tasks=200, gpus=3) for _ in range(20)]
    ran = [replay(p, p.allowed.argmax(axis=1), rng.integers(0, 9, p.tasks), strict=False) for p in large]
    for p, s in [*cases, *zip(large, ran, strict=True)]:
        f = footprint_for(rng, p)
        found = usage(p, f, s).peak
        assert peaks(gauge(p, f), s).tolist() == found.tolist()
        held += int(found.max(initial=0) > 0)
    assert held > 50


def test_compiled_peaks_stay_right_where_times_are_large() -> None:
    """The sort looks at all digits: a's 10 bytes and b's 3, as in short schedules, at ticks of 40 bits."""
    p, f, s = chain([10, 3], [(0, 1)], locations=(0, 1), ticks=2**40)
    assert peaks(gauge(p, f), s).tolist() == [10, 13]


def test_compiled_peaks_refuse_what_usage_refuses() -> None:
    """A read that nothing is brought to, a payload that does not exist, names in a cycle."""
    p, f, s = chain([10, 3], [(0, 1)])
    apart = replace(s, device=[0, 1])
    with pytest.raises(ValueError, match="does not bring buffer 0 to read 0"):
        peaks(gauge(p, f), apart)
    with pytest.raises(ValueError, match="points at nothing"):
        gauge(p, replace(f, read_payload=[7]))
    round_trip = Footprint(
        static=f.static, size=f.size, maker=f.maker, passes=[0, 1], read_buffer=[1, 0], read_by=[0, 1],
        read_payload=[-1, -1],
    )  # fmt: skip
    for refuses in (lambda: peaks(gauge(p, round_trip), s), lambda: usage(p, round_trip, s)):
        with pytest.raises(ValueError, match="cycle"):
            refuses()
