"""Pages and JSON objects of pipelined training steps."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, durations, percent, plural, shorten, size
from pesto.core.step_parts import FORWARD
from pesto.pipelining.staged_step import MappedSchedule
from pesto.pipelining.step_pipeline import StepPipeline
from pesto.pipelining.step_search import SEARCH
from pesto.reporting.show.facts.artifact_keys import plan_keys
from pesto.reporting.show.lines import fact
from pesto.reporting.show.pipelines.pipeline_page import load_keys, load_lines, period_object
from pesto.reporting.show.table import align_rows


def step_object(pipeline: StepPipeline, out: Path | None) -> dict[str, Any]:
    """The keys of --json; docs/guides/pipeline.md says what they are."""
    chosen, schedule = pipeline.chosen, pipeline.chosen.schedule
    optimal = chosen.candidate is not None and chosen.candidate.makespan == pipeline.bound_ticks
    made = pipeline.plan.provenance
    return {
        **plan_keys(pipeline.plan, fits=chosen.fits),
        "status": "optimal" if optimal else "feasible",
        "optimal_among": _ALL if optimal else None,
        "schedule": schedule.name,
        **_repeated(pipeline),
        **_period(schedule.period),
        "micro_batches": pipeline.request.batches,
        "ops": pipeline.staged.step.graph.ops,
        "predicted_step_s": chosen.predicted * TICK_S,
        "bound": {
            "name": made.lower_bound_name, "value": str(pipeline.bound_ticks), "ticks": float(pipeline.bound_ticks),
            "of": _ALL,
        },
        "chain_bound_s": float(pipeline.chain_bound.value) * TICK_S,
        "bubble": pipeline.bubble,
        "stages": _stages(pipeline),
        "idle": _idle(pipeline),
        "asynchronous": _late(pipeline),
        "schedules": {name: _schedule(each) for name, each in _named(pipeline)},
        "search": _search(pipeline),
        "interrupted": pipeline.interrupted,
        "costs": made.costs_basis,
        "plan": None if out is None else str(out),
    }  # fmt: skip


def _repeated(pipeline: StepPipeline) -> dict[str, Any]:
    pattern = pipeline.chosen.schedule.pattern
    return {
        "k": pipeline.request.batches if pattern is None else pattern.k,
        "T": pipeline.chosen.schedule.step if pattern is None else pattern.T,
    }


def step_page(pipeline: StepPipeline, out: Path | None) -> str:
    """Stages, the schedules beside each other, and what is proven; times and bytes."""
    stages, graph, idle = _stages(pipeline), pipeline.staged.step.graph, _idle(pipeline)
    lines = [
        fact("step", f"{graph.source}: {plural(graph.ops, 'op')} in all"),
        fact("cluster", f"{pipeline.staged.cluster.name}: {plural(len(pipeline.accelerators), 'stage device')}"),
        *([fact("unused", f"{', '.join(idle)}: there are fewer stages")] if idle else []),
        "",
        *align_rows([("layers", "device", "load", "weights", "in flight", "most", "begins with"),
                  *(_cells(stage) for stage in stages)], "<<>>>><"),
        "",
        *align_rows([("schedule", "step", "", "by the chain", "fullest device", ""), *_rows(pipeline)], "<>>>><"),
        "",
        *_said(pipeline, out),
        *_far(pipeline),
        *([fact("ended", "by Ctrl-C: the best that was found before")] if pipeline.interrupted else []),
    ]  # fmt: skip
    return "\n".join(lines)


def _said(pipeline: StepPipeline, out: Path | None) -> list[str]:
    many, schedule = plural(pipeline.request.batches, "micro-batch", "micro-batches"), pipeline.chosen.schedule
    by = f"{schedule.name} and search" if pipeline.search else schedule.name
    shared = schedule.shared
    lines = [
        fact(
            "plan", f"{duration(pipeline.plan.makespan_s)} for {many}, by {by}" + ("" if out is None else f", in {out}")
        ),
    ]
    if pipeline.search:
        lines.append(fact("", f"search began from {pipeline.search.begun}: {pipeline.plan.provenance.rule}"))
    lines += _updates(pipeline)
    if shared is not None:
        turn = "in turn" if shared.in_turn else "one run of them each"
        lines.append(fact("shared", f"devices of a stage take whole micro-batches, {turn}; each gets its weights once"))
    gap = f"gap {percent(pipeline.plan.gap)}"
    once = "without updates" if pipeline.staged.late is None else "with updates"
    return [
        *lines,
        fact("bound", f"{_time(pipeline.bound_ticks)} ({pipeline.plan.provenance.lower_bound_name}) of {_ALL}: {gap}"),
        fact("", f"{_time(pipeline.chain_bound.value)} through these stages, of the chain's own steps, {once}"),
        *load_lines((each.schedule for each in pipeline.mapped), _time),
        fact("idle", f"accelerators for {percent(pipeline.bubble)} of the step"),
        fact("costs", pipeline.plan.provenance.costs_basis),
    ]


_ALL = "all plans of these ops"


def _late(pipeline: StepPipeline) -> dict[str, Any] | None:
    """Line for a step with late updates; None for a step with a flush."""
    late, many, every = pipeline.staged.late, pipeline.request.batches, pipeline.staged.every
    if late is None:
        return None
    return {"changes_what_is_computed": True, "late": list(late), "updates": many // every, "updates_each": every}


def _updates(pipeline: StepPipeline) -> list[str]:
    """That it is another computation, and by how many updates the weights of each stage are late."""
    late, flight, every = pipeline.staged.late, pipeline.chosen.schedule.in_flight, pipeline.staged.every
    if late is None or flight is None:
        return []
    if every > 1:
        said = "gradients are those of weights one update late, on all stages, which hold two versions"
        return [fact("updates", f"behind every {every} micro-batches, which changes what is computed: {said}")]
    stages = [int(flight[a : b + 1].max()) for a, b in pipeline.chosen.schedule.rows[:, :2].tolist()]
    by = ", ".join(str(min(many, pipeline.request.batches) - 1) for many in stages)
    said = f"gradients are those of weights up to {plural(max(late, default=0), 'update')} late, by stage {by}"
    return [fact("updates", f"behind every micro-batch, which changes what is computed: {said}")]


def _period(period: Fraction | None) -> dict[str, Any]:
    seconds = None if period is None else float(period) * TICK_S
    return {**period_object("period", period), "period_s": seconds}


def _named(pipeline: StepPipeline) -> list[tuple[str, MappedSchedule]]:
    """Mapped schedules by name, that of the search last."""
    named = [
        (each.schedule.name, each) for each in pipeline.mapped if pipeline.search is None or each is not pipeline.chosen
    ]
    return [*named, (SEARCH, pipeline.chosen)] if pipeline.search else named


def _search(pipeline: StepPipeline) -> dict[str, Any] | None:
    if pipeline.search is None:
        return None
    return {"from": pipeline.search.begun, "tried": pipeline.search.tried, "rule": pipeline.plan.provenance.rule}


def _idle(pipeline: StepPipeline) -> list[str]:
    """The accelerators that have no stage."""
    used = set(pipeline.chosen.schedule.rows[:, 2].tolist())
    return [name for device, name in enumerate(pipeline.accelerators) if device not in used]


def _time(ticks: float | Fraction) -> str:
    return duration(float(ticks) * TICK_S)


def _far(pipeline: StepPipeline) -> list[str]:
    """Variables that several stages read: tied to one device, and sent to the others."""
    allocation, staged = pipeline.chosen.schedule.allocation, pipeline.staged
    if allocation is None:
        return []
    far = [(op, {int(allocation.device[layer]) for layer in layers}) for op, layers in staged.chain.far]
    names = [staged.names[op] for op, devices in far if len(devices) > 1]
    shown = ", ".join(shorten(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
    many = plural(len(names), "variable is", "variables are")
    return (
        [fact("shared", f"{many} read on several devices, on one of them and sent once a step: {shown}")]
        if names
        else []
    )


def _stages(pipeline: StepPipeline) -> list[dict[str, Any]]:
    staged, schedule, candidate = pipeline.staged, pipeline.chosen.schedule, pipeline.chosen.candidate
    if schedule.in_flight is None or candidate is None:
        return []
    chain, rows = staged.chain.chain, schedule.rows
    return [
        {
            "first": first,
            "last": last,
            "device": pipeline.accelerators[device],
            "devices": int((rows[:, 0] == first).sum()),
            "load": int(chain.loads[first : last + 1].sum()),
            "load_s": int(chain.loads[first : last + 1].sum()) * TICK_S,
            "weights_bytes": _weights(pipeline, (first, last, device)),
            "in_flight": min(int(schedule.in_flight[first : last + 1].max()), pipeline.request.batches),
            "bytes": int(candidate.peak[staged.fast[device]]),
            "begins_with": _begins(pipeline, first),
        }
        for first, last, device in rows.tolist()
    ]


def _weights(pipeline: StepPipeline, stage: tuple[int, int, int]) -> int:
    """Bytes of the variables of a stage that are on its device, with all versions of its weights."""
    (first, last, device), schedule, chain = stage, pipeline.chosen.schedule, pipeline.staged.chain
    flight = 0 if schedule.in_flight is None else np.minimum(schedule.in_flight, pipeline.request.batches)
    own = (chain.chain.weights + chain.version * flight)[first : last + 1]
    return int(own.sum() if schedule.shared is None else own[schedule.shared.homes[first : last + 1] == device].sum())


def _begins(pipeline: StepPipeline, layer: int) -> str:
    """The first forward op of a layer."""
    ops = np.flatnonzero((pipeline.staged.chain.layer == layer) & (pipeline.staged.parts.part == FORWARD))
    return pipeline.staged.names[int(ops[0])] if len(ops) else ""


def _cells(stage: dict[str, Any]) -> tuple[str, ...]:
    layers = f"{stage['first']} to {stage['last']}" if stage["first"] < stage["last"] else str(stage["first"])
    return (
        layers, stage["device"], duration(stage["load_s"]), size(stage["weights_bytes"]), str(stage["in_flight"]),
        size(stage["bytes"]), shorten(stage["begins_with"], 32),
    )  # fmt: skip


def _schedule(each: MappedSchedule) -> dict[str, Any]:
    candidate = each.candidate
    return {
        **_period(each.schedule.period),
        "step": None if candidate is None else candidate.makespan,
        "makespan_s": None if candidate is None else candidate.makespan * TICK_S,
        "predicted_step_s": None if candidate is None else each.predicted * TICK_S,
        "peak_bytes": None if candidate is None else int(candidate.peak.max()),
        "fits": each.fits,
        **load_keys(each.schedule),
        "why": (each.schedule.why or None) if candidate is None else None if each.fits else "out of memory",
    }


def _rows(pipeline: StepPipeline) -> list[tuple[str, ...]]:
    named = _named(pipeline)
    steps = iter(durations([each.candidate.makespan * TICK_S for _, each in named if each.candidate]))
    chosen = pipeline.chosen.candidate
    rows: list[tuple[str, ...]] = []
    for name, each in named:
        if each.candidate is None or chosen is None:
            rows.append((name, "-", "", "-", "-", each.schedule.why))
            continue
        more = "" if each is pipeline.chosen else f"{100 * (each.candidate.makespan / chosen.makespan - 1):+.1f}%"
        fullest = size(int(each.candidate.peak.max()))
        predicted = duration(each.predicted * TICK_S)
        rows.append((name, next(steps), more, predicted, fullest, "" if each.fits else "out of memory"))
    return rows
