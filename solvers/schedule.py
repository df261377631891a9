"""A schedule: where and when every task runs, and when every payload crosses."""

from dataclasses import dataclass, fields

from solvers.arrays import Ints, ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Times in ticks. Only `solvers.checker.check` says whether it is valid for a problem."""

    device: Ints
    """[n] device of each task."""
    start: Ints
    """[n] start of each task."""
    finish: Ints
    """[n] finish of each task."""
    sent_payload: Ints
    """[t] payload of each transfer."""
    sent_to: Ints
    """[t] location that each transfer goes to."""
    sent_start: Ints
    """[t] start of each transfer."""
    sent_finish: Ints
    """[t] finish of each transfer."""

    def __post_init__(self) -> None:
        """Copy and freeze; raise ValueError when lengths differ within tasks or within transfers."""
        for f in fields(self):
            object.__setattr__(self, f.name, ints(getattr(self, f.name)))
        if any(getattr(self, f.name).ndim != 1 for f in fields(self)):
            raise ValueError("every column must have one dimension")
        if not len(self.device) == len(self.start) == len(self.finish):
            raise ValueError("device, start and finish must have one entry a task")
        if not len(self.sent_payload) == len(self.sent_to) == len(self.sent_start) == len(self.sent_finish):
            raise ValueError("the four columns of the transfers must be equally long")

    def __repr__(self) -> str:
        """Return one line, without arrays."""
        tasks, sent = len(self.device), len(self.sent_payload)
        return f"Schedule({tasks} tasks, makespan {self.makespan} ticks, {sent} transfers)"

    @property
    def makespan(self) -> int:
        """Finish of the last task, 0 when there is none."""
        return int(self.finish.max(initial=0))
