"""Ops that tie variables together: a loop, or a branch that is not divided, is one op and on one device."""

from dataclasses import dataclass, replace

import numpy as np

from pesto.core.graph import Graph
from pesto.core.problem import TICK_S, copied_constants
from pesto.core.quantities import duration, percent, size
from pesto.planning.solving.quick_candidates import MOST_TASKS, RIVALS, run_heuristic
from solvers import FORBIDDEN, Problem
from solvers.arrays import Ints, ints

WHOLE = frozenset(("Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"))
"""Types of ops that are one op with all that they run inside."""
REMEDY = (
    "plan it from a tf.function or a GraphDef file and take random ops and assertions out of the branch, so that Pesto "
    "can divide it, or take an optimizer without a branch around it: in Keras without gradient_accumulation_steps, and "
    "for mixed_float16 compile(optimizer=Adam(loss_scale_factor=1024), auto_scale_loss=False)"
)
"""Remedy for a branch that could not be divided."""
LOOPS = frozenset(("StatelessWhile", "While"))
"""Types of ops whose inside runs again and again, so that no piece of it is a variable's alone."""
UNROLLED = "give each variable that can be elsewhere a loop of its own, or unroll the loop (in Keras unroll=True)"
"""Remedy for a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationTie:
    """An op that keeps variables on one device which without it could be on several."""

    op: str
    """Name of the op."""
    type: str
    """Type of the op."""
    variables: int
    """Number of tied variables, those that the optimizer keeps included."""
    ops: int
    """Number of ops that share their device with it, among them the variables' own."""
    tied_bytes: int
    """Bytes of the tied variables."""
    all_bytes: int
    """Bytes of all variables of the step."""
    chosen_ticks: int
    """Makespan of the plan, in ticks."""
    cut_ticks: int | None
    """Makespan in ticks of the best quick schedule with each variable updated by itself, memory apart; None if none was
    made, as for a loop."""

    @property
    def remedy(self) -> str:
        """Remedy for the tie."""
        return UNROLLED if self.type in LOOPS else REMEDY

    @property
    def cost(self) -> float:
        """Share of the plan's step that the tie costs, as modelled, and roughly: a quick schedule is no plan."""
        return 0.0 if self.cut_ticks is None else max(0.0, 1 - self.cut_ticks / self.chosen_ticks)

    def __str__(self) -> str:
        """Return one line with the tied variables, the cost and the remedy."""
        what = (
            f"{self.op} ({self.type}) ties {self.variables} variables ({size(self.tied_bytes)} of "
            f"{size(self.all_bytes)}) and {self.ops - self.variables} more ops to one device"
        )
        if self.type in LOOPS:
            return f"{what} - {self.remedy}"
        if self.cut_ticks is None or not self.cost:
            return f"{what}; no quick schedule without it is faster (modelled)"
        cut = duration(self.cut_ticks * TICK_S)
        return f"{what}, which costs about {percent(self.cost)}: updated apart, {cut} (modelled) - {self.remedy}"


def find_ties(graph: Graph, problem: Problem, chosen: int, *, timed: bool = True) -> tuple[ColocationTie, ...]:
    """Return the ops that tie more than half of the variables' bytes; `timed` with their cost to a plan of `chosen`."""
    names = ("list", *RIVALS) if timed and problem.tasks <= MOST_TASKS else ()
    loops = np.isin(graph.type_of, [k for k, t in enumerate(graph.types) if t in LOOPS])
    whole = np.isin(graph.type_of, [k for k, t in enumerate(graph.types) if t in WHOLE]) & (graph.group >= 0)
    ties = []
    for op in np.flatnonzero(whole).tolist():
        member = graph.group == graph.group[op]
        if len(_read(graph, op)) <= 1 or 2 * graph.param_bytes[member].sum() <= graph.param_bytes.sum():
            continue
        tried = () if loops[op] else names
        schedules = [run_heuristic(split_op(graph, problem, op), name).schedule for name in tried]
        ties.append(
            ColocationTie(
                op=graph.names[op], type=graph.types[graph.type_of[op]],
                variables=int((member & (graph.param_bytes > 0)).sum()), ops=int(member.sum()),
                tied_bytes=int(graph.param_bytes[member].sum()), all_bytes=int(graph.param_bytes.sum()),
                chosen_ticks=chosen, cut_ticks=min((s.makespan for s in schedules if s is not None), default=None),
            )
        )  # fmt: skip
    return tuple(ties)


def _read(graph: Graph, op: int) -> Ints:
    """The variables that an op reads."""
    src = np.unique(graph.src[graph.dst == op])
    return src[(graph.param_bytes[src] > 0) & (graph.group[src] == graph.group[op])]


