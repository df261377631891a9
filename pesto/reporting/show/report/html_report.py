"""The page: one file, nothing loaded from anywhere, and names are data in it that no browser takes for markup."""

import html
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto.core.graph import Graph
from pesto.reporting.explaining.name_scopes import common_scope
from pesto.reporting.explaining.waits import explain_waits
from pesto.reporting.show.plan_graph.scope_grouping import group_scopes
from pesto.reporting.show.report.column_encoding import PackedColumns, pack_columns
from pesto.reporting.show.report.columns import graph_columns, plan_columns
from pesto.reporting.show.report.op_names import OpNameTree, build_name_tree
from pesto.reporting.show.report.plan_facts import ReportedPlan, describe_plan
from pesto.reporting.show.report.single_file_page import asset, fill_template, join_scripts, policy_hash
from solvers.arrays import Ints

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
    said = {
        "graph": {**_of_graph(graph, names, took), "columns": shown[0].lengths},
        "plans": [
            {**describe_plan(each, why), "columns": columns.lengths}
            for each, why, columns in zip(plans, result, shown[1:], strict=True)
        ],
    }
    return _page(f"{graph.source} on {first.cluster.name}", said, shown).encode()


def _of_graph(graph: Graph, names: OpNameTree, took: Ints) -> dict[str, Any]:
    """Describe the graph, and the scopes that take most of the time, by which ops are grouped."""
    _, labels = group_scopes(graph.names, np.zeros(graph.ops, dtype=np.int64), took, _MOST_SCOPES)
    return {
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


def _parts(label: str) -> tuple[str, ...]:
    return tuple(label.split("/"))


def _page(title: str, said: dict[str, Any], shown: Sequence[PackedColumns]) -> str:
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
    return fill_template(asset("report.html"), values)


def _as_data(values: dict[str, Any]) -> str:
    """JSON in which nothing ends a script element, and no character is more than ASCII."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
