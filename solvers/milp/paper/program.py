"""Pesto's own integer program (Middleware '21, section 3.2.2), equation by equation, for any number of locations.

    minimise    C_max
    S_i, C_i    start and completion of an activity: a task, or a transfer k added on edge (i, j)
    x_i, ...    the bits of the code of where task i is: one binary x_i for two GPUs; colocated tasks share theirs
    z_k         whether transfer k happens
    delta_ij    whether i comes before j, for two tasks or two transfers

    (1)   C_i <= S_j                            on every edge of the augmented graph
    (2)   S_i + p_i = C_i                       tasks
    (3)   0 <= C_i <= C_max
    (4)   S_i >= C_j - M delta_ij,  S_j >= C_i - M (1 - delta_ij)                        i, j on one CPU core
    (5)   z_k <= x_i + x_j,  z_k >= x_i - x_j,  z_k >= x_j - x_i,  z_k <= 2 - x_i - x_j  z_k = x_i XOR x_j
    (6)   S_k + z_k p_k = C_k                   transfers
    (7)   S_i >= C_j - M delta_ij + M_s (x_a + x_c - x_b - x_d - 2),                     i from a to b, j from c to d,
          S_j >= C_i - M (1 - delta_ij) + M_s (x_a + x_c - x_b - x_d - 2)                GPU-1 -> GPU-0
    (8)   memory
    (9)   x, z and delta are 0 or 1
    (10)  S_i >= C_j - M_s delta_ij - M_l (2 - x_i - x_j),  S_j >= C_i - M_s (1 - delta_ij) - M_l (2 - x_i - x_j),
          S_i >= C_j - M_s delta_ij - M_l (x_i + x_j),      S_j >= C_i - M_s (1 - delta_ij) - M_l (x_i + x_j)

(10) is printed with + M_s delta_ij and + M_s (1 - delta_ij), by which no two tasks can share a GPU: both rows then
bind, for either value of delta_ij. With the sign of (4) and (7), one constant does for M, M_s and M_l: the horizon. How
each family reads for more locations is said in `solvers.milp.paper.rows`; what (8) is, and where the program departs
from the paper, in `docs/internals/paper-program.md`.

A payload that several tasks read crosses once for each of them here, once for each location in a `Problem`. So
the optimum is the problem's where no payload has two readers that may sit together (`Program.binding`), and no less
elsewhere.
"""  # fmt: skip

from collections import Counter
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.milp.formulations import MakespanLimits
from solvers.milp.linear import Linear
from solvers.milp.paper.affine import Affine, AffineBuilder
from solvers.milp.paper.codes import encoded, exclude
from solvers.milp.paper.rows import (
    PaperModel,
    PerEdge,
    before,
    completion,
    congestion,
    crossings,
    descendants,
    horizon,
    memory,
    no_overlap,
    open_pairs,
    precedence,
    shared_links,
    transfer_times,
    transfers_of,
    unshared,
)
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild


def activity_names(model: PaperModel) -> list[str]:
    """Return [n + t] `op3` for a task, `data4_op3_op5` for the transfer of payload 4 of the edge from 3 to 5."""
    t = model.transfers
    ends = zip(*(part.tolist() for part in (t.payload, t.tail, t.head)), strict=True)
    return [*(f"op{i}" for i in range(model.problem.tasks)), *(f"data{k}_op{i}_op{j}" for k, i, j in ends)]


def column_names(model: PaperModel) -> dict[int, str]:
    """Column -> name of all that every program of the model has.

    C_max, S_ and C_ of an activity, z_ of a transfer, and x_op3_bit0 of the location of task 3, or of the first of
    those that are together with it, and core_op3_bit0 of its device there.
    """
    codes, label = model.codes, activity_names(model)
    named = {int(model.makespan.column[0, 0]): "C_max"}
    for letter, part in (("S", model.start), ("C", model.finish)):
        named |= {c: f"{letter}_{name}" for c, name in zip(part.column[:, 0].tolist(), label, strict=True)}
    for k in np.flatnonzero(~model.transfers.always).tolist():
        named[int(model.crossing.column[k, 0])] = f"z_{label[model.problem.tasks + k]}"
    first = np.unique(codes.units.unit, return_index=True)[1].tolist()
    for letter, bits, owner in (("x", codes.bit, first), ("core", codes.core, range(model.problem.tasks))):
        for row, task in zip(bits.tolist(), owner, strict=True):
            named |= {c: f"{letter}_op{task}_bit{bit}" for bit, c in enumerate(row) if c >= 0}
    return named


