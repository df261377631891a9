"""What parts of the search are worth: solves with one of them switched off, beside the same solve as it is."""

from collections.abc import Iterator, Mapping
from unittest import mock

from benchmarks.tables.cells import Asked, Cell, Done, Found, Key
from benchmarks.tables.markdown import head, ms, row
from benchmarks.tables.results import solved

ALONG, HALF = "no graphs along plans", "no methods on half of the GPUs"
SWITCHES = {
    ALONG: ("pesto.solving.search_graphs._LONGER", float("inf")),
    HALF: ("pesto.solving.baselines._MANY", 10**9),
}
"""By what is off: a constant of the solve, and the value at which it never holds."""
CASES = (
    ("nasnet/6x148", "v100x2-pcie", ALONG), ("nasnet/4x212", "v100x4", ALONG), ("nmt/2x1024", "v100x2-nvlink", ALONG),
    ("nasnet/4x212", "v100x8", HALF), ("nasnet/6x148", "v100x8", HALF),
)  # fmt: skip


def cells() -> list[Cell]:
    """A solve for each case; the same with everything on is among the results."""
    return [Cell("search", key, without) for key in CASES]


def without(key: Key, asked: Asked) -> Found:
    """The step where one part is off."""
    name, value = SWITCHES[key[2]]
    with mock.patch(name, value):
        return solved(key[:2], asked)


def table(done: Mapping[Key, Done], results: Mapping[Key, Done]) -> Iterator[str]:
    """A row a case."""
    yield from head(("step", "cluster", "without", "step ms", "with it, ms"), 3)
    for (model, cluster, part), one in done.items():
        other = results.get((model, cluster))
        yield row((model, cluster, part, ms(one.found["step_s"]), ms(other.found["step_s"] if other else None)))
