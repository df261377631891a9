"""Pages and JSON of a choice among kinds of plans: the chosen plan or split, all kinds in one table, and why."""

from pathlib import Path
from typing import Any

from pesto.choosing.strategy_choice.choice import StrategyChoice, StrategyPlan
from pesto.core.quantities import duration, size
from pesto.core.source import Source
from pesto.reporting.show.lines import command, fact
from pesto.reporting.show.solve_report import as_object, following_command, page, source_words
from pesto.reporting.show.split_page import split_object, split_page
from pesto.reporting.show.table import align_rows
from pesto.split.split_search import undescribed_types
from pesto.split.typed_graph import TypedGraph


def choice_object(shaped: TypedGraph | str, choice: StrategyChoice, out: Path) -> dict[str, Any]:
    """The keys of `pesto solve --split --json`: those of the plan or the split in `out`, and those of all kinds."""
    outcome, timed = choice.chosen.outcome, choice.chosen.cut
    if outcome is not None:
        return {**as_object(outcome, outcome.stages_s, out), **kinds_object(choice)}
    if timed is None or isinstance(shaped, str):
        raise ValueError("a kind is a split or a placement")
    return {**split_object(shaped, timed.split, undescribed_types(shaped), out, timed), **kinds_object(choice)}


def choice_page(shaped: TypedGraph | str, choice: StrategyChoice, out: Path, source: Source, cluster: str) -> str:
    """The page of the plan or the split in `out`, and the table of all kinds; `source` and `cluster` as given."""
    outcome, timed = choice.chosen.outcome, choice.chosen.cut
    if outcome is not None:
        text = page(outcome, outcome.stages_s, out, following_command(source, cluster, None, out))
    elif timed is not None and not isinstance(shaped, str):
        text = "\n".join(
            [split_page(shaped, timed.split, undescribed_types(shaped), timed=timed), *split_closing(out, source)]
        )
    else:
        raise ValueError("a kind is a split or a placement")
    return f"{text}\n\n{kinds_page(choice)}"


def split_closing(out: Path, source: Source) -> list[str]:
    """The last lines of a split's page: where it is, and the command that verifies it anew."""
    return [fact("split", str(out)), command("next", ["pesto", "check", out, *source_words(source)])]


def kinds_object(choice: StrategyChoice) -> dict[str, Any]:
    """The chosen kind, all kinds by name, the reason."""
    return {
        "strategy": choice.chosen.kind,
        "chosen_kind": choice.chosen.name,
        "reason": choice.reason,
        "kinds": {kind.name: _row(kind) for kind in choice.kinds},
    }


def _row(kind: StrategyPlan) -> dict[str, Any]:
    return {
        "makespan_s": kind.makespan_s,
        "peak_bytes": kind.peak_bytes,
        "fits": kind.fits,
        "seconds": kind.seconds,
        "why": kind.why or None,
        "bytes": None if kind.cut is None else kind.cut.sent_bytes,
    }


def kinds_page(choice: StrategyChoice) -> str:
    """The table, shortest first; peaks are of the fullest device."""
    shown = sorted(choice.kinds, key=lambda kind: (not kind.fits, kind.makespan_s or 0.0))
    rows = [("kind", "step", "peak", "sent", "found in s"), *map(_cells, shown)]
    lines = [
        *align_rows(rows, "<>"),
        "",
        *(fact(kind.name, kind.why) for kind in shown if kind.why),
        fact("chosen", f"{choice.chosen.name}: {choice.reason}"),
    ]
    return "\n".join(lines)


def _cells(kind: StrategyPlan) -> tuple[str, ...]:
    if kind.makespan_s is None or kind.peak_bytes is None:
        return (kind.name, "-", "-", "-", f"{kind.seconds:.1f}")
    sent = "-" if kind.cut is None else size(kind.cut.sent_bytes)
    peak = size(kind.peak_bytes) + ("" if kind.fits else " OOM")
    return (kind.name, duration(kind.makespan_s), peak, sent, f"{kind.seconds:.1f}")
