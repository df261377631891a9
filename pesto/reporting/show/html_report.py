"""A plan as one HTML page: nothing is loaded from anywhere, and names are data that no browser takes for markup."""

import base64
import hashlib
import html
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.memory import footprint
from pesto.core.plans.execution_modes import OrderWorth
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.problem import payloads
from pesto.core.quantities import duration
from pesto.core.simulator import Timeline
from pesto.planning.solving.flow import SolveOutcome
from pesto.reporting.explaining.name_scopes import common_scope, group_scopes
from pesto.reporting.explaining.waits import DATA, DEVICE, KINDS, TRANSFER, Waits, critical_path, explain_waits
from pesto.reporting.show.facts import enforced_line, idle_devices, open_batch, trust_line
from pesto.reporting.show.lines import LABEL
from pesto.reporting.show.solve_report import WORDS
from solvers import Problem
from solvers.arrays import Ints, ints, rank_of
from solvers.memory.usage import over_time

_MARK = re.compile(r"@([a-z]+)@")


@cache
def asset(name: str, package: str = "pesto.reporting.show") -> str:
    """The text of a file in the folder `assets` of a package."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


def join_scripts(parts: Sequence[str]) -> str:
    """Parts of a script as one, whose names are nobody else's."""
    return "(() => {\n" + "".join(parts) + "})();\n"


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with each @name@ replaced."""
    return _MARK.sub(lambda mark: values[mark[1]], template)


def policy_hash(text: str) -> str:
    """How a page's policy names a style or a script that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportedPlan:
    """A verified plan, with what its page shows beside it."""

    label: str
    """Label of the plan on the page: its file's name."""
    plan: Plan
    cluster: Cluster
    """Where it runs."""
    problem: Problem
    """The step in ticks, which it was verified on."""
    order: OrderWorth
    """Gain of enforcing the plan's order."""
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage of its solve, by its name; empty where nothing says."""
    cpu_s: float | None = None
    """CPU seconds of its solve with all its processes; None where nothing says."""
    notes: Sequence[tuple[str, str]] = ()
    """Further facts, each with its label."""

    @property
    def timeline(self) -> Timeline:
        """The step as it was planned."""
        return Timeline(problem=self.problem, schedule=self.plan.schedule)


def describe_plan(shown: ReportedPlan, waits: Waits) -> dict[str, Any]:
    """Return the JSON object of one plan: times in ticks, bytes."""
    plan, timeline, cluster = shown.plan, shown.timeline, shown.cluster
    made, p, s = plan.provenance, timeline.problem, timeline.schedule
    legs = critical_path(timeline, waits)
    words = {name: text for names, text in WORDS for name in names}
    evidence = made.lower_bound_evidence
    rests_on = "" if evidence is None else f"{len(evidence.claims)} claims on {len(evidence.anchors)} anchors, checked"
    busy = np.bincount(s.device, weights=s.finish - s.start, minlength=p.devices)
    routes = [[[k for k in p.holds[a, b].tolist() if k >= 0] for b in range(p.locations)] for a in range(p.locations)]
    return {
        "label": shown.label,
        "cluster": made.cluster,
        "basis": made.costs_basis.partition(":")[0],
        "tick_s": plan.tick_s,
        "step": plan.schedule.makespan,
        "batch": made.graph_batch,
        "idle": idle_devices(plan),
        "status": plan.status,
        "chosen": made.chosen,
        "rule": made.rule,
        "bound": made.lower_bound_ticks,
        "bound_by": made.lower_bound_name,
        "bound_rests_on": rests_on,
        "order_enforced": not plan.placement_only,
        "orders": {"fifo": shown.order.fifo, "listed": shown.order.listed, "scheduled": shown.order.scheduled},
        "candidates": [
            {"name": name, "ticks": ticks, "fits": made.candidates_fit.get(name, False), "words": words.get(name, "")}
            for name, ticks in made.candidates_ticks.items()
        ],
        "lanes": [
            {"name": name, "device": int(d), "busy": ticks}
            for name, d, ticks in zip(plan.lanes, p.location, busy.tolist(), strict=True)
        ],
        "devices": [
            {"name": device.name, "kind": device.kind, "preset": device.preset, "capacity": int(most),
             "peak": plan.peak_bytes[device.name]}
            for device, most in zip(cluster.devices, p.capacity, strict=True)
        ],
        "links": [cluster.links[k] for k in np.unique(p.path_links[p.path_links >= 0]).tolist()],
        "routes": routes,
        "path": {kind: sum(leg.end - leg.begin for leg in legs if leg.kind == kind) for kind in KINDS},
        "path_ends": legs[-1].op if legs else -1,
        "made": _origin(shown),
        "settings": sorted([name, str(value)] for name, value in made.settings.items()),
        "stages_s": list(shown.stages_s.items()),
        "cpu_s": shown.cpu_s,
    }  # fmt: skip


def _origin(shown: ReportedPlan) -> list[tuple[str, str]]:
    """Where the plan comes from, as label and text."""
    plan, made, coarse = shown.plan, shown.plan.provenance, ""
    if (c := made.coarse) is not None:
        step = "no schedule" if c.makespan_ticks is None else duration(c.makespan_ticks * plan.tick_s)
        bound = duration(c.lower_bound_ticks * plan.tick_s)
        solver = f"{c.solver} {c.version}: {c.status}"
        coarse = f"{c.nodes} nodes; {solver}, {step}, bound {bound} of the coarse graph alone"
    rows = [
        ("graph", made.graph_source),
        ("fingerprint", made.graph_fingerprint),
        ("batch", open_batch(plan)),
        ("cluster", f"{made.cluster} ({made.cluster_source})"),
        ("costs", f"{made.costs_basis}: {made.costs}"),
        ("chosen", f"{made.chosen}: {made.rule}"),
        ("links", made.links),
        ("transfers", made.transfers),
        ("coarse graph", coarse),
        ("written by", f"pesto {made.pesto_version}"),
        *shown.notes,
    ]
    return [(label, text) for label, text in rows if text]


def report_solve(outcome: SolveOutcome, cluster: Cluster, label: str, stages_s: dict[str, float]) -> ReportedPlan:
    """Return the plan of a solve, with what its file does not keep: seconds, trust, ties."""
    lines = [trust_line(outcome.trust)] if outcome.trust else []
    lines += [enforced_line(outcome.enforced, outcome.remedy)] if outcome.enforced else []
    # Label and text of lines that were broken for a terminal.
    notes = [(line[:LABEL].strip(), " ".join(line[LABEL:].split())) for line in lines]
    return ReportedPlan(
        label=label, plan=outcome.plan, cluster=cluster, problem=outcome.problem, order=outcome.order,
        stages_s=stages_s, cpu_s=sum(os.times()[:4]), notes=[*notes, *(("tie", str(tie)) for tie in outcome.ties)],
    )  # fmt: skip


SCRIPTS = (
    "words.js", "unpack.js", "step.js", "colours.js", "view.js", "rows.js", "timeline.js", "moves.js", "panel.js",
    "sections.js", "ops.js", "against.js", "start.js",
)  # fmt: skip
"""The page's script, in this order."""
_MOST_SCOPES = 48
_LEVEL = 9
"""Compression level of deflate: pages are written once."""
_SLOTS = 64
"""Inputs of an op that are told apart; edges of later ones are compared with each other."""
_NUMBER = re.compile(r"(?<![0-9])(0|[1-9][0-9]{0,14})(?![0-9])")
Part = tuple[int, tuple[int, ...]]
"""A part of a name between slashes: its pattern, and the numbers in it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpNameTree:
    """n names as nodes of a tree: first s scopes, each behind the scope that it is in, then the n ops."""

    patterns: tuple[tuple[str, ...], ...]
    """Text around the numbers of a name's part: ("MatMul_", "_grad") for MatMul_12_grad."""
    parent: Ints
    """[s + n] the scope that each node is in, -1 for none."""
    pattern: Ints
    """[s + n] the pattern of each node's own part."""
    steps: Ints
    """Difference of each number from the one in the previous node of the same pattern; 0 before the first."""
    scopes: dict[tuple[str, ...], int]
    """Node of each scope, by its parts."""


