"""How far to trust a plan: its step, and its rivals', where the times of ops and transfers are wrong."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import InputError, UsageError
from pesto.core.graph import Graph
from pesto.core.option import expect
from pesto.core.problem import TICK_S
from pesto.core.quantities import percent
from pesto.core.settings import NEAR, Settings
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.quick_candidates import baselines, multilevel
from solvers import Problem
from solvers.arrays import Floats, Ints, ints
from solvers.timing.replay import stretched_makespans

OTHER = "elementwise and other"
_KINDS = (
    ("matmul", r"MatMul|Einsum|Gemm"),
    ("depthwise convolution", r"Depthwise"),
    ("convolution gradient", r"Conv\dD?Backprop"),
    ("convolution", r"^_?(Fused)?Conv(\dD)?$"),
    ("recurrent cell", r"LSTM|GRU|CudnnRNN"),
    ("update", r"Apply|^Assign|^Scatter|ResourceScatter"),
    ("loop or call", r"^(Stateless)?(While|If|Case)|PartitionedCall"),
    ("random", r"Random|Multinomial"),
    (
        "reduction",
        r"Softmax|Norm|Pool|^(Sum|Mean|Max|Min|Prod|All|Any|ArgMax|ArgMin|L2Loss|BiasAddGrad|Cumsum|TopK)(V\d)?$|Segment",
    ),
    (
        "data movement",
        r"^(Concat|Transpose|ConjugateTranspose|Slice|StridedSlice|Split|Pack|Unpack|Pad|MirrorPad|Tile|Fill|Gather|"
        r"ResourceGather|Reverse|OneHot|BroadcastTo|Cast|ZerosLike|OnesLike|Roll|Dynamic|SpaceTo|DepthTo|BatchTo|"
        r"TensorList|Read|Identity|Reshape)",
    ),
)  # fmt: skip
"""Kind of op, pattern of TensorFlow's op types; the first that matches counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorSources:
    """Sources of common errors: kinds of op, then kinds of link, of those that take time at all."""

    kinds: tuple[str, ...]
    """Kinds of op that have an op which takes time."""
    links: tuple[str, ...]
    """Kinds of link, each called by the first pair of devices that it joins."""
    of_op: Ints
    """[n] source of each op: an index into `kinds`; any, where an op takes no time."""
    of_path: Ints
    """[c] source of each class of paths: len(kinds) and its place in `links`."""

    @property
    def count(self) -> int:
        """Number of sources."""
        return len(self.kinds) + len(self.links)

    @classmethod
    def of(cls, graph: Graph, problem: Problem, places: Sequence[str]) -> "ErrorSources":
        """Return the sources of a problem; `places` are [l] names of the locations."""
        named = np.array([kind_of(name) for name in graph.types])[graph.type_of]
        timed = (problem.duration > 0).any(axis=1)
        kinds, place = np.unique(np.concatenate([named[timed], named[:0]]), return_inverse=True)
        of_op = np.zeros(graph.ops, dtype=np.int64)
        of_op[timed] = place
        classes = problem.transfer.shape[1]
        first = [np.argwhere(problem.path_class == c)[:1].tolist() for c in range(classes)]
        links = tuple(f"{places[a]}-{places[b]}" for pair in first for a, b in pair)
        return cls(
            kinds=tuple(kinds.tolist()), links=links, of_op=ints(of_op), of_path=ints(len(kinds) + np.arange(classes))
        )


