"""Pages of what a solve begins with: a cluster, the times of a step's ops and their spread, a step as it is found."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto.core.cluster import Cluster, Path
from pesto.core.costs import ORIGINS, Costs
from pesto.core.costs.analytical import CostListing, CostSum, form_name, sum_costs
from pesto.core.costs.measured import Profile, spread_quantiles
from pesto.core.costs.presets import PRESETS
from pesto.core.errors import describe_error
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.quantities import duration, percent, plural, shorten, size
from pesto.inputs.cluster_file import ClusterDescription
from pesto.reporting.show.drawing import BLUE, GREY, drawing_style, figure_bytes
from pesto.reporting.show.facts import costs_text, note_key
from pesto.reporting.show.lines import Column, Table, align_rows, fact, paragraph, to_csv
from pesto.tf.step_facts import StepFacts, VariableTie

_OF_A_DEVICE = ("name", "kind", "preset", "host", "memory_bytes", "speed", "cores")
UNSAID = "the cluster's file, which names no source"
"""Source of numbers whose file does not name one."""


def cluster_page(described: ClusterDescription) -> str:
    """Return all of a cluster, for people."""
    cluster = described.cluster
    # Paths of one time and source have one number, and are told by the first of them.
    numbers: dict[tuple[object, ...], int] = {}
    examples: dict[int, Path] = {}
    for _, _, path in _paths(cluster):
        number = numbers.setdefault((path.cost, path.source), len(numbers) + 1)
        examples.setdefault(number, path)
    devices = [
        (d.name, d.preset, f"{d.cores} cores" if d.cores > 1 else "", size(d.memory_bytes), f"host {d.host}",
         f"speed {d.speed:g}" if d.speed != 1 else "")
        for d in cluster.devices
    ]  # fmt: skip
    paths = [
        (
            f"{cluster.devices[a].name} > {cluster.devices[b].name}",
            f"#{numbers[path.cost, path.source]}",
            (", ".join(cluster.links[k] for k in path.links) or "nothing"),
        )
        for a, b, path in _paths(cluster)
    ]
    sources = {d.preset: PRESETS[d.preset].source for d in cluster.devices if d.preset in PRESETS}
    lines = [paragraph(f"{cluster.name} ({cluster.source})", 2)]
    lines += [paragraph(described.about, 2)] if described.about else []
    lines += ["", "devices", *(f"  {line}" for line in align_rows(devices, "<<>><<"))]
    lines += [fact(f"  {name}", f"modelled: {source}") for name, source in sources.items()]
    lines += ["", "times"]
    for number, path in examples.items():
        times = []
        for latency_s, s_per_byte in ((path.latency_s, path.s_per_byte), *path.pieces):
            rate = f" + bytes at {1e-9 / s_per_byte:.4g} GB/s" if s_per_byte else ", bytes free"
            times.append(f"{latency_s * 1e6:.6g} us{rate}")
        text = " or ".join(times) + (", the longest" if len(times) > 1 else "")
        text += f", {path.floor_s * 1e6:g} us at least" if path.floor_s else ""
        lines.append(fact(f"  #{number}", f"{text}; {path.source or UNSAID}"))
    lines += ["", f"paths, and which of {len(cluster.links)} links each holds"]
    return "\n".join([*lines, *(f"  {line}" for line in align_rows(paths, "<<<"))])


def cluster_object(described: ClusterDescription) -> dict[str, Any]:
    """Return the same as one JSON object."""
    cluster = described.cluster
    return {
        "name": cluster.name,
        "source": cluster.source,
        "about": described.about,
        "devices": [
            {key: getattr(d, key) for key in _OF_A_DEVICE}
            | {"source": PRESETS[d.preset].source if d.preset in PRESETS else None}
            for d in cluster.devices
        ],
        "links": list(cluster.links),
        "paths": [
            {
                "from": cluster.devices[a].name, "to": cluster.devices[b].name, "latency_s": path.latency_s,
                "s_per_byte": path.s_per_byte, "floor_s": path.floor_s, "pieces": [list(p) for p in path.pieces],
                "links": [cluster.links[k] for k in path.links], "source": path.source or None,
            }
            for a, b, path in _paths(cluster)
        ],
    }  # fmt: skip


def _paths(cluster: Cluster) -> list[tuple[int, int, Path]]:
    rows = enumerate(cluster.paths)
    return [(a, b, path) for a, row in rows for b, path in enumerate(row) if path is not None]


_LARGEST = 20
"""Rows of a page."""
_INDENT = 8
_FLOPS = (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3), ("FLOP", 1.0))
_OPS = ("name", "type", "device", "dtype", "flops", "bytes", "seconds", "origin", "kernel")
_SUMMED = ("ops", "flops", "bytes", "total_s")
_OUTSIDE = "(no scope)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpTimes:
    """Op times to show, with the grouping."""

    graph: Graph
    cluster: Cluster
    costs: Costs
    found: CostListing
    by: str | None
    """type or scope; None for op by op."""

    @property
    def total_s(self) -> float:
        """All ops that are listed, one after the other."""
        return float(self.found.seconds.sum())

    @property
    def sums(self) -> list[CostSum]:
        """By type or scope."""
        return sum_costs(self.graph, self.found, self.by or "")


def costs_object(times: OpTimes) -> dict[str, Any]:
    """The keys of `pesto costs --json`: all ops, or all sums."""
    used = sorted(set(times.found.device.tolist()))
    head = {
        "graph": times.graph.source,
        "cluster": times.cluster.name,
        "devices": [times.cluster.devices[d].name for d in used],
        "costs": times.costs.basis,
        "costs_source": times.costs.source,
        **note_key(times.costs.said),
        "total_s": times.total_s,
    }
    if times.by is None:
        return head | {"ops": [dict(zip(_OPS, row, strict=True)) for row in _rows(times)]}
    keys = (times.by, *_SUMMED)
    return head | {f"by_{times.by}": [dict(zip(keys, _summed_row(row), strict=True)) for row in times.sums]}


def costs_csv(times: OpTimes) -> bytes:
    """All ops, as a file of one's own times; or all sums, whose column is named so that it cannot be one."""
    columns: tuple[str, ...] = _OPS if times.by is None else (times.by, *_SUMMED)
    rows = _rows(times, at_speed_one=True) if times.by is None else map(_summed_row, times.sums)
    kept = tuple(Column(key=key, title=key) for key in columns)
    return to_csv(Table(key="costs", title="costs", columns=kept, rows=tuple(rows)))


