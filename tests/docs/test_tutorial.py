"""Every block of the pages that teach runs in order, as written, and prints what the page shows; so do examples."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

Run = Callable[[str, str, Path], subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "get-started.md", ROOT / "docs" / "guides" / "own-step.md"]
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if "pesto.apply(" in p.read_text())
BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```", re.M | re.S)


def typed(language: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A block in a process of its own: a user who types it in."""
    command = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else [sys.executable, "-c", code]
    bin_folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def quick(language: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The same commands, each in a process that has TensorFlow loaded, with a tenth of the time to solve."""
    code = code.replace("--time-limit 5s", "--time-limit 0.5s").replace("time_limit_s=5", "time_limit_s=0.5")
    if language == "python":
        (folder / "block.py").write_text(code)
        code = "python block.py"
    printed = ""
    for line in code.splitlines():
        done = forked.run(*shlex.split(line.removeprefix("python ")), cwd=folder)
        printed += done.stdout
        if done.returncode:
            break
    return subprocess.CompletedProcess(code, done.returncode, printed, done.stderr)


def missing(shown: str, printed: str) -> list[str]:
    """Lines of the page that were not printed, in this order; … stands for anything."""
    lines = iter(printed.splitlines())
    patterns = [(line, ".*".join(map(re.escape, line.rstrip().split("…")))) for line in shown.splitlines()]
    return [line for line, pattern in patterns if not any(re.fullmatch(pattern, one.rstrip()) for one in lines)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize(
    "run", [pytest.param(quick, marks=pytest.mark.slow), pytest.param(typed, marks=pytest.mark.night)]
)
def test_the_page_runs_from_top_to_bottom(run: Run, page: Path, tmp_path: Path) -> None:
    """In a folder with the examples, each block succeeds, and the output shown after it is what it printed."""
    for example in EXAMPLES:
        shutil.copy(example, tmp_path)
    printed = ""
    for language, code in BLOCK.findall(page.read_text()):
        if language == "text":
            assert not missing(code, printed), f"shown but not printed:\n{missing(code, printed)}\nin\n{printed}"
            continue
        done = run(language, code, tmp_path)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr[-3000:]}"
        printed = done.stdout


def test_the_pages_run_every_example() -> None:
    """And enough commands that an empty page cannot pass."""
    text = "".join(page.read_text() for page in PAGES)
    assert [language for language, _ in BLOCK.findall(text)].count("sh") >= 8
    assert [example.name for example in EXAMPLES if f"python {example.name}\n" not in text] == []


def test_what_is_shown_is_compared() -> None:
    """A line that was not printed, or only in another order, is found missing."""
    assert missing("a … c\nd\n", "x\na b c\nd\n") == []
    assert missing("a … c\n", "a b d\n") == ["a … c"]
    assert missing("d\na\n", "a\nd\n") == ["a"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_needs_one_line(example: Path) -> None:
    """An example is short, and one line of it, the context, makes it run by its plan."""
    lines = example.read_text().splitlines()
    assert len(lines) < 60
    assert sum(line.strip().startswith("with pesto.apply(") for line in lines) == 1
