"""Takes random layered graph files to checked plans: seconds of every stage, memory, and how both grow with the ops.

    python benchmarks/large_graph.py [--sizes 1000,10000,100000,1000000] [--cluster v100x8] [--time-limit 20]

An exponent is the slope of log seconds (or GB beyond those of an empty Python) over log ops between the two largest
sizes. `solve` and `search` end by the clock, which `--time-limit` sets; everything else is work.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH = 40
LIMITED = ("solve", "search")


def main() -> None:
    """Write, solve and check a graph of each size, smallest first; print a table, a stage a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--cluster", default="v100x8")
    parser.add_argument("--time-limit", default="20")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    columns = [_measured(size, asked.cluster, asked.time_limit) for size in sizes]
    print(f"| stage | {' | '.join(f'{size} ops' for size in sizes)} | exponent |")
    print(f"|---|{'---:|' * (len(sizes) + 1)}")
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name) for column in columns]
        cells = ["-" if value is None else f"{value:.2f}" for value in values]
        print(f"| {name} | {' | '.join(cells)} | {_exponent(name, sizes, values)} |")


def _measured(ops: int, cluster: str, limit: str) -> dict[str, float]:
    """Seconds of each stage, of the commands, and GB."""
    with tempfile.TemporaryDirectory() as folder:
        graph, plan = Path(folder, "graph.json"), Path(folder, "plan.json")
        graph.write_text(json.dumps(_layered(ops)))
        asked = ("--graph", graph, "--cluster", cluster, "--json")
        solved, solve_s = _timed("solve", *asked, "-q", "--time-limit", limit, "-o", plan)
        checked, check_s = _timed("check", plan, *asked, "--certificate")
    print(f"{ops} ops: step {solved['makespan_s']:.4f} s by {solved['chosen']}, gap {solved['gap']:.1%}, {checked}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    return {**solved["stages_s"], "pesto solve": solve_s, "pesto check": check_s, "GB": peak}


def _layered(ops: int) -> dict[str, object]:
    """Layers of 40 ops of 1 to 50 us that read 1 to 3 ops of the layer before; a few in a hundred read further back."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(ops):
        first = max(0, (k // WIDTH - (1 if rng.random() > 0.03 else 50)) * WIDTH)
        before = [] if k < WIDTH else np.unique(rng.integers(first, first + WIDTH, rng.integers(1, 4))).tolist()
        rows.append(
            {"name": f"op{k}", "inputs": [f"op{b}" for b in before], "outputs": [int(rng.integers(1e3, 1e6))],
             "runs_on": ["gpu"], "time_s": {"gpu": float(rng.integers(1, 50)) * 1e-6}}
        )  # fmt: skip
    return {"format": "pesto-graph", "format_version": 1, "source": f"layered {ops}", "ops": rows}


def _timed(*arguments: object) -> tuple[dict[str, object], float]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "pesto", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{arguments[0]}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), time.perf_counter() - began


def _exponent(name: str, sizes: list[int], values: list[float | None]) -> str:
    """The slope between the two largest sizes; none where the clock ends a stage, or for what is too short to tell."""
    before, last = values[-2:] if len(values) > 1 else (None, None)
    if name in LIMITED or not last or not before or before < 0.005:
        return "-"
    return f"{math.log(last / before) / math.log(sizes[-1] / sizes[-2]):.2f}"


if __name__ == "__main__":
    main()
