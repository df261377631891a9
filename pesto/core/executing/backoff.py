"""Pauses between attempts that fail each time: twice as long after each, up to a bound."""

import time
from collections.abc import Callable

FIRST_S, MOST_S = 0.1, 30.0


class Backoff:
    """Whether the next attempt may begin."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that never go back."""
        self._clock, self._next_s, self._until = clock, 0.0, 0.0

    @property
    def failing(self) -> bool:
        """Whether nothing has worked since an attempt failed."""
        return self._next_s > 0.0

    @property
    def left_s(self) -> float:
        """Seconds before the next attempt may begin."""
        return max(0.0, self._until - self._clock()) if self.failing else 0.0

    def failed(self) -> None:
        """Pause; attempts that fail within a pause were begun before it, and lengthen nothing."""
        if not self.left_s:
            pause = self._next_s or FIRST_S
            self._next_s, self._until = min(MOST_S, 2 * pause), self._clock() + pause

    def worked(self) -> None:
        """An attempt has not failed: the next one may begin at once."""
        self._next_s = 0.0
