"""Relay of a vendor's callbacks to its listener."""

import math
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from solvers.arrays import Floats
from solvers.milp.vendor import RunRequest, VendorListener

NO_BOUND = 1e19
"""Vendors write 1e20 or more for an infinite bound."""

GRACE_S = 2.0
"""Seconds past its limit after which a vendor is no longer waited for."""


class CallbackRelay:
    """Stands between a vendor's callbacks and `hear`: nothing is raised into native code, and `stop` says when to end.

    What `hear` raises is kept for `check`; after it nothing more is told. `ask.seconds` are counted from here.
    """

    def __init__(self, ask: RunRequest, hear: VendorListener) -> None:
        self._hear, self._deadline = hear, time.monotonic() + ask.seconds
        self._raised: BaseException | None = None
        self._pending, self._bound = "", -NO_BOUND
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float:
        """Seconds left, at least a millisecond: a vendor may take 0 for no limit."""
        return max(0.001, self._deadline - time.monotonic())

    @property
    def overdue(self) -> float:
        """Seconds past the limit, negative before."""
        return time.monotonic() - self._deadline

    @property
    def done(self) -> bool:
        """True if nobody hears the vendor any more, or wants to hear more."""
        return self._raised is not None or self._hear.enough

    @property
    def stop(self) -> bool:
        """True if the vendor should end: it is done, or the time is up."""
        return self.done or self.overdue >= 0

    @property
    def best_bound(self) -> float:
        """The best bound told, -inf before the first."""
        return self._bound if self._bound > -NO_BOUND else -math.inf

    def incumbent(self, values: Floats) -> None:
        """Tell of a point [c]; the array may be reused by the vendor afterwards."""
        self._tell(partial(self._hear.incumbent, np.array(values, dtype=np.float64)))

    def bound(self, objective: float) -> None:
        """Tell of a lower bound that is better than all before."""
        if self._bound < objective < NO_BOUND:
            self._bound = objective
            self._tell(partial(self._hear.bound, objective))

    def write(self, text: str) -> list[str]:
        """Take in a piece of the vendor's log; tell of the lines that it completes, and return them."""
        with self._lock:
            *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._tell(partial(self._hear.line, line))
        return lines

    def ends(self, call: Callable[[], object]) -> bool:
        """Run a native call in a thread of its own: whether it has ended by GRACE_S after the limit.

        For vendors that look at their clock too seldom. One that has not ended is left to itself and heard no more;
        what it works on must not be touched again, and goes with the process. Raises what the call or `hear` raises.
        """
        thread = threading.Thread(target=self._tell, args=(call,), daemon=True)
        thread.start()
        while thread.is_alive() and self.overdue < GRACE_S:
            thread.join(max(0.01, min(GRACE_S - self.overdue, 3600.0)))
        if thread.is_alive():
            self._raised = TimeoutError("the vendor was left to itself")
            return False
        self.check()
        return True

    def check(self) -> None:
        """Raise what `hear` has raised, if anything; tell of a last line that has no end."""
        if self._pending:
            self.write("\n")
        if self._raised is not None:
            raise self._raised

    def _tell(self, tell: Callable[[], object]) -> None:
        if self._raised is None:
            try:
                tell()
            except BaseException as error:  # raised again by `check`, beyond the native code
                self._raised = error