def order_names(model: PaperModel, pairs: tuple[Ints, Ints, Ints]) -> dict[int, str]:
    """Column -> `op3_before_op5`, of pairs of activities and their columns."""
    label = activity_names(model)
    return {c: f"{label[i]}_before_{label[j]}" for i, j, c in zip(*(part.tolist() for part in pairs), strict=True)}


Pairs = tuple[Ints, Ints]
"""Numbers of the first and of the second of each pair."""
_SHOWN = 5
"""Readers of a payload that are named at most."""
_GRID = 1e-4
"""Units of time below which two times of a vendor's point are one: its tolerances are a hundredth of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperStyle:
    """Choices that the paper leaves open."""

    every_pair: bool = False
    """Order variables for pairs that precedence orders, too."""
    big: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """M, M_s and M_l in multiples of the horizon: 1 is the least that is correct; the paper has M << M_s << M_l."""


def build(problem: Problem, limits: MakespanLimits) -> "PaperProgram":
    """The program with one constant, the horizon, and order variables for the pairs that precedence leaves open."""
    return styled(problem, limits, PaperStyle())


def styled(problem: Problem, limits: MakespanLimits, style: PaperStyle) -> "PaperProgram":
    """Return the program of a problem of one or more tasks. O((n^2 + t^2) (m + q)) for t transfers and q links."""
    edges = unshared(problem)
    most = horizon(edges, limits.most)
    m = variables(edges.problem, (min(limits.least, most), most), limits)
    exclude(m.codes, m.assembly)
    for family in (precedence, completion, crossings, transfer_times, memory):
        family(m)
        limits.check()
    m_, m_s, m_l = (factor * most / limits.unit for factor in style.big)
    tasks, pairs = ordered(m, every=style.every_pair)
    links = shared_links(edges.problem)
    order = m.assembly.binaries(len(tasks[0])), m.assembly.binaries(len(pairs[0]))
    limits.check()
    no_overlap(m, tasks, order[0], (m_, m_s, m_l))
    congestion(m, links, pairs, order[1], (m_, m_s, m_l))
    if not m.codes.units.allowed.any(axis=1).all():
        m.assembly.not_negative(m.makespan - 2.0 * (1.0 + most / limits.unit))
    n = problem.tasks
    first, second = (np.concatenate([tasks[side], n + pairs[side]]) for side in (0, 1))
    delta = Affine.stack(order).column[:, 0]
    return PaperProgram(origin=problem, edges=edges, model=m, pairs=(first, second, delta), linear=m.assembly.linear())


def ordered(m: PaperModel, *, every: bool = False) -> tuple[Pairs, Pairs]:
    """Return the pairs of tasks and of transfers that have an order variable: those that are open, or every."""
    after = descendants(m.problem)
    links = shared_links(m.problem)
    holds = np.array([m.transfers.crosses[:, *held].any(axis=1) for held in links], dtype=bool)
    tasks = open_pairs(after & (not every), m.codes.able)
    shares = holds.reshape(len(links), len(m.transfers.payload)).T
    return tasks, open_pairs(before(after, m.transfers) & (not every), shares)


def variables(problem: Problem, span: tuple[int, int], limits: MakespanLimits) -> PaperModel:
    """Return all variables but those of orders, and those that a family of constraints adds for itself.

    `problem` has a payload an edge; `span`: the makespan's least and most ticks.
    """
    assembly, unit = AffineBuilder(limits.check), limits.unit
    least, most = (ticks / unit for ticks in span)
    makespan = assembly.variables(1, least, most, cost=1.0)
    transfers = transfers_of(problem)
    activities = problem.tasks + len(transfers.payload)
    start, finish = assembly.variables(activities, 0.0, most), assembly.variables(activities, 0.0, most)
    some = np.flatnonzero(~transfers.always)
    always = np.flatnonzero(transfers.always)
    crossing = Affine.stack([assembly.binaries(len(some)), Affine.fixed(np.ones(len(always)))])
    return PaperModel(
        problem=problem, codes=encoded(problem, assembly), transfers=transfers, unit=unit, assembly=assembly,
        makespan=makespan, start=start, finish=finish, crossing=crossing[np.argsort(np.concatenate([some, always]))],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperProgram:
    """Pesto's integer program of one problem, as an `IntegerProgram`."""

    origin: Problem
    edges: PerEdge
    model: PaperModel
    pairs: tuple[Ints, Ints, Ints]
    """Pairs of activities with an order variable, and its column."""
    linear: Linear

    @property
    def activities(self) -> int:
        """Tasks and transfers."""
        return len(self.model.start)

    @property
    def binding(self) -> bool:
        """True if every transfer of the program is one of the problem."""
        return self.edges.exact

    @property
    def unsaid(self) -> str:
        """That a payload crosses once for each of its readers."""
        if self.binding:
            return ""
        readers, t = Counter(self.edges.origin[self.model.transfers.payload].tolist()), self.model.transfers
        payload = max(readers, key=lambda k: (readers[k], -k))
        to = t.head[self.edges.origin[t.payload] == payload].tolist()
        shown = ", ".join(map(str, to[:_SHOWN])) + (", ..." if len(to) > _SHOWN else "")
        return f"it sends payload {payload} to each of the tasks {shown} by itself, where the problem sends it once"

    @property
    def names(self) -> list[str]:
        """[c] of the columns; those that (7) and (8) add for themselves are called by their numbers."""
        named = column_names(self.model) | order_names(self.model, self.pairs)
        return [named.get(column, f"v{column}") for column in range(self.linear.columns)]

    def values(self, schedule: Schedule) -> Floats:
        """Return [c] a feasible point that describes a valid schedule of at most `limits.most` ticks.

        Where a payload crosses once in the schedule and for several edges here, the transfers follow one another and
        what comes after is delayed: the point's makespan is then longer, within the program's own horizon.
        """
        m, t, values = self.model, self.model.transfers, np.zeros(self.linear.columns)
        # The schedule with a payload an edge; of the same times where no payload has to cross twice.
        at = self.origin.location[schedule.device]
        columns = (schedule.sent_payload, schedule.sent_to, schedule.sent_start, schedule.sent_finish)
        known = {(q, to): times for q, to, *times in zip(*(c.tolist() for c in columns), strict=True)}
        cut = np.flatnonzero(at[t.tail] != at[t.head])
        there = at[t.head[cut]]
        keys = zip(self.edges.origin[t.payload[cut]].tolist(), there.tolist(), strict=True)
        times = np.array([known[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        own = Schedule(
            device=schedule.device, start=schedule.start, finish=schedule.finish, sent_payload=t.payload[cut],
            sent_to=there, sent_start=times[:, 0], sent_finish=times[:, 1],
        )  # fmt: skip
        own = own if self.edges.exact else rebuild(self.edges.problem, own)
        # What does not cross takes no time when its producer ends.
        ready = own.finish[m.transfers.tail]
        start, finish = np.concatenate([own.start, ready]), np.concatenate([own.finish, ready])
        sent = self.origin.tasks + np.searchsorted(m.transfers.payload, own.sent_payload)
        start[sent], finish[sent] = own.sent_start, own.sent_finish
        values[m.makespan.column[:, 0]] = own.makespan / m.unit
        values[m.start.column[:, 0]], values[m.finish.column[:, 0]] = start / m.unit, finish / m.unit
        m.codes.encode(own.device, values)
        for column, least in m.assembly.forced:
            np.maximum.at(values, column, least.at(values))
        one, two, order = self.pairs
        values[order] = (start[one] < start[two]) | ((start[one] == start[two]) & (finish[one] <= finish[two]))
        return values

    def schedule(self, values: Floats) -> Schedule:
        """Return the rough schedule that a point [c] describes, of several transfers to one place only the first."""
        m = self.model
        start, finish = (np.rint(part.at(values) / _GRID).astype(np.int64) for part in (m.start, m.finish))
        device, n, t = m.codes.decode(values), self.origin.tasks, m.transfers
        at = self.origin.location[device]
        sent = np.flatnonzero(at[t.tail] != at[t.head])
        sent = sent[np.argsort(start[n + sent], kind="stable")]
        payload, to = self.edges.origin[t.payload[sent]], at[t.head[sent]]
        _, first = np.unique(payload * self.origin.locations + to, return_index=True)
        return Schedule(
            device=device, start=start[:n], finish=finish[:n], sent_payload=payload[first], sent_to=to[first],
            sent_start=start[n + sent[first]], sent_finish=finish[n + sent[first]],
        )  # fmt: skip
