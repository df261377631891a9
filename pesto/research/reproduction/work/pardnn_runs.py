"""ParDNN's own experiments: its models with its batches on 1 to 16 GPUs, by its two steps and by what it is held to."""

import time

import numpy as np

from pesto.choosing.comparison.contest import Entrants, compete, shape_of
from pesto.core.memory import footprint
from pesto.core.problem import TICK_S, StepOnCluster, build_problem
from pesto.research.reproduction.cached_cells import CellSettings, Found, Key, machine, step, step_on
from solvers import Options, Problem
from solvers.heuristics.overflow.relief import relieve
from solvers.heuristics.pardnn.emulator import emulate
from solvers.heuristics.pardnn.place import place
from solvers.instances.plain import fork
from solvers.memory.usage import usage

RIVALS = ("round-robin", "pardnn", "pardnn-unrefined", "linear-clustering", "pardnn-emulated")
"""Placed without regard to memory, as the thesis does for its Figs 6.6 and 6.7."""
ROOMY = 1024.0
"""Times the memory of each accelerator, where it is not to matter."""


def sized(key: Key, settings: CellSettings) -> Found:
    """Ops of the graph, as `pesto import` has it."""
    return {"ops": step(key[0], "v100x16", settings).graph.ops}


def shaped(key: Key, settings: CellSettings) -> Found:
    """Degree of parallelism and CCR (6.2.2)."""
    at = step(key[0], key[1], settings)
    shape = shape_of(at.graph, _problem(at), at.cluster)
    return {"parallelism": shape.parallelism, "ccr": shape.ccr}


def single(key: Key, settings: CellSettings) -> Found:
    """The step on one GPU, and whether it fits."""
    graph, cluster, costs = step(key[0], key[1], settings)
    one = compete(graph, cluster, costs, settings.settings, lambda _: None, entrants=Entrants(("single",))).entries[0]
    return {"step_s": one.makespan_s, "fits": one.plan is not None, "detail": one.detail}


def parted(key: Key, settings: CellSettings) -> Found:
    """ParDNN's two steps: seconds to place, ops moved, and the step by the emulated scheduler."""
    at = step(key[0], key[1], settings)
    problem, held = _problem(at), footprint(at.graph)
    place(fork(4), Options())  # compiles, or reads what was compiled
    began = time.process_time()
    first = place(problem, Options())
    then = time.process_time()
    relief = relieve(problem, held, first.device, order=lambda device: emulate(problem, device))
    ended = time.process_time()
    before, used = emulate(problem, first.device), problem.capacity > 0
    return {
        "ops": at.graph.ops,
        "step_1_cpu_s": then - began,
        "step_2_cpu_s": ended - then,
        "moved": int((relief.device != first.device).sum()),
        "fits": relief.fits,
        "shortfall": relief.shortfall,
        "step_s": relief.schedule.makespan * TICK_S,
        "unmoved_step_s": before.makespan * TICK_S,
        "fitted_before": bool((usage(problem, held, before).peak <= problem.capacity).all()),
        "fullest": float((relief.peak[used] / problem.capacity[used]).max()),
    }


def _problem(at: StepOnCluster) -> Problem:
    """Ops hold nothing by themselves: memory is counted over time."""
    return build_problem(at.graph, at.costs, at.cluster, memory=np.zeros_like(at.graph.param_bytes))


def rivalled(key: Key, settings: CellSettings) -> Found:
    """Steps by each of RIVALS where memory does not matter, in the order that list scheduling gives."""
    graph, cluster, costs = step_on(key[0], machine(key[1], memory=ROOMY), settings)
    result = compete(graph, cluster, costs, settings.settings, lambda _: None, entrants=Entrants(RIVALS))
    return {
        "steps_s": {e.method: e.makespan_s for e in result.entries},
        "details": {e.method: e.detail for e in result.entries},
    }
