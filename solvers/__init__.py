"""Three optimization libraries: scheduling of tasks on devices, labelling problems, and pipelines of chains.

- **Scheduling**: a `Problem` has tasks with payloads, and devices joined by links with memory at each location.
  `solve`, `check` and the nouns below are its public interface (docs/reference/api.md); all rooms but the next two are
  part of it.
- **Labelling** (`solvers.labels`): choose a label for each variable so that costs of labels and of pairs are least.
- **Chains** (`solvers.pipelining`): assign layers of a chain to devices, with periodic schedules of its micro-batches.

None of them knows networks, seconds or TensorFlow: times are integer ticks, memory is integer bytes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solvers.api import Available as Available
    from solvers.api import available as available
    from solvers.api import program_schedule as program_schedule
    from solvers.api import program_text as program_text
    from solvers.api import solve as solve
    from solvers.base import Progress as Progress
    from solvers.base import Report as Report
    from solvers.base import Solver as Solver
    from solvers.base import UnavailableError as UnavailableError
    from solvers.checker import Violation as Violation
    from solvers.checker import check as check
    from solvers.footprint import Footprint as Footprint
    from solvers.problem import FORBIDDEN as FORBIDDEN
    from solvers.problem import MOST as MOST
    from solvers.problem import Problem as Problem
    from solvers.result import ANSWERED as ANSWERED
    from solvers.result import FAILED as FAILED
    from solvers.result import Limit as Limit
    from solvers.result import Options as Options
    from solvers.result import Result as Result
    from solvers.result import Status as Status
    from solvers.result import relative_gap as relative_gap
    from solvers.schedule import Schedule as Schedule
else:
    # Type checkers would take a module's __getattr__ for leave to ask for any name, misspelt ones included.
    def __getattr__(name: str) -> object:
        """Load the module of a name when it is first asked for: who needs a `Problem` need not load the solvers."""
        if name not in _MODULE:
            raise AttributeError(f"module 'solvers' has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = getattr(import_module(f"solvers.{_MODULE[name]}"), name)
        return globals()[name]


_MODULE = {
    "ANSWERED": "result",
    "Available": "api",
    "FAILED": "result",
    "FORBIDDEN": "problem",
    "Footprint": "footprint",
    "Limit": "result",
    "MOST": "problem",
    "Options": "result",
    "Problem": "problem",
    "Progress": "base",
    "Report": "base",
    "Result": "result",
    "Schedule": "schedule",
    "Solver": "base",
    "Status": "result",
    "UnavailableError": "base",
    "Violation": "checker",
    "available": "api",
    "check": "checker",
    "program_schedule": "api",
    "program_text": "api",
    "relative_gap": "result",
    "solve": "api",
}
__all__ = list(_MODULE)


def __dir__() -> list[str]:
    """The names of the face."""
    return list(__all__)
