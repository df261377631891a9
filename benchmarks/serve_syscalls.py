"""The placement service, killed before each system call of a submission: what it acknowledged must be there, once.

    python -m benchmarks.serve_syscalls [--most N] [--json]

Needs strace. One submission is traced first: how often each of the server's threads makes each system call meanwhile.
Then, for every call and every number up to the most of a thread, a submission is made while strace kills the server
(SIGKILL) as a thread enters that call for the time of that number. The server is started again, and the submission is
sent again under the same `Idempotency-Key`: it must be one job, the one that was acknowledged, if any was.

Counted: kills, and submissions at whose end the call had not come so often; submissions that were acknowledged before
the kill; lost ones (acknowledged, then another job or none); doubled ones (two jobs of one key); jobs that are not done
at the end; processes left behind. Exits 1 unless nothing is lost, doubled, undone or left behind.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.serve_kill import KilledServer, small_graph, uploaded

_CALL = re.compile(r"^(\d+) +(\w+)\(")
_SETTLES_S = 0.3
"""Seconds that a server is left alone before and after a submission."""
_LETS_GO_S = 5.0
_PATIENCE_S = 900.0


def main() -> None:
    """Trace one submission, then kill at every call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=12, help="of one call of a thread")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="pesto-serve-syscalls-") as folder:
        run = SyscallRun(Path(folder))
        try:
            result = run.all(given.most)
        finally:
            run.server.end(signal.SIGKILL)
    result |= {"cores": os.cpu_count(), "load_before": round(load, 1)}
    print(json.dumps(result) if given.json else "\n".join(f"{key:18} {value}" for key, value in result.items()))
    sys.exit(1 if any(result[key] for key in ("lost", "doubled", "undone", "orphans")) else 0)


class SyscallRun:
    """One run of the benchmark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = KilledServer(folder / "data", workers=1)
        self.found: Counter[str] = Counter()
        self.jobs: list[str] = []

    def all(self, limit: int) -> dict[str, Any]:
        """Kill at every call, then wait for all jobs."""
        began = time.monotonic()
        self.server.start()
        self.blob = uploaded(self.server, small_graph(0))
        calls = self._traced()
        for call, times in sorted(calls.items()):
            for time_ in range(1, min(times, limit) + 1):
                self._struck(call, time_)
        undone = self._undone()
        code = self.server.end(signal.SIGTERM)
        time.sleep(1.0)
        names = ("kills", "not_reached", "acknowledged_before", "lost", "doubled")
        return {
            "system_calls": dict(calls), **{name: self.found[name] for name in names}, "jobs": len(set(self.jobs)),
            "undone": undone, "orphans": len(self.server.family()), "exit_code_after_sigterm": code,
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip

    def _traced(self) -> dict[str, int]:
        """The most times that a thread makes each call during a submission."""
        assert self.server.process is not None
        path, own = self.folder / "calls.txt", Path(f"/proc/{self.server.process.pid}/task")
        with self._attached("-o", str(path)):
            time.sleep(_SETTLES_S)
            self.jobs.append(self._submitted("traced"))
            time.sleep(_SETTLES_S)
        threads = {thread.name for thread in own.iterdir()}
        counts = Counter(m.groups() for line in path.read_text().splitlines() if (m := _CALL.match(line)))
        most = Counter[str]()
        for (thread, call), count in counts.items():
            if thread in threads:  # not those of a worker that was begun meanwhile
                most[call] = max(most[call], count)
        return dict(most)

    def _struck(self, call: str, time_: int) -> None:
        """Kill at a call, begin anew, and ask again."""
        assert self.server.process is not None
        key = f"{call}-{time_}"
        with self._attached("-o", os.devnull, "-e", f"inject={call}:signal=SIGKILL:when={time_}"):
            before = self._submitted(key, once=True)
            time.sleep(_SETTLES_S)
        if self.server.process.poll() is None:
            self.found["not_reached"] += 1
        else:
            self.found["kills"] += 1
            self.found["acknowledged_before"] += bool(before)
            self.server.start()
        after = self._submitted(key)
        self.found["lost"] += bool(before) and after != before
        listed = httpx.get(f"{self.server.url}/v1/jobs", params={"label": key}, timeout=60).json()["jobs"]
        self.found["doubled"] += len(listed) != 1
        self.jobs.append(after)

    def _submitted(self, key: str, *, once: bool = False) -> str:
        """The job's id; "" where the server went away and it is asked but once."""
        body = {
            "kind": "solve", "label": key, "source": {"blob": self.blob, "name": "graph.json"},
            "settings": {"time_limit_s": 0, "deterministic": True},
        }  # fmt: skip
        while True:
            try:
                headers = {"Idempotency-Key": key}
                answer = httpx.post(f"{self.server.url}/v1/jobs", json=body, headers=headers, timeout=30)
                assert answer.status_code == 202, answer.text
                return str(answer.json()["id"])
            except httpx.TransportError:
                if once:
                    return ""
                time.sleep(0.05)

    @contextmanager
    def _attached(self, *options: str) -> Iterator[None]:
        """While strace follows all threads of the server; it ends with that, or is told to let go."""
        assert self.server.process is not None
        words = ["strace", "-f", *options, "-p", str(self.server.process.pid)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            assert "attached" in strace.stderr.readline(), "strace cannot attach to the server"
            yield
            strace.send_signal(signal.SIGINT)
            try:
                strace.wait(_LETS_GO_S)
            except subprocess.TimeoutExpired:  # it can wait for a thread whose process was killed, for ever
                strace.kill()

    def _undone(self) -> int:
        """Jobs that are not done, once all have ended or patience has."""
        until, left = time.monotonic() + _PATIENCE_S, set(self.jobs)
        while left and time.monotonic() < until:
            for name in sorted(left):
                state = httpx.get(f"{self.server.url}/v1/jobs/{name}", timeout=60).json()["state"]
                left -= {name} if state == "done" else set()
            time.sleep(0.2)
        return len(left)


if __name__ == "__main__":
    main()
