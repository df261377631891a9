"""A chain on any allocation, contiguous or not, within the memory of devices: the least period of k batches.

The paper has no algorithm for this. Search starts from contiguous stages, which it is never above: allocations are
annealed by the period of a quick schedule (what does not fit is worth what lacks), and the exact scheduler then looks
for less on the best of them, or, where there are few enough, on every one, which is a proof. What is found is checked.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np

from solvers.arrays import Floats, Ints, ints
from solvers.compiled.interruption import struck
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.any_allocation import least_load, with_one_batch
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel, Pattern, batch_rows, pattern_from_starts
from solvers.pipelining.exact_periodic import ModuloTask, PeriodicProblem
from solvers.pipelining.modulo_wire import RaceEnd, RaceImprovement, RaceRequest
from solvers.pipelining.pattern_check import check
from solvers.pipelining.quick_period import NONE, ChainSums, ground, lacking, quick_period, quick_starts
from solvers.process.one_shot import streamed


@routine
def every_allocation(on: ChainSums, kind: Ints, below: int, most: int) -> tuple[Ints, int]:
    """Return [n, L] allocations on which no device takes `below` ticks a batch or lacks bytes for one, and n.

    Of devices of one `kind`, [P], the first that is free is used first. At most `most` are given; n may be more by one.
    """
    layers, devices = on.forward.shape[1] - 1, len(on.memory)
    result = np.zeros((most, layers), dtype=np.int64)
    device, load, held = np.full(layers, -1), np.zeros(devices, dtype=np.int64), np.zeros(devices, dtype=np.int64)
    count, at = 0, 0
    busy = np.flatnonzero(on.forward[0, 1:] + on.backward[0, 1:] - on.forward[0, :-1] - on.backward[0, :-1])
    until = busy[-1] if len(busy) else -1
    while at >= 0:
        if at == layers:
            if count == most:
                return result, count + 1
            result[count] = device
            count += 1
            at -= 1
            continue
        d = device[at]
        if d >= 0:
            load[d] -= _ticks(on, d, at)
            held[d] -= _bytes(on, at, until)
        d = _next(device, kind, at, d + 1)
        while d < devices and (load[d] + _ticks(on, d, at) >= below or held[d] + _bytes(on, at, until) > on.memory[d]):
            d = _next(device, kind, at, d + 1)
        if d == devices:
            device[at] = -1
            at -= 1
            continue
        device[at] = d
        load[d] += _ticks(on, d, at)
        held[d] += _bytes(on, at, until)
        at += 1
    return result, count


@routine
def _ticks(on: ChainSums, d: int, at: int) -> int:
    return on.forward[d, at + 1] - on.forward[d, at] + on.backward[d, at + 1] - on.backward[d, at]


@routine
def _bytes(on: ChainSums, at: int, until: int) -> int:
    """Weights and one batch's activation, which a layer holds while it does its backward half.

    Layers behind `until`, the last that takes any time, may do and undo it at once.
    """
    kept = on.activation[at + 1] - on.activation[at] if at <= until else 0
    return on.weights[at + 1] - on.weights[at] + kept


@routine
def _next(device: Ints, kind: Ints, at: int, d: int) -> int:
    """Return the first device from d on that is in use by the layers before `at`, or the first free one of its kind."""
    while d < len(kind):
        used = (device[:at] == d).any()
        if used:
            return d
        first = True
        for e in range(d):
            if kind[e] == kind[d] and not (device[:at] == e).any():
                first = False
        if first:
            return d
        d += 1
    return d


POOL = 24
"""Allocations that are kept."""
DRAWS = 5
"""Random numbers of a move."""
_RUNS = 16
"""Runs of layers, beside six a device, that an allocation has at most: more take long to lay out."""


class AllocationPool(NamedTuple):
    """The best allocations met, each once."""

    device: Ints
    """[POOL, L] device of each layer of each."""
    value: Ints
    """[POOL] least periods that were found; NONE where there is none yet."""


@routine
def worth(on: ChainSums, device: Ints, most: int) -> int:
    """Return the least period that is found; where none is below `most`, that and the bytes that lack for one batch."""
    result = quick_period(on, device, most)
    return result if result != NONE else most + lacking(on, device)


@routine
def annealed(on: ChainSums, device: Ints, most: int, heat: float, draws: Floats, pool: AllocationPool) -> Ints:
    """Return the allocation after as many moves as there are `draws`, [n, DRAWS] of 0 to 1; `heat` falls to none.

    `most`: ticks of all operations of a batch, the longest period that there is reason for.
    """
    value = worth(on, device, most)
    _keep(pool, device, value, most)
    for n in range(len(draws)):
        moved = _moved(device, len(on.memory), draws[n])
        runs = 1 + int(np.count_nonzero(moved[1:] != moved[:-1]))
        if runs > _RUNS + 6 * len(on.memory) or (moved == device).all():
            continue
        if value > most:
            result = worth(on, moved, most)
            result = result if result <= value else NONE
        else:
            allowed = value - value * heat * (1 - n / len(draws)) * np.log(max(draws[n, 4], 1e-12))
            result = quick_period(on, moved, min(most, int(allowed)))
        if result != NONE:
            device, value = moved, result
            _keep(pool, device, value, most)
    return device


@subroutine
def _moved(device: Ints, devices: int, draw: Floats) -> Ints:
    """Return a copy with a boundary shifted, a run or some layers elsewhere, or two runs that change places."""
    layers, result = len(device), device.copy()
    first = np.append(0, np.flatnonzero(device[1:] != device[:-1]) + 1)
    run = int(draw[1] * len(first))
    i, j = first[run], first[run + 1] if run + 1 < len(first) else layers
    d = int(draw[2] * devices)
    if draw[0] < 0.45 and len(first) > 1:
        far = 1 + int((j - i) * draw[3] ** 3)
        if run and (draw[2] < 0.5 or j == layers):
            result[i : min(i + far, j)] = device[i - 1]
        elif j < layers:
            result[max(j - far, i) : j] = device[j]
    elif draw[0] < 0.65:
        result[i:j] = d
    elif draw[0] < 0.85:
        at = int(draw[1] * layers)
        result[at : at + 1 + int(0.5 * layers * draw[3] ** 3)] = d
    else:
        other = int(draw[3] * len(first))
        end = first[other + 1] if other + 1 < len(first) else layers
        result[i:j], result[first[other] : end] = device[first[other]], device[i]
    return result


@subroutine
def _keep(pool: AllocationPool, device: Ints, value: int, most: int) -> None:
    """Put an allocation in place of the worst, if it is better and not there yet."""
    worst = 0
    for at in range(len(pool.value)):
        if pool.value[at] == value and (pool.device[at] == device).all():
            return
        if pool.value[worst] != NONE and (pool.value[at] == NONE or pool.value[at] > pool.value[worst]):
            worst = at
    if value <= most and (pool.value[worst] == NONE or value < pool.value[worst]):
        pool.value[worst] = value
        pool.device[worst] = device


EVERY = 2000
"""Allocations of which each is looked at, at most."""
ROUNDS, MOVES = 64, 2000
"""Annealings, and moves of each."""
ANNEALED = 0.4
"""Share of the time that they may take."""
HEAT = 0.04
"""By which share a period may grow in a move, at first, on average."""
GRACE_S = 10.0
"""Seconds beyond the limit for the process to begin and to tell."""
_MOST_LAYERS = 64
"""Upper limit of the layers of a chain whose allocations are enumerated."""
_MOST_TICKS = 1 << 40
"""Beyond these no schedule is sought by CP-SAT."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeriodSearchSpec:
    """A chain on devices, and what is to be found."""

    chain: Chain
    machines: Machines
    model: MemoryModel = MemoryModel.RECEIVED
    k: int = 1
    """Batches of a period."""
    seconds: float = 10.0
    enough: Fraction | None = None
    """Lower bound on the period, in ticks, at which the search ends."""
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeriodSearchResult:
    """The best that was found."""

    allocation: Allocation | None
    """None: nothing was found."""
    pattern: Pattern | None
    """Checked, on the chain as the devices run it (`Machines.on`)."""
    least: Fraction | None
    """No schedule of k batches a period on any allocation is shorter, by CP-SAT's word; None: not every one was looked
    at."""
    infeasible: bool = False
    """True if one batch by itself has no room on any allocation."""
    interrupted: bool = False
    """True if Ctrl-C ended the search."""


