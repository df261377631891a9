"""Cancels jobs at random moments of a worker's first seconds, and counts what becomes of the jobs after them.

`python -m benchmarks.serve_cancels --moments 100`: for each moment the only worker of a service is killed, so that
another one starts, a job is submitted that needs TensorFlow, and it is cancelled; the same step is solved then, by
whichever worker is there. Every such later job should be done. Prints one JSON object.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pesto import Client

STEP = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}}
LONG = STEP | {"label": "cancelled", "settings": {"time_limit_s": 600, "gap": 0}}
LATER = STEP | {"label": "later", "settings": {"time_limit_s": 0, "solver": "list", "search": False}}
END_S = 120.0
"""Seconds that a job may take to end."""


def main() -> None:
    """Run the moments, as many as there is time for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=100, help="Cancels.")
    parser.add_argument("--within", type=float, default=10.0, help="Seconds of a worker's life in which they come.")
    parser.add_argument("--seconds", type=float, default=600.0, help="No further moment begins after so many.")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began, load, rng = time.monotonic(), os.getloadavg()[0], random.Random(options.seed)  # noqa: S311
    moments: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "pesto", "serve", "--data", folder, "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            with Client(_address(server)) as client:
                while len(moments) < options.moments and time.monotonic() < began + options.seconds:
                    moments.append(_moment(client, server.pid, rng.uniform(0, options.within)))
                    print(json.dumps(moments[-1]), file=sys.stderr, flush=True)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    later = [moment["later"] for moment in moments]
    summary = {
        "moments": len(moments),
        "within_s": options.within,
        "cancelled": sum(moment["cancelled"] == "cancelled" for moment in moments),
        "later_jobs_failed": sum(state != "done" for state in later),
        "later_jobs_tried_again": sum(moment["attempts"] != 1 for moment in moments),
        "workers_kept": sum(bool(moment["kept"]) for moment in moments),
        "seconds": round(time.monotonic() - began, 1),
        "load": [load, os.getloadavg()[0]],
    }
    print(json.dumps(summary))


def _moment(client: Client, server: int, after_s: float) -> dict[str, object]:
    """Cancel a job so many seconds after its worker began, then have another one done."""
    for worker in _workers(server):
        os.kill(worker, signal.SIGKILL)
    while not (started := _workers(server)):
        time.sleep(0.01)
    began = time.monotonic()
    job = client.submit(LONG)
    time.sleep(max(0.0, began + after_s - time.monotonic()))
    client.cancel(job)
    first = _ended(client, job)
    kept = started == _workers(server)
    later = _ended(client, client.submit(LATER))
    return {
        "after_s": round(after_s, 3), "cancelled": first.state, "kept": kept, "later": later.state,
        "attempts": later.attempt, "error": later.error,
    }  # fmt: skip


def _ended(client: Client, job: str):  # noqa: ANN202 - the client's own type
    until = time.monotonic() + END_S
    while (shown := client.job(job)).state not in ("done", "failed", "cancelled") and time.monotonic() < until:
        time.sleep(0.05)
    return shown


def _workers(server: int) -> set[int]:
    """The live workers of a server, by Linux' /proc."""
    workers = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            _, _, rest = (entry / "stat").read_text().rpartition(")")
            state, parent = rest.split()[:2]
            command = (entry / "cmdline").read_bytes()
            if int(parent) == server and state != "Z" and b"pesto.core.executing.worker" in command:
                workers.add(int(entry.name))
    return workers


def _address(server: "subprocess.Popen[str]") -> str:
    for line in server.stdout or ():
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip(".,;")
    raise SystemExit("the service ended before it had an address")


if __name__ == "__main__":
    main()
