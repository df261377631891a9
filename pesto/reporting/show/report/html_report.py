"""The page: one file, nothing loaded from anywhere, and names are data in it that no browser takes for markup."""

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pesto.core.graph import Graph
from pesto.core.memory import footprint
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.problem import payloads
from pesto.reporting.explaining.name_scopes import common_scope
from pesto.reporting.explaining.waits import DATA, DEVICE, TRANSFER, Waits, explain_waits
from pesto.reporting.show.plan_graph.scope_grouping import group_scopes
from pesto.reporting.show.report.plan_facts import ReportedPlan, describe_plan
from pesto.reporting.show.report.single_file_page import asset, fill_template, join_scripts, policy_hash
from solvers import Problem
from solvers.arrays import Ints, ints, rank_of
from solvers.memory.usage import over_time

# Names of ops as columns: a tree of scopes, and the numbers in names as steps from name to name.

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
    """The tree while it grows."""

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
    return OpNameTree(
        patterns=tuple(tree.patterns),
        parent=ints([scope for scope, _ in rows]),
        pattern=ints([pattern for _, (pattern, _) in rows]),
        steps=_steps(rows),
        scopes=tree.scopes,
    )


def _steps(rows: list[tuple[int, Part]]) -> Ints:
    last: dict[int, tuple[int, ...]] = {}
    result: list[int] = []
    for _, (pattern, numbers) in rows:
        before = last.get(pattern) or (0,) * len(numbers)
        result += [number - old for number, old in zip(numbers, before, strict=True)]
        last[pattern] = numbers
    return ints(np.array(result, dtype=np.int64))


# Columns of integers as text for a page: differences as bytes of varying number, deflated, in base64.

_LEVEL = 9
"""Compression level of deflate: pages are written once."""


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


# The columns of a page: a graph's ops and edges once, and of every plan when and why everything runs.

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


SCRIPTS = (
    "words.js", "unpack.js", "step.js", "colours.js", "view.js", "rows.js", "timeline.js", "moves.js", "panel.js",
    "sections.js", "ops.js", "against.js", "start.js",
)  # fmt: skip
"""The page's script, in this order."""
_MOST_SCOPES = 48


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
    # Describe the graph, and the scopes that take most of the time, by which ops are grouped.
    _, labels = group_scopes(graph.names, np.zeros(graph.ops, dtype=np.int64), took, _MOST_SCOPES)
    of_graph = {
        "source": graph.source,
        "batch": graph.batch,
        "common": common_scope(graph.names),
        "ops": graph.ops,
        "types": graph.types,
        "kinds": graph.kinds,
        "patterns": names.patterns,
        "scopes": len(names.scopes),
        "gathered": sorted(names.scopes[parts] for parts in map(_parts, labels) if parts in names.scopes),
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
    values = {
        "title": html.escape(title.encode(errors="replace").decode()),
        "style": style,
        "script": script,
        "stylehash": policy_hash(style),
        "scripthash": policy_hash(script),
        "facts": _as_data(said),
        "columns": "\n".join(f'<script type="text/plain" class="packed">{each.text}</script>' for each in shown),
    }
    page = fill_template(asset("report.html"), values)
    return page.encode()


def _parts(label: str) -> tuple[str, ...]:
    return tuple(label.split("/"))


def _as_data(values: dict[str, Any]) -> str:
    """JSON in which nothing ends a script element, and no character is more than ASCII."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
