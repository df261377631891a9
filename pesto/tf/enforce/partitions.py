"""Check of every run: TensorFlow's partition graphs must have each op on its planned device, in the planned order.

Every op of a chain must wait for its neighbour, by a path of edges; the times of a traced run are an option on top.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import VerificationError
from pesto.core.plans.plan import neighbours
from pesto.core.quantities import plural
from pesto.tf.apply_placement.placement import FED, StepPlacement
from pesto.tf.apply_placement.targets import covers
from pesto.tf.enforce.edits import places_of
from pesto.tf.nodes.needed_nodes import producer
from pesto.tf.nodes.unordered_ops import CARRIED
from pesto.tf.nodes.v1_loops import MERGES, Loop

_NEXT = ("NextIteration", "RefNextIteration")


def find_unordered_neighbours(
    partitions: Sequence[Any],
    placement: StepPlacement,
    loops: Mapping[str, Loop],
    present: Collection[str],
    prefix: str,
) -> list[str]:
    """Return one line for each pair of neighbours in a chain between which no path of edges leads.

    present: names of the ops and relays in the partitions, without `prefix`.
    """
    walks = [_PartitionWalk.of(part) for part in partitions]
    wrong = []
    of_op = places_of(placement, loops)
    # The ops in the chain of each processor, in order, by themselves or by their relays.
    member = np.flatnonzero(placement.ordered)
    member = member[np.lexsort((placement.rank[member], placement.lane[member]))]
    for chain in np.split(member, np.flatnonzero(np.diff(placement.lane[member])) + 1):
        places = [p for op in chain.tolist() for p in of_op[op] if p.name in present]
        starts = {prefix + n: k for k, p in enumerate(places) for n in p.entries}
        ends = [tuple(prefix + n for n in p.exits) for p in places]
        # A chain lies on one device, so one partition holds it; partitions without any of its ops return at once.
        for walk in walks:
            late = walk.late(starts, ends)
            wrong += [f"op {places[k].name} does not wait for {places[k - 1].name}" for k in late]
    return wrong


@dataclass(frozen=True, slots=True)
class _PartitionWalk:
    """One partition with its edges in topological order."""

    nodes: Mapping[str, Any]
    order: Sequence[str]
    """A topological order."""
    before: Mapping[str, Sequence[str]]
    """Producers of each node, without the edges that close loops."""

    @classmethod
    def of(cls, part: Any) -> "_PartitionWalk":
        nodes = {node.name: node for node in part.node}
        before: dict[str, list[str]] = {}
        after: dict[str, list[str]] = {name: [] for name in nodes}
        for name, node in nodes.items():
            merge, producers = node.op in MERGES, dict.fromkeys(producer(text) for text in node.input)
            before[name] = [p for p in producers if p in nodes and not (merge and nodes[p].op in _NEXT)]
            for p in before[name]:
                after[p].append(name)
        waiting = {name: len(producers) for name, producers in before.items()}
        order = [name for name, count in waiting.items() if count == 0]
        for name in order:  # grows while it is walked
            for other in after[name]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    order.append(other)
        return cls(nodes, order, before)

    def late(self, starts: Mapping[str, int], ends: Sequence[Sequence[str]]) -> list[int]:
        """Return the places in one chain whose op can start before the one at the place before it has ended.

        starts: node -> place whose op it starts. ends: for each place, the nodes that all have ended when its op has.
        """
        if not any(name in starts for name in self.order):
            return []
        # Each walk carries one number a node, the last place that is known to be done when it starts. Waiting for one
        # exit of a loop is not waiting for the others, so there is a walk for the first exit of each place, one for the
        # second, and so on.
        present = [[name for name in names if name in self.nodes] for names in ends]
        late: set[int] = set()
        for turn in range(max(1, *map(len, present))):
            end = {names[turn % len(names)]: k for k, names in enumerate(present) if names}
            done: dict[str, int] = {}
            for name in self.order:
                # Reachability of all pairs would be quadratic. Only neighbours matter, and a path from the neighbour
                # implies paths from all earlier places, so the largest finished place is enough.
                inputs = self.nodes[name].input
                if self.nodes[name].op in MERGES:
                    # A Merge starts with its first live input, so of its data only the least finished place is certain;
                    # all control inputs are waited for.
                    data = [done.get(producer(t), -1) for t in inputs if t[0] != "^" and producer(t) in done]
                    controls = [done.get(producer(t), -1) for t in inputs if t[0] == "^"]
                    latest = max([min(data, default=-1), *controls])
                else:
                    latest = max((done[p] for p in self.before[name] if p in done), default=-1)
                place = starts.get(name)
                if place is not None and latest < place - 1:
                    late.add(place)
                done[name] = max(latest, end.get(name, -1))
        return sorted(late)


_COPY = "/replicate/"
_ONEDNN = "_Mkl"
_NO_ONEDNN = "oneDNN replaces ops of this step: set TF_ENABLE_ONEDNN_OPTS=0 before TensorFlow is imported"
_ARGUMENTS = ("VarHandleOp", "IteratorV2", "NoOp")
"""Types of ops that a function may have as arguments, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Comparison of a run with its plan."""

    ops: int
    """Ops of the plan that the run has."""
    moves: tuple[str, ...]
    """One line for each op that is not on its device."""
    inversions: tuple[str, ...]
    """One line for each pair of neighbours in a chain that may run the other way round."""
    absent: tuple[str, ...] = ()
    """Ops that should run and do not."""
    remedy: str = "report it with pesto doctor"
    """Remedy to report when a check fails."""

    def checked(self) -> "Findings":
        """Return itself; raise VerificationError when anything differs from the plan."""
        wrong = [*self.moves, *self.inversions, *(f"op {name} does not run" for name in self.absent)]
        if wrong:
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            raise VerificationError.build(
                f"TensorFlow does not run the step as planned: {plural(len(self.moves), 'op')} moved, "
                f"{plural(len(self.inversions), 'pair')} out of order, {len(self.absent)} missing: "
                f"{'; '.join(wrong[:3])}{more}",
                remedy=self.remedy,
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedPlacement:
    """Placement that a run must have: nodes by name, and the ops that run."""

    placement: StepPlacement
    loops: Mapping[str, Loop]
    ran: Collection[str] | None = None
    """Names of the ops that the run needs; None for all."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Plan's op name -> its name in the graph of a dry run (`pesto.tf.enforce.rewrite`)."""


