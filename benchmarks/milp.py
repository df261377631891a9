"""Integer programs side by side: `tight` against `paper`, and what a solver makes of its warm start.

Run from the project's root, each at most 15 minutes for a solver:

    python -m benchmarks.milp formulations --solver highs --out formulations.jsonl
    python -m benchmarks.milp starts --solver cbc --out starts.jsonl
    python -m benchmarks.milp kept --solver cbc --out kept.jsonl
    python -m benchmarks.milp build

`kept` takes the problems of the shipped studies, and coarse training steps of which a program has 50 000 rows and more:
what a vendor has found when its limit strikes, and the CPU seconds that it had, since others may load the machine.

Every finished cell is a line of the file. A run that is started again does the cells that are missing, and prints the
table of all. The start is the list schedule; instances where that is proven to be optimal before any program is
solved say nothing and are left out. `build` is what PuLP, as the modeller of the paper's program, costs beside arrays:
CPU seconds until the sparse arrays are there, on LSTM grids with a payload an edge; nothing is solved.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pesto.research.study import cells
from pesto.research.study.execute import InstanceCache
from pesto.research.study.spec import load_study
from solvers.api import solve
from solvers.instances.plain import lstm_grid
from solvers.instances.plain import per_edge as per_edge_of
from solvers.instances.table import make
from solvers.milp.formulations import MakespanLimits, formulate
from solvers.problem import Problem
from solvers.result import Options, Result
from solvers.structure.units import serial

SECONDS = {"formulations": 10.0, "starts": 60.0, "kept": 20.0}
FORMULATIONS = {"formulations": ("tight", "paper"), "starts": ("tight",), "kept": ("tight",)}


class FamilyProblem(NamedTuple):
    """A problem of a family."""

    family: str
    seed: int
    parameters: dict[str, int]

    @property
    def name(self) -> str:
        """Family, parameters and seed."""
        return " ".join([self.family, *(f"{key}={value}" for key, value in self.parameters.items()), f"#{self.seed}"])

    def problem(self) -> Problem:
        """The problem itself."""
        return make(self.family, self.seed, **self.parameters)


class Shipped(NamedTuple):
    """A problem as studies name it."""

    instance: cells.Instance

    @property
    def name(self) -> str:
        """The name that tables show."""
        return self.instance.label

    def problem(self) -> Problem:
        """The problem itself."""
        return InstanceCache().posed(self.instance).problem


def shipped() -> Iterator[Shipped]:
    """What the studies of solvers solve, and coarse graphs of NMT on two GPUs with the cores of their host."""
    named = [cell.instance for study in ("solvers", "solvers-models") for cell in cells.cells_of(load_study(study))]
    yield from map(Shipped, {instance.label: instance for instance in named}.values())
    for variant, nodes in (("tiny", 40), ("tiny", 200), ("2x1024", 200)):
        step = {"model": "nmt", "variant": variant, "cluster": "v100x2-nvlink", "path": b"v100x2-nvlink"}
        yield Shipped(cells.TrainingInstance(**step, sha256="", nodes=nodes, batch=None, per_edge=False))


def per_edge() -> Iterator[FamilyProblem]:
    """Problems with a transfer for each edge, so that both programs are exact for them."""
    for layers, steps, gpus in (
        (2, 2, 2), (2, 3, 2), (2, 4, 2), (2, 6, 2), (3, 3, 2), (3, 4, 2), (4, 3, 2), (2, 3, 3), (2, 4, 3), (3, 3, 4),
    ):  # fmt: skip
        yield FamilyProblem("lstm-grid", 0, {"layers": layers, "steps": steps, "gpus": gpus, "per_edge": 1})
    for layers, heads, gpus in ((1, 1, 2), (1, 2, 2), (1, 4, 2), (1, 1, 3), (1, 2, 3), (2, 1, 2), (2, 2, 2)):
        yield FamilyProblem("transformer", 0, {"layers": layers, "heads": heads, "gpus": gpus, "per_edge": 1})
    for seed in range(8):
        yield FamilyProblem("random", seed, {"tasks": 16, "gpus": 2, "per_edge": 1})
        yield FamilyProblem("layered", seed, {"layers": 4, "width": 4, "gpus": 2, "longest": 5, "per_edge": 1})
        yield FamilyProblem("heterogeneous", seed, {"layers": 2, "width": 3, "gpus": 2, "per_edge": 1})


def training_steps() -> Iterator[FamilyProblem]:
    """LSTM grids and transformers of at most 60 tasks, a payload once for each target."""
    for layers, steps, gpus, backward in (
        (2, 4, 2, 1), (2, 6, 2, 2), (2, 8, 3, 1), (2, 11, 2, 1), (2, 11, 4, 2), (3, 4, 3, 1), (3, 6, 2, 1),
        (3, 8, 4, 1), (4, 4, 3, 2), (4, 6, 3, 1), (4, 6, 2, 2),
    ):  # fmt: skip
        yield FamilyProblem("lstm-grid", 0, {"layers": layers, "steps": steps, "gpus": gpus, "backward": backward})
    for layers, heads, gpus in ((1, 1, 2), (1, 4, 3), (1, 6, 2), (2, 1, 2), (2, 2, 3)):
        yield FamilyProblem("transformer", 0, {"layers": layers, "heads": heads, "gpus": gpus})


INSTANCES = {"formulations": per_edge, "starts": training_steps, "kept": shipped}


def cell(instance: FamilyProblem | Shipped, solver: str, formulation: str, seconds: float) -> dict[str, Any] | None:
    """One solve from the list schedule; None where that is optimal, or there is none."""
    problem = instance.problem()
    first = solve(problem, "list", Options())
    if first.schedule is None or first.schedule.makespan == first.lower_bound:
        return None
    options = Options(seconds=seconds, start=first.schedule, formulation=formulation)
    told: list[tuple[float, int]] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = solve(
        problem, solver, options, report=lambda p: told.append((p.seconds, p.schedule.makespan)) if p.schedule else None
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "instance": instance.name, "tasks": problem.tasks, "solver": solver, "formulation": formulation,
        "limit": seconds, "start": first.schedule.makespan, "least": first.lower_bound, **answer(result),
        "better": next((round(at, 1) for at, span in told if span < first.schedule.makespan), None),
        "cpu": round(cpu, 1), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def answer(result: Result) -> dict[str, Any]:
    """What a result says, as plain values."""
    return {
        "status": str(result.status), "makespan": result.schedule.makespan if result.schedule else None,
        "bound": result.lower_bound, "by": result.bound_by, "seconds": round(result.seconds, 1),
        "detail": result.detail,
    }  # fmt: skip


def closed(row: dict[str, Any]) -> float:
    """The part of the gap in ticks, between list schedule and bound, that a solve has closed."""
    return 1.0 - (row["makespan"] - row["bound"]) / (row["start"] - row["least"])


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The cells that are done; a last line that was cut off does not count."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def fill(table: str, solver: str, seconds: float, file: Path) -> None:
    """Do what is missing in a file."""
    if file.exists() and not file.read_text().endswith("\n"):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows_of(file)))
    done = {(row["instance"], row["solver"], row["formulation"], row["limit"]) for row in rows_of(file)}
    for instance in INSTANCES[table]():
        for formulation in FORMULATIONS[table]:
            if (instance.name, solver, formulation, seconds) not in done:
                row = cell(instance, solver, formulation, seconds)
                with file.open("a") as out:
                    out.write("" if row is None else f"{json.dumps(row)}\n")


def compare(rows: list[dict[str, Any]]) -> None:
    """`tight` against `paper`, a line an instance."""
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        result.setdefault(row["instance"], {})[row["formulation"]] = row
    both = {name: pair for name, pair in result.items() if len(pair) == 2}
    print("| instance | tasks | list, bound | tight | paper | closed: tight | paper |\n|---|---|---|---|---|---|---|")
    for name, pair in both.items():
        tight, paper = pair["tight"], pair["paper"]
        print(
            f"| {name} | {tight['tasks']} | {tight['start']}, {tight['least']} | {_ends(tight)} | {_ends(paper)} "
            f"| {closed(tight):.2f} | {closed(paper):.2f} |"
        )
    for formulation in ("tight", "paper"):
        mine = [pair[formulation] for pair in both.values()]
        solved = sum(row["status"] == "optimal" for row in mine)
        mean = sum(map(closed, mine)) / max(1, len(mine))
        print(f"{formulation}: {solved} of {len(mine)} solved, {mean:.2f} of the gap closed in the mean")


def improved(rows: list[dict[str, Any]]) -> None:
    """What became of each warm start."""
    print("| instance | tasks | list, bound | after | first better, s |\n|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['instance']} | {row['tasks']} | {row['start']}, {row['least']} | {_ends(row)} | {row['better']} |"
        )
    better = sum(row["makespan"] < row["start"] for row in rows)
    same = sum(row["status"] == "optimal" and row["makespan"] == row["start"] for row in rows)
    print(f"{better} of {len(rows)} starts are improved, {same} more are proven to be optimal")


def kept(rows: list[dict[str, Any]]) -> None:
    """What each solve has when its limit strikes: the parts of the makespan that were gained and are open."""
    print("| instance | tasks | list | after, bound, seconds | below the list | gap | CPU s | load | lost |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for row in rows:
        gained, gap = 1 - row["makespan"] / row["start"], 1 - row["bound"] / row["makespan"]
        print(
            f"| {row['instance']} | {row['tasks']} | {row['start']} | {_ends(row)} | {gained:.1%} | {gap:.1%} "
            f"| {row['cpu']} | {row['load']} | {'lost' if 'lost' in row['detail'] else ''} |"
        )
    better, lost = (
        sum(map(test, rows)) for test in (lambda r: r["makespan"] < r["start"], lambda r: "lost" in r["detail"])
    )
    print(f"{better} of {len(rows)} are better than the list schedule; of {lost} something was lost")


def build_times(rounds: int) -> None:
    """The least CPU seconds of some rounds to build `paper` and `pulp`, a line a grid; and how busy the machine is."""
    print("| grid | tasks | columns | rows | paper, CPU s | pulp, CPU s | pulp / paper | us a row |")
    print("|---" * 8 + "|")
    for layers, steps in ((2, 2), (2, 4), (3, 4), (4, 5), (5, 6), (6, 8), (8, 11)):
        problem = per_edge_of(lstm_grid(layers, steps))
        limits, took = MakespanLimits(least=0, most=serial(problem)), {}
        for name in ("paper", "pulp"):
            cpu = []
            for _ in range(rounds):
                began = time.process_time()
                linear = formulate(problem, name, limits).linear
                cpu.append(time.process_time() - began)
            took[name] = min(cpu)
        paper, pulp = took["paper"], took["pulp"]
        print(
            f"| {layers}x{steps} | {problem.tasks} | {linear.columns} | {linear.rows} | {paper:.4f} | {pulp:.3f} "
            f"| {pulp / paper:.0f} | {pulp / linear.rows * 1e6:.0f} |", flush=True,
        )  # fmt: skip
    print("load of the last minute, of so many cores:", round(os.getloadavg()[0], 1), os.cpu_count())


def _ends(row: dict[str, Any]) -> str:
    mark = "" if row["status"] in ("optimal", "feasible") else f" ({row['status']})"
    return f"{row['makespan']}, {row['bound']}, {row['seconds']:.0f} s{mark}"


def main() -> None:
    """Parse the arguments, do the missing cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=[*sorted(INSTANCES), "build"])
    parser.add_argument("--solver", default="cbc")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--out", type=Path, help="of solves: the file of cells")
    parser.add_argument("--rounds", type=int, default=3, help="of build")
    given = parser.parse_args()
    if given.table == "build":
        build_times(given.rounds)
        return
    if given.out is None:
        parser.error("--out FILE is where the cells are kept")
    seconds = given.seconds or SECONDS[given.table]
    fill(given.table, given.solver, seconds, given.out)
    rows = [row for row in rows_of(given.out) if row["solver"] == given.solver and row["limit"] == seconds]
    {"formulations": compare, "starts": improved, "kept": kept}[given.table](rows)


if __name__ == "__main__":
    main()