def costs_page(times: OpTimes, rest: str = "") -> str:
    """Return a total, the longest ops or sums, and how many more; `rest` goes on with where these are found."""
    graph, costs, listing = times.graph, times.costs, times.found
    devices = []
    for d, n in Counter(listing.device.tolist()).most_common():
        device = times.cluster.devices[d]
        speed = f", speed {device.speed:g}" if device.speed != 1 else ""
        devices.append(f"{plural(n, 'op')} on {shown(device.name)} ({shown(device.preset)}{speed})")
    left = graph.ops - len(listing.op)
    lines = [
        fact("graph", f"{shown(graph.source)}, {plural(graph.ops, 'op')}"),
        fact("costs", costs_text(costs.basis, costs.source, costs.said)),
        fact("devices", f"{', '.join(devices) or 'none'}{f'; {left} cannot run there' if left else ''}"),
        fact("total", f"{duration(times.total_s)} for {plural(len(listing.op), 'op')}, one after the other"),
        "",
    ]
    total = times.total_s or 1.0
    if times.by is not None:
        sums = times.sums
        head = ("time", "share", "ops", "flops", "bytes", times.by)
        sum_rows = [
            (duration(s.seconds), percent(s.seconds / total), str(s.ops), _flops(s.flops), size(s.bytes),
             shown(s.label, 200) or _OUTSIDE)
            for s in sums[:_LARGEST]
        ]  # fmt: skip
        more = _more(len(sums), sum(s.seconds for s in sums[_LARGEST:]), "rows", rest)
        return "\n".join([*lines, *align_rows([head, *sum_rows], ">>>>><"), *more])
    # The preset of the device that most ops are listed on; of others it is said.
    used = listing.device.tolist()
    usual = times.cluster.devices[max(set(used), key=used.count)].preset if used else ""
    for row in (dict(zip(_OPS, values, strict=True)) for values in _rows(times, _LARGEST)):
        how = f"{row['origin']}, {row['kernel']}" if row["kernel"] else row["origin"]
        work = f"{_flops(row['flops'])}, {size(row['bytes'])}"
        kind = " ".join(shown(row[key], 60) for key in ("type", "dtype") if row[key])
        elsewhere = f"on {shown(row['device'], 60)}" if row["device"] != usual else ""
        text = f"{', '.join(part for part in (kind, elsewhere, work) if part)}: {how}"
        share = percent(row["seconds"] / total)
        lines.append(f"{duration(row['seconds']):>10s}  {share:>5s}  {shown(row['name'], 400)}")
        lines.append(paragraph("." * _INDENT + text, _INDENT).replace("." * _INDENT, " " * _INDENT, 1))
    lines += _more(len(listing.op), float(listing.seconds[_LARGEST:].sum()), "ops", rest)
    return "\n".join(lines)


