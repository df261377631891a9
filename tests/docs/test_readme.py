"""What the README shows works as it stands there."""

import os
import re
from pathlib import Path

import forked

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_the_python_example_runs(tmp_path: Path) -> None:
    """The README's Python block, as written but for the solver's time limit, leaves a plan behind."""
    [code] = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
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
