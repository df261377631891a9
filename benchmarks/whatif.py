"""Seconds to a good plan after a change of cluster or graph, from scratch and from the plan before the change.

    pesto import --model nmt -o nmt.json
    python benchmarks/whatif.py nmt.json@v100x2-nvlink nmt.json@v100x4 nmt.json@v100x2-nvlink --time-limit 60

Each case is GRAPH@CLUSTER. The first is solved; every later one is solved from scratch, then from the plan of the case
before it that was solved from scratch. Printed are the seconds, measured, until a plan is within 1 % of what the solve
from scratch ends with, the first plan, and the predicted step times.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from pesto.inputs.load import load_cluster, load_costs, load_graph
from pesto.plans.plan import Plan
from pesto.settings import Settings
from pesto.solving.flow import solve
from pesto.solving.tracker import Incumbent
from pesto.source import Source

NEAR = 1.01
HEAD = ("case", "how", "first plan ms", "after s", "within 1 % after s", "step ms", "to scratch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """One solve and the plans on its way."""

    plan: Plan
    heard: list[Incumbent]

    def seconds_to(self, makespan_s: float) -> str:
        """When the first plan that is as good was there."""
        found = [each.seconds for each in self.heard if each.makespan_s <= makespan_s]
        return f"{found[0]:.2f}" if found else "never"


def run(case: str, settings: Settings, start: Plan | None) -> Solved:
    """Solve GRAPH@CLUSTER."""
    file, cluster = case.rsplit("@", 1)
    graph, machine = load_graph(Source(file=Path(file))), load_cluster(cluster)
    heard: list[Incumbent] = []
    costs = load_costs(graph, machine, None)
    return Solved(plan=solve(graph, machine, costs, settings, heard.append, start).plan, heard=heard)


def line(case: str, how: str, solved: Solved, scratch: Solved) -> str:
    """A row of the table."""
    wanted, first = scratch.plan.makespan_s, solved.heard[0]
    cells = (
        case, how, f"{first.makespan_s * 1e3:.1f}", f"{first.seconds:.2f}", solved.seconds_to(wanted * NEAR),
        f"{solved.plan.makespan_s * 1e3:.1f}", f"{solved.plan.makespan_s / wanted:.3f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="GRAPH@CLUSTER")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    settings = Settings(time_limit_s=asked.time_limit, seed=asked.seed)
    run(asked.cases[0], Settings(time_limit_s=0), None)  # compiles, or reads what was compiled
    before = run(asked.cases[0], settings, None)
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    for case in asked.cases[1:]:
        scratch = run(case, settings, None)
        print(line(case, "scratch", scratch, scratch), flush=True)
        print(line(case, "start", run(case, settings, before.plan), scratch), flush=True)
        before = scratch


if __name__ == "__main__":
    main()
