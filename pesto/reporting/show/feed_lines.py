"""Lines of a run's page that describe the fed values."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pesto.core.quantities import plural
from pesto.reporting.show.lines import fact

MOST = 8
"""Feeds that a page names; the JSON object has all."""


class FeedLine(Protocol):
    """Values of one feed, said in a line."""

    def __str__(self) -> str:
        """The line."""


def fed_lines(feeds: Sequence[FeedLine]) -> Iterable[str]:
    """One fact for each feed, and how many others there are."""
    for feed in feeds[:MOST]:
        yield fact("fed", str(feed))
    if len(feeds) > MOST:
        yield fact("fed", f"and {plural(len(feeds) - MOST, 'other')}")
