"""Which layers went where: scopes by the device that has most of their time."""

import numpy as np

from pesto.core.plans.plan import Plan
from pesto.core.quantities import percent, shorten
from pesto.reporting.explaining.name_scopes import name_scopes
from pesto.reporting.show.lines import fact

_MOST = 6
"""Scopes that are named on one device."""
_LEAST = 0.005
"""Share of all time below which a scope is not named."""
_WHOLE = 0.995
"""Share of a scope's time on its device from which on it is not said."""


def layers_lines(plan: Plan) -> list[str]:
    """A line a device that computes; none where names have no scopes."""
    s = plan.schedule
    took = s.finish - s.start
    scope, labels = name_scopes(plan.names, took)
    if len(labels) < 2 or not took.sum():
        return []
    devices = list(dict.fromkeys(plan.lane_device))
    at = np.array([devices.index(name) for name in plan.lane_device])[s.device]
    time = np.zeros((len(labels), len(devices)))
    np.add.at(time, (scope, at), took)
    total, home = time.sum(axis=1), time.argmax(axis=1)
    named = [k for k in np.argsort(-total, kind="stable").tolist() if total[k] >= _LEAST * took.sum()]
    result = []
    for d, device in enumerate(devices):
        here = [k for k in named if home[k] == d]
        said = [_said(labels[k], time[k, d] / total[k]) for k in here[:_MOST]]
        more = [f"and {len(here) - _MOST} more"] if len(here) > _MOST else []
        if said:
            result.append(f"{device}: {', '.join(said + more)}")
    return [fact("layers" if k == 0 else "", text) for k, text in enumerate(result)]


def _said(label: str, share: float) -> str:
    return shorten(label) if share >= _WHOLE else f"{shorten(label)} ({percent(share)} of it)"
