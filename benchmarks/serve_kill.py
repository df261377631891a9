"""The placement service while anything of it is killed: what it acknowledged must finish, and be right.

    python -m benchmarks.serve_kill [--kills 200] [--workers 2] [--servers 2] [--executor ray] [--seed N] [--json]

Jobs (deterministic solves of graphs of 24 ops) are submitted all the time, each until it is acknowledged, and each is
watched event by event, with `Last-Event-ID` after every cut. At random moments one of these is killed (kill -9): the
server, which is then started again; a worker; a process that a worker started (the exact solver); all of them at
once. A job may lose two workers (the third ends it, by design), so workers are spared while a job runs that has lost
two. With several servers these are on one PostgreSQL database, of the system's binaries, which is killed, too; each
request goes to another one of them. With Ray, jobs run on a cluster of two nodes of this machine, and killed in turn
are the second node with all that runs there, a worker, the server, and the whole cluster; a node counts as a worker.

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
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import httpx
import numpy as np

from benchmarks.postgres_server import PostgresServer
from benchmarks.ray_nodes import RayNodes

GRAPHS = 4
_TAG = "PESTO_SERVE_KILL"
_PATIENCE_S = 900.0


def main() -> None:
    """Kill, wait, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1, help="more than one are on one PostgreSQL")
    parser.add_argument("--executor", choices=("local", "ray"), default="local", help="where jobs run")
    parser.add_argument("--seed", type=int, default=None, help="of the moments; default: another each time")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="pesto-serve-kill-") as folder:
        postgres = PostgresServer() if given.servers > 1 else None
        nodes = RayNodes(Path(folder) / "ray") if given.executor == "ray" else None
        database, ray = postgres.url if postgres else "", nodes.environment if nodes else None
        servers = [KilledServer(Path(folder) / "data", given.workers, database, ray) for _ in range(given.servers)]
        run = KillRun(Path(folder), servers, postgres, nodes, np.random.default_rng(seed))
        try:
            result = run.all(given.kills)
        finally:
            for server in servers:
                server.end(signal.SIGKILL)
            if postgres is not None:
                postgres.close()
            if nodes is not None:
                nodes.kill_all()
    load, spent = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    result |= {"seed": seed, "cores": os.cpu_count(), "load": round(load, 1)}
    result["cpu_s_of_reaped"] = round(spent.ru_utime + spent.ru_stime, 1)
    print(json.dumps(result) if given.json else "\n".join(f"{key:18} {value}" for key, value in result.items()))
    bad = ("lost", "wrong", "orphans", "events_repeated", "events_missing")
    sys.exit(1 if any(result[key] for key in bad) or result["acknowledged"] != result["finished"] else 0)


class KilledServer:
    """The service's process, on one port for ever."""

    def __init__(self, folder: Path, workers: int, database: str = "", ray: dict[str, str] | None = None) -> None:
        """`ray`: the environment of the cluster where jobs run, empty for one of its own; None for local processes."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.folder = f"http://127.0.0.1:{self.port}", folder
        words = ["serve", "--data", str(folder), "--port", str(self.port), "--workers", str(workers), "-q"]
        words += ["--database", database] if database else []
        words += ["--executor", "ray"] if ray is not None else []
        self._ray = ray or {}
        self._words = [sys.executable, "-m", "pesto", *words]
        self._tag = f"{folder}:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts_s: list[float] = []

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        began = time.monotonic()
        environment = os.environ | {_TAG: self._tag} | self._ray
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
        result = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    inside = wanted in (entry / "environ").read_bytes().split(b"\0")
                    dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                except OSError:
                    continue
                if inside and not dead:
                    result.append(int(entry.name))
        return result


class JobWatch(threading.Thread):
    """One job's events, from its first to its last, over any number of cuts."""

    def __init__(self, urls: Sequence[str], name: str) -> None:
        """`urls`: of servers, each asked in turn."""
        super().__init__(daemon=True)
        self._urls = cycle([f"{url}/v1/jobs/{name}/events" for url in urls])
        self.last, self.repeated, self.missing, self.done = 0, 0, 0, False

    def run(self) -> None:
        """Watch until the stream ends with `done`."""
        while not self.done:
            try:
                headers = {"Last-Event-ID": str(self.last)}
                with httpx.stream("GET", next(self._urls), headers=headers, timeout=60) as stream:
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