class _TreeBuilder:
    def __init__(self) -> None:
        self.patterns: dict[tuple[str, ...], int] = {}
        self.parts: dict[str, Part] = {}
        self.scopes: dict[tuple[str, ...], int] = {}
        self.rows: list[tuple[int, Part]] = []

    def part(self, text: str) -> Part:
        result = self.parts.get(text)
        if result is None:
            pieces = _NUMBER.split(text)
            pattern = self.patterns.setdefault(tuple(pieces[::2]), len(self.patterns))
            result = self.parts[text] = (pattern, tuple(int(number) for number in pieces[1::2]))
        return result

    def scope(self, parts: tuple[str, ...]) -> int:
        """The node of a scope, which it gets with those above it; -1 for the outermost."""
        if not parts:
            return -1
        result = self.scopes.get(parts)
        if result is None:
            above = self.scope(parts[:-1])
            result = self.scopes[parts] = len(self.rows)
            self.rows.append((above, self.part(parts[-1])))
        return result


def build_name_tree(names: tuple[str, ...]) -> OpNameTree:
    """The names as a tree; the name of a node is its part behind that of its scope and a slash."""
    tree = _TreeBuilder()
    split = [tuple(name.split("/")) for name in names]
    above = [tree.scope(parts[:-1]) for parts in split]
    rows = tree.rows + [(scope, tree.part(parts[-1])) for scope, parts in zip(above, split, strict=True)]
    last: dict[int, tuple[int, ...]] = {}
    steps: list[int] = []
    for _, (pattern, numbers) in rows:
        before = last.get(pattern) or (0,) * len(numbers)
        steps += [number - old for number, old in zip(numbers, before, strict=True)]
        last[pattern] = numbers
    return OpNameTree(
        patterns=tuple(tree.patterns),
        parent=ints([scope for scope, _ in rows]),
        pattern=ints([pattern for _, (pattern, _) in rows]),
        steps=ints(np.array(steps, dtype=np.int64)),
        scopes=tree.scopes,
    )


