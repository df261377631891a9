"""Kinds of plans side by side: one table, the chosen one, and why."""

from typing import Any

from pesto.quantities import duration, size
from pesto.show.lines import fact
from pesto.show.table import aligned
from pesto.weighing.choice import Choice, Kind


def kinds_object(choice: Choice) -> dict[str, Any]:
    """The keys that `pesto solve --split --json` adds: the chosen kind, all kinds by name, the reason."""
    return {
        "kind": choice.chosen.kind,
        "chosen_kind": choice.chosen.name,
        "reason": choice.reason,
        "kinds": {kind.name: _row(kind) for kind in choice.kinds},
    }


def _row(kind: Kind) -> dict[str, Any]:
    return {
        "makespan_s": kind.makespan_s,
        "peak_bytes": kind.peak_bytes,
        "fits": kind.fits,
        "seconds": kind.seconds,
        "why": kind.why or None,
        "bytes": None if kind.cut is None else kind.cut.sent_bytes,
    }


def kinds_page(choice: Choice) -> str:
    """The table, shortest first; peaks are of the fullest device."""
    shown = sorted(choice.kinds, key=lambda kind: (not kind.fits, kind.makespan_s or 0.0))
    rows = [("kind", "step", "peak", "sent", "found in s"), *map(_cells, shown)]
    lines = [
        *aligned(rows, "<>"),
        "",
        *(fact(kind.name, kind.why) for kind in shown if kind.why),
        fact("chosen", f"{choice.chosen.name}: {choice.reason}"),
    ]
    return "\n".join(lines)


def _cells(kind: Kind) -> tuple[str, ...]:
    if kind.makespan_s is None or kind.peak_bytes is None:
        return (kind.name, "-", "-", "-", f"{kind.seconds:.1f}")
    sent = "-" if kind.cut is None else size(kind.cut.sent_bytes)
    peak = size(kind.peak_bytes) + ("" if kind.fits else " OOM")
    return (kind.name, duration(kind.makespan_s), peak, sent, f"{kind.seconds:.1f}")
