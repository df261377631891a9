"""The part of a plan's order that each way of running a step keeps, the step time predicted for it, and its worth."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.files.json import quoted, shown
from pesto.core.graph import BOUND, FREE, FUNCTION, SESSION, SHARED, Graph
from pesto.core.problem import TICK_S, copied_constants
from pesto.core.quantities import duration
from pesto.core.simulator import Timeline, simulate
from solvers import Problem
from solvers.arrays import Bools, Ints, bools, ints, rank_of
from solvers.timing.replay import bottom_levels, fifo, prepare, replay

# A problem in which what some tasks send leaves through tasks of no time, which can have a place in an order.


def relay_edges(problem: Problem, device: Ints, free: Bools, passable: Bools) -> Bools:
    """[e] edges whose payload a relay sends: to another location, where a task that is not `free` reads it.

    device, free, passable: [n] of each task; a relay can stand for what the passable send. What is free at that
    location and reads the same gets it then, too.
    """
    src, dst, at = problem.src, problem.dst, problem.location[device]
    sent = (problem.payload >= 0) & passable[src] & (at[src] != at[dst])
    key = problem.payload * problem.locations + at[dst]
    return bools(sent & np.isin(key, key[sent & ~free[dst]]))


def add_relays(problem: Problem, relayed: Bools) -> tuple[Problem, Ints]:
    """`problem` with relays behind its n tasks, which send what the edges of `relayed` [e] carry; [k] whose they are.

    Each waits for its task. It needs no memory, and is of no group.
    """
    task, of_edge = np.unique(problem.src[relayed], return_inverse=True)
    passed, what = np.unique(problem.payload[relayed], return_inverse=True)
    n, k = problem.tasks, len(task)
    src, payload = problem.src.copy(), problem.payload.copy()
    src[relayed], payload[relayed] = n + of_edge, problem.payloads + what
    none = np.zeros(k, dtype=np.int64)
    relayed_problem = replace(
        problem,
        duration=np.concatenate([problem.duration, np.zeros((k, problem.devices), dtype=np.int64)]),
        memory=np.concatenate([problem.memory, none]),
        src=np.concatenate([src, task]),
        dst=np.concatenate([problem.dst, n + np.arange(k)]),
        payload=np.concatenate([payload, none - 1]),
        producer=np.concatenate([problem.producer, n + np.searchsorted(task, problem.producer[passed])]),
        transfer=np.concatenate([problem.transfer, problem.transfer[passed]]),
        group=np.concatenate([problem.group, none - 1]),
    )
    return relayed_problem, ints(task)


GRAPHDEF, PLACEMENT = "graphdef", "placement"
EXECUTION_MODES = (SESSION, FUNCTION, GRAPHDEF, PLACEMENT)
"""Ways in which TensorFlow runs a step by a plan: in a v1 session, as a tf.function, as a GraphDef that `pesto apply`
wrote, and without the order."""
LOSS = 0.01
"""Share of the plan's step from which on what a way of running costs is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePrediction:
    """A plan's step in one way of running, with the part of the order that is enforced; modelled, nothing is run."""

    way: str
    """session, function, graphdef or placement."""
    planned_s: float
    """Seconds of the step in the plan's order."""
    makespan_s: float
    """Seconds of the step in the order that is enforced."""
    ops: int
    """Ops of the step."""
    outside: int
    """Ops that have no place in the order that is enforced."""

    @property
    def loss(self) -> float:
        """Share of the plan's step that it takes more; below 0 where it takes less."""
        return self.makespan_s / self.planned_s - 1.0 if self.planned_s else 0.0

    def __str__(self) -> str:
        """Describe the predicted step time and its cause in one line."""
        what = f"{duration(self.makespan_s)} ({self.loss:+.2%})"
        return f"{what}: {self.outside} of {self.ops} ops have no place in the order"


def unordered_ops(graph: Graph, way: str) -> Bools:
    """[n] ops that have no place in a chain; an `Identity` that has one may send what they make (`relayed_edges`)."""
    if way == PLACEMENT:
        return bools(np.ones(graph.ops, dtype=np.bool_))
    return bools(graph.loose > (SHARED if way == FUNCTION else BOUND))


def relayed_edges(graph: Graph, problem: Problem, device: Ints, way: str) -> Bools:
    """[e] edges of the step's `problem` whose tensor is sent by an `Identity`, at the place of an op that has none.

    Chained ops on other devices read it (`pesto.tf.apply_placement.placement`). device: [n] processor of each op.
    """
    free = unordered_ops(graph, way)
    passable = free & (graph.loose <= FREE)
    passable[graph.tensor_op[copied_constants(graph)]] = False
    return relay_edges(problem, device, free, bools(passable))


