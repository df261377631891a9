"""The live line of a job that is done elsewhere, made of what it tells."""

import math
from typing import Any

from pesto.planning.solving.tracker import Incumbent
from pesto.reporting.show.status_line import LiveLine


class RemoteLine(LiveLine):
    """Shows what `LiveLine` shows of a solve at home, and the job's stage before there is a plan."""

    HINT = "Ctrl-C asks"
    _stage = "waiting in the queue"
    _found = False
    _sent_away = False

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """One event of the job."""
        if kind == "stage":
            self._stage = str(data.get("name", ""))
            self._sent_away = self._stage == "queued"
        elif kind == "incumbent":
            self._found = True
            self(_incumbent(data, data.get("best_s")))
        elif kind == "bound" and self._found:
            self(_incumbent(data, self._best))

    def _waits_for(self) -> str:
        """The stage, while it is all that there is."""
        return "" if self._found and not self._sent_away else self._stage


def _incumbent(data: dict[str, Any], best_s: float | None) -> Incumbent:
    seconds, bound_s = float(data.get("seconds", 0.0)), float(data.get("bound_s", 0.0))
    best = math.inf if best_s is None else float(best_s)
    return Incumbent(name=str(data.get("by", "")), makespan_s=best, lower_bound_s=bound_s, seconds=seconds)
