"""The placement service while its PostgreSQL is stopped, not gone: what it answers, and when it is ready again.

    python -m benchmarks.serve_frozen [--seconds 60] [--clients 4] [--json]

The database's processes are stopped (SIGSTOP) for so many seconds while clients list jobs and submit some, and
go on then. One more client asks for /healthz throughout. Exits 1 where /healthz took more than 100 ms, where the
service did not say that it is not ready, or was not ready by itself 5 s after the database went on, or where any
answer but 200, 202 and 503 came.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing

import httpx
import numpy as np

from benchmarks.postgres_server import PostgresServer
from benchmarks.serve_result import finish

HEALTH_S, READY_S = 0.1, 5.0
QUEUED = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}, "priority": -1}
LONG = QUEUED | {"priority": 1, "settings": {"time_limit_s": 3600, "gap": 0}}


def main() -> None:
    """Measure, print, exit 1 beyond a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which the database is stopped")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pesto-serve-frozen-") as folder, closing(PostgresServer()) as postgres:
        words = ["serve", "--data", f"{folder}/data", "--port", "0", "--database", postgres.url]
        server = subprocess.Popen([sys.executable, "-m", "pesto", *words], stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            url = server.stderr.readline().split(" at ")[1].split(",")[0]
            result = measured(url, postgres, given.seconds, given.clients)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait()
    finish(result, code, as_json=given.json, within=bool(result["within"]))


class FrozenLoad(threading.Thread):
    """Asks again and again: how long each answer took, and how many there were of each status."""

    def __init__(self, url: str, path: str, pause_s: float, body: object = None) -> None:
        super().__init__(daemon=True)
        self._url, self._path, self._pause_s, self._body = url, path, pause_s, body
        self.waits: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.ended = threading.Event()

    def run(self) -> None:
        """Until `ended` is set."""
        with httpx.Client(base_url=self._url, timeout=120) as client:
            while not self.ended.wait(self._pause_s):
                began = time.perf_counter()
                method = "GET" if self._body is None else "POST"
                answer = client.request(method, self._path, json=self._body)
                self.waits.append(time.perf_counter() - began)
                self.statuses[answer.status_code] += 1


def measured(url: str, postgres: PostgresServer, seconds: float, clients: int) -> dict[str, object]:
    """Stop the database for so long, and have it go on; what was measured by name."""
    with httpx.Client(base_url=url, timeout=120) as client:
        running = client.post("/v1/jobs", json=LONG).json()["id"]  # the only worker: nothing else is begun
        while client.get(f"/v1/jobs/{running}").json()["stage"] in ("", "running"):
            time.sleep(0.2)
        health = FrozenLoad(url, "/healthz", 0.02)
        others = [FrozenLoad(url, "/v1/jobs", 0.05) for _ in range(clients)] + [
            FrozenLoad(url, "/v1/jobs", 0.5, QUEUED)
        ]
        for one in (health, *others):
            one.start()
        time.sleep(2.0)
        postgres.freeze()
        time.sleep(seconds)
        while_frozen = client.get("/readyz").status_code
        for one in others:  # nobody asks any more: it is ready by itself
            one.ended.set()
        postgres.thaw()
        thawed = time.perf_counter()
        while client.get("/readyz").status_code != 200 and time.perf_counter() < thawed + 60:
            time.sleep(0.05)
        ready_s = time.perf_counter() - thawed
        health.ended.set()
        for one in (health, *others):
            one.join()
    statuses = sum((one.statuses for one in others), Counter())
    slowest = max(health.waits)
    within = slowest <= HEALTH_S and ready_s <= READY_S and while_frozen == 503 and set(statuses) <= {200, 202, 503}
    return {
        "frozen_s": seconds, "healthz": len(health.waits), "healthz_most_ms": round(1e3 * slowest, 1),
        "healthz_p99_ms": round(1e3 * float(np.quantile(health.waits, 0.99)), 1), "readyz_while_frozen": while_frozen,
        "ready_after_s": round(ready_s, 2), "answers": {str(code): count for code, count in sorted(statuses.items())},
        "slowest_answer_s": round(max(max(one.waits) for one in others), 1), "within": within,
    }  # fmt: skip


if __name__ == "__main__":
    main()
