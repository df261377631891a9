"""Page and JSON object of layers spread over devices so that the busiest has least to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto.core.quantities import percent, plural
from pesto.pipelining.max_load import MaxLoad
from pesto.reporting.show.lines import fact
from pesto.reporting.show.pipelines.pipeline_page import bound_object, bound_text
from pesto.reporting.show.table import align_rows


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
        rows.append((device, str(spread.loads[d]), ", ".join(_run(int(run[0]), int(run[-1])) for run in runs)))
    return "\n".join([
        fact("layers", f"{name}: {plural(len(spread.device), 'layer')} on {plural(len(devices), 'device')}"),
        "",
        *align_rows(rows, "<><"),
        "",
        fact("busiest", f"{spread.busiest} ticks a batch, sends and receives included; {spread.runs} by one run each"),
        fact("bound", f"{bound_text(spread.bound)} of all allocations: {percent(spread.gap)} above it"),
    ])  # fmt: skip


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
