"""CP-SAT's own log, in small enough doses to be passed on: it writes some hundred lines at once."""

import time
from collections import deque
from collections.abc import Callable


def throttled(
    tell: Callable[[str], None], most: int, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """`tell`, but for lines beyond `most` in any second, and empty ones."""
    told: deque[float] = deque(maxlen=most)

    def line(text: str) -> None:
        now = clock()
        if text.strip() and (len(told) < most or now - told[0] >= 1.0):
            told.append(now)
            tell(text.rstrip())

    return line
