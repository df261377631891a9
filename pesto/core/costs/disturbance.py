"""Who else used the processors while something was measured: /proc before and after, and runs that it spoiled."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from pesto.core.errors import NothingFoundError
from pesto.core.files.json import shown

T = TypeVar("T")

WINDOW_S = 0.25
"""Runs are judged together that take so long: /proc counts in hundredths of a second."""
QUIET = 0.05
"""Share of all cores that other programs may use: 0.1 of two cores, as a system at rest does at times."""
PATIENCE = 4
"""Times as many runs as are wanted, until it is given up."""
KEEP = "have disturbed runs kept"
"""Remedy that names `DisturbanceWatch.keep` for callers without an option of that name."""
NAMED = 3
"""Most programs that are named."""
_BUSY = (0, 1, 2, 5, 6, 7)
"""Fields of a line `cpu` of /proc/stat that are no idling: user, nice, system, irq, softirq, steal."""
_OWN, _ENDED = slice(11, 13), slice(13, 15)
"""Fields of /proc/PID/stat behind the name: CPU time of a process, and of its children that have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSnapshot:
    """CPU time that every process has used until a moment."""

    at_s: float
    """Seconds of the clock."""
    busy_s: float
    """CPU seconds of all processors that were not idle, other virtual machines' (steal) among them."""
    own_s: float
    """CPU seconds of this process and its descendants."""
    others: Mapping[int, tuple[str, float]]
    """Name and CPU seconds of all others that can be seen, by process id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoad:
    """Use of the processors by other programs over some time."""

    seconds: float
    """Seconds of the clock."""
    cores: float
    """Cores that they used on average."""
    who: tuple[tuple[str, float], ...]
    """Their names with the cores that each used, the busiest first, as far as /proc shows them."""


def take_snapshot(root: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> CpuSnapshot | None:
    """Return the CPU time used until now; None where there is no /proc, or one that says nothing."""
    try:
        first = (root / "stat").read_text().partition("\n")[0].split()
        ticks = os.sysconf("SC_CLK_TCK")
        busy_s = sum(int(first[1:][k]) for k in _BUSY) / ticks
    except (OSError, ValueError, IndexError):
        return None
    # By process id: name, parent, and CPU seconds of itself and of children that have ended.
    rows: dict[int, tuple[str, int, float, float]] = {}
    for entry in os.listdir(root):  # noqa: PTH208  # of a hundred, in each window
        with suppress(OSError, ValueError, IndexError):  # a process that has gone
            if entry.isdigit():
                # The name stands in brackets and may hold blanks and brackets itself.
                head, _, tail = (root / entry / "stat").read_text(errors="replace").rpartition(")")
                rest = tail.split()
                used, ended = (sum(map(int, rest[part])) / ticks for part in (_OWN, _ENDED))
                rows[int(entry)] = head.partition("(")[2], int(rest[1]), used, ended
    if os.getpid() not in rows:
        return None  # what is busy cannot be told from ourselves
    own = {os.getpid()}
    while more := {pid for pid, (_, parent, _, _) in rows.items() if parent in own} - own:
        own |= more
    return CpuSnapshot(
        at_s=clock(),
        busy_s=busy_s,
        # What a child used is its parent's once it has ended, all at once: of others that would be no use of this time.
        own_s=sum(used + ended for pid, (_, _, used, ended) in rows.items() if pid in own),
        others={pid: (name, used) for pid, (name, _, used, _) in rows.items() if pid not in own},
    )


def load_between(before: CpuSnapshot, after: CpuSnapshot) -> OtherLoad:
    """Return the load of others from one moment to a later one."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    used: dict[str, float] = {}
    for pid, (name, until) in after.others.items():
        # By its number alone: the kernel's own threads change their names.
        _, was = before.others.get(pid, (name, 0.0))
        used[name] = used.get(name, 0.0) + max(until - was, 0.0)
    spent = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return _load(seconds, max(spent, 0.0), used)


def total_load(parts: Iterable[OtherLoad]) -> OtherLoad:
    """Return the load over several stretches of time together."""
    found = list(parts)
    used: dict[str, float] = {}
    for part in found:
        for name, cores in part.who:
            used[name] = used.get(name, 0.0) + cores * part.seconds
    return _load(sum(p.seconds for p in found), sum(p.cores * p.seconds for p in found), used)


def _load(seconds: float, spent_s: float, used: Mapping[str, float]) -> OtherLoad:
    """The load of so many CPU seconds over some time, those of each program the most first."""
    length = max(seconds, 1e-9)
    who = sorted(((name, s / length) for name, s in used.items() if s > 0), key=lambda row: (-row[1], row[0]))
    return OtherLoad(seconds=seconds, cores=spent_s / length, who=tuple(who))


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbanceWatch:
    """Watches for other programs during runs, and decides which runs they disturbed."""

    look: Callable[[], CpuSnapshot | None] = take_snapshot
    """Function that returns the CPU time of every process until now."""
    clock: Callable[[], float] = time.monotonic
    """Clock in seconds, by which a window ends."""
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processors of the machine."""
    keep: bool = False
    """True if disturbed runs count all the same."""

    def disturbed(self, others: OtherLoad) -> bool:
        """Return True if others used more than QUIET of all cores."""
        return others.cores > QUIET * self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRuns(Generic[T]):
    """Measured samples, and the load of others meanwhile."""

    samples: list[T]
    """Values of the runs that count."""
    runs: int
    """Runs altogether."""
    others: OtherLoad | None
    """Load of others during the runs that count; None where nobody says."""

    @property
    def refused(self) -> int:
        """Runs that were disturbed and do not count."""
        return self.runs - len(self.samples)


def run_undisturbed(run: Callable[[], T], count: int, watch: DisturbanceWatch) -> WatchedRuns[T]:
    """Make `count` runs that nobody disturbed, or any where the watch keeps all.

    Runs are judged in windows of WINDOW_S, of one run at least. Raise NothingFoundError, with who was busy, where none
    of the first `count` runs was undisturbed, or not enough of PATIENCE times as many.
    """
    samples: list[T] = []
    calm: list[OtherLoad] = []
    refused: list[OtherLoad] = []
    runs = 0
    before = watch.look()
    while len(samples) < count:
        most = count - len(samples)
        began, made = watch.clock(), [run()]
        while len(made) < most and watch.clock() - began < WINDOW_S:
            made.append(run())
        runs += len(made)
        after = watch.look()
        if before is None or after is None:
            samples += made
            continue
        others = load_between(before, after)
        before = after
        if watch.keep or not watch.disturbed(others):
            samples += made
            calm.append(others)
            continue
        refused.append(others)
        if runs >= PATIENCE * count or (runs >= count and not samples):
            load = total_load(refused)
            raise NothingFoundError.build(
                f"other programs used {load.cores:.2f} of {watch.cores} cores ({list_programs(load.who)}), so that "
                f"only {len(samples)} of {runs} runs count",
                remedy=f"measure when they are at rest, or {KEEP}, which are labelled",
            )
    return WatchedRuns(samples=samples, runs=runs, others=total_load(calm) if calm else None)


def list_programs(who: Iterable[tuple[str, float]]) -> str:
    """Return the busiest programs with their cores, on one line."""
    text = ", ".join(f"{shown(name, 24)} {cores:.2f}" for name, cores in list(who)[:NAMED] if cores >= 0.005)
    return text or "none that /proc shows: another container or virtual machine"
