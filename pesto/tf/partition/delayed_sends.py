"""Sends that are delayed so that no tensor arrives long before its use (Tofu, 1807.08887v1, section 5)."""

from dataclasses import dataclass

import numpy as np

from pesto.split.worker_parts import CLONE, REDUCE, SLICE, WorkerParts
from solvers.arrays import Ints, ints

GAP = 32
"""A tensor that is used fewer ops after it was made, along the longest path, is sent at once."""
AHEAD = 4
"""Number of ops before its use, along the longest path, at which a tensor is sent."""


@dataclass(frozen=True, slots=True)
class DelayedSend:
    """A tensor that is sent late."""

    part: int
    output: int
    reader: int
    """The worker that it is sent to."""
    after: int
    """The clone, of that worker, after which it is sent."""


def delayed_sends(parts: WorkerParts, gap: int = GAP, ahead: int = AHEAD) -> tuple[DelayedSend, ...]:
    """What is sent late: each waits for an op that its first reader waits for too, so that no op is held up by it.

    Who is waited for stands before what is sent in the order of the parts, so there is no cycle. Partial results are
    never held back: their sum is less than they are.
    """
    return _DelayedSends(parts, gap, ahead).find()


def levels(parts: WorkerParts) -> tuple[Ints, list[list[int]]]:
    """[p] the number of clones on the longest path to each part, itself with them; and the parts that it waits for."""
    src = np.concatenate([parts.src, parts.control_src])
    dst = np.concatenate([parts.dst, parts.control_dst])
    before: list[list[int]] = [[] for _ in parts.parts]
    for p, i in zip(src.tolist(), dst.tolist(), strict=True):
        before[i].append(p)
    level = [0] * len(parts.parts)
    for i, part in enumerate(parts.parts):
        level[i] = max((level[p] for p in before[i]), default=0) + (part.kind == CLONE)
    return ints(level), before


class _DelayedSends:
    """The parts, with what is derived from them once."""

    def __init__(self, parts: WorkerParts, gap: int, ahead: int) -> None:
        self.parts, self.gap, self.ahead = parts, gap, ahead
        level, self.before = levels(parts)
        self.level = level.tolist()
        self.first = [-1] * len(parts.parts)
        """[p] the first part that reads each."""
        for p, i in zip(parts.src.tolist(), parts.dst.tolist(), strict=True):
            if self.first[p] < 0 or i < self.first[p]:
                self.first[p] = i

    def find(self) -> tuple[DelayedSend, ...]:
        worker = self.parts.place
        step = slice(0, self.parts.for_results)
        src, output, dst = self.parts.src[step], self.parts.output[step], self.parts.dst[step]
        first: dict[tuple[int, int, int], int] = {}
        for at in np.flatnonzero((worker[src] != worker[dst]) & ~self.parts.fed[src]).tolist():
            key = (int(src[at]), int(output[at]), int(worker[dst[at]]))
            first[key] = min(first.get(key, len(worker)), int(dst[at]))
        made = (self._wait(*key, reader) for key, reader in first.items())
        return tuple(wait for wait in made if wait is not None)

    def _wait(self, part: int, output: int, worker: int, reader: int) -> DelayedSend | None:
        """The wait of what `reader` is the first to read on its worker; None where it is soon used."""
        use = reader
        # Slices and joins only move data; the use that matters is the first op that computes with the tensor.
        while self.parts.parts[use].kind not in (CLONE, REDUCE) and self.first[use] >= 0:
            use = self.first[use]
        if self.parts.parts[use].kind != CLONE or self.level[use] - self.level[part] <= self.gap:
            return None
        # What a block is cut from is older than the block; who is sent a part as it is need not be its first reader.
        limit = part if self.parts.parts[part].kind == SLICE else reader
        after = self._ancestor(use, limit)
        if after < 0 or self.level[after] - self.level[part] <= self.gap // 2:
            return None
        return DelayedSend(part, output, worker, after)

    def _ancestor(self, use: int, limit: int) -> int:
        """The clone some ops before a clone on its worker, along the longest path; -1 where there is none."""
        at, worker = use, int(self.parts.place[use])
        while True:
            before = [p for p in self.before[at] if p < limit and self.parts.place[p] == worker]
            if not before:
                return -1
            at = max(before, key=lambda p: self.level[p])
            if self.level[at] <= self.level[use] - self.ahead and self.parts.parts[at].kind == CLONE:
                return at
