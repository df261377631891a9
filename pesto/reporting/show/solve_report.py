"""Reports of a solve: one JSON object, a page for people, and the glossary of both, `pesto solve --explain-output`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.plans.execution_modes import OrderWorth
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, durations, percent, plural, shorten, size
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.planning.solving.colocation_ties import LOOPS
from pesto.planning.solving.flow import UNCOMPILED, SolveOutcome
from pesto.planning.solving.quick_candidates import RIVALS
from pesto.planning.solving.tracker import Contribution
from pesto.reporting.explaining.name_scopes import name_scopes
from pesto.reporting.show.facts import (
    costs_text,
    enforced_keys,
    enforced_line,
    idle_devices,
    note_key,
    open_batch,
    open_batch_key,
    plan_keys,
    trust_keys,
    trust_line,
)
from pesto.reporting.show.lines import LABEL, align_rows, command, fact, paragraph

WORDS = (
    (("start",), "the plan that the solve began from"),
    (("single",), "all on one GPU"),
    (("expert", "layer-balanced"), "layer after layer, as by hand"),
    (RIVALS, "methods of the literature"),
    (("list", "levels"), "list schedules of the graph and of coarser ones"),
    (("repaired",), "what does not fit, with ops moved until it does"),
    (("coarse",), "the exact solver's, of the coarse graph or of a small one itself"),
    (("search",), "annealed op by op"),
    (("windows",), "the best, window by window, by the exact solver"),
)
"""Meaning of the names in a solve's table; together those of `pesto.planning.solving.flow.CANDIDATES`."""
LINES = (
    ("beaten by", "what the chosen plan saves of that candidate's step; -: none was made"),
    ("costs", "where the times of ops and transfers come from: measured, given or modelled"),
    ("batch", "where its size is open: what the plan was made for, and what that costs"),
    ("step time", "predicted seconds of one training step, and what made the plan"),
    ("lower bound", "no plan of this graph on this cluster at these costs is shorter; gap: the rest, of the step"),
    ("order", "what the enforced order saves against first in, first out, on the same placement"),
    ("turns", "the step in other orders of what nothing enforces: whom links serve first of those that ask at once"),
    ("trust", "the step where times are wrong: its spread, how often it stays the shortest, what the spread is due to"),
    ("tie", "an op that keeps many variables on one device, and what that costs"),
    ("session, function, graphdef", "the step with the part of the order that this way of running enforces"),
    ("coarse graph", "what the exact solver was given, and did; its bound holds there alone"),
    ("exact solver", "what it did on the graph itself; its bound is the graph's"),
    ("layers", "scopes by the device that has most of their time, those that take the most first"),
    ("peak memory", "most bytes alive at one moment of the step"),
    ("gained", "by how much the plan became shorter through each engine, from the first that fits on"),
    ("CPU seconds", "of each engine, in this process and in those that it started"),
    ("compiled", "what was left out, as what it runs was still being compiled when the time was over"),
    ("seconds", "on the clock: of starting the program, of reading the graph, of each stage and of writing"),
    ("verified", "the plan was checked by code that shares none with what made it"),
    ("next", "a command to go on with"),
)
"""Meaning of the lines below the table."""


def glossary_text() -> str:
    """Return all of it, for a terminal."""
    lines = [paragraph("The table has candidates for the plan, and how long each one's step is:")]
    for heading, rows in (("", [(", ".join(names), text) for names, text in WORDS]), ("The other words:", LINES)):
        lines += ["", paragraph(heading)] if heading else []
        for name, text in rows:
            lines.append(fact(name, text) if len(name) < LABEL else paragraph(f"{name}: {text}", LABEL))
    return "\n".join(lines)


VERIFIED = "verified"
"""How the last lines of a page begin."""
_HARDLY = 0.0005
"""Share of the step that is not worth a line."""
_MOST = 6
"""Scopes that are named on one device."""
_LEAST = 0.005
"""Share of all time below which a scope is not named."""
_WHOLE = 0.995
"""Share of a scope's time on its device from which on it is not said."""


def contribution_keys(first: int, contributions: Sequence[Contribution]) -> dict[str, Any]:
    """The first plan that fits, and by engine what was gained from it on, in seconds; together, the plan's step."""
    return {
        "first_s": first * TICK_S,
        "engines": [
            {"engine": one.engine, "solver": one.solver or None, "gained_s": one.gained * TICK_S,
             "bound_raised_s": one.raised * TICK_S, "cpu_s": round(one.cpu_s, 4)}
            for one in contributions
        ],
    }  # fmt: skip


