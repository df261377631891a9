"""Seconds to coarsen unrolled recurrent networks of growing size, and the exponent of the growth.

`python benchmarks/coarsen.py [TASKS ...]` coarsens a training step of about each number of tasks to 200 nodes.
"""

import sys
import time
from dataclasses import dataclass, field

import numpy as np

from pesto.planning.coarsen import Coarsening, coarsen, contract
from solvers.problem import FORBIDDEN, Problem

HOST, GPU = 0, 1
LATENCY, PER_MB = 40_000, 20_000
"""Ticks (ns) of a transfer, and of each megabyte of it; the NVLink of the paper's box, rounded."""
OPS = 12
"""Small ops of a cell beside its matrix product; the backward cell has twice as many."""


@dataclass(slots=True)
class TaskBuilder:
    """Collects tasks and edges of a problem for a host and `gpus` GPUs."""

    gpus: int = 2
    kind: list[int] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)

    def task(self, inputs: list[int], ticks: int, mb: float, *, kind: int = GPU, group: int = -1) -> int:
        """A new task that reads the outputs of `inputs`, and sends `mb` megabytes to whoever reads it."""
        new = len(self.kind)
        self.kind.append(kind)
        self.ticks.append(ticks)
        self.memory.append(int(mb * 1e6) if group >= 0 else 0)
        self.group.append(group)
        self.size.append(mb)
        self.edges.extend((source, new, source) for source in inputs)
        return new

    def chain(self, inputs: list[int], count: int, extra: list[int]) -> int:
        """`count` element-wise tasks in a row, every fourth of which reads `extra` too."""
        last = self.task(inputs, 8_000, 0.5)
        for k in range(1, count):
            last = self.task([last, *(extra if k % 4 == 0 else [])], 8_000, 0.5)
        return last

    def problem(self) -> Problem:
        """The problem so far; a device for each location, and a link for each ordered pair."""
        n, m = len(self.kind), 1 + self.gpus
        duration = np.full((n, m), FORBIDDEN)
        kind, ticks = np.array(self.kind), np.array(self.ticks)
        duration[kind == HOST, 0] = ticks[kind == HOST]
        duration[kind == GPU, 1:] = ticks[kind == GPU, None]
        src, dst, payload = np.array(self.edges).T
        different = ~np.eye(m, dtype=bool)
        return Problem(
            duration=duration, location=np.arange(m), memory=np.array(self.memory),
            capacity=np.full(m, 1 << 50), src=src, dst=dst, payload=payload, producer=np.arange(n),
            transfer=(LATENCY + np.array(self.size) * PER_MB).astype(np.int64)[:, None],
            path_class=different.astype(np.int64) - 1,
            path_links=np.where(different, np.arange(m * m).reshape(m, m), -1)[:, :, None],
            group=np.array(self.group),
        )  # fmt: skip


def unrolled(layers: int, steps: int, *, gpus: int = 2) -> Problem:
    """A training step of an unrolled LSTM: about 50 tasks a cell; variables and their updates are groups."""
    b = TaskBuilder(gpus=gpus)
    rate, one = b.task([], 0, 0.0), b.task([], 0, 0.0)
    feed = b.task([], 1000, 0.1, kind=HOST)
    weights = [b.task([], 1000, 16.0, group=layer) for layer in range(layers)]
    below = [b.task([b.task([feed], 1000, 0.01, kind=HOST)], 50_000, 0.5) for _ in range(steps)]
    cells = np.zeros((layers, steps), dtype=np.int64)
    for layer in range(layers):
        hidden = b.task([], 0, 0.5)
        for step in range(steps):
            product = b.task([below[step], hidden, weights[layer]], 300_000, 2.0)
            hidden = b.chain([product], OPS, [one])
            below[step] = cells[layer, step] = hidden
    loss = b.chain([b.task([x], 400_000, 0.1) for x in below], 4, [])
    above = [b.task([loss, x], 300_000, 0.5) for x in below]
    for layer in reversed(range(layers)):
        _backward(b, above, cells[layer].tolist(), weights[layer], (layer, rate))
    return b.problem()


def _backward(b: TaskBuilder, above: list[int], cells: list[int], weight: int, update: tuple[int, int]) -> None:
    group, rate = update
    later: list[int] = []
    pieces = []
    for step in reversed(range(len(cells))):
        change = b.chain([above[step], cells[step], *later], 2 * OPS, [])
        product = b.task([change, weight], 300_000, 0.5)
        pieces.append(b.task([change, cells[step]], 300_000, 16.0))
        above[step], later = b.task([product], 8_000, 0.5), [b.task([product], 8_000, 0.5)]
    total = pieces[0]
    for piece in pieces[1:]:
        total = b.task([total, piece], 30_000, 16.0)
    for _ in range(2):
        slot = b.task([], 1000, 16.0, group=group)
        total = b.task([b.task([slot, total, rate], 30_000, 16.0), slot], 30_000, 16.0, group=group)
    b.task([total, weight], 30_000, 0.0, group=group)


def measured(tasks: int, target: int = 200) -> tuple[int, float, float, Coarsening]:
    """(tasks, seconds to coarsen, seconds to coarsening, result) for an LSTM of about that many tasks."""
    layers = max(1, round((tasks / 50 / 4) ** 0.5))
    problem = unrolled(layers, max(1, tasks // (50 * layers)))
    began = time.perf_counter()
    result = coarsen(problem, target)
    done = time.perf_counter()
    contract(problem, result.node_of)
    return problem.tasks, done - began, time.perf_counter() - done, result


def main(sizes: list[int]) -> None:
    """Print one row a size, and the exponent of seconds over tasks."""
    measured(1000)
    rows = []
    for size in sizes:
        tasks, coarsened, contracted, result = measured(size)
        rows.append((tasks, coarsened))
        print(
            f"{tasks:>9} tasks  coarsen {coarsened:7.3f} s  contract {contracted:6.3f} s  {result.nodes} nodes in "
            f"{len(result.rounds)} rounds  largest group {result.largest_group_share:.1%}  {result.reason}"
        )
    if len(rows) > 1:
        x, y = np.log(np.array(rows)).T
        print(f"seconds grow with tasks to the power {np.polyfit(x, y, 1)[0]:.2f}")


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:]] or [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000])
