"""Contiguous stages of random chains: how long they take to find, and how far they are from what bounds them.

    python -m benchmarks.stages [--layers 1000] [--devices 16] [--seeds 3]

Each chain with 1, 1.3 and 2 times the least memory, in both models, 1F1B* and thinned to k of n <= 5. `rule` is the
least period that there can be for 1F1B* over the period found, `bound` the best bound of all schedules of the stages
over it. CPU seconds of the search alone, compiled before.
"""

import argparse
import time

from benchmarks.chain_families import PipelineCase, make_case
from solvers.pipelining.chain import Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, period_bound, thinnings
from solvers.pipelining.pipeline_bounds import best, of_allocation


def main() -> None:
    """Print a row a search."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--layers", type=int, default=1000)
    asked.add_argument("--devices", type=int, default=16)
    asked.add_argument("--seeds", type=int, default=3)
    given = asked.parse_args()
    best_cuts(make_case("random-chain", layers=2).chain, Machines.alike(2))
    print("seed model     memory thinned      period  rule  bound  CPU s")
    for seed in range(given.seeds):
        for room in (100, 130, 200):
            case = make_case("random-chain", seed, layers=given.layers, devices=given.devices, longest=10**6, room=room)
            for model in MemoryModel:
                for most in (1, 5):
                    row(seed, room, case, model, most)


def row(seed: int, room: int, case: PipelineCase, model: MemoryModel, limit: int) -> None:
    """One search."""
    began = time.process_time()
    result = best_cuts(case.chain, Machines.alike(case.devices, case.memory), model, thinnings(limit))
    took = time.process_time() - began
    rule = period_bound(case.chain, Machines.alike(case.devices, case.memory), model, thinnings(limit)) / result.period
    bound = best(of_allocation(case.chain, result.allocation, case.memory, model)).value / result.period
    shares = f"{float(rule):5.3f} {float(bound):6.3f}"
    print(f"{seed:4} {model:9} {room:5}% {limit:7} {float(result.period):11.1f} {shares} {took:6.2f}")


if __name__ == "__main__":
    main()
