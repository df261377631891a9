"""A graph of layers on any allocation: the busiest device has least to do, transfers charged to both of their devices.

Without memory for batches that is the period of a pipeline whose devices do their own sends and receives. Search starts
from runs of a topological order, cut optimally, which it is never above; annealing follows, then CP-SAT in a process of
its own. The bound counts transfers: it is that of a linear program (`spreading_program`), or CP-SAT's.
"""

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from solvers.arrays import Ints, ints
from solvers.compiled.interruption import struck
from solvers.pipelining.any_allocation import GRACE_S, asked_of
from solvers.pipelining.layer_dag import Knots, LayerDag, annealed_loads, busiest, contiguous_runs, knots
from solvers.pipelining.pipeline_bounds import PeriodBound, packed_ticks
from solvers.problem import MOST

PARTS, MOVES, HEAT = 40, 200_000, 0.005
"""Parts of annealings for each _FEW layers, moves of each, and the share by which a load may grow, at first."""
ANNEALED, BOUNDED = 0.3, 0.3
"""Shares of the time that they, and the linear program, may take."""
COMPILED_S = 120.0
"""Seconds that compiling it may take beside them, once on a machine."""
SPREADING = "spreading"
"""Name of the linear program's bound."""
_FEW = 8
_MOST_TICKS = 1 << 52
"""Beyond these CP-SAT is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DagAllocation:
    """An allocation, and what is known of the best."""

    device: Ints
    """[n] device of each layer."""
    T: int
    """Ticks a batch of the busiest device."""
    contiguous: int | None
    """The same where each device has a run of the topological order, cut optimally; None: none fits."""
    bound: PeriodBound
    """No allocation has less."""
    interrupted: bool = False
    """True if Ctrl-C ended the search."""

    @property
    def optimal(self) -> bool:
        """True if no allocation is better."""
        return self.bound.value == self.T


def least_dag_load(
    dag: LayerDag, devices: int, memory: int | None = None, *, seconds: float = 10.0, workers: int = 1
) -> DagAllocation | None:
    """Return the allocation to equal devices whose busiest has least to do, found within about so many seconds.

    `memory`: bytes of each device for weights; None: without limit. None: no runs of the order were found to start
    from. Ctrl-C keeps the best. RuntimeError where the process failed; ValueError for fewer than one device.
    """
    if devices < 1:
        raise ValueError(f"{devices} devices - give at least one")
    given, until = knots(dag), time.monotonic() + seconds
    room = ints([MOST if memory is None else memory] * devices)
    start = contiguous_runs(given, _order(dag, given), devices, int(room[0]))
    if start.min() < 0:
        return None
    contiguous = best = busiest(dag, start[given.of], devices)
    least, name = packed_ticks(given.loads.tolist(), devices), "packed ticks"
    device, interrupted = start, False
    try:
        device, best = _annealed(given, (start, best), room, least, until - (1 - ANNEALED) * seconds)
        seconds = min(BOUNDED * seconds, until - time.monotonic())
        if best > least and devices > 1 and len(given.to) and seconds > 0:
            spread = _spread(given, device, best, {"devices": devices, "least": least, "seconds": seconds})
            least, name = (spread, SPREADING) if spread > least else (least, name)
        if best > least and int(given.loads.sum() + given.ticks.sum()) <= _MOST_TICKS:
            one, left = np.repeat(np.arange(len(device)), np.diff(given.begin)), max(0.0, until - time.monotonic())
            once = one < given.to
            answer = asked_of(
                "solvers.cpsat.dag_loads", left + GRACE_S, loads=given.loads, weights=given.weights, one=one[once],
                two=given.to[once], ticks=given.ticks[once], start=device, most=best, least=least, devices=devices,
                memory=int(room[0]), workers=workers, seconds=left,
            )  # fmt: skip
            if answer["device"].shape == device.shape and busiest(dag, answer["device"][given.of], devices) < best:
                device, best = answer["device"], busiest(dag, answer["device"][given.of], devices)
            if int(answer["bound"]) > least:
                least, name = int(answer["bound"]), "CP-SAT"
    except (KeyboardInterrupt, Exception) as error:
        if not struck(error):
            raise
        interrupted = True
    bound, device = PeriodBound(name=name, value=Fraction(least)), ints(device[given.of])
    return DagAllocation(device=device, T=best, contiguous=contiguous, bound=bound, interrupted=interrupted)


def _order(dag: LayerDag, given: Knots) -> Ints:
    """Knots as a topological order of the layers meets them first: depth first, so that branches stay together."""
    after = [list[int]() for _ in range(dag.layers)]
    for u, v in zip(dag.src.tolist(), dag.dst.tolist(), strict=True):
        after[u].append(v)
    waits = np.bincount(dag.dst, minlength=dag.layers).tolist()
    ready, order = [u for u in range(dag.layers) if not waits[u]][::-1], list[int]()
    while ready:
        u = ready.pop()
        order.append(u)
        for v in after[u]:
            waits[v] -= 1
            if not waits[v]:
                ready.append(v)
    if len(order) < dag.layers:
        raise ValueError("the edges of the layers form a cycle - leave one of them out")
    return ints(list(dict.fromkeys(given.of[order].tolist())))


def _annealed(given: Knots, start: tuple[Ints, int], room: Ints, least: int, until: float) -> tuple[Ints, int]:
    """Return the best of annealings from the start, each twice as long as the one before, while there is time."""
    rng, (device, best), began = np.random.default_rng(0), start, time.monotonic()
    done, parts, most = 0, 1, PARTS * (1 + len(start[0]) // _FEW)
    while done < most:
        at = start[0]
        for k in range(parts):
            if best <= least or time.monotonic() > until:
                return device, best
            hot, cool = HEAT * (1 - k / parts), HEAT * (1 - (k + 1) / parts)
            at, met, result = annealed_loads(given, at, room, hot, cool, rng.random((MOVES, 4)))
            device, best = (met, int(result)) if result < best else (device, best)
        done += parts
        now = time.monotonic()
        fit = int((until - now) * done / (now - began))
        parts = 2 * parts if 6 * parts <= fit else max(1, fit)
    return device, best


def _spread(given: Knots, device: Ints, best: int, more: dict[str, Any]) -> int:
    """Return the bound of the linear program; 0 where it was ended."""
    # [q] one knot and the other of each edge, each once, and [2 q] the number of each of the edges of `given`.
    m, ends = len(given.loads), np.repeat(np.arange(len(given.loads)), np.diff(given.begin))
    pair, edge = np.unique(np.minimum(ends, given.to) * m + np.maximum(ends, given.to), return_inverse=True)
    one, two = pair // m, pair % m
    ticks = np.zeros(len(one), dtype=np.int64)
    ticks[edge] = given.ticks
    answer = asked_of(
        "solvers.pipelining.spreading_program", more["seconds"] + COMPILED_S,
        loads=given.loads, begin=given.begin, to=given.to, edge=ints(edge), ticks=ticks,
        crossed=(device[one] != device[two]).astype(np.int64), most=best, **more,
    )  # fmt: skip
    return int(answer["bound"])
