"""The one table of seeded families, and `make`: a problem from a name, a seed and integers."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from solvers.instances import plain, random
from solvers.problem import Problem

MOST_TASKS = 1_000_000
MOST_ROOM = 1 << 23
"""Tasks times GPUs of one problem at most."""
PER_EDGE = "per_edge"
"""The parameter that every family has: 1 gives each edge a payload of its own, as the paper counts transfers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An integer of a family: what it is unless given, and what it can be."""

    default: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFamily:
    """Problems of one structure."""

    function: Callable[..., Problem]
    """Takes the parameters by name, after a random generator where `seeded`."""
    seeded: bool
    parameters: Mapping[str, Parameter]
    """Without PER_EDGE, which every family has."""
    tasks: Callable[[Mapping[str, int]], int]
    """Number of tasks, from all parameters."""
    help: str
    """Description of the family, one line."""
    optimum: Callable[[Mapping[str, int]], int | None] = lambda _: None
    """The least makespan in ticks, from all parameters with PER_EDGE; None where it is not known."""


_GPUS = Parameter(default=2, least=1, most=256)
_TASKS = Parameter(default=50, least=1, most=MOST_TASKS)
_TRANSFER = Parameter(default=1, least=0, most=10**9)
_LONGEST = Parameter(default=9, least=1, most=10**9)
_LAYERS = Parameter(default=4, least=1, most=10**5)
_WIDTH = Parameter(default=10, least=1, most=10**5)

FAMILIES: dict[str, ProblemFamily] = {
    "chain": ProblemFamily(
        function=plain.chain,
        seeded=False,
        parameters={"tasks": _TASKS, "gpus": _GPUS, "transfer": _TRANSFER},
        tasks=lambda v: v["tasks"],
        help="unit tasks one after another",
        optimum=lambda v: v["tasks"],
    ),
    "fork": ProblemFamily(
        function=plain.fork,
        seeded=False,
        parameters={"tasks": Parameter(default=50, least=3, most=MOST_TASKS), "gpus": _GPUS, "transfer": _TRANSFER},
        tasks=lambda v: v["tasks"],
        help="a unit task, independent ones, a join",
        optimum=lambda v: plain.fork_optimum(v["tasks"], v["gpus"], v["transfer"]),
    ),
    "lstm-grid": ProblemFamily(
        function=plain.lstm_grid,
        seeded=False,
        parameters={
            "layers": _LAYERS,
            "steps": Parameter(default=20, least=1, most=10**5),
            "gpus": _GPUS,
            "op": Parameter(default=3, least=1, most=10**6),
            "transfer": _TRANSFER,
            "backward": Parameter(default=1, least=1, most=100),
        },
        tasks=lambda v: 2 * v["layers"] * v["steps"] + v["layers"] + v["steps"],
        help="training step of an unrolled recurrent network, one task a cell and direction",
    ),
    "transformer": ProblemFamily(
        function=plain.transformer,
        seeded=False,
        parameters={
            "layers": Parameter(default=2, least=1, most=10**5),
            "heads": Parameter(default=4, least=1, most=10**4),
            "gpus": _GPUS,
            "op": Parameter(default=1, least=1, most=10**6),
            "transfer": _TRANSFER,
            "tied": Parameter(default=1, least=0, most=1),
        },
        tasks=lambda v: v["layers"] * (5 * v["heads"] + 13) + 5,
        help="training step of attention blocks, heads in parallel; tied=1: an update is where its weight is used",
    ),
    "layered": ProblemFamily(
        function=plain.layered,
        seeded=True,
        parameters={
            "layers": _LAYERS,
            "width": _WIDTH,
            "gpus": _GPUS,
            "transfer": _TRANSFER,
            "longest": Parameter(default=1, least=1, most=10**9),
        },
        tasks=lambda v: v["layers"] * v["width"],
        help="layers of tasks, each of which reads two random ones of the layer before",
    ),
    "series-parallel": ProblemFamily(
        function=plain.series_parallel,
        seeded=True,
        parameters={
            "tasks": Parameter(default=50, least=2, most=MOST_TASKS),
            "gpus": _GPUS,
            "transfer": Parameter(default=3, least=0, most=10**9),
            "longest": _LONGEST,
        },
        tasks=lambda v: v["tasks"],
        help="a random two-terminal series-parallel graph",
    ),
    "independent": ProblemFamily(
        function=plain.independent,
        seeded=True,
        parameters={"tasks": _TASKS, "gpus": _GPUS, "makespan": Parameter(default=1000, least=1, most=10**9)},
        tasks=lambda v: v["tasks"],
        help="tasks without edges that a hidden partition spreads evenly",
        optimum=lambda v: v["makespan"],
    ),
    "planted": ProblemFamily(
        function=plain.planted,
        seeded=True,
        parameters={
            "tasks": _TASKS,
            "gpus": _GPUS,
            "makespan": Parameter(default=200, least=1, most=10**9),
            "transfer": Parameter(default=5, least=0, most=10**9),
            "edges": Parameter(default=2, least=0, most=16),
        },
        tasks=lambda v: v["tasks"],
        help="tasks, precedence and transfers around a hidden schedule without idle time",
        optimum=lambda v: None if v[PER_EDGE] else v["makespan"],
    ),
    "heterogeneous": ProblemFamily(
        function=random.heterogeneous,
        seeded=True,
        parameters={
            "layers": _LAYERS,
            "width": Parameter(default=4, least=1, most=10**5),
            "gpus": _GPUS,
            "cores": Parameter(default=2, least=1, most=256),
            "transfer": Parameter(default=4, least=0, most=10**9),
        },
        tasks=lambda v: (2 * v["layers"] + 1) * v["width"] + 1,
        help="a host and unlike GPUs with kernel lanes, shared links, tight memory",
    ),
    "random": ProblemFamily(
        function=random.generate,
        seeded=True,
        parameters={"tasks": Parameter(default=8, least=0, most=MOST_TASKS), "gpus": _GPUS},
        tasks=lambda v: v["tasks"],
        help="every feature of a problem, at random",
    ),
}
"""A new family is one function and one row here."""


def make(name: str, seed: int = 0, **parameters: int) -> Problem:
    """Return the problem of a family; equal arguments give equal problems. `seed` counts only for a seeded family.

    Raise ValueError, with the remedy, for an unknown family or parameter, a value out of range, or too large a problem.
    """
    values = settled(name, parameters)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed} is out of range - give 0 to 2^63 - 1")
    family = FAMILIES[name]
    source = (np.random.default_rng(seed),) if family.seeded else ()
    problem = family.function(*source, **{key: values[key] for key in family.parameters})
    return plain.per_edge(problem) if values[PER_EDGE] else problem


def optimum(name: str, **parameters: int) -> int | None:
    """Return the least makespan of `make(name, seed, **parameters)` for every seed, None where it is not known.

    Raise ValueError as there.
    """
    values = settled(name, parameters)
    return FAMILIES[name].optimum(values)


def ranges(name: str) -> dict[str, Parameter]:
    """Return the parameters of a family, PER_EDGE last; raise ValueError for a name that is none."""
    if name not in FAMILIES:
        raise ValueError(f"no family is called {name!r} - {_nearest(name, FAMILIES)}")
    return {**FAMILIES[name].parameters, PER_EDGE: Parameter(default=0, least=0, most=1)}


def settled(name: str, parameters: Mapping[str, int]) -> dict[str, int]:
    """Return every parameter of the family, PER_EDGE last, with defaults; raise ValueError as `make`."""
    known = ranges(name)
    for key, value in parameters.items():
        if key not in known:
            raise ValueError(f"{name} has no parameter {key!r} - {_nearest(key, known)}")
        least, most = known[key].least, known[key].most
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name}: {key} is {value!r} - give an integer from {least} to {most}")
    values = {key: parameters.get(key, parameter.default) for key, parameter in known.items()}
    tasks = FAMILIES[name].tasks(values)
    if tasks > MOST_TASKS or tasks * values["gpus"] > MOST_ROOM:
        raise ValueError(
            f"{name}: {tasks} tasks on {values['gpus']} GPUs are too many - "
            f"at most {MOST_TASKS} tasks, and {MOST_ROOM} tasks times GPUs"
        )
    return values


def label(name: str, seed: int = 0, **parameters: int) -> str:
    """Return the label of a family's problem: its name, every parameter, and the seed if there is one."""
    words = [f"{key}={value}" for key, value in settled(name, parameters).items() if key != PER_EDGE or value]
    return " ".join([name, *words, *([f"seed={seed}"] if FAMILIES[name].seeded else [])])


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"known: {', '.join(names)}"
