"""A pipeline as the classic diagram, and the least period over memory as a curve; needs matplotlib."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pesto.pipelining.schedules import Asked, Schedule
from pesto.pipelining.unrolled import Unrolled
from pesto.show.drawing import BLUE, COLOURS, GREY, INK, RED, drawn_by, saved
from solvers.arrays import Bools, Floats, Ints
from solvers.pipelining.chain import BACKWARD, FORWARD, SEND_BACKWARD, SEND_FORWARD, WEIGHT_GRADIENT, Chain
from solvers.pipelining.unequal_devices import Machines

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Units(NamedTuple):
    """What times and bytes are told in."""

    time: str = "ticks"
    ticks: float = 1.0
    """Of one unit of time."""
    size: str = "bytes"
    one: float = 1.0
    """Bytes of one unit of them."""
    names: tuple[str, ...] = ()
    """Of the devices, in place of numbers."""

    def called(self, device: int) -> str:
        """A device's name."""
        return self.names[device] if self.names else f"device {device}"


NATURAL, OF_STEPS = Units(), Units("ms, as the chain has it", 1e6, "GiB", 2.0**30)
"""Of chains' files, and of chains of steps, whose ticks are nanoseconds."""
_WIDTH, _LINK = 13.0, 0.35
_MADE_BY = "pesto pipeline"
_HIGHEST = 80.0
"""Inches of all rows at most."""
_SHOWN = 24
"""Batches of a step that are drawn at most."""
_PERIODS = 4
"""Periods that are drawn beyond those which the first batch takes."""
_STYLES = {
    "fixed": (GREY, "cut where it is best without memory"),
    "joint": (BLUE, "cut for the memory, 1F1B*"),
    "thinned": ("#009e73", "cut for the memory, thinned"),
    "free": ("#cc79a7", "stages that need not be contiguous"),
    "bound": (RED, "no schedule below"),
}


def draw(asked: Asked, chosen: Schedule, form: str, units: Units = NATURAL) -> bytes:
    """A row a device, thin rows for links; forward halves light, backward halves dark; below, bytes over time.

    Of a periodic schedule one period lies between dashed lines. The first 24 batches at most, of a periodic one so many
    that a few periods are full; the same bytes each time.
    """
    from matplotlib.figure import Figure as Canvas

    if chosen.run is None or not len(chosen.rows):
        raise ValueError("nothing to draw")
    many = _shown(chosen, chosen.run)
    kept = chosen.run.batch < many
    rows = _rows(asked.devices, chosen.run.resource[kept], chosen.rows)
    with drawn_by(_MADE_BY):
        height = min(_HIGHEST, 0.4 * sum(0.4 if row >= asked.devices else 1 for row in rows))
        canvas = Canvas(figsize=(_WIDTH, 3.4 + height), layout="constrained")
        top, below = canvas.subplots(2, 1, sharex=True, height_ratios=(height + 0.6, 1.8))
        _boxes(top, chosen, chosen.run, kept, rows)
        devices = [row for row in rows if row < asked.devices]
        top.set_yticks([rows[device] + 0.45 for device in devices], [units.called(device) for device in devices])
        if chosen.periodic and chosen.pattern is not None:
            begin = _steady(chosen.run, kept)
            for tick in () if begin is None else (begin, begin + chosen.pattern.T):
                for axis in (top, below):
                    axis.axvline(tick, color=INK, linestyle="--", linewidth=0.9)
        _held(below, (asked, chosen), chosen.run, kept, units)
        below.set_xlabel(units.time)
        below.xaxis.set_major_formatter(lambda tick, _: f"{tick / units.ticks:g}")
        word, period, step = units.time.partition(",")[0], float(chosen.period or 0), float(chosen.step or 0)
        title = f"{chosen.name}: {period / units.ticks:.6g} {word} a batch, "
        title += f"{step / units.ticks:.6g} {word} for {chosen.run.batches}"
        top.set_title(title + (f" (the first {many})" if many < chosen.run.batches else ""), loc="left", fontsize=10)
        return saved(canvas, form, _MADE_BY)


