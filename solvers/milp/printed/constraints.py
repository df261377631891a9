"""The numbered constraints of section 3.2.2, (10) with its sign put right; each function's docstring is the formula.

`away` is said in `symbols.Symbols`; what more than two GPUs mean, in `docs/internals/paper-program.md`.
"""

from collections.abc import Iterator

import numpy as np
from pulp import LpAffineExpression, LpConstraint, lpSum

from solvers.milp.paper.codes import idle_cores, meaningless
from solvers.milp.paper.rows import Held, scaled
from solvers.milp.printed.symbols import Symbols, differ

Constraints = Iterator[LpConstraint]


def precedence(v: Symbols) -> Constraints:
    """(1) C_i <= S_j for each edge (i, j) of the augmented graph."""
    p, t, n = v.model.problem, v.model.transfers, v.model.problem.tasks
    for k, (i, j) in enumerate(zip(t.tail.tolist(), t.head.tolist(), strict=True), start=n):
        yield v.C[i] <= v.S[k]
        yield v.C[k] <= v.S[j]
    plain = ~np.isin(p.payload, t.payload)
    for i, j in np.unique(np.stack([p.src, p.dst])[:, plain], axis=1).T.tolist():
        yield v.C[i] <= v.S[j]


def duration(v: Symbols) -> Constraints:
    """(2) S_i + p_i = C_i for each task i.

    Where p_i varies, S_i + p <= C_i for the least p, and S_i + p + (p_id - p) (1 - away_id) <= C_i for each device d.
    """
    p, able, unit = v.model.problem, v.model.codes.able, v.model.unit
    for i in range(p.tasks):
        ticks = {d: int(p.duration[i, d]) for d in np.flatnonzero(able[i]).tolist()}
        least = min(ticks.values(), default=0)
        slow = {d: (most - least) / unit for d, most in ticks.items() if most > least}
        begun = v.S[i] + least / unit
        yield begun <= v.C[i] if slow else begun == v.C[i]
        for d, extra in slow.items():
            yield begun + extra * (1 - v.off(i, d)) <= v.C[i]


def makespan(v: Symbols) -> Constraints:
    """(3) 0 <= C_i <= C_max for each activity i, the 0 as the variable's bound."""
    for end in v.C:
        yield end <= v.C_max


def cores(v: Symbols) -> Constraints:
    """(4) S_i >= C_j - M delta_ij and S_j >= C_i - M (1 - delta_ij), for tasks i and j of one device and no other."""
    able = v.model.codes.able
    for (i, j), delta in v.delta[0].items():
        if able[i].sum() == able[j].sum() == 1:
            yield v.S[i] >= v.C[j] - v.M * delta
            yield v.S[j] >= v.C[i] - v.M * (1 - delta)


def crossing(v: Symbols) -> Constraints:
    """(5) z_k = x_i XOR x_j: z_k >= x_i - x_j, z_k >= x_j - x_i, z_k <= x_i + x_j and z_k <= 2 - x_i - x_j.

    The first two for each bit of the code; the last two are z_k <= away_il + away_jl for each location l.
    """
    t, units = v.model.transfers, v.model.codes.units
    for k in np.flatnonzero(~t.always).tolist():
        z, i, j = v.z[k], int(t.tail[k]), int(t.head[k])
        for bit in range(v.model.codes.bit.shape[1]):
            yield v.least(z, v.bit(i, bit) - v.bit(j, bit))
            yield v.least(z, v.bit(j, bit) - v.bit(i, bit))
        for place in np.flatnonzero(units.allowed[v.unit(i)] & units.allowed[v.unit(j)]).tolist():
            yield z <= v.away(i, place) + v.away(j, place)


def transfer_time(v: Symbols) -> Constraints:
    """(6) S_k + z_k p_k = C_k for each transfer k.

    Where p_k varies, S_k + z_k p <= C_k for the least p, and S_k + z_k p + (p_kab - p) (1 - away_ia - away_jb) <= C_k
    for each pair of locations (a, b).
    """
    p, t, unit = v.model.problem, v.model.transfers, v.model.unit
    for k, payload in enumerate(t.payload.tolist()):
        paths = np.argwhere(t.crosses[k]).tolist()
        ticks = {(a, b): int(p.transfer[payload, p.path_class[a, b]]) for a, b in paths}
        least = min(ticks.values())
        slow = {path: (most - least) / unit for path, most in ticks.items() if most > least}
        begun, done = v.S[p.tasks + k] + least / unit * v.z[k], v.C[p.tasks + k]
        yield begun <= done if slow else begun == done
        for (a, b), extra in slow.items():
            yield begun + extra * (1 - v.elsewhere(k, a, b)) <= done


