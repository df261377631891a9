"""Boxes of a plan's picture: ops on one device each, with their times, and the edges between them."""

from dataclasses import dataclass

import numpy as np

from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan, refuse_another_graph
from pesto.planning.coarsen import coarsen
from pesto.reporting.explaining.name_scopes import GRADIENT, common_scope, without_scope
from pesto.reporting.show.plan_graph.scope_grouping import group_scopes, heaviest
from solvers import FORBIDDEN, Problem
from solvers.arrays import Bools, Floats, Ints, bools, floats, ints

OP, SCOPE, NODE = BY = ("op", "scope", "node")
"""Kinds of boxes: an op; the ops of one scope on one device; a run of consecutive ops of one device."""
FEW = 60
"""Ops up to which each is a box of its own, where nothing else is asked for."""
_LONGEST = 2**40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boxes:
    """b boxes, e edges between different boxes, each pair of boxes once."""

    by: str
    """One of BY."""
    labels: tuple[str, ...]
    """[b] the op, the scope, or the scope that takes the most of the box's time."""
    devices: tuple[str, ...]
    """Names of the cluster's devices."""
    device: Ints
    """[b] index into `devices`."""
    ops: Ints
    """[b] how many ops."""
    start_s: Floats
    """[b] seconds at which the first op starts that takes time, if one does."""
    finish_s: Floats
    """[b] seconds at which the last of these ends."""
    busy_s: Floats
    """[b] seconds of all ops, one after the other."""
    centre_s: Floats
    """[b] seconds at which half of the work is done: the mean of its ops' middles, by their time."""
    src: Ints
    """[e] tail of each edge."""
    dst: Ints
    """[e] head of each edge."""
    bytes: Floats
    """[e] bytes of the tensors that the head reads of the tail's, each once; 0 of waits alone."""
    first: Bools
    """[e] whether some tensor has its first reader on the head's device there; of waits, by op alone."""
    box_of: Ints
    """[n] box of each op."""

    @property
    def crosses(self) -> Bools:
        """[e] whether an edge leads to another device."""
        return np.asarray(self.device[self.src] != self.device[self.dst], dtype=np.bool_)


def plan_boxes(plan: Plan, graph: Graph, by: str | None = None, limit: int = 200) -> Boxes:
    """The plan in boxes: by default ops where they are few, else scopes where names have them, else nodes.

    most: runs of ops at most, by node; what crosses devices may keep more of them apart. MismatchError when the plan is
    of another graph.
    """
    refuse_another_graph(plan, graph)
    devices = tuple(dict.fromkeys(plan.lane_device))
    device = np.array([devices.index(name) for name in plan.lane_device])[plan.schedule.device]
    by = by or (OP if graph.ops <= FEW else SCOPE if any("/" in name for name in graph.names) else NODE)
    took = plan.schedule.finish - plan.schedule.start
    if by == OP:
        box_of, labels = ints(np.arange(graph.ops)), list(graph.names)
    elif by == SCOPE:
        box_of, labels = group_scopes(graph.names, device, took)
        labels = _shortened(labels, graph.names)
    else:
        # [n] the run of each op; what is done before any time has passed is one run a device.
        later = np.flatnonzero(plan.schedule.finish > 0)
        result = np.full(graph.ops, -1)
        if len(later):
            result[later] = coarsen(_in_order(plan, graph, device, later), limit).node_of
        result[result < 0] = int(result.max(initial=-1)) + 1 + device[result < 0]
        box_of = ints(np.unique(result, return_inverse=True)[1])
        labels = _shortened(heaviest(graph.names, box_of, took), graph.names)
    return _summed(plan, graph, by, (devices, device), (box_of, labels))


def _shortened(labels: list[str], names: tuple[str, ...]) -> list[str]:
    """Scopes without those that all of the model is in; what gradients begin with stays."""
    common = common_scope(names)
    result = []
    for label in labels:
        head = GRADIENT.match(f"{label}/")
        inner = label[head.end() :] if head else label
        result.append((head[0] if head else "") + "/".join(without_scope(inner.split("/"), common)))
    return result


