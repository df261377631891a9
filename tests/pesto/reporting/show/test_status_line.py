"""The live line of a training step, and that of a problem in ticks."""

import io
import time
from contextlib import suppress
from functools import partial

import pytest

from pesto.core.files.reading import phases_shown_by, reading, report_phase
from pesto.planning.solving.tracker import Incumbent
from pesto.reporting.show.lines import COLUMNS
from pesto.reporting.show.screen import Screen
from pesto.reporting.show.status_line import LiveLine, ReadingLine, amount
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


def on_terminal() -> io.StringIO:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    return stream


def test_what_is_printed_takes_the_place_of_the_live_line_and_unfinished_text_stays() -> None:
    """A warning, and a program's own progress without a line's end, while the program is read."""
    stream = on_terminal()
    screen = Screen(stream)
    screen.write_live("reading 8 ops  0 s")
    screen.write("pesto: WARNING: 1 is assumed\n")
    screen.write_live("reading 8 ops  1 s")
    screen.write("half")
    screen.write("-done")
    screen.write_live("reading 8 ops  2 s")
    screen.write_live("")
    shown = [line.rpartition("\r\x1b[K")[2] for line in stream.getvalue().split("\n")]
    assert shown == ["pesto: WARNING: 1 is assumed", "half-done", ""]


def test_a_reading_has_a_live_line_on_a_terminal_alone() -> None:
    """Each phase as it begins, no wider than a line, and nothing is left of it, also after an error."""
    terminal, file = on_terminal(), io.StringIO()
    for stream in (terminal, file):
        with suppress(ValueError), phases_shown_by(partial(ReadingLine, stream=stream)), reading("loading TensorFlow"):
            report_phase("tracing " + 100 * "m")
            raise ValueError
    report_phase("nothing is read any more")
    assert file.getvalue() == ""
    shown = terminal.getvalue().split("\r\x1b[K")
    assert shown[1] == "loading TensorFlow  0 s" and shown[2].startswith("tracing mmm") and shown[-1] == ""
    assert max(map(len, shown)) < COLUMNS


def test_the_live_line_of_a_reading_goes_on_while_a_phase_lasts() -> None:
    """A thread rewrites it until the reading ends."""
    stream = on_terminal()
    with ReadingLine(stream=stream) as show:
        show("reading 8 ops")
        while stream.getvalue().count("reading 8 ops") < 2:
            time.sleep(0.02)
    assert not show._ticker.is_alive() and stream.getvalue().endswith("\r\x1b[K")
