"""Cores that form a pool: equal devices of one location, which CP-SAT need not tell apart."""

from dataclasses import dataclass

from solvers.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Devices at one location with the same durations for every task."""

    location: int
    devices: tuple[int, ...]

    @property
    def lead(self) -> int:
        """The device whose column of `duration` holds for all."""
        return self.devices[0]


def pools(problem: Problem) -> list[Pool]:
    """The pools of a problem, by their first devices.

    Devices on which some task takes no time stay alone: a cumulative constraint ignores such tasks, though none may lie
    strictly inside another on its device.
    """
    found: dict[tuple[int, bytes], list[int]] = {}
    for device, location in enumerate(problem.location.tolist()):
        column = problem.duration[:, device]
        alone = b"%d" % device if (column == 0).any() else b""
        found.setdefault((location, alone + column.tobytes()), []).append(device)
    return [Pool(location=location, devices=tuple(devices)) for (location, _), devices in found.items()]
