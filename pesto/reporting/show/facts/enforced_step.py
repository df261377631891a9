"""The step with what of the order is enforced, as pages and JSON objects say it."""

from typing import Any

from pesto.core.plans.execution_modes import ModePrediction
from pesto.reporting.show.lines import fact


def enforced_keys(enforced: ModePrediction | None) -> dict[str, Any]:
    """Keys of a JSON object; none where the graph does not say how the step is run."""
    if enforced is None:
        return {}
    return {"as": enforced.way, "enforced_s": enforced.makespan_s, "outside_the_order": enforced.outside}


def enforced_line(enforced: ModePrediction, remedy: str = "") -> str:
    """One fact of a page."""
    return fact(f"as {enforced.way}", f"{enforced} - {remedy}" if remedy else str(enforced))
