"""How the placement methods scale: seconds over the size of a graph, and the exponent, for every method of the table.

    python -m benchmarks.placers [--methods all] [--gpus 4] [--sizes 1000,10000,100000,1000000] [--out FILE]

Graphs are random layers of 20 tasks, each of which reads two of the layer before, on equal GPUs; times are of the
method alone (`place`), on one core, after compilation. A method that takes more than `--most` seconds at one size is
not tried at the next. The exponent is the slope of log seconds over log tasks between the two largest sizes that it
was tried at.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

from solvers.heuristics.methods import PLACERS, NoRoomError, Place
from solvers.instances.plain import layered
from solvers.problem import Problem
from solvers.result import Options

WIDTH = 20


def main() -> None:
    """Print the table, a method a row, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="all")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--most", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = list(PLACERS) if asked.methods == "all" else asked.methods.split(",")
    sizes = [int(size) for size in asked.sizes.split(",")]
    problems = {size: _problem(size, asked.gpus) for size in sizes}
    print(f"| method on {asked.gpus} GPUs | {' | '.join(f'{size} tasks, s' for size in sizes)} | exponent |")
    print(f"|---|{'---:|' * (len(sizes) + 1)}")
    result = {}
    for name in names:
        result[name] = _seconds(name, problems, asked.most)
        cells = [f"{result[name][size]:.3g}" if size in result[name] else "-" for size in sizes]
        print(f"| {name} | {' | '.join(cells)} | {_exponent(result[name])} |", flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _problem(tasks: int, gpus: int) -> Problem:
    rng = np.random.default_rng(0)
    return layered(rng, max(2, tasks // WIDTH), WIDTH, gpus=gpus, transfer=5, longest=30)


def _seconds(name: str, problems: dict[int, Problem], limit: float) -> dict[int, float]:
    method, options = PLACERS[name].load(), Options(seconds=limit)
    _timed(method, _problem(200, 2), options)  # compiles
    result: dict[int, float] = {}
    for size, problem in problems.items():
        result[size] = _timed(method, problem, options)
        if result[size] > limit:
            break
    return result


def _timed(method: Place, problem: Problem, options: Options) -> float:
    began = time.process_time()
    try:
        method(problem, options)
    except NoRoomError:
        return math.nan
    return time.process_time() - began


def _exponent(seconds: dict[int, float]) -> str:
    if len(seconds) < 2:
        return "-"
    (small, first), (large, last) = list(seconds.items())[-2:]
    return f"{math.log(last / first) / math.log(large / small):.2f}"


if __name__ == "__main__":
    main()
