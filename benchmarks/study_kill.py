"""A study that is killed and resumed, compared with an undisturbed run of the same study.

    python benchmarks/study_kill.py [--kills 3] [--jobs 2] [--seed N] [--folder DIR]

The study has 216 cells: list scheduling, one GPU and CP-SAT (deterministic) on 72 small problems of six families. One
file is made by a run that nobody disturbs, another by runs that end by kill -9 at random moments, of which the last
ends by itself. Every column but the times must be equal: of cells and results all, of traces the first and the best
values (what a solver's process says at once is heard as one step, so the number of steps is a matter of timing).
"""

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

STUDY = """
format_version = 1
name = "killed"
[[grid]]
solvers = ["list", "single", "cpsat"]
limits_s = [20]
deterministic = true
families = [
    { name = "layered", seeds = [0, 1, 2, 3, 4, 5], params = { layers = [3, 4], width = 4, longest = 5 } },
    { name = "series-parallel", seeds = [0, 1, 2, 3, 4, 5], params = { tasks = [12, 16] } },
    { name = "independent", seeds = [0, 1, 2, 3, 4, 5], params = { tasks = [10, 14], makespan = 100 } },
    { name = "planted", seeds = [0, 1, 2, 3, 4, 5], params = { tasks = [10, 14], makespan = 60 } },
    { name = "heterogeneous", seeds = [0, 1, 2, 3, 4, 5], params = { layers = [1, 2], width = 2 } },
    { name = "random", seeds = [0, 1, 2, 3, 4, 5], params = { tasks = [6, 8] } },
]
"""
CELLS = 216
COMPARED = {
    "study": "SELECT * FROM study",
    "cells": "SELECT * FROM cells ORDER BY ordinal",
    "results": "SELECT key, status, limit_reason, makespan, lower_bound, bound_by, start_makespan, version, detail,"
    " tasks, devices, edges, measures FROM results ORDER BY key",
    "traces": "SELECT key, min(makespan), max(lower_bound) FROM traces GROUP BY key ORDER BY key",
    "traces' first": "SELECT key, seconds, makespan, lower_bound FROM traces GROUP BY key HAVING rowid = min(rowid)"
    " ORDER BY key",
}


def main() -> None:
    """Run both, compare, exit 1 when they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; default: another each time")
    parser.add_argument("--folder", type=Path, help="where the files are made and left; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.toml").write_text(STUDY)
        whole, killed = folder / "undisturbed.sqlite", folder / "killed.sqlite"
        for path in (whole, killed):
            path.unlink(missing_ok=True)
        began = time.monotonic()
        _finish(whole, given.jobs)
        print(f"undisturbed: {_done(whole)} cells in {time.monotonic() - began:.0f} s, {_statuses(whole)}")
        _disturb(killed, given.jobs, given.kills, np.random.default_rng(given.seed))
        sys.exit(0 if _equal(whole, killed) else 1)


def _begin(path: Path, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pesto", "study", "run", str(path.parent / "study.toml"), "--db", str(path)]
    return subprocess.Popen([*command, "--jobs", str(jobs), "-q"], stdout=subprocess.DEVNULL)


def _finish(path: Path, jobs: int) -> None:
    assert _begin(path, jobs).wait() == 0


def _disturb(path: Path, jobs: int, kills: int, rng: np.random.Generator) -> None:
    """Runs that are killed once so many cells are done, evenly at random over what is left, and one that is not."""
    began = time.monotonic()
    for kill in range(kills):
        before = _done(path)
        aim = before + int(rng.integers(1, max(2, 2 * (CELLS - before) // (kills - kill + 1))))
        run = _begin(path, jobs)
        while _done(path) < aim and run.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.random())
        run.kill()
        run.wait()
        states = dict(_query(path, "SELECT state, count(*) FROM cells GROUP BY state"))
        print(f"kill {kill + 1}: after {_done(path) - before} cells more; the file then says {states}")
    _finish(path, jobs)
    print(f"resumed: {_done(path)} cells, {time.monotonic() - began:.0f} s in all")


def _equal(whole: Path, killed: Path) -> bool:
    same = True
    for what, query in COMPARED.items():
        one, other = _query(whole, query), _query(killed, query)
        differ = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
        equal = one == other
        print(f"{what}: {len(one)} and {len(other)} rows, {'equal' if equal else f'{len(differ)} differ'}")
        for a, b in differ[:3]:
            print(f"  {a}\n  {b}")
        same = same and equal
    return same


def _statuses(path: Path) -> dict[str, int]:
    return dict(Counter(status for (status,) in _query(path, "SELECT status FROM results")).most_common())


def _done(path: Path) -> int:
    return sum(n for (n,) in _query(path, "SELECT count(*) FROM cells WHERE state = 'done'"))


def _query(path: Path, text: str) -> list[tuple]:
    if not path.exists():
        return []
    connection = sqlite3.connect(path, timeout=30)
    try:
        return connection.execute(text).fetchall()
    except sqlite3.OperationalError:  # made a moment ago, and still empty
        return []
    finally:
        connection.close()


if __name__ == "__main__":
    main()
