"""What the README shows works as it stands there, and so does the program of the page on graphs of other programs."""

import os
import re
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def python_blocks(text: str) -> list[str]:
    """Return the Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def test_the_readme_is_short() -> None:
    """One picture, two commands for the gate, 6 KB."""
    assert len(README.encode()) <= 6 * 1024
    assert len(re.findall(r"^```sh\n", README, re.M)) == 2
    assert README.count("![") == 1


@pytest.mark.slow
def test_the_keras_example_trains_by_a_plan(tmp_path: Path) -> None:
    """The README's Python block, as written but for the time limit, ends without an error; it has eight statements."""
    [code] = python_blocks(README)
    assert len([line for line in code.splitlines() if line]) == 8
    (tmp_path / "block.py").write_text(code.replace("time_limit_s=10", "time_limit_s=1"))
    done = forked.run("block.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "10/10" in done.stdout


@pytest.mark.slow
def test_the_five_lines_plan_a_dag(tmp_path: Path) -> None:
    """The first program on graphs of other programs: its two chains run side by side, in half the time."""
    code = python_blocks((ROOT / "docs" / "guides" / "other-graphs.md").read_text())[0]
    assert len([line for line in code.splitlines() if line]) == 5
    (tmp_path / "dag.py").write_text(code)
    done = forked.run("dag.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Plan(20 ops on v100x2-nvlink, 20.00 ms given, gap 0%" in done.stdout
    one, other = (re.findall(rf"'{chain}\d': '(gpu:\d)'", done.stdout) for chain in "ab")
    assert len(one) == len(other) == 10
    assert len(set(one)) == len(set(other)) == 1 and set(one) != set(other)


def test_every_link_leads_somewhere() -> None:
    """Relative links of the README and of docs/ point at files of the project."""
    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{os.path.relpath(page, root)} links {target}"
