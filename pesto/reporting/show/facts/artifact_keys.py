"""Keys that the JSON of every plan, split and pattern begins with."""

from collections.abc import Mapping
from typing import Any

from pesto.core.plans.plan import Plan

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
