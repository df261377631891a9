"""The least period, or shortest flushed step, of a fixed allocation, exactly; CP-SAT works in a process of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec
import numpy as np

from solvers.arrays import Ints, ints, offsets
from solvers.pipelining.chain import (
    FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    WEIGHT_GRADIENT,
    Allocation,
    BatchLine,
    Chain,
    MemoryModel,
    Pattern,
    line_of,
    pattern_from_starts,
    pattern_of_line,
    rows_of_layers,
)
from solvers.pipelining.modulo_wire import ChainSpec, ModuloResult
from solvers.pipelining.pattern_check import check
from solvers.process.one_shot import answered

GRACE_S = 10.0
"""Seconds beyond the limit for the process to begin and to tell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeriodicProblem:
    """A chain on fixed devices, of which k batches are to be done in the least time."""

    chain: Chain
    allocation: Allocation
    k: int
    """Batches of a period, or of the flushed step."""
    memory: int | Ints | None = None
    """Bytes of each device, or [P]; None: without limit."""
    model: MemoryModel = MemoryModel.RECEIVED
    flushed: bool = False
    """True if the pipeline begins and ends empty."""
    split: bool = False
    """True if backward halves are split."""
    apart: bool = False
    """True if the layers of a stage may take turns with other batches too where it is alone on its device."""
    most: int | None = None
    """A period, in ticks for k batches, beyond which nothing is looked for; None: one batch after the other."""
    seconds: float = 60.0
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeriodicResult:
    """The checked schedule, and the proven bound.

    `least` is proven, by CP-SAT's word, for stages whose halves run at once (where a question has layers apart, or an
    allocation that is not contiguous: layers), in the given model of memory.
    """

    pattern: Pattern | None
    """None: none was found in the time, or `infeasible`."""
    ticks: Fraction | None
    """Its period, T/k; of a flushed step its end, for all batches."""
    least: Fraction
    """No `ticks` are fewer."""
    infeasible: str = ""
    """Why memory does not even hold one batch; "" where it does."""

    @property
    def optimal(self) -> bool:
        """True if nothing shorter exists."""
        return self.ticks == self.least


def exact(question: PeriodicProblem) -> PeriodicResult:
    """Return the answer to one question."""
    return exact_all([question])[0]


def exact_all(questions: Sequence[PeriodicProblem]) -> list[PeriodicResult]:
    """Answer each question, all from one process, one after the other.

    RuntimeError where the process fails or what it finds is not valid; ValueError where k < 1 or shapes differ.
    """
    tasks = [ModuloTask(question) for question in questions]
    requests = [task.asked for task in tasks if not task.misfit]
    answers = iter(list[ModuloResult]())
    if requests:
        limit = sum(each.seconds for each in requests) + GRACE_S
        given = b"".join(msgspec.json.encode(each) + b"\n" for each in requests)
        out = answered("solvers.pipelining.modulo_program", given, limit, solver="CP-SAT")
        if out is None:
            raise RuntimeError(f"CP-SAT did not end within {limit:g} s")
        answers = iter([msgspec.json.decode(line, type=ModuloResult) for line in out.splitlines()])
    return [task.refused() if task.misfit else task.answered(next(answers)) for task in tasks]


class ModuloTask:
    """A question, and how it is asked."""

    def __init__(self, question: PeriodicProblem) -> None:
        if question.k < 1:
            raise ValueError(f"k is {question.k} - give at least one batch")
        if len(question.allocation.device) != question.chain.layers:
            raise ValueError(
                f"an allocation of {len(question.allocation.device)} layers for {question.chain.layers} layers"
            )
        self.question = question
        # Stages run at once where a device has one, if not asked for apart; else layers may take turns.
        allocation = question.allocation
        layer = np.arange(question.chain.layers)
        finest = ints(np.column_stack([layer, layer, allocation.device]))
        stages = allocation.stages if allocation.contiguous and not question.apart else finest
        self.line = line_of(question.chain, allocation, stages, split=question.split)
        line, k, memory = self.line, question.k, np.asarray(0 if question.memory is None else question.memory)
        of = {key: number for number, key in enumerate(line.ticks)}
        ticks, resource = list(line.ticks.values()), list(line.resource.values())
        weights = np.zeros(allocation.devices, dtype=np.int64)
        np.add.at(weights, allocation.device, question.chain.weights)
        room = ints(np.broadcast_to(memory, allocation.devices) - weights)
        # What one batch needs that is done by itself, one operation after the other.
        begins = offsets(ints(ticks)).tolist()
        starts = [(*key, 0, begins[number]) for number, key in enumerate(line.ticks)]
        alone = pattern_of_line(question.chain, allocation, line, 1, starts)
        lacking = check(question.chain, allocation, alone, model=question.model).peaks - memory
        self.misfit = ""
        if question.memory is not None and lacking.max() > 0:
            at = int(np.argmax(lacking > 0))
            self.misfit = f"device {at} lacks {lacking[at]} bytes for its weights and one batch"
        rows = [] if question.memory is None else _held(question, line)
        held = [
            (of[begin], late, of[end], early, device, size) for begin, late, end, early, device, size in rows if size
        ]
        waits = [(of[before], of[after]) for before, afters in line.after.items() for after in afters]
        most = max(1, k * sum(ticks)) if question.most is None else question.most
        loads = dict.fromkeys(resource, 0)
        for taken, once in zip(resource, ticks, strict=True):
            loads[taken] += once
        least = max(1, k * max(loads.values()))
        if question.flushed:
            least = max(least, sum(ticks[of[key]] for key in of if key[0] != WEIGHT_GRADIENT))
        else:
            least = max(least, _little(ticks, waits, held, room, k))
        self.asked = ChainSpec(
            ticks=ticks, resource=resource, waits=waits, held=held, room=room.tolist(),
            summed=question.model is MemoryModel.PAPER, k=k,
            least=least, most=most, flushed=question.flushed, seconds=question.seconds, workers=question.workers,
        )  # fmt: skip

    def refused(self) -> PeriodicResult:
        """Return the result of a question that no memory fits."""
        return PeriodicResult(pattern=None, ticks=None, least=self._fraction(self.asked.least), infeasible=self.misfit)

    def answered(self, told: ModuloResult) -> PeriodicResult:
        """Return the result of the process if it is valid."""
        q, least = self.question, self._fraction(told.least)
        if not told.starts:
            return PeriodicResult(pattern=None, ticks=None, least=least)
        starts = [
            (*key, batch, told.starts[number][batch])
            for number, key in enumerate(self.line.ticks)
            for batch in range(q.k)
        ]
        if q.flushed:
            pattern = pattern_of_line(q.chain, q.allocation, self.line, q.k, starts)
        else:
            pattern = pattern_from_starts(q.allocation, q.k, told.T, rows_of_layers(q.chain, self.line.stages, starts))
        checked = check(q.chain, q.allocation, pattern, q.memory, q.model)
        if not checked.valid or told.least > pattern.T:
            raise RuntimeError(f"CP-SAT gave an invalid schedule: {checked.text or 'shorter than its own bound'}")
        return PeriodicResult(pattern=pattern, ticks=self._fraction(pattern.T), least=least)

    def _fraction(self, ticks: int) -> Fraction:
        return Fraction(ticks, 1 if self.question.flushed else self.question.k)


