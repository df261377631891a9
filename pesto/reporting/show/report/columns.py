"""The columns of a page: a graph's ops and edges once, and of every plan when and why everything runs.

Each is written so that most entries are zero or small: as the difference to the entry before, or to that of the last op
of the same pattern of names. `unpack.js` has the other direction.
"""

import numpy as np

from pesto.core.graph import Graph
from pesto.core.memory.peaks import footprint
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.problem import payloads
from pesto.reporting.explaining.waits import DATA, DEVICE, TRANSFER, Waits
from pesto.reporting.show.report.column_encoding import differences, since_alike
from pesto.reporting.show.report.op_names import OpNameTree
from solvers import Problem
from solvers.arrays import Ints, ints, rank_of
from solvers.memory.usage import over_time

_SLOTS = 64
"""Inputs of an op that are told apart; edges of later ones are compared with each other."""


def graph_columns(graph: Graph, names: OpNameTree, group: Ints) -> dict[str, Ints]:
    """Columns shared by all plans of a graph: names, types, device kinds, edges; group: [n] groups of the problem."""
    alike = names.pattern[len(names.scopes) :]
    src, dst = graph.edge_src, graph.edge_dst
    by = np.lexsort((src, dst))
    offset, head = (dst - src)[by], dst[by]
    slot = np.arange(len(head)) - np.searchsorted(head, np.arange(graph.ops))[head]
    kinds = graph.runs_on.astype(np.int64) @ (1 << np.arange(len(graph.kinds), dtype=np.int64))
    return {
        "parent": differences(names.parent),
        "pattern": names.pattern,
        "steps": names.steps,
        "type": since_alike(graph.type_of, alike),
        "kinds": since_alike(kinds, alike),
        "group": differences(group),
        "inputs": since_alike(np.bincount(dst, minlength=graph.ops), alike),
        "from": since_alike(offset, alike[head] * _SLOTS + np.minimum(slot, _SLOTS - 1)),
    }


def plan_columns(plan: Plan, graph: Graph, problem: Problem, waits: Waits, alike: Ints) -> dict[str, Ints]:
    """Times, waits, transfers and bytes alive of one plan; alike: [n] the class of each op's name."""
    s = plan.schedule
    order = np.lexsort((plan.rank, s.finish, s.start, s.device))
    opens = np.diff(s.device[order], prepend=-1) != 0
    before = np.where(opens, 0, np.roll(s.finish[order], 1))
    rows, curves = [0], over_time(problem, footprint(graph, per_edge=_per_edge(plan)), s)
    return {
        "order": differences(ints(order)),
        "on": np.bincount(s.device, minlength=problem.devices),
        "gap": s.start[order] - before,
        "took": since_alike(s.finish - s.start, alike),
        "cause": waits.cause,
        "reason": _reason(waits, rank_of(order)),
        "slack": differences(waits.slack[order]),
        "sent_op": differences(problem.producer[s.sent_payload]),
        "sent_to": s.sent_to,
        "sent_start": differences(s.sent_start),
        "sent_took": s.sent_finish - s.sent_start,
        "sent_bytes": _sent_bytes(plan, graph),
        "levels": ints([len(ticks) for ticks, _ in curves]),
        "level_at": np.concatenate([rows[:0], *(differences(ticks) for ticks, _ in curves)]).astype(np.int64),
        "level": np.concatenate([rows[:0], *(differences(level) for _, level in curves)]).astype(np.int64),
    }


def _per_edge(plan: Plan) -> bool:
    return plan.provenance.transfers == PER_EDGE


def _sent_bytes(plan: Plan, graph: Graph) -> Ints:
    """[t] bytes of each transfer."""
    _, tensor = payloads(graph, per_edge=_per_edge(plan))
    return ints(graph.tensor_bytes[tensor[plan.schedule.sent_payload]])


def _reason(waits: Waits, place: Ints) -> Ints:
    """[n] what each op waited for: of an op how many indices before it, of a transfer its place in the schedule, of
    the device how many places beyond one before it."""
    op = np.arange(len(place))
    reason = np.zeros(len(place), dtype=np.int64)
    data, sent, device = (np.flatnonzero(waits.cause == cause) for cause in (DATA, TRANSFER, DEVICE))
    reason[data] = op[data] - waits.after[data]
    reason[sent] = waits.transfer[sent]
    reason[device] = place[device] - place[waits.after[device]] - 1
    return ints(reason)
