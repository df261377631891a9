"""ParDNN's own times: both steps on whole training steps of its size, on one core, after the graph is loaded.

    python -m benchmarks.pardnn GRAPH... [--cluster v100x16] [--again 3] [--units N]

GRAPH: files from `pesto import`. Prints the least processor seconds of `--again` runs after compilation: of step 1
(slicing, mapping, refinement), and of step 2 (emulated times, memory over time, moves until all fits) on what step 1
gives. With --units, also a Wide ResNet-k-14 of so many residual units a group, built here: the thesis' 190 000 nodes
are 85 137 in our WRN-610-14 (101 units), and 226 units make about as many as the thesis has.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.files.graph_file import load
from pesto.core.graph import Graph
from pesto.core.memory import footprint
from pesto.core.problem import build_problem
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from solvers.heuristics.overflow.relief import relieve
from solvers.heuristics.pardnn.emulator import emulate
from solvers.heuristics.pardnn.place import place
from solvers.memory.usage import usage
from solvers.result import Options

T = TypeVar("T")


def main() -> None:
    """Print a row a graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", type=Path)
    parser.add_argument("--cluster", default="v100x16")
    parser.add_argument("--again", type=int, default=3)
    parser.add_argument("--units", type=int)
    asked = parser.parse_args()
    cluster = load_cluster(asked.cluster)
    print(f"| on {cluster.name} | ops | edges | step 1, s | step 2, s | moved | fits | step ms, emulated |")
    print("|---|---:|---:|---:|---:|---:|---|---:|")
    for path in asked.graphs:
        _row(path.stem, load(path), cluster, asked.again)
    if asked.units:
        _row(f"wrn, {asked.units} units a group", _wide(asked.units), cluster, asked.again)


def _row(name: str, graph: Graph, cluster: Cluster, again: int) -> None:
    problem = build_problem(graph, load_costs(graph, cluster, None), cluster, memory=np.zeros_like(graph.param_bytes))
    held = footprint(graph)
    first, placed = _least(lambda: place(problem, Options()), again)
    second, relief = _least(
        lambda: relieve(problem, held, placed.device, order=lambda device: emulate(problem, device)), again
    )
    peak = usage(problem, held, relief.schedule).peak
    fits = bool((peak <= problem.capacity).all())
    print(
        f"| {name} | {graph.ops} | {problem.edges} | {first:.2f} | {second:.2f} | {relief.moved} "
        f"| {'yes' if fits else relief.shortfall} | {relief.schedule.makespan / 1e6:.1f} |",
        flush=True,
    )


def _least(run: Callable[[], T], again: int) -> tuple[float, T]:
    """Least processor seconds of some runs, the first of which, which may compile, does not count."""
    result, seconds = run(), []
    for _ in range(again):
        began = time.process_time()
        result = run()
        seconds.append(time.process_time() - began)
    return min(seconds), result


def _wide(units: int) -> Graph:
    """A Wide ResNet-k-14 with so many residual units in each of its three groups."""
    from pesto.tf.models import wrn
    from pesto.tf.sources.sources import from_v1

    step = wrn.construct(replace(wrn.CONFIGS["610x14"], units=units))
    return from_v1(step.graph, step.fetches)


if __name__ == "__main__":
    main()