_Row = tuple[tuple[int, int], int, tuple[int, int], int, int, int]
"""First operation (kind, stage), ticks after its start, last operation, ticks before its end, device, and bytes of what
is held from the one to the other."""


def _held(question: PeriodicProblem, line: BatchLine) -> list[_Row]:
    """List what a batch holds, in the question's model of memory."""
    chain, rows, stages = question.chain, list[_Row](), line.stages.tolist()
    # Activations are held for each layer from its own start to its own end; in the paper's model, per stage. There too
    # layers from which on nothing takes time are apart: they hold nothing where they are undone at once.
    busy = int(np.flatnonzero(chain.loads).max(initial=-1)) + 1
    whole = question.model is MemoryModel.PAPER
    for stage, (first, last, device) in enumerate(stages):
        mine, end = (FORWARD, stage), (line.release, stage)
        if whole:
            rows.append((mine, 0, end, 0, device, int(chain.activation[first : min(last + 1, busy)].sum())))
        late = early = 0
        for layer in range(first, last + 1):
            if not whole or layer >= busy:
                rows.append((mine, late, end, early, device, int(chain.activation[layer])))
            late += int(chain.forward[layer])
            early += _ticks(chain, line.release, layer, layer)
    # Inputs and gradients of a stage: what it receives before its first layer, and behind its last.
    for stage, (first, last, device) in enumerate(() if whole else stages):
        mine, end, back = (FORWARD, stage), (line.release, stage), (SEND_BACKWARD, stage - 1)
        before, behind = int(chain.output[first]), int(chain.output[last + 1])
        if not stage or stages[stage - 1][2] != device:
            there = (SEND_FORWARD, stage - 1)
            rows.append((there if there in line.ticks else mine, 0, end, 0, device, before))
        if back in line.ticks:
            late = _ticks(chain, line.gradient, first + 1, last)
            rows.append(((line.gradient, stage), late, back, 0, device, before))
        if stage + 1 < len(stages) and stages[stage + 1][2] != device:
            comes, late = (SEND_BACKWARD, stage), 0
            if comes not in line.ticks:
                comes = (line.gradient, stage + 1)
                late = _ticks(chain, line.gradient, stages[stage + 1][0] + 1, stages[stage + 1][1])
            rows.append((comes, late, end, _ticks(chain, line.release, first, last - 1), device, behind))
    return rows


def _ticks(chain: Chain, kind: int, first: int, last: int) -> int:
    """Return the ticks of one kind of operation on layers `first` to `last`, both included."""
    layers = np.arange(first, last + 1)
    return int(chain.ticks(np.full(len(layers), kind), layers).sum())


def _little(
    ticks: list[int], waits: list[tuple[int, int]], held: list[tuple[int, int, int, int, int, int]], room: Ints, k: int
) -> int:
    """Little's law: what is held for so long by each batch, and by so many at once, allows no shorter period."""
    least = 0
    for first, late, last, early, device, bytes_ in held:
        latency = [-1] * len(ticks)
        latency[first] = ticks[first]
        for before, after in sorted(waits, key=lambda pair: pair[1]):
            if latency[before] >= 0:
                latency[after] = max(latency[after], latency[before] + ticks[after])
        fit = int(room[device]) // bytes_
        if fit > 0:
            least = max(least, -(-k * (latency[last] - late - early) // fit))
    return least
