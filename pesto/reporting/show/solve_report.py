"""Reports of a solve: one JSON object, or a page for people."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.plans.orders import OrderWorth
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, durations, percent, plural, shorten, size
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.planning.solving.candidates import Candidate
from pesto.planning.solving.colocation_ties import LOOPS, ColocationTie
from pesto.planning.solving.contributions import Contribution
from pesto.planning.solving.flow import UNCOMPILED, SolveOutcome
from pesto.reporting.explaining.name_scopes import name_scopes
from pesto.reporting.show.facts.artifact_keys import plan_keys
from pesto.reporting.show.facts.costs_note import costs_text, note_key
from pesto.reporting.show.facts.enforced_step import enforced_keys, enforced_line
from pesto.reporting.show.facts.idle_devices import idle_devices
from pesto.reporting.show.facts.open_batch import open_batch, open_batch_key
from pesto.reporting.show.facts.trust_lines import trust_keys, trust_line
from pesto.reporting.show.lines import command, fact, paragraph
from pesto.reporting.show.table import align_rows

# Contributions of a solve's engines, as keys and as lines.


def contribution_keys(first: int, contributions: Sequence[Contribution]) -> dict[str, Any]:
    """The first plan that fits, and by engine what was gained from it on, in seconds; together, the plan's step."""
    return {
        "first_s": first * TICK_S,
        "engines": [
            {
                "engine": one.engine,
                "solver": one.solver or None,
                "gained_s": one.gained * TICK_S,
                "bound_raised_s": one.raised * TICK_S,
                "cpu_s": round(one.cpu_s, 4),
            }
            for one in contributions
        ],
    }


def contribution_lines(first: int, contributions: Sequence[Contribution]) -> list[str]:
    """Two lines: what was gained by whom, and the CPU seconds of each."""
    gains = [f"{_name(one)} {_signed(one.gained)}" for one in contributions if one.gained]
    gains += [f"bound raised by {duration(one.raised * TICK_S)} ({_name(one)})" for one in contributions if one.raised]
    spent = [f"{_name(one)} {one.cpu_s:.2f}" for one in contributions]
    return [
        fact(
            "gained", ", ".join([f"from {duration(first * TICK_S)} on: {gains[0]}", *gains[1:]]) if gains else "nothing"
        ),
        fact("CPU seconds", ", ".join(spent)),
    ]


def _name(one: Contribution) -> str:
    return f"{one.engine} ({one.solver})" if one.solver else one.engine


def _signed(ticks: int) -> str:
    return f"{'-' if ticks < 0 else ''}{duration(abs(ticks) * TICK_S)}"


# Which layers went where: scopes by the device that has most of their time.

_MOST = 6
"""Scopes that are named on one device."""
_LEAST = 0.005
"""Share of all time below which a scope is not named."""
_WHOLE = 0.995
"""Share of a scope's time on its device from which on it is not said."""


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
        said = [_said(labels[k], time[k, d] / total[k]) for k in here[:_MOST]]
        more = [f"and {len(here) - _MOST} more"] if len(here) > _MOST else []
        if said:
            result.append(f"{device}: {', '.join(said + more)}")
    return [fact("layers" if k == 0 else "", text) for k, text in enumerate(result)]


def _said(label: str, share: float) -> str:
    return shorten(label) if share >= _WHOLE else f"{shorten(label)} ({percent(share)} of it)"


VERIFIED = "verified"
"""How the last lines of a page begin."""
_HARDLY = 0.0005
"""Share of the step that is not worth a line."""


def as_object(
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
        "order": _orders(outcome.order),
        **_promised(outcome),
        "trust": trust_keys(outcome.trust) if outcome.trust else None,
        "ties": [_tie(tie) for tie in outcome.ties],
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
        **_spent(outcome, stages_s),
        "interrupted": outcome.interrupted,
        "verified": True,
        **_written(out, report),
    }


def _written(out: Path, report: Path | None) -> dict[str, str | None]:
    return {"plan": str(out), "report": None if report is None else str(report)}


def _promised(outcome: SolveOutcome) -> dict[str, Any]:
    """Predicted step under other link tie-breaking, and in the way in which it will be run."""
    turns = {"tried": outcome.turns.tried, "least_s": outcome.turns.least * TICK_S}
    return {"turns": turns, **enforced_keys(outcome.enforced), "remedy": outcome.remedy or None}


def _spent(outcome: SolveOutcome, stages_s: dict[str, float]) -> dict[str, Any]:
    """Contributions of engines, and the seconds of the stages."""
    return {
        "contributions": contribution_keys(outcome.first, outcome.contributions),
        "stages_s": {name: round(seconds, 4) for name, seconds in stages_s.items()},
    }


def _tie(tie: ColocationTie) -> dict[str, Any]:
    """An op that ties variables to one device; what it costs is modelled."""
    cut_s = None if tie.cut_ticks is None else tie.cut_ticks * TICK_S
    return {
        "op": tie.op,
        "type": tie.type,
        "variables": tie.variables,
        "ops": tie.ops,
        "bytes": tie.tied_bytes,
        "all_bytes": tie.all_bytes,
        "cut_s": cut_s,
        "cost": tie.cost,
        "remedy": tie.remedy if tie.cost or tie.type in LOOPS else None,
    }


