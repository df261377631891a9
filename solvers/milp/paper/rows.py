"""The families of constraints of Pesto's integer program, each named and numbered as in the paper (section 3.2.2).

They are of the augmented graph, which has a node for each edge that may have to move data.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from solvers.arrays import Bools, Floats, Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.milp.paper.affine import Affine, AffineBuilder
from solvers.milp.paper.codes import Codes
from solvers.problem import Problem
from solvers.structure.symmetry import paths_of_links
from solvers.structure.units import Units, serial, units_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PerEdge:
    """A problem in which every payload has one consumer, made from one in which they may have several."""

    problem: Problem
    origin: Ints
    """[p] payload of the problem that it was made from."""
    exact: bool
    """True if no two of its transfers are one in the problem that it was made from, wherever tasks are."""
    longer: int
    """Ticks by which its optimum is longer at most."""


def unshared(problem: Problem) -> PerEdge:
    """Return a payload of its own for every edge that carries one, as the paper counts transfers.

    Edges that are equal in source, target and payload are one.
    """
    carries = problem.payload >= 0
    pairs = np.unique(np.stack([problem.payload, problem.dst])[:, carries], axis=1)
    plain = np.unique(np.stack([problem.src, problem.dst])[:, ~carries], axis=1)
    origin, reader = pairs
    producer = problem.producer[origin]
    own = replace(
        problem, src=np.concatenate([producer, plain[0]]), dst=np.concatenate([reader, plain[1]]),
        payload=np.concatenate([np.arange(len(origin)), np.full(plain.shape[1], -1)]), producer=producer,
        transfer=problem.transfer[origin],
    )  # fmt: skip
    crosses = _crosses(units_of(own), producer, reader)
    meet = np.zeros((problem.payloads, problem.locations), dtype=np.int64)
    np.add.at(meet, origin, crosses.any(axis=1))
    exact = bool((meet <= 1).all())
    again = np.bincount(origin[crosses.any(axis=(1, 2))], minlength=problem.payloads) - 1
    ticks = problem.transfer.max(axis=1, initial=0).tolist()
    longer = 0 if exact else sum(max(0, n) * t for n, t in zip(again.tolist(), ticks, strict=True))
    return PerEdge(problem=own, origin=origin, exact=exact, longer=longer)


def horizon(edges: PerEdge, most: int) -> int:
    """Return ticks by which some schedule with a transfer per edge ends, `most` being such for the original problem.

    Where transfers repeat, each repetition may follow the first and delay everything after it; no schedule without
    needless idle time is longer than the sum of all that is done in it.
    """
    return most if edges.exact else min(most + edges.longer, serial(edges.problem))


def _crosses(units: Units, tail: Ints, head: Ints) -> Bools:
    """[t, l, l] whether data may have to go from one location to the other, from each `tail` [t] to each `head` [t]."""
    off = ~np.eye(units.allowed.shape[1], dtype=bool)
    at, to = units.allowed[units.unit[tail]], units.allowed[units.unit[head]]
    apart = units.unit[tail] != units.unit[head]
    found: Bools = at[:, :, None] & to[:, None, :] & off & apart[:, None, None]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddedTransfers:
    """The t added nodes: the payloads whose ends can be apart."""

    payload: Ints
    """[t] payload that each transfer sends."""
    tail: Ints
    """[t] the producer, i in (i, k), (k, j)."""
    head: Ints
    """[t] the consumer, j."""
    crosses: Bools
    """[t, l, l] whether the transfer may go from one location to the other."""
    always: Bools
    """[t] whether the ends are apart wherever they are: classes CG and GC; GG is the other."""


def transfers_of(problem: Problem) -> AddedTransfers:
    """Return the added nodes of a problem in which every payload has one consumer, ordered by payload."""
    carries = np.flatnonzero(problem.payload >= 0)
    carries = carries[np.argsort(problem.payload[carries])]
    units = units_of(problem)
    crosses = _crosses(units, problem.src[carries], problem.dst[carries])
    live = crosses.any(axis=(1, 2))
    edge = carries[live]
    tail, head = problem.src[edge], problem.dst[edge]
    beside = units.allowed[units.unit[tail]] & units.allowed[units.unit[head]]
    always: Bools = ~np.any(beside, axis=1)
    return AddedTransfers(payload=problem.payload[edge], tail=tail, head=head, crosses=crosses[live], always=always)


def descendants(problem: Problem) -> Bools:
    """Return [n, n] whether the second task follows the first, by any path. O(e n)."""
    after = np.zeros((problem.tasks, problem.tasks), dtype=bool)
    rank = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    for edge in np.argsort(-rank[problem.src], kind="stable").tolist():
        before, then = problem.src[edge], problem.dst[edge]
        after[before] |= after[then]
        after[before, then] = True
    return after


def before(after: Bools, transfers: AddedTransfers) -> Bools:
    """[t, t] whether the first transfer precedes the second: its consumer is the producer there, or an ancestor."""
    found: Bools = after[transfers.head][:, transfers.tail] | (transfers.head[:, None] == transfers.tail)
    return found


def open_pairs(after: Bools, can: Bools) -> tuple[Ints, Ints]:
    """Pairs i < j that can use one resource (`can` [r, resources]) and of which neither follows the other ([r, r])."""
    together = can.astype(np.float32) @ can.T.astype(np.float32) > 0
    one, two = np.nonzero(np.triu(together & ~after & ~after.T, 1))
    return one, two


_LARGEST = 2.0**20
"""Memory is scaled to at most this, so that a tolerance of 1e-6 is less than a byte in 2^39."""

_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperModel:
    """The variables by what they mean. Activities are the n tasks, then the t transfers. Times are units."""

    problem: Problem
    codes: Codes
    transfers: AddedTransfers
    unit: float
    """Ticks in a unit of time."""
    assembly: AffineBuilder
    makespan: Affine
    """[1] C_max, the end of the schedule."""
    start: Affine
    """[n + t] S_i, the start of each activity."""
    finish: Affine
    """[n + t] C_i, the end of each activity."""
    crossing: Affine
    """[t] z_k, or 1 where the ends are always apart."""

    @property
    def tail(self) -> Ints:
        """[t] unit of each transfer's producer."""
        return self.codes.units.unit[self.transfers.tail]

    @property
    def head(self) -> Ints:
        """[t] unit of each transfer's consumer."""
        return self.codes.units.unit[self.transfers.head]


