"""A plan as a graph of boxes (ops, scopes, runs of ops on one device): laid out, drawn, written as GraphML and DOT."""

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan, refuse_another_graph
from pesto.core.quantities import duration, percent, plural, shorten, time_unit
from pesto.planning.coarsen import coarsen
from pesto.reporting.explaining.name_scopes import GRADIENT, common_scope, group_scopes, heaviest, without_scope
from pesto.reporting.show.drawing import COLOURS, GREY, INK, drawing_style, figure_bytes
from solvers import FORBIDDEN, Problem
from solvers.arrays import Bools, Floats, Ints, bools, floats, ints
from solvers.compiled.dag import topological_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes


OP, SCOPE, NODE = BY = ("op", "scope", "node")
"""Kinds of boxes: an op; the ops of one scope on one device; a run of consecutive ops of one device."""
FEW = 60
"""Ops up to which each is a box of its own, where nothing else is asked for."""
_LONGEST = 2**40
_PALE = "55"
"""Alpha channel of colours in hexadecimal: one third opaque."""
FORMATS = ("graphml", "dot", "gv")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boxes:
    """b boxes, e edges between different boxes, each pair of boxes once."""

    by: str
    """One of BY."""
    labels: tuple[str, ...]
    """[b] the op, the scope, or the scope that takes the most of the box's time."""
    devices: tuple[str, ...]
    """Names of the cluster's devices."""
    device: Ints
    """[b] index into `devices`."""
    ops: Ints
    """[b] how many ops."""
    start_s: Floats
    """[b] seconds at which the first op starts that takes time, if one does."""
    finish_s: Floats
    """[b] seconds at which the last of these ends."""
    busy_s: Floats
    """[b] seconds of all ops, one after the other."""
    centre_s: Floats
    """[b] seconds at which half of the work is done: the mean of its ops' middles, by their time."""
    src: Ints
    """[e] tail of each edge."""
    dst: Ints
    """[e] head of each edge."""
    bytes: Floats
    """[e] bytes of the tensors that the head reads of the tail's, each once; 0 of waits alone."""
    first: Bools
    """[e] True if some tensor has its first reader on the head's device there; of waits, by op alone."""
    box_of: Ints
    """[n] box of each op."""

    @property
    def crosses(self) -> Bools:
        """[e] True if an edge leads to another device."""
        return np.asarray(self.device[self.src] != self.device[self.dst], dtype=np.bool_)


def plan_boxes(plan: Plan, graph: Graph, by: str | None = None, limit: int = 200) -> Boxes:
    """Return the plan in boxes: ops by default where they are few, else scopes where names have them, else nodes.

    limit: runs of ops at most, by node; what crosses devices may keep more of them apart.

    Raise MismatchError for a plan of another graph.
    """
    refuse_another_graph(plan, graph)
    devices = tuple(dict.fromkeys(plan.lane_device))
    device = np.array([devices.index(name) for name in plan.lane_device])[plan.schedule.device]
    by = by or (OP if graph.ops <= FEW else SCOPE if any("/" in name for name in graph.names) else NODE)
    took = plan.schedule.finish - plan.schedule.start
    if by == OP:
        box_of, labels = ints(np.arange(graph.ops)), list(graph.names)
    elif by == SCOPE:
        box_of, labels = group_scopes(graph.names, device, took)
    else:
        # [n] the run of each op; what is done before any time has passed is one run a device.
        later = np.flatnonzero(plan.schedule.finish > 0)
        result = np.full(graph.ops, -1)
        if len(later):
            result[later] = coarsen(_in_order(plan, graph, device, later), limit).node_of
        result[result < 0] = int(result.max(initial=-1)) + 1 + device[result < 0]
        box_of = ints(np.unique(result, return_inverse=True)[1])
        labels = heaviest(graph.names, box_of, took)
    if by != OP:
        # Scopes without those that all of the model is in; what gradients begin with stays.
        common = common_scope(graph.names)
        for k, label in enumerate(labels):
            head = GRADIENT.match(f"{label}/")
            inner = label[head.end() :] if head else label
            labels[k] = (head[0] if head else "") + "/".join(without_scope(inner.split("/"), common))
    return _summed(plan, graph, by, (devices, device), (box_of, labels))