class PackedColumns(NamedTuple):
    """Columns as a page holds them."""

    lengths: dict[str, int]
    """Entries of each column, in the order in which the bytes have them."""
    text: str
    """Base64 of the deflated bytes (RFC 1951, no header)."""


def pack_columns(columns: Mapping[str, Ints]) -> PackedColumns:
    """The columns, in order; entries are 64-bit integers, small ones cost least."""
    squeezed = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
    data = b"".join(squeezed.compress(varints(column)) for column in columns.values()) + squeezed.flush()
    return PackedColumns({name: len(column) for name, column in columns.items()}, base64.b64encode(data).decode())


def varints(values: Ints) -> bytes:
    """Each integer as 1 to 10 bytes: the first has the sign in bit 0 and 6 bits of the size, each other 7 bits more.

    Bit 7 says that another byte follows. The sign is no part of the size, as it is in zigzag, so that a reader that
    counts in doubles loses the last digits beyond 2^53, and no signs.
    """
    given = np.asarray(values, dtype=np.int64)
    code = (np.abs(given).astype(np.uint64) << np.uint64(1)) | (given < 0).astype(np.uint64)
    count = np.ones(len(code), dtype=np.int64)
    for byte in range(1, 10):
        count += code >= np.uint64(1) << np.uint64(7 * byte)
    first = np.cumsum(count) - count
    result = np.zeros(int(count.sum()), dtype=np.uint8)
    for byte in range(10):
        has = np.flatnonzero(count > byte)
        low = (code[has] >> np.uint64(7 * byte)).astype(np.uint8) & np.uint8(127)
        result[first[has] + byte] = low | ((count[has] > byte + 1).astype(np.uint8) << np.uint8(7))
    return result.tobytes()


def differences(values: Ints) -> Ints:
    """[n] what each entry is more than the one before it, the first more than 0."""
    return np.diff(values, prepend=np.int64(0))


