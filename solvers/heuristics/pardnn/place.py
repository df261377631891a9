"""ParDNN step 1 (Qararyah, Wahib, Dikbayir, Belviranli, Unat 2020, thesis chapter 4, section 4.1.1).

Slicing, mapping, refinement, as the modules beside this one say, with what the text leaves open and where they
deviate. The order of execution is left to the runtime, as there. Units and device kinds are respected; memory, which
is step 2 there, is not looked at.
"""

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import Placement
from solvers.heuristics.pardnn.emulator import emulate
from solvers.heuristics.pardnn.levels import levels
from solvers.heuristics.pardnn.mapping import ClusterMapping, mapped
from solvers.heuristics.pardnn.refinement import refined
from solvers.heuristics.pardnn.slicing import sliced
from solvers.heuristics.pardnn.spans import spans_of
from solvers.heuristics.pardnn.weights import WeightedGraph, weights_of
from solvers.problem import Problem
from solvers.result import Options


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The whole of step 1. O(k (n + e) + n k log n)."""
    return _placed(problem, refine=True, level_aware=True)


def unrefined(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Slicing and mapping alone (section 6.4.1)."""
    return _placed(problem, refine=False, level_aware=True)


def balanced(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The whole, with Guided Load Balancing in the place of LALB (figure 4.2 (e))."""
    return _placed(problem, refine=True, level_aware=False)


def emulated(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The whole of step 1, in the order that the framework's scheduler is emulated to give (section 4.1.2)."""
    device = _placed(problem, refine=True, level_aware=True).device
    made = emulate(problem, device)
    position = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return Placement(device=device, rank=rank_of(np.lexsort((position, made.finish, made.start))))


def _placed(problem: Problem, *, refine: bool, level_aware: bool) -> Placement:
    w, chosen = weights_of(problem)
    place = partitioned(w, refine=refine, level_aware=level_aware)
    location = np.empty(problem.tasks, dtype=np.int64)
    location[w.task] = np.append(chosen, np.arange(problem.locations))[place]
    return Placement(device=devices_at(problem, location))


def partitioned(w: WeightedGraph, *, refine: bool, level_aware: bool) -> Ints:
    """[n] place of each node, in one of the three ways."""
    none = np.zeros(len(w.task), dtype=np.bool_)
    top, bottom = levels(w, none)
    clusters = sliced(w, top + bottom)
    spans = spans_of(w, clusters, top)
    m: ClusterMapping = mapped(w, clusters, spans, level_aware=level_aware)
    return refined(w, spans, m) if refine else m.place
