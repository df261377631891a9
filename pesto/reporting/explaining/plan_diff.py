"""Differences of two plans: ops moved, bytes cut, order changed, devices and steps; as sentences and as JSON."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, refuse_another_graph
from pesto.core.plans.warm_start import device_successors
from pesto.core.problem import payloads
from pesto.core.quantities import change, duration, percent, plural, shorten, size
from pesto.reporting.explaining.name_scopes import name_scopes
from solvers.arrays import Bools, Ints

T = TypeVar("T")
_NONE = (0, 0.0, 0)
"""Values of a device that the plan does not have."""
_FEW = 64
_ROWS = 12
"""Groups of moved ops that a page has."""


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
    # Ops that went elsewhere, by scope and by where from and where to.
    took = first.schedule.finish - first.schedule.start
    scope, labels = name_scopes(first.names, took)
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for op, a, b in zip(ops[0][went].tolist(), where[0][went].tolist(), where[1][went].tolist(), strict=True):
        groups[int(scope[op]), a, b].append(op)
    rows = [
        MovedOps(
            scope=labels[k], before=before[a], after=after[b], ops=len(members),
            seconds=float(took[members].sum() * first.tick_s),
        )
        for (k, a, b), members in groups.items()
    ]  # fmt: skip
    moved = sorted(rows, key=lambda row: (-row.seconds, -row.ops, row.scope, row.before, row.after))
    order = _order(first, second, ops, went)
    return PlanDiff(
        step_s=(first.makespan_s, second.makespan_s),
        bound_s=_both(first, second, lambda plan: plan.provenance.lower_bound_ticks * plan.tick_s),
        cluster=(first.provenance.cluster, second.provenance.cluster),
        same_graph=first.provenance.graph_fingerprint == second.provenance.graph_fingerprint,
        both=len(ops[0]),
        alone=(len(first.names) - len(ops[0]), len(second.names) - len(ops[0])),
        moved=tuple(moved),
        **order,
        transfers=_both(first, second, lambda plan: len(plan.schedule.sent_payload)),
        sent_bytes=(_sent_bytes(first, graphs[0]), _sent_bytes(second, graphs[1])),
        sent_s=_both(first, second, lambda p: float((p.schedule.sent_finish - p.schedule.sent_start).sum() * p.tick_s)),
        devices=tuple(_devices((first, second), (before, after), home)),
    )


def _both(first: Plan, second: Plan, of: Callable[[Plan], T]) -> tuple[T, T]:
    return of(first), of(second)


def _device(plan: Plan, names: list[str]) -> Ints:
    """[n] the device of each op, an index into its devices' names."""
    return np.array([names.index(name) for name in plan.lane_device], dtype=np.int64)[plan.schedule.device]


def _order(first: Plan, second: Plan, ops: tuple[Ints, Ints], went: Bools) -> dict[str, Any]:
    core, timed = [], np.zeros(len(went), dtype=np.bool_)
    for plan, own in zip((first, second), ops, strict=True):
        number = [plan.lane_device[:lane].count(name) for lane, name in enumerate(plan.lane_device)]
        core.append(np.array(number, dtype=np.int64)[plan.schedule.device[own]])
        timed |= (plan.schedule.finish > plan.schedule.start)[own]
    stays = ~went & (core[0] == core[1])
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


def inversions(order: Ints) -> int:
    """Count the pairs k < j with order[k] > order[j]. O(n log² n)."""
    if len(order) <= _FEW:
        return int(np.triu(order[:, None] > order[None, :]).sum())
    half = len(order) // 2
    first, second = order[:half], order[half:]
    across = half - np.searchsorted(np.sort(first), second, side="right")
    return inversions(first) + inversions(second) + int(across.sum())


def _sent_bytes(plan: Plan, graph: Graph | None) -> int | None:
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
    sums: list[dict[str, tuple[int, float, int]]] = []
    for plan, own in zip(plans, names, strict=True):
        device, took = _device(plan, own), (plan.schedule.finish - plan.schedule.start) * plan.tick_s
        ops = np.bincount(device, minlength=len(own)).tolist()
        busy = np.bincount(device, weights=took, minlength=len(own)).tolist()
        sums.append({name: (ops[d], busy[d], plan.peak_bytes.get(name, 0)) for d, name in enumerate(own)})
    for pair in rows:
        both = [sums[side].get(names[side][k], _NONE) if k is not None else _NONE for side, k in enumerate(pair)]
        old, new = pair
        ops_of, busy_s, peak_bytes = zip(*both, strict=True)
        name = names[1][new] if new is not None else names[0][old or 0]
        yield DeviceDiff(name=name, ops=ops_of, busy_s=busy_s, peak_bytes=peak_bytes)


