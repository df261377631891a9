"""A host and unlike GPUs with kernel lanes, on shared links and with tight memory: every feature in one structure."""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints
from solvers.problem import FORBIDDEN, Problem


def heterogeneous(
    rng: np.random.Generator, layers: int, width: int, *, gpus: int = 2, cores: int = 2, transfer: int = 4
) -> Problem:
    """`width` inputs on the host feed `layers` x `width` GPU ops, each launched by a kernel task, and a summary.

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
    parts = _TaskNumbers(inputs=width, ops=layers * width)
    src, dst, payload, producer = _edges(rng, parts, width)
    bytes_held = np.zeros(parts.tasks, dtype=np.int64)
    bytes_held[parts.op] = rng.integers(1, 100, parts.ops)
    dealt = np.bincount(np.arange(parts.ops) % gpus, weights=bytes_held[parts.op], minlength=gpus).astype(np.int64)
    host_or_gpu = np.arange(gpus + 1) > 0
    # Path classes and links: link 0 to and from the host, and one link for each two GPUs.
    places = np.arange(len(host_or_gpu))
    low, high = np.minimum(places[:, None], places), np.maximum(places[:, None], places)
    both = host_or_gpu[:, None] & host_or_gpu
    # Pairs (low, high) of GPUs are numbered 1, 2, ... row by row.
    last = len(host_or_gpu) - 1
    pair = 1 + (low - 1) * last - low * (low - 1) // 2 + (high - low - 1)
    off = low != high
    path_class, path_links = (
        np.where(off, both.astype(np.int64), -1),
        np.where(off, np.where(both, pair, 0), -1)[:, :, None],
    )
    size = rng.integers(min(1, transfer), transfer + 1, len(producer))
    group = np.full(parts.tasks, -1)
    group[parts.op] = group[parts.launch] = np.arange(parts.ops)
    ticks = np.full((parts.tasks, cores + 2 * gpus), FORBIDDEN)
    ticks[: parts.inputs, :cores] = rng.integers(1, 7, (parts.inputs, 1))
    ticks[-1, :cores] = 2
    base = rng.integers(2, 13, (parts.ops, 1))
    slow = np.arange(gpus) % 2 == 1
    ticks[parts.op, cores : cores + gpus] = base + slow * -(-base // 2)
    ticks[parts.launch, cores + gpus :] = 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskNumbers:
    """How tasks are numbered."""

    inputs: int
    ops: int

    @property
    def tasks(self) -> int:
        return self.inputs + 2 * self.ops + 1

    @property
    def op(self) -> Ints:
        return self.inputs + np.arange(self.ops)

    @property
    def launch(self) -> Ints:
        return self.op + self.ops


def _edges(rng: np.random.Generator, parts: _TaskNumbers, width: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Tail, head and payload of each edge, and the producer of each payload; launches send none."""
    op = parts.op
    later = np.repeat(op[width:], 2)
    read = width * ((later - parts.inputs) // width - 1) + parts.inputs + rng.integers(0, width, len(later))
    last = op[-width:]
    data = np.concatenate([np.arange(width), read, last])
    src = np.concatenate([data, parts.launch])
    dst = np.concatenate([op[:width], later, np.full(width, parts.tasks - 1), op])
    payload = np.full(len(src), -1, dtype=np.int64)
    producer, payload[: len(data)] = np.unique(data, return_inverse=True)
    return src, dst, payload, producer
