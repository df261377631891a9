"""What a shell offers after Tab, and that the documented line switches it on."""

import re
import subprocess
from pathlib import Path

import forked
import pytest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text()


def offered(line: str, folder: Path) -> list[str]:
    """What bash is told for the last word of a line."""
    env = {"_PESTO_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = forked.run("pesto", cwd=folder, **env)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pesto solve --model word", ["plain,word-rnn"]),
        ("pesto solve --model nmt --variant ", ["plain,2x1024", "plain,4x1024", "plain,tiny"]),
        ("pesto solve --variant 610", ["plain,610x14"]),
        ("pesto sweep --cluster v100x2-n", ["plain,v100x2-nvlink"]),
        ("pesto sweep --cluster mine", ["file,mine"]),
        ("pesto schedule p.json --solver cpsat-", ["plain,cpsat-windows"]),
        ("pesto compare --solver highs", ["plain,highs"]),
        ("pesto study run solvers-m", ["plain,solvers-models"]),
        ("pesto sol", ["plain,solve", "plain,solvers"]),
    ],
)  # fmt: skip
def test_values_of_options_are_offered(line, found, tmp_path) -> None:
    """Models, variants of the model before, presets or files, solvers, studies, verbs."""
    assert offered(line, tmp_path) == found


def test_the_documented_line_is_one_that_bash_takes(tmp_path) -> None:
    """It defines a function and hands it to `complete`."""
    [variable, value] = re.search(r'eval "\$\((_PESTO_COMPLETE)=(bash_source) pesto\)"', PAGE).groups()
    done = forked.run("pesto", cwd=tmp_path, **{variable: value})
    script = done.stdout + "complete -p pesto\n"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert told.returncode == 0 and "_pesto_completion" in told.stdout, told.stderr
