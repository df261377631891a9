"""Where only the core requirements of pyproject.toml are installed, steps from files are planned, programs refused."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pesto.core.distribution import install_command

ROOT = Path(__file__).resolve().parents[2]
TOWERS = ROOT / "tests/data/two-towers.graph.json"
EXTRAS = (
    "tensorflow",
    "keras",
    "pyscipopt",
    "pymetis",
    "httpx",
    "litestar",
    "matplotlib",
    "jinja2",
    "pydot",
    "psycopg",
    "ray",
)
HIDE = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
from pesto.cli.main import main
main()
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process in which no package of an extra can be imported."""
    command = [sys.executable, "-c", HIDE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=300)


def test_a_graph_file_is_planned(tmp_path: Path) -> None:
    """No optional package is needed for it, and the plan checks."""
    machine = ("--graph", str(TOWERS), "--cluster", "v100x2-nvlink")
    done = run(tmp_path, "solve", *machine, "--time-limit", "5", "-o", "plan.json", "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["makespan_s"] > 0
    assert run(tmp_path, "check", "plan.json", "--graph", str(TOWERS)).returncode == 0


@pytest.mark.parametrize("words", [("solve", "--model", "nmt", "-o", "plan.json"), ("inspect", "--model", "nmt")])
def test_a_program_is_refused_with_the_command_that_installs_tensorflow(words: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code 7 and one line."""
    done = run(tmp_path, *words)
    assert done.returncode == 7
    assert done.stderr.splitlines()[-1].endswith(f"needs TensorFlow - {install_command('tensorflow')}")
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_the_core_requires_nothing_of_an_extra() -> None:
    """What the test above hides is in extras alone, and all of it can be installed by one of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = " ".join(project["dependencies"]).lower()
    assert not [name for name in EXTRAS if name in core]
    assert {"tensorflow", "scip", "metis", "client", "serve", "study", "all"} <= set(project["optional-dependencies"])