def _in_order(plan: Plan, graph: Graph, device: Ints, ops: Ints) -> Problem:
    """The m ops as they are planned: each on its device alone, after the one before it there.

    Whatever is merged so, without a cycle, is a run of ops of one device.
    """
    m, devices, schedule = len(ops), int(device.max(initial=0)) + 1, plan.schedule
    index = np.full(graph.ops, -1)
    index[ops] = np.arange(m)
    duration = np.full((m, devices), FORBIDDEN)
    duration[np.arange(m), device[ops]] = np.minimum(schedule.finish - schedule.start, _LONGEST)[ops]
    along = ops[np.lexsort((plan.rank[ops], schedule.device[ops]))]
    next_to = schedule.device[along][1:] == schedule.device[along][:-1]
    src = index[np.concatenate([graph.edge_src, along[:-1][next_to]])]
    dst = index[np.concatenate([graph.edge_dst, along[1:][next_to]])]
    payload = np.concatenate([graph.tensor, np.full(len(src) - len(graph.src), -1)])
    kept = (src >= 0) & (dst >= 0)
    there = np.cumsum(index[graph.tensor_op] >= 0) - 1
    sent = graph.tensor_bytes[index[graph.tensor_op] >= 0]
    return Problem(
        duration=duration, location=np.arange(devices), memory=np.zeros(m, np.int64),
        capacity=np.zeros(devices, np.int64), src=src[kept], dst=dst[kept],
        payload=np.where(payload >= 0, np.append(there, -1)[payload], -1)[kept],
        producer=index[graph.tensor_op[index[graph.tensor_op] >= 0]], transfer=np.minimum(sent, _LONGEST)[:, None],
        path_class=-np.eye(devices, dtype=np.int64), path_links=np.full((devices, devices, 0), -1),
        group=np.full(m, -1),
    )  # fmt: skip


