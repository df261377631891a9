"""Bounds are as high as they were: each argument alone and together, on random problems from fixed seeds.

That no bound is above the optimum is tested elsewhere; a weaker one would still be right. Renew a number where a bound
has become stronger: a failed assertion names the new one.
"""

import numpy as np
import pytest

from solvers.bounds import quick_bounds
from solvers.bounds.certificate import follows
from solvers.bounds.full import anchor_bound, full_bound, loads_of, net_of
from solvers.bounds.strong import strong
from solvers.instances.plain import layered, lstm_grid, series_parallel
from solvers.instances.random import generate
from solvers.structure.units import paths_of

QUICK = (
    quick_bounds.critical_path, quick_bounds.device_load, quick_bounds.device_window, quick_bounds.unit_load,
    quick_bounds.link_window,
)  # fmt: skip
LONG = 1e9
"""Seconds that no clock ends."""
EXPECTED = {
    "layered 0": (22, 34, 34, 22, 0, 34, 34, "device_load", 34),
    "layered 1": (36, 29, 33, 36, 0, 43, 42, "anchored_distances", 45),
    "layered 2": (31, 35, 35, 31, 0, 38, 38, "anchored_distances", 39),
    "layered 3": (25, 22, 23, 25, 0, 27, 27, "anchored_distances", 27),
    "nested 0": (77, 48, 77, 77, 0, 78, 78, "anchored_distances", 78),
    "nested 1": (118, 33, 118, 118, 0, 118, 118, "critical_path", 118),
    "nested 2": (50, 29, 50, 50, 0, 54, 54, "anchored_distances", 55),
    "nested 3": (72, 25, 71, 72, 0, 72, 72, "critical_path", 72),
    "grid 0": (48, 57, 59, 48, 0, 60, 60, "anchored_distances", 60),
    "grid 1": (48, 29, 48, 48, 0, 52, 52, "anchored_distances", 52),
    "grid 2": (48, 38, 48, 48, 0, 52, 52, "anchored_distances", 52),
    "grid 3": (42, 24, 42, 42, 0, 46, 46, "anchored_distances", 46),
    "random 0": (43, 17, 40, 43, 30, 43, 43, "critical_path", 43),
    "random 1": (26, 9, 25, 26, 21, 22, 26, "critical_path", 26),
    "random 2": (73, 33, 69, 73, 58, 73, 73, "critical_path", 73),
    "random 3": (49, 36, 36, 49, 0, 41, 49, "critical_path", 49),
}
"""The five arguments of QUICK, the anchored bound, the full one with its name, and the strong one."""


def problem(name):
    """A problem by its kind and number."""
    kind, number = name.split()
    rng = np.random.default_rng([47, int(number)])
    gpus, transfer = int(rng.integers(2, 5)), int(rng.integers(1, 9))
    if kind == "layered":
        return layered(rng, int(rng.integers(3, 6)), 4, gpus=gpus, transfer=transfer, longest=9)
    if kind == "nested":
        return series_parallel(rng, int(rng.integers(12, 25)), gpus=gpus, transfer=transfer, longest=9)
    if kind == "grid":
        return lstm_grid(int(rng.integers(2, 4)), int(rng.integers(3, 6)), gpus=gpus)
    return generate(rng, tasks=int(rng.integers(12, 30)), gpus=gpus)


NAMES = [f"{kind} {number}" for kind in ("layered", "nested", "grid", "random") for number in range(4)]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "grid 0")) for n in NAMES])
def test_bounds(name):
    """The five quick arguments, all tasks as anchors, the full bound, and the strong one, in ticks."""
    p = problem(name)
    paths = paths_of(p)
    net = net_of(p, paths)
    anchored = anchor_bound(net, loads_of(p, paths, net), np.arange(p.tasks))
    full = full_bound(p, seconds=LONG)
    assert full.evidence is None or follows(p, full.evidence) == full.ticks
    quick = [bound(p) for bound in QUICK]
    assert (*quick, anchored.ticks, full.ticks, full.name, strong(p, seconds=LONG).ticks) == EXPECTED[name]
