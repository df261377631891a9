"""The coarse problem: members summed, edges deduplicated, payloads that go the same way bundled."""

import numpy as np

from solvers import FORBIDDEN, Problem
from solvers.arrays import Ints
from solvers.compiled.dag import connected
from solvers.compiled.kernels import kernel

_SEED = 0x5EED
"""Of the random words that stand for nodes in the hash of a set of consumers."""


def contract(problem: Problem, node_of: Ints) -> Problem:
    """The problem over the nodes of a partition; `node_of` is [n], values 0..k-1, each used.

    Durations and memory are sums, a device is forbidden if it is to any member. Nodes that hold tasks of one group
    form a group. Payloads of one producing node to the same set of other nodes are one payload, whose transfer is the
    sum of theirs; a payload that stays inside its node is dropped. Precedence alone remains where no payload goes.
    ValueError when `node_of` does not fit or the quotient has a cycle.
    """
    count = int(node_of.max(initial=-1)) + 1
    if len(node_of) != problem.tasks or (np.bincount(node_of, minlength=count) == 0).any():
        raise ValueError(f"node_of must give each of {problem.tasks} tasks one of 0..k-1 and use each of these")
    fine, node = _distinct(problem, node_of, count)
    bundle, kept = _bundles(node_of[problem.producer], fine, node, count)
    chosen = kept[bundle[fine]] == fine
    src, dst = node_of[problem.producer[fine[chosen]]], node[chosen]
    bare_src, bare_dst = _bare(problem, node_of, src * count + dst, count)
    sent = bundle >= 0
    total = np.zeros((count, problem.devices), dtype=np.int64)
    _add_durations(problem.duration, node_of, total)
    return Problem(
        duration=total,
        location=problem.location,
        memory=_sums(node_of, problem.memory, count),
        capacity=problem.capacity,
        src=np.concatenate([src, bare_src]),
        dst=np.concatenate([dst, bare_dst]),
        payload=np.concatenate([bundle[fine[chosen]], np.full(len(bare_src), -1)]),
        producer=node_of[problem.producer[kept]],
        transfer=_sums(bundle[sent], problem.transfer[sent], len(kept)),
        path_class=problem.path_class,
        path_links=problem.path_links,
        group=_groups(problem.group, node_of, count),
    )


def _distinct(problem: Problem, node_of: Ints, count: int) -> tuple[Ints, Ints]:
    """Pairs (payload, node that consumes it), each once, by payload; without the producer's own node."""
    carries = problem.payload >= 0
    payload, node = problem.payload[carries], node_of[problem.dst[carries]]
    leaves = node != node_of[problem.src[carries]]
    return _split(np.unique(payload[leaves] * count + node[leaves]), count)


def _bundles(producer: Ints, fine: Ints, node: Ints, count: int) -> tuple[Ints, Ints]:
    """(coarse payload of each fine one or -1, first fine payload of each coarse one).

    A set of consumers is known by its size and two independent sums of 64 random bits a node: two different sets agree
    with a probability of 2^-128.
    """
    words = np.random.default_rng(_SEED).integers(0, 2**64, size=(count, 2), dtype=np.uint64)
    digest = np.zeros((len(producer), 2), dtype=np.uint64)
    np.add.at(digest, fine, words[node])
    size = np.bincount(fine, minlength=len(producer))
    sent = np.flatnonzero(size)
    order = sent[np.lexsort((digest[sent, 1], digest[sent, 0], size[sent], producer[sent]))]
    keys = (producer, size, digest[:, 0], digest[:, 1])
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    bundle = np.full(len(producer), -1, dtype=np.int64)
    bundle[order] = np.cumsum(new) - 1
    return bundle, order[new]


def _bare(problem: Problem, node_of: Ints, carried: Ints, count: int) -> tuple[Ints, Ints]:
    """Pairs of nodes joined by precedence alone; `carried` are the pairs, as src * count + dst, joined by a payload."""
    src, dst = node_of[problem.src], node_of[problem.dst]
    bare = (problem.payload < 0) & (src != dst)
    return _split(np.setdiff1d(src[bare] * count + dst[bare], carried), count)


def _split(pair: Ints, count: int) -> tuple[Ints, Ints]:
    first, second = np.divmod(pair, max(1, count))
    return first, second


@kernel
def _add_durations(duration: Ints, node_of: Ints, total: Ints) -> None:
    for task in range(len(node_of)):
        node = node_of[task]
        for device in range(total.shape[1]):
            ticks = duration[task, device]
            if ticks == FORBIDDEN or total[node, device] == FORBIDDEN:
                total[node, device] = FORBIDDEN
            else:
                total[node, device] += ticks


def _groups(group: Ints, node_of: Ints, count: int) -> Ints:
    """[count] groups of the nodes: those connected by a fine group, numbered by their first node; -1 for none."""
    held = group >= 0
    groups = int(group.max(initial=-1)) + 1
    root = connected(count + groups, node_of[held], count + group[held])[:count]
    grouped = np.zeros(count, dtype=bool)
    grouped[node_of[held]] = True
    result = np.full(count, -1, dtype=np.int64)
    result[grouped] = np.unique(root[grouped], return_inverse=True)[1]
    return result


def _sums(label: Ints, values: Ints, count: int) -> Ints:
    total = np.zeros((count, *values.shape[1:]), dtype=np.int64)
    np.add.at(total, label, values)
    return total
