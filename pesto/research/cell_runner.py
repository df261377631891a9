"""Runs cells as works of an executor and yields each result as it comes: the engine of `study` and `reproduction`.

Both keep each outcome at once, so that the next run goes on where one was ended. A cell that loses its worker is run
again in both; a cell that fails by itself has its outcome, and whether that is kept is for the caller to decide.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable

import msgspec

from pesto.core.executing.executor import Executor, ProgressMessage, WorkFailure, WorkItem, WorkResult

TRIES = 3
"""Workers that a cell may lose before that is its result."""


def run_works(
    works: Iterable[WorkItem], executor: Executor, lease: Callable[[str], None] = lambda _: None
) -> Generator[tuple[WorkResult | WorkFailure, int], None, None]:
    """Run works in their order, and close the executor; yield the outcome of each with the number of works left.

    A work that loses its worker is begun again, TRIES times in all; its failure has the seconds of all tries then. One
    that takes too long fails at once. Where all that ran was lost ("place"), that is no loss of its own. `lease` hears
    the key of a work before its first try. However this ends, no process is left.
    """
    todo, running = deque(works), dict[str, WorkItem]()
    lost_s, leased = defaultdict[str, list[float]](list), set[str]()
    try:
        while todo or running:
            while todo and len(running) < executor.slots:
                work = todo.popleft()
                if work.key not in leased:
                    lease(work.key)
                    leased.add(work.key)
                running[work.key] = work
                executor.begin(work)
            for event in executor.collect():
                if isinstance(event, ProgressMessage):  # cells tell nothing
                    continue
                work, outcome = running.pop(event.key), event
                if isinstance(outcome, WorkFailure) and outcome.why != "time":
                    losses = lost_s[work.key]
                    if outcome.why != "place":
                        losses.append(outcome.seconds)
                    if outcome.why == "place" or len(losses) < TRIES:
                        todo.appendleft(work)
                        continue
                    outcome = msgspec.structs.replace(
                        outcome, detail=f"{TRIES} times over, {outcome.detail}", seconds=sum(losses)
                    )
                yield outcome, len(todo) + len(running)
    finally:
        executor.close()
