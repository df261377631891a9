"""Reports of a split, of one of its ops, of op types and of a choice among kinds: JSON, pages, and a picture."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pesto.choosing.strategy_choice.choice import PlacementPlan, SplitPlan, StrategyChoice
from pesto.choosing.strategy_choice.timed_split import TimedSplit
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, percent, plural, shorten, size
from pesto.core.source import Source
from pesto.reporting.show.drawing import COLOURS, INK, drawing_style, figure_bytes
from pesto.reporting.show.facts import SPLIT, artifact_keys
from pesto.reporting.show.lines import align_rows, command, fact, paragraph
from pesto.reporting.show.solve_report import InputNames, solve_object, solve_page, source_words
from pesto.split.division import Division, reduction_warnings, undescribed_types
from pesto.split.geometry import Box, Shape, worker_boxes
from pesto.split.methods.cut_methods import METHODS
from pesto.split.op_strategy import ONCE_WAY, SUMMANDS_WAY, WHOLE_WAY
from pesto.split.ops.op_types import OpTypeRow
from pesto.split.split_search import PARTIAL_METHOD, Split
from pesto.split.split_views import (
    DivisionTables,
    ExplainedOp,
    OpTensor,
    VariableRow,
    division_tables,
    layout_words,
    variable_rows,
    whole_bytes,
)
from pesto.split.typed_graph import TypedGraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_VARIABLES, _WORKERS = 10, 8
"""Variables of a split, and workers of an op, that a page has."""
_MOST, _COLUMNS = 12, 4
"""Variables of a picture, and its columns."""
_FAINT = (1.0, 0.6, 0.35)
"""How strongly a colour is laid on, for workers beyond the number of colours."""


def tables_object(tables: DivisionTables) -> dict[str, Any]:
    """The keys `classes`, `types` and `variables` of `pesto split --json`; all rows."""
    return {
        "classes": [{"class": kind, "ops": ops, "cut": cut} for kind, ops, cut in tables.classes],
        "types": [{"type": t, "ops": ops, "ways": how} for t, ops, how in tables.types],
        "variables": [
            {"name": row.name, "shape": list(row.shape), "dtype": row.dtype, "layouts": list(row.layouts),
             "worker_bytes": row.worker_bytes}
            for row in tables.variables
        ],
    }  # fmt: skip


def tables_lines(tables: DivisionTables, factors: Shape) -> list[str]:
    """Classes of ops, and the variables of which a worker holds most; how many more there are."""
    kinds = [(kind, str(ops), str(cut)) for kind, ops, cut in tables.classes]
    rows = tables.variables
    told = [
        (shorten(row.name), _shape(row.shape), layout_words(row.layouts, factors),
         size(row.worker_bytes))
        for row in rows[:_VARIABLES]
    ]  # fmt: skip
    more = len(rows) - len(told)
    return [
        *align_rows([("class", "ops", "of them cut"), *kinds], "<>>", (24, 6)),
        "",
        *align_rows([("variable", "shape", "cut along", "a worker"), *told], "<<<>"),
        *([f"and {plural(more, 'more variable')} in the JSON"] if more else []),
        "",
    ]


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a number"


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
        **tables_object(division_tables(shaped, split.division)),
        "notes": reduction_warnings(shaped, split.division),
        "split": str(out) if out else None,
    }


def split_page(
    shaped: TypedGraph, split: Split, uncovered: list[str], out: Path | None = None, timed: TimedSplit | None = None
) -> str:
    """A page for people: how op types are cut, and what is sent."""
    factors, partial = "x".join(map(str, split.division.factors)), split.method == PARTIAL_METHOD
    tables = division_tables(shaped, split.division)
    rows = [("op type", "ops", "cut along"), *((t, str(n), how) for t, n, how in tables.types)]
    along = "long ops of a placement, and what is cut beside them at no loss"
    what = along if partial else METHODS[split.method].what
    sent = f"{size(split.moved_bytes)} a step, by all workers"
    if timed is not None and partial:
        sent = f"{size(timed.sent_bytes)} a step, by all workers; {size(split.moved_bytes)} of it for cuts"
    lines = [
        paragraph(f"{shaped.source}: {plural(shaped.ops, 'op')} in {factors} parts", 2),
        *align_rows(rows, "<><", (24, 6)),
        "",
        *tables_lines(tables, split.division.factors),
        fact("method", f"{split.method}: {what}"),
        fact("sent", f"{sent}; {_proven(split)}"),
    ]
    if split.objective is not None:
        value, bound = split.objective.value_s, split.objective.bound_s
        least = f"a cut{_after(split)} takes {duration(bound)} at least" if bound else "no bound is known"
        mean = "of the mean accelerator and link, added up and modelled"
        lines.append(fact("objective", f"{duration(value)} {mean}; {least}"))
    at_most = " at most" if partial else ""
    lines.append(fact("parameters", f"{size(split.parameter_bytes)} a worker{at_most}, with slots"))
    if timed is not None:
        result = timed.candidate
        peak = f"{size(int(result.peak.max()))} on the fullest device"
        lines.append(fact("step", f"{duration(result.makespan * TICK_S)} ({result.rule}; {timed.costs.source})"))
        lines.append(fact("peak", peak if result.fits else f"{peak}, which has not that much"))
    if uncovered:
        whom = "one worker" if partial else "every worker"
        lines.append(fact("uncovered", f"{', '.join(uncovered)}: done whole by {whom}"))
    lines += [fact("note", note) for note in reduction_warnings(shaped, split.division)]
    lines.append(fact("seconds", f"{split.seconds:.2f}"))
    return "\n".join([*lines, *([fact("split", str(out))] if out else [])])


def _after(split: Split) -> str:
    return " after the cuts before it" if len(split.cuts) > 1 else ""


def _proven(split: Split) -> str:
    after = _after(split)
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


def op_object(op: ExplainedOp) -> dict[str, Any]:
    """The key `op` of `pesto split --explain --json`. Layouts: a dimension, -1 whole, -2 partial, -3 worker 0 alone."""
    return {
        "name": op.name,
        "type": op.type,
        "class": op.kind or None,
        "way": list(op.strategy.names),
        "reducer": op.strategy.reducer or None,
        "strategies": [
            {
                "parts": k,
                "found": [
                    {"variable": s.name, "needs": list(s.needs), "gives": list(s.gives)}
                    | ({"windows": [[rim._asdict() for rim in rims] for rims in s.rims]} if s.rims else {})
                    for s in result.admitted
                ],
                "refused": [{"variable": each.variable, "reason": each.reason} for each in result.refused],
            }
            for k, result in op.strategies
        ],
        "inputs": [_carried(each, "kept", "needed") for each in op.inputs],
        "outputs": [_carried(each, "computed", "kept") for each in op.outputs],
    }


def _carried(each: OpTensor, result: str, wanted: str) -> dict[str, Any]:
    return {
        "tensor": each.tensor,
        "shape": None if each.shape is None else list(each.shape),
        "dtype": each.dtype,
        result: list(each.source_layouts),
        wanted: list(each.target_layouts),
        "bytes": each.moved_bytes,
        "parts": [None if box is None else [[a, a + n] for a, n in zip(*box, strict=True)] for box in each.parts],
    } | ({"windows": [rim._asdict() for rim in each.rims]} if each.rims else {})


def op_page(op: ExplainedOp, factors: Shape) -> str:
    """Return the page of one op: strategies and refusals, the way of each cut, its tensors, and who has which part."""
    lines = [paragraph(f"{op.name}: {op.type}, {op.kind or 'without a description'}", 2), ""]
    for k, result in op.strategies:
        can = []
        for s in result.admitted:
            read = []
            for layout, rims in zip(s.needs, s.rims or ((),) * len(s.needs), strict=True):
                read.append(_layout(layout) + "".join(f" in windows of {rim.size}, {rim.step} apart" for rim in rims))
            made, reducer = ", ".join(map(_layout, s.gives)), f" ({s.reducer})" if s.reducer else ""
            can.append(f"{s.name}: inputs {', '.join(read) or 'none'}; outputs {made or 'none'}{reducer}")
        lines += [fact(f"in {k}", each) for each in can or ["no index variable can be cut"]]
        for each in result.refused:
            lines.append(fact("", f"not {'any' if each.variable == '*' else each.variable}: {each.reason}"))
    lines.append("")
    for number, (name, k) in enumerate(zip(op.strategy.names, factors, strict=True), 1):
        text = f"along {name} in {k}"
        if name == ONCE_WAY:
            text = "worker 0 alone does it, once"
        elif name == WHOLE_WAY:
            text = "whole: all workers of a group do the same"
        elif name == SUMMANDS_WAY:
            text = "on summands: each worker does it on its own summand of each input"
        elif op.strategy.reducer and any(each.source_layouts[number - 1] == -2 for each in op.outputs):
            text += f"; each has a partial result, made one by {op.strategy.reducer}"
        lines.append(fact(f"cut {number}", text))
    for kind, words, tensors in (
        ("input", ("kept", "needed"), op.inputs),
        ("output", ("computed", "kept"), op.outputs),
    ):
        for at, tensor in enumerate(tensors):
            lines += ["", *_tensor_lines(f"{kind} {at}", words, tensor, factors)]
    return "\n".join(lines)


def _layout(layout: int) -> str:
    return layout_words((layout,), (0,)).removesuffix(" in 0").removesuffix(" of 0")


def _tensor_lines(label: str, words: tuple[str, str], each: OpTensor, factors: Shape) -> list[str]:
    shape = "no shape" if each.shape is None else _shape(each.shape)
    windows = ", ".join(f"windows of {rim.size} along dimension {rim.dimension}" for rim in each.rims)
    wanted = layout_words(each.target_layouts, factors) + (f", {windows}" if windows else "")
    lines = [
        fact(label, f"{each.tensor}, {shape} {each.dtype}"),
        fact("", f"{words[0]}: {layout_words(each.source_layouts, factors)}; {words[1]}: {wanted}"),
        fact("", f"{size(each.moved_bytes)} brought" if each.moved_bytes else "nothing brought"),
    ]
    if each.shape:
        parts = []
        for w, box in enumerate(each.parts[:_WORKERS]):
            spans = "" if box is None else ",".join(f"{a}:{a + n}" for a, n in zip(*box, strict=True))
            parts.append(f"{w} none" if box is None else f"{w} [{spans}]")
        more = len(each.parts) - _WORKERS
        lines.append(fact("", "parts: " + ", ".join(parts) + (f", and {more} more" if more > 0 else "")))
    return lines


def draw_split(shaped: TypedGraph, division: Division, form: str) -> bytes:
    """Draw the largest variables in one of the formats; the same division gives the same bytes."""
    from matplotlib.figure import Figure

    rows = sorted(variable_rows(shaped, division), key=lambda row: (-whole_bytes(row), row.name))[:_MOST]
    down = max(1, -(-len(rows) // _COLUMNS))
    with drawing_style("pesto split", font_size=8.0):
        figure = Figure(figsize=(2.6 * _COLUMNS, 0.6 + 2.5 * down), layout="constrained")
        factors = "x".join(map(str, division.factors))
        figure.suptitle(f"{shaped.source} in {factors}: the largest variables, by the worker that has each part",
                        x=0.01, ha="left")  # fmt: skip
        for at, panel in enumerate(figure.subplots(down, _COLUMNS, squeeze=False).flat):
            panel.set_axis_off()
            if at < len(rows):
                _grid(panel, rows[at], division)
        return figure_bytes(figure, form, "pesto split")


def _grid(panel: "Axes", row: VariableRow, division: Division) -> None:
    """One variable: its two dimensions that are cut, or its last two; drawn to the panel's size, not to scale."""
    panel.set_title(
        f"{shorten(row.name, 32)}\n{_shape(row.shape)}, {size(whole_bytes(row))}\n"
        f"{layout_words(row.layouts, division.factors)}",
        fontsize=7, loc="left",
    )  # fmt: skip
    panel.set_xlim(0, 1)
    panel.set_ylim(1, 0)
    # Which dimension goes down and which across; -1 for none.
    cut = sorted({layout for layout in row.layouts if layout >= 0})[:2]
    rest = [d for d in reversed(range(len(row.shape))) if d not in cut]
    shown = sorted([*cut, *rest[: 2 - len(cut)]])
    down, across = (shown[0], shown[1]) if len(shown) == 2 else (-1, shown[0] if shown else -1)
    holders: dict[Box, list[int]] = {}
    for worker, box in enumerate(worker_boxes(row.shape, row.layouts, division.factors)):
        if box is not None:
            holders.setdefault(box, []).append(worker)
    for box, workers in holders.items():
        _part(panel, row, box, workers, (down, across))