def _shown(chosen: Schedule, run: Unrolled) -> int:
    """How many batches are drawn: of a periodic schedule so many that a few periods are full."""
    pattern, most = chosen.pattern, min(_SHOWN, run.batches)
    if pattern is None or not chosen.periodic:
        return most
    periods = -(-int(run.finish[run.batch == 0].max()) // pattern.T)
    return min(most, pattern.k * (periods + _PERIODS))


def _rows(devices: int, resource: Ints, stages: Ints) -> dict[int, float]:
    """Resource -> the top of its row, in the order of first stages; a link below the first of its devices.

    Idle devices have none.
    """
    found, at = dict[int, float](), 0.0
    links = sorted(set(resource[resource >= devices].tolist()))
    for device in sorted(set(stages[:, 2].tolist()), key=lambda device: (_stage_of(stages, device), device)):
        found[device], at = at, at + 1.0
        for link in links:
            if (link - devices) // devices == device:
                found[link], at = at, at + _LINK
    return found


def _boxes(axis: "Axes", chosen: Schedule, run: Unrolled, kept: Bools, rows: dict[int, float]) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    merged = _merged(run, kept, chosen.rows)
    end = max(finish for *_, finish in merged)
    shapes, colours = [], []
    for resource, kind, stage, batch, start, finish in merged:
        y, tall = rows[resource], (_LINK if kind in (SEND_FORWARD, SEND_BACKWARD) else 1.0) * 0.9
        base = np.array(to_rgb(COLOURS[stage % len(COLOURS)]))
        light = 0.6 if kind in (FORWARD, SEND_FORWARD) else 0.25 if kind == WEIGHT_GRADIENT else 0.0
        shapes.append([(start, y), (finish, y), (finish, y + tall), (start, y + tall)])
        colours.append(base + (1 - base) * light)
        # A digit takes less than five points; the axis is some 880 points wide.
        if tall > 0.5 and (finish - start) / end * 880 > 4.6 * len(str(batch)) + 2:
            axis.text(
                (start + finish) / 2, y + tall / 2, str(batch), ha="center", va="center", fontsize=7,
                color=INK if light > 0.4 else "white",
            )  # fmt: skip
    axis.add_collection(PolyCollection(shapes, facecolors=colours, edgecolors="white", linewidths=0.4))
    axis.set_xlim(0, end)
    axis.set_ylim(max(rows.values()) + 1.0, -0.1)
    axis.tick_params(axis="y", length=0, labelsize=8)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _merged(run: Unrolled, kept: Bools, stages: Ints) -> list[tuple[int, int, int, int, int, int]]:
    """Resource, kind, stage, batch, start and finish: layers of a stage that follow each other at once are one box."""
    stage = np.searchsorted(np.unique(stages[:, 0]), run.layer, side="right") - 1
    order = np.lexsort((run.start, run.batch, stage, run.kind))
    found: list[tuple[int, int, int, int, int, int]] = []
    for o in order[kept[order]].tolist():
        key = (int(run.resource[o]), int(run.kind[o]), int(stage[o]), int(run.batch[o]))
        begin, finish = int(run.start[o]), int(run.finish[o])
        if found and found[-1][:4] == key and found[-1][5] == begin:
            found[-1] = (*key, found[-1][4], finish)
        else:
            found.append((*key, begin, finish))
    return found


def _steady(run: Unrolled, kept: Bools) -> int | None:
    """A tick from which on a whole period is full: the last batch drawn has begun, the first has ended."""
    first_end = int(run.finish[run.batch == 0].max())
    last_begin = int(run.start[run.batch == run.batch[kept].max()].min())
    return first_end if first_end <= last_begin else None


def _held(axis: "Axes", of: tuple[Asked, Schedule], run: Unrolled, kept: Bools, units: Units) -> None:
    """Weights and activations of each device over time."""
    asked, chosen = of
    chain, stages = asked.chain, chosen.rows
    for device in np.unique(stages[:, 2]).tolist():
        mine = kept & (run.resource == device)
        begins = mine & (run.kind == FORWARD)
        last = WEIGHT_GRADIENT if (run.kind == WEIGHT_GRADIENT).any() else BACKWARD
        ends = mine & (run.kind == last)
        ticks = np.concatenate([run.start[begins], run.finish[ends]])
        change = np.concatenate([chain.activation[run.layer[begins]], -chain.activation[run.layer[ends]]])
        x, y = _stepped(ticks, change, _weights(chain, chosen, device), run.step)
        stage = _stage_of(stages, device)
        axis.step(
            x,
            y / units.one,
            where="post",
            linewidth=1.0,
            color=COLOURS[stage % len(COLOURS)],
            label=units.called(device),
        )
    _limits(axis, asked.machines, stages, units)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(f"weights and\nactivations, {units.size}", fontsize=8)
    axis.tick_params(labelsize=8)
    if asked.devices <= len(COLOURS):
        axis.legend(fontsize=7, frameon=False, ncols=asked.devices, loc="upper right", bbox_to_anchor=(1, 1.18))
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _limits(axis: "Axes", machines: Machines, stages: Ints, units: Units) -> None:
    """Dotted: the bytes of equal devices, or of each in its colour."""
    limits = machines.limits
    same = len(set(limits)) == 1
    for device in np.unique(stages[:, 2]).tolist()[: 1 if same else None]:
        colour = INK if same else COLOURS[_stage_of(stages, device) % len(COLOURS)]
        if (limit := limits[device]) is not None:
            axis.axhline(limit / units.one, color=colour, linestyle=":", linewidth=0.9)


def _stage_of(stages: Ints, device: int) -> int:
    """The first row of a device: where several share a stage, each has a colour of its own."""
    return int(np.flatnonzero(stages[:, 2] == device)[0])


def _weights(chain: Chain, chosen: Schedule, device: int) -> int:
    """Bytes of variables on a device."""
    if chosen.shared is not None:
        return int(chain.weights[chosen.shared.homes == device].sum())
    rows = chosen.rows[chosen.rows[:, 2] == device].tolist()
    return sum(int(chain.weights[first : last + 1].sum()) for first, last, _ in rows)


def _stepped(ticks: Ints, change: Ints, base: int, end: int) -> tuple[Floats, Floats]:
    """What is held from each tick on."""
    at, where = np.unique(ticks, return_inverse=True)
    held = base + np.cumsum(np.bincount(where, change, len(at)))
    return np.concatenate([[0], at, [end]]).astype(float), np.concatenate([[base], held, held[-1:]]).astype(float)


def draw_curve(
    points: Sequence[tuple[int, dict[str, Fraction | None]]], name: str, form: str, units: Units = NATURAL
) -> bytes:
    """Least period over the bytes of a device, of each way that was tried, and the bound; the same bytes each time."""
    from matplotlib.figure import Figure as Canvas

    with drawn_by(_MADE_BY):
        canvas = Canvas(figsize=(7.0, 4.4), layout="constrained")
        axis = canvas.subplots()
        # The last step has a width, too.
        beyond = 0.04 * (points[-1][0] - points[0][0]) / units.one
        for key, (colour, label) in _STYLES.items():
            known = [
                (memory / units.one, float(value) / units.ticks)
                for memory, row in points
                if (value := row[key]) is not None
            ]
            if known:
                style = "--" if key == "bound" else "-"
                known.append((known[-1][0] + beyond, known[-1][1]))
                axis.step(*zip(*known, strict=True), where="post", color=colour, label=label, linestyle=style)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(f"{units.size} of a device")
        axis.set_ylabel(f"least period of a batch, {units.time}")
        axis.set_title(name, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        return saved(canvas, form, _MADE_BY)
