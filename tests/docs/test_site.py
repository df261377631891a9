"""The documentation site builds strictly: links and anchors lead somewhere, each page is in the navigation."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HAND_WRITTEN = 300 * 1024
GENERATED = ("reference/api.md", "reference/cli.md", "benchmarks/reproduction.md")


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs the extra docs")
def test_the_site_builds(tmp_path: Path) -> None:
    """As `mkdocs build --strict` does it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "site" / "guides" / "enforce" / "index.html").exists()
