"""A schedule of a chain laid over the step of M micro-batches: a device for each op, and one order of all."""

from typing import NamedTuple

import numpy as np

from pesto.core.micro_batches.step_parts import AFTER, BACKWARD, BEFORE, StepParts
from pesto.core.micro_batches.unrolling import MicroBatched
from pesto.pipelining.step_chain import StepChain
from pesto.pipelining.unrolled import Unrolled
from solvers import Problem
from solvers.arrays import Ints, bools, ints, rank_of
from solvers.compiled.dag import after_all, topological_order
from solvers.heuristics.devices_of_location import devices_at
from solvers.pipelining.chain import BACKWARD as WHOLE
from solvers.pipelining.chain import FORWARD, INPUT_GRADIENT, KINDS, WEIGHT_GRADIENT


class OncePlacement(NamedTuple):
    """Where what is done once for all batches is."""

    device: Ints
    """[L] the device of each layer's variables."""
    sums: bool = False
    """True if gradients are added up there, and not where they are made."""


def map_schedule(
    step: MicroBatched, parts: StepParts, chain: StepChain, schedule: tuple[OncePlacement, Unrolled], problem: Problem,
    accelerators: Ints,
) -> tuple[Ints, Ints]:  # fmt: skip
    """([n'] device, [n'] rank) of the step's ops: blocks in the order of the schedule, ops inside as they follow.

    Variables and their updates are on the device of their layer, a sum where its gradient is made, or with its
    variable. What is of a batch is where its block is done. Updates come last, or, where they are of a batch,
    in its backward block.
    """
    return op_devices(step, parts, chain, schedule, problem, accelerators), _rank(
        step, parts, chain, schedule[1], problem
    )


def op_devices(
    step: MicroBatched, parts: StepParts, chain: StepChain, schedule: tuple[OncePlacement, Unrolled], problem: Problem,
    accelerators: Ints,
) -> Ints:  # fmt: skip
    """[n'] the device of each op, as `map_schedule` has it."""
    homes, run = schedule
    part, batch = parts.part[step.op], np.maximum(step.batch, 0)
    blocks = np.zeros((chain.chain.layers, run.batches), dtype=np.int64)
    done = run.kind == FORWARD
    blocks[run.layer[done], run.batch[done]] = run.resource[done]
    own = (step.batch >= 0) & (part != BEFORE) & ((part != AFTER) | step.sums) & ~(step.sums & homes.sums)
    home = chain.home[step.op]
    at = np.where(own, blocks[home, batch], homes.device[home])
    # [n'] the location of each group's variable, or first op, for all of the group.
    location = accelerators[at]
    grouped = np.flatnonzero(problem.group >= 0)
    held = step.graph.param_bytes[grouped] > 0
    listed = grouped[np.argsort(~held, kind="stable")]
    group, first = np.unique(problem.group[listed], return_index=True)
    of = np.zeros(int(problem.group.max(initial=-1)) + 1, dtype=np.int64)
    of[group] = location[listed[first]]
    result = location.copy()
    result[grouped] = of[problem.group[grouped]]
    together = ints(result)
    return devices_at(problem, together)


def _rank(step: MicroBatched, parts: StepParts, chain: StepChain, run: Unrolled, problem: Problem) -> Ints:
    """[n'] places in one order of all ops."""
    start = np.full((len(KINDS), chain.chain.layers, run.batches), run.step, dtype=np.int64)
    start[run.kind, run.layer, run.batch] = run.start
    split = bool((run.kind == WEIGHT_GRADIENT).any())
    part = parts.part[step.op]
    kind = np.where(part == BACKWARD, WHOLE, FORWARD)
    if split:
        apart = np.where(chain.weight[step.op], WEIGHT_GRADIENT, INPUT_GRADIENT)
        kind = np.where(step.sums, WEIGHT_GRADIENT, np.where(part == BACKWARD, apart, kind))
    key = start[kind, chain.layer[step.op], np.maximum(step.batch, 0)]
    each = (part == AFTER) & (step.batch >= 0) & (step.updates_each > 0)
    key = 2 * key
    if step.updates_each:
        updates = _updates(run, start[WHOLE], apart=step.updates_each > 1)
        key = np.where(each, updates[chain.home[step.op], np.maximum(step.batch, 0)], key)
    last = (part == AFTER) & ~step.sums & ~each
    key = np.where(last, 2 * run.step, np.where(part == BEFORE, -1, key))
    order = topological_order(problem.tasks, problem.src, problem.dst)
    key = after_all(order, problem.src, problem.dst, ints(key))
    if step.updates_each:
        # [n'] keys; what is done `once` comes right before the first op that needs it: versions of weights are held.
        once = bools(part == BEFORE)
        by = np.argsort(problem.src, kind="stable")
        first = np.searchsorted(problem.src[by], np.arange(problem.tasks + 1))
        result = key.copy()
        for op in order[::-1].tolist():
            if once[op] and first[op] < first[op + 1]:
                result[op] = result[problem.dst[by[first[op] : first[op + 1]]]].min()
        key = ints(result)
    return rank_of(ints(np.lexsort((rank_of(order), key))))


def _updates(run: Unrolled, start: Ints, *, apart: bool) -> Ints:
    """[L, M] twice the start of each update's backward half in `start` [L, M].

    apart: of the last backward half of its batch on its device instead, and behind that, so that gradients on their way
    to other devices do not wait for updates; until then the sums over several batches are held anyway.
    """
    if not apart:
        return ints(2 * start)
    done = run.kind == WHOLE
    device = np.zeros(start.shape, dtype=np.int64)
    device[run.layer[done], run.batch[done]] = run.resource[done]
    latest = np.zeros((int(device.max()) + 1, run.batches), dtype=np.int64)
    np.maximum.at(latest, (run.resource[done], run.batch[done]), run.start[done])
    return ints(2 * latest[device, np.arange(run.batches)] + 1)
