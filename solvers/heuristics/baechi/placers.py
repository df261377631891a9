"""Baechi's three placement methods (Jeon et al., "Baechi", SoCC 2020, and `placer/` of its code).

m-TOPO: operators in topological order fill devices. Each device is filled up to a load-balanced cap, the mean bytes a
device plus the largest unit; then the next one is, and none before it again. Groups, co-placement and fusion come
first; a unit is placed with its first operator.

Deviations: the largest unit is added, not the largest operator, as units are placed whole (the cap then always
suffices); no device is filled beyond its own capacity; a unit that neither the current device nor a later one can take
goes where most room is left, as not all devices can run it. What can only be at one location is there from the start,
and counts for its capacity but not for the cap.

m-ETF: earliest task first within memory. ETF (Hwang, Chow, Anger and Lee 1989) starts, of all pairs of a ready operator
and a device, one that can start earliest; m-ETF drops the pairs whose device lacks the memory. As in the released code,
ties go by topological order, then by device, and a unit's memory is taken as a whole when the first of it is placed.
The graph is co-placed and fused first.

Deviations: transfers wait for nothing, as in ETF, where the released code queues those of a device one after another;
memory is the static bytes of the problem, never given back; sources wait for their readers (`ordered`); what can only
be at one location has its memory there from the start.

The order in which m-ETF and m-SCT break ties keeps sources for their readers. Deviation: the source starts every
operator without inputs at once, one device after the other, and units follow their variables. Here a source waits, as
if it read what its guide reads, until its guide could start but for it (`solvers.heuristics.eft_pass`), and so is
offered to the devices at the ticks at which its guide would be.

m-SCT: small communication times. SCT (Hanen and Munier 1995): each operator has at most one favourite child, each child
one favourite parent (`favourites`). An idle device is *awake* for the favourite child of what it ran last, as in the
released code, while the child's predecessors have all finished, it has not started, and no other device could begin it
earlier; it then takes *urgent* operators, those whose inputs are wherever they can run, or else the child. Otherwise it
takes what comes first, as in ETF. m-SCT drops pairs of an operator and a device without the memory. The graph is
co-placed and fused first.

Deviations: those of m-ETF. To the released code an operator is urgent only when every device is idle, too.

The guarantee of SCT (`favourites`) is for other rules, which `waiting_rules` gives with `patient`: a device is awake
from the end of what it ran until the child's input from there could be anywhere, and what could start on several
devices goes to one that is not awake. With a device for each operator, none then starts later than its longest path
allows in which only edges to favourite children cost nothing: by induction its inputs are there by then where its
favourite parent ran, and either that device still waits for it, or it is urgent and another is idle. On models of
neural networks, whose communications are not small, this waits too long: steps were 6 %, 12 % and 23 % longer on an
RNNLM, a NASNet and a Transformer than with the rules of the released code.
"""

import numpy as np

from solvers.arrays import Bools, Floats, Ints, ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import routine
from solvers.heuristics.baechi.graph import OperatorGraph, OperatorWeights, fused, weights_of
from solvers.heuristics.baechi.list_pass import NONE, ListResult, ListRules, schedule
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.eft_pass import guided
from solvers.heuristics.methods import NoRoomError, Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import Units
from solvers.timing.loop import Prepared


def ordered(g: OperatorGraph) -> tuple[OperatorGraph, Ints]:
    """Return (the graph with edges that hold sources back, [k] rank of each operator, sources just before guides).

    O(e + k log k), as a guide has few inputs.
    """
    k = len(g.duration)
    offset, edge = adjacency(k, g.src)
    # Read-only like a problem's arrays, so that `guided` is compiled once.
    prepared = Prepared(
        offset=ints(offset), head=ints(g.dst[edge]), carried=ints(np.full(len(edge), -1)),
        indegree=ints(np.bincount(g.dst, minlength=k)), duration=ints(g.duration), location=ints(g.location),
        transfer=ints(g.comm), path_class=ints(g.path_class), path_links=ints(np.zeros((1, 1, 0), dtype=np.int64)),
        links=0, carries=0,
    )  # fmt: skip
    order, guide = guided(prepared, ints(g.unit), topological_order(k, g.src, g.dst))
    held = guide != np.arange(k)
    source = np.flatnonzero(held)
    into, edge = adjacency(k, g.dst)
    first, count = into[guide[source]], np.diff(into)[guide[source]]
    reader = np.repeat(source, count)
    edge = edge[np.arange(len(reader)) + np.repeat(first - np.cumsum(count) + count, count)]
    real = ~held[g.src[edge]]
    edge, reader = edge[real], reader[real]
    graph = g._replace(
        src=np.concatenate([g.src, g.src[edge]]),
        dst=np.concatenate([g.dst, reader]),
        comm=np.concatenate([g.comm, g.comm[edge]]),
    )
    return graph, rank_of(order)


