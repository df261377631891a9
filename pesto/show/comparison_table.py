"""What a comparison says: one JSON object, or a table for people."""

from pathlib import Path
from typing import Any

from pesto.cluster import Cluster
from pesto.comparison.contest import Comparison, Entry
from pesto.comparison.methods import METHODS
from pesto.show.table import aligned

HEAD = ("method", "step ms", "to best", "peak GiB", "memory", "cut MB", "devices", "links", "place s")


def as_object(contest: Comparison, plans: dict[str, Path]) -> dict[str, Any]:
    """The keys of `pesto compare --json`: seconds, bytes, shares; None where there is no value."""
    return {
        "graph": contest.graph.source,
        "ops": contest.graph.ops,
        "cluster": contest.cluster.name,
        "costs": contest.costs.basis,
        "costs_source": contest.costs.source,
        "lower_bound_s": contest.lower_bound_s,
        "lower_bound": contest.lower_bound_name,
        "infeasible": contest.proof or None,
        "interrupted": contest.interrupted,
        "methods": {entry.method: _row(contest.cluster, entry, plans) for entry in contest.entries},
    }


def _row(cluster: Cluster, entry: Entry, plans: dict[str, Path]) -> dict[str, Any]:
    found = entry.candidate
    names = [d.name for d in cluster.devices]
    none = found is None
    return {
        "status": entry.status,
        "makespan_s": entry.makespan_s,
        "peak_bytes": None if found is None else dict(zip(names, found.peak.tolist(), strict=True)),
        "seconds": entry.seconds,
        "fits": found is not None and found.fits,
        "memory_aware": METHODS[entry.method].memory,
        "mended": entry.mended,
        "cut_bytes": None if none else entry.cut_bytes,
        "device_utilisation": None if none else entry.device_use,
        "link_utilisation": None if none else entry.link_use,
        "detail": entry.detail,
        "source": METHODS[entry.method].source,
        "plan": str(plans[entry.method]) if entry.method in plans else None,
    }


def page(contest: Comparison, plans: Path | None) -> str:
    """A table for people, best first, with every shortfall below it."""
    entries = contest.ranked()
    best = min((e.makespan_s for e in entries if e.plan is not None and e.makespan_s is not None), default=None)
    lines = [
        f"{contest.graph.source}: {contest.graph.ops} ops on {contest.cluster.name}",
        f"costs         {contest.costs.basis}: {contest.costs.source}",
        f"lower bound   {contest.lower_bound_s * 1e3:.2f} ms on the full graph ({contest.lower_bound_name})",
        *([f"infeasible    {contest.proof}"] if contest.proof else []),
        "",
        *aligned([HEAD, *(_cells(contest.cluster, entry, best) for entry in entries)], "<>"),
        "",
        *(f"{entry.method}: {entry.detail}" for entry in entries if entry.plan is None),
        *(
            ["* repaired to fit the memory: ops moved, or run in another order"]
            if any(entry.mended for entry in entries)
            else []
        ),
        "Step times and peaks are predicted by the simulator; place s is measured.",
    ]
    if plans is not None:
        lines.append(f"plans         in {plans}, each verified by the independent checker")
    return "\n".join(lines)


def _cells(cluster: Cluster, entry: Entry, best: float | None) -> tuple[str, ...]:
    found = entry.candidate
    if found is None or entry.makespan_s is None:
        return (entry.method, "-", "-", "-", entry.status, "-", "-", "-", "-")
    share = [int(p) / d.memory_bytes for p, d in zip(found.peak, cluster.devices, strict=True)]
    fullest = max(range(len(share)), key=share.__getitem__)
    behind = f"{entry.makespan_s / best - 1:+.1%}" if best else "-"
    return (
        entry.method,
        f"{entry.makespan_s * 1e3:.2f}",
        behind,
        f"{int(found.peak[fullest]) / 2**30:.2f}",
        f"{share[fullest]:.0%}{' *' if entry.mended else ''}" if found.fits else "OOM",
        f"{entry.cut_bytes / 1e6:.0f}",
        f"{entry.device_use:.0%}",
        f"{entry.link_use:.0%}",
        f"{entry.seconds:.2f}",
    )