def _part(panel: "Axes", row: VariableRow, box: Box, workers: list[int], dimensions: tuple[int, int]) -> None:
    """One part; where several workers have it, a stripe for each of the first of them."""
    from matplotlib.patches import Rectangle

    spans = []
    for d in dimensions:
        extent = max(1, row.shape[d]) if d >= 0 else 1
        spans.append((box[0][d] / extent, box[1][d] / extent) if d >= 0 else (0.0, 1.0))
    (top, tall), (left, wide) = spans
    shown = workers[: len(COLOURS)]
    for at, worker in enumerate(shown):
        faint = _FAINT[worker // len(COLOURS) % len(_FAINT)]
        panel.add_patch(Rectangle((left + wide * at / len(shown), top), wide / len(shown), tall, linewidth=0,
                                  facecolor=COLOURS[worker % len(COLOURS)], alpha=faint))  # fmt: skip
    panel.add_patch(Rectangle((left, top), wide, tall, fill=False, edgecolor=INK, linewidth=0.8))
    whose = f"{workers[0]}" if len(workers) == 1 else f"{len(workers)} workers"
    if min(tall, wide) >= 1 / 16:
        panel.text(left + wide / 2, top + tall / 2, whose, ha="center", va="center", color=INK, fontsize=7,
                   bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0})  # fmt: skip


