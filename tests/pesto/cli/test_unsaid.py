"""Options that would say nothing beside others are refused, and named, before anything is done."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import UsageError

CASES = [
    (("schedule", "p.json", "--check", "s.json", "--no-start"), "leave out --no-start"),
    (("schedule", "p.json", "--check", "s.json", "--start", "s.json"), "leave out --start"),
    (("schedule", "p.json", "--check", "s.json", "--solver", "cbc"), "leave out --solver"),
    (("schedule", "p.json", "--check", "s.json", "-o", "t.json"), "leave out --out"),
    (("instance", "--list", "--lp", "p.lp"), "leave out --lp"),
    (("instance", "--list", "--mps", "p.mps"), "leave out --mps"),
    (("instance", "--list", "--model", "nmt"), "leave out --model"),
    (("instance", "layered", "--list"), "leave out layered"),
    (("instance", "layered", "--launch", "5us"), "leave out --launch"),
    (("simulate", "plan.json", "--per-edge"), "leave out --per-edge"),
    (("simulate", "plan.json", "--cdep", "s.json"), "leave out --cdep"),
    (("simulate", "plan.json", "--seed", "3"), "--seed says how errors are drawn"),
    (("simulate", "plan.json", "--draws", "3"), "--draws says how errors are drawn"),
    (("compare", "--model", "nmt", "--methods", "expert,list", "--solver", "cbc"), "leave out solver"),
    (("calibrate", "--samples", "s.json", "--cluster", "v100x4", "--passes", "9"), "leave out --passes"),
    (("calibrate", "--samples", "s.json", "--cluster", "v100x4", "--keep-disturbed"), "leave out --keep-disturbed"),
    (("run", "plan.json", "--emulate", "--placement-only"), "--placement-only is for a run"),
    (("run", "plan.json", "--ties", "reached"), "--ties is for an emulation"),
]


@pytest.mark.parametrize(("words", "said"), CASES, ids=lambda each: each if isinstance(each, str) else each[0])
def test_what_would_say_nothing_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names it; nothing is written."""
    monkeypatch.chdir(tmp_path)
    for name in ("p.json", "s.json", "plan.json"):
        Path(name).write_text("{}")
    done = CliRunner().invoke(pesto, list(words), standalone_mode=False)
    assert isinstance(done.exception, UsageError) and said in str(done.exception), done.exception
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "plan.json", "s.json"]


def test_what_says_something_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check tells its result as JSON, and how much is told is not what is done."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    for words in (
        ("instance", "fork", "--set", "tasks=4", "-o", "p.json"),
        ("schedule", "p.json", "--solver", "list", "-q", "-o", "s.json"),
    ):
        assert runner.invoke(pesto, list(words), standalone_mode=False).exception is None
    done = runner.invoke(pesto, ["schedule", "p.json", "--check", "s.json", "--json", "-q"], standalone_mode=False)
    assert json.loads(done.stdout)["valid"] is True
    assert json.loads(runner.invoke(pesto, ["instance", "--list", "--json"], standalone_mode=False).stdout)["families"]
