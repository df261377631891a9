"""Random placement: each unit at a location drawn uniformly among those that can take it."""

import numpy as np

from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import placeable_units


def place(problem: Problem, options: Options) -> Placement:
    """Uniform, from `options.seed`. O(n l)."""
    units = placeable_units(problem)
    drawn = np.random.default_rng(options.seed).random(units.allowed.shape)
    return Placement(device=devices_at(problem, np.where(units.allowed, drawn, -1.0).argmax(axis=1)[units.unit]))