def choice_object(choice: StrategyChoice, out: Path) -> dict[str, Any]:
    """The keys of `pesto solve --split --json`: those of the plan or the split in `out`, and those of all kinds."""
    chosen = choice.chosen
    if isinstance(chosen, PlacementPlan):
        return {**solve_object(chosen.outcome, chosen.outcome.stages_s, out), **kinds_object(choice)}
    shaped, timed = chosen.shaped, chosen.timed
    return {**split_object(shaped, timed.split, undescribed_types(shaped), out, timed), **kinds_object(choice)}


def choice_page(choice: StrategyChoice, out: Path, inputs: InputNames) -> str:
    """Return the page of the plan or the split in `out`, and the table of all kinds."""
    chosen = choice.chosen
    if isinstance(chosen, PlacementPlan):
        text = solve_page(chosen.outcome, chosen.outcome.stages_s, out, inputs)
    else:
        shaped, timed = chosen.shaped, chosen.timed
        page = split_page(shaped, timed.split, undescribed_types(shaped), timed=timed)
        text = "\n".join([page, *split_closing(out, inputs.source)])
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
        "kinds": {
            kind.name: {
                "makespan_s": kind.makespan_s, "peak_bytes": kind.peak_bytes, "fits": kind.fits,
                "seconds": kind.seconds, "why": kind.why or None,
                "bytes": kind.timed.sent_bytes if isinstance(kind, SplitPlan) else None,
            }
            for kind in choice.kinds
        },
    }  # fmt: skip


def kinds_page(choice: StrategyChoice) -> str:
    """The table, shortest first; peaks are of the fullest device."""
    shown = sorted(choice.kinds, key=lambda kind: (not kind.fits, kind.makespan_s or 0.0))
    rows = [("kind", "step", "peak", "sent", "found in s")]
    for kind in shown:
        step = peak = sent = "-"
        if kind.makespan_s is not None and kind.peak_bytes is not None:
            step, peak = duration(kind.makespan_s), size(kind.peak_bytes) + ("" if kind.fits else " OOM")
            sent = size(kind.timed.sent_bytes) if isinstance(kind, SplitPlan) else "-"
        rows.append((kind.name, step, peak, sent, f"{kind.seconds:.1f}"))
    lines = [
        *align_rows(rows, "<>"),
        "",
        *(fact(kind.name, kind.why) for kind in shown if kind.why),
        fact("chosen", f"{choice.chosen.name}: {choice.reason}"),
    ]
    return "\n".join(lines)
