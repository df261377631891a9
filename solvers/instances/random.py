"""Seeded random problems that exercise every feature of `Problem`, and random orders of their tasks."""

import heapq
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.problem import FORBIDDEN, Problem

_HOST, _GPU, _ANY, _KERNEL = range(4)
_ZERO = 0.15
"""Share of the durations and transfers that are zero, when zeros are on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Features that a random problem may have. One that is off never appears; one that is on appears at random."""

    host: bool = True
    """A host location with a CPU core, CPU-only tasks and tasks that run on either kind."""
    cores: bool = True
    """Up to three cores at the host."""
    lanes: bool = True
    """A kernel lane beside each GPU; kernel tasks, each grouped with the GPU task that it launches."""
    heterogeneous: bool = True
    """Durations that differ between the devices of one kind."""
    holes: bool = True
    """Tasks that cannot run on some device of their kind."""
    groups: bool = True
    """Groups of tasks beside those of the kernel tasks."""
    shared_payloads: bool = True
    """Payloads with several consumers, and tasks with several payloads; off: a payload for each edge."""
    precedence_only: bool = True
    """Edges without a payload."""
    shared_links: bool = True
    """One bus for every pair, or one link for both directions; off: a link for each ordered pair."""
    long_paths: bool = True
    """Paths of two or three links, and paths of none."""
    classes: bool = True
    """True if there are several path classes."""
    memory: bool = True
    """Tasks with memory and capacities that may bind; off: no task occupies anything."""
    zeros: bool = True
    """Durations and transfers of zero ticks."""


EVERYTHING = Features()


