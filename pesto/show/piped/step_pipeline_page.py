"""What `pesto pipeline` found of a training step, as a page and as one JSON object."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pesto.micro_batches.step_parts import FORWARD
from pesto.pipelining.chain_of_step import accelerators
from pesto.pipelining.step_pipeline import Laid, StepPipeline
from pesto.problem import TICK_S
from pesto.quantities import brief, counted, duration, durations, percent, size
from pesto.show.lines import fact
from pesto.show.table import aligned


def step_object(found: StepPipeline, out: Path | None) -> dict[str, Any]:
    """The keys of --json; docs/pipelining.md says what they are."""
    chosen, schedule = found.chosen, found.chosen.schedule
    optimal = chosen.candidate is not None and chosen.candidate.makespan == found.bound_ticks
    made = found.plan.provenance
    return {
        "status": "optimal" if optimal else "feasible",
        "optimal_among": "all plans of these ops" if optimal else None,
        "schedule": schedule.name,
        "k": None if schedule.pattern is None else schedule.pattern.k,
        "T": None if schedule.pattern is None else schedule.pattern.T,
        "period": None if schedule.period is None else str(schedule.period),
        "period_s": None if schedule.period is None else float(schedule.period) * TICK_S,
        "fits": chosen.fits,
        "micro_batches": found.asked.batches,
        "ops": found.step.graph.ops,
        "step_s": found.plan.makespan_s,
        "predicted_step_s": chosen.predicted * TICK_S,
        "bound": {"name": made.lower_bound_name, "step_s": found.bound_ticks * TICK_S, "of": "all plans of these ops"},
        "chain_bound_s": float(found.chain_bound.value) * TICK_S,
        "gap": found.plan.gap,
        "bubble": found.bubble,
        "stages": _stages(found),
        "schedules": {each.schedule.name: _schedule(each) for each in found.laid},
        "costs": made.costs_basis,
        "plan": None if out is None else str(out),
    }


def step_page(found: StepPipeline, out: Path | None) -> str:
    """Stages, the schedules beside each other, and what is proven; times and bytes."""
    stages, graph = _stages(found), found.step.graph
    many = counted(found.asked.batches, "micro-batch", "micro-batches")
    lines = [
        fact("step", f"{graph.source}: {counted(graph.ops, 'op')} in all"),
        fact("cluster", f"{found.cluster.name}: {counted(len(found.accelerators), 'stage device')}"),
        "",
        *aligned([("layers", "device", "load", "weights", "in flight", "most", "begins with"),
                  *(_cells(stage) for stage in stages)], "<<>>>><"),
        "",
        *aligned([("schedule", "step", "", "by the chain", "fullest device", ""), *_rows(found)], "<>>>><"),
        "",
        fact("plan", f"{duration(found.plan.makespan_s)} for {many}, by {found.chosen.schedule.name}"
             + ("" if out is None else f", in {out}")),
        fact("bound", f"{_time(found.bound_ticks)} ({found.plan.provenance.lower_bound_name}) of all plans of these "
             f"ops: gap {percent(found.plan.gap)}"),
        fact("", f"{_time(found.chain_bound.value)} through these stages, of the chain's own steps, without updates"),
        fact("idle", f"accelerators for {percent(found.bubble)} of the step"),
        fact("costs", found.plan.provenance.costs_basis),
        *_far(found),
    ]  # fmt: skip
    return "\n".join(lines)


def _time(ticks: float | Fraction) -> str:
    return duration(float(ticks) * TICK_S)


def _far(found: StepPipeline) -> list[str]:
    """Variables that several stages read."""
    allocation, far = found.chosen.schedule.allocation, found.chain.far
    if allocation is None:
        return []
    names = [found.names[op] for op, layers in far if len({int(allocation.device[layer]) for layer in layers}) > 1]
    shown = ", ".join(brief(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
    said = (
        f"{counted(len(names), 'variable is', 'variables are')} read on several devices and sent once a step: {shown}"
    )
    return [fact("shared", said)] if names else []


def _stages(found: StepPipeline) -> list[dict[str, Any]]:
    chain, schedule, candidate = found.asked.chain, found.chosen.schedule, found.chosen.candidate
    if schedule.allocation is None or schedule.in_flight is None or candidate is None:
        return []
    at = accelerators(found.cluster)
    return [
        {
            "first": first,
            "last": last,
            "device": found.accelerators[device],
            "load_s": int(chain.loads[first : last + 1].sum()) * TICK_S,
            "weights_bytes": int(chain.weights[first : last + 1].sum()),
            "in_flight": int(schedule.in_flight[first : last + 1].max()),
            "bytes": int(candidate.peak[at[device]]),
            "begins_with": _begins(found, first),
        }
        for first, last, device in schedule.allocation.stages.tolist()
    ]


def _begins(found: StepPipeline, layer: int) -> str:
    """The first forward op of a layer."""
    ops = np.flatnonzero((found.chain.layer == layer) & (found.parts.part == FORWARD))
    return found.names[int(ops[0])] if len(ops) else ""


def _cells(stage: dict[str, Any]) -> tuple[str, ...]:
    layers = f"{stage['first']} to {stage['last']}" if stage["first"] < stage["last"] else str(stage["first"])
    return (
        layers, stage["device"], duration(stage["load_s"]), size(stage["weights_bytes"]), str(stage["in_flight"]),
        size(stage["bytes"]), brief(stage["begins_with"], 32),
    )  # fmt: skip


def _schedule(each: Laid) -> dict[str, Any]:
    period, candidate = each.schedule.period, each.candidate
    return {
        "period": None if period is None else str(period),
        "step_s": None if candidate is None else candidate.makespan * TICK_S,
        "predicted_step_s": None if candidate is None else each.predicted * TICK_S,
        "peak_bytes": None if candidate is None else int(candidate.peak.max()),
        "fits": each.fits,
        "why": (each.schedule.why or None) if candidate is None else None if each.fits else "out of memory",
    }


def _rows(found: StepPipeline) -> list[tuple[str, ...]]:
    laid = [each for each in found.laid if each.candidate is not None]
    steps = durations([each.candidate.makespan * TICK_S for each in laid if each.candidate])
    known = dict(zip([each.schedule.name for each in laid], steps, strict=True))
    chosen = found.chosen.candidate
    rows: list[tuple[str, ...]] = []
    for each in found.laid:
        if each.candidate is None or chosen is None:
            rows.append((each.schedule.name, "-", "", "-", "-", each.schedule.why))
            continue
        more = "" if each.candidate is chosen else f"{100 * (each.candidate.makespan / chosen.makespan - 1):+.1f}%"
        fits = "" if each.fits else "out of memory"
        rows.append((
            each.schedule.name, known[each.schedule.name], more, duration(each.predicted * TICK_S),
            size(int(each.candidate.peak.max())), fits,
        ))  # fmt: skip
    return rows
