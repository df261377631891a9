"""The documentation site builds strictly: links and anchors lead somewhere, each page is in the navigation."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 300 * 1024
GENERATED = ("api.md", "cli.md", "reproduction.md")
"""Pages that programs write."""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs the extra docs")
def test_the_site_builds(tmp_path: Path) -> None:
    """As `mkdocs build --strict` does it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "site" / "guides" / "enforce" / "index.html").exists()


def test_hand_written_text_stays_short() -> None:
    """Without generated pages, rows of measurements, and the sentences that architecture.md shares with the rooms."""
    total = 0
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name not in GENERATED:
            text = re.sub(r"<!-- table:.*?<!-- end -->", "", page.read_text(), flags=re.S)
            shared = r"\| .*" if page.parent.name == "benchmarks" else r"- `(?:pesto|solvers)/.*"
            total += len(re.sub(rf"^{shared}\n", "", text, flags=re.M).encode())
    assert total <= MOST_BYTES
