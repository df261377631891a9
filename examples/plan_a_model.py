"""Plan a training step from Python: solve it, verify and save the plan, and ask what other machines would give.

    python plan_a_model.py step.json

step.json is a graph file (docs/reference/graph-file.md): `pesto import --model nmt --variant tiny -o step.json`.
Every option of these functions is in docs/reference/api.md; an editor completes them, a type checker knows them.
"""

import sys
from pathlib import Path

import pesto


def told(incumbent: pesto.Incumbent) -> None:
    """One line for each better plan."""
    print(f"  {incumbent.name:15s} {incumbent.makespan_s * 1e3:.3f} ms after {incumbent.seconds:.1f} s")


def planned(graph: pesto.Graph, out: Path) -> pesto.Plan:
    """The plan for two V100s, saved and read again."""
    plan = pesto.solve(graph, cluster="v100x2-nvlink", on_incumbent=told, time_limit_s=3, workers=2)
    pesto.save_plan(plan, out)
    again = pesto.load_plan(out)
    pesto.check(again, graph)
    return again


def main(file: Path, out: Path) -> None:
    """Plan the step in `file`, and say what the plan is worth."""
    graph = pesto.load_graph(file)
    print(graph)
    plan = planned(graph, out)
    print(plan)
    over_pcie = pesto.simulate(plan, graph, cluster="v100x2-pcie")
    times = over_pcie.makespan_s / plan.makespan_s
    print(f"over PCIe the same plan takes {times:.2f} times as long; {over_pcie.busy_s}")
    for entry in pesto.compare(graph, methods=["single", "expert", "list"]).ranked():
        print(f"  {entry.method:15s} {entry.status}")
    swept = pesto.sweep(graph, links=[0.1, 1, 10], time_limit_s=0)
    best = min(row.plan.makespan_s for row in swept.rows if row.plan is not None)
    print(f"faster links would give {best * 1e3:.3f} ms at best")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path("plan.json"))
    except (IndexError, pesto.PestoError) as error:
        sys.exit(f"{error}" if isinstance(error, pesto.PestoError) else __doc__)
