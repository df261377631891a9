"""Who waits and who runs, in memory: the order of the queue and how much each token has, as the database has it."""

import time
from array import array
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from pesto.service.serve.store.database import Queryable

RECENT_S = 1.0
QUEUED = "SELECT token, priority, number FROM jobs WHERE state = 'queued'"
RUNNING = "SELECT token FROM jobs WHERE state IN ('running', 'cancelling')"


class Waiting:
    """The queue's order, and each token's queued and running jobs.

    One thread changes it; others may read, and see it as of some moment.
    """

    def __init__(self) -> None:
        # Numbers by priority and token: 8 bytes a job, of which a million may wait.
        self._order: dict[int, dict[str, array[int]]] = {}
        self.queued: Counter[str] = Counter()
        self.running: Counter[str] = Counter()

    def reload(self, database: Queryable) -> None:
        """Begin anew with what the database has."""
        self.reset(database.execute(QUEUED), (token for (token,) in database.execute(RUNNING)))

    def reset(self, queued: Iterable[tuple[str, int, int]], running: Iterable[str]) -> None:
        """Begin anew from rows (token, priority, number) of what waits, and the token of each job that runs."""
        order: dict[int, dict[str, array[int]]] = defaultdict(lambda: defaultdict(lambda: array("q")))
        many: Counter[str] = Counter()
        for token, priority, number in queued:
            order[priority][token].append(number)
            many[token] += 1
        self._order = {
            priority: {token: array("q", sorted(numbers)) for token, numbers in tokens.items()}
            for priority, tokens in order.items()
        }
        self.queued = many
        self.running = Counter(running)

    def __len__(self) -> int:
        """Return the number of queued jobs."""
        return self.queued.total()

    def queued_of(self, token: str) -> int:
        """Return the number of a token's queued jobs."""
        return self.queued[token]

    def may_begin(self, token: str, most: int) -> bool:
        """Return True if fewer than `most` of a token's jobs run."""
        return self.running[token] < most

    def place(self, token: str, priority: int, number: int, had_s: Callable[[str], float]) -> int:
        """Return the place of a waiting job, from 1, in the order of `Ledger.begin` if no job ended meanwhile.

        Tokens' limits of running jobs are left out. `had_s`: seconds of workers that a token has had in 24 hours; asked
        where turns are equal.
        """
        turns, before = Counter(self.running), 0  # how many of each token's run when its next one of `priority` begins
        for larger, tokens in list(self._order.items()):
            if larger > priority:
                for other, numbers in list(tokens.items()):
                    turns[other] += len(numbers)
                    before += len(numbers)
        equal = self._order.get(priority, {})
        rank = bisect_left(equal.get(token, ()), number)
        turn = turns[token] + rank
        for other, numbers in list(equal.items()):
            earlier = turn - turns[other]
            if other == token:
                before += rank
            elif earlier >= 0:
                before += min(earlier, len(numbers))
                level = numbers[earlier : earlier + 1]  # the other's job with as many running ones before it
                before += bool(level) and (had_s(other), level[0]) < (had_s(token), number)
        return before + 1

    def join(self, token: str, priority: int, number: int) -> None:
        """Count one more queued job of a token."""
        insort(self._order.setdefault(priority, {}).setdefault(token, array("q")), number)
        self.queued[token] += 1

    def leave(self, token: str, priority: int, number: int) -> None:
        """Count one queued job less."""
        numbers = self._order.get(priority, {}).get(token, array("q"))
        at = bisect_left(numbers, number)
        if number not in numbers[at : at + 1]:
            raise ValueError(f"job {number} does not wait")
        del numbers[at]
        if not numbers:
            del self._order[priority][token]
        if not self._order[priority]:
            del self._order[priority]
        self.queued[token] -= 1

    def begin(self, token: str) -> None:
        """Count one more running job."""
        self.running[token] += 1

    def end(self, token: str) -> None:
        """Count one running job less."""
        self.running[token] -= 1


class RecentWaiting:
    """Queued and running jobs, read from a database that others change, at most a second old."""

    def __init__(self, database: Queryable) -> None:
        self._db, self._seen, self._looked = database, Waiting(), -RECENT_S

    def __call__(self) -> Waiting:
        """Return the jobs as of less than a second ago."""
        now = time.monotonic()
        if now >= self._looked + RECENT_S:
            self._seen.reload(self._db)
            self._looked = now
        return self._seen