def contribution_lines(first: int, contributions: Sequence[Contribution]) -> list[str]:
    """Two lines: what was gained by whom, and the CPU seconds of each."""
    gains = [
        f"{_name(one)} {'-' if one.gained < 0 else ''}{duration(abs(one.gained) * TICK_S)}"
        for one in contributions
        if one.gained
    ]
    gains += [f"bound raised by {duration(one.raised * TICK_S)} ({_name(one)})" for one in contributions if one.raised]
    spent = [f"{_name(one)} {one.cpu_s:.2f}" for one in contributions]
    text = f"from {duration(first * TICK_S)} on: {', '.join(gains)}" if gains else "nothing"
    return [fact("gained", text), fact("CPU seconds", ", ".join(spent))]


def _name(one: Contribution) -> str:
    return f"{one.engine} ({one.solver})" if one.solver else one.engine


def layers_lines(plan: Plan) -> list[str]:
    """A line a device that computes; none where names have no scopes."""
    s = plan.schedule
    took = s.finish - s.start
    scope, labels = name_scopes(plan.names, took)
    if len(labels) < 2 or not took.sum():
        return []
    devices = list(dict.fromkeys(plan.lane_device))
    at = np.array([devices.index(name) for name in plan.lane_device])[s.device]
    time = np.zeros((len(labels), len(devices)))
    np.add.at(time, (scope, at), took)
    total, home = time.sum(axis=1), time.argmax(axis=1)
    named = [k for k in np.argsort(-total, kind="stable").tolist() if total[k] >= _LEAST * took.sum()]
    result = []
    for d, device in enumerate(devices):
        here = [k for k in named if home[k] == d]
        scopes = []
        for k in here[:_MOST]:
            share = time[k, d] / total[k]
            scopes.append(shorten(labels[k]) + ("" if share >= _WHOLE else f" ({percent(share)} of it)"))
        more = [f"and {len(here) - _MOST} more"] if len(here) > _MOST else []
        if scopes:
            result.append(f"{device}: {', '.join(scopes + more)}")
    return [fact("layers" if k == 0 else "", text) for k, text in enumerate(result)]


def solve_object(
    outcome: SolveOutcome, stages_s: dict[str, float], out: Path, report: Path | None = None
) -> dict[str, Any]:
    """The keys of `pesto solve --json`; seconds of seconds, bytes of bytes, None where there is no value."""
    plan, made = outcome.plan, outcome.plan.provenance
    return {
        **plan_keys(plan),
        "status": plan.status,
        "lower_bound": made.lower_bound_name,
        **({} if plan.beside is None else {"beside": asdict(plan.beside)}),
        "chosen": made.chosen,
        "rule": made.rule,
        "candidates": {name: c.makespan * TICK_S if c else None for name, c in outcome.candidates.items()},
        "candidates_fit": {name: c.fits if c else None for name, c in outcome.candidates.items()},
        "order": {
            "fifo_s": outcome.order.fifo * TICK_S,
            "saved_against_fifo": outcome.order.gain,
            "listed_s": outcome.order.listed * TICK_S,
            "prioritised_links_s": outcome.order.scheduled * TICK_S,
        },
        "turns": {"tried": outcome.turns.tried, "least_s": outcome.turns.least * TICK_S},
        **enforced_keys(outcome.enforced),
        "remedy": outcome.remedy or None,
        "trust": trust_keys(outcome.trust) if outcome.trust else None,
        "ties": [
            {"op": tie.op, "type": tie.type, "variables": tie.variables, "ops": tie.ops, "bytes": tie.tied_bytes,
             "all_bytes": tie.all_bytes, "cut_s": None if tie.cut_ticks is None else tie.cut_ticks * TICK_S,
             "cost": tie.cost, "remedy": tie.remedy if tie.cost or tie.type in LOOPS else None}
            for tie in outcome.ties
        ],
        **open_batch_key(plan),
        "ops": len(plan.names),
        "coarse_ops": made.coarse.nodes if made.coarse else None,
        "coarse": _coarse(outcome),
        "devices": list(dict.fromkeys(plan.lane_device)),
        "costs": made.costs_basis,
        "costs_source": made.costs,
        **note_key(outcome.costs.said),
        "links": made.links,
        "transfers": made.transfers,
        "contributions": contribution_keys(outcome.first, outcome.contributions),
        "stages_s": {name: round(seconds, 4) for name, seconds in stages_s.items()},
        "interrupted": outcome.interrupted,
        "verified": True,
        "plan": str(out),
        "report": None if report is None else str(report),
    }  # fmt: skip


