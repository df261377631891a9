"""The live line of a training step, and that of a problem in ticks."""

import io
from functools import partial

import pytest

from pesto.show.live_line import LiveLine, amount
from pesto.solving.tracker import Incumbent
from solvers import api
from solvers.base import Progress
from solvers.instances.table import make
from solvers.result import Options


def incumbent(ms: float, seconds: float) -> Incumbent:
    return Incumbent(name="list", makespan_s=ms / 1e3, lower_bound_s=8e-3, seconds=seconds)


def test_off_a_terminal_the_first_plan_is_said_and_better_ones_once_a_second() -> None:
    """At 0.2 s the first, at 0.5 s too soon, at 1.4 s a better one, at 2.6 s the same one, at 2.7 s a better one."""
    stream = io.StringIO()
    with LiveLine(stream=stream) as line:
        for ms, seconds in ((20.0, 0.2), (18.0, 0.5), (16.0, 1.4), (16.0, 2.6), (10.0, 2.7)):
            line(incumbent(ms, seconds))
    assert stream.getvalue().splitlines() == [
        "first valid plan after 0.2 s: list, 20.00 ms  bound 8.00 ms  gap 60.0%",
        "better plan after 1.4 s: list, 16.00 ms  bound 8.00 ms  gap 50.0%",
        "better plan after 2.7 s: list, 10.00 ms  bound 8.00 ms  gap 20.0%",
    ]


def test_quiet_is_quiet_and_a_terminal_is_left_on_a_fresh_line() -> None:
    quiet, terminal = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for stream, silent in ((quiet, True), (terminal, False)):
        with LiveLine(stream=stream, quiet=silent) as line:
            for seconds in (0.1, 1.3):
                line(incumbent(20.0 - seconds, seconds))
    assert quiet.getvalue() == ""
    assert terminal.getvalue().count("plan after") == 1
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_line_of_a_problem(capfd: pytest.CaptureFixture[str]) -> None:
    """Off a terminal: the start, the first schedule, bound and gap, and, where asked for, the solver's own lines."""
    schedule = api.solve(make("chain", tasks=8), "list", Options()).schedule
    found = Progress(schedule=schedule, lower_bound=6, seconds=0.5, bound_by="lp", log=("root\x1b[1m 6.0",))
    bound = Progress(schedule=None, lower_bound=7, seconds=0.6, log=("node 1",))
    texts = ((False, None, "8 ticks  bound 6 ticks"), (True, 1000, "8.00 ms  bound 6.00 ms"))
    for verbose, ticks_per_second, shown in texts:
        with LiveLine(partial(amount, ticks_per_second=ticks_per_second), verbose=verbose) as line:
            line.hear(found)
            line.hear(bound)
        lines = capfd.readouterr().err.splitlines()
        assert f"first schedule after 0.5 s: best {shown} (lp)  gap 25.0%" in lines
        assert ("root [1m 6.0" in lines) == ("node 1" in lines) == verbose
        assert len(lines) == 1 + 2 * verbose
    ticks = partial(amount, ticks_per_second=None)
    with LiveLine(ticks, schedule.makespan):
        assert capfd.readouterr().err == "starting from 8 ticks\n"
    with LiveLine(ticks, schedule.makespan, quiet=True) as line:
        line.hear(found)
    assert capfd.readouterr().err == ""
