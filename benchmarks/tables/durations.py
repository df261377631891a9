"""Ops by duration, beside the paper's Table 1, which was measured on a V100; ours are modelled for one."""

from collections.abc import Iterator, Mapping

from pesto.reporting.show.lines import head, row
from pesto.research.reproduction.cached_cells import CellResult, Key, WorkCell
from pesto.research.reproduction.work.solves import counted

TABLE_1 = {
    "transformer/6x16x2048": (14511, 4119, 763),
    "rnnlm/2x2048": (3401, 973, 240),
    "nasnet/4x212": (14191, 1677, 1033),
    "nmt/2x1024": (21243, 8114, 703),
}
"""Ops below 10 µs, up to 100 µs and above."""


def cells() -> list[WorkCell]:
    """One for each of the paper's models."""
    return [WorkCell("durations", (model,), counted) for model in TABLE_1]


def table(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """One row a model."""
    yield from head(("model", "< 10 µs", "10-100 µs", "> 100 µs", "paper: < 10 µs", "10-100 µs", "> 100 µs"))
    for (model,), one in done.items():
        yield row((model, *one.found["ops"], *TABLE_1[model]))