def _orders(order: OrderWorth) -> dict[str, float]:
    """Step times of the same placement in other orders, and the gain of enforcing the plan's order."""
    return {
        "fifo_s": order.fifo * TICK_S,
        "saved_against_fifo": order.gain,
        "listed_s": order.listed * TICK_S,
        "prioritised_links_s": order.scheduled * TICK_S,
    }


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


def page(
    outcome: SolveOutcome,
    stages_s: dict[str, float],
    out: Path,
    following: Iterable[object],
    report: Path | None = None,
) -> str:
    """A page for people: who was beaten by how much, the bound, what was written, and the command to follow."""
    plan, made = outcome.plan, outcome.plan.provenance
    bound = duration(made.lower_bound_ticks * plan.tick_s)
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
        fact("order", _left(outcome.order) if plan.placement_only else _order(outcome.order)),
        *_turns(outcome),
        *([trust_line(outcome.trust)] if outcome.trust else []),
        *(fact("tie", str(tie)) for tie in outcome.ties),
        *([enforced_line(outcome.enforced, outcome.remedy)] if outcome.enforced and outcome.remedy else []),
        *_beside(plan),
        *_coarse_lines(outcome),
        *layers_lines(plan),
        fact("peak memory", _peaks(plan)),
        *contribution_lines(outcome.first, outcome.contributions),
        *([] if outcome.compiled else [fact("compiled", UNCOMPILED)]),
        fact("seconds", ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages_s.items())),
        *closing_lines(out, following, report),
    ]
    return "\n".join(lines)


def _beside(plan: Plan) -> list[str]:
    """Which variables stay in place, beside which plan."""
    if plan.beside is None:
        return []
    where = [f"{list(plan.pins.values()).count(name)} on {name}" for name in sorted(set(plan.pins.values()))]
    return [fact("beside", f"the plan of {plan.beside.source}: {plan.beside.pinned}, {', '.join(where)}")]


def _peaks(plan: Plan) -> str:
    """Peak bytes of each device, those that hold nothing together."""
    idle = idle_devices(plan)
    held = [f"{name} {size(peak)}" for name, peak in plan.peak_bytes.items() if peak or name.startswith("cpu")]
    return ", ".join(held) + (f"; {idle}" if idle else "")


def closing_lines(out: Path, following: Iterable[object], report: Path | None = None) -> list[str]:
    """The last lines of a page: where the plan is, and the command to follow."""
    return [
        fact(VERIFIED, f"by the independent checker; written to {out}"),
        command("next", following),
        *([fact("page", f"{report}; open it in a browser")] if report is not None else []),
    ]


def following_command(
    source: Source, cluster: str, costs: Path | None, out: Path, report: Path | None = None
) -> list[object]:
    """The command that shows the plan, or with its page written verifies it anew.

    A plan names a built-in model and a cluster preset itself.
    """
    words: list[object] = ["pesto", "report" if report is None else "check", out, *source_words(source)]
    if cluster not in cluster_names():
        words += ["--cluster", cluster]
    return [*words, *(["--costs", costs] if costs else [])]


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
    """Name, time and rank of each candidate."""
    result = {name: c for name, c in outcome.candidates.items() if c is not None}
    took = dict(zip(result, durations([c.makespan * TICK_S for c in result.values()]), strict=True))
    return [
        (f"  {name}", took.get(name, "-   "), _mark(name, result.get(name), outcome)) for name in outcome.candidates
    ]


def _mark(name: str, candidate: Candidate | None, outcome: SolveOutcome) -> str:
    if candidate is None:
        return ""
    best, took = outcome.plan.schedule.makespan, candidate.makespan
    if not candidate.fits:
        return "(does not fit the memory)"
    if name == outcome.plan.provenance.chosen:
        return "<- chosen"
    if took < best:
        return f"{percent(1 - took / best)} shorter, of greater p90"
    return f"beaten by {percent(1 - best / took)}" if took > best else "as good"


def _order(order: OrderWorth) -> str:
    """Step times of the same placement in other orders; a negative gain is a cost."""
    fifo, links, less = duration(order.fifo * TICK_S), duration(order.scheduled * TICK_S), order.scheduled_gain
    worth = f"{'saves' if order.gain >= 0 else 'costs'} {percent(abs(order.gain))}"
    other = f"{percent(abs(less))} {'less' if less > 0 else 'more'}" if less else "the same"
    return (
        f"enforced it {worth} against first in, first out ({fifo}); links with priorities would give {links} ({other})"
    )


def _left(order: OrderWorth) -> str:
    """Predicted step where no order is enforced."""
    listed = duration(order.listed * TICK_S)
    return (
        f"left to the framework: first in, first out is predicted, and nothing enforces it; enforced by bottom level, "
        f"the same placement would take {listed}"
    )


def _turns(outcome: SolveOutcome) -> list[str]:
    """Lines on how link tie-breaking changes the step where no order decides it."""
    turns, step = outcome.turns, outcome.plan.schedule.makespan
    if turns.least >= step or turns.least > (1 - _HARDLY) * step:
        return []
    less, least = percent(1 - turns.least / step), duration(turns.least * TICK_S)
    text = f"the step time is the longest of {plural(turns.tried, 'order')}, the shortest is {least} ({less} less)"
    return [fact("turns", f"no order says whom a link serves first of devices that ask at once: {text}")]


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
