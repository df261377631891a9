"""The least period of many allocations, by modulo scheduling: `python -m solvers.pipelining.race_program`.

The first line of stdin says within how many seconds and below which period, the others are allocations, the least bound
first. Each is asked first for less than the best so far alone: most are refuted by that. A line of stdout for each that
is better, then one with what is proven of all.
"""

import signal
import sys
import time
from collections.abc import Iterator

import msgspec

from solvers.pipelining.modulo_program import least_period
from solvers.pipelining.modulo_wire import ChainSpec, ModuloResult, RaceEnd, RaceImprovement, RaceRequest


def main() -> None:
    """Answer."""
    head = msgspec.json.decode(sys.stdin.buffer.readline(), type=RaceRequest)
    asked = [msgspec.json.decode(line, type=ChainSpec) for line in sys.stdin.buffer]
    signal.alarm(int(2 * head.seconds) + 60)
    for line in race(head, asked):
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()


def race(head: RaceRequest, asked: list[ChainSpec]) -> Iterator[RaceImprovement | RaceEnd]:
    """Each allocation that is better than all before, then what is proven."""
    until, best, floor = time.monotonic() + head.seconds, head.below, head.below
    for at, each in enumerate(asked):
        if each.least >= best:
            break
        told = _shorter(each, best, until)
        floor = min(floor, told.least)
        if told.T:
            best = told.T
            yield RaceImprovement(at=at, told=told)
    yield RaceEnd(least=min(floor, best))


def _shorter(asked: ChainSpec, best: int, until: float) -> ModuloResult:
    """A shorter period than the best, the least there is if the time suffices."""
    left = until - time.monotonic()
    if left <= 0:
        return ModuloResult(T=0, least=asked.least, starts=[])
    seconds = min(left, asked.seconds)
    first = least_period(msgspec.structs.replace(asked, least=best - 1, most=best - 1, seconds=seconds))
    if first.T == 0 or best - 1 == asked.least:
        return msgspec.structs.replace(first, least=best if first.least >= best else asked.least)
    seconds = min(max(0.0, until - time.monotonic()), asked.seconds)
    found = least_period(msgspec.structs.replace(asked, most=best - 2, seconds=seconds))
    return found if found.T else ModuloResult(T=first.T, least=min(found.least, first.T), starts=first.starts)


if __name__ == "__main__":
    main()
