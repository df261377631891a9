"""A run first in, first out is the strict replay of the order in which it served what ended, to the tick."""

from dataclasses import replace

import numpy as np

from pesto.core.simulator import simulate
from solvers.checker import check
from solvers.instances.random import generate
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.timing.replay import fifo, first_come, replay


def tied(seed: int) -> tuple[Problem, np.ndarray]:
    """Up to 39 tasks whose times and transfers are 0, 1 or 2 ticks, so that many end in one, and a device for each."""
    rng = np.random.default_rng(seed)
    p = generate(rng, tasks=int(rng.integers(5, 40)), gpus=int(rng.integers(1, 4)))
    duration = np.where(p.duration == FORBIDDEN, FORBIDDEN, p.duration % 3)
    p = replace(p, duration=duration, transfer=p.transfer % 3)
    return p, np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed])


def times(s: Schedule) -> list[object]:
    """Starts and finishes of tasks, and all transfers in an order of their own."""
    sent = sorted(zip(s.sent_payload, s.sent_to, s.sent_start, s.sent_finish, strict=True))
    return [s.start.tolist(), s.finish.tolist(), sent]


def test_the_replay_of_what_was_served_is_the_same_run() -> None:
    """300 problems with many ends a tick; the plain simulator agrees, and nothing is wrong with the schedules."""
    for seed in range(300):
        p, device = tied(seed)
        schedule, rank = first_come(p, device)
        assert sorted(rank.tolist()) == list(range(p.tasks)), seed
        assert times(fifo(p, device)) == times(schedule), seed
        assert times(replay(p, device, rank)) == times(schedule), seed
        assert times(simulate(p, device, rank).schedule) == times(schedule), seed
        assert not [v for v in check(p, schedule) if v.kind not in ("group", "memory")], seed