def _in_order(plan: Plan, graph: Graph, device: Ints, ops: Ints) -> Problem:
    """The m ops as they are planned: each on its device alone, after the one before it there.

    Whatever is merged so, without a cycle, is a run of ops of one device.
    """
    m, devices, schedule = len(ops), int(device.max(initial=0)) + 1, plan.schedule
    index = np.full(graph.ops, -1)
    index[ops] = np.arange(m)
    duration = np.full((m, devices), FORBIDDEN)
    duration[np.arange(m), device[ops]] = np.minimum(schedule.finish - schedule.start, _LONGEST)[ops]
    along = ops[np.lexsort((plan.rank[ops], schedule.device[ops]))]
    next_to = schedule.device[along][1:] == schedule.device[along][:-1]
    src = index[np.concatenate([graph.edge_src, along[:-1][next_to]])]
    dst = index[np.concatenate([graph.edge_dst, along[1:][next_to]])]
    payload = np.concatenate([graph.tensor, np.full(len(src) - len(graph.src), -1)])
    kept = (src >= 0) & (dst >= 0)
    there = np.cumsum(index[graph.tensor_op] >= 0) - 1
    sent = graph.tensor_bytes[index[graph.tensor_op] >= 0]
    return Problem(
        duration=duration, location=np.arange(devices), memory=np.zeros(m, np.int64),
        capacity=np.zeros(devices, np.int64), src=src[kept], dst=dst[kept],
        payload=np.where(payload >= 0, np.append(there, -1)[payload], -1)[kept],
        producer=index[graph.tensor_op[index[graph.tensor_op] >= 0]], transfer=np.minimum(sent, _LONGEST)[:, None],
        path_class=-np.eye(devices, dtype=np.int64), path_links=np.full((devices, devices, 0), -1),
        group=np.full(m, -1),
    )  # fmt: skip


def _summed(
    plan: Plan, graph: Graph, by: str, where: tuple[tuple[str, ...], Ints], made: tuple[Ints, list[str]]
) -> Boxes:
    (devices, device), (box_of, labels), count = where, made, len(made[1])
    schedule = plan.schedule
    first, last, own = np.full(count, np.inf), np.zeros(count), np.zeros(count, dtype=np.int64)
    took = (schedule.finish - schedule.start).astype(np.float64)
    busy = np.bincount(box_of, weights=took, minlength=count)
    timed = (took > 0) | (busy[box_of] == 0)
    np.minimum.at(first, box_of[timed], schedule.start[timed])
    np.maximum.at(last, box_of[timed], schedule.finish[timed])
    own[box_of] = device
    weight = took + 1e-3  # boxes of ops that take no time have a centre, too
    middle = np.bincount(box_of, weights=weight * (schedule.start + took / 2), minlength=count)
    src, dst, size, first_read = _edges(plan, graph, device, box_of)
    return Boxes(
        by=by, labels=tuple(labels), devices=devices, device=ints(own), ops=ints(np.bincount(box_of, minlength=count)),
        start_s=floats(first * plan.tick_s), finish_s=floats(last * plan.tick_s), busy_s=floats(busy * plan.tick_s),
        centre_s=floats(middle / np.bincount(box_of, weights=weight, minlength=count) * plan.tick_s),
        src=src, dst=dst, bytes=size, first=first_read, box_of=box_of,
    )  # fmt: skip


def _edges(plan: Plan, graph: Graph, device: Ints, box_of: Ints) -> tuple[Ints, Ints, Floats, Bools]:
    """[e] tail, head, bytes and `Boxes.first` of each pair of different boxes with an edge between them."""
    count, heads = int(box_of.max(initial=-1)) + 1, graph.edge_dst
    tail, head = box_of[graph.edge_src], box_of[heads]
    tensor = np.concatenate([graph.tensor, -1 - np.arange(len(graph.control_src))])
    along = np.lexsort((plan.schedule.start[heads], device[heads], tensor))
    same = (tensor[along][1:] == tensor[along][:-1]) & (device[heads][along][1:] == device[heads][along][:-1])
    first = np.zeros(len(heads), dtype=np.bool_)
    first[along[np.append(True, ~same)[: len(along)]]] = True
    first &= (tensor >= 0) | (count == graph.ops)
    apart = tail != head
    once, which = np.unique(np.stack([tail, head, np.maximum(tensor, -1)])[:, apart], axis=1, return_inverse=True)
    led = np.bincount(which, weights=first[apart], minlength=once.shape[1])
    size = np.where(once[2] >= 0, np.append(graph.tensor_bytes, 0)[once[2]], 0)
    pair, of = np.unique(once[0] * count + once[1], return_inverse=True)
    total = np.bincount(of, weights=size, minlength=len(pair))
    read = np.bincount(of, weights=led, minlength=len(pair)) > 0
    return ints(pair // max(count, 1)), ints(pair % max(count, 1)), floats(total), bools(read)
