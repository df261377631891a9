"""What `solvers.bounds` compiles at first use, compiled before a solver's time begins."""

from solvers.bounds.strong import strong
from solvers.bounds.windows import informed
from solvers.instances.plain import chain

_TASKS = 4


def compile_ahead() -> None:
    """Run all of it on a chain: many seconds once on a machine, after which numba has it on disk; a moment later on."""
    tiny = chain(_TASKS)
    strong(tiny)
    informed(tiny, 2 * _TASKS)
