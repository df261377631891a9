"""Random problems with random valid schedules, for every test of the solvers."""

import numpy as np
import pytest

from solvers.arrays import Ints
from solvers.compiled.dag import topological_order
from solvers.instances.random import generate
from solvers.problem import Problem
from solvers.schedule import Schedule


def place(rng: np.random.Generator, p: Problem) -> Ints:
    """A random placement within memory and groups; ValueError when chance finds none."""
    device, room, home = np.zeros(p.tasks, dtype=np.int64), p.capacity.copy(), {}
    for task in rng.permutation(p.tasks):
        fits = p.allowed[task] & (room[p.location] >= p.memory[task])
        if p.group[task] >= 0 and int(p.group[task]) in home:
            fits &= p.location == home[int(p.group[task])]
        device[task] = rng.choice(np.flatnonzero(fits))
        home[int(p.group[task])] = int(p.location[device[task]])
        room[p.location[device[task]]] -= p.memory[task]
    return device


def schedule(rng: np.random.Generator, p: Problem) -> Schedule:
    """A random valid schedule: tasks and transfers one after the other on their resources, with idle time at random."""
    device = place(rng, p)
    at, label = p.location[device], rng.permutation(p.tasks)
    start, finish = np.zeros(p.tasks, dtype=np.int64), np.zeros(p.tasks, dtype=np.int64)
    free: dict[str, int] = {}
    sent: dict[tuple[int, int], tuple[int, int]] = {}

    def append(ready: int, ticks: int, resources: list[str]) -> tuple[int, int]:
        begin = max([ready, *(free.get(name, 0) for name in resources)]) + int(rng.integers(0, 3))
        free.update(dict.fromkeys(resources, begin + ticks))
        return begin, begin + ticks

    for task in np.argsort(label)[topological_order(p.tasks, label[p.src], label[p.dst])]:
        ready = [0]
        for edge in np.flatnonzero(p.dst == task):
            src, key = p.src[edge], (int(p.payload[edge]), int(at[task]))
            ready.append(int(finish[src]))
            if key[0] >= 0 and at[src] != at[task] and key not in sent:
                links = [f"link {link}" for link in set(p.path_links[at[src], at[task]].tolist()) - {-1}]
                ticks = int(p.transfer[key[0], p.path_class[at[src], at[task]]])
                sent[key] = append(int(finish[src]), ticks, links)
            ready.append(sent[key][1] if key in sent and at[src] != at[task] else 0)
        start[task], finish[task] = append(max(ready), int(p.duration[task, device[task]]), [str(device[task])])
    rows = np.array([(*key, *times) for key, times in sent.items()], dtype=np.int64).reshape(-1, 4).T
    names = ("sent_payload", "sent_to", "sent_start", "sent_finish")
    return Schedule(device=device, start=start, finish=finish, **dict(zip(names, rows, strict=True)))


@pytest.fixture(scope="session")
def cases() -> list[tuple[Problem, Schedule]]:
    """Random problems of up to 14 tasks and 4 GPUs, each with a valid schedule."""
    found: list[tuple[Problem, Schedule]] = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        p = generate(rng, tasks=int(rng.integers(1, 15)), gpus=int(rng.integers(1, 5)))
        try:
            found.append((p, schedule(rng, p)))
        except ValueError:
            continue
    return found
