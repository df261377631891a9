"""The placement service under load, while its worker solves: rates, waiting times, thousands of streams, overload.

    python -m benchmarks.serve_load [--seconds 10] [--overload 60] [--streams 500] [--clients 32] [--queued 100000000]
        [--postgres] [--json]

The server runs with one worker, which solves throughout, niced as it is. Clients are connections of one other
process, each with one request under way. Phases: GET /healthz alone, to compare with; submissions (durable: 202 after
the commit); the status of one job; `streams` streams of a job that tells nothing and as many of one with 40 000
events whose readers do not read, and /healthz beside them; ten times the clients for `overload` seconds, with the
server's memory: beyond `queued` jobs that wait they are told 429. Only 127.0.0.1 is asked. With --postgres the jobs
are in a PostgreSQL database on the same machine, on its disk.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import httpx
import numpy as np
import uvloop

from benchmarks.postgres_server import PostgresServer
from benchmarks.serve_result import finish
from pesto.service.protocol import State
from pesto.service.serve.store.database import Database
from pesto.service.serve.store.job_records import Event, Outcome, Submission
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.postgres.session import Session, addressed
from pesto.service.serve.store.postgres.shared_tables import prepare
from pesto.service.serve.store.sqlite_file import connected

SOLVE = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}, "settings": {"time_limit_s": 14400}}
QUEUED = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}, "priority": -1}


def main() -> None:
    """Measure, print, exit 1 for any answer of 500 or above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--overload", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--queued", type=int, default=100_000_000, help="jobs that may wait")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pesto-serve-load-") as folder, ExitStack() as stack:
        (Path(folder) / "serve.toml").write_text(f"queued = {given.queued}\n")
        postgres = stack.enter_context(closing(PostgresServer(durable=True))) if given.postgres else None
        data = Path(folder) / "data"
        data.mkdir()
        with closing(shared(postgres.url, data) if postgres else connected(data)) as database:
            talked = talkative(database)
        words = ["serve", "--data", f"{folder}/data", "--port", "0", "--config", f"{folder}/serve.toml"]
        words += ["--database", postgres.url] if postgres else []
        server = subprocess.Popen([sys.executable, "-m", "pesto", *words], stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            port = int(server.stderr.readline().split(" at http://127.0.0.1:")[1].split(",")[0])
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
                result = loop.run(Load(port, server.pid, talked, given).all())
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait()
    finish(result, code, as_json=given.json, within=not result["answers_of_500_or_above"])


def shared(url: str, folder: Path) -> Session:
    """A database for servers with that folder."""
    address = addressed(url)
    session = Session(address, "first")
    prepare(session, folder, address.where)
    return session


def talkative(database: Database) -> str:
    """Have one job that has ended after 40 000 events, 6 MB of them; its id."""
    database.begin()
    ledger = Ledger(database)
    name = ledger.submit(Submission(token="", kind="solve", request=json.dumps(QUEUED).encode()))
    begun = ledger.begin()
    assert begun is not None
    ledger.note(begun.number, begun.attempt, [Event(kind="log", data={"level": "info", "text": "x" * 100})] * 40_000)
    ledger.finish(begun.number, begun.attempt, State.DONE, Outcome())
    database.commit()
    return name


class LoadClient(asyncio.Protocol):
    """One connection that sends the same request again as soon as it is answered, until the end."""

    def __init__(self, request: bytes, until: float, waits: list[float], codes: Counter[int]) -> None:
        self._request, self._until, self._waits, self._codes = request, until, waits, codes
        self._sent, self._came = 0.0, b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by its class
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take an answer, and ask again."""
        self._came += data
        head, result, body = self._came.partition(b"\r\n\r\n")
        if not result:
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._came = b""
        self._waits.append(time.perf_counter() - self._sent)
        self._codes[int(head[9:12])] += 1
        if time.perf_counter() < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """No more."""
        if not self.ended.done():
            self.ended.set_result(exc)

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)


class Load:
    """The phases, one after another."""

    def __init__(self, port: int, server: int, talked: str, arguments: argparse.Namespace) -> None:
        self._port, self._server, self._talked, self._given = port, server, talked, arguments
        self._url = f"http://127.0.0.1:{port}"
        self._codes: Counter[int] = Counter()

    async def all(self) -> dict[str, object]:
        """Every phase; a mapping from its name to what was measured."""
        running = httpx.post(f"{self._url}/v1/jobs", json=SOLVE, timeout=60).json()["id"]
        while httpx.get(f"{self._url}/v1/jobs/{running}", timeout=60).json()["stage"] in ("", "running"):
            await asyncio.sleep(0.5)
        seconds, clients = self._given.seconds, self._given.clients
        body = json.dumps(QUEUED).encode()
        submit = _request("POST", "/v1/jobs", body)
        result: dict[str, object] = {"health": await self._asked(_request("GET", "/healthz"), clients, seconds)}
        result["submit"] = await self._asked(submit, clients, seconds)
        result["status"] = await self._asked(_request("GET", f"/v1/jobs/{running}"), clients, seconds)
        print(json.dumps(result), file=sys.stderr)
        result["streams"] = await self._streamed()
        before = _memory(self._server)
        over = await self._asked(submit, 10 * clients, self._given.overload)
        result["overload"] = over | {"rss_mib_before": before, "rss_mib_after": _memory(self._server)}
        result["answers"] = {str(code): count for code, count in sorted(self._codes.items())}
        result["answers_of_500_or_above"] = sum(count for code, count in self._codes.items() if code >= 500)
        return result

    async def _asked(self, request: bytes, clients: int, seconds: float) -> dict[str, object]:
        """A rate, percentiles of the wait, and the processors' seconds of the server and of this process."""
        waits: list[float] = []
        loop, began, cpu = asyncio.get_running_loop(), time.perf_counter(), _cpu_s(self._server)
        own = time.process_time()
        made = []
        for _ in range(clients):
            _, one = await loop.create_connection(
                lambda: LoadClient(request, began + seconds, waits, self._codes), "127.0.0.1", self._port
            )
            made.append(one)
        await asyncio.gather(*(client.ended for client in made))
        passed = time.perf_counter() - began
        p50, p99, most = (round(1e3 * float(v), 2) for v in np.quantile(waits, [0.5, 0.99, 1.0]))
        return {
            "per_s": round(len(waits) / passed), "p50_ms": p50, "p99_ms": p99, "most_ms": most, "requests": len(waits),
            "cpu_s_server": round(_cpu_s(self._server) - cpu, 1), "cpu_s_clients": round(time.process_time() - own, 1),
        }  # fmt: skip

    async def _streamed(self) -> dict[str, object]:
        """/healthz beside streams that tell nothing, and streams that nobody reads."""
        waiting = httpx.post(f"{self._url}/v1/jobs", json=QUEUED, timeout=60).json()["id"]
        streams = []
        for name in (waiting, self._talked):
            for _ in range(self._given.streams):
                slow = socket.create_connection(("127.0.0.1", self._port))
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                reader, writer = await asyncio.open_connection(sock=slow, limit=1)
                writer.write(_request("GET", f"/v1/jobs/{name}/events"))
                streams.append((reader, writer))
        await asyncio.sleep(1.0)
        lines = httpx.get(f"{self._url}/metrics", timeout=60).text.splitlines()
        health = await self._asked(_request("GET", "/healthz"), 1, self._given.seconds)
        for _, writer in streams:
            writer.close()
        return {"open": next(line.split()[1] for line in lines if line.startswith("pesto_watchers ")), "health": health}


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return f"{head}\r\n\r\n".encode() + body


def _cpu_s(pid: int) -> float:
    row = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(row[11]) + int(row[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    row = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return round(int(row[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


if __name__ == "__main__":
    main()