def verify_run(partitions: Sequence[Any], expected: ExpectedPlacement, prefix: str = "", stats: Any = None) -> Findings:
    """Return the comparison of one run with what is expected; raise VerificationError when anything differs.

    stats: the run's StepStats, where the times of its ops are compared too.
    """
    findings = examine(partitions, expected, prefix)
    if stats is not None:
        findings = replace(findings, inversions=findings.inversions + examine_times(stats, expected).inversions)
    return findings.checked()


def examine(partitions: Sequence[Any], expected: ExpectedPlacement, prefix: str = "") -> Findings:
    """Compare the partition GraphDefs of one run with what is expected; `prefix` stands before each node's name."""
    where = {}
    for part in partitions:
        for node in part.node:
            if node.name.startswith(prefix):
                where[node.name[len(prefix) :]] = node.device
    # TensorFlow gives a small constant that is read elsewhere to each device that reads it.
    copied = {name.partition(_COPY)[0] for name in where if _COPY in name}
    copied |= {copy.constant for copy in expected.placement.copies}  # where no other op reads it, it need not run
    placement, graph = expected.placement, expected.placement.graph
    runs = [
        i
        for i, name in enumerate(graph.names)
        if graph.types[graph.type_of[i]] not in FED | CARRIED and (expected.ran is None or name in expected.ran)
    ]
    # Arguments, Switches and the like are where TensorFlow puts them, whatever a plan says; they are not compared.
    moves, absent, prefixed = [], [], set()
    nodes = []
    for i in runs:
        loop, name = expected.loops.get(graph.names[i]), graph.names[i]
        nodes += [(i, name, node) for node in (loop.nodes if loop else (name,))]
    nodes += [(r.op, r.name, r.name) for r in placement.relays if expected.ran is None or r.name in expected.ran]
    for i, of, name in nodes:
        if name not in where:
            absent += [] if name in copied else [name]
        elif not _is_same_device(placement.device_of(i), where[name]):
            moves.append(f"op {name} is on {where[name]}, planned on {placement.device_of(i)}")
        else:
            prefixed.add(of)
    late = find_unordered_neighbours(partitions, expected.placement, expected.loops, prefixed, prefix)
    findings = Findings(ops=len(runs), moves=tuple(moves), inversions=tuple(late), absent=tuple(absent))
    # oneDNN renames ops and fuses them. A missing op is then no fault of the plan, and the remedy is an environment
    # variable.
    fused = any(node.op.startswith(_ONEDNN) for part in partitions for node in part.node) if absent else False
    return replace(findings, remedy=_NO_ONEDNN) if fused else findings


