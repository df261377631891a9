"""Pipelines of chains and of training steps, and layers spread over devices: pages for people and JSON objects."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, durations, percent, plural, shorten, size
from pesto.core.step_parts import FORWARD
from pesto.pipelining.max_load import MaxLoad
from pesto.pipelining.pipeline import AT_ONCE, Pipeline
from pesto.pipelining.schedules import ChainSchedule
from pesto.pipelining.staged_step import MappedSchedule
from pesto.pipelining.step_pipeline import SEARCH, StepPipeline
from pesto.reporting.show.facts import PATTERN, artifact_keys, plan_keys
from pesto.reporting.show.lines import align_rows, fact
from solvers.pipelining.pipeline_bounds import PeriodBound

_MEMORY = {
    "paper": "as the paper counts it: weights, and activations of batches in flight",
    "received": "at its fullest: weights, activations, inputs received and gradients on their way",
}
_ALL = "all plans of these ops"


def pipeline_object(pipeline: Pipeline, ticks_per_second: int | None, out: Path | None = None) -> dict[str, Any]:
    """The keys of --json; docs/guides/pipeline.md says what they are. out: the pattern file that is written."""
    chosen = pipeline.chosen
    step_s, bound_s = (
        None if ticks is None or not ticks_per_second else float(ticks) / ticks_per_second
        for ticks in (chosen.step, pipeline.step_bound.value)
    )
    peaks = None if chosen.peaks is None else {str(d): peak for d, peak in enumerate(chosen.peaks.tolist())}
    return {
        **artifact_keys(PATTERN, makespan_s=step_s, lower_bound_s=bound_s, fits=chosen.fits, peak_bytes=peaks),
        "status": "optimal" if pipeline.optimal_among else "feasible",
        "optimal_among": pipeline.optimal_among,
        "schedule": chosen.name,
        "k": None if chosen.pattern is None else chosen.pattern.k,
        "T": None if chosen.pattern is None else chosen.pattern.T,
        **period_object("period", chosen.period),
        "bound": bound_object(pipeline.bound),
        "stage_bound": bound_object(pipeline.stage_bound),
        "period_gap": pipeline.gap,
        "stages": _stages(pipeline),
        "schedules": {
            each.name: {
                **period_object("period", each.period), "step": each.step,
                "peak_bytes": None if each.peaks is None else int(np.max(each.peaks)), "fits": each.fits,
                "periodic": each.periodic, **load_keys(each), "why": each.why or None,
            }
            for each in pipeline.schedules
        },
        "micro_batches": pipeline.request.batches,
        "step": chosen.step,
        "step_bound": bound_object(pipeline.step_bound),
        "bubble": pipeline.bubble,
        "memory_model": pipeline.request.model.value,
        "interrupted": pipeline.interrupted,
        "plan": None if out is None else str(out),
    }  # fmt: skip


def pipeline_page(pipeline: Pipeline, name: str) -> str:
    """Return a page of the stages, the schedules beside each other, and what is proven; ticks and bytes."""
    request, stages, chosen, machines = pipeline.request, _stages(pipeline), pipeline.chosen, pipeline.request.machines
    idle = request.devices - len({row["device"] for row in stages})
    devices = f"{plural(machines.devices, 'unequal device')}, named in its file"
    if machines.equal:
        room = "without a limit of memory" if machines.memory is None else f"of {machines.memory[0]} bytes each"
        devices = f"{plural(machines.devices, 'device')} {room}"
    table: list[tuple[str, ...]] = [("layers", "device", "load", "weights", "in flight", "most bytes")]
    for stage in stages:
        values = (str(stage[key]) for key in ("device", "load", "weights_bytes", "in_flight", "bytes"))
        table.append((_layers(stage), *values))
    if not machines.equal:
        limits = ["of", *("-" if row["memory_bytes"] is None else str(row["memory_bytes"]) for row in stages)]
        speeds = ["speed", *(row["speed"] for row in stages)]
        table = [(*row, limit, speed) for row, limit, speed in zip(table, limits, speeds, strict=True)]
    ran: list[tuple[str, ...]] = [("schedule", "period", "", f"step of {request.batches}", "fullest device", "")]
    for each in pipeline.schedules:
        if each.period is None or each.peaks is None or not chosen.period:
            ran.append((each.name, "-", "", "-", "-", each.why))
            continue
        more = "" if each is chosen else f"{100 * (float(each.period / chosen.period) - 1):+.1f}%"
        period = f"{float(each.period):.2f}".removesuffix(".00")
        ran.append((each.name, period, more, str(each.step), str(int(np.max(each.peaks))), each.why))
    at_once = ", each half at once" if pipeline.stage_bound.name == AT_ONCE else ""
    many, below = plural(request.batches, "micro-batch", "micro-batches"), ticks_text(pipeline.step_bound.value)
    thinned = f", {chosen.keep[0]} of every {chosen.keep[1]} batches of 1F1B*" if chosen.keep[1] > 1 else ""
    step = f"{chosen.step} ticks for {many}, no step through these stages below {below}"
    lines = [
        fact("chain", f"{name}: {plural(request.chain.layers, 'layer')} on {devices}"),
        *([fact("idle", plural(idle, "device"))] if idle else []),
        "",
        *align_rows(table, "<" + 7 * ">"),
        "",
        *align_rows(ran, "<>>>><"),
        "",
        fact("period", f"{ticks_text(chosen.period)} ticks a batch, by {chosen.name}{thinned}"),
        fact("bound", f"{bound_text(pipeline.bound)} of all stages: {percent(pipeline.gap)} above it"),
        fact("", f"{bound_text(pipeline.stage_bound)} of these stages{at_once}"),
        *load_lines(pipeline.schedules, lambda ticks: f"{ticks} ticks"),
        fact("optimal", f"among {pipeline.optimal_among}" if pipeline.optimal_among else "not proven"),
        fact("step", f"{step}; devices idle for {percent(pipeline.bubble)} of it"),
        fact("memory", _MEMORY[request.model.value]),
    ]
    return "\n".join(lines)


def _layers(stage: dict[str, Any]) -> str:
    first, last = stage["first"], stage["last"]
    return f"{first} to {last}" if first < last else str(first)


def load_lines(schedules: Iterable[ChainSchedule], time: Callable[[int], str]) -> list[str]:
    """A line for each schedule of two stages a device: how near to the least its cuts are; `time` words ticks."""
    result = [(each.name, each.load, each.load_bound, each.load_gap) for each in schedules]
    return [
        fact(
            "cuts",
            f"{name}: the busiest device computes {time(load)} a micro-batch, over both its stages; no cuts for this "
            f"order of devices have less than {time(bound)}, gap {percent(gap)} - which bounds cuts, not the step",
        )
        for name, load, bound, gap in result
        if load is not None and bound is not None and gap is not None
    ]


def load_keys(each: ChainSchedule) -> dict[str, Any]:
    """Keys of JSON: ticks a micro-batch of the busiest device over its stages, their bound over all cuts, the gap."""
    return {"busiest_load": each.load, "busiest_load_bound": each.load_bound, "busiest_load_gap": each.load_gap}


def ticks_text(value: Fraction | None) -> str:
    """A number of ticks for people: a fraction and about what it is."""
    if value is None:
        return "-"
    return str(value) if value.denominator == 1 else f"{value} = {float(value):.2f}"


def period_object(key: str, value: Fraction | None) -> dict[str, Any]:
    """Two keys of JSON: a fraction as text, and as a number of ticks."""
    return {key: None if value is None else str(value), f"{key}_ticks": None if value is None else float(value)}


def bound_text(bound: PeriodBound) -> str:
    """A bound for people, with its name."""
    return f"{ticks_text(bound.value)} ({bound.name})"


def bound_object(bound: PeriodBound) -> dict[str, Any]:
    """A bound as JSON: its name, a fraction as text, and as a number of ticks."""
    return {"name": bound.name, "value": str(bound.value), "ticks": float(bound.value)}


def _stages(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Stages of the chosen schedule, with the peak bytes of each stage's device."""
    chosen, machines = pipeline.chosen, pipeline.request.machines
    if chosen.allocation is None or chosen.peaks is None or chosen.in_flight is None:
        return []
    chain = pipeline.request.seen(chosen.allocation)
    return [
        {
            "first": first, "last": last, "device": device, "load": int(chain.loads[first : last + 1].sum()),
            "weights_bytes": int(chain.weights[first : last + 1].sum()),
            "in_flight": int(chosen.in_flight[first : last + 1].max()), "bytes": int(chosen.peaks[device]),
            "speed": str(machines.speed[device]), "memory_bytes": machines.limits[device],
        }
        for first, last, device in chosen.allocation.stages.tolist()
    ]  # fmt: skip