def place_by_m_topo(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the placement, without an order. O(n (m + l) + e log e)."""
    f = fused(problem)
    return Placement(device=devices_at(problem, filled(f.graph)[f.graph.unit][f.node]))


def filled(g: OperatorGraph) -> Ints:
    """Return [u] the location of each unit. Raise NoRoomError, with the bytes, where one finds no room."""
    free = np.count_nonzero(g.allowed, axis=1) > 1
    at, room = np.where(free, -1, g.allowed.argmax(axis=1)), g.capacity.copy()
    np.subtract.at(room, at[~free], g.memory[~free])
    if room.min(initial=0) < 0:
        raise NoRoomError(f"{-room.min()} bytes too many at location {room.argmin()} can only be there")
    turn = elements(Units(unit=g.unit, allowed=g.allowed, memory=g.memory))
    cap = int(g.memory[free].sum()) // max(1, len(turn)) + int(g.memory[free].max(initial=0))
    order = topological_order(len(g.unit), g.src, g.dst)
    stuck = _fill(g.unit[order], (g.allowed, g.memory), (turn, cap), at, room)
    if stuck >= 0:
        free_bytes, need = int(room[g.allowed[stuck]].max()), int(g.memory[stuck])
        raise NoRoomError(f"a unit of {need} bytes found {free_bytes} free at most: {need - free_bytes} short")
    return at


@routine
def _fill(order: Ints, units: tuple[Bools, Ints], fill: tuple[Ints, int], at: Ints, room: Ints) -> int:
    """Fill location after location; return the unit that finds no room, -1 for none."""
    (allowed, memory), (turn, cap) = units, fill
    used = np.zeros(len(room), dtype=np.int64)
    current = 0
    for unit in order:
        if at[unit] >= 0:
            continue
        chosen = -1
        for step in range(current, len(turn)):
            there = turn[step]
            if allowed[unit, there] and used[there] + memory[unit] <= cap and memory[unit] <= room[there]:
                chosen = there
                break
            if step == current and allowed[unit, there]:
                current = step + 1
        if chosen < 0:
            for there in turn:
                if allowed[unit, there] and (chosen < 0 or room[there] > room[chosen]):
                    chosen = there
            if memory[unit] > room[chosen]:
                return unit
        at[unit] = chosen
        used[chosen] += memory[unit]
        room[chosen] -= memory[unit]
    return -1


def place_by_m_etf(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the placement; the source leaves the order to TensorFlow, so none is given. O((n m + e l) log n)."""
    f = fused(problem)
    graph, place = ordered(f.graph)
    none = np.full(len(place), NONE, dtype=np.int64)
    listed = schedule(graph, ListRules(place, none, np.zeros_like(none), patient=False))
    require_room(f.graph, listed)
    return Placement(device=listed.device[f.node])


def require_room(g: OperatorGraph, listed: ListResult) -> None:
    """Raise NoRoomError, with the bytes, unless everything has started in the room there is."""
    over = int(listed.room.min(initial=0))
    if over < 0:
        raise NoRoomError(f"{-over} bytes too many at location {int(listed.room.argmin())} can only be there")
    stuck = np.flatnonzero((listed.device < 0) & (listed.waiting == 0))
    if len(stuck):
        unit = int(g.unit[stuck[np.argmax(g.memory[g.unit[stuck]])]])
        most = int(listed.room[g.allowed[unit]].max(initial=0))
        raise NoRoomError(f"a unit of {g.memory[unit]} bytes found {most} free at most: {g.memory[unit] - most} short")


THRESHOLD = 0.1
"""x_ij below which j is the favourite child of i: `sct_threshold` of Baechi's released code."""
_SHARE = 0.5
"""Share of the given seconds that the linear program may take."""
_PER_SECOND = 400_000_000
"""Squared operators in a second of the quickest large program that was measured; most take much longer."""
_TOLERANCE = 1e-6


def favourites(g: OperatorGraph, options: Options, threshold: float = THRESHOLD) -> Ints:
    """[k] the favourite child of each operator, -1 for none: by the program, or greedily where that takes too long."""
    w, seconds = weights_of(g), _SHARE * options.seconds
    if len(g.duration) ** 2 <= _PER_SECOND * seconds:
        # Not before: it loads the solver.
        from solvers.heuristics.baechi.linear_program import shares

        solution = shares(g, w, seconds, deterministic=options.deterministic)
        if solution is not None:
            return rounded(g, solution[0], threshold)
    return greedy(g, w)


def rounded(g: OperatorGraph, share: Floats, threshold: float) -> Ints:
    """[k] the favourite child of each operator whose x = 1 - `share`, [e], is below a threshold of at most 1/2."""
    chosen = np.flatnonzero(share > 1 - threshold + _TOLERANCE)
    child = np.full(len(g.duration), -1, dtype=np.int64)
    child[g.src[chosen]] = g.dst[chosen]
    return child


def greedy(g: OperatorGraph, w: OperatorWeights) -> Ints:
    """Return [k] the favourite child of each operator when edges are taken by falling communication. O(e log e)."""
    edge = np.flatnonzero(w.open)
    edge = edge[np.argsort(-w.comm[edge], kind="stable")]
    return _greedy(len(w.took), g.src[edge], g.dst[edge])


@routine
def _greedy(count: int, src: Ints, dst: Ints) -> Ints:
    child = np.full(count, -1, dtype=np.int64)
    taken = np.zeros(count, dtype=np.bool_)
    for k in range(len(src)):
        if child[src[k]] < 0 and not taken[dst[k]]:
            child[src[k]] = dst[k]
            taken[dst[k]] = True
    return child


def place_by_m_sct(problem: Problem, options: Options) -> Placement:
    """Return the placement, without an order. The program, then O((n m + e l) log n)."""
    f = fused(problem)
    graph, place = ordered(f.graph)
    listed = schedule(graph, waiting_rules(f.graph, place, favourites(f.graph, options)))
    require_room(f.graph, listed)
    return Placement(device=listed.device[f.node])


def waiting_rules(g: OperatorGraph, place: Ints, child: Ints, *, patient: bool = False) -> ListRules:
    """Return rules with favourite children, [k] or -1; a device waits while the child's input would cross."""
    chosen = child[g.src] == g.dst
    wait = np.zeros(len(child), dtype=np.int64)
    wait[g.src[chosen]] = g.comm[chosen].max(axis=1, initial=0)
    return ListRules(place, child, wait, patient)
