#!/usr/bin/env python3
"""Stands for CBC on a program of one whole column without rows: finds 4 less than its start, and waits for SIGINT.

Called as CBC is. What it does is said in the file `mode` of its own folder; in `runs` there, a line is a run.
deaf: SIGINT changes nothing · silent: nor is anything found · answers: it writes what it has.
"""

import signal
import struct
import sys
import time
from pathlib import Path

HOME = Path(__file__).parent
MODE = (HOME / "mode").read_text()


def write(value):
    """CBC's two files of a solution."""
    Path("solution.txt").write_text(f"Stopped on iterations - objective value {value}\n")
    Path("solution.bin").write_bytes(struct.pack("<2i3d", 0, 1, float(value), float(value), 0.0))


def main():
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    start = int(Path("start.txt").read_text().split()[-1]) if "-mips" in sys.argv else None
    with (HOME / "runs").open("a") as runs:
        runs.write(f"{start}\n")
    print("Continuous objective value is 0.5 - 0.00 seconds", flush=True)
    best = start
    if start is not None:
        print(f"Cbc0045I MIPStart provided solution with cost {start}", flush=True)
    if MODE != "silent" and (start is None or start > 4):
        best = 9 if start is None else start - 4
        print(
            f"Cbc0012I Integer solution of {best} found by DiveCoefficient after 1 iterations and 0 nodes (1 seconds)"
        )
        sys.stdout.flush()
        while MODE == "deaf" or not heard:
            time.sleep(0.01)
    while MODE == "silent":
        time.sleep(0.01)
    print("Cbc0020I Exiting on maximum time\nLower bound:                    0.750", flush=True)
    write(best)


if __name__ == "__main__":
    main()
