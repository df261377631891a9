"""The named schedules of one chain on devices, each on the stages that it is made for; all are checked."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol, TypeVar

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.pipelining.replicas import Replicas
from pesto.pipelining.unrolled import Unrolled, unroll
from solvers.arrays import Ints, ints
from solvers.compiled.interruption import struck
from solvers.pipelining.any_allocation import back_to_back, least_load, with_one_batch
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel, Pattern
from solvers.pipelining.contiguous import Cuts, best_cuts, thinnings
from solvers.pipelining.device_sums import equal_shares, least_device_sum
from solvers.pipelining.exact_periodic import PeriodicProblem, exact
from solvers.pipelining.flushed import gpipe, interleaved, one_f_one_b, round_robin, v_shaped, zero_bubble
from solvers.pipelining.one_f_one_b_star import thinned
from solvers.pipelining.pattern_check import check
from solvers.pipelining.pipeline_bounds import PeriodBound, best, of_machines
from solvers.pipelining.within_memory import PeriodSearchSpec, least_anywhere

STAR, THINNED, EXACT, FREE = "1f1b*", "thinned", "exact", "free"
NAMES = (STAR, THINNED, EXACT, FREE, "gpipe", "1f1b", "interleaved-2", "zero-bubble", "zero-bubble-v")
"""Schedules that can be requested: the periodic ones of the paper, the exact one, that of stages which need not be
contiguous, then those that begin and end empty."""
REPLICATED = "replicated"
"""Stages that several devices share, whole batches each; for steps only."""
FREED = (FREE, REPLICATED)
"""Those that have more than one run of layers a device, or several devices a stage."""
LONGEST_THINNING = 5
"""Maximum number of consecutive batches of which a thinned schedule keeps some."""
_EXACT_SHARE = 0.5
"""Share of the time left that the exact schedule may take where stages are looked for after it."""
MOST_SECONDS = 5.0
"""Maximum seconds of the search for stages that need not be contiguous."""
CLOCK: Callable[[], float] = time.monotonic
"""Returns the seconds that the time of searches is counted in."""
TIME_OVER = "not looked for: the time was over"
NO_CONTIGUOUS, NO_STAGES, NONE_FOUND = (
    "no contiguous stages were found that fit the memory",
    "no stages fit the memory",
    "no stages were found that fit the memory",
)
"""Why a schedule has no stages where memory is short."""
_FAILED = "its solver failed: {}"
MOST_BATCHES, MOST_HALVES = 1 << 12, 1 << 18
"""Batches of a step, and forward halves of all its layers and batches, that are laid out at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRequest:
    """A chain, the devices that it is laid on, and what is to be found."""

    chain: Chain
    machines: Machines
    """The devices, with their memory."""
    model: MemoryModel = MemoryModel.RECEIVED
    batches: int = 8
    """Micro-batches of a step."""
    k: int = 0
    """Batches of a period that the exact schedule may have; 0: it is not looked for."""
    seconds: float = 20.0
    """That all searches by CP-SAT may take together."""
    until: float = math.inf
    """Moment of CLOCK at which they end; set by `begun`."""
    contiguous: bool = True
    """True if FREE is not looked for."""

    def __post_init__(self) -> None:
        """ValueError for no batch, more than can be laid out, and what is below 0."""
        if self.batches < 1:
            raise ValueError(f"{self.batches} micro-batches - give 1 or more")
        most = min(MOST_BATCHES, MOST_HALVES // self.chain.layers)
        if self.batches > most:
            raise ValueError(f"{self.batches} micro-batches of {self.chain.layers} layers - give {most} or fewer")
        if self.k < 0 or not self.seconds >= 0:
            raise ValueError(f"k is {self.k} and the time {self.seconds} s - give none below 0")

    def begun(self) -> "ChainRequest":
        """Return the same with its seconds counted from now, or as it is where they are counted already."""
        return self if math.isfinite(self.until) else replace(self, until=CLOCK() + self.seconds)

    @property
    def left_s(self) -> float:
        """Seconds that are left for searches."""
        return min(self.seconds, max(0.0, self.until - CLOCK()))

    @property
    def over(self) -> bool:
        """True where searches were given time and none of it is left."""
        return self.left_s == 0 < self.seconds

    @property
    def devices(self) -> int:
        """How many, P."""
        return self.machines.devices

    def seen(self, allocation: Allocation) -> Chain:
        """Return the chain as the devices run it."""
        return self.machines.on(self.chain, allocation)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainSchedule:
    """One schedule; without a pattern, `why` says why there is none."""

    name: str
    why: str = ""
    """Why there is none, or which device it does not fit."""
    allocation: Allocation | None = None
    pattern: Pattern | None = None
    """Checked: each batch once, no dependency broken, nothing at once on one device or link."""
    period: Fraction | None = None
    """Ticks a batch; of a schedule that begins and ends empty, those of its step over its batches."""
    run: Unrolled | None = None
    """All micro-batches of a step."""
    peaks: Ints | None = None
    """[P] most bytes on each device."""
    in_flight: Ints | None = None
    """[L] most batches of each layer."""
    fits: bool = False
    """True if the peaks are within the memory."""
    periodic: bool = False
    """True if it goes on for ever, so that its period is what a batch takes."""
    keep: tuple[int, int] = (1, 1)
    """(k, n) of a thinning."""
    floor: PeriodBound | None = None
    """Lower bound on the period of any schedule on any stages, as reported by CP-SAT; FREE only."""
    least: Fraction | None = None
    """Lower bound on periods of as many batches over all stages, as reported by CP-SAT (not certified); FREE only."""
    infeasible: bool = False
    """True if CP-SAT reports that no stages have room for a batch; FREE only."""
    interrupted: bool = False
    """True if Ctrl-C ended the search for it."""
    load: int | None = None
    """Ticks a micro-batch of the busiest device, summed over its two stages."""
    load_bound: int | None = None
    """No cuts into as many stages on these devices, in this order, have a busiest device with fewer ticks than this."""
    shared: Replicas | None = None
    """Stages that several devices share, in place of an allocation; REPLICATED only."""

    @property
    def rows(self) -> Ints:
        """[r, 3] first layer, last layer and device, of each device of each stage; none without stages."""
        if self.shared is not None:
            return self.shared.rows
        return ints(np.zeros((0, 3))) if self.allocation is None else self.allocation.stages

    @property
    def load_gap(self) -> float | None:
        """The busiest device's ticks over their bound, less 1; None where there is no such bound."""
        if self.load is None or self.load_bound is None:
            return None
        return self.load / self.load_bound - 1 if self.load_bound else 0.0

    @property
    def step(self) -> int | None:
        """Ticks of a step, from empty to empty."""
        return None if self.run is None else self.run.step


class Interruptible(Protocol):
    """A search that Ctrl-C may have ended early."""

    @property
    def interrupted(self) -> bool:
        """True if it was."""


Made = TypeVar("Made", bound=Interruptible)


def check_name(name: str | None, names: Sequence[str], *, k: int, contiguous: bool) -> None:
    """Raise UsageError for a schedule that is none of these, or that other options leave out."""
    if name is not None and name not in names:
        raise UsageError.build(f"there is no schedule {name!r}", remedy=f"give one of {', '.join(names)}")
    if name == EXACT and not k:
        raise UsageError.build(
            f"{EXACT} is of so many batches a period, and none are asked for", remedy="give k too, such as 1"
        )
    if contiguous and name in FREED:
        raise UsageError.build(f"{name} has other than contiguous stages", remedy="do not ask for contiguous ones")


def gather_schedules(
    schedules: Iterable[Made], enough: Callable[[Made], bool], *, interrupted: bool = False
) -> tuple[list[Made], bool]:
    """Return all that is made, and whether Ctrl-C came, or had come: after it no more than until one is enough.

    KeyboardInterrupt where it ends what makes them before one is.
    """
    result = list[Made]()
    try:
        for each in schedules:
            result.append(each)
            interrupted |= each.interrupted
            if interrupted and any(map(enough, result)):
                break
    except (KeyboardInterrupt, Exception) as error:
        if not (struck(error) and any(map(enough, result))):
            raise
        interrupted = True
    return result, interrupted


def all_schedules(request: ChainRequest, cuts: Cuts | None, thin: Cuts | None) -> Iterator[ChainSchedule]:
    """Yield all of NAMES. cuts: contiguous stages for the memory; thin: for thinnings of it; None: none fits."""
    roomy, known = without_memory(request).allocation, ChainSchedule(name=STAR)
    for made in periodic_schedules(request, cuts, thin):
        shorter = made.name != EXACT and made.period and (not known.period or made.period < known.period)
        known = made if shorter else known
        yield made
    yield _free(request, known)
    for name, make in _FLUSHED.items():
        try:
            yield make(request, name, roomy)
        except ValueError as error:
            yield ChainSchedule(name=name, why=str(error))


def periodic_schedules(request: ChainRequest, cuts: Cuts | None, thin: Cuts | None) -> Iterator[ChainSchedule]:
    """Yield those of contiguous stages that go on for ever: STAR, THINNED and EXACT; arguments as `all_schedules`."""
    for name, result in ((STAR, cuts), (THINNED, thin)):
        if result is None:
            yield ChainSchedule(name=name, why=NO_CONTIGUOUS)
            continue
        pattern = thinned(request.seen(result.allocation), result.allocation, result.T, result.keep)
        measured = _measured(request, name, result.allocation, pattern)
        yield replace(measured, periodic=True, keep=result.keep)
    yield _exact(request, thin or cuts)


def _exact(request: ChainRequest, cuts: Cuts | None) -> ChainSchedule:
    """Return the least period of k batches on these stages, as far as it is found in the time."""
    if not request.k or cuts is None:
        return ChainSchedule(name=EXACT, why="not looked for" if cuts else NO_CONTIGUOUS)
    if request.over:
        return ChainSchedule(name=EXACT, why=TIME_OVER)
    question = PeriodicProblem(
        chain=request.seen(cuts.allocation), allocation=cuts.allocation, k=request.k, memory=request.machines.memory,
        model=request.model, seconds=request.left_s * (1 if request.contiguous else _EXACT_SHARE),
    )  # fmt: skip
    try:
        answer = exact(question)
    except KeyboardInterrupt:
        return ChainSchedule(name=EXACT, why="interrupted", interrupted=True)
    except RuntimeError as error:
        return ChainSchedule(name=EXACT, why=_FAILED.format(shown(error, 200)))
    if answer.pattern is None:
        return ChainSchedule(name=EXACT, why=answer.infeasible or "none was found in the time")
    return replace(_measured(request, EXACT, cuts.allocation, answer.pattern), periodic=True)


def _free(request: ChainRequest, known: ChainSchedule) -> ChainSchedule:
    """Stages that need not be contiguous: of the least greatest load, or within memory of the least period found.

    `known`: the quickest of contiguous ones, which it is never above. Not looked for where none can be shorter.
    """
    if request.contiguous:
        return ChainSchedule(name=FREE, why="not looked for")
    try:
        bound = best(of_machines(request.chain, request.machines, request.model))
    except ValueError:
        return ChainSchedule(name=FREE, why=NO_STAGES, infeasible=True)
    needless = known.period == bound.value
    if needless or request.over:
        return ChainSchedule(
            name=FREE, why=f"not looked for: none is shorter than {known.name}" if needless else TIME_OVER
        )
    try:
        return _anywhere(request, known)
    except KeyboardInterrupt:
        return ChainSchedule(name=FREE, why="interrupted", interrupted=True)
    except RuntimeError as error:
        return ChainSchedule(name=FREE, why=_FAILED.format(shown(error, 200)))


def _anywhere(request: ChainRequest, known: ChainSchedule) -> ChainSchedule:
    chain = request.chain
    spread = least_load(with_one_batch(chain), request.machines, seconds=min(request.left_s / 2, MOST_SECONDS))
    if spread is not None:
        at = spread.allocation
        loaded = _measured(request, FREE, at, back_to_back(request.seen(at), at))
        if loaded.fits:
            return replace(loaded, periodic=True, floor=spread.bound)
    wanted = PeriodSearchSpec(
        chain=chain, machines=request.machines, model=request.model, k=max(1, request.k), seconds=request.left_s,
        enough=spread.bound.value if spread else None,
    )  # fmt: skip
    start = None if known.allocation is None or known.pattern is None else (known.allocation, known.pattern)
    answer = least_anywhere(wanted, start, spread.allocation if spread else None)
    if answer.allocation is None or answer.pattern is None:
        why = NO_STAGES if answer.infeasible else NONE_FOUND
        return ChainSchedule(name=FREE, why=why, infeasible=answer.infeasible, interrupted=answer.interrupted)
    return replace(
        _measured(request, FREE, answer.allocation, answer.pattern), periodic=True, least=answer.least,
        floor=spread.bound if spread else None, interrupted=answer.interrupted,
    )  # fmt: skip


def _measured(request: ChainRequest, name: str, allocation: Allocation, pattern: Pattern) -> ChainSchedule:
    """Return a pattern with what it holds; RuntimeError for one that is not valid, which is a fault of its maker."""
    result = check(request.chain, allocation, pattern, None, request.model, request.machines)
    if not result.valid:
        raise RuntimeError(f"{name} is no valid schedule: {result.text}")
    memory = request.machines.memory
    over = [] if memory is None else np.flatnonzero(result.peaks > memory).tolist()
    return ChainSchedule(
        name=name, allocation=allocation, pattern=pattern, period=pattern.period, peaks=result.peaks,
        run=unroll(request.seen(allocation), pattern, request.batches), in_flight=result.in_flight, fits=not over,
        why=f"out of memory on device {over[0]}" if over else "",
    )  # fmt: skip


def without_memory(request: ChainRequest) -> Cuts:
    """Return one stage a device, cut where the period is least without limit of memory."""
    cuts = best_cuts(request.chain, replace(request.machines, memory=None), request.model)
    if cuts is None:
        raise RuntimeError("without a limit of memory all stages fit")
    return cuts


def _two_each(request: ChainRequest, device: list[int], make: Callable[[list[int]], ChainSchedule]) -> ChainSchedule:
    """Return the shortest schedule of two stages a device, cut by the least largest device sum or at equal shares.

    device: [2 P] device of each stage. make: the schedule of stages with so many layers each. ValueError where there
    are fewer layers than stages.
    """
    if request.chain.layers < len(device):
        raise ValueError(f"two stages a device need {len(device)} layers")
    least = least_device_sum(request.chain, request.machines, device)
    cuts = [list(least.layers)]
    shares = equal_shares(request.chain, request.machines, device)
    schedules = [make(each) for each in (cuts if shares in cuts else [*cuts, shares])]
    # The shortest of those that fit, else of all; the first of equal ones.
    shortest = min(schedules, key=lambda each: (not each.fits, each.period or Fraction(0)))
    if shortest.allocation is None:
        return shortest
    sums = np.bincount(shortest.allocation.device, weights=request.seen(shortest.allocation).loads)
    return replace(shortest, load=int(sums.max()), load_bound=least.bound)


def _on_these(make: Callable[[Chain, Allocation, int], Pattern]) -> "_Maker":
    return lambda request, name, at: _measured(request, name, at, make(request.seen(at), at, request.batches))


def _interleaved(request: ChainRequest, name: str, _: Allocation) -> ChainSchedule:
    def make(layers: list[int]) -> ChainSchedule:
        at = round_robin(layers, request.devices)
        return _measured(request, name, at, interleaved(request.seen(at), at, request.batches))

    return _two_each(request, [*range(request.devices)] * 2, make)


def _v_shaped(request: ChainRequest, name: str, _: Allocation) -> ChainSchedule:
    device = [*range(request.devices), *reversed(range(request.devices))]
    return _two_each(request, device, lambda layers: _zero_bubble(request, name, v_shaped(layers)))


def _zero_bubble(request: ChainRequest, name: str, allocation: Allocation) -> ChainSchedule:
    """With as many batches in flight as there are stages, or the most that fit the memory."""
    result = list[ChainSchedule]()
    stages = len(allocation.stages)
    for most in range(stages, 0, -1):
        pattern = zero_bubble(request.seen(allocation), allocation, request.batches, [most] * stages)
        result.append(_measured(request, name, allocation, pattern))
        if result[-1].fits:
            return result[-1]
    return result[0]


_Maker = Callable[[ChainRequest, str, Allocation], ChainSchedule]
_FLUSHED: dict[str, _Maker] = {
    "gpipe": _on_these(gpipe), "1f1b": _on_these(one_f_one_b), "interleaved-2": _interleaved,
    "zero-bubble": _zero_bubble, "zero-bubble-v": _v_shaped,
}  # fmt: skip
"""Name -> what makes a step from empty to empty, of the stages that are best without memory or of its own."""

KEEPS = thinnings(LONGEST_THINNING)
"""(k, n) of every thinning that is tried."""
