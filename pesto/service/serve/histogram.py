"""Counts of seconds by size."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds for requests."""
JOB_S = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
"""Upper bounds for jobs."""

OTHER = "other"
"""The label of what is no route, and of methods that no route has."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


class Histogram:
    """Of values that one thread adds; others may read, and see some moment."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper bounds of all classes but the last, which has none."""
        self._bounds, self._counts, self.sum = tuple(bounds), [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulated(self) -> list[tuple[str, float]]:
        """Return for each upper bound, as Prometheus writes it, how many values are at most that."""
        total, found = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, total))
        return found


class RequestTimes:
    """Seconds of requests by method, route and status; a stream's are those of its whole length."""

    def __init__(self) -> None:
        self.by_labels: dict[tuple[str, str, str], Histogram] = defaultdict(lambda: Histogram(REQUEST_S))

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        named = method if method in _METHODS else OTHER
        self.by_labels[named, route or OTHER, str(status)].add(seconds)
