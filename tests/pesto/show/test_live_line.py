"""The live line of a training step; that of a problem in ticks is tested with pesto schedule."""

import io

from pesto.show.live_line import LiveLine
from pesto.solving.tracker import Incumbent


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