def kind_of(op_type: str) -> str:
    """Return the kind of an op type."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, op_type)), OTHER)


KINDS_SHARE = 0.5
"""Share of an error's variance that is common to its kind; the other part is the op's or the tensor's own."""
NOISE, DRAWS = 0.25, 100
MOST_NOISE, MOST_DRAWS = 2.0, 10_000
MOST_RIVALS, _ALIKE_NAMED = 5, 2
"""Maximum number of rivals of a plan, and of those of one name."""
_TASKS_RUN, _LEAST = 15_000_000, 32
"""Total tasks that a solve runs for its draws, and the minimum of draws; their maximum is DRAWS."""
_ROBUST = 5
"""Factor of draws if the choice rests on them: with 100, p90 itself is good to some percent."""
_A_SOURCE = 2
"""Minimum draws a source to tell what the sources explain."""
_REPORTED, _CHOSEN_BY = 0, 1
"""Streams of random numbers: the draws that a choice was made by favour what was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorModel:
    """Size of errors of times, and number of draws; raise UsageError if a number is out of range."""

    noise: float = NOISE
    """Standard deviation of the logarithm of a time's factor; 0 to 2. The median factor is 1."""
    draws: int = DRAWS
    """Number of draws of all errors, 1 to 10 000."""
    seed: int = 0
    """Seed of all draws, 0 to 2**31 - 1."""

    def __post_init__(self) -> None:
        """Validate."""
        give = f"a number from 0 to {MOST_NOISE:g}, such as {NOISE}"
        expect("noise", self.noise, float | int, give)
        if not 0 <= self.noise <= MOST_NOISE:
            raise UsageError.build(f"noise is {self.noise}", remedy=f"give {give}")
        for name, least, most in (("draws", 1, MOST_DRAWS), ("seed", 0, 2**31 - 1)):
            value, give = getattr(self, name), f"a whole number from {least} to {most}"
            expect(name, value, int, give)
            if not least <= value <= most:
                raise UsageError.build(f"{name} is {value}", remedy=f"give {give}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpread:
    """The step of one placement and order over all draws."""

    step_s: float
    """Seconds without errors."""
    p10_s: float
    """Seconds that a tenth of the draws do not exceed."""
    p50_s: float
    """The median, in seconds."""
    p90_s: float
    """Seconds that nine tenths of the draws do not exceed."""
    best: float
    """Share of the draws in which nothing else is shorter; the plan comes first among equals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """A plan and its best rivals where times are wrong, each draw of errors the same for all (docs/guides/trust.md)."""

    noise: float
    """Standard deviation of the logarithm of a time's factor."""
    draws: int
    """Number of draws."""
    seed: int
    """Seed of the draws."""
    plan: StepSpread
    """Spread of the plan."""
    rivals: dict[str, StepSpread]
    """Name of a candidate that fits the memory -> spread, the shortest without errors first. A second one of a name has
    a number."""
    kinds: dict[str, float]
    """Share of the variance of the logarithm of the plan's step that the common error of a kind of op explains, the
    largest first; empty where nothing varies or draws are too few to tell."""
    links: dict[str, float]
    """Likewise of transfers, by kind of link, which is called by the first pair of devices that it joins."""


def measure_trust(
    evaluator: CandidateEvaluator,
    cluster: Cluster,
    plan: Candidate,
    rivals: Iterable[Candidate],
    errors: ErrorModel,
    *,
    order: bool = True,
) -> Trust:
    """The plan against the shortest of the rivals that fit the memory; placements and orders stay as they are.

    Without an order, which the framework then makes, each draw is run first in, first out.
    """
    # Name -> the shortest that fit and are not the plan once more, each as long as a plan of it may promise.
    chosen: dict[str, Candidate] = {}
    for c in sorted((c for c in rivals if c.fits), key=lambda c: c.makespan):
        names = [c.name if k == 1 else f"{c.name} {k}" for k in range(1, _ALIKE_NAMED + 1)]
        name = next((name for name in names if name not in chosen), None)
        # Of equal placements and times the order on every device is the same, too.
        schedule, known = c.timeline.schedule, [d.timeline.schedule for d in (plan, *chosen.values())]
        new = not any(
            np.array_equal(schedule.device, d.device) and np.array_equal(schedule.start, d.start) for d in known
        )
        if name is not None and len(chosen) < MOST_RIVALS and new:
            chosen[name] = c
    priced = [(name, evaluator.priced(c) if order and c.turns is None else c) for name, c in chosen.items()]
    others = dict(sorted(priced, key=lambda row: row[1].makespan))
    runs = [plan, *others.values()]
    sources = _sources(evaluator, cluster)
    common, steps = _draw_steps(evaluator, sources, runs, errors, _REPORTED, order=order)
    first = np.bincount(steps.argmin(axis=1), minlength=len(runs)) / errors.draws
    low, middle, high = np.quantile(steps, (0.1, 0.5, 0.9), axis=0) * TICK_S
    spread = [
        StepSpread(step_s=c.makespan * TICK_S, p10_s=float(a), p50_s=float(b), p90_s=float(d), best=float(share))
        for c, a, b, d, share in zip(runs, low, middle, high, first, strict=True)
    ]
    # Squared correlation of each source's error with the logarithm of the plan's step, where that says anything.
    explained, own = list[float](), steps[:, 0]
    if len(own) >= max(3, _A_SOURCE * common.shape[1]) and 0 < own.min() < own.max():
        log = np.log(own) - np.log(own).mean()
        explained = ((common.T @ log) ** 2 / (len(log) * (log @ log))).tolist()
    kinds = len(sources.kinds)
    return Trust(
        noise=float(errors.noise),
        draws=errors.draws,
        seed=errors.seed,
        plan=spread[0],
        rivals=dict(zip(others, spread[1:], strict=True)),
        kinds=_largest_first(sources.kinds, explained[:kinds]),
        links=_largest_first(sources.links, explained[kinds:]),
    )


def least_p90(
    evaluator: CandidateEvaluator, cluster: Cluster, near: Sequence[Candidate], errors: ErrorModel
) -> Candidate:
    """Return the candidate whose step has the least p90, of candidates by length; its rule says so if it had a rival.

    Its draws are not those of `measure_trust`, to which the choice would look better than it is.
    """
    if len(near) == 1:
        return near[0]
    _, steps = _draw_steps(evaluator, _sources(evaluator, cluster), near, errors, _CHOSEN_BY)
    chosen = near[int(np.quantile(steps, 0.9, axis=0).argmin())]
    return replace(chosen, rule=f"{chosen.rule}; of least p90 among {len(near)} within {percent(NEAR)} of the shortest")


def solve_error_model(evaluator: CandidateEvaluator, settings: Settings, *, hurried: bool = False) -> ErrorModel:
    """Return as many draws as take a small part of a solve, or the fewest where its time limit is over."""
    draws = 0 if hurried else _TASKS_RUN // ((1 + MOST_RIVALS) * max(1, evaluator.problem.tasks))
    return ErrorModel(draws=min(max(draws, _LEAST), DRAWS) * (_ROBUST if settings.robust else 1), seed=settings.seed)


def remake_candidates(evaluator: CandidateEvaluator, cluster: Cluster) -> Iterator[Candidate]:
    """Yield what a solve makes before exact solver and search: baselines and quick schedules of coarser graphs."""
    planning = yield from baselines(evaluator, cluster)
    yield from multilevel(evaluator, planning, Settings())


def _sources(evaluator: CandidateEvaluator, cluster: Cluster) -> ErrorSources:
    return ErrorSources.of(evaluator.graph, evaluator.problem, [device.name for device in cluster.devices])


def _draw_steps(
    evaluator: CandidateEvaluator,
    sources: ErrorSources,
    candidates: Sequence[Candidate],
    errors: ErrorModel,
    stream: int,
    *,
    order: bool = True,
) -> tuple[Floats, Ints]:
    """([k, s] the standard normal error of each source in each draw, [k, c] ticks of each candidate's step).

    Candidates run in their order, or without `order` first in, first out.
    """
    chance = np.random.default_rng((errors.seed, stream))
    common = standardise(chance.standard_normal((errors.draws, sources.count)))
    runs = [(c.timeline.schedule.device, c.rank if order else None) for c in candidates]
    try:
        return common, stretched_makespans(
            evaluator.prepared, runs, factors(chance, sources, common, evaluator.problem.payloads, errors)
        )
    except ValueError as wrong:
        raise InputError.build(
            f"{wrong}", where=evaluator.graph.source, remedy="check its times, or give less noise"
        ) from wrong


def factors(
    chance: np.random.Generator, sources: ErrorSources, common: Floats, payloads: int, errors: ErrorModel
) -> Iterator[tuple[Floats, Floats]]:
    """Yield for each draw ([n] factor of each op's time, [p, c] of each payload's on each class of paths).

    exp(noise · (sqrt(KINDS_SHARE) · error of the kind + sqrt(1 - KINDS_SHARE) · own error)), both standard normal.
    """
    ops = len(sources.of_op)
    together, alone = errors.noise * math.sqrt(KINDS_SHARE), errors.noise * math.sqrt(1 - KINDS_SHARE)
    # A last column, as where nothing takes time there are no sources.
    for row in np.exp(together * np.column_stack([common, np.zeros(len(common))])):
        own = np.exp(alone * chance.standard_normal(ops + payloads))
        yield row[sources.of_op] * own[:ops], own[ops:, None] * row[sources.of_path][None, :]


def standardise(normal: Floats) -> Floats:
    """Return [k, s] uncorrelated columns of mean 0 and variance 1 near those given; these if rows are too few.

    With these, shares of variance that columns explain add up to at most 1, and no column is credited with another's.
    """
    rows, columns = normal.shape
    if rows < columns + 2:
        return normal
    orthogonal, triangle = np.linalg.qr(normal - normal.mean(axis=0))
    return np.asarray(orthogonal * np.where(np.diag(triangle) < 0, -1.0, 1.0) * math.sqrt(rows))


def _largest_first(names: Sequence[str], shares: Sequence[float]) -> dict[str, float]:
    return dict(sorted(zip(names, shares, strict=False), key=lambda each: -each[1]))
