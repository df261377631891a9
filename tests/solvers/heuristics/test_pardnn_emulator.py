"""The framework's scheduler, emulated: first in, first out."""

import numpy as np
import pytest

from solvers.checker import check
from solvers.heuristics.pardnn.emulator import emulate
from solvers.instances.random import Features, generate
from solvers.problem import Problem


def problem(duration, edges, transfer, devices) -> Problem:
    """Devices at locations of their own, each edge (tail, head) with a payload; one link for all."""
    paths = np.where(np.eye(devices, dtype=bool), -1, 0)
    return Problem(
        duration=np.repeat(np.array(duration)[:, None], devices, axis=1),
        location=np.arange(devices),
        memory=np.zeros(len(duration), dtype=np.int64),
        capacity=np.zeros(devices, dtype=np.int64),
        src=[a for a, _ in edges],
        dst=[b for _, b in edges],
        payload=np.arange(len(edges)),
        producer=[a for a, _ in edges],
        transfer=np.array(transfer, dtype=np.int64)[:, None],
        path_class=paths,
        path_links=paths[:, :, None],
        group=np.full(len(duration), -1),
    )


def test_first_in_first_out():
    """0 frees 2 at time 1, 1 frees 3 at time 2, though 3 is the longer: 2 runs first, then 3, then what 2 freed."""
    p = problem([1, 1, 2, 9, 1], [(0, 2), (1, 3), (2, 4)], [0, 0, 0], 1)
    assert emulate(p, np.zeros(5, dtype=np.int64)).start.tolist() == [0, 1, 2, 4, 13]


def test_arrival_decides_when_a_task_joins():
    """2 waits for 5 ticks of transfer, so 3, freed later, joins device 1 before it; the one link serves 0 first."""
    p = problem([1, 2, 1, 4, 1], [(0, 2), (1, 4), (3, 4)], [5, 2, 0], 2)
    s = emulate(p, np.array([0, 0, 1, 1, 1]))
    assert s.start.tolist() == [0, 1, 6, 0, 8]
    assert sorted(zip(s.sent_payload.tolist(), s.sent_start.tolist(), s.sent_finish.tolist(), strict=True)) == [
        (0, 1, 6),
        (1, 6, 8),
    ]


def test_every_schedule_is_valid_and_served_in_turn():
    """Valid; on each device tasks start in the order in which they became ready, each at once when it is idle."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        features = Features(groups=False, lanes=False, memory=False)
        p = generate(rng, tasks=int(rng.integers(1, 40)), gpus=int(rng.integers(1, 5)), features=features)
        s = emulate(p, np.array([rng.choice(np.flatnonzero(row)) for row in p.allowed]))
        assert check(p, s) == ()
        ready = readiness(p, s)
        for d in range(p.devices):
            tasks = np.flatnonzero(s.device == d)
            tasks = tasks[np.lexsort((ready[tasks], s.finish[tasks], s.start[tasks]))]
            free = np.append(0, s.finish[tasks])[:-1]
            assert (s.start[tasks] == np.maximum(ready[tasks], free)).all()
            lasting = tasks[s.finish[tasks] > s.start[tasks]]
            assert (np.diff(ready[lasting]) >= 0).all()


def readiness(p, s):
    """[n] when the last predecessor has finished and the last payload has arrived."""
    ready = np.zeros(p.tasks, dtype=np.int64)
    sent = dict(zip(zip(s.sent_payload.tolist(), s.sent_to.tolist(), strict=True), s.sent_finish.tolist(), strict=True))
    at = p.location[s.device]
    for a, b, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        crosses = payload >= 0 and at[a] != at[b]
        ready[b] = max(ready[b], sent[payload, int(at[b])] if crosses else s.finish[a])
    return ready


def test_a_bad_placement_is_refused():
    """The task is named."""
    p = problem([1, 1], [], [], 2)
    with pytest.raises(ValueError, match="task 1 is on device 2"):
        emulate(p, np.array([0, 2]))