def _summed(
    plan: Plan, graph: Graph, by: str, where: tuple[tuple[str, ...], Ints], made: tuple[Ints, list[str]]
) -> Boxes:
    (devices, device), (box_of, labels), count = where, made, len(made[1])
    schedule = plan.schedule
    first, last, own = np.full(count, np.inf), np.zeros(count), np.zeros(count, dtype=np.int64)
    took = (schedule.finish - schedule.start).astype(np.float64)
    busy = np.bincount(box_of, weights=took, minlength=count)
    timed = (took > 0) | (busy[box_of] == 0)
    np.minimum.at(first, box_of[timed], schedule.start[timed])
    np.maximum.at(last, box_of[timed], schedule.finish[timed])
    own[box_of] = device
    weight = took + 1e-3  # boxes of ops that take no time have a centre, too
    middle = np.bincount(box_of, weights=weight * (schedule.start + took / 2), minlength=count)
    # Each pair of different boxes with an edge between them.
    heads = graph.edge_dst
    tail, head = box_of[graph.edge_src], box_of[heads]
    tensor = np.concatenate([graph.tensor, -1 - np.arange(len(graph.control_src))])
    along = np.lexsort((plan.schedule.start[heads], device[heads], tensor))
    same = (tensor[along][1:] == tensor[along][:-1]) & (device[heads][along][1:] == device[heads][along][:-1])
    opens = np.zeros(len(heads), dtype=np.bool_)
    opens[along[np.append(True, ~same)[: len(along)]]] = True
    opens &= (tensor >= 0) | (count == graph.ops)
    apart = tail != head
    once, which = np.unique(np.stack([tail, head, np.maximum(tensor, -1)])[:, apart], axis=1, return_inverse=True)
    led = np.bincount(which, weights=opens[apart], minlength=once.shape[1])
    size = np.where(once[2] >= 0, np.append(graph.tensor_bytes, 0)[once[2]], 0)
    pair, of = np.unique(once[0] * count + once[1], return_inverse=True)
    total = np.bincount(of, weights=size, minlength=len(pair))
    read = np.bincount(of, weights=led, minlength=len(pair)) > 0
    return Boxes(
        by=by, labels=tuple(labels), devices=devices, device=ints(own), ops=ints(np.bincount(box_of, minlength=count)),
        start_s=floats(first * plan.tick_s), finish_s=floats(last * plan.tick_s), busy_s=floats(busy * plan.tick_s),
        centre_s=floats(middle / np.bincount(box_of, weights=weight, minlength=count) * plan.tick_s),
        src=ints(pair // max(count, 1)), dst=ints(pair % max(count, 1)), bytes=floats(total), first=bools(read),
        box_of=box_of,
    )  # fmt: skip


WIDTH, APART = 1.8, 0.62
"""Inches of a box, and between two columns."""
LEAST, MOST, BETWEEN = 0.19, 1.0, 0.06
"""Inches of height of the lowest and the highest box, and between two of them."""
GAP = 0.3
"""Inches between two bands."""
_MOST_COLUMNS = 14
"""Columns at most."""
MOST_BOXES = 1500
"""More make no picture that anyone can read."""
_MARGIN, _HEAD, _FOOT = 0.95, 1.0, 0.75
"""Inches left of the boxes, above and below them."""
_NARROWEST = 9.0
"""Inches that the lines below the boxes need."""
_CROSSING, _STAYING = 100, 200
"""Edges of either kind that are drawn, those with the most bytes first."""
_MORE = ("#6a3d9a", "#8c564b")
_TEXT = 6.5
_LETTERS = 34


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoxLayout:
    """Inches from the left and from the top; k boxes are on the page."""

    shown: Ints
    """[k] the boxes: all that take time; all, where there are few."""
    left: Floats
    """[k] left edge of each."""
    top: Floats
    """[k] top edge of each."""
    height: Floats
    """[k] height of each: its time, from LEAST up."""
    longest_s: float
    """Seconds of a box of height MOST."""
    bands: tuple[tuple[int, float, float], ...]
    """Device, top and bottom of each band, from the top."""
    columns: tuple[tuple[float, float], ...]
    """Seconds of the first start and the last end in each column; of scopes, of the first and the last centre."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of it all."""
        return len(self.columns) * (WIDTH + APART) - APART, self.bands[-1][2]


def lay_out(boxes: Boxes) -> BoxLayout:
    """Place the boxes; those of one column and band stand in order of time, from the top."""
    few = len(boxes.labels) <= _MOST_COLUMNS
    shown = np.flatnonzero((boxes.busy_s > 0) | few)
    longest = float(boxes.busy_s.max(initial=0.0)) or 1.0
    height = np.maximum(LEAST, MOST * boxes.busy_s[shown] / longest)
    column = _columns(boxes, ints(shown), height + BETWEEN)
    device, top = boxes.device[shown], np.zeros(len(shown))
    order = np.lexsort((boxes.start_s[shown], boxes.centre_s[shown]))
    bands, below = [], 0.0
    for d in np.unique(device).tolist():
        filled: dict[int, float] = {}
        for k in order[device[order] == d].tolist():
            top[k] = below + filled.get(int(column[k]), 0.0)
            filled[int(column[k])] = top[k] - below + height[k] + BETWEEN
        bottom = below + max(filled.values()) - BETWEEN
        bands.append((d, below, bottom))
        below = bottom + GAP
    begin, end = (boxes.centre_s,) * 2 if boxes.by == SCOPE else (boxes.start_s, boxes.finish_s)
    spans = [shown[column == c] for c in range(int(column.max(initial=0)) + 1)]
    return BoxLayout(
        shown=ints(shown), left=floats(column * (WIDTH + APART)), top=floats(top), height=floats(height),
        longest_s=longest, bands=tuple(bands),
        columns=tuple((float(begin[k].min()), float(end[k].max())) for k in spans),
    )  # fmt: skip


def _columns(boxes: Boxes, shown: Ints, height: Floats) -> Ints:
    """[k] column of each box: along the edges where that is not too long, else of equal heights, by time."""
    index = np.full(len(boxes.labels), -1)
    index[shown] = np.arange(len(shown))
    src, dst = index[boxes.src], index[boxes.dst]
    there = (src >= 0) & (dst >= 0)
    wide = max(1, min(_MOST_COLUMNS, 1 + round(math.sqrt(0.5 * len(shown)))))
    along = topological_order(len(shown), ints(src[there]), ints(dst[there])).tolist()
    if len(along) == len(shown):  # edges form no cycle
        readers: list[list[int]] = [[] for _ in along]
        for a, b in zip(src[there].tolist(), dst[there].tolist(), strict=True):
            readers[a].append(b)
        level = [0] * len(along)
        for a in along:
            for b in readers[a]:
                level[b] = max(level[b], level[a] + 1)
        if max(level, default=0) < max(wide, min(_MOST_COLUMNS, len(shown))):
            return ints(np.array(level, dtype=np.int64))
    order = np.lexsort((boxes.start_s[shown], boxes.centre_s[shown]))
    above = np.empty(len(shown))
    above[order] = np.cumsum(height[order]) - height[order]
    return ints(np.unique((above * wide / height.sum()).astype(np.int64), return_inverse=True)[1])


def draw_plan(plan: Plan, boxes: Boxes, form: str) -> bytes:
    """The picture in one of `drawing.FORMATS`; the same plan gives the same bytes."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    page = lay_out(boxes)
    wide, high = page.size
    wide, high = max(wide, _NARROWEST) + _MARGIN + 0.5, high + _HEAD + _FOOT
    with drawing_style("pesto draw", font_size=_TEXT):
        figure = Figure(figsize=(wide, high))
        axis = figure.add_axes((0, 0, 1, 1))
        axis.set_xlim(-_MARGIN, wide - _MARGIN)
        axis.set_ylim(high - _HEAD, -_HEAD)
        axis.axis("off")
        # The ground of each device, with its name, the share of the step for which it works, and its peak.
        shade, step = colours(boxes.devices), plan.makespan_s
        for d, top, bottom in page.bands:
            name = boxes.devices[d]
            ground = Rectangle((-0.08, top - 0.1), page.size[0] + 0.16, bottom - top + 0.2)
            ground.set(facecolor=shade[d], alpha=0.07, linewidth=0)
            axis.add_patch(ground)
            busy = float(boxes.busy_s[boxes.device == d].sum())
            lines = [duration(busy), f"{percent(busy / step)} busy" if step and not name.startswith("cpu") else ""]
            axis.text(
                -0.16, (top + bottom) / 2 - 0.1, name, ha="right", va="bottom", color=INK, fontsize=9, weight="bold"
            )
            axis.text(-0.16, (top + bottom) / 2 - 0.06, "\n".join(lines).strip(), ha="right", va="top", color=INK)
        unit, one = time_unit(step)
        for c, (begin, end) in enumerate(page.columns):
            text = f"{'about ' if boxes.by == SCOPE else ''}{begin / one:.1f} to {end / one:.1f} {unit}"
            axis.text(c * (WIDTH + APART), -0.16, text, va="bottom", color=GREY)
        exchanged = _edges(axis, boxes, page)
        _boxes(axis, boxes, page)
        made = plan.provenance
        where = f"{shown(made.graph_source, 60)} on {shown(made.cluster, 30)}"
        head = f"{where}: {duration(step)} a step, by {shown(made.chosen, 30)}"
        axis.text(-_MARGIN + 0.15, -_HEAD + 0.2, head, fontsize=11, va="top", color=INK, weight="bold")
        what = {OP: "ops", NODE: "runs of ops on one device"}.get(boxes.by, "scopes, on each device apart")
        left = len(boxes.labels) - len(page.shown)
        untimed = f" ({left} more take no time)" if left else ""
        lines = [
            f"{plural(len(page.shown), 'box', 'boxes')}: {what}{untimed}; height: time, the highest "
            f"{duration(page.longest_s)}; from left to right, and down each column, in order of time",
            "arrows: tensors to another device, in the colour of the one that sends, wider for more bytes "
            f"({exchanged}); thin grey: tensors that stay",
        ]
        foot = page.size[1] + 0.25
        for k, line in enumerate(lines):
            axis.text(-_MARGIN + 0.15, foot + 0.17 * k, line, va="top", color=INK, fontsize=7.5)
        return figure_bytes(figure, form, "pesto draw")


def colours(devices: tuple[str, ...]) -> list[str]:
    """A colour a device: grey for CPUs, and the others in turn, eight of them."""
    bright = [*(each for each in COLOURS if each != GREY), *_MORE]
    turn = iter(range(len(devices)))
    return [GREY if name.startswith("cpu") else bright[next(turn) % len(bright)] for name in devices]


def _boxes(axis: "Axes", boxes: Boxes, page: BoxLayout) -> None:
    from matplotlib.patches import FancyBboxPatch

    shade = colours(boxes.devices)
    for k, b in enumerate(page.shown.tolist()):
        left, top, high = float(page.left[k]), float(page.top[k]), float(page.height[k])
        for face, alpha, z in (("white", 1.0, 3), (shade[int(boxes.device[b])], 0.32, 4)):
            box = FancyBboxPatch((left + 0.03, top + 0.03), WIDTH - 0.06, high - 0.06, boxstyle="round,pad=0.03")
            box.set(facecolor=face, alpha=alpha, linewidth=0, zorder=z)
            axis.add_patch(box)
        took = duration(float(boxes.busy_s[b]))
        text = short_label(boxes.labels[b], _LETTERS - len(took) if high < 0.3 else _LETTERS)
        if high < 0.3:
            axis.text(left + 0.05, top + high / 2, text, va="center", color=INK, zorder=5)
            axis.text(left + WIDTH - 0.05, top + high / 2, took, va="center", ha="right", color=INK, zorder=5)
            continue
        count = "" if boxes.ops[b] == 1 else f", {boxes.ops[b]} ops"
        axis.text(left + WIDTH / 2, top + high / 2, f"{text}\n{took}{count}", va="center", ha="center", zorder=5)


def short_label(label: str, limit: int) -> str:
    """A label of at most `limit` characters: leading scopes without a number to three, then its middle left out."""
    inner = GRADIENT.sub("", f"{label}/")[:-1]
    parts = (inner if inner == label else inner.removesuffix("_grad")).split("/")
    mark = "" if inner == label else "∇ "
    for k in range(len(parts) - 1):
        if len(mark + "/".join(parts)) > limit and not any(map(str.isdigit, parts[k])):
            parts[k] = parts[k][:3]
    return shorten(mark + "/".join(parts), limit)


def _edges(axis: "Axes", boxes: Boxes, page: BoxLayout) -> str:
    """Draw the edges that carry the most, and return the words that say how many others there are."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    place = {b: k for k, b in enumerate(page.shown.tolist())}
    crosses, most = boxes.crosses, max(float(boxes.bytes.max(initial=0.0)), 1.0)
    shade = colours(boxes.devices)
    said = []
    for crossing, limit in ((False, _STAYING), (True, _CROSSING)):
        edges = np.flatnonzero((crosses == crossing) & boxes.first).tolist()
        kept = np.array([e for e in edges if int(boxes.src[e]) in place and int(boxes.dst[e]) in place], dtype=np.int64)
        these = np.sort(kept[np.argsort(-boxes.bytes[kept], kind="stable")[:limit]])
        for e in these.tolist():
            colour = shade[int(boxes.device[boxes.src[e]])] if crossing else GREY
            width = 0.7 + 2.6 * float(boxes.bytes[e]) / most if crossing else 0.5
            a, b = place[int(boxes.src[e])], place[int(boxes.dst[e])]
            # A curve from a box's right side to another's left; down, or back, from side to side.
            low, high = (float(page.top[k] + page.height[k] / 2) for k in (a, b))
            start, end = float(page.left[a]) + WIDTH, float(page.left[b])
            if end > start:
                bend = max(0.3, (end - start) * 0.4)
                points = [(start, low), (start + bend, low), (end - bend, high), (end, high)]
            elif page.left[a] == page.left[b]:
                points = [(start, low), (start + 0.35, low), (start + 0.35, high), (start, high)]
            else:
                left = start - WIDTH
                points = [(left, low), (left - 0.5, low), (end + WIDTH + 0.5, high), (end + WIDTH, high)]
            path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
            arrow = FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=5 + 2 * width, zorder=2)
            arrow.set(color=colour, linewidth=width, alpha=0.75 if crossing else 0.35)
            axis.add_patch(arrow)
        if crossing:
            every, total = np.flatnonzero(crosses), float(boxes.bytes[crosses].sum())
            share = percent(float(boxes.bytes[these].sum()) / total) if total else "all"
            said.append(f"{len(these)} of {len(every)} pairs of boxes that exchange data, with {share} of the bytes")
    return said[0]


