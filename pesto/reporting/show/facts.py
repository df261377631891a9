"""Facts that pages share, as lines and as JSON keys: costs, open batch, feeds, idle devices, trust, catalogue."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np

from pesto.core.plans.execution_modes import ModePrediction
from pesto.core.plans.plan import Plan
from pesto.core.quantities import duration, durations, percent, plural
from pesto.inputs.cluster_file import cluster_names, load_cluster
from pesto.planning.solving.trust import Trust
from pesto.reporting.show.lines import align_rows, fact
from pesto.tf.models.counts import PUBLISHED

PLAN, SPLIT, PATTERN = "plan", "split", "pattern"
"""Kinds of artifacts."""


def artifact_keys(
    kind: str,
    *,
    makespan_s: float | None = None,
    lower_bound_s: float | None = None,
    fits: bool | None = None,
    peak_bytes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the keys that plans, splits and patterns share; None for what is not known.

    makespan_s: predicted seconds of a training step. fits: True if every device has the bytes that it needs at most.
    peak_bytes: most bytes alive on each device, by its name.
    """
    gap = None
    if makespan_s is not None and lower_bound_s is not None:
        gap = (makespan_s - lower_bound_s) / makespan_s if makespan_s else 0.0
    return {
        "kind": kind,
        "makespan_s": makespan_s,
        "lower_bound_s": lower_bound_s,
        "gap": gap,
        "fits": fits,
        "peak_bytes": None if peak_bytes is None else dict(peak_bytes),
    }


def plan_keys(plan: Plan, *, fits: bool = True) -> dict[str, Any]:
    """Return the keys of a plan, which fits the memory of its cluster once it is verified."""
    bound_s = plan.provenance.lower_bound_ticks * plan.tick_s
    keys = artifact_keys(PLAN, makespan_s=plan.makespan_s, lower_bound_s=bound_s, fits=fits, peak_bytes=plan.peak_bytes)
    return {**keys, "gap": plan.gap}


def costs_text(basis: str, source: str, note: str) -> str:
    """Where op times come from, and what they leave out, for a page."""
    return f"{basis}: {source}{f'; {note}' if note else ''}"


def note_key(note: str) -> dict[str, str]:
    """The key `costs_note` of a JSON object; none where there is nothing to say."""
    return {"costs_note": note} if note else {}


def open_batch(plan: Plan) -> str:
    """Say what an open batch costs; "" for a plan of a fixed one."""
    size = plan.provenance.graph_batch
    if size is None:
        return ""
    return (
        f"open, planned at {size}; where ops read its size as the step runs, a fixed batch has fewer: pesto inspect "
        "counts them"
    )


def open_batch_key(plan: Plan) -> dict[str, Any]:
    """The key of a JSON object: None for a plan of a fixed batch."""
    size = plan.provenance.graph_batch
    return {"open_batch": None if size is None else {"planned_size": size, "note": open_batch(plan)}}


def enforced_keys(enforced: ModePrediction | None) -> dict[str, Any]:
    """Keys of a JSON object; none where the graph does not say how the step is run."""
    if enforced is None:
        return {}
    return {"as": enforced.way, "enforced_s": enforced.makespan_s, "outside_the_order": enforced.outside}


def enforced_line(enforced: ModePrediction, remedy: str = "") -> str:
    """One fact of a page."""
    return fact(f"as {enforced.way}", f"{enforced} - {remedy}" if remedy else str(enforced))


def idle_devices(plan: Plan) -> str:
    """Such as "gpu:4 to 7 hold nothing": accelerators without an op and without a byte; "" where there is none."""
    used = {plan.lane_device[lane] for lane in np.unique(plan.schedule.device).tolist()}
    idle = [name for name, peak in plan.peak_bytes.items() if not peak and name not in used]
    named = name_ranges([name for name in idle if not name.startswith("cpu")])
    many = len(named) > 1 or any(" to " in name for name in named)
    return f"{' and '.join(named)} hold{'' if many else 's'} nothing" if named else ""


def name_ranges(names: list[str]) -> list[str]:
    """Names that count on, as gpu:4, gpu:5, gpu:6, are one: "gpu:4 to 6"."""
    numbered = sorted((kind, int(number)) for kind, _, number in (name.rpartition(":") for name in names))
    result = []
    for _, run in groupby(enumerate(numbered), key=lambda each: (each[1][0], each[1][1] - each[0])):
        row = [each for _, each in run]
        (kind, first), (_, last) = row[0], row[-1]
        result.append(f"{kind}:{first}" if first == last else f"{kind}:{first} to {last}")
    return result


