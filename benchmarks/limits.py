"""Measure `pesto solve` at time limits, alone and beside busy loops: its seconds, and the plans' step times.

    python -m benchmarks.limits [--models nmt,wrn,rnnlm,transformer] [--variant tiny] [--limits 10] [--loops 12]
        [--cluster v100x2-nvlink] [--imported]

A markdown row for each solve: at half of each limit and the limit with nothing beside it, then at the limit beside so
many busy loops. `load` is the machine's, at the end of the solve. `reading` is the stage `graph`, `start` what the
program took to load, `stages` all others; `over` is the wall less the reading and the limit. `worse` is by how much the
step is longer than that of half the limit alone. --imported: each model is read once, into a graph file.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PESTO = (sys.executable, "-m", "pesto")
COLUMNS = ("model", "limit", "loops", "load", "start", "reading", "stages", "wall", "over", "CPU", "step", "worse")
LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6):
        pass
"""


class MeasuredSolve(NamedTuple):
    """One solve: seconds of its parts, and of a step of its plan."""

    start_s: float
    reading_s: float
    stages_s: float
    wall_s: float
    cpu_s: float
    step_s: float
    load: float


def main() -> None:
    """Print the table."""
    given = _parser().parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models.split(","):
            named = ["--model", model, *(["--variant", given.variant] if given.variant else [])]
            if given.imported:
                file = str(Path(folder, f"{model}.json"))
                subprocess.run([*PESTO, "import", *named, "-q", "-o", file], check=True, capture_output=True)
                named = ["--graph", file]
            for limit in map(float, given.limits.split(",")):
                words = [*named, "--cluster", given.cluster, "-o", str(Path(folder, "plan.json"))]
                half = solved(words, limit / 2)
                print(row(model, limit / 2, 0, half, half), flush=True)
                print(row(model, limit, 0, solved(words, limit), half), flush=True)
                with busy(given.loops):
                    print(row(model, limit, given.loops, solved(words, limit), half), flush=True)


def solved(words: Sequence[str], limit: float) -> MeasuredSolve:
    """Run one solve in a process of its own."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [*PESTO, "solve", *words, "--time-limit", f"{limit:g}", "--json", "-q"], check=True, capture_output=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads(done.stdout)
    stages = said["stages_s"]
    start, reading = stages.pop("start"), stages.pop("graph")
    return MeasuredSolve(
        start_s=start,
        reading_s=reading,
        stages_s=sum(stages.values()),
        wall_s=wall,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        step_s=said["makespan_s"],
        load=os.getloadavg()[0],
    )


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run so many loops beside what is inside, each in a session of its own: Linux shares processors among sessions."""
    running = [subprocess.Popen([sys.executable, "-c", LOOP], start_new_session=True) for _ in range(loops)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def row(model: str, limit: float, loops: int, solve: MeasuredSolve, half: MeasuredSolve) -> str:
    """One line of the table."""
    seconds = (solve.start_s, solve.reading_s, solve.stages_s, solve.wall_s, solve.wall_s - solve.reading_s - limit)
    cells = [
        model, f"{limit:g} s", str(loops), f"{solve.load:.1f}", *(f"{each:.1f}" for each in seconds),
        f"{solve.cpu_s:.1f}", f"{solve.step_s * 1e3:.2f} ms", f"{solve.step_s / half.step_s - 1.0:+.1%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _parser() -> argparse.ArgumentParser:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--models", default="nmt,wrn,rnnlm,transformer")
    asked.add_argument("--variant")
    asked.add_argument("--limits", default="10")
    asked.add_argument("--loops", type=int, default=12)
    asked.add_argument("--cluster", default="v100x2-nvlink")
    asked.add_argument("--imported", action="store_true")
    return asked


if __name__ == "__main__":
    main()
