"""Pesto's program (Middleware '21, section 3.2.2) as it is printed, in PuLP: minimise C_max subject to (1) - (10).

The rows are written once more, one by one, each function's docstring being the formula, (10) with its sign put right;
the augmented graph, which pairs are open, and the reading of points are those of `solvers.milp.paper`, which builds the
same rows by arrays.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pulp import LpAffineExpression, LpBinary, LpConstraint, LpContinuous, LpMinimize, LpProblem, LpVariable, lpSum

from solvers.arrays import offsets
from solvers.milp.formulations import MakespanLimits
from solvers.milp.linear import INFINITY, Linear
from solvers.milp.paper.affine import Affine
from solvers.milp.paper.codes import idle_cores, meaningless
from solvers.milp.paper.program import Pairs, PaperProgram, column_names, order_names, ordered, variables
from solvers.milp.paper.rows import Held, PaperModel, horizon, scaled, shared_links, unshared
from solvers.problem import Problem

Term = Any
"""An `LpVariable`, or the number that it always is. PuLP has no types of its own."""
Number = Any
"""An `LpAffineExpression`, or a `Term`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Symbols:
    """Symbols of the constraints. Activities are the n tasks, then the t transfers; times are in units."""

    model: PaperModel
    M: float
    """The horizon, which does for M, M_s and M_l."""
    C_max: LpVariable
    S: list[LpVariable]
    """[n + t] start of each activity."""
    C: list[LpVariable]
    """[n + t] completion of each activity."""
    z: list[Term]
    """[t] whether a transfer happens."""
    x: list[list[LpVariable | None]]
    """[u, B] the bits of the code of each unit's location, None for one that is the same wherever it can be."""
    core: list[list[LpVariable | None]]
    """[n, W] the bits of the code of each task's device at its location, None likewise."""
    delta: tuple[dict[tuple[int, int], LpVariable], dict[tuple[int, int], LpVariable]]
    """True if i comes first, by pairs of tasks and by pairs of transfers."""
    links: list[Held]
    """The paths of each link."""
    columns: list[LpVariable]
    """[c] all of the above, and those of `new`, as they were made."""
    forced: list[tuple[LpVariable, Number]] = field(default_factory=list)
    """Variables that are no greater than `least` demands."""

    def new(self, name: str) -> LpVariable:
        """One more variable from 0 to 1."""
        self.columns.append(LpVariable(name, 0, 1))
        return self.columns[-1]

    def least(self, variable: LpVariable, value: Number) -> LpConstraint:
        """variable >= value, for variables that are no greater than such rows demand."""
        self.forced.append((variable, value))
        return variable >= value

    def unit(self, i: int) -> int:
        """Return the unit of a task: its group, or itself."""
        return int(self.model.codes.units.unit[i])

    def bit(self, i: int, bit: int) -> Term:
        """x_i, y_i, ...: a bit of the code of a task's location."""
        u = self.unit(i)
        variable = self.x[u][bit]
        return int(self.model.codes.fixed[u]) >> bit & 1 if variable is None else variable

    def away(self, i: int, place: int) -> LpAffineExpression:
        """`away_il`, 0 where task i is at location l and 1 or more elsewhere: x_i for GPU-0, 1 - x_i for GPU-1."""
        return differ(self.x[self.unit(i)], int(self.model.codes.code[place]))

    def off(self, i: int, device: int) -> LpAffineExpression:
        """`away_id`, 0 where task i is on device d and 1 or more elsewhere."""
        codes = self.model.codes
        place = int(codes.problem.location[device])
        return self.away(i, place) + differ(self.core[i], int(codes.rank[i, device]))

    def elsewhere(self, k: int, here: int, there: int) -> LpAffineExpression:
        """0 where transfer k goes from `here` to `there`, 1 or more where not: 1 - x_i + x_j for GPU-1 -> GPU-0."""
        t = self.model.transfers
        return self.away(int(t.tail[k]), here) + self.away(int(t.head[k]), there)

    def affine(self) -> list[tuple[int, Affine]]:
        """`forced` by numbers of columns."""
        number = {variable.name: c for c, variable in enumerate(self.columns)}
        forced = []
        for variable, value in self.forced:
            whole = value + LpAffineExpression()
            terms = [(number[v.name], float(c)) for v, c in whole.items()]
            column, coefficient = np.array(terms, dtype=np.float64).reshape(-1, 2).T
            constant = np.array([float(whole.constant)])
            least = Affine(constant=constant, column=column.astype(np.int64)[None], coefficient=coefficient[None])
            forced.append((number[variable.name], least))
        return forced


def differ(bits: list[LpVariable | None], code: int) -> LpAffineExpression:
    """Return the number of bits that differ from a code's; those that are no variables do not count."""
    return lpSum(1 - x if code >> b & 1 else x for b, x in enumerate(bits) if x is not None)


