"""What CBC writes while it runs: its bounds, what became of the start, how it ended."""

import math
import re

_NUMBER = r"(-?\d\S*?)"
_BOUNDS = (
    (re.compile(rf"{_NUMBER} best solution, best possible {_NUMBER} "), 1e-7, 0.0),
    (re.compile(rf"best objective {_NUMBER} \(best possible {_NUMBER}\)"), 1e-7, 0.0),
    (re.compile(rf"^Continuous objective value is {_NUMBER} - "), 1e-5, 0.0),
    (re.compile(rf"^Lower bound: +{_NUMBER}$"), 0.0, 1e-3),
)
"""Where a bound is written, and what rounding may have added to it there: relatively, and in itself. A bound that uses
the best objective, written beside it, holds only up to that. (For that reason "Cbc0013I At root node" is no use.)"""
_STARTED = re.compile(rf"MIPStart provided solution with cost {_NUMBER}$")
_NO_BOUND = 1e49


class Log:
    """The state of a run of CBC, as far as its log tells."""

    def __init__(self) -> None:
        self.bound = -math.inf
        """The best lower bound written so far, without what rounding may have added."""
        self.started: float | None = None
        """Objective of the start that was accepted."""
        self.proven = False
        """Whether the search is said to have been completed."""
        self.stopped = False
        """Whether a limit or a signal is said to have ended the search."""
        self.last = ""
        """The last line that is not empty."""

    def read(self, line: str) -> None:
        """Take in a line."""
        for pattern, relative, absolute in _BOUNDS:
            found = pattern.search(line)
            if found:
                written = min(map(float, found.groups()))
                if abs(written) < _NO_BOUND:
                    self.bound = max(self.bound, written - relative * abs(written) - absolute)
        started = _STARTED.search(line)
        if started:
            self.started = float(started[1])
        self.proven |= line.startswith("Result - Optimal solution found")
        self.stopped |= line.startswith(("Cbc0020I", "Cbc0027I", "Result - Stopped", "Result - User"))
        self.last = line.strip() or self.last
