"""Layers of seeded graphs spread over devices: the busiest of all allocations, of the best runs of an order, the bound.

    python -m benchmarks.dag_loads [--layers 60,120,200,350,1000] [--devices 6] [--seeds 2] [--seconds 120]

A row a graph: ticks of the busiest device where each has a run of a topological order, cut optimally; of any
allocation; the bound and the gap to it; how far runs are above; CPU seconds, those of CP-SAT's process among them.
"""

import argparse
import os

import numpy as np

from benchmarks.chain_families import network_dag
from solvers.pipelining.least_loads import least_dag_load


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--layers", default="60,120,200,350,1000")
    asked.add_argument("--devices", type=int, default=6)
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--seconds", type=float, default=120.0)
    asked.add_argument("--workers", type=int, default=1)
    given = asked.parse_args()
    least_dag_load(network_dag(np.random.default_rng(0), 10), 2, seconds=1)
    print(f"<!-- load {os.getloadavg()[0]:.1f} -->")
    print("| layers | seed | runs | any | bound | gap | runs above any | CPU s |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for layers in map(int, given.layers.split(",")):
        for seed in range(given.seeds):
            dag, began = network_dag(np.random.default_rng(seed), layers), _spent()
            result = least_dag_load(dag, given.devices, seconds=given.seconds, workers=given.workers)
            if result is None or result.contiguous is None:
                raise RuntimeError("without a limit of memory all runs fit")
            gap, above = result.T / float(result.bound.value) - 1, result.contiguous / result.T - 1
            print(
                f"| {layers} | {seed} | {result.contiguous} | {result.T} | {result.bound.value} ({result.bound.name}) "
                f"| {gap:.2%} | {above:.1%} | {_spent() - began:.0f} |",
                flush=True,
            )


def _spent() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
