"""The bound of full graphs: what anchors add to the fast bounds, and in how many seconds, as one Markdown table.

Run from the project's root: `python -m benchmarks.bounds_full [--cluster NAME ...] GRAPH.json[=MILLISECONDS] ...`; the
graphs are files of `pesto import`, the milliseconds a step that is known (of the first cluster).
"""

import argparse
import json
import time
from pathlib import Path

import msgspec

from pesto.files.graph_file import load
from pesto.inputs.load import load_cluster, load_costs
from pesto.problem import TICK_S, build
from solvers.bounds import quick_bounds
from solvers.bounds.certificate import follows
from solvers.bounds.full import full_bound
from solvers.problem import Problem

COLUMNS = ("graph", "cluster", "ops", "fast ms", "bound ms", "known ms", "gap %", "seconds", "check s", "kB")


def main() -> None:
    """Print the table, each row as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", action="append", help="a preset or a file; several may be given")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the bound of one graph")
    parser.add_argument("graphs", nargs="+", metavar="GRAPH.json[=MILLISECONDS]")
    options = parser.parse_args()
    print("|", " | ".join(COLUMNS), "|")
    print("|---|---|" + "---:|" * (len(COLUMNS) - 2))
    for path, _, known in (word.partition("=") for word in options.graphs):
        for k, cluster in enumerate(options.cluster or ["v100x2-nvlink"]):
            made = float(known) if known and k == 0 else None
            cells = row(problem_of(path, cluster), options.seconds, made)
            print("|", " | ".join([Path(path).stem, cluster, *cells]), "|", flush=True)


def problem_of(path: str, cluster: str) -> Problem:
    """The full graph on modelled costs; variables alone are memory, as in `pesto.solving.flow`."""
    graph, machine = load(path), load_cluster(cluster)
    return build(graph, load_costs(graph, machine, None), machine, memory=graph.param_bytes)


def row(problem: Problem, seconds: float, known: float | None) -> list[str]:
    """The cells of one problem."""
    fast = quick_bounds.best(problem)[0]
    began = time.perf_counter()
    found = full_bound(problem, seconds=seconds)
    took, began = time.perf_counter() - began, time.perf_counter()
    if found.evidence is not None and follows(problem, found.evidence) != found.ticks:
        raise AssertionError("the evidence does not prove the bound")
    checked = time.perf_counter() - began
    size = len(json.dumps(msgspec.to_builtins(found.evidence))) / 1e3
    best = found.ticks * TICK_S * 1e3
    gap = ("-", "-") if known is None else (f"{known:.1f}", f"{100 * (known - best) / known:.1f}")
    times = (f"{took:.1f}", f"{checked:.2f}", f"{size:.0f}")
    return [str(problem.tasks), f"{fast * TICK_S * 1e3:.1f}", f"{best:.1f}", *gap, *times]


if __name__ == "__main__":
    main()
