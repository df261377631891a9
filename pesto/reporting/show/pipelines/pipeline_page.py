"""Pages and JSON objects of pipelines of chains."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.quantities import percent, plural
from pesto.pipelining.pipeline import AT_ONCE, Pipeline
from pesto.pipelining.schedules import ChainSchedule
from pesto.reporting.show.facts.artifact_keys import PATTERN, artifact_keys
from pesto.reporting.show.lines import fact
from pesto.reporting.show.table import align_rows
from solvers.pipelining.chain import Machines
from solvers.pipelining.pipeline_bounds import PeriodBound


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
        "schedules": {each.name: _schedule(each) for each in pipeline.schedules},
        "micro_batches": pipeline.request.batches,
        "step": chosen.step,
        "step_bound": bound_object(pipeline.step_bound),
        "bubble": pipeline.bubble,
        "memory_model": pipeline.request.model.value,
        "interrupted": pipeline.interrupted,
        "plan": None if out is None else str(out),
    }


def pipeline_page(pipeline: Pipeline, name: str) -> str:
    """Stages, the schedules beside each other, and what is proven; ticks and bytes."""
    request, stages = pipeline.request, _stages(pipeline)
    idle = request.devices - len({row["device"] for row in stages})
    ran = ("schedule", "period", "", f"step of {request.batches}", "fullest device", "")
    lines = [
        fact("chain", f"{name}: {plural(request.chain.layers, 'layer')} on {_devices(request.machines)}"),
        *([fact("idle", plural(idle, "device"))] if idle else []),
        "",
        *align_rows(_table(request.machines, stages), "<" + 7 * ">"),
        "",
        *align_rows([ran, *(_row(each, pipeline.chosen) for each in pipeline.schedules)], "<>>>><"),
        "",
        *_proven(pipeline),
    ]
    return "\n".join(lines)


def _proven(pipeline: Pipeline) -> list[str]:
    request, chosen = pipeline.request, pipeline.chosen
    at_once = ", each half at once" if pipeline.stage_bound.name == AT_ONCE else ""
    many, below = plural(request.batches, "micro-batch", "micro-batches"), ticks_text(pipeline.step_bound.value)
    return [
        fact("period", f"{ticks_text(chosen.period)} ticks a batch, by {chosen.name}{_thinned(chosen)}"),
        fact("bound", f"{bound_text(pipeline.bound)} of all stages: {percent(pipeline.gap)} above it"),
        fact("", f"{bound_text(pipeline.stage_bound)} of these stages{at_once}"),
        *load_lines(pipeline.schedules, lambda ticks: f"{ticks} ticks"),
        fact("optimal", f"among {pipeline.optimal_among}" if pipeline.optimal_among else "not proven"),
        fact(
            "step",
            f"{chosen.step} ticks for {many}, no step through these stages below {below}; devices idle for "
            f"{percent(pipeline.bubble)} of it",
        ),
        fact("memory", _MEMORY[request.model.value]),
    ]


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


_MEMORY = {
    "paper": "as the paper counts it: weights, and activations of batches in flight",
    "received": "at its fullest: weights, activations, inputs received and gradients on their way",
}


def ticks_text(value: Fraction | None) -> str:
    """A number of ticks for people: a fraction and about what it is."""
    if value is None:
        return "-"
    return str(value) if value.denominator == 1 else f"{value} = {float(value):.2f}"


def _thinned(chosen: ChainSchedule) -> str:
    k, n = chosen.keep
    return f", {k} of every {n} batches of 1F1B*" if n > 1 else ""


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
            "first": first,
            "last": last,
            "device": device,
            "load": int(chain.loads[first : last + 1].sum()),
            "weights_bytes": int(chain.weights[first : last + 1].sum()),
            "in_flight": int(chosen.in_flight[first : last + 1].max()),
            "bytes": int(chosen.peaks[device]),
            "speed": str(machines.speed[device]),
            "memory_bytes": machines.limits[device],
        }
        for first, last, device in chosen.allocation.stages.tolist()
    ]


def _devices(machines: Machines) -> str:
    if machines.equal:
        memory = machines.memory
        room = "without a limit of memory" if memory is None else f"of {memory[0]} bytes each"
        return f"{plural(machines.devices, 'device')} {room}"
    return f"{plural(machines.devices, 'unequal device')}, named in its file"


def _table(machines: Machines, stages: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row a stage; of unequal devices with their speed and memory."""
    rows = [("layers", "device", "load", "weights", "in flight", "most bytes"), *map(_cells, stages)]
    if machines.equal:
        return rows
    more = [("of", "speed")]
    more += [("-" if row["memory_bytes"] is None else str(row["memory_bytes"]), row["speed"]) for row in stages]
    return [(*row, *two) for row, two in zip(rows, more, strict=True)]


def _cells(stage: dict[str, Any]) -> tuple[str, ...]:
    layers = f"{stage['first']} to {stage['last']}" if stage["first"] < stage["last"] else str(stage["first"])
    return (layers, *(str(stage[key]) for key in ("device", "load", "weights_bytes", "in_flight", "bytes")))


def _schedule(each: ChainSchedule) -> dict[str, Any]:
    return {
        **period_object("period", each.period),
        "step": each.step,
        "peak_bytes": None if each.peaks is None else int(np.max(each.peaks)),
        "fits": each.fits,
        "periodic": each.periodic,
        **load_keys(each),
        "why": each.why or None,
    }


def _row(each: ChainSchedule, chosen: ChainSchedule) -> tuple[str, ...]:
    if each.period is None or each.peaks is None or not chosen.period:
        return (each.name, "-", "", "-", "-", each.why)
    more = "" if each is chosen else f"{100 * (float(each.period / chosen.period) - 1):+.1f}%"
    period = f"{float(each.period):.2f}".removesuffix(".00")
    return (each.name, period, more, str(each.step), str(int(np.max(each.peaks))), each.why)