def since_alike(values: Ints, alike: Ints) -> Ints:
    """[n] what each entry is more than the last before it of the same class, the first of a class more than 0.

    alike: [n] the class of each entry, such as its op type: entries of one class are mostly equal.
    """
    by = np.argsort(alike, kind="stable")
    there, kind = values[by], alike[by]
    before = np.where(np.diff(kind, prepend=-1) != 0, 0, np.roll(there, 1))
    result = np.empty(len(values), dtype=np.int64)
    result[by] = there - before
    return result


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
    per_edge, op = plan.provenance.transfers == PER_EDGE, np.arange(graph.ops)
    none, curves = ints([]), over_time(problem, footprint(graph, per_edge=per_edge), s)
    # What an op waited for: how many indices before it an op is, which transfer, or how many places before it on its
    # device beyond one: small numbers, which pack well.
    place, reason = rank_of(order), np.zeros(graph.ops, dtype=np.int64)
    data, sent, device = (np.flatnonzero(waits.cause == cause) for cause in (DATA, TRANSFER, DEVICE))
    reason[data] = op[data] - waits.after[data]
    reason[sent] = waits.transfer[sent]
    reason[device] = place[device] - place[waits.after[device]] - 1
    return {
        "order": differences(ints(order)),
        "on": np.bincount(s.device, minlength=problem.devices),
        "gap": s.start[order] - before,
        "took": since_alike(s.finish - s.start, alike),
        "cause": waits.cause,
        "reason": ints(reason),
        "slack": differences(waits.slack[order]),
        "sent_op": differences(problem.producer[s.sent_payload]),
        "sent_to": s.sent_to,
        "sent_start": differences(s.sent_start),
        "sent_took": s.sent_finish - s.sent_start,
        "sent_bytes": ints(graph.tensor_bytes[payloads(graph, per_edge=per_edge)[1][s.sent_payload]]),
        "levels": ints([len(ticks) for ticks, _ in curves]),
        "level_at": np.concatenate([none, *(differences(ticks) for ticks, _ in curves)]).astype(np.int64),
        "level": np.concatenate([none, *(differences(level) for _, level in curves)]).astype(np.int64),
    }


def html_report(graph: Graph, plans: Sequence[ReportedPlan]) -> bytes:
    """The page of the first plan, and of how the others differ; all are of `graph`, and verified."""
    names, first = build_name_tree(graph.names), plans[0]
    alike = names.pattern[len(names.scopes) :]
    result = [explain_waits(each.timeline, each.plan.rank) for each in plans]
    shown = [pack_columns(graph_columns(graph, names, first.problem.group))]
    shown += [
        pack_columns(plan_columns(each.plan, graph, each.problem, why, alike))
        for each, why in zip(plans, result, strict=True)
    ]
    took = first.plan.schedule.finish - first.plan.schedule.start
    # The page groups ops by the scopes that take most of the time.
    _, labels = group_scopes(graph.names, np.zeros(graph.ops, dtype=np.int64), took, _MOST_SCOPES)
    heaviest = [tuple(label.split("/")) for label in labels]
    of_graph = {
        "source": graph.source,
        "batch": graph.batch,
        "common": common_scope(graph.names),
        "ops": graph.ops,
        "types": graph.types,
        "kinds": graph.kinds,
        "patterns": names.patterns,
        "scopes": len(names.scopes),
        "gathered": sorted(names.scopes[parts] for parts in heaviest if parts in names.scopes),
    }
    said = {
        "graph": {**of_graph, "columns": shown[0].lengths},
        "plans": [
            {**describe_plan(each, why), "columns": columns.lengths}
            for each, why, columns in zip(plans, result, shown[1:], strict=True)
        ],
    }
    title = f"{graph.source} on {first.cluster.name}"
    style = asset("report.css")
    script = join_scripts([asset(name) for name in SCRIPTS])
    # JSON in which nothing ends a script element, and no character is more than ASCII.
    data = json.dumps(said, ensure_ascii=True, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    values = {
        "title": html.escape(title.encode(errors="replace").decode()),
        "style": style,
        "script": script,
        "stylehash": policy_hash(style),
        "scripthash": policy_hash(script),
        "facts": data,
        "columns": "\n".join(f'<script type="text/plain" class="packed">{each.text}</script>' for each in shown),
    }
    return fill_template(asset("report.html"), values).encode()