def split_op(graph: Graph, problem: Problem, op: int) -> Problem:
    """Return the problem with an op in pieces, one a trained variable, that share its time by their bytes.

    A piece has the variable with what an optimizer keeps for it, and waits for the variable's gradient and for all
    that is of no variable's size.
    """
    part, parts = _parts(graph, op)
    piece = np.concatenate([[op], np.arange(problem.tasks, problem.tasks + parts - 1)])
    held = np.bincount(part[part >= 0], weights=graph.param_bytes[part >= 0], minlength=parts)
    time = problem.duration[op]
    pieces = np.where(time == FORBIDDEN, FORBIDDEN, np.ceil(time * (held / held.sum())[:, None]).astype(np.int64))
    lengths = np.concatenate([problem.duration, pieces[1:]])
    lengths[op] = pieces[0]
    group = np.concatenate([problem.group, np.zeros(parts - 1, dtype=np.int64)])
    mine = np.flatnonzero(part >= 0)
    group[mine], group[piece] = group.max() + 1 + part[mine], group.max() + 1 + np.arange(parts)
    src, dst, payload = _edges(graph, problem, op, piece, part)
    memory = np.concatenate([problem.memory, np.zeros(parts - 1, dtype=np.int64)])
    return replace(problem, duration=lengths, memory=memory, src=src, dst=dst, payload=payload, group=group)


def _parts(graph: Graph, op: int) -> tuple[Ints, int]:
    """([n] the piece that each member of the op's group goes with, -1 for others; the number of pieces).

    Ops go with the variable whose handle they are given, and what no other op than `op` is given is kept for a
    trained variable: in turn, of those of its size.
    """
    inside = (graph.group == graph.group[op]) & (np.arange(graph.ops) != op)
    handle = (graph.tensor_bytes[graph.tensor] == 0) & inside[graph.src] & inside[graph.dst]
    label = np.where(inside, np.arange(graph.ops), -1)
    for a, b in zip(graph.src[handle].tolist(), graph.dst[handle].tolist(), strict=True):
        label[label == label[b]] = label[a]
    read = _read(graph, op)
    trained = read[np.isin(read, graph.src[handle])]
    trained = trained if len(trained) else read[:1]
    for kept in np.setdiff1d(read, trained).tolist():
        alike = trained[graph.param_bytes[trained] == graph.param_bytes[kept]]
        turn = np.flatnonzero(read[graph.param_bytes[read] == graph.param_bytes[kept]] == kept)[0]
        label[label == label[kept]] = label[alike[turn % len(alike)] if len(alike) else trained[0]]
    labels, part = np.unique(label, return_inverse=True)
    return part - int(labels[0] < 0), len(labels) - int(labels[0] < 0)


def _edges(graph: Graph, problem: Problem, op: int, piece: Ints, part: Ints) -> tuple[Ints, Ints, Ints]:
    """(src, dst, payload) of the problem with an op in pieces: what waited for it waits for all, the first sends."""
    # The piece that each gradient goes to, by its tensor: of one size they come in the order of the backward pass.
    read = np.unique(graph.tensor[(graph.dst == op) & (graph.group[graph.src] != graph.group[op])])
    found: dict[int, int] = {}
    for held in np.unique(graph.tensor_bytes[read][graph.tensor_bytes[read] > 0]).tolist():
        handles = [i for i in _read(graph, op).tolist() if graph.param_bytes[i] == held]
        pieces = list(dict.fromkeys(part[handles].tolist()))[::-1]
        tensors = read[graph.tensor_bytes[read] == held].tolist()
        found.update(zip(tensors, pieces, strict=False))
    gradient, tensor = found, graph.tensor[kept_edges(graph, problem)]
    into, out = problem.dst == op, problem.src == op
    rows = list(zip(*(a[~(into | out)].tolist() for a in (problem.src, problem.dst, problem.payload)), strict=True))
    for e in np.flatnonzero(into).tolist():
        source = int(problem.src[e])
        one = int(part[source]) if part[source] >= 0 else gradient.get(int(tensor[e])) if e < len(tensor) else None
        rows += [(source, int(p), int(problem.payload[e])) for p in (piece if one is None else piece[[one]])]
    for e in np.flatnonzero(out).tolist():
        rows += [(int(p), int(problem.dst[e]), int(problem.payload[e]) if p == op else -1) for p in piece]
    src, dst, payload = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return src, dst, payload


def kept_edges(graph: Graph, problem: Problem) -> Ints:
    """Return the graph's data edges that its problem begins with, in order: all, or all but those of copied tensors."""
    every = problem.edges == len(graph.src) + len(graph.control_src)
    return ints(np.flatnonzero(np.ones(len(graph.src), np.bool_) if every else ~copied_constants(graph)[graph.tensor]))
