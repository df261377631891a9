"""Races of allocations by CP-SAT in one process: each is as many lines as its first says, answered to an empty one."""

import sys

import msgspec

from solvers.pipelining.modulo_program import race
from solvers.pipelining.modulo_wire import ChainSpec, RaceRequest


def main() -> None:
    """Until standard input ends."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while count := stdin.readline():
        head = msgspec.json.decode(stdin.readline(), type=RaceRequest)
        asked = [msgspec.json.decode(stdin.readline(), type=ChainSpec) for _ in range(int(count) - 1)]
        for line in race(head, asked):
            stdout.write(msgspec.json.encode(line) + b"\n")
        stdout.write(b"\n")
        stdout.flush()


if __name__ == "__main__":
    main()
