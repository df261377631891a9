"""Who waits and who runs, in memory: the order of the queue and how much each token has, as the database has it."""

import time
from array import array
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable

from pesto.serve.store.database import Asked

RECENT_S = 1.0
QUEUED = "SELECT token, priority, number FROM jobs WHERE state = 'queued'"
RUNNING = "SELECT token FROM jobs WHERE state IN ('running', 'cancelling')"


class Waiting:
    """The queue's order, and each token's queued and running jobs.

    One thread changes it; others may read, and see it as of some moment.
    """

    def __init__(self) -> None:
        self._order: dict[int, array[int]] = {}  # numbers by priority: 8 bytes a job, of which a million may wait
        self.queued: Counter[str] = Counter()
        self.running: Counter[str] = Counter()

    def reload(self, database: Asked) -> None:
        """Begin anew with what the database has."""
        self.reset(database.execute(QUEUED), (token for (token,) in database.execute(RUNNING)))

    def reset(self, queued: Iterable[tuple[str, int, int]], running: Iterable[str]) -> None:
        """Begin anew from rows (token, priority, number) of what waits, and the token of each job that runs."""
        order: dict[int, array[int]] = defaultdict(lambda: array("q"))
        many: Counter[str] = Counter()
        for token, priority, number in queued:
            order[priority].append(number)
            many[token] += 1
        self._order = {priority: array("q", sorted(numbers)) for priority, numbers in order.items()}
        self.queued = many
        self.running = Counter(running)

    def __len__(self) -> int:
        """How many wait."""
        return self.queued.total()

    def queued_of(self, token: str) -> int:
        """How many of a token's wait."""
        return self.queued[token]

    def may_begin(self, token: str, most: int) -> bool:
        """Whether fewer of a token's run than `most`."""
        return self.running[token] < most

    def place(self, priority: int, number: int) -> int:
        """Return the place of a waiting job by priority and number, from 1; tokens take turns besides."""
        before = sum(len(numbers) for larger, numbers in list(self._order.items()) if larger > priority)
        return before + bisect_left(self._order.get(priority, ()), number) + 1

    def join(self, token: str, priority: int, number: int) -> None:
        """One more waits."""
        insort(self._order.setdefault(priority, array("q")), number)
        self.queued[token] += 1

    def leave(self, token: str, priority: int, number: int) -> None:
        """One less waits."""
        numbers = self._order.get(priority, array("q"))
        at = bisect_left(numbers, number)
        if number not in numbers[at : at + 1]:
            raise ValueError(f"job {number} does not wait")
        del numbers[at]
        if not numbers:
            del self._order[priority]
        self.queued[token] -= 1

    def begin(self, token: str) -> None:
        """One more runs."""
        self.running[token] += 1

    def end(self, token: str) -> None:
        """One less runs."""
        self.running[token] -= 1


class RecentWaiting:
    """Who waits and who runs as the database had it within the last second: for reading, where others change it."""

    def __init__(self, database: Asked) -> None:
        self._db, self._seen, self._looked = database, Waiting(), -RECENT_S

    def __call__(self) -> Waiting:
        """As of less than a second ago."""
        now = time.monotonic()
        if now >= self._looked + RECENT_S:
            self._seen.reload(self._db)
            self._looked = now
        return self._seen
