"""What a solve says of itself: one JSON object, or a page for people."""

import json
from pathlib import Path
from typing import Any

from pesto.plans.order_worth import OrderWorth
from pesto.plans.plan import Plan
from pesto.problem import TICK_S
from pesto.show.table import aligned
from pesto.solving.candidates import Candidate
from pesto.solving.flow import Outcome


def as_object(outcome: Outcome, stages_s: dict[str, float], out: Path) -> dict[str, Any]:
    """The keys of `pesto solve --json`; seconds of seconds, bytes of bytes, None where there is no value."""
    plan, made = outcome.plan, outcome.plan.provenance
    return {
        "status": plan.status,
        "makespan_s": plan.makespan_s,
        "lower_bound_s": made.lower_bound_ticks * plan.tick_s,
        "lower_bound": made.lower_bound_name,
        "gap": plan.gap,
        "chosen": made.chosen,
        "rule": made.rule,
        "candidates": {name: c.makespan * TICK_S if c else None for name, c in outcome.candidates.items()},
        "fits": {name: c.fits if c else None for name, c in outcome.candidates.items()},
        "order": _orders(outcome.order),
        "ops": len(plan.names),
        "coarse_ops": made.coarse.nodes if made.coarse else None,
        "coarse": _coarse(plan),
        "devices": list(dict.fromkeys(plan.lane_device)),
        "peak_bytes": plan.peak_bytes,
        "costs": made.costs_basis,
        "costs_source": made.costs,
        "links": made.links,
        "transfers": made.transfers,
        "stages_s": {name: round(seconds, 4) for name, seconds in stages_s.items()},
        "interrupted": outcome.interrupted,
        "verified": True,
        "plan": str(out),
    }


def _orders(order: OrderWorth) -> dict[str, float]:
    """What the same placement takes in other orders, and what enforcing the plan's saves."""
    return {
        "fifo_s": order.fifo * TICK_S,
        "saved_against_fifo": order.gain,
        "listed_s": order.listed * TICK_S,
        "prioritised_links_s": order.scheduled * TICK_S,
    }


def _coarse(plan: Plan) -> dict[str, Any] | None:
    """The exact solver's own result: its bound holds for the coarse graph only."""
    c = plan.provenance.coarse
    if c is None:
        return None
    made = None if c.makespan_ticks is None else c.makespan_ticks * plan.tick_s
    return {
        "nodes": c.nodes,
        "reason": c.reason,
        "solver": f"{c.solver} {c.version}",
        "status": c.status,
        "limit": c.limit,
        "makespan_s": made,
        "lower_bound_s": c.lower_bound_ticks * plan.tick_s,
        "bound_by": c.bound_by,
        "detail": c.detail,
    }


def to_json(value: dict[str, Any]) -> str:
    """One JSON object on one line; refuses NaN."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def page(outcome: Outcome, stages_s: dict[str, float], out: Path, check: str) -> str:
    """A page for people: who was beaten by how much, the bound, what was written, and `check`, what to do next."""
    plan, made = outcome.plan, outcome.plan.provenance
    bound = made.lower_bound_ticks * plan.tick_s * 1e3
    lines = [
        f"{made.graph_source}: {len(plan.names)} ops on {made.cluster}",
        f"costs         {made.costs_basis}: {made.costs}",
        "",
        *aligned([_row(name, c, outcome) for name, c in outcome.candidates.items()], "<><", (16, 12)),
        "",
        f"step time     {plan.makespan_s * 1e3:.2f} ms predicted ({made.chosen}: {made.rule})",
        f"lower bound   {bound:.2f} ms on the full graph ({made.lower_bound_name}), gap {plan.gap:.1%}",
        _order_line(outcome.order),
        *_coarse_lines(plan),
        "peak memory   " + ", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in plan.peak_bytes.items()),
        "seconds       " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages_s.items()),
        f"verified      by the independent checker; written to {out}",
        f"next          {check}",
    ]
    return "\n".join(lines)


def _row(name: str, candidate: Candidate | None, outcome: Outcome) -> tuple[str, str, str]:
    if candidate is None:
        return f"  {name}", "-   ", ""
    best, took = outcome.plan.schedule.makespan, candidate.makespan
    if not candidate.fits:
        mark = "(does not fit the memory)"
    elif name == outcome.plan.provenance.chosen:
        mark = "<- chosen"
    else:
        mark = f"beaten by {1 - best / took:.1%}" if took > best else "as good"
    return f"  {name}", f"{took * TICK_S * 1e3:.2f} ms", mark


def _order_line(order: OrderWorth) -> str:
    """What the same placement takes in other orders."""
    fifo, links = order.fifo * TICK_S * 1e3, order.scheduled * TICK_S * 1e3
    return (
        f"order         enforced it saves {order.gain:.1%} against first in, first out ({fifo:.2f} ms); "
        f"links with priorities would give {links:.2f} ms ({order.scheduled_gain:.1%} less)"
    )


def _coarse_lines(plan: Plan) -> list[str]:
    c = plan.provenance.coarse
    if c is None:
        return []
    made = "none" if c.makespan_ticks is None else f"{c.makespan_ticks * plan.tick_s * 1e3:.2f} ms"
    bound = f"{c.lower_bound_ticks * plan.tick_s * 1e3:.2f} ms"
    detail = f"; {c.detail}" if c.detail else ""
    return [
        f"coarse graph  {c.nodes} nodes ({c.reason}); {c.solver} {c.version}: {c.status}, {made}, bound {bound} "
        f"of the coarse graph ({c.bound_by or 'trivial'}){detail}"
    ]
