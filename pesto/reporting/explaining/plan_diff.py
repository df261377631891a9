"""Wherein two plans differ: ops moved, bytes cut, order changed, what each device does, and the steps."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, refuse_another_graph
from pesto.core.plans.warm_start import device_successors
from pesto.core.problem import payloads
from pesto.reporting.explaining.name_scopes import name_scopes
from solvers.arrays import Bools, Ints, bools

# Pairs that stand the other way round in two orders of the same things.

_FEW = 64


def inversions(order: Ints) -> int:
    """Pairs k < j with order[k] > order[j]. O(n log² n)."""
    if len(order) <= _FEW:
        return int(np.triu(order[:, None] > order[None, :]).sum())
    half = len(order) // 2
    first, second = order[:half], order[half:]
    across = half - np.searchsorted(np.sort(first), second, side="right")
    return inversions(first) + inversions(second) + int(across.sum())


T = TypeVar("T")
_NONE = (0, 0.0, 0)
"""Values of a device that the plan does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedOps:
    """Ops of one scope that were on one device and are on another."""

    scope: str
    before: str
    """Name of the device in the first plan."""
    after: str
    """Name of the device in the second."""
    ops: int
    seconds: float
    """Total compute seconds of the ops, by the first plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDiff:
    """A device in both plans; 0 in the one that has none such."""

    name: str
    """In the second plan; in the first, where that has none."""
    ops: tuple[int, int]
    busy_s: tuple[float, float]
    """Seconds that it computes, a host's summed over its cores."""
    peak_bytes: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanDiff:
    """Two plans side by side; pairs are (first, second)."""

    step_s: tuple[float, float]
    bound_s: tuple[float, float]
    """Lower bound that each plan states."""
    cluster: tuple[str, str]
    same_graph: bool
    """True if both are of one graph; otherwise ops are known again by their names."""
    both: int
    """Ops that both have."""
    alone: tuple[int, int]
    """Ops that one has alone."""
    moved: tuple[MovedOps, ...]
    """Ops of both on another device, those of most seconds first."""
    other_core: int
    """Ops of both on another core of the same host."""
    stayed: int
    """Timed ops of both on the same processor: what the next three are of."""
    pairs: int
    """Pairs of these on one processor."""
    turned: int
    """Such pairs that run the other way round."""
    new_neighbour: int
    """Such ops that run behind another one than before, or first where they were not."""
    untimed_turned: bool
    """True if ops of no time run in another order on their processor."""
    transfers: tuple[int, int]
    sent_bytes: tuple[int | None, int | None]
    """Bytes of all transfers; None where the graph is not at hand."""
    sent_s: tuple[float, float]
    """Seconds of all transfers."""
    devices: tuple[DeviceDiff, ...]

    @property
    def moved_ops(self) -> int:
        """Ops of both plans that are on another device."""
        return sum(each.ops for each in self.moved)

    @property
    def differ(self) -> bool:
        """True if ops, placement, order or the step differ; what a plan says of its making does not count."""
        placed = self.moved_ops + self.other_core + sum(self.alone)
        return bool(placed + self.new_neighbour + self.untimed_turned) or self.step_s[0] != self.step_s[1]


def compare_plans(first: Plan, second: Plan, graphs: tuple[Graph | None, Graph | None]) -> PlanDiff:
    """Compare two plans, neither of which is verified. graphs: of each, for the bytes; None where not at hand.

    Ops are known again by their names, and devices as where a plan is carried over to another cluster
    (`pesto.core.plans.warm_start`). UsageError where they have no op in common, MismatchError for a graph that is not
    the plan's, InputError for a plan that speaks of tensors that its graph does not have. O(n log n).
    """
    at = {name: k for k, name in enumerate(second.names)}
    number = np.array([at.get(name, -1) for name in first.names], dtype=np.int64)
    ops = (np.flatnonzero(number >= 0), number[number >= 0])
    if not len(ops[0]) and first.names and second.names:
        made = [shown(plan.provenance.graph_source) for plan in (first, second)]
        raise UsageError.build(
            f"the plans, for {made[0]} and {made[1]}, have no op in common", remedy="give two of one model"
        )
    before, after = (list(dict.fromkeys(plan.lane_device)) for plan in (first, second))
    home = device_successors(before, [(name, name.partition(":")[0]) for name in after])
    where = (_device(first, before)[ops[0]], _device(second, after)[ops[1]])
    went = np.array([*home, -1])[where[0]] != where[1]
    order = _order(first, second, ops, went)
    return PlanDiff(
        step_s=(first.makespan_s, second.makespan_s),
        bound_s=_both(first, second, lambda plan: plan.provenance.lower_bound_ticks * plan.tick_s),
        cluster=(first.provenance.cluster, second.provenance.cluster),
        same_graph=first.provenance.graph_fingerprint == second.provenance.graph_fingerprint,
        both=len(ops[0]),
        alone=(len(first.names) - len(ops[0]), len(second.names) - len(ops[0])),
        moved=_moved(first, ops[0], went, (before, after), where),
        **order,
        transfers=_both(first, second, lambda plan: len(plan.schedule.sent_payload)),
        sent_bytes=(_sent_bytes(first, graphs[0]), _sent_bytes(second, graphs[1])),
        sent_s=_both(first, second, _sent_s),
        devices=tuple(_devices((first, second), (before, after), home)),
    )