def _coarse(outcome: SolveOutcome) -> dict[str, Any] | None:
    """The exact solver's own result: its bound holds for the coarse graph only."""
    plan, removed = outcome.plan, outcome.removed
    c = plan.provenance.coarse
    if c is None or removed is None:
        return None
    made = None if c.makespan_ticks is None else c.makespan_ticks * plan.tick_s
    return {
        "nodes": c.nodes,
        "reason": c.reason,
        "edges": removed.left,
        "edges_removed": removed.share,
        "batches": removed.batches,
        "most_edges_removed_in_a_batch": removed.most,
        "solver": f"{c.solver} {c.version}",
        "status": c.status,
        "limit": c.limit,
        "makespan_s": made,
        "lower_bound_s": c.lower_bound_ticks * plan.tick_s,
        "bound_by": c.bound_by,
        "detail": c.detail,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class InputNames:
    """Inputs as the user calls them, for the commands that a page names."""

    source: Source
    cluster: str
    """Preset or file of the cluster."""
    costs: Path | None = None
    """File of measured times or of the user's own."""


def solve_page(
    outcome: SolveOutcome, stages_s: dict[str, float], out: Path, inputs: InputNames, report: Path | None = None
) -> str:
    """Return a page for people: who was beaten by how much, the bound, the file written, and the command to follow."""
    plan, made = outcome.plan, outcome.plan.provenance
    bound, idle = duration(made.lower_bound_ticks * plan.tick_s), idle_devices(plan)
    peaks = [f"{name} {size(peak)}" for name, peak in plan.peak_bytes.items() if peak or name.startswith("cpu")]
    beside, ties = list[str](), list[str]()
    if plan.beside is not None:
        where = [f"{list(plan.pins.values()).count(name)} on {name}" for name in sorted(set(plan.pins.values()))]
        beside = [fact("beside", f"the plan of {plan.beside.source}: {plan.beside.pinned}, {', '.join(where)}")]
    turns, step = outcome.turns, plan.schedule.makespan
    if turns.least < step and turns.least <= (1 - _HARDLY) * step:
        less, least = percent(1 - turns.least / step), duration(turns.least * TICK_S)
        text = f"the step time is the longest of {plural(turns.tried, 'order')}, the shortest is {least} ({less} less)"
        ties = [fact("turns", f"no order says whom a link serves first of devices that ask at once: {text}")]
    lines = [
        paragraph(f"{made.graph_source}: {plural(len(plan.names), 'op')} on {made.cluster}", 2),
        fact("costs", costs_text(made.costs_basis, made.costs, outcome.costs.said)),
        *([fact("batch", open_batch(plan))] if open_batch(plan) else []),
        "",
        *align_rows(_rows(outcome), "<><", (16, 12)),
        "",
        fact("words", "pesto solve --explain-output says what these names and lines mean"),
        fact("step time", f"{duration(plan.makespan_s)} predicted ({made.chosen}: {made.rule})"),
        fact("lower bound", f"{bound} on the full graph ({made.lower_bound_name}), gap {percent(plan.gap)}"),
        fact("order", _order(outcome.order, enforced=not plan.placement_only)),
        *ties,
        *([trust_line(outcome.trust)] if outcome.trust else []),
        *(fact("tie", str(tie)) for tie in outcome.ties),
        *([enforced_line(outcome.enforced, outcome.remedy)] if outcome.enforced and outcome.remedy else []),
        *beside,
        *_coarse_lines(outcome),
        *layers_lines(plan),
        fact("peak memory", ", ".join(peaks) + (f"; {idle}" if idle else "")),
        *contribution_lines(outcome.first, outcome.contributions),
        *([] if outcome.compiled else [fact("compiled", UNCOMPILED)]),
        fact("seconds", ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages_s.items())),
        *closing_lines(out, inputs, report),
    ]
    return "\n".join(lines)