def congestion(v: Symbols) -> Constraints:
    """(7) S_i >= C_j - M delta_ij + M_s (x_a + x_c - x_b - x_d - 2),  i from a to b, j from c to d,  GPU-1 -> GPU-0
           S_j >= C_i - M (1 - delta_ij) + M_s (x_a + x_c - x_b - x_d - 2)

    and for any link q that i and j can hold, -M_s (idle_iq + idle_jq) as the last term.
    """  # fmt: skip
    n = v.model.problem.tasks
    for q, held in enumerate(v.links):
        idle = {}
        for k in np.flatnonzero(v.model.transfers.crosses[:, *held].any(axis=1)).tolist():
            idle[k], rows = _idle(v, k, q, held)
            yield from rows
        for (i, j), delta in v.delta[1].items():
            if i in idle and j in idle:
                yield v.S[n + i] >= v.C[n + j] - v.M * delta - v.M * (idle[i] + idle[j])
                yield v.S[n + j] >= v.C[n + i] - v.M * (1 - delta) - v.M * (idle[i] + idle[j])


def _idle(v: Symbols, k: int, q: int, held: Held) -> tuple[LpAffineExpression, list[LpConstraint]]:
    """`idle_kq`, 0 where transfer k holds link q and 1 or more where not, and what has to hold for that.

    1 - z_k where k holds q whenever it happens, away_ia + away_jb where only from a to b, and else 1 - h_kq with
    h_kq >= 1 - away_ia - away_jb for each such pair.
    """
    crosses = v.model.transfers.crosses[k]
    paths = [(a, b) for a, b in zip(*(side.tolist() for side in held), strict=True) if crosses[a, b]]
    if len(paths) == crosses.sum():
        return LpAffineExpression(1 - v.z[k]), []
    if len(paths) == 1:
        return v.elsewhere(k, *paths[0]), []
    h = v.new(f"h_link{q}_{v.S[v.model.problem.tasks + k].name.removeprefix('S_')}")
    return 1 - h, [v.least(h, 1 - v.elsewhere(k, a, b)) for a, b in paths]


def memory(v: Symbols) -> Constraints:
    """(8) sum of memory_i [i at l] <= capacity_l for each location l.

    [i at l] is 1 - away_il where that is 0 or 1, and else a variable of at least that.
    """
    units = v.model.codes.units
    task = np.unique(units.unit, return_index=True)[1].tolist()
    for place, capacity in enumerate(v.model.problem.capacity.tolist()):
        there = np.flatnonzero(units.allowed[:, place] & (units.memory > 0)).tolist()
        if sum(units.memory[there].tolist()) <= capacity:
            continue
        at = []
        for u in there:
            here = 1 - v.away(task[u], place)
            if sum(bit is not None for bit in v.x[u]) > 1:
                y = v.new(f"y_loc{place}_op{task[u]}")
                yield v.least(y, here)
                here = y
            at.append(here)
        size, room = scaled(units.memory[there], capacity)
        yield lpSum(float(s) * here for s, here in zip(size, at, strict=True)) <= room


def codes(v: Symbols) -> Constraints:
    """(9) x, z and delta are 0 or 1, as the variables' kind; and no code is spelt that means nothing."""
    c = v.model.codes
    for units, number in meaningless(c):
        for u in units.tolist():
            yield differ(v.x[u], number) >= 1
    for tasks, place, number in idle_cores(c):
        for i in tasks.tolist():
            yield differ(v.core[i], number) + v.away(i, place) >= 1


def gpus(v: Symbols) -> Constraints:
    """(10) S_i >= C_j - M_s delta_ij - M_l (2 - x_i - x_j),  S_j >= C_i - M_s (1 - delta_ij) - M_l (2 - x_i - x_j),
            S_i >= C_j - M_s delta_ij - M_l (x_i + x_j),      S_j >= C_i - M_s (1 - delta_ij) - M_l (x_i + x_j)

    with away_id + away_jd, for each device d that both can be on, in the last term. + M_s delta_ij is printed.
    """  # fmt: skip
    able = v.model.codes.able
    for (i, j), delta in v.delta[0].items():
        if able[i].sum() == able[j].sum() == 1:
            continue
        for d in np.flatnonzero(able[i] & able[j]).tolist():
            away = v.off(i, d) + v.off(j, d)
            yield v.S[i] >= v.C[j] - v.M * delta - v.M * away
            yield v.S[j] >= v.C[i] - v.M * (1 - delta) - v.M * away