def precedence(m: PaperModel) -> None:
    """(1) C_i <= S_j for each edge of the augmented graph: (i, k) and (k, j) for a transfer, else (i, j)."""
    p, t, n = m.problem, m.transfers, m.problem.tasks
    node = n + np.arange(len(t.payload))
    m.assembly.not_negative(m.start[node] - m.finish[t.tail])
    m.assembly.not_negative(m.start[t.head] - m.finish[node])
    plain = ~np.isin(p.payload, t.payload)
    before, after = np.unique(np.stack([p.src, p.dst])[:, plain], axis=1)
    m.assembly.not_negative(m.start[after] - m.finish[before])


def completion(m: PaperModel) -> None:
    """(2) S_i + p_i = C_i for each task; (3) C_i <= C_max for everything.

    Where a task's duration varies over its devices, `C_i >= S_i + least + (p_id - least) (1 - away_id)` for each d: an
    interval that is longer than it has to be is no shorter schedule, and the rebuild does without.
    """
    codes, task = m.codes, np.arange(m.problem.tasks)
    ticks = np.where(codes.able, m.problem.duration, -1)
    most = ticks.max(axis=1, initial=0)
    least = np.where(codes.able, m.problem.duration, most[:, None]).min(axis=1, initial=int(most.max()))
    rest = m.finish[task] - m.start[task] - least / m.unit
    m.assembly.zero(rest[least == most])
    m.assembly.not_negative(rest[least != most])
    for device in range(m.problem.devices):
        slow = np.flatnonzero(codes.able[:, device] & (ticks[:, device] > least))
        extra = (ticks[slow, device] - least[slow]) / m.unit
        m.assembly.not_negative(rest[slow] - extra * (1.0 - _away(codes, slow, device)))
    everything = np.zeros(len(m.finish), dtype=np.int64)
    m.assembly.not_negative(m.makespan[everything] - m.finish)


def _away(codes: Codes, task: Ints, device: int) -> Affine:
    """Return [r] 0 where a task is on the device, 1 or more elsewhere; for a GPU op and GPU-1 of two, 1 - x."""
    place = int(codes.problem.location[device])
    return codes.away(codes.units.unit[task], place) + codes.off(task, device)


