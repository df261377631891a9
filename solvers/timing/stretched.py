"""One placement and order under other times: how long its run becomes where each time is multiplied by a factor."""

from collections.abc import Iterable, Sequence

import numpy as np

from solvers.arrays import Floats, Ints, ints
from solvers.problem import MOST
from solvers.timing.loop import (
    LinkState,
    Prepared,
    order_of,
    outbox_for,
    queues_for,
    reset,
    run_queued,
    state_for,
    turned_makespan,
)


def stretched(
    prepared: Prepared, runs: Sequence[tuple[Ints, Ints | None]], factors: Iterable[tuple[Floats, Floats]]
) -> Ints:
    """[k, r] makespans of r runs under k pairs of factors; links first come, first served.

    runs: (device, rank) of each as a strict `replay` takes them, without a deadlock, or with None for the rank as
    `fifo` does, so that each stretched run has an order of its own; nothing is validated. factors: ([n] of each task's
    ticks, on whichever device, and [p, c] of each payload's on a path of each class); products are rounded to the
    nearest tick. ValueError when the ticks add up to more than 64 bits hold. O(k r (n + e) log m).
    """
    made = [_run(prepared, device, rank) for device, rank in runs]
    if not made:
        return ints(np.empty((sum(1 for _ in factors), 0), dtype=np.int64))
    state = state_for(prepared, made[0][0])
    rows: list[list[int]] = []
    for of_task, of_payload in factors:
        sent = np.rint(prepared.transfer * of_payload)
        sending = len(prepared.path_class) * float(sent.max(axis=1, initial=0).sum())
        g = prepared._replace(transfer=ints(_within(sent, sending)))
        rows.append([])
        for device, order, took in made:
            reset(g, state, device)
            ticks = np.rint(took * of_task)
            state.took[:] = _within(ticks, sending + float(ticks.sum()))
            rows[-1].append(_makespan(g, state, device, order))
    return ints(np.array(rows, dtype=np.int64).reshape(-1, len(made)))


def _makespan(g: Prepared, state: LinkState, device: Ints, order: Ints | None) -> int:
    """Return the makespan of a run from a reset `state`, in that order or first in, first out."""
    if order is not None:
        return int(turned_makespan(g, state, device, order, order))
    order = ints(np.arange(len(device)))
    run_queued(g, state, outbox_for(g, state, None), queues_for(g, order, fifo=True), device, order)
    return int(state.finish.max(initial=0))


def _run(g: Prepared, device: Ints, rank: Ints | None) -> tuple[Ints, Ints | None, Ints]:
    """(device, order, ticks) of each task."""
    device = ints(device)
    return device, None if rank is None else order_of(ints(rank)), g.duration[np.arange(len(device)), device]


def _within(ticks: Floats, total: float) -> Ints:
    """Ticks as integers; ValueError where a run could sum up more than 64 bits hold."""
    if total > MOST:
        raise ValueError(f"times add up to {total:.3g} ticks, beyond what 64 bits can add up")
    return ticks.astype(np.int64)