def find_name_prefixes(partitions: Iterable[Any], placement: StepPlacement) -> list[str]:
    """Return the name prefixes of the placement's ops where functions that call the step were inlined."""
    graph = placement.graph
    marks = [n for i, n in enumerate(graph.names) if graph.types[graph.type_of[i]] not in (*FED, *_ARGUMENTS)]
    if not marks:
        return []
    # The longest name is the least likely to occur in another function by chance.
    mark = max(marks, key=len)
    names = [node.name for part in partitions for node in part.node]
    return sorted({n[: -len(mark)] for n in names if n == mark or n.endswith(f"/{mark}")})


# Parsing a device name takes longer than all else that is done with a node; a step has few pairs of names.
@functools.cache
def _is_same_device(target: str, device: str) -> bool:
    return covers(target, tf.DeviceSpec.from_string(device))


def examine_times(stats: Any, expected: ExpectedPlacement) -> Findings:
    """Compare the StepStats of one run with the chains: no op may start before its neighbour has ended.

    v1 loops, ops that were not traced and names that were traced twice are left out.
    """
    placement, names = expected.placement, expected.placement.graph.names
    index = {name: i for i, name in enumerate(names) if name not in expected.loops}
    # Ops inside functions may have the name of an op of the step. A name that occurs twice cannot be told apart, so it
    # is not compared.
    times = Counter(e.node_name for d in stats.dev_stats if not is_duplicate_device(d.device) for e in d.node_stats)
    start, end = np.full(len(names), -1), np.full(len(names), -1)
    for device in stats.dev_stats:
        if is_duplicate_device(device.device):
            continue
        for entry in device.node_stats:
            i = index.get(entry.node_name)
            if i is not None and times[entry.node_name] == 1:
                # Some devices fill in only microseconds; nanoseconds are preferred where both exist.
                begun = entry.all_start_nanos or entry.all_start_micros * 1000
                start[i] = begun + (entry.op_start_rel_nanos or entry.op_start_rel_micros * 1000)
                end[i] = begun + (entry.op_end_rel_nanos or entry.op_end_rel_micros * 1000)
    traced = placement.chained & (start >= 0)
    before, after = neighbours(placement.lane, placement.rank, traced)
    wrong = start[after] < end[before]
    pairs = zip(before[wrong].tolist(), after[wrong].tolist(), strict=True)
    late = tuple(f"op {names[b]} ran before {names[a]} had ended" for a, b in pairs)
    return Findings(ops=int(traced.sum()), moves=(), inversions=late)


def is_duplicate_device(device: str) -> bool:
    """Return True if a StepStats device only lists streams, copies or waits of a GPU that lists the ops itself."""
    return device.partition("/device:")[2].count("/") > 0
