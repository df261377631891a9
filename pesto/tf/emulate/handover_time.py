"""Measured time that an emulated step by the wall clock loses between functions."""

from collections.abc import Sequence

from pesto.tf.emulate.reservations import EmulatedWork


def handover_ticks(work: EmulatedWork, times: Sequence[tuple[float, float]], reached: Sequence[float]) -> float:
    """Ticks between functions on the path that the step's end waited for.

    times: [n] (start, end), as of a clock; reached: [n] when the executor began each function. One that was reached
    when all that it holds was free has lost the ticks since the last end that it waited for: until the thread woke, the
    executor had reached it and the interpreter was free. Else it lost what the holder before it had.
    """
    lost, last = [0.0] * work.functions, dict[int, int]()
    for k in sorted(range(work.functions), key=lambda k: (times[k], k)):
        start = times[k][0]
        if start < 0:
            continue
        before = (*work.data[k], *work.controls[k])
        holders = [last[h] for h in work.holds[k] if h in last] if start > reached[k] else []
        first = max(holders or before, key=lambda j: times[j][1], default=None)
        if holders and first is not None:
            lost[k] = lost[first]
        elif first is not None:
            lost[k] = lost[first] + max(0.0, reached[k] - times[first][1])
        else:
            lost[k] = reached[k]
        last.update((h, k) for h in work.holds[k])
    return lost[max(range(work.functions), key=lambda k: times[k][1])] if work.functions else 0.0
