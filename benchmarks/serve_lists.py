"""Time lists of many jobs: each filter, two together, texts, pages far back, and counts.

python -m benchmarks.serve_lists --jobs 500000 --json
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pesto.service.protocol import State
from pesto.service.serve.store.readings import JobFilter, JobPage, job_counts, job_page
from pesto.service.serve.store.sqlite_file import SqliteFile, connected, reading

BATCH = 20_000
REQUEST = b'{"kind":"solve","source":{"model":"nmt"},"cluster":"v100x4","settings":{"time_limit_s":60.0}}'
OUTCOME = b'{"exit_code":0,"error":null,"remedy":null,"result":{"makespan_s":0.1},"files":["plan.json"],"seconds":9.0}'


def rows(jobs: int) -> Iterator[tuple[Any, ...]]:
    """Jobs of a busy year: half of one token, most of them solves that are done, few of all else."""
    for k in range(jobs):
        kind = "check" if k % 1000 == 7 else "solve"
        model = "rnnlm" if k % 5000 == 11 else "nmt"
        state = "failed" if k % 3000 == 13 else "done"
        token = ("ann", "bob", "eve")[(k % 4) % 3]
        label = f"nightly {k % 400}"
        yield f"{k:016x}", token, kind, model, label, REQUEST, state, 1e9 + 60.0 * k, OUTCOME


def fill(database: SqliteFile, jobs: int) -> None:
    """Insert the jobs."""
    asked = (
        "INSERT INTO jobs (id, token, kind, model, label, request, state, created, outcome, priority)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
    )
    batch = list[tuple[Any, ...]]()
    for row in rows(jobs):
        batch.append(row)
        if len(batch) == BATCH:
            _insert(database, asked, batch)
            batch = []
    _insert(database, asked, batch)


def _insert(database: SqliteFile, asked: str, batch: list[tuple[Any, ...]]) -> None:
    database.begin()
    database.executemany(asked, batch)
    database.commit()


def timed(ask: Callable[[], Any], times: int = 7) -> tuple[float, float, Any]:
    """Return the median in milliseconds, that of the processor's time, and what was answered last."""
    taken, worked = [], []
    for _ in range(times):
        began, before = time.perf_counter(), time.process_time()
        answer = ask()
        taken.append(1e3 * (time.perf_counter() - began))
        worked.append(1e3 * (time.process_time() - before))
    return sorted(taken)[times // 2], sorted(worked)[times // 2], answer


def main() -> None:
    """Print a row for each list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    middle = 1e9 + 60.0 * given.jobs / 2
    filters = {
        "none": {}, "kind": {"kind": "check"}, "model": {"model": "rnnlm"}, "state": {"state": State.FAILED},
        "label": {"label": "nightly 7"}, "until": {"until": middle}, "since, until": {"since": 0.0, "until": middle},
        "kind, state": {"kind": "solve", "state": State.FAILED}, "text that few have": {"text": "rnn"},
        "text that none has": {"text": "xyz"}, "time, text": {"until": middle, "text": "xyz"},
    }  # fmt: skip
    result = []
    with tempfile.TemporaryDirectory() as folder, closing(connected(Path(folder))) as written:
        fill(written, given.jobs)
        with closing(reading(Path(folder))) as database:
            for owner in (None, "ann"):
                for name, wanted in filters.items():
                    asked = JobFilter(owner=owner, **wanted)
                    for after in (None, f"n{given.jobs // 2}t{middle}"):
                        median, cpu, page = timed(lambda asked=asked, after=after: job_page(database, asked, after, 50))
                        assert isinstance(page, JobPage)
                        result.append(_row(name, owner, after, median, cpu) | {"jobs": len(page.jobs)})
                median, cpu, _ = timed(lambda owner=owner: job_counts(database, owner))
                result.append(_row("counts", owner, None, median, cpu))
    said = {"jobs": given.jobs, "most_cpu_ms": max(row["cpu_ms"] for row in result), "load": os.getloadavg()[0]}
    if given.json:
        print(json.dumps(said | {"lists": result}))
        return
    for row in result:
        print(*row.values(), sep="\t")
    print(json.dumps(said))


def _row(name: str, owner: str | None, after: str | None, median: float, cpu: float) -> dict[str, Any]:
    whose = "all" if owner is None else "one token"
    where = "first" if after is None else "middle"
    return {"filter": name, "of": whose, "page": where, "median_ms": round(median, 2), "cpu_ms": round(cpu, 2)}


if __name__ == "__main__":
    main()
