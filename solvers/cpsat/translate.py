"""Between schedules and the values of the model's variables: hints on the way in, a rough schedule on the way out."""

from collections.abc import Callable, Iterator
from heapq import heapreplace

import numpy as np

from solvers.cpsat.model import Expression, IntervalModel
from solvers.schedule import Schedule


def add_hint(model: IntervalModel, schedule: Schedule) -> None:
    """Hint every variable with its value in a schedule that is valid for the model's problem, locations renamed."""
    given: set[int] = set()
    for variable, value in _values(model, schedule):
        # Tasks of one group share their literals, and a variable may be hinted once.
        if hasattr(variable, "index") and variable.index not in given:
            given.add(variable.index)
            model.cp.add_hint(variable, value)


def _values(model: IntervalModel, schedule: Schedule) -> Iterator[tuple[Expression, int]]:
    p = model.problem
    origin = p.location[schedule.device]
    renamed = model.symmetry.named(origin).tolist()
    place = [renamed[here] for here in origin.tolist()]
    pool = _renamed_pools(model, renamed)
    yield model.makespan, schedule.makespan
    for task, device in enumerate(schedule.device.tolist()):
        yield from ((literal, int(here == place[task])) for here, literal in model.at[task].items())
        yield from ((literal, int(q == pool[device])) for q, literal in model.on[task].items())
        yield model.start[task], int(schedule.start[task])
        yield model.end[task], int(schedule.finish[task])
    columns = (schedule.sent_payload.tolist(), schedule.sent_to.tolist(), schedule.sent_start.tolist())
    sent = {(payload, renamed[to]): begin for payload, to, begin in zip(*columns, strict=True)}
    for crossing in model.crossings:
        key = crossing.payload, crossing.to
        producer = int(p.producer[crossing.payload])
        yield crossing.start, sent.get(key, int(schedule.finish[producer]))
        yield crossing.present, int(key in sent)
        for sources, literal in crossing.variants:
            yield literal, int(key in sent and place[producer] in sources)


def _renamed_pools(model: IntervalModel, renamed: list[int]) -> dict[int, int]:
    """Device to the pool that it belongs to once locations are renamed; alike pools of a location keep their order."""
    p, alike = model.problem, dict[tuple[int, bytes], list[int]]()
    for q, pool in enumerate(model.pools):
        alike.setdefault((pool.location, p.duration[:, pool.lead].tobytes()), []).append(q)
    found: dict[int, int] = {}
    for (place, column), members in alike.items():
        for old, new in zip(members, alike[renamed[place], column], strict=True):
            found.update(dict.fromkeys(model.pools[old].devices, new))
    return found


def rough_schedule(model: IntervalModel, value: Callable[[Expression], int]) -> Schedule:
    """The schedule that the variables' values describe, in the model's ticks."""
    start = np.asarray([value(s) for s in model.start], dtype=np.int64)
    finish = np.asarray([value(e) for e in model.end], dtype=np.int64)
    pool = np.asarray([next(q for q, y in on.items() if value(y)) for on in model.on], dtype=np.int64)
    sent = [c for c in model.crossings if value(c.present)]
    # A device of its pool for every task, by interval colouring: the one that has been free longest.
    device = np.asarray([p.lead for p in model.pools], dtype=np.int64)[pool]
    free = [[(-1, d) for d in p.devices] for p in model.pools]
    for task in np.lexsort((finish, start)).tolist():
        waiting = free[pool[task]]
        if len(waiting) > 1:
            device[task] = waiting[0][1]
            heapreplace(waiting, (int(finish[task]), waiting[0][1]))
    return Schedule(
        device=device,
        start=start,
        finish=finish,
        sent_payload=[c.payload for c in sent],  # type: ignore[arg-type]
        sent_to=[c.to for c in sent],  # type: ignore[arg-type]
        sent_start=[value(c.start) for c in sent],  # type: ignore[arg-type]
        sent_finish=[value(c.arrival) for c in sent],  # type: ignore[arg-type]
    )