def predict_mode(graph: Graph, planned: Timeline, rank: Ints, *, way: str) -> ModePrediction:
    """The step `planned`, of `graph` in an order by `rank` [n], in one of WAYS; one simulation, if any op is outside.

    UsageError for another way, and when the graph does not say which ops are.
    """
    if way not in EXECUTION_MODES:
        raise UsageError.build(
            f"no way of running is called {quoted(way)}", remedy=f"choose one of {', '.join(EXECUTION_MODES)}"
        )
    if way != PLACEMENT and not (graph.way or graph.loose.any()):
        raise UsageError.build(
            "the graph does not say which ops have no place in the order",
            where=shown(graph.source),
            remedy="write its file again, from what it was made of",
        )
    free, took_s = unordered_ops(graph, way), planned.makespan_s
    if way == PLACEMENT:
        took_s = fifo(planned.problem, planned.schedule.device).makespan * TICK_S
    elif free.any():
        # Ops outside the chains run beside them, and come first of what ends at one instant.
        device, n = planned.schedule.device, graph.ops
        problem, op = add_relays(planned.problem, relayed_edges(graph, planned.problem, device, way))
        relays = np.ones(len(op), dtype=np.bool_)
        took_s = simulate(
            problem,
            ints(np.concatenate([device, device[op]])),
            ints(np.concatenate([np.where(free, np.arange(n), n + rank), n + rank[op]])),
            free=bools(np.concatenate([free, ~relays])),
            beside=bools(np.concatenate([free & ~graph.launches, relays])),
        ).makespan_s
    return ModePrediction(
        way=way, planned_s=planned.makespan_s, makespan_s=took_s, ops=graph.ops, outside=int(free.sum())
    )


def loss_remedy(prediction: ModePrediction, graph: Graph, planned: Timeline, rank: Ints) -> str:
    """Return the remedy for a loss of more than LOSS, as in `predict_intended_mode`; empty where it is less."""
    if prediction.loss <= LOSS or prediction.way == PLACEMENT:
        return ""
    if prediction.way == SESSION:
        other = predict_mode(graph, planned, rank, way=FUNCTION)
        if other.loss <= LOSS:
            return f"plan and run it as a tf.function, where all but handles and feeds has a place ({other.loss:+.2%})"
    return "another plan may lose less: take another seed, and compare by pesto check"


def predict_intended_mode(graph: Graph, planned: Timeline, rank: Ints, *, order: bool) -> ModePrediction | None:
    """`predict_mode` in the way in which the step is meant to be run; None where its source does not tell.

    order: whether any is enforced; where none is, the way is PLACEMENT whatever the source tells.
    """
    if not order:
        return predict_mode(graph, planned, rank, way=PLACEMENT)
    return predict_mode(graph, planned, rank, way=graph.way) if graph.way else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderWorth:
    """Makespans in ticks of one placement."""

    enforced: int
    """In the plan's order; links first come, first served, as in the plan."""
    fifo: int
    """Without an order, as a runtime does by default: devices and links first come, first served."""
    listed: int
    """Whatever is ready by falling bottom level; links first come, first served."""
    scheduled: int
    """In the plan's order, and links send what is wanted first (`send_ranks`)."""

    @property
    def gain(self) -> float:
        """Share of the FIFO time that enforcing the order saves; below 0 where FIFO is faster."""
        return 1.0 - self.enforced / self.fifo if self.fifo else 0.0

    @property
    def scheduled_gain(self) -> float:
        """Share of the enforced time that links with priorities would save besides; below 0 where they cost time."""
        return 1.0 - self.scheduled / self.enforced if self.enforced else 0.0


def order_worth(problem: Problem, device: Ints, rank: Ints) -> OrderWorth:
    """Replay a plan's placement and order, and what else could become of that placement. Four compiled replays.

    device: [n] device of each task. rank: [n] the plan's order, as `pesto.core.simulator.simulate` takes it. ValueError
    when a device cannot run its task or the order contradicts the precedence.
    """
    g = prepare(problem)
    level = bottom_levels(problem, device=device)
    by_level = rank_of(np.argsort(-level, kind="stable"))
    send_rank = send_ranks(problem, device, rank)
    return OrderWorth(
        enforced=replay(problem, device, rank, prepared=g).makespan,
        fifo=fifo(problem, device, prepared=g).makespan,
        listed=replay(problem, device, by_level, strict=False, prepared=g).makespan,
        scheduled=replay(problem, device, rank, send_rank=send_rank, prepared=g).makespan,
    )


def send_ranks(problem: Problem, device: Ints, rank: Ints) -> Ints:
    """[p] priority of each payload: the rank of the first task that reads it at another location; last where none."""
    p, at = problem, problem.location[device]
    cut = (p.payload >= 0) & (at[p.src] != at[p.dst])
    first = np.full(p.payloads, int(rank.max(initial=0)) + 1)
    np.minimum.at(first, p.payload[cut], rank[p.dst[cut]])
    return ints(first)


class Enforcement(NamedTuple):
    """Worth of a plan's order, and the part of it that the intended way of running keeps."""

    worth: OrderWorth
    mode: ModePrediction | None
    """None if the graph does not name a way, or nothing was predicted."""
    remedy: str
    """Remedy for a loss of more than LOSS; empty where it is less."""


def predict_enforcement(
    graph: Graph, planned: Timeline, rank: Ints, *, order: bool, with_mode: bool = True
) -> Enforcement:
    """Return the worth of an order by `rank` [n], and its prediction in the intended way, unless left out."""
    mode = predict_intended_mode(graph, planned, rank, order=order) if with_mode else None
    remedy = "" if mode is None else loss_remedy(mode, graph, planned, rank)
    return Enforcement(order_worth(planned.problem, planned.schedule.device, rank), mode, remedy)