def least_anywhere(
    wanted: PeriodSearchSpec, start: tuple[Allocation, Pattern] | None = None, hint: Allocation | None = None
) -> PeriodSearchResult:
    """Return the least period that is found.

    `start`: an allocation and a schedule of it that fit, which the answer is never above. `hint`: an allocation to
    search from too. Ctrl-C keeps the best. RuntimeError where the process fails or what it finds is not valid.
    """
    search = _PeriodSearch(wanted, start, hint)
    try:
        search.anneal()
        search.race()
    except (KeyboardInterrupt, Exception) as error:
        if not struck(error):
            raise
        search.interrupted = True
    return search.answer()


class _PeriodSearch:
    def __init__(
        self, wanted: PeriodSearchSpec, start: tuple[Allocation, Pattern] | None, hint: Allocation | None
    ) -> None:
        self.wanted, self.best, self.hint = wanted, start, hint
        self.on: ChainSums = ground(wanted.chain, wanted.machines, wanted.model)
        layers = wanted.chain.layers
        self.pool = AllocationPool(np.zeros((POOL, layers), dtype=np.int64), np.full(POOL, NONE))
        self.until = time.monotonic() + wanted.seconds
        self.least: Fraction | None = None
        self.infeasible = self.interrupted = False

    def answer(self) -> PeriodSearchResult:
        """Return the best."""
        allocation, pattern = self.best or (None, None)
        return PeriodSearchResult(
            allocation=allocation, pattern=pattern, least=self.least, infeasible=self.infeasible,
            interrupted=self.interrupted,
        )  # fmt: skip

    @property
    def over(self) -> bool:
        """True if there is no time left, or nothing shorter."""
        enough = self.best is not None and self.wanted.enough is not None and self.best[1].period <= self.wanted.enough
        return enough or time.monotonic() > self.until

    def anneal(self) -> None:
        """From the start, on from where that ends, from the best, and from stages at random, in turn."""
        wanted, rng, pool = self.wanted, np.random.default_rng(0), self.pool
        layers, devices = wanted.chain.layers, wanted.machines.devices
        starts = [each.device for each in (self.hint, self.best and self.best[0]) if each is not None]
        device = starts[-1] if starts else ints([0] * layers)
        for at in range(wanted.rounds):
            if self.over or time.monotonic() > self.until - (1 - ANNEALED) * wanted.seconds:
                break
            if at == 1 and self.hint is not None:
                device = self.hint.device
            elif at % 4 == 3:  # about two runs of layers a device, at random
                cuts = np.sort(rng.integers(0, layers + 1, 2 * devices))
                runs = rng.integers(devices, size=2 * devices + 1)
                device = runs[np.searchsorted(cuts, np.arange(layers), "right")]
            elif at % 4 == 2 and self.best is not None:
                device = self.best[0].device
            device = annealed(self.on, device.copy(), self.longest, HEAT, rng.random((MOVES, DRAWS)), pool)
            known = np.flatnonzero(pool.value != NONE)
            first = known[np.argmin(pool.value[known])] if len(known) else 0
            if len(known) and (self.best is None or pool.value[first] < self.best[1].period):
                period = int(pool.value[first])
                allocation = Allocation(device=pool.device[first], devices=devices)
                seen = wanted.machines.on(wanted.chain, allocation)
                _, start = quick_starts(self.on, pool.device[first], period)
                # Halves of runs and, between them, those of cuts; such as take no ticks have no rows.
                met = np.ones(len(start) // 2, dtype=np.bool_)
                met[1::2] = seen.transfers[allocation.crossed] > 0
                ahead, back = ints(start[: len(met)][met]), ints(start[len(met) :][::-1][met])
                rows = batch_rows(seen, allocation, ahead, back)
                self._take(allocation, pattern_from_starts(allocation, 1, period, rows))

    @property
    def longest(self) -> int:
        """Ticks of a batch by itself, wherever it goes: no period need be longer."""
        on = self.on
        passed = on.forward[:, -1].max() + on.backward[:, -1].max() + on.transfers.max(axis=0).sum()
        return max(1, int(passed))

    def _take(self, allocation: Allocation, pattern: Pattern) -> None:
        wanted = self.wanted
        seen = wanted.machines.on(wanted.chain, allocation)
        checked = check(seen, allocation, pattern, wanted.machines.memory, wanted.model)
        if not checked.valid:
            raise RuntimeError(f"an invalid schedule was found: {checked.text}")
        if self.best is None or pattern.period < self.best[1].period:
            self.best = allocation, pattern

    def race(self) -> None:
        """Ask the exact scheduler for less, on every allocation that may have it, or on the best of the pool."""
        wanted, k, total = self.wanted, self.wanted.k, self.wanted.k * self.longest
        if total > _MOST_TICKS or self.over:
            return
        below = total + 1 if self.best is None else ceil(self.best[1].period * k)
        seconds = self.until - time.monotonic()
        order = np.argsort(self.pool.value, kind="stable")
        rows, every = self.pool.device[order[self.pool.value[order] != NONE]], False
        if wanted.chain.layers <= _MOST_LAYERS:
            result, count = every_allocation(self.on, ints(wanted.machines.kinds()), -(-below // k), EVERY)
            rows, every = (result[:count], True) if count <= EVERY else (rows, False)
        tasks = list[ModuloTask]()
        for row in rows:
            allocation = Allocation(device=row, devices=wanted.machines.devices)
            question = PeriodicProblem(
                chain=wanted.machines.on(wanted.chain, allocation), allocation=allocation, k=k,
                memory=wanted.machines.memory, model=wanted.model, most=below - 1, seconds=seconds, apart=every,
            )  # fmt: skip
            task = ModuloTask(question)
            if not task.misfit and task.asked.least < below:
                tasks.append(task)
        tasks.sort(key=lambda task: task.asked.least)
        least = below
        for line in self._lines(tasks, below, seconds):
            if isinstance(line, RaceEnd):
                least = line.least
                continue
            answer = tasks[line.at].answered(line.told)
            if answer.pattern is not None:
                self._take(tasks[line.at].question.allocation, answer.pattern)
        if every:
            self.infeasible = not tasks and self.best is None
            self.least = Fraction(least, k)

    def _lines(self, tasks: list[ModuloTask], below: int, seconds: float) -> Iterator[RaceImprovement | RaceEnd]:
        """Yield the lines of the process; if it was ended, a line that proves nothing below the first period."""
        if not tasks:
            yield RaceEnd(least=below)
            return
        yield RaceEnd(least=tasks[0].asked.least)
        given = [msgspec.json.encode(RaceRequest(seconds=seconds, below=below))]
        given += [msgspec.json.encode(each.asked) for each in tasks]
        answer = streamed(
            "solvers.pipelining.modulo_program", b"\n".join(given) + b"\n", seconds + GRACE_S, solver="CP-SAT"
        )  # fmt: skip
        for line in answer:
            yield msgspec.json.decode(line, type=RaceImprovement | RaceEnd)


MOST_SECONDS = 5.0
"""Upper limit of the seconds of the search."""


def roomy_memory(chain: Chain, devices: int, model: MemoryModel, *, seconds: float = MOST_SECONDS) -> int:
    """Return bytes of each of the equal devices that some allocation fits; weights and one batch are spread evenly.

    The least there is where CP-SAT proves so, and what is received takes nothing.
    """
    held = with_one_batch(chain).weights
    alone = replace(
        chain, forward=held, backward=0 * held, weight_gradient=0 * held, transfers=0 * chain.transfers
    )  # fmt: skip
    spread = least_load(alone, Machines.alike(devices), seconds=seconds)
    device = np.zeros(chain.layers, dtype=np.int64) if spread is None else np.array(spread.allocation.device)
    full = ground(chain, Machines.alike(devices, 0), model)
    return max(
        int(lacking(full._replace(memory=np.where(np.arange(devices) == d, 0, full.memory + (1 << 60))), device))
        for d in range(devices)
    )
