"""The devices that a plan leaves empty, named together."""

from itertools import groupby

import numpy as np

from pesto.core.plans.plan import Plan


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
