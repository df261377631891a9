"""How far each idea moves the lower bound, by instance: gaps to the best makespan known, as one Markdown table.

Run from the project's root: `python -m benchmarks.bounds [--seconds 20] [--only TEXT] [PROBLEM.json=MAKESPAN ...]`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from solvers.bounds import quick_bounds
from solvers.bounds.distances import DistanceArguments
from solvers.bounds.strong import segments, strong
from solvers.files.problem_json import load_problem
from solvers.instances import table
from solvers.problem import Problem

PATHS = DistanceArguments(work=False, transfers=False, forced=False, spread=False, memory=False)
SEGMENTS = {
    "work": PATHS._replace(work=True),
    "transfers": PATHS._replace(work=True, transfers=True),
    "forced": PATHS._replace(work=True, transfers=True, forced=True),
    "spread": DistanceArguments(memory=False),
    "memory": DistanceArguments(),
}
"""Each adds one argument to those before it."""
REFUTING = ("refuted", "energetic", "probed")

INSTANCES: tuple[tuple[str, int, dict[str, int], int], ...] = (
    ("lstm-grid", 0, {"layers": 4, "steps": 20, "gpus": 2}, 279),
    ("lstm-grid", 0, {"layers": 4, "steps": 20, "gpus": 2, "backward": 2}, 399),
    ("lstm-grid", 0, {"layers": 4, "steps": 20, "gpus": 4}, 151),
    ("lstm-grid", 0, {"layers": 4, "steps": 20, "gpus": 4, "backward": 2}, 219),
    ("lstm-grid", 0, {"layers": 2, "steps": 10, "gpus": 2, "transfer": 3}, 84),
    ("lstm-grid", 0, {"layers": 3, "steps": 5, "gpus": 3, "transfer": 3}, 60),
    ("lstm-grid", 0, {"layers": 2, "steps": 6, "gpus": 2, "transfer": 6}, 75),
    ("lstm-grid", 0, {"layers": 2, "steps": 10, "gpus": 2, "transfer": 9}, 126),
    ("transformer", 0, {"layers": 1, "heads": 4, "gpus": 2}, 168),
    ("transformer", 0, {"layers": 2, "heads": 4, "gpus": 2}, 314),
    ("transformer", 0, {"layers": 2, "heads": 4, "gpus": 4}, 286),
    ("transformer", 0, {"layers": 2, "heads": 4, "gpus": 4, "transfer": 4}, 304),
    ("transformer", 0, {"layers": 2, "heads": 4, "gpus": 2, "transfer": 8}, 338),
    ("transformer", 0, {"layers": 4, "heads": 8, "gpus": 4, "transfer": 4}, 1100),
    ("layered", 3, {"layers": 10, "width": 5, "gpus": 4, "longest": 9, "transfer": 6}, 103),
    ("layered", 4, {"layers": 5, "width": 4, "gpus": 2, "longest": 5, "transfer": 12}, 47),
    ("series-parallel", 1, {"tasks": 50, "gpus": 4}, 144),
    ("series-parallel", 2, {"tasks": 50, "gpus": 4, "transfer": 9}, 158),
    ("series-parallel", 3, {"tasks": 30, "gpus": 3, "transfer": 20}, 148),
    ("series-parallel", 4, {"tasks": 100, "gpus": 2, "transfer": 9}, 337),
    ("fork", 0, {"tasks": 30, "gpus": 4, "transfer": 5}, 23),
    ("heterogeneous", 0, {"layers": 4, "width": 4, "gpus": 2}, 82),
    ("heterogeneous", 1, {"layers": 6, "width": 6, "gpus": 4}, 96),
    ("heterogeneous", 2, {"layers": 4, "width": 3, "gpus": 2, "transfer": 9}, 82),
)
"""Family, seed, parameters, and the least makespan known (of CP-SAT within a minute, or by construction)."""


def main() -> None:
    """Print the table, the header first and each row as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for all refuting ideas of an instance together")
    parser.add_argument("--only", default="", help="instances whose name has this text")
    parser.add_argument("files", nargs="*", metavar="PROBLEM.json=MAKESPAN")
    options = parser.parse_args()
    columns = ["instance", "tasks", "known", "fast", *SEGMENTS, *REFUTING, "bound", "seconds"]
    print("|", " | ".join(columns), "|")
    print("|---|" + "---:|" * (len(columns) - 1))
    for name, problem, known in instances(options.files):
        if options.only in name:
            print("|", " | ".join([name, *row(problem, known, options.seconds)]), "|", flush=True)


def instances(files: list[str]) -> Iterator[tuple[str, Problem, int]]:
    """Those of the files when there are any, or else of the families: name, problem, best makespan known."""
    for path, known in (word.rsplit("=", 1) for word in files):
        yield Path(path).stem, load_problem(Path(path)), int(known)
    for family, seed, parameters, known in INSTANCES if not files else ():
        words = [f"{key} {value}" for key, value in parameters.items()]
        yield f"{family} {', '.join(words)}", table.make(family, seed, **parameters), known


def row(problem: Problem, known: int, seconds: float) -> list[str]:
    """The cells of one instance: gaps in per cent, `-` for no gain on the best before it."""
    best = quick_bounds.best(problem)[0]
    cells = [str(problem.tasks), str(known), gap(best, known)]
    took = time.process_time()
    for arguments in SEGMENTS.values():
        best = note(cells, best, known, partial(segments, problem, known, arguments))
    result = strong(problem, upper=known, seconds=seconds)
    by_name = {tried.name: tried.ticks for tried in result.tried}
    for name in REFUTING:
        best = note(cells, best, known, partial(by_name.get, name, best))
    return [*cells, str(best), f"{time.process_time() - took:.1f}"]


def note(cells: list[str], best: int, known: int, idea: Callable[[], int]) -> int:
    """Add the cell of an idea and return the best bound with it."""
    ticks = idea()
    cells.append(gap(ticks, known) if ticks > best else "-")
    return max(best, ticks)


def gap(ticks: int, known: int) -> str:
    """How far a bound is below a makespan."""
    return f"{100 * (known - ticks) / known:.1f}"


if __name__ == "__main__":
    main()