def crossings(m: PaperModel) -> None:
    """(5) z_k = x_i XOR x_j, as rows that hold for codes of any length.

    z_k >= x_i - x_j and z_k >= x_j - x_i for each bit, and z_k <= away_il + away_jl for each location l that both ends
    can be at; `away` is the number of bits that differ from the code of l. For two GPUs these are the four rows that
    are printed: the last is z_k <= x_i + x_j for GPU-0 and z_k <= 2 - x_i - x_j for GPU-1.
    """
    codes, t = m.codes, m.transfers
    some = np.flatnonzero(~t.always)
    z, tail, head = m.crossing[some], m.tail[some], m.head[some]
    for bit in range(codes.bit.shape[1]):
        one, two = codes.location_bit(tail, bit), codes.location_bit(head, bit)
        m.assembly.force(z, one - two)
        m.assembly.force(z, two - one)
    allowed = codes.units.allowed
    for place in range(m.problem.locations):
        both = allowed[tail, place] & allowed[head, place]
        m.assembly.not_negative(codes.away(tail[both], place) + codes.away(head[both], place) - z[both])


def transfer_times(m: PaperModel) -> None:
    """(6) S_k + z_k p_k = C_k.

    Where p_k varies over the pairs of locations, `C_k >= S_k + least z_k + (p_kab - least) (1 - away_ia - away_jb)` for
    each pair (a, b), as in (2).
    """
    p, t = m.problem, m.transfers
    node = p.tasks + np.arange(len(t.payload))
    ticks = np.where(t.crosses, p.transfer[t.payload][:, np.maximum(p.path_class, 0)], -1)
    most = ticks.max(axis=(1, 2), initial=0)
    least = np.where(t.crosses, ticks, most[:, None, None]).min(axis=(1, 2), initial=int(most.max(initial=0)))
    rest = m.finish[node] - m.start[node] - (least / m.unit) * m.crossing
    m.assembly.zero(rest[least == most])
    m.assembly.not_negative(rest[least != most])
    for here, there in permutations(range(p.locations), 2):
        slow = np.flatnonzero(ticks[:, here, there] > least)
        extra = (ticks[slow, here, there] - least[slow]) / m.unit
        m.assembly.not_negative(rest[slow] - extra * (1.0 - _elsewhere(m, slow, here, there)))


def _elsewhere(m: PaperModel, node: Ints, here: int, there: int) -> Affine:
    """Return [r] 0 where a transfer goes from `here` to `there`; for GPU-1 -> GPU-0 of two, 1 - x_i + x_j."""
    return m.codes.away(m.tail[node], here) + m.codes.away(m.head[node], there)


def no_overlap(m: PaperModel, pairs: tuple[Ints, Ints], order: Affine, big: tuple[float, float, float]) -> None:
    """(4), (10): for each pair i, j of tasks, and each device d that both can be on,

        S_i >= C_j - M_s delta_ij       - M_l (away_id + away_jd)
        S_j >= C_i - M_s (1 - delta_ij) - M_l (away_id + away_jd)

    with delta_ij = 1 where i comes first. For two GPUs, away_i0 = x_i and away_i1 = 1 - x_i: the rows (10), of which
    the paper prints + M_s delta_ij and + M_s (1 - delta_ij), by which no two tasks could share a GPU. Where both can
    be on one device alone, the last term vanishes and M takes the place of M_s: the rows (4). `big` is M, M_s, M_l.
    """  # fmt: skip
    codes, able, (one, two), (m_, m_s, m_l) = m.codes, m.codes.able, pairs, big
    for device in range(m.problem.devices):
        for both in _blocks(able[one, device] & able[two, device]):
            i, j = one[both], two[both]
            away = _away(codes, i, device) + _away(codes, j, device)
            sole = (able[i].sum(axis=1) == 1) & (able[j].sum(axis=1) == 1)
            _one_before_other(m, (i, j), order[both], np.where(sole, m_, m_s), m_l * away)


