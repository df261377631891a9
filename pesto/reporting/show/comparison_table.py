"""Comparisons as one JSON object, or as a table for people."""

from pathlib import Path
from typing import Any

from pesto.choosing.comparison.contest import Comparison, MethodEntry
from pesto.choosing.comparison.methods import METHODS
from pesto.core.cluster import Cluster
from pesto.core.quantities import change, duration, plural, size_unit, time_unit
from pesto.reporting.show.facts.costs_note import costs_text, note_key
from pesto.reporting.show.lines import fact, paragraph
from pesto.reporting.show.table import align_rows

_WORDS = (
    "to best: more than the shortest that fits; peak, full: of the fullest device; OOM: does not fit; cut: sent "
    "between devices; busy: devices, mean; links: the busiest; place: of the method, measured, all else is predicted"
)


def as_object(contest: Comparison, plans: dict[str, Path]) -> dict[str, Any]:
    """The keys of `pesto compare --json`: seconds, bytes, shares; None where there is no value.

    Where no batch size is known, methods have no examples a second.
    """
    return {
        "graph": contest.graph.source,
        "ops": contest.graph.ops,
        "cluster": contest.cluster.name,
        "costs": contest.costs.basis,
        "costs_source": contest.costs.source,
        **note_key(contest.costs.said),
        "parallelism": contest.shape.parallelism,
        "ccr": contest.shape.ccr,
        "batch": contest.shape.batch,
        "lower_bound_s": contest.lower_bound_s,
        "lower_bound": contest.lower_bound_name,
        "infeasible": contest.proof or None,
        "interrupted": contest.interrupted,
        "methods": {entry.method: _row(contest, entry, plans) for entry in contest.entries},
    }


def _row(contest: Comparison, entry: MethodEntry, plans: dict[str, Path]) -> dict[str, Any]:
    result = entry.candidate
    names = [d.name for d in contest.cluster.devices]
    none = result is None
    return {
        "status": entry.status,
        "makespan_s": entry.makespan_s,
        **({} if contest.shape.batch is None else {"examples_per_s": _throughput(contest, entry)}),
        "peak_bytes": None if result is None else dict(zip(names, result.peak.tolist(), strict=True)),
        "seconds": entry.seconds,
        "fits": result is not None and result.fits,
        "memory_aware": METHODS[entry.method].memory,
        "mended": entry.mended,
        "cut_bytes": None if none else entry.cut_bytes,
        "device_utilisation": None if none else entry.device_use,
        "link_utilisation": None if none else entry.link_use,
        "detail": entry.detail,
        "source": METHODS[entry.method].source,
        "plan": str(plans[entry.method]) if entry.method in plans else None,
    }


def _throughput(contest: Comparison, entry: MethodEntry) -> float | None:
    """Examples a second, predicted; None where no batch size is known, or nothing runs."""
    batch, step = contest.shape.batch, entry.makespan_s
    return batch / step if batch is not None and step and entry.fits else None


def _offered(contest: Comparison) -> str:
    """Parallelism and CCR, and the throughput of the best where the batch is known."""
    shape = contest.shape
    ccr = "no transfers between accelerators" if shape.ccr is None else f"communication / computation {shape.ccr:.3g}"
    result = f"parallelism {shape.parallelism:.3g} (all ops / the longest path), {ccr}"
    plans = [entry for entry in contest.entries if entry.plan is not None]
    rates = [rate for rate in (_throughput(contest, entry) for entry in plans) if rate is not None]
    return f"{result}; batch {shape.batch}, at best {max(rates):.4g} examples/s" if rates else result


def page(contest: Comparison, plans: Path | None) -> str:
    """A table for people, best first, with every shortfall below it."""
    entries = contest.ranked()
    words = _WORDS + ("; *: ops moved, or run in another order, to fit" if any(e.mended for e in entries) else "")
    lines = [
        paragraph(f"{contest.graph.source}: {plural(contest.graph.ops, 'op')} on {contest.cluster.name}", 2),
        fact("costs", costs_text(contest.costs.basis, contest.costs.source, contest.costs.said)),
        fact("lower bound", f"{duration(contest.lower_bound_s)} {_bounded(entries)} ({contest.lower_bound_name})"),
        fact("step", _offered(contest)),
        *([fact("infeasible", contest.proof)] if contest.proof else []),
        "",
        *_table(contest.cluster, entries),
        "",
        *(paragraph(f"{entry.method}: {entry.detail}", 2) for entry in entries if entry.plan is None),
        fact("words", words),
    ]
    if plans is not None:
        lines.append(fact("plans", f"in {plans}, each verified by the independent checker"))
    return "\n".join(lines)


def _bounded(entries: list[MethodEntry]) -> str:
    """Note that the bound is of whole ops: tensors that are cut may take less."""
    whole = all(entry.split is None and entry.rival is None for entry in entries)
    return "on the full graph" if whole else "for whole ops on the full graph"


def _table(cluster: Cluster, entries: list[MethodEntry]) -> list[str]:
    """Head, units and a row for each entry; a column's unit is that of its largest value."""
    steps = [entry.makespan_s for entry in entries if entry.makespan_s is not None]
    best = min((e.makespan_s for e in entries if e.plan is not None and e.makespan_s is not None), default=None)
    time = time_unit(max(steps, default=0.0))
    peak = size_unit(max((int(entry.candidate.peak.max()) for entry in entries if entry.candidate), default=0))
    cut = size_unit(max((entry.cut_bytes for entry in entries), default=0))
    head = ("method", "step", "to", "peak", "full", "cut", "busy", "links", "place")
    units = ("", time[0], "best", peak[0], "", cut[0], "", "", "s")
    ones = (time[1], peak[1], cut[1])
    return align_rows([head, units, *(_cells(cluster, entry, best, ones) for entry in entries)], "<>")


def _cells(cluster: Cluster, entry: MethodEntry, best: float | None, ones: tuple[float, int, int]) -> tuple[str, ...]:
    """A row; `ones` are what one of the units of time, peak and cut is."""
    result = entry.candidate
    if result is None or entry.makespan_s is None:
        return (entry.method, "-", "-", "-", entry.status, "-", "-", "-", "-")
    share = [int(p) / d.memory_bytes for p, d in zip(result.peak, cluster.devices, strict=True)]
    fullest = max(range(len(share)), key=share.__getitem__)
    return (
        entry.method,
        f"{entry.makespan_s / ones[0]:.2f}",
        change(entry.makespan_s / best - 1) if best else "-",
        f"{int(result.peak[fullest]) / ones[1]:.2f}",
        f"{share[fullest]:.0%}{' *' if entry.mended else ''}" if result.fits else "OOM",
        f"{entry.cut_bytes / ones[2]:.1f}",
        f"{entry.device_use:.0%}",
        f"{entry.link_use:.0%}",
        f"{entry.seconds:.2f}",
    )
