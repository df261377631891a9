"""Options of comparisons, sweeps, splits and pipelines, each declared once, as those of a solve are in `Settings`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from pesto.choosing.whatif.grid import AXES, ClusterPoint, SweepGrid, chosen_values
from pesto.core.errors import UsageError
from pesto.core.files.json import quoted
from pesto.core.files.toml import suggest
from pesto.core.option import check_options, option
from pesto.core.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of a comparison of methods on one step; UsageError for an option that is out of range."""

    methods: Annotated[str | Iterable[str], option("Names with commas between, or all.", "Search")] = "all"
    time_limit_s: Annotated[
        float, option("Of each method that searches (mcmc: at most 10 s).", "Search", ge=0, called="the time limit")
    ] = 30.0
    solver: Annotated[
        str,
        option("Of the method pesto: see pesto solvers.", "Search", metavar="NAME", completes="solvers"),
    ] = "cpsat"  # fmt: skip
    headroom: Annotated[
        float, option("Fraction of memory that repairs spare at first (ParDNN, 5.1).", "Search", ge=0, lt=1)
    ] = 0.1
    seed: Annotated[int, option("Seed of all random choices.", "Search", ge=0, le=2**31 - 1)] = 0

    def __post_init__(self) -> None:
        """Validate."""
        check_options(self)
        from pesto.choosing.comparison.contest import chosen_methods  # late: numpy, which readers of jobs do without

        if isinstance(self.methods, Iterable) and not isinstance(self.methods, str):
            object.__setattr__(self, "methods", tuple(self.methods))  # iterators can be read once
        names = chosen_methods(self.methods)
        if self.solver != "cpsat" and "pesto" not in names:
            raise UsageError.build(
                "only the method pesto has an exact solver, and it is not among the methods", remedy="leave out solver"
            )
        self.settings()

    def settings(self) -> Settings:
        """Return the options of the method pesto."""
        return Settings(
            time_limit_s=self.time_limit_s, solver=self.solver, headroom=self.headroom, seed=self.seed
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of a sweep over changed clusters; UsageError where no axis has a value or one is out of range."""

    compute: Annotated[
        Iterable[float], option("Speed of every device, times the cluster's: 0.5,1,2.", "Search", metavar="X,...")
    ] = ()
    links: Annotated[
        Iterable[float], option("Speed of every link, times the cluster's: 0.1,1.", "Search", metavar="X,...")
    ] = ()
    devices: Annotated[
        Iterable[float], option("Number of accelerators: 2,4,8.", "Search", metavar="N,...")
    ] = ()  # fmt: skip
    memory: Annotated[
        Iterable[float],
        option("Memory of every accelerator, times the cluster's: 0.5,1.", "Search", metavar="X,..."),
    ] = ()  # fmt: skip
    cross: Annotated[bool, option("All combinations, in place of one axis at a time.", "Search")] = False
    time_limit_s: Annotated[float, option("Of each point's search.", "Search", ge=0, called="the time limit")] = 20.0
    seed: Annotated[int, option("Seed of all random choices.", "Search", ge=0, le=2**31 - 1)] = 0

    def __post_init__(self) -> None:
        """Validate."""
        check_options(self)
        values = chosen_values({axis: getattr(self, axis) for axis in AXES})
        for axis in AXES:
            object.__setattr__(self, axis, values.get(axis, ()))  # iterators can be read once
        self.grid(1)

    def settings(self) -> Settings:
        """Return the options of each point's solve."""
        return Settings(time_limit_s=self.time_limit_s, seed=self.seed)

    def grid(self, devices: int) -> SweepGrid:
        """Return the points around a cluster of so many accelerators."""
        values = {axis: tuple(getattr(self, axis)) for axis in AXES if getattr(self, axis)}
        return SweepGrid(base=ClusterPoint(devices=devices), values=values, cross=self.cross)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """Options of cuts of a step's tensors; UsageError for an option that is out of range."""

    workers: Annotated[
        str, option("How many: 8 for one cut of all tensors, 2x2x2 for cuts in two, one after the other.", "Machine")
    ]
    method: Annotated[
        str,
        option("exact, joint, tofu, rows, spartan, ...: docs/guides/split.md has all.", "Search", metavar="NAME"),
    ] = "exact"  # fmt: skip
    objective: Annotated[
        Literal["bytes", "seconds"],
        option("Minimise bytes sent, or modelled seconds of ops and messages on the cluster.", "Search"),
    ] = "bytes"
    replicate: Annotated[bool, option("Variables may lie whole on every worker.", "Search")] = False
    halo: Annotated[
        bool,
        option("Windows may be cut, where that saves bytes: parts fetch the rim from neighbours.", "Search"),
    ] = False  # fmt: skip
    memory_gib: Annotated[
        float | None,
        option(
            "Most that one worker may hold of variables, with slots, in GiB.", "Search", gt=0, le=2**23,
            metavar="GIB",
        ),
    ] = None  # fmt: skip
    whole: Annotated[bool, option("Accept op types without a description: every worker does them whole.", "Search")] = (
        False
    )
    time_limit_s: Annotated[
        float, option("Seconds for all cuts.", "Search", ge=0.1, called="the time limit", unit="s")
    ] = 60.0

    def __post_init__(self) -> None:
        """Validate."""
        if not self.workers:
            raise UsageError.build("how many workers?", remedy="give workers, such as 8 or 2x2x2")
        check_options(self)
        from pesto.split.methods.cut_methods import METHODS  # late: numpy, which readers of jobs do without
        from pesto.split.split_search import parse_factors

        parse_factors(self.workers)
        if self.method not in METHODS:
            raise UsageError.build(f"no method is called {quoted(self.method)}", remedy=suggest(self.method, METHODS))

    @property
    def memory_bytes(self) -> int | None:
        """Most bytes that one worker may hold of variables; None for no limit."""
        return None if self.memory_gib is None else int(self.memory_gib * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Options of a pipeline; UsageError for an option that is out of range."""

    asynchronous: Annotated[
        bool,
        option(
            "Of a function: update behind every micro-batch, by late weights (PipeDream). Changes what is computed.",
            "Search",
        ),
    ] = False
    updates_each: Annotated[
        int | None,
        option(
            "With --asynchronous: so many micro-batches an update; with 2 or more all weights are one update late "
            "(2BW).", "Search", ge=1,
        ),
    ] = None  # fmt: skip
    contiguous: Annotated[
        bool, option("Look for no stages that are shared, or not one run of layers.", "Search")
    ] = False  # fmt: skip
    k: Annotated[int, option("Look for the least period of so many batches too.", "Search", ge=0, le=64)] = 0
    time_limit_s: Annotated[
        float, option("Of all searches by CP-SAT.", "Search", ge=0, called="the time limit")
    ] = 20.0  # fmt: skip
    search_s: Annotated[
        float | None,
        option(
            "Of a step: search op by op from the best schedules, or the named one; 5 s where none is named.",
            "Search", ge=0, called="search",
        ),
    ] = None  # fmt: skip
    schedule: Annotated[
        str | None,
        option(
            "Take this one: 1f1b*, thinned, exact, free, gpipe, 1f1b, interleaved-2, zero-bubble, zero-bubble-v; of a "
            "step replicated too.", "Search", metavar="NAME",
        ),
    ] = None  # fmt: skip

    def __post_init__(self) -> None:
        """Validate."""
        check_options(self)


class CompareKeywords(TypedDict, total=False):
    """The fields of `CompareOptions` as keyword arguments, for type checkers; a test holds the two together."""

    methods: str | Iterable[str]
    time_limit_s: float
    solver: str
    headroom: float
    seed: int


class SweepKeywords(TypedDict, total=False):
    """The fields of `SweepOptions` as keyword arguments, for type checkers; a test holds the two together."""

    compute: Iterable[float]
    links: Iterable[float]
    devices: Iterable[float]
    memory: Iterable[float]
    cross: bool
    time_limit_s: float
    seed: int