def export_plan(plan: Plan, graph: Graph, boxes: Boxes, form: str) -> bytes:
    """Return the file in one of FORMATS: ops as `Graph.to_networkx` has them, and where and when every box runs."""
    import networkx as nx

    made = plan.provenance
    if boxes.by == OP:
        result = graph.to_networkx()
        # Each op's place in the order of its processor, from 0.
        along = np.lexsort((plan.rank, plan.schedule.device))
        lane = plan.schedule.device[along]
        place = np.empty(graph.ops, dtype=np.int64)
        place[along] = np.arange(graph.ops) - np.searchsorted(lane, lane)
        for name, processor, position in zip(plan.names, plan.schedule.device.tolist(), place.tolist(), strict=True):
            result.nodes[name].update(processor=plan.lanes[processor], place=position)
    else:
        result = nx.DiGraph()
        for k, label in enumerate(boxes.labels):
            result.add_node(str(k), label=label)
        for a, b, size in zip(boxes.src.tolist(), boxes.dst.tolist(), boxes.bytes.tolist(), strict=True):
            result.add_edge(str(a), str(b), bytes=int(size))
    result.graph |= {"source": made.graph_source, "cluster": made.cluster, "step_s": plan.makespan_s, "by": boxes.by}
    shade, names = colours(boxes.devices), list(result)
    columns = (boxes.device, boxes.ops, boxes.start_s, boxes.finish_s, boxes.busy_s)
    for name, d, ops, start, finish, busy in zip(names, *(each.tolist() for each in columns), strict=True):
        result.nodes[name].update(
            device=boxes.devices[d], ops=ops, start_s=start, finish_s=finish, busy_s=busy, color=shade[d]
        )
    for tail, head, values in result.edges(data=True):
        values["crosses"] = result.nodes[tail]["device"] != result.nodes[head]["device"]
    if form not in ("dot", "gv"):
        out = io.BytesIO()
        nx.write_graphml_xml(result, out)
        return out.getvalue()
    # Boxes in the colours of their devices; bold edges cross, dashed ones are waits.
    rows = ["digraph plan {", "  rankdir=LR;", "  node [shape=box, style=filled];", '  edge [color="#7f7f7f"];']
    rows += [f"  {key}={_quoted(value)};" for key, value in result.graph.items()]
    for name, values in result.nodes(data=True):
        label = f"{values.get('label', name)} ({values['device']})"
        rows.append(f"  {_quoted(name)} [{_listed({**values, 'label': label, 'fillcolor': values['color'] + _PALE})}];")
    for tail, head, values in result.edges(data=True):
        look = {"style": "bold", "color": result.nodes[tail]["color"]} if values["crosses"] else {}
        look |= {"style": "dashed"} if values.get("control") else {}
        rows.append(f"  {_quoted(tail)} -> {_quoted(head)} [{_listed({**values, **look})}];")
    return ("\n".join([*rows, "}"]) + "\n").encode()


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{_quoted(key)}={_quoted(value)}" for key, value in values.items())


def _quoted(value: object) -> str:
    """An identifier of DOT, as `pesto.inputs.foreign_graph` reads it back."""
    text = shown(value, 4096).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
