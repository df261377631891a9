"""A split by class of op and by variable: lines of a page, and keys of JSON."""

from typing import Any

from pesto.core.quantities import plural, shorten, size
from pesto.reporting.show.table import align_rows
from pesto.split.split_search import Split, strategies_by_class, strategies_by_type
from pesto.split.typed_graph import TypedGraph
from pesto.split.variable_rows import layout_words, variable_rows

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
