"""The placement service under slow requests: what others wait for /healthz, and how long each slow one keeps its place.

    python -m benchmarks.serve_slow [--slow 2000] [--addresses 2] [--seconds 45] [--json]

So many connections, of as many addresses of 127.0.0.0/8, send nothing, half a head, or half a body, one byte a
second; one that was cut is made again until the end. Another address asks for /healthz every 20 ms, on one connection
that stays and on one made anew each time, and one of the slow addresses does so on new connections. Exits 1 where
the 99th percentile of any of the three is above 200 ms, where a slow connection was not cut within 30 s, or where
/healthz was not answered to the other address.
"""

import argparse
import asyncio
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

import numpy as np
import uvloop

from benchmarks.serve_result import finish

HEALTH_MS, CUT_S = 200.0, 30.0
HEAD = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n{"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
OTHER = "127.0.1.1"


def main() -> None:
    """Measure, print, exit 1 beyond a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=int, default=2000, help="connections at a time")
    parser.add_argument("--addresses", type=int, default=2, help="of which they come")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--files", type=int, default=0, help="files that the server may have open; 0 for any number")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pesto-serve-slow-") as folder:
        limit = ["prlimit", f"--nofile={given.files}"] if given.files else []
        words = [*limit, sys.executable, "-m", "pesto", "serve", "--data", folder, "--port", "0"]
        server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            port = int(next(line for line in server.stderr if " at http" in line).split("127.0.0.1:")[1].split(",")[0])
            time.sleep(5.0)  # its worker loads
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
                result = loop.run(measured(port, given))
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait()
    finish(result, code, as_json=given.json, within=bool(result["within"]))


async def measured(port: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Have all of them go on for the time that is given; what was measured by name."""
    until, kept, refused = time.perf_counter() + arguments.seconds, list[float](), list[float]()
    addresses = [f"127.0.0.{2 + k}" for k in range(arguments.addresses)]
    slow = [
        asyncio.create_task(keep_slow(port, source, begins, until, (kept, refused)))
        for _, source, begins in zip(
            range(arguments.slow), itertools.cycle(addresses), itertools.cycle((b"", HEAD, BODY)), strict=False
        )
    ]
    await asyncio.sleep(3.0)
    waits: dict[str, list[float]] = {"other_kept": [], "other_new": [], "same_new": []}
    failed = await asyncio.gather(
        ask(port, OTHER, until, waits["other_kept"], anew=False),
        ask(port, OTHER, until, waits["other_new"], anew=True),
        ask(port, addresses[0], until, waits["same_new"], anew=True),
    )
    await asyncio.gather(*slow)
    p99 = {name: round(1e3 * float(np.quantile(result, 0.99)), 1) for name, result in waits.items()}
    longest = max(kept, default=0.0)
    within = max(p99.values()) <= HEALTH_MS and longest <= CUT_S and not any(failed[:2])
    return {
        "slow": arguments.slow, "cut": len(kept), "refused_at_once": len(refused), "longest_kept_s": round(longest, 1),
        "healthz": {name: len(result) for name, result in waits.items()}, "healthz_p99_ms": p99,
        "healthz_most_ms": {name: round(1e3 * max(result), 1) for name, result in waits.items()},
        "healthz_failed": dict(zip(waits, failed, strict=True)), "within": within,
    }  # fmt: skip


async def keep_slow(
    port: int, source: str, begins: bytes, until: float, seconds: tuple[list[float], list[float]]
) -> None:
    """Send a byte a second until cut, again and again; how long each was kept, and which were refused within 1 s."""
    while time.perf_counter() < until:
        began, cut = time.perf_counter(), asyncio.Event()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        except OSError:
            await asyncio.sleep(1.0)
            continue
        reading = asyncio.create_task(to_end(reader, cut))
        with suppress(OSError, RuntimeError):  # the latter of uvloop, once it is closed
            writer.write(begins)
            while not cut.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(cut.wait(), 1.0)
                if begins and not cut.is_set():
                    writer.write(b"x")
        await reading
        passed = time.perf_counter() - began
        seconds[passed < 1.0].append(passed)
        writer.close()
        await asyncio.sleep(1.0 if passed < 1.0 else 0.0)


async def to_end(reader: asyncio.StreamReader, cut: asyncio.Event) -> None:
    """Read until the service ends the connection."""
    with suppress(OSError):
        await reader.read()
    cut.set()


async def ask(port: int, source: str, until: float, waits: list[float], *, anew: bool) -> int:
    """Ask for /healthz every 20 ms; how often it was not answered."""
    failed, streams = 0, None
    while time.perf_counter() < until:
        began, fine, reused = time.perf_counter(), False, streams is not None
        for _ in range(1 + reused):  # once more where a connection that was kept has been closed meanwhile
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                streams[1].write(HEALTH)
                came = await streams[0].readuntil(b"}")
            except (OSError, RuntimeError, asyncio.IncompleteReadError):
                streams = None
                continue
            fine = came.startswith(b"HTTP/1.1 200")
            if anew or b"connection: close" in came:
                streams[1].close()
                streams = None
            break
        waits.append(time.perf_counter() - began)
        failed += not fine
        await asyncio.sleep(0.02)
    return failed


if __name__ == "__main__":
    main()
