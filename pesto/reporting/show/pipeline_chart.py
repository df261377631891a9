"""A pipeline as the usual diagram, and the least period over memory as a curve; needs matplotlib."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pesto.core.quantities import size
from pesto.pipelining.schedules import MOST_HALVES, ChainRequest, ChainSchedule
from pesto.pipelining.unrolled import Unrolled, unroll
from pesto.reporting.show.drawing import BLUE, COLOURS, GREY, INK, RED, drawing_style, figure_bytes
from solvers.arrays import Bools, Ints
from solvers.pipelining.chain import BACKWARD, FORWARD, SEND_BACKWARD, SEND_FORWARD, WEIGHT_GRADIENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ChartUnits(NamedTuple):
    """Units of times and bytes in a chart."""

    time: str = "ticks"
    ticks: float = 1.0
    """Ticks of one unit of time."""
    size: str = "bytes"
    one: float = 1.0
    """Bytes of one unit of them."""
    names: tuple[str, ...] = ()
    """Names of the devices, in place of numbers."""

    def called(self, device: int) -> str:
        """Return a device's name."""
        return self.names[device] if self.names else f"device {device}"

    def legible(self, highest: float) -> "ChartUnits":
        """Return smaller units of bytes than GiB where less than one of these is held."""
        smaller = [("MiB", 2.0**20), ("KiB", 2.0**10)] if self.size == "GiB" and highest < self.one else []
        for name, one in smaller:
            if highest >= one or name == "KiB":
                return self._replace(size=name, one=one)
        return self


NATURAL, OF_STEPS = ChartUnits(), ChartUnits("ms, as the chain has it", 1e6, "GiB", 2.0**30)
"""Units for chains from files, and for chains of steps, whose ticks are nanoseconds."""
_WIDTH, _LINK = 13.0, 0.35
_MADE_BY = "pesto pipeline"
_HIGHEST = 80.0
"""Inches of all rows at most."""
_SHOWN = 24
"""Batches of a step that are drawn at most."""
_PERIODS = 4
"""Periods that are drawn beyond those which the first batch takes."""
_POINTS, _THIN = 880, 6
"""Width of the axis, and of a box that shows a digit, in points: about."""
_MOST_BOXES = 40_000
"""Halves and sends that are drawn at most where a period is drawn large beside them."""
_LIGHT = {FORWARD: 0.6, SEND_FORWARD: 0.3, WEIGHT_GRADIENT: 0.25}
"""Kind -> how far its colour is on the way to white; others are as they are."""
_BAND = "#f0f0f0"
"""Behind what a link does."""
_SENDS = (SEND_FORWARD, SEND_BACKWARD)
_LINES = ("-", "--", "-.")
"""Line styles of the devices' memory limits, one style for each cycle of colours."""
_STYLES = {
    "fixed": (GREY, "cut where it is best without memory"),
    "joint": (BLUE, "cut for the memory, 1F1B*"),
    "thinned": ("#009e73", "cut for the memory, thinned"),
    "free": ("#cc79a7", "stages that need not be contiguous"),
    "bound": (RED, "no schedule below"),
}