def _blocks(among: Bools) -> list[Ints]:
    """Return the numbers of those that are true, in blocks: the clock is looked at once a block of rows."""
    found = np.flatnonzero(among)
    return np.array_split(found, len(found) // _BLOCK + 1)


def _one_before_other(m: PaperModel, pairs: tuple[Ints, Ints], order: Affine, big: Floats, slack: Affine) -> None:
    one, two = pairs
    m.assembly.not_negative(m.start[one] - m.finish[two] + big * order + slack)
    m.assembly.not_negative(m.start[two] - m.finish[one] + big * (1.0 - order) + slack)


Held = tuple[Ints, Ints]
"""The paths that hold a link: [h] the locations that they start from, and [h] those that they go to."""


def shared_links(problem: Problem) -> list[Held]:
    """Return the paths of each link, those of most paths first; a link implied by another is left out."""
    kept: list[frozenset[int]] = []
    on_path: dict[int, list[frozenset[int]]] = defaultdict(list)
    for held in sorted(paths_of_links(problem), key=len, reverse=True):
        # Another that implies it is on any of its paths.
        if held and not any(held <= other for other in on_path[min(held)]):
            kept.append(held)
            for path in held:
                on_path[path].append(held)
    paths = [np.divmod(np.array(sorted(held), dtype=np.int64), problem.locations) for held in kept]
    return [(here, there) for here, there in paths]


def congestion(
    m: PaperModel, links: list[Held], pairs: tuple[Ints, Ints], order: Affine, big: tuple[float, float, float]
) -> None:
    """(7): for each pair i, j of transfers, and each link q that both can hold,

        S_i >= C_j - M delta_ij       - M_s (idle_iq + idle_jq)
        S_j >= C_i - M (1 - delta_ij) - M_s (idle_iq + idle_jq)

    where idle_iq is 0 when i holds q, and 1 or more when it does not. For i from a to b and the link GPU-1 -> GPU-0,
    idle_iq = 1 - x_a + x_b, which makes the last term M_s (x_a + x_c - x_b - x_d - 2), as printed.
    """  # fmt: skip
    one, two = pairs
    n, (m_, m_s, _) = m.problem.tasks, big
    total = m.transfers.crosses.sum(axis=(1, 2))
    for held in links:
        able, idle = _idle(m, held, total)
        place = np.cumsum(able) - 1
        for both in _blocks(able[one] & able[two]):
            i, j = one[both], two[both]
            slack = m_s * (idle[place[i]] + idle[place[j]])
            _one_before_other(m, (n + i, n + j), order[both], np.full(len(both), m_), slack)


def _idle(m: PaperModel, held: Held, total: Ints) -> tuple[Bools, Affine]:
    """Return [t] which transfers can hold a link, and for these, 0 where one does and 1 or more where not.

    1 - z_k for a link that k holds whenever it crosses; `away_ia + away_jb` for one that it holds from a to b alone;
    else 1 - h_k, with a new variable h_k >= 1 - away_ia - away_jb for each pair of locations. `total`, [t]: by how
    many paths each may go.
    """
    crosses = m.transfers.crosses[:, *held]
    count = crosses.sum(axis=1)
    whenever = np.flatnonzero((count > 0) & (count == total))
    once = np.flatnonzero((count == 1) & (total > 1))
    several = np.flatnonzero((count > 1) & (count < total))
    h = m.assembly.variables(len(several), 0.0, 1.0)
    lone: list[tuple[Ints, Affine]] = []
    for goes, here, there in zip(crosses.T, *(side.tolist() for side in held), strict=True):
        mine = once[goes[once]]
        lone.append((mine, _elsewhere(m, mine, here, there)))
        held_by = goes[several]
        m.assembly.force(h[held_by], 1.0 - _elsewhere(m, several[held_by], here, there))
    idle = Affine.stack([1.0 - m.crossing[whenever], 1.0 - h, *(part for _, part in lone)])
    node = np.concatenate([whenever, several, *(nodes for nodes, _ in lone)])
    return count > 0, idle[np.argsort(node)]


def memory(m: PaperModel) -> None:
    """(8), as capacities: the sum of the memory of what is at a location is at most its capacity.

    A unit is at a location, for the sum, by 1 - away where it has but one bit, else by a new variable that is at least
    that.
    """
    units, codes = m.codes.units, m.codes
    bits = np.count_nonzero(codes.bit >= 0, axis=1)
    for place, capacity in enumerate(m.problem.capacity.tolist()):
        unit = np.flatnonzero(units.allowed[:, place] & (units.memory > 0))
        if sum(units.memory[unit].tolist()) <= capacity:
            continue
        one_bit, coded = unit[bits[unit] < 2], unit[bits[unit] > 1]
        present = m.assembly.variables(len(coded), 0.0, 1.0)
        m.assembly.force(present, 1.0 - codes.away(coded, place))
        parts = Affine.stack([1.0 - codes.away(one_bit, place), present])
        used, room = scaled(units.memory[np.concatenate([one_bit, coded])], capacity)
        m.assembly.not_negative(room - parts.total(used))


def scaled(size: Ints, capacity: int) -> tuple[Floats, float]:
    """Bytes in multiples of their greatest common divisor, and of a power of two that makes them small enough."""
    divisor = math.gcd(*size.tolist())
    power = 2.0 ** max(0, math.ceil(math.log2(max(int(size.max()), capacity) / divisor / _LARGEST)))
    return size / divisor / power, capacity // divisor / power