def step_object(pipeline: StepPipeline, out: Path | None) -> dict[str, Any]:
    """The keys of --json; docs/guides/pipeline.md says what they are."""
    chosen, schedule = pipeline.chosen, pipeline.chosen.schedule
    optimal = chosen.candidate is not None and chosen.candidate.makespan == pipeline.bound_ticks
    made, late, pattern = pipeline.plan.provenance, pipeline.staged.late, schedule.pattern
    schedules = {}
    for name, each in _named(pipeline):
        candidate, why = each.candidate, each.schedule.why or None
        schedules[name] = {
            **_period(each.schedule.period),
            "step": None if candidate is None else candidate.makespan,
            "makespan_s": None if candidate is None else candidate.makespan * TICK_S,
            "predicted_step_s": None if candidate is None else each.predicted * TICK_S,
            "peak_bytes": None if candidate is None else int(candidate.peak.max()),
            "fits": each.fits,
            **load_keys(each.schedule),
            "why": why if candidate is None else None if each.fits else "out of memory",
        }
    updates = {"updates": pipeline.request.batches // pipeline.staged.every, "updates_each": pipeline.staged.every}
    return {
        **plan_keys(pipeline.plan, fits=chosen.fits),
        "status": "optimal" if optimal else "feasible",
        "optimal_among": _ALL if optimal else None,
        "schedule": schedule.name,
        "k": pipeline.request.batches if pattern is None else pattern.k,
        "T": schedule.step if pattern is None else pattern.T,
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
        "stages": _step_stages(pipeline),
        "idle": _idle(pipeline),
        "asynchronous": None if late is None else {"changes_what_is_computed": True, "late": list(late), **updates},
        "schedules": schedules,
        "search": None if pipeline.search is None
        else {"from": pipeline.search.begun, "tried": pipeline.search.tried, "rule": made.rule},
        "interrupted": pipeline.interrupted,
        "costs": made.costs_basis,
        "plan": None if out is None else str(out),
    }  # fmt: skip


def step_page(pipeline: StepPipeline, out: Path | None) -> str:
    """Return a page of the stages, the schedules beside each other, and what is proven; times and bytes."""
    graph, idle, named, staged = pipeline.staged.step.graph, _idle(pipeline), _named(pipeline), pipeline.staged
    stages: list[tuple[str, ...]] = [("layers", "device", "load", "weights", "in flight", "most", "begins with")]
    for stage in _step_stages(pipeline):
        sizes = (size(stage["weights_bytes"]), str(stage["in_flight"]), size(stage["bytes"]))
        begins = shorten(stage["begins_with"], 32)
        stages.append((_layers(stage), stage["device"], duration(stage["load_s"]), *sizes, begins))
    steps = iter(durations([each.candidate.makespan * TICK_S for _, each in named if each.candidate]))
    chosen, schedule = pipeline.chosen.candidate, pipeline.chosen.schedule
    ran: list[tuple[str, ...]] = [("schedule", "step", "", "by the chain", "fullest device", "")]
    for name, each in named:
        if each.candidate is None or chosen is None:
            ran.append((name, "-", "", "-", "-", each.schedule.why))
            continue
        more = "" if each is pipeline.chosen else f"{100 * (each.candidate.makespan / chosen.makespan - 1):+.1f}%"
        fullest, predicted = size(int(each.candidate.peak.max())), duration(each.predicted * TICK_S)
        ran.append((name, next(steps), more, predicted, fullest, "" if each.fits else "out of memory"))
    lines = [
        fact("step", f"{graph.source}: {plural(graph.ops, 'op')} in all"),
        fact("cluster", f"{staged.cluster.name}: {plural(len(pipeline.accelerators), 'stage device')}"),
        *([fact("unused", f"{', '.join(idle)}: there are fewer stages")] if idle else []),
        "",
        *align_rows(stages, "<<>>>><"),
        "",
        *align_rows(ran, "<>>>><"),
        "",
        *_proven(pipeline, out),
    ]
    if schedule.allocation is not None:
        # Variables that several stages read: tied to one device, and sent to the others.
        far = [(op, {int(schedule.allocation.device[layer]) for layer in layers}) for op, layers in staged.chain.far]
        names = [staged.names[op] for op, devices in far if len(devices) > 1]
        shown = ", ".join(shorten(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
        many = plural(len(names), "variable is", "variables are")
        if names:
            lines.append(
                fact("shared", f"{many} read on several devices, on one of them and sent once a step: {shown}")
            )
    if pipeline.interrupted:
        lines.append(fact("ended", "by Ctrl-C: the best that was found before"))
    return "\n".join(lines)


def _proven(pipeline: StepPipeline, out: Path | None) -> list[str]:
    """The plan, its bounds and what they rest on."""
    many, schedule = plural(pipeline.request.batches, "micro-batch", "micro-batches"), pipeline.chosen.schedule
    plan, shared = pipeline.plan, schedule.shared
    by = f"{schedule.name} and search" if pipeline.search else schedule.name
    where = "" if out is None else f", in {out}"
    lines = [fact("plan", f"{duration(plan.makespan_s)} for {many}, by {by}{where}")]
    if pipeline.search:
        lines.append(fact("", f"search began from {pipeline.search.begun}: {plan.provenance.rule}"))
    late, flight, every = pipeline.staged.late, schedule.in_flight, pipeline.staged.every
    if late is not None and flight is not None and every > 1:
        text = "gradients are those of weights one update late, on all stages, which hold two versions"
        lines.append(fact("updates", f"behind every {every} micro-batches, which changes what is computed: {text}"))
    elif late is not None and flight is not None:
        stages = [int(flight[a : b + 1].max()) for a, b in schedule.rows[:, :2].tolist()]
        lateness = ", ".join(str(min(stage, pipeline.request.batches) - 1) for stage in stages)
        most = plural(max(late, default=0), "update")
        text = f"gradients are those of weights up to {most} late, by stage {lateness}"
        lines.append(fact("updates", f"behind every micro-batch, which changes what is computed: {text}"))
    if shared is not None:
        turn = "in turn" if shared.in_turn else "one run of them each"
        lines.append(fact("shared", f"devices of a stage take whole micro-batches, {turn}; each gets its weights once"))
    bound = f"{_time(pipeline.bound_ticks)} ({plan.provenance.lower_bound_name}) of {_ALL}"
    once = "without updates" if pipeline.staged.late is None else "with updates"
    return [
        *lines,
        fact("bound", f"{bound}: gap {percent(plan.gap)}"),
        fact("", f"{_time(pipeline.chain_bound.value)} through these stages, of the chain's own steps, {once}"),
        *load_lines((each.schedule for each in pipeline.mapped), _time),
        fact("idle", f"accelerators for {percent(pipeline.bubble)} of the step"),
        fact("costs", plan.provenance.costs_basis),
    ]


def _period(period: Fraction | None) -> dict[str, Any]:
    seconds = None if period is None else float(period) * TICK_S
    return {**period_object("period", period), "period_s": seconds}


def _named(pipeline: StepPipeline) -> list[tuple[str, MappedSchedule]]:
    """Mapped schedules by name, that of the search last."""
    searched = pipeline.chosen if pipeline.search else None
    named = [(each.schedule.name, each) for each in pipeline.mapped if each is not searched]
    return [*named, (SEARCH, pipeline.chosen)] if pipeline.search else named


def _idle(pipeline: StepPipeline) -> list[str]:
    used = set(pipeline.chosen.schedule.rows[:, 2].tolist())
    return [name for device, name in enumerate(pipeline.accelerators) if device not in used]


def _time(ticks: float | Fraction) -> str:
    return duration(float(ticks) * TICK_S)


def _step_stages(pipeline: StepPipeline) -> list[dict[str, Any]]:
    staged, schedule, candidate = pipeline.staged, pipeline.chosen.schedule, pipeline.chosen.candidate
    if schedule.in_flight is None or candidate is None:
        return []
    chain, rows, stages = staged.chain.chain, schedule.rows, []
    flight = np.minimum(schedule.in_flight, pipeline.request.batches)
    # Bytes of all versions of a layer's weights.
    weights = chain.weights + staged.chain.version * flight
    for first, last, device in rows.tolist():
        layers = slice(first, last + 1)
        here = weights[layers] if schedule.shared is None else weights[layers][schedule.shared.homes[layers] == device]
        begins = np.flatnonzero((staged.chain.layer == first) & (staged.parts.part == FORWARD))
        stage = {
            "first": first,
            "last": last,
            "device": pipeline.accelerators[device],
            "devices": int((rows[:, 0] == first).sum()),
            "load": int(chain.loads[layers].sum()),
            "load_s": int(chain.loads[layers].sum()) * TICK_S,
            "weights_bytes": int(here.sum()),
            "in_flight": int(flight[layers].max()),
            "bytes": int(candidate.peak[staged.fast[device]]),
            "begins_with": staged.names[int(begins[0])] if len(begins) else "",
        }
        stages.append(stage)
    return stages


def max_load_object(spread: MaxLoad, devices: Sequence[str]) -> dict[str, Any]:
    """Return the keys of --json; docs/guides/pipeline.md says what they are."""
    return {
        "busiest": spread.busiest,
        "bound": bound_object(spread.bound),
        "gap": spread.gap,
        "status": "optimal" if spread.busiest == spread.bound.value else "feasible",
        "runs_busiest": spread.runs,
        "devices": [
            {"device": name, "load": int(spread.loads[d]), "layers": np.flatnonzero(spread.device == d).tolist()}
            for d, name in enumerate(devices)
        ],
        "interrupted": spread.interrupted,
    }


def max_load_page(spread: MaxLoad, devices: Sequence[str], name: str) -> str:
    """Return the load and the layers of each device, the proven bound and the gap; in ticks a batch."""
    rows = [("device", "load", "layers")]
    for d, device in enumerate(devices):
        layers = np.flatnonzero(spread.device == d)
        runs = np.split(layers, np.flatnonzero(np.diff(layers) > 1) + 1) if len(layers) else []
        texts = (f"{run[0]}" if run[0] == run[-1] else f"{run[0]}-{run[-1]}" for run in runs)
        rows.append((device, str(spread.loads[d]), ", ".join(texts)))
    return "\n".join([
        fact("layers", f"{name}: {plural(len(spread.device), 'layer')} on {plural(len(devices), 'device')}"),
        "",
        *align_rows(rows, "<><"),
        "",
        fact("busiest", f"{spread.busiest} ticks a batch, sends and receives included; {spread.runs} by one run each"),
        fact("bound", f"{bound_text(spread.bound)} of all allocations: {percent(spread.gap)} above it"),
    ])  # fmt: skip