_LEAST_SHARE = 0.05
"""Share of the variance below which a page names no kind."""
_NAMED_COSTS = 3
"""Kinds that a line names at most."""


def trust_keys(trust: Trust) -> dict[str, Any]:
    """Return the JSON object: spreads in seconds, shares as fractions."""
    return asdict(trust)


def trust_line(trust: Trust) -> str:
    """One fact: the plan's spread, whether it stays the best, and what matters most."""
    plan = trust.plan
    spread = f"{duration(plan.p10_s)} to {duration(plan.p90_s)} (p10 to p90, median {duration(plan.p50_s)})"
    return fact("trust", "; ".join([f"{spread} at {_noise(trust)}", *_stays(trust), *_most(trust, _NAMED_COSTS)]))


def trust_table(trust: Trust) -> list[str]:
    """Lines: the plan and its rivals, and what matters most."""
    named = {"plan": trust.plan, **trust.rivals}
    spreads = [(each.step_s, each.p10_s, each.p50_s, each.p90_s) for each in named.values()]
    times = durations([seconds for each in spreads for seconds in each])
    rows = [(f"  {name}", *times[4 * k : 4 * k + 4], percent(named[name].best)) for k, name in enumerate(named)]
    head = ("", "step", "p10", "p50", "p90", "shortest in")
    most = _most(trust, len(trust.kinds) + len(trust.links))
    return ["", *align_rows([head, *rows], "<>"), "", fact("trust", "; ".join([_noise(trust), *_stays(trust), *most]))]


def _noise(trust: Trust) -> str:
    return f"noise {trust.noise:g} ({plural(trust.draws, 'draw')})"


def _stays(trust: Trust) -> list[str]:
    """How often the plan stays the best, who else is, and whose p90 is less."""
    if not trust.rivals:
        return ["no rival fits the memory"]
    often = max(trust.rivals, key=lambda name: trust.rivals[name].best)
    safe = min(trust.rivals, key=lambda name: trust.rivals[name].p90_s)
    also = f" ({often} in {percent(trust.rivals[often].best)})" if trust.rivals[often].best else ""
    least = trust.rivals[safe].p90_s
    less = [f"{safe} has a lower p90, {duration(least)}"] if least < trust.plan.p90_s else []
    return [f"the shortest in {percent(trust.plan.best)}{also}", *less]


def _most(trust: Trust, named: int) -> list[str]:
    """Name the cost that explains most of the variance, if one does."""
    shares = {**trust.kinds, **{f"transfers {name}": share for name, share in trust.links.items()}}
    most = sorted(((share, name) for name, share in shares.items() if share >= _LEAST_SHARE), reverse=True)[:named]
    return [f"variance by {', '.join(f'{name} {percent(share)}' for share, name in most)}"] if most else []


def models_object(measured: bool = False) -> dict[str, Any]:
    """The built-in models, their variants and the ops of one step; `measured`: built and counted afresh (minutes)."""
    from pesto.tf.models import FAMILIES, counts

    result = counts.measure_all() if measured else counts.recorded()
    rows = [(f.name, v, v == f.default, result[f.name][v]) for f in FAMILIES for v in f.variants]
    return {
        "models": [
            {"model": m, "variant": v, "default": d, "ops": n, "batch_by_gpus": PUBLISHED.get((m, v))}
            for m, v, d, n in rows
        ]
    }


def clusters_object() -> dict[str, Any]:
    """The cluster presets with their devices and links."""
    return {
        "clusters": [
            {
                "name": c.name,
                "devices": [
                    {key: getattr(d, key) for key in ("name", "kind", "preset", "memory_bytes", "cores")}
                    for d in c.devices
                ],
                "links": list(c.links),
            }
            for c in map(load_cluster, cluster_names())
        ]
    }


def solvers_object() -> dict[str, Any]:
    """The solvers, whether they are installed, and the integer programs that they can be given."""
    from solvers import available
    from solvers.api import SOLVERS

    return {
        "solvers": [
            {"name": row.name, "version": row.version, "why_not": row.why_not,
             "formulations": list(SOLVERS[row.name].formulations)}
            for row in available()
        ]
    }  # fmt: skip