def diff_sentences(d: PlanDiff) -> Iterator[tuple[str, str]]:
    """Yield (word, sentence) of everything, in the order in which a page has it."""
    if not d.differ:
        yield "same", f"{d.both} ops, placed and in order alike; {duration(d.step_s[0])} predicted"
    yield "step", f"{_pair(duration, d.step_s)} predicted{_change(d.step_s)}"
    yield "bound", f"{_pair(duration, d.bound_s)}, as the plans state it"
    alone = f"{d.alone[0]} of the first alone, {d.alone[1]} of the second alone"
    yield "ops", f"{d.both} of both, {'of one graph' if d.same_graph else 'known again by their names'}; {alone}"
    core = f"; {d.other_core} to another core" if d.other_core else ""
    work = duration(sum(each.seconds for each in d.moved))
    groups = f", {work} of work, in {plural(len(d.moved), 'group')}" if d.moved else ""
    yield "moved", f"{d.moved_ops} of {d.both} ops to another device{groups}{core}"
    for moved in d.moved[:_ROWS]:
        scope = shown(shorten(moved.scope, 60), 60)
        yield "", f"{moved.before} -> {moved.after}: {scope}, {plural(moved.ops, 'op')}, {duration(moved.seconds)}"
    rest = d.moved[_ROWS:]
    if rest:
        work = duration(sum(each.seconds for each in rest))
        yield "", f"{plural(len(rest), 'more group')}: {plural(sum(each.ops for each in rest), 'op')}, {work}"
    share = f" ({percent(d.turned / d.pairs)})" if d.turned else ""
    yield (
        "order",
        f"of {d.stayed} ops that take time and are where they were, {d.new_neighbour} run behind another one than "
        f"before; {d.turned} of {d.pairs} pairs on one processor run the other way round{share}"
        + ("; only ops of no time changed places" if d.untimed_turned else ""),
    )
    sent = ""
    if d.sent_bytes[0] is not None and d.sent_bytes[1] is not None:
        sent = f", {_pair(size, d.sent_bytes)}{_change((d.sent_bytes[0], d.sent_bytes[1]))} sent"
    yield "transfers", f"{_pair(str, d.transfers)}{sent}, {_pair(duration, d.sent_s)} in all"
    for each in d.devices:
        busy, peak = _pair(duration, each.busy_s), _pair(size, each.peak_bytes)
        yield shown(each.name, 40), f"ops {_pair(str, each.ops)}, busy {busy}, peak {peak}"


def _pair(written: Callable[[Any], str], values: tuple[Any, Any]) -> str:
    one, other = map(written, values)
    return one if one == other else f"{one} -> {other}"


def _change(values: tuple[float, float]) -> str:
    one, other = values
    return f" ({change(other / one - 1)})" if one and one != other else ""


def diff_object(d: PlanDiff) -> dict[str, Any]:
    """Return all of the difference; what has two values is [first, second]."""
    order = {
        "ops": d.stayed,
        "new_neighbour": d.new_neighbour,
        "pairs": d.pairs,
        "turned": d.turned,
        "turned_share": d.turned / d.pairs if d.pairs else 0.0,
        "untimed_turned": d.untimed_turned,
    }
    return {
        "differ": d.differ,
        "same_graph": d.same_graph,
        "step_s": list(d.step_s),
        "bound_s": list(d.bound_s),
        "cluster": list(d.cluster),
        "ops": {"both": d.both, "first_alone": d.alone[0], "second_alone": d.alone[1]},
        "moved": {"ops": d.moved_ops, "other_core": d.other_core, "groups": [asdict(each) for each in d.moved]},
        "order": order,
        "transfers": list(d.transfers),
        "sent_bytes": list(d.sent_bytes),
        "sent_s": list(d.sent_s),
        "devices": [asdict(each) for each in d.devices],
    }