def closing_lines(out: Path, inputs: InputNames, report: Path | None = None) -> list[str]:
    """Return the last lines of a page: where the plan is, and the command that shows it.

    Where the plan's page is written, the command verifies the plan anew. A plan names a built-in model and a cluster
    preset itself.
    """
    words: list[object] = ["pesto", "report" if report is None else "check", out, *source_words(inputs.source)]
    if inputs.cluster not in cluster_names():
        words += ["--cluster", inputs.cluster]
    return [
        fact(VERIFIED, f"by the independent checker; written to {out}"),
        command("next", [*words, *(["--costs", inputs.costs] if inputs.costs else [])]),
        *([fact("page", f"{report}; open it in a browser")] if report is not None else []),
    ]


def source_words(source: Source) -> list[object]:
    """The options that name the step of a plan or a split to a verb; none for a built-in model, which files name."""
    if source.model is not None:
        return []
    words: list[object] = []
    for option in ("file", "saved_model", "signature", "function", "batch", "micro_batches"):
        value = getattr(source, option)
        words += [f"--{'graph' if option == 'file' else option.replace('_', '-')}", value] if value else []
    words += [word for op in source.fetch for word in ("--fetch", op)]
    return words + [word for feed in source.shape for word in ("--shape", feed)]


def _rows(outcome: SolveOutcome) -> list[tuple[str, str, str]]:
    made = {name: c for name, c in outcome.candidates.items() if c is not None}
    times = dict(zip(made, durations([c.makespan * TICK_S for c in made.values()]), strict=True))
    best, rows = outcome.plan.schedule.makespan, []
    for name in outcome.candidates:
        candidate, rank = made.get(name), ""
        if candidate is not None and not candidate.fits:
            rank = "(does not fit the memory)"
        elif candidate is not None and name == outcome.plan.provenance.chosen:
            rank = "<- chosen"
        elif candidate is not None and candidate.makespan < best:
            rank = f"{percent(1 - candidate.makespan / best)} shorter, of greater p90"
        elif candidate is not None:
            longer = candidate.makespan > best
            rank = f"beaten by {percent(1 - best / candidate.makespan)}" if longer else "as good"
        rows.append((f"  {name}", times.get(name, "-   "), rank))
    return rows


def _order(order: OrderWorth, *, enforced: bool = True) -> str:
    """Step times of the same placement in other orders; a negative gain is a cost."""
    if not enforced:
        return (
            f"left to the framework: first in, first out is predicted, and nothing enforces it; enforced by bottom "
            f"level, the same placement would take {duration(order.listed * TICK_S)}"
        )
    fifo, links, less = duration(order.fifo * TICK_S), duration(order.scheduled * TICK_S), order.scheduled_gain
    worth = f"{'saves' if order.gain >= 0 else 'costs'} {percent(abs(order.gain))}"
    other = f"{percent(abs(less))} {'less' if less > 0 else 'more'}" if less else "the same"
    return (
        f"enforced it {worth} against first in, first out ({fifo}); links with priorities would give {links} ({other})"
    )


def _coarse_lines(outcome: SolveOutcome) -> list[str]:
    plan, removed = outcome.plan, outcome.removed
    c = plan.provenance.coarse
    if c is None or removed is None:
        return []
    made = "none" if c.makespan_ticks is None else duration(c.makespan_ticks * plan.tick_s)
    bound = duration(c.lower_bound_ticks * plan.tick_s)
    detail = f"; {c.detail}" if c.detail else ""
    batches = f"in {plural(removed.batches, 'batch', 'batches')}, at most {percent(removed.most)} in one"
    if c.nodes == len(plan.names):
        by = f"{c.solver} {c.version}"
        text = f"{by} on the graph itself: {c.status}, {made}, bound {bound} ({c.bound_by or 'trivial'}){detail}"
        return [fact("exact solver", text)]
    text = (
        f"{plural(c.nodes, 'node')} ({c.reason}), {percent(removed.share)} of "
        f"{plural(removed.edges, 'edge')} removed {batches}; "
        f"{c.solver} {c.version}: {c.status}, {made}, bound {bound} "
        f"of the coarse graph ({c.bound_by or 'trivial'}){detail}"
    )
    return [fact("coarse graph", text)]
