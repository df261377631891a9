"""What processes hold in memory, with all that they have started."""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(roots: Iterable[int]) -> dict[int, int]:
    """Resident bytes of each process and of all below it, added up: pages that they share are counted more than once.

    0 where the system does not tell.
    """
    below, held = defaultdict[int, list[int]](list), dict[int, int]()
    for entry in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208  # names alone
        if entry.isdigit():
            _collect_processes(int(entry), below, held)
    return {root: _sum_tree(root, below, held) for root in roots}


def usable_memory_bytes() -> int:
    """Return the memory of this machine, or less where control groups (containers, systemd) limit this process."""
    physical = os.sysconf("SC_PHYS_PAGES") * _PAGE
    return min([physical, *_group_limits()])


def _group_limits() -> Iterable[int]:
    """Yield the memory limits of this process's control group and of all above it, in versions 1 and 2 of cgroups."""
    try:
        rows = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for row in rows:
        _, _, rest = row.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        root, name = (_CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (_CGROUPS, "memory.max")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):  # in a container the path may be of the host: its root is there
            with suppress(OSError, ValueError):  # no such group, or "max"
                yield int((folder / name).read_text())
            if folder == root:
                break


def _collect_processes(pid: int, below: dict[int, list[int]], held: dict[int, int]) -> None:
    try:
        row = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return
    below[int(row[1])].append(pid)
    held[pid] = int(row[21]) * _PAGE


def _sum_tree(root: int, below: dict[int, list[int]], held: dict[int, int]) -> int:
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        total += held.get(pid, 0)
        todo += below.get(pid, [])
    return total
