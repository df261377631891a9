"""Starting the program is counted in a time limit where it takes long, and said."""

import json

import pytest

from pesto.cli import main
from pesto.cli.terminal import Terminal
from pesto.core.settings import Settings
from pesto.verbs import plan_step


@pytest.mark.parametrize(
    ("started_s", "limit_s", "counted"), [(0.6, 10.0, 0.0), (3.0, 10.0, 3.5), (30.0, 10.0, 5.0), (30.0, 0.0, 0.0)]
)
def test_what_starting_and_ending_take_beyond_a_second_is_counted(started_s, limit_s, counted):
    """Half of the limit at most; where the limit is a measure of work, nothing."""
    terminal = Terminal(quiet=True)
    assert terminal.counted_s(started_s, Settings(time_limit_s=limit_s)) == counted
    assert terminal.counted_s(started_s, Settings(time_limit_s=limit_s, deterministic=True)) == 0.0


def test_a_verb_that_python_calls_has_not_started_late():
    assert Terminal(quiet=True).startup_s() == 0.0


def test_the_solve_is_told_what_starting_took(signals, tmp_path, monkeypatch, capfd):
    """The program begins, the verb is loaded a minute later; its plan is made, and the JSON has the minute."""
    clock, heard = [0.0], []
    graph = {"format": "pesto-graph", "format_version": 1, "source": "one op", "ops": [{"name": "a", "flops": 1e9}]}
    (tmp_path / "g.json").write_text(json.dumps(graph))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "CLOCK", lambda: clock[0])
    real, note = plan_step.solve, main.note_start

    def noted(said):
        note(said)
        clock[0] += 60.0

    def hearing(*given):
        heard.append(given[-1].spent_s)
        return real(*given)

    monkeypatch.setattr(main, "note_start", noted)
    monkeypatch.setattr(plan_step, "solve", hearing)
    monkeypatch.setattr(
        main.sys, "argv", ["pesto", "solve", "-q", "--json", "--graph", "g.json", "--time-limit", "300"]
    )
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = json.loads(capfd.readouterr().out)
    assert ended.value.code == 0 and said["stages_s"]["start"] == 60.0
    assert heard[0] >= 89.0  # and what costs took