def _more(count: int, seconds: float, what: str, rest: str) -> list[str]:
    left = count - _LARGEST
    return [f"{left} more {what} take {duration(seconds)}{rest}"] if left > 0 else []


def _rows(times: OpTimes, limit: int | None = None, *, at_speed_one: bool = False) -> Iterator[tuple[Any, ...]]:
    """Values of _OPS; seconds on the device as it is, or as files have them."""
    graph, result, devices = times.graph, times.found, times.cluster.devices
    columns = (result.op, result.device, result.seconds, result.kernel)
    for i, d, seconds, kernel in zip(*(column[:limit].tolist() for column in columns), strict=True):
        dtype = int(graph.dtype_of[i])
        yield (
            graph.names[i],
            graph.types[int(graph.type_of[i])],
            devices[d].preset,
            graph.dtypes[dtype] if dtype >= 0 else None,
            float(graph.flops[i]),
            int(graph.moved_bytes[i]),
            seconds * devices[d].speed if at_speed_one else seconds,
            ORIGINS[int(times.costs.origin[i])],
            form_name(kernel),
        )


def _summed_row(row: CostSum) -> tuple[Any, ...]:
    return row.label, row.ops, row.flops, row.bytes, row.seconds


def _flops(count: float) -> str:
    name, one = next(((name, one) for name, one in _FLOPS if count >= one), _FLOPS[-1])
    return f"{count / one:.2f} {name}" if one > 1 else f"{count:.0f} {name}"


LEVELS = tuple(np.linspace(0.0, 1.0, 201).tolist())
"""Shares of the ops at which the curves are drawn."""


def draw_spread(profile: Profile, form: str) -> bytes:
    """Draw the share of ops of 10 us or more whose normalised deviation is at most so much; the same bytes each time.

    Of all samples, and without the slowest tenth. Without such an op the axes are empty.
    """
    from matplotlib.figure import Figure as Canvas

    with drawing_style("pesto profile"):
        canvas = Canvas(figsize=(6.0, 4.0), layout="constrained")
        axis = canvas.subplots()
        for raw, colour, label in ((False, BLUE, "without the slowest tenth"), (True, GREY, "all samples")):
            spread = spread_quantiles(profile, LEVELS, raw=raw)
            if spread is not None:
                axis.plot(spread, LEVELS, color=colour, label=label)
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)
        axis.set_xlim(left=0.0)
        axis.set_ylim(0.0, 1.01)
        axis.set_xlabel("standard deviation / mean")
        axis.set_ylabel("share of ops of 10 µs or more")
        axis.set_title(f"{profile.source} on {profile.device}", loc="left", fontsize=9)
        return figure_bytes(canvas, form, "pesto profile")


MOST_ROWS = 5
"""Rows of a kind that a page has; the JSON object has all."""


def inspection_object(facts: StepFacts) -> dict[str, Any]:
    """The keys of `pesto inspect --json`; None where the source does not say."""
    feeds: list[dict[str, Any]] | None = None
    if facts.feeds is not None:
        shapes = [None if f.shape is None else [None if d < 0 else d for d in f.shape] for f in facts.feeds]
        feeds = [{"name": f.name, "dtype": f.dtype, "shape": s} for f, s in zip(facts.feeds, shapes, strict=True)]
    return {
        "source": facts.source,
        "inputs": feeds,
        "batch": {"open": facts.open_batch, "given": facts.batch},
        "optimizer": {"class": facts.optimizer or None, "updates": dict(facts.updates)},
        "trains": None if facts.updated is None else facts.updated > 0,
        "updated_variables": facts.updated,
        "ops": facts.ops,
        "variables": facts.variables,
        "variable_bytes": facts.variable_bytes,
        "ends": list(facts.ends),
        "groups": [_tie(tie) for tie in facts.ties],
        "loops_and_branches": [_tie(tie) for tie in facts.holders],
        "pinned": dict(facts.pinned),
        "careful": list(facts.careful),
        "refused": [describe_error(error, None).as_object() for error in facts.refused],
    }