class KillRun:
    """One run of the benchmark."""

    def __init__(
        self, folder: Path, servers: list[KilledServer], postgres: PostgresServer | None, nodes: RayNodes | None,
        dice: np.random.Generator,
    ) -> None:  # fmt: skip
        self.folder, self.dice, self.servers, self.postgres, self.nodes = folder, dice, servers, postgres, nodes
        self._turn = cycle(["node", "worker", "server", "cluster"])
        self._next = cycle(servers)
        self.watches: dict[str, JobWatch] = {}
        self.graph_of: dict[str, int] = {}
        self.over = threading.Event()
        self.kills: Counter[str] = Counter()

    def all(self, kills: int) -> dict[str, object]:
        """Kill so often, then wait for everything."""
        began = time.monotonic()
        for server in self.servers:
            server.start()
        self._upload()
        submitting = threading.Thread(target=self._submit)
        submitting.start()
        while self.kills.total() < kills:
            time.sleep(self.dice.uniform(0.05, 4.0))
            if self.nodes is not None:
                self._kill_of_ray(next(self._turn), self.nodes)
                continue
            self._kill(
                str(self.dice.choice(["server", "worker", "solver", "all", *(["database"] if self.postgres else [])]))
            )
        self.over.set()
        submitting.join()
        until = time.monotonic() + _PATIENCE_S
        for watch in self.watches.values():
            watch.join(max(0.0, until - time.monotonic()))
        result = self._count()
        codes = [server.end(signal.SIGTERM) for server in self.servers]
        time.sleep(1.0)
        orphans = sum(len(server.family()) for server in self.servers)
        orphans += 0 if self.nodes is None else len(self.nodes.workers())
        result |= {"orphans": orphans, "exit_code_after_sigterm": max(codes)}
        result |= {"kills": dict(self.kills), "seconds": round(time.monotonic() - began, 1)}
        result["slowest_start_s"] = round(max(max(server.starts_s) for server in self.servers), 2)
        return result

    def _upload(self) -> None:
        self.blobs = []
        for k in range(GRAPHS):
            data = small_graph(k)
            (self.folder / f"graph{k}.json").write_bytes(data)
            self.blobs.append(uploaded(next(self._next), data))

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
            self.watches[name] = watch = JobWatch(
                [next(self._next).url, *(server.url for server in self.servers)], name
            )
            watch.start()

    def _acknowledged(self, body: dict[str, object], key: str) -> str:
        while True:
            try:
                answer = httpx.post(
                    f"{next(self._next).url}/v1/jobs", json=body, headers={"Idempotency-Key": key}, timeout=30
                )
                assert answer.status_code in (202, 503), answer.text
                if answer.status_code == 202:
                    return str(answer.json()["id"])
            except httpx.TransportError:
                pass
            time.sleep(0.05)

    def _kill(self, what: str) -> None:
        if what == "database" and self.postgres is not None:
            self.postgres.kill()
            self.kills[what] += 1
            time.sleep(self.dice.uniform(0.0, 3.0))
            self.postgres.start()
            return
        chosen = self.servers[self.dice.integers(len(self.servers))]
        assert chosen.process is not None
        server = chosen.process.pid
        parents = {pid: _parent(pid) for pid in chosen.family()}
        workers = [pid for pid, parent in parents.items() if parent == server]
        below = [pid for pid in parents if pid != server and pid not in workers]
        spared = self._any_lost_two()
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
            chosen.process.wait()
            chosen.start()

    def _kill_of_ray(self, what: str, nodes: RayNodes) -> None:
        """Kill it while a job runs there, and start it again."""
        counts = what in ("node", "worker")
        while not (workers := nodes.workers()) or (counts and self._any_lost_two()):
            time.sleep(0.2)
        time.sleep(self.dice.uniform(0.0, 2.0))
        if what == "worker":
            with suppress(ProcessLookupError):
                os.kill(int(self.dice.choice(workers)), signal.SIGKILL)
        elif what == "server":
            self.servers[0].end(signal.SIGKILL)
            self.servers[0].start()
        else:
            nodes.kill_second() if what == "node" else nodes.kill_all()
            time.sleep(self.dice.uniform(0.0, 3.0))
            nodes.start()
        self.kills[what] += 1

    def _any_lost_two(self) -> bool:
        return any(job["deaths"] >= 2 for job in self._asked("?state=running").json()["jobs"])

    def _asked(self, what: str) -> httpx.Response:
        """What GET /v1/jobs... says, of whichever server, once its database is there."""
        while (answer := httpx.get(f"{next(self._next).url}/v1/jobs{what}", timeout=60)).status_code == 503:
            time.sleep(0.1)
        return answer

    def _count(self) -> dict[str, object]:
        import pesto

        graphs = [pesto.load_graph(file=self.folder / f"graph{k}.json") for k in range(GRAPHS)]
        states: Counter[str] = Counter()
        wrong, attempts, plans = 0, 0, dict[int, set[bytes]]()
        for name, watch in self.watches.items():
            job = self._asked(f"/{name}").json()
            states[job["state"]] += 1
            attempts += job["attempt"]
            assert not watch.done or watch.last == job["events"]
            plan = self._asked(f"/{name}/plan")
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
            "plans_by_graph": {str(graph): len(result) for graph, result in sorted(plans.items())},
            "events": sum(watch.last for watch in self.watches.values()),
            "events_repeated": sum(watch.repeated for watch in self.watches.values()),
            "events_missing": sum(watch.missing for watch in self.watches.values()),
            "streams_not_ended": len(self.watches) - len(done),
        }


def small_graph(number: int) -> bytes:
    """A graph file of 24 ops, another for each number."""
    ops = [
        {
            "name": f"op{i}", "type": "MatMul", "outputs": [4096 * (1 + (i * 7 + number) % 5)],
            "inputs": [f"op{j}" for j in (i - 2, i - 3 - number % 2) if j >= 0],
            "time_s": {"gpu": 1e-4 * (1 + (i * 3 + number) % 7), "cpu": 1e-2},
        }
        for i in range(24)
    ]  # fmt: skip
    return json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}).encode()


def uploaded(server: KilledServer, data: bytes) -> str:
    """The SHA-256 of a file that the server has now."""
    sha = hashlib.sha256(data).hexdigest()
    assert httpx.put(f"{server.url}/v1/blobs/{sha}", content=data).status_code == 201
    return sha


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    main()
