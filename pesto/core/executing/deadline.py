"""When a work is to be interrupted, and when it is given up."""

from pesto.core.executing.executor import WorkLimits


class Deadline:
    """The limits of time of one work; all times are seconds since its begin."""

    def __init__(self, limits: WorkLimits) -> None:
        self._limits = limits
        self._interrupted: float | None = None

    def interrupted(self, now: float) -> None:
        """It has been sent a signal, by whomever; the first counts."""
        self._interrupted = now if self._interrupted is None else self._interrupted

    def interrupts(self, now: float) -> bool:
        """Whether it is to be interrupted now, for the time that it has taken."""
        most = self._limits.interrupt_s
        return self._interrupted is None and most is not None and now >= most

    def late(self, now: float) -> str | None:
        """Why it is to be ended, if it is."""
        patience, grace = self._limits.patience_s, self._limits.grace_s
        if patience is not None and now >= patience:
            return "no answer long after the time limit"
        if grace is not None and self._interrupted is not None and now >= self._interrupted + grace:
            return "no answer long after it was interrupted"
        return None
