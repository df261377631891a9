"""What the first solve on a machine takes, against one that finds everything compiled.

    python benchmarks/cold.py [--model rnnlm --variant tiny --time-limit 3 --cluster v100x2-nvlink] [--json]

In a copy of the packages whose cache is empty: a cold solve, the rest of the compilation, a warm solve; and in another
copy the whole compilation alone. Compilation and search share the machine's cores, so the load is printed, too.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pesto.cli.terminal import Terminal
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.flow import solve
from pesto.planning.solving.tracker import Incumbent
from pesto.verbs.plan_step import read_step

ROOT = Path(__file__).resolve().parents[1]
COMPILE = ("-m", "pesto.verbs.compiling")


def main() -> None:
    """Print the measurements."""
    given = _parser().parse_args()
    if given.here:
        print(json.dumps(one(given)))
        return
    with tempfile.TemporaryDirectory() as folder:
        copies = [_copy(Path(folder, name)) for name in ("solves", "compiles")]
        here = [str(Path(__file__).resolve()), "--here", *sys.argv[1:]]
        cold = _run(copies[0], *here)
        _run(copies[0], *COMPILE)
        warm = _run(copies[0], *here)
        alone = _run(copies[1], *COMPILE)
    result = {
        "first_plan_s": cold["first_plan_s"],
        "graph_s": cold["graph_s"],
        "wall_s": cold["wall_s"],
        "compile_wall_s": alone["wall_s"],
        "compile_cpu_s": alone["cpu_s"],
        "makespan_cold_s": cold["makespan_s"],
        "makespan_warm_s": warm["makespan_s"],
        "first_plan_warm_s": warm["first_plan_s"],
        "wall_warm_s": warm["wall_s"],
        "load": os.getloadavg()[0],
    }
    print(json.dumps(result) if given.json else "\n".join(f"{name:18} {value:.4g}" for name, value in result.items()))


def one(arguments: argparse.Namespace) -> dict[str, float]:
    """One solve in this process, as `pesto solve` does it: seconds in all, and from the graph to the first plan."""
    began, first = time.perf_counter(), 0.0
    graph = read_step(Source(model=arguments.model, variant=arguments.variant), Terminal(quiet=True))
    read = time.perf_counter()

    def watch(_: Incumbent) -> None:
        nonlocal first
        first = first or time.perf_counter() - read

    cluster = load_cluster(arguments.cluster)
    settings = Settings(time_limit_s=arguments.time_limit)
    plan = solve(graph, cluster, load_costs(graph, cluster, None), settings, watch).plan
    wall = time.perf_counter() - began
    return {"first_plan_s": first, "graph_s": read - began, "wall_s": wall, "makespan_s": plan.makespan_s}


def _run(copy: Path, *words: str) -> dict[str, Any]:
    """A Python process on the copy: what it printed as its last line, its seconds and those of the processors."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(copy / "compiled")}
    with subprocess.Popen(
        [sys.executable, *words], env=environment, cwd=copy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # with stdin left open, at whose end a compilation ends
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{words[0]} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": time.perf_counter() - began, "cpu_s": cpu, **json.loads(lines[-1])}


def _copy(folder: Path) -> Path:
    for package in ("pesto", "solvers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="rnnlm")
    parser.add_argument("--variant", default="tiny")
    parser.add_argument("--cluster", default="v100x2-nvlink")
    parser.add_argument("--time-limit", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
