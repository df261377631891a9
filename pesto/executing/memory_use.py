"""What processes hold in memory, with all that they have started."""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(roots: Iterable[int]) -> dict[int, int]:
    """Resident bytes of each process and of all below it, added up: pages that they share are counted more than once.

    0 where the system does not tell.
    """
    below, held = defaultdict[int, list[int]](list), dict[int, int]()
    for entry in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208  # names alone
        if entry.isdigit():
            _look(int(entry), below, held)
    return {root: _sum(root, below, held) for root in roots}


def _look(pid: int, below: dict[int, list[int]], held: dict[int, int]) -> None:
    try:
        row = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return
    below[int(row[1])].append(pid)
    held[pid] = int(row[21]) * _PAGE


def _sum(root: int, below: dict[int, list[int]], held: dict[int, int]) -> int:
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        total += held.get(pid, 0)
        todo += below.get(pid, [])
    return total