def symbols(model: PaperModel, horizon: float) -> Symbols:
    """Return the variables of a model, which has those of orders not yet; `horizon` is in units."""
    tasks, transfers = ordered(model)
    n, first = model.problem.tasks, model.assembly.columns
    delta = Affine.stack([model.assembly.binaries(len(pairs[0])) for pairs in (tasks, transfers)]).column[:, 0]
    one, two = (np.concatenate([tasks[side], n + transfers[side]]) for side in (0, 1))
    named = column_names(model) | order_names(model, (one, two, delta))
    columns = [
        LpVariable(named[c], lower, upper, LpBinary if whole else LpContinuous)
        for c, (lower, upper, whole) in enumerate(model.assembly.kinds())
    ]
    part = model.crossing.column
    crossing = part[:, 0].tolist() if part.shape[1] else [0] * len(part)
    split = first + len(tasks[0])
    always = model.transfers.always.tolist()
    return Symbols(
        model=model,
        M=horizon,
        C_max=columns[int(model.makespan.column[0, 0])],
        S=[columns[c] for c in model.start.column[:, 0].tolist()],
        C=[columns[c] for c in model.finish.column[:, 0].tolist()],
        z=[1 if sure else columns[c] for sure, c in zip(always, crossing, strict=True)],
        x=[[columns[c] if c >= 0 else None for c in row] for row in model.codes.bit.tolist()],
        core=[[columns[c] if c >= 0 else None for c in row] for row in model.codes.core.tolist()],
        delta=(_orders(tasks, columns[first:split]), _orders(transfers, columns[split:])),
        links=shared_links(model.problem),
        columns=columns,
    )


def _orders(pairs: Pairs, columns: list[LpVariable]) -> dict[tuple[int, int], LpVariable]:
    return dict(zip(zip(*(side.tolist() for side in pairs), strict=True), columns, strict=True))


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


NUMBERED = {
    1: precedence, 2: duration, 3: makespan, 4: cores, 5: crossing, 6: transfer_time, 7: congestion,
    8: memory, 9: codes, 10: gpus,
}  # fmt: skip
"""By its number in the paper, the function that yields the constraint's rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PulpProgram(PaperProgram):
    """An `IntegerProgram`, and the PuLP problem that it was made from."""

    modelled: LpProblem
    symbols: Symbols
    """Its variables."""

    @property
    def names(self) -> list[str]:
        """[c] of the columns."""
        return [variable.name for variable in self.symbols.columns]


def build(problem: Problem, limits: MakespanLimits) -> PulpProgram:
    """Return the program of a problem of one or more tasks, with the horizon for M, M_s and M_l."""
    edges = unshared(problem)
    most = horizon(edges, limits.most)
    model = variables(edges.problem, (min(limits.least, most), most), limits)
    v = symbols(model, most / limits.unit)
    limits.check()
    modelled = LpProblem("pesto", LpMinimize)
    modelled.setObjective(v.C_max + 0)
    for family, constraints in NUMBERED.items():
        for count, constraint in enumerate(constraints(v)):
            limits.check()
            modelled.addConstraint(constraint, f"eq{family}_{count}")
    if not v.model.codes.units.allowed.any(axis=1).all():
        modelled.addConstraint(v.C_max >= 2.0 * (1.0 + v.M), "no_location")
    for column, least in v.affine():
        model.assembly.forced.append((np.array([column]), least))
    number = {variable.name: column for column, variable in enumerate(v.columns)}
    n = problem.tasks
    pairs = [
        (base + i, base + j, number[delta.name])
        for base, orders in zip((0, n), v.delta, strict=True)
        for (i, j), delta in orders.items()
    ]
    one, two, order = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    # The same as arrays, the rows in the order of their numbers.
    rows = list(modelled.constraints.values())
    entries = [[(number[x.name], float(a)) for x, a in row.items() if a] for row in rows]
    flat = np.array([entry for row in entries for entry in row], dtype=np.float64).reshape(-1, 2)
    cost = np.zeros(len(v.columns))
    cost[number[v.C_max.name]] = 1.0
    right = np.array([0.0 - float(row.constant) for row in rows], dtype=np.float64)
    sense = np.array([row.sense for row in rows], dtype=np.int64)
    linear = Linear(
        cost=cost,
        lower=np.array([x.lowBound for x in v.columns], dtype=np.float64),
        upper=np.array([x.upBound for x in v.columns], dtype=np.float64),
        integer=np.array([x.isInteger() for x in v.columns], dtype=np.bool_),
        offset=offsets(np.array([len(row) for row in entries], dtype=np.int64)),
        column=flat[:, 0].astype(np.int64),
        coefficient=flat[:, 1],
        row_lower=np.where(sense < 0, -INFINITY, right),
        row_upper=np.where(sense > 0, INFINITY, right),
    )
    return PulpProgram(
        origin=problem, edges=edges, model=model, pairs=(one, two, order), linear=linear,
        modelled=modelled, symbols=v,
    )  # fmt: skip
