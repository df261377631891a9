"""Takes a random layered graph file of 200 000 ops to a checked plan; prints seconds and memory of each command.

python benchmarks/large_graph.py [ops] [cluster]
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH = 40


def main() -> None:
    """Write the file, solve it, check it."""
    ops = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    cluster = sys.argv[2] if len(sys.argv) > 2 else "v100x2-nvlink"
    with tempfile.TemporaryDirectory() as folder:
        graph, plan = Path(folder, "graph.json"), Path(folder, "plan.json")
        graph.write_text(json.dumps(_layered(ops)))
        print(f"{ops} ops, {graph.stat().st_size / 1e6:.0f} MB")
        solved = _timed("solve", "--graph", graph, "--cluster", cluster, "--time-limit", "60", "--json", "-o", plan)
        print({key: solved[key] for key in ("makespan_s", "lower_bound_s", "chosen", "coarse_ops", "stages_s")})
        print(_timed("check", plan, "--graph", graph, "--cluster", cluster, "--json"))


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


def _timed(*arguments: object) -> dict[str, object]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "pesto", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"{arguments[0]}: exit {done.returncode}, {time.perf_counter() - began:.1f} s, at most {peak:.2f} GB")
    found: dict[str, object] = json.loads(done.stdout or "{}")
    return found or {"error": done.stderr}


if __name__ == "__main__":
    main()
