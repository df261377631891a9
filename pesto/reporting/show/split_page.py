"""Reports of a split: one JSON object, or a page for people; and the table of op types."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pesto.choosing.strategy_choice.timed_split import TimedSplit
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, percent, plural, shorten, size
from pesto.reporting.show.facts.artifact_keys import SPLIT, artifact_keys
from pesto.reporting.show.lines import fact, paragraph
from pesto.reporting.show.table import align_rows
from pesto.split.methods.cut_methods import METHODS
from pesto.split.ops.op_types import OpTypeRow
from pesto.split.reduction_warnings import reduction_warnings
from pesto.split.split_search import PARTIAL, Objective, Split, strategies_by_class, strategies_by_type
from pesto.split.typed_graph import TypedGraph
from pesto.split.variable_rows import layout_words, variable_rows

# A split by class of op and by variable: lines of a page, and keys of JSON.

_VARIABLES = 10
"""Rows of variables on the page."""


def tables_object(shaped: TypedGraph, split: Split) -> dict[str, Any]:
    """The keys `classes`, `types` and `variables` of `pesto split --json`; all rows."""
    return {
        "classes": [{"class": kind, "ops": ops, "cut": cut} for kind, ops, cut in strategies_by_class(shaped, split)],
        "types": [{"type": t, "ops": ops, "ways": how} for t, ops, how in strategies_by_type(shaped, split)],
        "variables": [
            {
                "name": row.name,
                "shape": list(row.shape),
                "dtype": row.dtype,
                "layouts": list(row.layouts),
                "worker_bytes": row.worker_bytes,
            }
            for row in variable_rows(shaped, split.division)
        ],
    }


def tables(shaped: TypedGraph, split: Split) -> list[str]:
    """Classes of ops, and the variables of which a worker holds most; how many more there are."""
    kinds = [(kind, str(ops), str(cut)) for kind, ops, cut in strategies_by_class(shaped, split)]
    rows = variable_rows(shaped, split.division)
    told = [
        (
            shorten(row.name),
            "x".join(map(str, row.shape)) or "a number",
            layout_words(row.layouts, split.division.factors),
            size(row.worker_bytes),
        )
        for row in rows[:_VARIABLES]
    ]
    more = len(rows) - len(told)
    return [
        *align_rows([("class", "ops", "of them cut"), *kinds], "<>>", (24, 6)),
        "",
        *align_rows([("variable", "shape", "cut along", "a worker"), *told], "<<<>"),
        *([f"and {plural(more, 'more variable')} in the JSON"] if more else []),
        "",
    ]


_WHAT = {PARTIAL: "long ops of a placement, and what is cut beside them at no loss"}


def split_object(
    shaped: TypedGraph, split: Split, uncovered: list[str], out: Path | None = None, timed: TimedSplit | None = None
) -> dict[str, Any]:
    """The keys of `pesto split --json`; bytes of bytes, None for what is not known."""
    return {
        **(
            artifact_keys(SPLIT)
            if timed is None
            else artifact_keys(
                SPLIT, makespan_s=timed.makespan_s, fits=timed.candidate.fits, peak_bytes=timed.peak_bytes
            )
        ),
        "source": shaped.source,
        "method": split.method,
        "workers": split.division.workers,
        "factors": list(split.division.factors),
        "status": split.status,
        "bytes": split.moved_bytes if timed is None else timed.sent_bytes,
        "cut_bytes": split.moved_bytes,
        "counted_bytes": split.counted_bytes,
        "bound_bytes": split.bound_bytes,
        "cuts": [
            {"status": str(cut.status), "bytes": cut.value, "bound_bytes": cut.bound, "seconds": dict(cut.seconds)}
            for cut in split.cuts
        ],
        "params_per_worker_bytes": split.parameter_bytes,
        "objective": "bytes" if split.rules.prices is None else "seconds",
        "objective_s": None if split.objective is None else split.objective.value_s,
        "objective_bound_s": None if split.objective is None else split.objective.bound_s,
        "seconds": split.seconds,
        "uncovered": uncovered,
        **tables_object(shaped, split),
        "notes": reduction_warnings(shaped, split.division),
        "split": str(out) if out else None,
    }


def split_page(
    shaped: TypedGraph, split: Split, uncovered: list[str], out: Path | None = None, timed: TimedSplit | None = None
) -> str:
    """A page for people: how op types are cut, and what is sent."""
    factors = "x".join(map(str, split.division.factors))
    rows = [("op type", "ops", "cut along"), *((t, str(n), how) for t, n, how in strategies_by_type(shaped, split))]
    lines = [
        paragraph(f"{shaped.source}: {plural(shaped.ops, 'op')} in {factors} parts", 2),
        *align_rows(rows, "<><", (24, 6)),
        "",
        *tables(shaped, split),
        fact("method", f"{split.method}: {_WHAT.get(split.method) or METHODS[split.method].what}"),
        fact("sent", f"{_sent(split, timed)}; {_proven(split)}"),
        *([fact("objective", _weighed(split.objective, split))] if split.objective is not None else []),
        fact("parameters", f"{size(split.parameter_bytes)} a worker{_at_most(split)}, with slots"),
        *([] if timed is None else _step(timed)),
        *([fact("uncovered", f"{', '.join(uncovered)}: done whole by {_whom(split)}")] if uncovered else []),
        *(fact("note", note) for note in reduction_warnings(shaped, split.division)),
        fact("seconds", f"{split.seconds:.2f}"),
        *([fact("split", str(out))] if out else []),
    ]
    return "\n".join(lines)


def _step(timed: TimedSplit) -> list[str]:
    """Describe the modelled step of the split on a cluster."""
    result = timed.candidate
    peak = f"{size(int(result.peak.max()))} on the fullest device"
    return [
        fact("step", f"{duration(result.makespan * TICK_S)} ({result.rule}; {timed.costs.source})"),
        fact("peak", peak if result.fits else f"{peak}, which has not that much"),
    ]


def _whom(split: Split) -> str:
    return "one worker" if split.method == PARTIAL else "every worker"


def _sent(split: Split, timed: TimedSplit | None) -> str:
    if timed is None or split.method != PARTIAL:
        return f"{size(split.moved_bytes)} a step, by all workers"
    return f"{size(timed.sent_bytes)} a step, by all workers; {size(split.moved_bytes)} of it for cuts"


def _weighed(objective: Objective, split: Split) -> str:
    """Describe the objective of a split for seconds."""
    after = " after the cuts before it" if len(split.cuts) > 1 else ""
    least = f"a cut{after} takes {duration(objective.bound_s)} at least" if objective.bound_s else "no bound is known"
    return f"{duration(objective.value_s)} of the mean accelerator and link, added up and modelled; {least}"


def _at_most(split: Split) -> str:
    return " at most" if split.method == PARTIAL else ""


def _proven(split: Split) -> str:
    after = " after the cuts before it" if len(split.cuts) > 1 else ""
    if not split.bound_bytes and split.counted_bytes:
        return "no bound is known"
    if split.status == "optimal" and split.counted_bytes > split.moved_bytes:
        return f"no other cut{after} counts less than {size(split.counted_bytes)}, each layout received on its own"
    if split.status == "optimal":
        return f"no other cut{after} sends less"
    number, known, value = least_known([(cut.bound, cut.value or 0) for cut in split.cuts])
    which = f"cut {number} of {len(split.cuts)}" if number < len(split.cuts) else f"a cut{after}"
    of = f", of {size(value)}" if number < len(split.cuts) else ""
    return f"{which} sends {size(known)} at least{of}, gap {percent(gap_of(known, value))}"


def least_known(cuts: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Return the cut with the widest gap between bound and bytes, outermost first: its number, its bound, its bytes.

    The last of equals. A step is proven no further than its worst cut, whatever is known of those after it.
    """
    number = max(range(len(cuts)), key=lambda at: (gap_of(*cuts[at]), at))
    return number + 1, *cuts[number]


def gap_of(bound: int, value: int) -> float:
    """Share of a value that its bound leaves open."""
    return 1 - bound / value if value else 0.0


def coverage_object(rows: Iterable[OpTypeRow]) -> dict[str, Any]:
    """The keys of `pesto split ops --json`."""
    return {"ops": [{"type": row.type, "class": row.kind or None, "why": row.why or None} for row in rows]}


def coverage_page(rows: Iterable[OpTypeRow]) -> str:
    """Op types with their classes."""
    shown = [("op type", "class", "why"), *((row.type, row.kind or "none", row.why) for row in rows)]
    return "\n".join(align_rows(shown, "<<<", (36, 16)))
