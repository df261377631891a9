"""A plan as a graph for other programs, placement, order and times as attributes: GraphML and DOT."""

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.reporting.show.plan_graph.boxes import OP, Boxes
from pesto.reporting.show.plan_graph.plan_picture import colours

if TYPE_CHECKING:
    import networkx as nx

_PALE = "55"
"""Alpha channel of colours in hexadecimal: one third opaque."""
FORMATS = ("graphml", "dot", "gv")


def export_plan(plan: Plan, graph: Graph, boxes: Boxes, form: str) -> bytes:
    """The file in one of FORMATS: of ops all that `Graph.to_networkx` says, and of every box where and when it runs."""
    made = plan.provenance
    result = _ops(plan, graph) if boxes.by == OP else _groups(boxes)
    result.graph |= {"source": made.graph_source, "cluster": made.cluster, "step_s": plan.makespan_s, "by": boxes.by}
    shade, names = colours(boxes.devices), list(result)
    columns = (boxes.device, boxes.ops, boxes.start_s, boxes.finish_s, boxes.busy_s)
    for name, d, ops, start, finish, busy in zip(names, *(each.tolist() for each in columns), strict=True):
        result.nodes[name].update(
            device=boxes.devices[d], ops=ops, start_s=start, finish_s=finish, busy_s=busy, color=shade[d]
        )
    for tail, head, said in result.edges(data=True):
        said["crosses"] = result.nodes[tail]["device"] != result.nodes[head]["device"]
    return _dot(result) if form in ("dot", "gv") else _graphml(result)


def _ops(plan: Plan, graph: Graph) -> "nx.MultiDiGraph":
    """Every op with its place in the order of its processor, from 0."""
    result = graph.to_networkx()
    along = np.lexsort((plan.rank, plan.schedule.device))
    lane = plan.schedule.device[along]
    place = np.empty(graph.ops, dtype=np.int64)
    place[along] = np.arange(graph.ops) - np.searchsorted(lane, lane)
    for name, processor, position in zip(plan.names, plan.schedule.device.tolist(), place.tolist(), strict=True):
        result.nodes[name].update(processor=plan.lanes[processor], place=position)
    return result


def _groups(boxes: Boxes) -> "nx.DiGraph":
    """Boxes by number, with a label each."""
    import networkx as nx

    result = nx.DiGraph()
    for k, label in enumerate(boxes.labels):
        result.add_node(str(k), label=label)
    for a, b, size in zip(boxes.src.tolist(), boxes.dst.tolist(), boxes.bytes.tolist(), strict=True):
        result.add_edge(str(a), str(b), bytes=int(size))
    return result


def _graphml(result: Any) -> bytes:
    import networkx as nx

    out = io.BytesIO()
    nx.write_graphml_xml(result, out)
    return out.getvalue()


def _dot(result: Any) -> bytes:
    """Boxes in the colours of their devices; bold edges cross, dashed ones are waits."""
    rows = ["digraph plan {", "  rankdir=LR;", "  node [shape=box, style=filled];", '  edge [color="#7f7f7f"];']
    rows += [f"  {key}={_quoted(value)};" for key, value in result.graph.items()]
    for name, said in result.nodes(data=True):
        label = f"{said.get('label', name)} ({said['device']})"
        rows.append(f"  {_quoted(name)} [{_listed({**said, 'label': label, 'fillcolor': said['color'] + _PALE})}];")
    for tail, head, said in result.edges(data=True):
        look = {"style": "bold", "color": result.nodes[tail]["color"]} if said["crosses"] else {}
        look |= {"style": "dashed"} if said.get("control") else {}
        rows.append(f"  {_quoted(tail)} -> {_quoted(head)} [{_listed({**said, **look})}];")
    return ("\n".join([*rows, "}"]) + "\n").encode()


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{_quoted(key)}={_quoted(value)}" for key, value in values.items())


def _quoted(value: object) -> str:
    """An identifier of DOT, as `pesto.inputs.foreign_graph` reads it back."""
    text = shown(value, 4096).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