def _tie(tie: VariableTie) -> dict[str, Any]:
    return {"ops": tie.ops, "variables": tie.variables, "variable_bytes": tie.variable_bytes, "why": tie.why}


def inspection_page(facts: StepFacts) -> str:
    """A page for people."""
    feeds, lines = facts.feeds or (), [paragraph(f"{facts.source}: {plural(facts.ops, 'op')}", 2)]
    for feed in feeds[:MOST_ROWS]:
        shape = "of unknown rank"
        if feed.shape is not None:
            shape = f"[{', '.join('?' if d < 0 else str(d) for d in feed.shape)}]"
        lines.append(fact("input", f"{shorten(feed.name)}: {feed.dtype} {shape}"))
    lines += _rest("input", len(feeds))
    lines.append(fact("batch", _batch(facts)))
    lines.append(fact("variables", f"{facts.variables}, {size(facts.variable_bytes)}"))
    if facts.updated is not None:
        types = ", ".join(f"{count} {kind}" for kind, count in facts.updates.items())
        trains = f"yes: it updates {facts.updated} of its variables, by {types}"
        lines.append(fact("trains", trains if facts.updated else "no: it updates no variable, which is inference"))
    lines += [fact("optimizer", facts.optimizer)] if facts.optimizer else []
    lines += [fact("ends with", ", ".join(map(shorten, facts.ends)))] if 0 < len(facts.ends) <= MOST_ROWS else []
    lines += _ties("tied", [tie for tie in facts.ties if tie.variables != 1])
    # Groups that hold no two variables together are one line.
    alone = [tie for tie in facts.ties if tie.variables == 1]
    if alone:
        many = f"{len(alone)} groups, each around a variable of its own, the largest " if len(alone) > 1 else ""
        text = f"{plural(alone[0].ops, 'op')}, {size(alone[0].variable_bytes)}: {alone[0].why}"
        lines.append(fact("tied", f"{many}{text}"))
    lines += _ties("holds", facts.holders)
    if any(facts.pinned.values()):
        # Ops of each device, those with most first, and how many may run anywhere.
        counts = sorted((-many, device) for device, many in facts.pinned.items() if many)
        pins = [f"{plural(-many, 'op')} to {shorten(device)}" for many, device in counts]
        rest = [f"{len(pins) - MOST_ROWS} more devices"] if len(pins) > MOST_ROWS else []
        free = facts.ops - sum(facts.pinned.values())
        without = plural(free, "op") if free else "none"
        lines.append(fact("pinned", f"{', '.join([*pins[:MOST_ROWS], *rest])}; {without} without"))
    lines += [fact("careful", text) for text in facts.careful]
    lines += [fact("refused", str(error)) for error in facts.refused]
    return "\n".join([*lines, *([] if facts.refused else [fact("refused", "nothing: it can be planned")])])


def _batch(facts: StepFacts) -> str:
    if facts.feeds is None:
        return "as the file has it"
    if not facts.open_batch:
        given = f"; {facts.batch} was given for open first dimensions" if facts.batch else ""
        return f"fixed by the shapes, or none{given}"
    if facts.batch is None:
        text = "open: a size of it is needed to plan"
    else:
        text = f"{facts.batch}, where the graph leaves it open"
    if facts.size_ops:
        text += (
            f"; {plural(facts.size_ops, 'op')} read its size as the step runs, and others reckon with it: a fixed "
            "batch is shorter - give an example batch, or a signature with its size"
        )
    return text


def _ties(label: str, ties: Sequence[VariableTie]) -> Iterable[str]:
    for tie in ties[:MOST_ROWS]:
        held = f"{plural(tie.variables, 'variable')}, {size(tie.variable_bytes)}" if tie.variables else "no variable"
        yield fact(label, f"{f'{tie.ops} ops, ' if tie.ops > 1 else ''}{held}: {tie.why}")
    yield from _rest(label, len(ties))


def _rest(label: str, count: int) -> list[str]:
    return [fact(label, f"... and {count - MOST_ROWS} more")] if count > MOST_ROWS else []