def generate(rng: np.random.Generator, *, tasks: int = 8, gpus: int = 2, features: Features = EVERYTHING) -> Problem:
    """Generate a random problem that some placement satisfies, vectorised over `tasks` (>= 0); `gpus` >= 1.

    Locations are the host (where there is one), then the GPUs; devices are the cores, the GPUs and the lanes, in
    this order. Task indices are not a topological order. A hidden placement guides groups and capacities, so both
    can always be met. ValueError when `gpus` < 1 or `tasks` < 0.
    """
    if gpus < 1 or tasks < 0:
        raise ValueError(f"at least 1 GPU and 0 tasks, not {gpus} and {tasks}")
    cores = int(features.host) * (int(rng.integers(1, 4)) if features.cores else 1)
    lanes = gpus * int(features.lanes and rng.random() < 0.5)
    gpu = np.arange(gpus) + int(features.host)
    location = np.concatenate([np.zeros(cores, dtype=np.int64), gpu, gpu[:lanes]])
    device_kind = np.repeat([_HOST, _GPU, _KERNEL], [cores, gpus, lanes])
    locations = int(location.max()) + 1
    kind = rng.choice([_HOST, _GPU, _ANY], tasks, p=[0.2, 0.4, 0.4]) if features.host else np.full(tasks, _GPU)
    # For each kernel task the GPU task that it launches, -1 for the others.
    launches = np.full(tasks, -1, dtype=np.int64)
    pairs = int(rng.integers(0, tasks // 3 + 1)) if lanes else 0
    chosen = rng.permutation(tasks)[: 2 * pairs]
    kind[chosen[:pairs]], kind[chosen[pairs:]], launches[chosen[:pairs]] = _KERNEL, _GPU, chosen[pairs:]
    # A location for each task where it can run, a kernel task with the task that it launches.
    host, gpu = np.unique(location[device_kind == _HOST]), location[device_kind == _GPU]
    anywhere = np.concatenate([host, gpu])
    hidden = gpu[rng.integers(0, len(gpu), len(kind))]
    hidden[kind == _HOST] = 0
    loose = kind == _ANY
    hidden[loose] = anywhere[rng.integers(0, len(anywhere), int(loose.sum()))]
    hidden = np.where(launches >= 0, hidden[launches], hidden)
    src, dst = _edges(rng, kind, launches)
    payload, producer = _payloads(rng, src, kind, features)
    path_class, path_links = _paths(rng, locations, features)
    # The hidden placement fits, when memory is tight by little.
    memory = rng.integers(0, 100, len(hidden)) * int(features.memory)
    needed = np.zeros(locations, dtype=np.int64)
    np.add.at(needed, hidden, memory)
    slack = rng.integers(0, 60, locations) if rng.random() < 0.5 else np.full(locations, int(memory.sum()))
    classes = int(path_class.max(initial=0)) + 1
    return Problem(
        duration=_durations(rng, kind, hidden, (location, device_kind), features),
        location=location,
        memory=memory,
        capacity=needed + slack,
        src=src,
        dst=dst,
        payload=payload,
        producer=producer,
        transfer=_zeroed(rng, rng.integers(1, 9, (len(producer), classes)), features),
        path_class=path_class,
        path_links=path_links,
        group=_groups(rng, hidden, launches, features),
    )


def _edges(rng: np.random.Generator, kind: Ints, launches: Ints) -> tuple[Ints, Ints]:
    """Return random edges along a random order, each kernel task before the task that it launches; some twice."""
    tasks = len(kind)
    rank = rng.permutation(tasks)
    kernel = np.flatnonzero(launches >= 0)
    op = launches[kernel]
    first, last = np.minimum(rank[kernel], rank[op]), np.maximum(rank[kernel], rank[op])
    rank[kernel], rank[op] = first, last
    pairs = rng.integers(0, max(tasks, 1), (int(tasks * rng.uniform(0.5, 2.0)), 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    ahead = rank[pairs[:, 0]] < rank[pairs[:, 1]]
    src = np.where(ahead, pairs[:, 0], pairs[:, 1])
    dst = np.where(ahead, pairs[:, 1], pairs[:, 0])
    return np.concatenate([src, kernel]), np.concatenate([dst, op])


def _payloads(rng: np.random.Generator, src: Ints, kind: Ints, features: Features) -> tuple[Ints, Ints]:
    """Return the payload of each edge and the producer of each payload; a kernel task sends none."""
    carries = kind[src] != _KERNEL
    if features.precedence_only:
        carries &= rng.random(len(src)) < 0.8
    payload = np.full(len(src), -1, dtype=np.int64)
    if not features.shared_payloads:
        payload[carries] = np.arange(carries.sum())
        return payload, src[carries]
    # Two payloads a task, most edges on the first, so that sharing is common.
    output = 2 * src[carries] + (rng.random(int(carries.sum())) < 0.25)
    used, payload[carries] = np.unique(output, return_inverse=True)
    return payload, used // 2


def _paths(rng: np.random.Generator, locations: int, features: Features) -> tuple[Ints, Ints]:
    """Return the class and the links of the path between each two locations."""
    off = ~np.eye(locations, dtype=bool)
    classes = int(rng.integers(1, 4)) if features.classes else 1
    path_class = np.where(off, rng.integers(0, classes, off.shape), -1)
    tail, head = np.nonzero(off)
    links = np.full((locations, locations, 3), -1, dtype=np.int64)
    shape = int(rng.integers(0, 3)) if features.shared_links else 0
    low, high = np.minimum(tail, head), np.maximum(tail, head)
    links[tail, head, 0] = (np.arange(len(tail)), low * locations + high, np.zeros_like(tail))[shape]
    if features.long_paths and rng.random() < 0.5:
        # Ports: what leaves a location, and what enters one, share a link each.
        beyond = int(links.max(initial=-1)) + 1
        links[tail, head, 1] = beyond + tail
        links[tail, head, 2] = np.where(rng.random(len(tail)) < 0.5, beyond + locations + head, -1)
        links[tail, head] = np.where(rng.random((len(tail), 1)) < 0.1, -1, links[tail, head])
    return path_class, links


def _durations(
    rng: np.random.Generator, kind: Ints, hidden: Ints, machine: tuple[Ints, Ints], features: Features
) -> Ints:
    """Return [n, m] ticks, FORBIDDEN where the kinds differ and in the holes, which spare the hidden location."""
    location, device_kind = machine
    base = _zeroed(rng, rng.integers(1, 13, (len(kind), 1)), features)
    ticks = base * np.where(device_kind == _HOST, 3, 1)
    if features.heterogeneous and rng.random() < 0.6:
        varies = rng.integers(0, 2, len(location))
        ticks = _zeroed(rng, ticks + varies * rng.integers(0, 7, ticks.shape), features)
    allowed: Bools = (kind[:, None] == device_kind) | ((kind == _ANY)[:, None] & (device_kind != _KERNEL))
    if features.holes and rng.random() < 0.6:
        allowed &= (hidden[:, None] == location) | (rng.random(ticks.shape) < 0.9)
    return np.where(allowed, ticks, FORBIDDEN)


def _groups(rng: np.random.Generator, hidden: Ints, launches: Ints, features: Features) -> Ints:
    """Return the group of each task: a kernel task with its own, some others with tasks of one hidden location."""
    tasks = len(hidden)
    group = np.full(tasks, -1, dtype=np.int64)
    kernel = np.flatnonzero(launches >= 0)
    group[launches[kernel]] = launches[kernel]
    if features.groups and tasks:
        colours = tasks // 3 + 1
        joins = rng.random(tasks) < rng.choice([0.0, 0.25])
        group[joins] = tasks + hidden[joins] * colours + rng.integers(0, colours, int(joins.sum()))
    group[kernel] = group[launches[kernel]]
    return group


def _zeroed(rng: np.random.Generator, ticks: Ints, features: Features) -> Ints:
    return np.where(rng.random(ticks.shape) < _ZERO, 0, ticks) if features.zeros else ticks


def random_order(problem: Problem, rng: np.random.Generator) -> Ints:
    """Return [n] ranks of a random topological order: of what is ready, the task of the least random number is next."""
    after: list[list[int]] = [[] for _ in range(problem.tasks)]
    for a, b in zip(problem.src.tolist(), problem.dst.tolist(), strict=True):
        after[a].append(b)
    waiting = np.bincount(problem.dst, minlength=problem.tasks).tolist()
    priority = rng.random(problem.tasks).tolist()
    ready = [(priority[i], i) for i in range(problem.tasks) if waiting[i] == 0]
    heapq.heapify(ready)
    rank = np.empty(problem.tasks, dtype=np.int64)
    for position in range(problem.tasks):
        _, i = heapq.heappop(ready)
        rank[i] = position
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, (priority[j], j))
    return rank


def heterogeneous(
    rng: np.random.Generator, layers: int, width: int, *, gpus: int = 2, cores: int = 2, transfer: int = 4
) -> Problem:
    """Return `width` inputs on the host, `layers` x `width` GPU ops, each launched by a kernel task, and a summary.

    Locations are the host and the GPUs; devices `cores` host cores, the GPUs, then a kernel lane beside each GPU
    (Pesto, 3.2). Op (l, i) reads two random ops of layer l - 1, or input i; it waits for its launch, of one tick, which
    is at its location (a group). The summary, on the host, reads the last layer. GPUs 1, 3, ... take half as long
    again as the others. All transfers from and to the host share one link, those between two GPUs (half as long)
    another for each pair. An op occupies 1 to 99 bytes; a GPU holds what it would if the ops were dealt out in turn,
    and a tenth more, so that some placement fits. Tasks are numbered inputs, ops by layer, launches, summary.
    ValueError where there is no layer, op, GPU or core.
    """
    if min(layers, width, gpus, cores) < 1:
        raise ValueError(f"at least 1 layer, op, GPU and core, not {layers}, {width}, {gpus} and {cores}")
    ops, tasks = layers * width, (2 * layers + 1) * width + 1
    op = width + np.arange(ops)
    launch = op + ops
    # Inputs feed the first layer, two random ops of a layer each op of the next, and the last layer the summary; a
    # launch precedes its op, and sends nothing.
    later = np.repeat(op[width:], 2)
    read = width * ((later - width) // width - 1) + width + rng.integers(0, width, len(later))
    data = np.concatenate([np.arange(width), read, op[-width:]])
    src = np.concatenate([data, launch])
    dst = np.concatenate([op[:width], later, np.full(width, tasks - 1), op])
    payload = np.full(len(src), -1, dtype=np.int64)
    producer, payload[: len(data)] = np.unique(data, return_inverse=True)
    bytes_held = np.zeros(tasks, dtype=np.int64)
    bytes_held[op] = rng.integers(1, 100, ops)
    dealt = np.bincount(np.arange(ops) % gpus, weights=bytes_held[op], minlength=gpus).astype(np.int64)
    host_or_gpu = np.arange(gpus + 1) > 0
    # Path classes and links: link 0 to and from the host, and one link for each two GPUs.
    places = np.arange(len(host_or_gpu))
    low, high = np.minimum(places[:, None], places), np.maximum(places[:, None], places)
    both = host_or_gpu[:, None] & host_or_gpu
    # Pairs (low, high) of GPUs are numbered 1, 2, ... row by row.
    last = len(host_or_gpu) - 1
    pair = 1 + (low - 1) * last - low * (low - 1) // 2 + (high - low - 1)
    off = low != high
    path_class = np.where(off, both.astype(np.int64), -1)
    path_links = np.where(off, np.where(both, pair, 0), -1)[:, :, None]
    size = rng.integers(min(1, transfer), transfer + 1, len(producer))
    group = np.full(tasks, -1)
    group[op] = group[launch] = np.arange(ops)
    ticks = np.full((tasks, cores + 2 * gpus), FORBIDDEN)
    ticks[:width, :cores] = rng.integers(1, 7, (width, 1))
    ticks[-1, :cores] = 2
    base = rng.integers(2, 13, (ops, 1))
    slow = np.arange(gpus) % 2 == 1
    ticks[op, cores : cores + gpus] = base + slow * -(-base // 2)
    ticks[launch, cores + gpus :] = 1
    return Problem(
        duration=ticks,
        location=np.concatenate([np.zeros(cores, dtype=np.int64), np.tile(np.arange(1, gpus + 1), 2)]),
        memory=bytes_held,
        capacity=np.append(0, dealt + dealt // 10),
        src=src,
        dst=dst,
        payload=payload,
        producer=producer,
        transfer=np.stack([size, -(-size // 2)], axis=1),
        path_class=path_class,
        path_links=path_links,
        group=group,
    )
