"""Numbers printed in the papers for each table and figure, with sources and reasons for deviations."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pesto.core.errors import UsageError
from pesto.core.files import toml

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperNumbers:
    """One table or figure of a paper."""

    name: str
    """As the command line has it."""
    source: str
    """The paper, and its table, figure or section."""
    title: str
    ours: str
    """Our counterpart, and whether it is modelled or measured."""
    says: str = ""
    """Statements of the paper's text."""
    reasons: tuple[str, ...] = ()
    """Why ours differs."""
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)
    """The paper's numbers, by row and column."""

    def number(self, row: str, column: str) -> float | None:
        """One number; None where the paper has none there."""
        return self.numbers.get(row, {}).get(column)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PaperFile:
    format_version: int
    artefacts: tuple[PaperNumbers, ...]


@cache
def load_printed() -> dict[str, PaperNumbers]:
    """By name, in the order of the papers; UsageError where the file is not as it should be."""
    path = Path(__file__).with_name("printed.toml")
    result = toml.load(path, _PaperFile)
    if result.format_version != VERSION:
        raise UsageError.build(
            f"format_version {result.format_version} is not known", where=path, remedy=f"this reads {VERSION}"
        )
    return {each.name: each for each in result.artefacts}