def draw_pipeline(request: ChainRequest, chosen: ChainSchedule, form: str, units: ChartUnits = NATURAL) -> bytes:
    """A row a device, thin rows for links; forward halves light, backward halves dark; below, bytes over time.

    Of a periodic schedule one period lies between dashed lines. The first 24 batches at most, of a periodic one so many
    that a few periods are full; where its boxes are then too thin to be told apart, that period is drawn large beneath.
    The same bytes each time.
    """
    from matplotlib.figure import Figure as Canvas

    if chosen.run is None or not len(chosen.rows):
        raise ValueError("nothing to draw")
    seen = _seen(request, chosen, chosen.run)
    # Resource -> the top of its row, in the order of first stages; a link is below its first device.
    rows, at = dict[int, float](), 0.0
    links = sorted(set(seen.run.resource[seen.run.resource >= request.devices].tolist()))
    for device in _devices(chosen.rows):
        rows[device], at = at, at + 1.0
        for link in links:
            if (link - request.devices) // request.devices == device:
                rows[link], at = at, at + _LINK
    with drawing_style(_MADE_BY):
        highest = _HIGHEST / (1 if seen.large is None else 2)
        height = min(highest, 0.4 * sum(0.4 if row >= request.devices else 1 for row in rows))
        heights = [height + 0.6, *([height + 0.9] if seen.large is not None else []), 1.8]
        canvas = Canvas(figsize=(_WIDTH, sum(heights) + 1.0), layout="constrained")
        top, *large, below = canvas.subplots(len(heights), 1, height_ratios=heights)
        below.sharex(top)
        top.tick_params(labelbottom=bool(large))
        _boxes(top, chosen, seen.run, rows, (0, seen.run.step))
        if seen.large is not None and seen.period is not None:
            begin, end = seen.period
            _boxes(large[0], chosen, seen.large, rows, (begin - (end - begin) // 4, end + (end - begin) // 4))
            large[0].set_title("one period, and what is about it", loc="left", fontsize=9)
        for axis in (top, *large):
            devices = [row for row in rows if row < request.devices]
            axis.set_yticks([rows[device] + 0.45 for device in devices], [units.called(device) for device in devices])
        for axis in (top, *large, below):
            for tick in seen.period or ():
                axis.axvline(tick, color=INK, linestyle="--", linewidth=0.9)
            axis.xaxis.set_major_formatter(lambda tick, _: f"{tick / units.ticks:g}")
        _held(below, (request, chosen), seen.run, units)
        below.set_xlabel(units.time)
        word, period, step = units.time.partition(",")[0], float(chosen.period or 0), float(chosen.step or 0)
        title = f"{chosen.name}: {period / units.ticks:.6g} {word} a batch, {step / units.ticks:.6g} {word} for "
        drawn, batches = seen.run.batches, chosen.run.batches
        some = "" if drawn == batches else f" (the first {drawn})" if drawn < batches else f" ({drawn} are drawn)"
        top.set_title(f"{title}{batches}{some}", loc="left", fontsize=10)
        backward = "lightest its weights' gradients" if (seen.run.kind == WEIGHT_GRADIENT).any() else ""
        shades = "light is forward, dark backward" + (f", {backward}" if backward else "")
        top.set_title(shades, loc="right", fontsize=8, color=GREY)
        return figure_bytes(canvas, form, _MADE_BY)


class _DrawnSchedule(NamedTuple):
    """Part of a schedule that the chart shows."""

    run: Unrolled
    period: tuple[int, int] | None
    """Ticks between which one period is full; None: none is, or it has none."""
    large: Unrolled | None
    """The operations about that period, where all are too thin to be told apart."""


def _seen(request: ChainRequest, chosen: ChainSchedule, run: Unrolled) -> _DrawnSchedule:
    """The first batches; of a periodic schedule so many that a few periods are full."""
    pattern, many = chosen.pattern, min(_SHOWN, run.batches)
    if pattern is None or not chosen.periodic or chosen.allocation is None:
        return _DrawnSchedule(_first(run, many), None, None)
    full = pattern.k * (-(-int(run.finish[run.batch == 0].max()) // pattern.T) + _PERIODS)
    drawn, chain = _first(run, min(many, full)), request.seen(chosen.allocation)
    ticks = [finish - start for _, kind, _, _, start, finish in _merged(drawn, chosen.rows) if kind not in _SENDS]
    if np.median(ticks) / drawn.step * _POINTS >= _THIN or full > MOST_HALVES // chain.layers:
        return _DrawnSchedule(drawn, _steady(drawn, pattern.T), None)
    wide = unroll(chain, pattern, full)
    period = _steady(wide, pattern.T)
    if period is None:
        raise RuntimeError("a period is full where the last of so many batches begins")
    # Large are the operations from half a period before these ticks to half a period after them.
    margin = (period[1] - period[0]) // 2
    large = _those(wide, (wide.finish > period[0] - margin) & (wide.start < period[1] + margin))
    return _DrawnSchedule(wide if len(wide.start) <= _MOST_BOXES else drawn, period, large)


def _first(run: Unrolled, many: int) -> Unrolled:
    return replace(_those(run, run.batch < many), batches=many)


def _those(run: Unrolled, kept: Bools) -> Unrolled:
    columns = ("kind", "layer", "batch", "resource", "start", "finish")
    return replace(run, **{name: getattr(run, name)[kept] for name in columns})


def _boxes(
    axis: "Axes", chosen: ChainSchedule, run: Unrolled, rows: dict[int, float], between: tuple[int, int]
) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    point = (between[1] - between[0]) / _POINTS
    shapes, colours, edges = [], [], []
    for resource, kind, stage, batch, start, finish in _merged(run, chosen.rows):
        y, tall = rows[resource], (_LINK if kind in _SENDS else 1.0) * 0.9
        base = np.array(to_rgb(COLOURS[stage % len(COLOURS)]))
        light = _LIGHT.get(kind, 0.0)
        shapes.append([(start, y), (finish, y), (finish, y + tall), (start, y + tall)])
        colours.append(base + (1 - base) * light)
        # A white edge would hide what is thinner than it.
        edges.append((1.0, 1.0, 1.0) if finish - start > 3 * point else tuple(colours[-1]))
        shown = between[0] + 8 * point < (start + finish) / 2 < between[1] - 8 * point or start >= between[0]
        # A digit takes less than five points.
        if shown and tall > 0.5 and finish - start > (4.6 * len(str(batch)) + 2) * point:
            axis.text(
                (start + finish) / 2, y + tall / 2, str(batch), ha="center", va="center", fontsize=7,
                color=INK if light > 0.4 else "white",
            )  # fmt: skip
    for link in {rows[at] for at in run.resource[np.isin(run.kind, _SENDS)].tolist()}:
        axis.axhspan(link, link + _LINK * 0.9, color=_BAND, linewidth=0, zorder=0)
    axis.add_collection(PolyCollection(shapes, facecolors=colours, edgecolors=edges, linewidths=0.4))
    axis.set_xlim(*between)
    axis.set_ylim(max(rows.values()) + 1.0, -0.1)
    axis.tick_params(labelsize=8)
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _merged(run: Unrolled, stages: Ints) -> list[tuple[int, int, int, int, int, int]]:
    """Resource, kind, stage, batch, start and finish: layers of a stage that follow each other at once are one box."""
    stage = np.searchsorted(np.unique(stages[:, 0]), run.layer, side="right") - 1
    order = np.lexsort((run.start, run.batch, stage, run.kind))
    result: list[tuple[int, int, int, int, int, int]] = []
    for o in order.tolist():
        key = (int(run.resource[o]), int(run.kind[o]), int(stage[o]), int(run.batch[o]))
        begin, finish = int(run.start[o]), int(run.finish[o])
        if result and result[-1][:4] == key and result[-1][5] == begin:
            result[-1] = (*key, result[-1][4], finish)
        else:
            result.append((*key, begin, finish))
    return result


def _steady(run: Unrolled, ticks: int) -> tuple[int, int] | None:
    """Between which one period is full: the first batch has ended, the last one drawn begins later; None: none is."""
    first_end = int(run.finish[run.batch == 0].max())
    last_begin = int(run.start[run.batch == run.batch.max()].min())
    return (first_end, first_end + ticks) if first_end <= last_begin else None


def _held(axis: "Axes", of: tuple[ChainRequest, ChainSchedule], run: Unrolled, units: ChartUnits) -> None:
    request, chosen = of
    chain, stages = request.chain, chosen.rows
    curves = []
    for device in _devices(stages):
        mine = run.resource == device
        begins = mine & (run.kind == FORWARD)
        last = WEIGHT_GRADIENT if (run.kind == WEIGHT_GRADIENT).any() else BACKWARD
        ends = mine & (run.kind == last)
        ticks = np.concatenate([run.start[begins], run.finish[ends]])
        change = np.concatenate([chain.activation[run.layer[begins]], -chain.activation[run.layer[ends]]])
        if chosen.shared is not None:
            weights = int(chain.weights[chosen.shared.homes == device].sum())
        else:
            own = stages[stages[:, 2] == device].tolist()
            weights = sum(int(chain.weights[first : last + 1].sum()) for first, last, _ in own)
        at, where = np.unique(ticks, return_inverse=True)
        held = weights + np.cumsum(np.bincount(where, change, len(at)))
        x = np.concatenate([[0], at, [run.step]]).astype(float)
        curves.append((device, x, np.concatenate([[weights], held, held[-1:]]).astype(float)))
    highest = max(float(y.max()) for _, _, y in curves)
    units = units.legible(highest)
    for number, (device, x, y) in enumerate(curves):
        colour, line = COLOURS[number % len(COLOURS)], _LINES[number // len(COLOURS) % len(_LINES)]
        name = units.called(device)
        axis.step(x, y / units.one, where="post", linewidth=1.0, color=colour, linestyle=line, label=name)
    axis.set_ylim(0, 1.15 * highest / units.one if highest > 0 else None)
    # Dotted: the bytes of equal devices, or of each in its colour; in words where they are beyond the axis.
    limits = request.machines.limits
    same, beyond = len(set(limits)) == 1, list[int]()
    for number, device in enumerate(_devices(stages)[: 1 if same else None]):
        colour = INK if same else COLOURS[number % len(COLOURS)]
        limit = limits[device]
        if limit is not None and limit / units.one > axis.get_ylim()[1]:
            beyond.append(limit)
        elif limit is not None:
            axis.axhline(limit / units.one, color=colour, linestyle=":", linewidth=0.9)
    if beyond:
        least, most = (f"{each} bytes" if units.one == 1 else size(each) for each in (min(beyond), max(beyond)))
        text = least if least == most else f"{least} to {most}"
        axis.set_title(f"a device may hold {text}", loc="left", fontsize=8, color=GREY)
    axis.set_ylabel(f"weights and\nactivations, {units.size}", fontsize=8)
    axis.tick_params(labelsize=8)
    if request.devices <= len(COLOURS) * len(_LINES):
        axis.legend(fontsize=7, frameon=False, ncols=8, loc="lower right", bbox_to_anchor=(1, 1), handlelength=3)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _devices(stages: Ints) -> list[int]:
    """Those that have stages, by the first of each: where each has one, that is the colour of its boxes."""
    return list(dict.fromkeys(stages[:, 2].tolist()))


def draw_curve(
    points: Sequence[tuple[int, dict[str, Fraction | None]]], name: str, form: str, units: ChartUnits = NATURAL
) -> bytes:
    """Least period over the bytes of a device, of each way that was tried, and the bound; the same bytes each time."""
    from matplotlib.figure import Figure as Canvas

    with drawing_style(_MADE_BY):
        canvas = Canvas(figsize=(7.0, 4.4), layout="constrained")
        axis = canvas.subplots()
        # The last step has a width, too.
        beyond = 0.04 * (points[-1][0] - points[0][0]) / units.one
        for number, (key, (colour, label)) in enumerate(_STYLES.items()):
            known = [
                (memory / units.one, float(value) / units.ticks)
                for memory, row in points
                if (value := row[key]) is not None
            ]
            if known:
                style = "--" if key == "bound" else "-"
                known.append((known[-1][0] + beyond, known[-1][1]))
                # Each is narrower than the ones below it, so that equal values do not hide each other.
                wide = max(1.2, 6.0 - 1.3 * number)
                axis.step(
                    *zip(*known, strict=True), where="post", color=colour, label=label, linestyle=style, linewidth=wide
                )
        axis.set_ylim(bottom=0)
        axis.set_xlabel(f"{units.size} of a device")
        axis.set_ylabel(f"least period of a batch, {units.time}")
        axis.set_title(name, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        return figure_bytes(canvas, form, _MADE_BY)
