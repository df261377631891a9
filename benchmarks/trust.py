"""CPU seconds of drawing errors for a step's quick candidates, and what is found of the shortest of them.

    pesto import --model nmt -o nmt.json
    python benchmarks/trust.py nmt.json@v100x2-nvlink --draws 100

Each case is GRAPH@CLUSTER. Printed are ops, CPU seconds of making the rivals and of the draws (the second of two runs,
which compiles nothing), and of the shortest its step without errors, p10, p50, p90 and how often it stays the shortest;
all modelled.
"""

import argparse
import time
from pathlib import Path

from pesto.inputs.load import load_cluster, load_costs, load_graph
from pesto.solving.trust import Errors, remade, trust
from pesto.source import Source
from pesto.whatif.rerun import bench_of

HEAD = ("case", "ops", "rivals CPU s", "draws CPU s", "step ms", "p10 ms", "p50 ms", "p90 ms", "stays best")


def row(case: str, errors: Errors) -> tuple[str, ...]:
    """One case."""
    file, name = case.rsplit("@", 1)
    graph, cluster = load_graph(Source(file=Path(file))), load_cluster(name)
    bench = bench_of(graph, cluster, load_costs(graph, cluster, None), per_edge=False)
    for _ in range(2):
        began = time.process_time()
        made = list(remade(bench, cluster))
        then = time.process_time()
        found = trust(bench, cluster, min((c for c in made if c.fits), key=lambda c: c.makespan), made, errors)
        ended = time.process_time()
    plan = found.plan
    times = (f"{1e3 * s:.1f}" for s in (plan.step_s, plan.p10_s, plan.p50_s, plan.p90_s))
    return (case, str(graph.ops), f"{then - began:.2f}", f"{ended - then:.2f}", *times, f"{plan.best:.2f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="GRAPH@CLUSTER")
    parser.add_argument("--noise", type=float, default=0.25)
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    errors = Errors(noise=given.noise, draws=given.draws)
    for cells in (HEAD, ["---"] * len(HEAD), *(row(case, errors) for case in given.cases)):
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
