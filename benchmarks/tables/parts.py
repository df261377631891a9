"""What parts of a solve are worth: solves with one of them changed, beside the same solve of the results."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from unittest import mock

from benchmarks.tables.results import solved
from benchmarks.tables.steps import CLUSTERS
from pesto.reporting.show.lines import head, ms, row
from pesto.research.reproduction.cached_cells import PAPER, CellResult, CellSettings, Found, Key, WorkCell

ALONG, HALF, EXACT = "no graphs along plans", "no methods on half of the GPUs", "CP-SAT on 200 nodes, by the clock"
SWITCHES = {
    ALONG: ("pesto.planning.solving.search._LONGER", float("inf")),
    HALF: ("pesto.planning.solving.quick_candidates._MANY", 10**9),
}
"""By what is changed: a constant of the solve, and the value at which what it stands for never holds."""
CASES = (
    ("nasnet/6x148", "v100x2-pcie", ALONG), ("nasnet/4x212", "v100x4", ALONG), ("nmt/2x1024", "v100x2-nvlink", ALONG),
    ("nasnet/4x212", "v100x8", HALF), ("nasnet/6x148", "v100x8", HALF), ("rnnlm/4x2048", "v100x8", HALF),
    *((model, CLUSTERS[0], EXACT) for model in PAPER),
)  # fmt: skip


def cells() -> list[WorkCell]:
    """A solve for each case; the same as it is is among the results."""
    return [WorkCell("search", key, changed) for key in CASES]


def changed(key: Key, settings: CellSettings) -> Found:
    """The step where one part is off, or CP-SAT has its share of the time."""
    if key[2] == EXACT:
        return solved(key[:2], replace(settings, solver="cpsat"))
    name, value = SWITCHES[key[2]]
    with mock.patch(name, value):
        return solved(key[:2], settings)


def table(done: Mapping[Key, CellResult], results: Mapping[Key, CellResult]) -> Iterator[str]:
    """A row a case."""
    yield from head(("step", "cluster", "changed", "step ms", "as it is, ms"), 3)
    for (model, cluster, part), one in done.items():
        other = results.get((model, cluster))
        yield row((model, cluster, part, ms(one.found["step_s"]), ms(other.found["step_s"] if other else None)))
