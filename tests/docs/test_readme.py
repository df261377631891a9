"""What the README shows works as it stands there."""

import os
import re
from pathlib import Path

import forked

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def blocks() -> list[str]:
    """The Python blocks, in order."""
    return re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)


def test_the_five_lines_plan_a_dag(tmp_path: Path) -> None:
    """The second block, as written: its two chains run side by side, in half the time, and it has five lines."""
    code = blocks()[1]
    assert len([line for line in code.splitlines() if line]) == 5
    (tmp_path / "dag.py").write_text(code)
    done = forked.run("dag.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Plan(20 ops on v100x2-nvlink, 20.00 ms given, gap 0%" in done.stdout
    one, other = (re.findall(rf"'{chain}\d': '(gpu:\d)'", done.stdout) for chain in "ab")
    assert len(one) == len(other) == 10
    assert len(set(one)) == len(set(other)) == 1 and set(one) != set(other)


def test_the_python_example_runs(tmp_path: Path) -> None:
    """The README's first Python block, as written but for the solver's time limit, leaves a plan behind."""
    [code, _] = blocks()
    (tmp_path / "block.py").write_text(code.replace("time_limit_s=10", "time_limit_s=1"))
    done = forked.run("block.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.json").stat().st_size > 0


def test_every_link_leads_somewhere() -> None:
    """Relative links of the README and of docs/ point at files of the project."""
    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{os.path.relpath(page, root)} links {target}"
