"""Backups of the placement service under load: what is restored, how long they take, and what requests wait meanwhile.

    python -m benchmarks.serve_backup [--jobs 1000] [--backups 5] [--clients 4] [--json]

A folder is filled with so many jobs, of which three in five are done with a plan of 20 KB, and the others wait for the
worker, each with an upload of its own. The service runs them while clients submit more, list jobs and delete some that
are done; it is backed up again and again meanwhile. Each backup is restored. Exits 1 where a restored folder lacks a
job that was acknowledged before its backup began (and not deleted before that ended), or a file of one, or where a
service does not start on the last one.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np

from benchmarks.serve_kill import small_graph
from pesto.service.protocol import State
from pesto.service.serve.backup import back_up, restore
from pesto.service.serve.store.job_records import Outcome, Submission
from pesto.service.serve.store.ledger import BLOBS, JOBS, Ledger
from pesto.service.serve.store.readings import Readings
from pesto.service.serve.store.sqlite_file import connected

DONE_SHARE = 0.6
QUICK = {"solver": "list", "search": False, "time_limit_s": 0}


def main() -> None:
    """Measure, print, exit 1 for anything that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--backups", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="pesto-serve-backup-") as name:
        folder = Path(name)
        filled = fill(folder / "data", given.jobs)
        server, url = started(folder / "data")
        try:
            result = measured(folder, url, filled, given.backups, given.clients)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait()
        result["restored_starts"] = answers(folder / f"restored-{given.backups - 1}")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result |= {"exit_code": code, "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in used), 1)}
    result |= {"load": [round(load, 1), round(os.getloadavg()[0], 1)]}
    print(json.dumps(result) if given.json else "\n".join(f"{key:22} {value}" for key, value in result.items()))
    sys.exit(1 if result["missing_jobs"] or result["missing_files"] or not result["restored_starts"] else 0)


def fill(folder: Path, count: int) -> set[str]:
    """Write so many jobs, with their files, into a new folder; their ids."""
    (folder / BLOBS).mkdir(parents=True)
    names = set[str]()
    with closing(connected(folder)) as database:
        database.begin()
        ledger = Ledger(database)
        for number in range(count):
            done = number < DONE_SHARE * count
            graph = small_graph(number)
            digest = hashlib.sha256(graph).hexdigest()
            (folder / BLOBS / digest).write_bytes(graph)
            ledger.add_blob(digest, len(graph), "")
            request = {"kind": "solve", "source": {"blob": digest, "name": "g.json"}, "settings": QUICK}
            asked = Submission(token="", kind="solve", request=json.dumps(request).encode(), blobs=(digest,))
            names.add(ledger.submit(asked))
            if done:
                _end(ledger, folder, random.Random(number).randbytes(20_000))  # noqa: S311
        database.commit()
    return names


def _end(ledger: Ledger, folder: Path, plan: bytes) -> None:
    begun = ledger.begin()
    assert begun is not None
    path = folder / JOBS / begun.id / str(begun.attempt) / "plan.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(plan)
    outcome = Outcome(files=(path.name,), digests={path.name: hashlib.sha256(plan).hexdigest()})
    ledger.finish(begun.number, begun.attempt, State.DONE, outcome, keeps=True)


def started(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A server of a folder, and its address."""
    words = ["serve", "--data", str(folder), "--port", "0"]
    server = subprocess.Popen([sys.executable, "-m", "pesto", *words], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    return server, server.stderr.readline().split(" at ")[1].split(",")[0]


class BackupLoad(threading.Thread):
    """Submits, lists, and deletes jobs that are done, until the end."""

    def __init__(self, url: str, ended: threading.Event) -> None:
        super().__init__()
        self._url, self._ended = url, ended
        self.acknowledged, self.deleted, self.waits = list[str](), list[str](), list[float]()

    def run(self) -> None:
        """Ask again and again."""
        body = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}, "priority": -1}
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._ended.is_set():
                began = time.perf_counter()
                self.acknowledged.append(client.post("/v1/jobs", json=body).json()["id"])
                self.waits.append(time.perf_counter() - began)
                if len(self.acknowledged) % 20 == 0:
                    done = client.get("/v1/jobs?state=done&most=1").json()["jobs"]
                    for job in done:
                        self.deleted.append(job["id"])  # before it is: a backup may have it or not
                        client.delete(f"/v1/jobs/{job['id']}?purge")
                time.sleep(0.005)


def measured(folder: Path, url: str, filled: set[str], backups: int, clients: int) -> dict[str, object]:
    """Back up and restore while clients ask; what was measured by name."""
    ended = threading.Event()
    asking = [BackupLoad(url, ended) for _ in range(clients)]
    for one in asking:
        one.start()
    seconds, jobs, missing_jobs, missing_files, begun = list[float](), 0, 0, 0, time.perf_counter()
    try:
        for number in range(backups):
            time.sleep(0.5)
            before = filled.union(*(one.acknowledged[:] for one in asking))
            began = time.perf_counter()
            back_up(folder / "data", folder / "backup.tar")
            seconds.append(time.perf_counter() - began)
            before = before.difference(*(one.deleted[:] for one in asking))
            jobs, lacking, lost = inspected(folder, number, before)
            missing_jobs += lacking
            missing_files += lost
    finally:
        lasted = time.perf_counter() - begun
        ended.set()
        for one in asking:
            one.join()
    waits = [wait for one in asking for wait in one.waits]
    return {
        "jobs_of_last_backup": jobs, "missing_jobs": missing_jobs, "missing_files": missing_files,
        "backup_s": [round(one, 2) for one in seconds],
        "backup_mib": round((folder / "backup.tar").stat().st_size / 2**20, 1),
        "submissions_per_s": round(len(waits) / lasted), "deleted": sum(len(one.deleted) for one in asking),
        "submission_p99_ms": round(1000 * float(np.percentile(waits, 99)), 1),
    }  # fmt: skip


def inspected(folder: Path, number: int, before: set[str]) -> tuple[int, int, int]:
    """Restore the backup; how many jobs it has, how many of these it lacks, and how many files are lost or changed."""
    target = folder / f"restored-{number}"
    lost = restore(folder / "backup.tar", target).lost
    with closing(connected(target)) as database:
        names = dict(database.execute("SELECT id, kept FROM jobs").fetchall())
        readings = Readings(database)
        for name in (name for name, kept in names.items() if kept):
            job = readings.job(name)
            assert job is not None
            assert job.outcome is not None
            for file, digest in job.outcome.digests.items():
                path = target / JOBS / name / str(job.kept) / file
                lost += not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest
    return len(names), len(before - names.keys()), lost


def answers(folder: Path) -> bool:
    """Return True where a server starts on a folder and hands out a plan."""
    server, url = started(folder)
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            done = client.get("/v1/jobs?state=done&most=1").json()["jobs"][0]["id"]
            return client.get(f"/v1/jobs/{done}/plan").status_code == 200
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


if __name__ == "__main__":
    main()
