"""The locations that placements of networks choose among."""

import numpy as np

from pesto.core.cluster import Cluster
from solvers import Problem


def accelerators(problem: Problem, cluster: Cluster) -> list[int]:
    """Locations of other kinds than cpu on which some op may run, or the hosts when there are none."""
    used = [int(k) for k in np.unique(problem.location[problem.allowed.any(axis=0)])]
    return [k for k in used if cluster.devices[k].kind != "cpu"] or used
