"""Notes on plans with an open batch size, for pages and JSON objects."""

from typing import Any

from pesto.core.plans.plan import Plan

_NOTE = (
    "open, planned at {}; where ops read its size as the step runs, a fixed batch has fewer: pesto inspect counts them"
)


def open_batch(plan: Plan) -> str:
    """Say what an open batch costs; "" for a plan of a fixed one."""
    size = plan.provenance.graph_batch
    return "" if size is None else _NOTE.format(size)


def open_batch_key(plan: Plan) -> dict[str, Any]:
    """The key of a JSON object: None for a plan of a fixed batch."""
    size = plan.provenance.graph_batch
    return {"open_batch": None if size is None else {"planned_size": size, "note": open_batch(plan)}}
