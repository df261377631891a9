"""The placement service while anything of it is killed: what it acknowledged must finish, and be right.

    python benchmarks/serve_kill.py [--kills 200] [--workers 2] [--seed N] [--json]

Jobs (deterministic solves of graphs of 24 ops) are submitted all the time, each until it is acknowledged, and each is
watched event by event, with `Last-Event-ID` after every cut. At random moments one of these is killed (kill -9): the
server, which is then started again; a worker; a process that a worker started (the exact solver); all of them at
once. A job may lose two workers (the third ends it, by design), so workers are spared while a job runs that has lost
two.

Counted at the end: acknowledged and finished jobs; lost ones (acknowledged and not done); wrong ones (without a plan:
each plan is verified by the checker, which ends the benchmark where it refuses); plans by graph (more than one where
a deterministic solve gave other bytes); processes left behind; events repeated or missing in what the watchers saw.
Exits 1 unless nothing is lost, wrong, left behind, repeated or missing.
"""

import argparse
import hashlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

GRAPHS = 4
_TAG = "PESTO_SERVE_KILL"
_PATIENCE_S = 900.0


def main() -> None:
    """Kill, wait, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; default: another each time")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="pesto-serve-kill-") as folder:
        run = Run(Path(folder), given.workers, np.random.default_rng(seed))
        try:
            found = run.all(given.kills)
        finally:
            run.server.end(signal.SIGKILL)
    load, spent = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    found |= {"seed": seed, "cores": os.cpu_count(), "load": round(load, 1)}
    found["cpu_s_of_reaped"] = round(spent.ru_utime + spent.ru_stime, 1)
    print(json.dumps(found) if given.json else "\n".join(f"{key:18} {value}" for key, value in found.items()))
    bad = ("lost", "wrong", "orphans", "events_repeated", "events_missing")
    sys.exit(1 if any(found[key] for key in bad) or found["acknowledged"] != found["finished"] else 0)


class Server:
    """The service's process, on one port for ever."""

    def __init__(self, folder: Path, workers: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["serve", "--data", str(folder), "--port", str(self.port), "--workers", str(workers), "-q"]
        self._words = [sys.executable, "-m", "pesto", *words]
        self._tag = str(folder)
        self.process: subprocess.Popen[bytes] | None = None
        self.starts_s: list[float] = []

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        began = time.monotonic()
        environment = os.environ | {_TAG: self._tag}
        self.process = subprocess.Popen(self._words, env=environment, start_new_session=True)
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert self.process.poll() is None, "the server does not start"
            time.sleep(0.05)
        self.starts_s.append(time.monotonic() - began)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and wait."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        return self.process.wait()

    def family(self) -> list[int]:
        """All processes that came of this server or of one before, by their environment."""
        wanted = f"{_TAG}={self._tag}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    inside = wanted in (entry / "environ").read_bytes().split(b"\0")
                    dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                except OSError:
                    continue
                if inside and not dead:
                    found.append(int(entry.name))
        return found


class Watch(threading.Thread):
    """One job's events, from its first to its last, over any number of cuts."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self._url, self.last, self.repeated, self.missing, self.done = f"{url}/v1/jobs/{name}/events", 0, 0, 0, False

    def run(self) -> None:
        """Watch until the stream ends with `done`."""
        while not self.done:
            try:
                headers = {"Last-Event-ID": str(self.last)}
                with httpx.stream("GET", self._url, headers=headers, timeout=60) as stream:
                    for line in stream.iter_lines():
                        self._take(line)
            except httpx.TransportError:
                time.sleep(0.1)

    def _take(self, line: str) -> None:
        if line.startswith("id: "):
            number = int(line[4:])
            self.repeated += number <= self.last
            self.missing += max(0, number - self.last - 1)
            self.last = max(self.last, number)
        self.done = self.done or line == "event: done"


class Run:
    """One run of the benchmark."""

    def __init__(self, folder: Path, workers: int, dice: np.random.Generator) -> None:
        self.folder, self.dice = folder, dice
        self.server = Server(folder / "data", workers)
        self.watches: dict[str, Watch] = {}
        self.graph_of: dict[str, int] = {}
        self.over = threading.Event()
        self.kills: Counter[str] = Counter()

    def all(self, kills: int) -> dict[str, object]:
        """Kill so often, then wait for everything."""
        began = time.monotonic()
        self.server.start()
        self._upload()
        submitting = threading.Thread(target=self._submit)
        submitting.start()
        while self.kills.total() < kills:
            time.sleep(self.dice.uniform(0.05, 4.0))
            self._kill(str(self.dice.choice(["server", "worker", "solver", "all"])))
        self.over.set()
        submitting.join()
        until = time.monotonic() + _PATIENCE_S
        for watch in self.watches.values():
            watch.join(max(0.0, until - time.monotonic()))
        found = self._count()
        code = self.server.end(signal.SIGTERM)
        time.sleep(1.0)
        found |= {"orphans": len(self.server.family()), "exit_code_after_sigterm": code}
        found |= {"kills": dict(self.kills), "seconds": round(time.monotonic() - began, 1)}
        found["slowest_start_s"] = round(max(self.server.starts_s), 2)
        return found

    def _upload(self) -> None:
        self.blobs = []
        for k in range(GRAPHS):
            ops = [
                {
                    "name": f"op{i}", "type": "MatMul", "outputs": [4096 * (1 + (i * 7 + k) % 5)],
                    "inputs": [f"op{j}" for j in (i - 2, i - 3 - k % 2) if j >= 0],
                    "time_s": {"gpu": 1e-4 * (1 + (i * 3 + k) % 7), "cpu": 1e-2},
                }
                for i in range(24)
            ]  # fmt: skip
            data = json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}).encode()
            (self.folder / f"graph{k}.json").write_bytes(data)
            sha = hashlib.sha256(data).hexdigest()
            assert httpx.put(f"{self.server.url}/v1/blobs/{sha}", content=data).status_code == 201
            self.blobs.append(sha)

    def _submit(self) -> None:
        """Keep some jobs unfinished; each is asked for with its key until it is acknowledged."""
        count = 0
        while not self.over.is_set():
            if sum(not watch.done for watch in self.watches.values()) >= 6:
                time.sleep(0.05)
                continue
            graph = count % GRAPHS
            body = {
                "kind": "solve", "source": {"blob": self.blobs[graph], "name": f"graph{graph}.json"},
                "settings": {"time_limit_s": 2, "deterministic": True},
            }  # fmt: skip
            count += 1
            name = self._acknowledged(body, f"key-{count}")
            self.graph_of[name] = graph
            self.watches[name] = watch = Watch(self.server.url, name)
            watch.start()

    def _acknowledged(self, body: dict[str, object], key: str) -> str:
        while True:
            try:
                answer = httpx.post(
                    f"{self.server.url}/v1/jobs", json=body, headers={"Idempotency-Key": key}, timeout=30
                )
                assert answer.status_code == 202, answer.text
                return str(answer.json()["id"])
            except httpx.TransportError:
                time.sleep(0.05)

    def _kill(self, what: str) -> None:
        assert self.server.process is not None
        server = self.server.process.pid
        parents = {pid: _parent(pid) for pid in self.server.family()}
        workers = [pid for pid, parent in parents.items() if parent == server]
        below = [pid for pid in parents if pid != server and pid not in workers]
        running = httpx.get(f"{self.server.url}/v1/jobs?state=running", timeout=60).json()["jobs"]
        spared = any(job["deaths"] >= 2 for job in running)
        victims = {"server": [server], "worker": workers[:1], "solver": below[:1], "all": [server, *workers, *below]}[
            what
        ]
        if not victims or (what == "worker" and spared):
            return
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.kills[what] += 1
        if server in victims:
            self.server.process.wait()
            self.server.start()

    def _count(self) -> dict[str, object]:
        import pesto

        graphs = [pesto.load_graph(file=self.folder / f"graph{k}.json") for k in range(GRAPHS)]
        states: Counter[str] = Counter()
        wrong, attempts, plans = 0, 0, dict[int, set[bytes]]()
        for name, watch in self.watches.items():
            job = httpx.get(f"{self.server.url}/v1/jobs/{name}", timeout=60).json()
            states[job["state"]] += 1
            attempts += job["attempt"]
            assert not watch.done or watch.last == job["events"]
            plan = httpx.get(f"{self.server.url}/v1/jobs/{name}/plan", timeout=60)
            wrong += plan.status_code != 200
            if plan.status_code == 200 and plan.content not in plans.setdefault(self.graph_of[name], set()):
                plans[self.graph_of[name]].add(plan.content)
                path = self.folder / "plan.json"
                path.write_bytes(plan.content)
                pesto.check(pesto.load_plan(path), graphs[self.graph_of[name]])
        done = [watch for watch in self.watches.values() if watch.done]
        return {
            "acknowledged": len(self.watches),
            "finished": states["done"],
            "lost": len(self.watches) - states["done"],
            "states": dict(states),
            "attempts": attempts,
            "wrong": wrong,
            "plans_by_graph": {str(graph): len(found) for graph, found in sorted(plans.items())},
            "events": sum(watch.last for watch in self.watches.values()),
            "events_repeated": sum(watch.repeated for watch in self.watches.values()),
            "events_missing": sum(watch.missing for watch in self.watches.values()),
            "streams_not_ended": len(self.watches) - len(done),
        }


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    main()