def _both(first: Plan, second: Plan, of: Callable[[Plan], T]) -> tuple[T, T]:
    return of(first), of(second)


def _device(plan: Plan, names: list[str]) -> Ints:
    """[n] the device of each op, an index into its devices' names."""
    return np.array([names.index(name) for name in plan.lane_device], dtype=np.int64)[plan.schedule.device]


def _core(plan: Plan) -> Ints:
    """[n] which processor of its device each op is on."""
    place = [plan.lane_device[:lane].count(name) for lane, name in enumerate(plan.lane_device)]
    return np.array(place, dtype=np.int64)[plan.schedule.device]


def _moved(
    first: Plan, ops: Ints, went: Bools, names: tuple[list[str], list[str]], where: tuple[Ints, Ints]
) -> tuple[MovedOps, ...]:
    """The ops of both plans that went elsewhere, by scope and by where from and where to."""
    took = first.schedule.finish - first.schedule.start
    scope, labels = name_scopes(first.names, took)
    result: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for op, a, b in zip(ops[went].tolist(), where[0][went].tolist(), where[1][went].tolist(), strict=True):
        result[int(scope[op]), a, b].append(op)
    rows = [
        MovedOps(
            scope=labels[k],
            before=names[0][a],
            after=names[1][b],
            ops=len(members),
            seconds=float(took[members].sum() * first.tick_s),
        )
        for (k, a, b), members in result.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, -row.ops, row.scope, row.before, row.after)))


def _order(first: Plan, second: Plan, ops: tuple[Ints, Ints], went: Bools) -> dict[str, Any]:
    """Compare the order of ops that are on the same processor in both plans."""
    core = (_core(first)[ops[0]], _core(second)[ops[1]])
    stays = ~went & (core[0] == core[1])
    timed = _timed(first)[ops[0]] | _timed(second)[ops[1]]
    lane, ranks = first.schedule.device[ops[0]], (first.rank[ops[0]], second.rank[ops[1]])
    pairs = turned = new = untimed = 0
    for k in np.unique(lane[stays]).tolist():
        here = np.flatnonzero(stays & (lane == k))
        orders = [here[np.argsort(rank[here], kind="stable")] for rank in ranks]
        untimed += int((orders[0] != orders[1]).sum())
        one, other = (order[timed[order]] for order in orders)
        place = np.empty(len(lane), dtype=np.int64)
        place[other] = np.arange(len(other))
        pairs += len(one) * (len(one) - 1) // 2
        turned += inversions(place[one])
        follows = place[one][1:] == place[one][:-1] + 1
        new += int((~follows).sum()) + int(len(one) > 0 and place[one[0]] != 0)
    return {
        "other_core": int((~went & ~stays).sum()),
        "stayed": int((stays & timed).sum()),
        "pairs": pairs,
        "turned": turned,
        "new_neighbour": new,
        "untimed_turned": bool(untimed) and not turned,
    }


def _timed(plan: Plan) -> Bools:
    return bools(plan.schedule.finish > plan.schedule.start)


def _sent_s(plan: Plan) -> float:
    return float((plan.schedule.sent_finish - plan.schedule.sent_start).sum() * plan.tick_s)


def _sent_bytes(plan: Plan, graph: Graph | None) -> int | None:
    """Bytes of all transfers of a plan of this graph."""
    if graph is None:
        return None
    refuse_another_graph(plan, graph)
    tensor = payloads(graph, per_edge=plan.provenance.transfers == PER_EDGE)[1]
    sent = plan.schedule.sent_payload
    if len(sent) and not 0 <= int(sent.min()) <= int(sent.max()) < len(tensor):
        raise InputError.build("the plan sends tensors that its graph does not have", remedy="the file is damaged")
    return int(graph.tensor_bytes[tensor[sent]].sum())


def _devices(plans: tuple[Plan, Plan], names: tuple[list[str], list[str]], home: list[int]) -> Iterator[DeviceDiff]:
    """Every device of the second plan with its predecessor, then those of the first that are gone."""
    before = {at: k for k, at in enumerate(home) if at >= 0}
    rows: list[tuple[int | None, int | None]] = [(before.get(at), at) for at in range(len(names[1]))]
    rows += [(k, None) for k, at in enumerate(home) if at < 0]
    sums = [_sums(plan, own) for plan, own in zip(plans, names, strict=True)]
    for pair in rows:
        said = [sums[side].get(names[side][k], _NONE) if k is not None else _NONE for side, k in enumerate(pair)]
        old, new = pair
        yield DeviceDiff(
            name=names[1][new] if new is not None else names[0][old or 0],
            ops=(said[0][0], said[1][0]),
            busy_s=(said[0][1], said[1][1]),
            peak_bytes=(said[0][2], said[1][2]),
        )


def _sums(plan: Plan, names: list[str]) -> dict[str, tuple[int, float, int]]:
    """(ops, seconds of work, peak bytes) of each device."""
    device, took = _device(plan, names), (plan.schedule.finish - plan.schedule.start) * plan.tick_s
    ops = np.bincount(device, minlength=len(names)).tolist()
    busy = np.bincount(device, weights=took, minlength=len(names)).tolist()
    return {name: (ops[d], busy[d], plan.peak_bytes.get(name, 0)) for d, name in enumerate(names)}
