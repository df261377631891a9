"""Processes below a process, and whether they still run, from /proc."""

import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE_S = 600.0
"""Seconds after which a wait gives up, as the machine may be busy: only a hang takes them."""


def descendants(pid: int) -> set[int]:
    """Every process whose chain of parents leads to `pid`."""
    parent = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found, grown = {pid}, True
    while grown:
        more = {p for p, above in parent.items() if above in found} - found
        found, grown = found | more, bool(more)
    return found - {pid}


def alive(pids: Iterable[int]) -> set[int]:
    """Those that have not ended; a zombie has."""
    found = set()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.add(pid)
        except OSError:
            continue
    return found


def gone(*pids: int) -> bool:
    """Whether all end while one waits."""
    until = time.monotonic() + PATIENCE_S
    while alive(pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
