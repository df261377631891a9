"""Parser of CBC's log: bounds, objectives of incumbents, and progress of the run."""

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
_FOUND = re.compile(rf"Integer solution of {_NUMBER} found| {_NUMBER} best solution, ")
_SAME = 1e-5
"""Relative difference of two objectives below which one may be the other, written with fewer digits."""
_NO_BOUND = 1e49


class CbcLog:
    """The state of a run of CBC, as far as its log tells."""

    def __init__(self, start: float = math.inf) -> None:
        """`start` is the objective of the point that it starts from, inf without one."""
        self.bound = -math.inf
        """The best lower bound written so far, without what rounding may have added."""
        self.start = start
        """The objective of the point that it starts from, or what it makes of that."""
        self.found = math.inf
        """The objective of the best point that it has."""
        self.relaxed = False
        """True if the first linear program is solved."""
        self.searching = False
        """True if it is beyond its root node, where it looks for signals all the time."""
        self.proven = False
        """True if the search is said to have been completed."""
        self.stopped = False
        """True if a limit or a signal is said to have ended the search."""
        self.last = ""
        """The last line that is not empty."""

    @property
    def untold(self) -> bool:
        """True if it has found a point that is better than its start."""
        return self.found < self.start - _SAME * abs(self.found)

    def read(self, line: str) -> None:
        """Take in a line."""
        for pattern, relative, absolute in _BOUNDS:
            found = pattern.search(line)
            if found:
                written = min(map(float, found.groups()))
                if abs(written) < _NO_BOUND:
                    self.bound = max(self.bound, written - relative * abs(written) - absolute)
        self._points(line)
        self.relaxed |= line.startswith("Continuous objective value")
        self.searching |= line.startswith("Cbc0010I")
        self.proven |= line.startswith("Result - Optimal solution found")
        self.stopped |= line.startswith(("Cbc0020I", "Cbc0027I", "Result - Stopped", "Result - User"))
        self.last = line.strip() or self.last

    def _points(self, line: str) -> None:
        started, found = _STARTED.search(line), _FOUND.search(line)
        if started:
            # Real columns are optimised beside the whole ones of the start.
            self.start = min(self.start, float(started[1]))
        if found:
            objective = float(found[1] or found[2])
            if objective < _NO_BOUND:
                self.found = min(self.found, objective)
