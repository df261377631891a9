"""What TensorFlow does unasked: all that has a kernel for an accelerator on the first one, the rest on the host.

"If a GPU is available, ops with a GPU kernel are placed on GPU:0" (TensorFlow's guide to GPUs; the greedy placer of
Abadi et al. 2016, 3.2.1, was never released). Colocation and kernels are the problem's own constraints.
"""

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.planning.baselines.places import accelerators
from pesto.planning.baselines.scopes import RulePlacement
from solvers import Problem
from solvers.heuristics.devices_of_location import devices_at


def framework_default(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Everything on the first accelerator."""
    first = accelerators(problem, cluster)[0]
    device = devices_at(problem, np.full(graph.ops, first))
    return RulePlacement(device=device, rule=f"everything on {cluster.devices[first].name}, as TensorFlow does unasked")
