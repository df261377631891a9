"""The live line of a verb that reads a step: which phases it shows, and when there is none."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pesto.core.files.reading import ShowPhase, phases_shown_by
from pesto.core.source import Source
from pesto.inputs.load import load_graph

PROGRAM = """
import tensorflow as tf

def step(x):
    print("traced")
    return x + 1.0

def make():
    return step, tf.TensorSpec([4, 2], tf.float32)
"""
OPS = [{"name": name, "outputs": [8], "time_s": {"gpu": 1e-3, "cpu": 1e-3}} for name in "ab"]


def on_terminal(folder: Path, *words: str) -> str:
    """Return what `pesto` writes to a pseudo-terminal that its stderr is."""
    ours, its = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "pesto", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=its):
        os.close(its)
        written = b""
        try:
            while part := os.read(ours, 4096):
                written += part
        except OSError:  # EIO, once nobody has the other end
            pass
    os.close(ours)
    return written.decode()


@pytest.mark.slow
def test_a_verb_shows_what_it_reads_on_a_terminal_unless_quiet(tmp_path: Path) -> None:
    """The line is cleared before anything else is written."""
    step = {"format": "pesto-graph", "format_version": 1, "source": "two ops", "ops": OPS}
    (tmp_path / "g.json").write_text(json.dumps(step))
    shown = on_terminal(tmp_path, "import", "--graph", "g.json", "-o", "h.json").split("\r\x1b[K")
    assert shown[0] == "" and shown[1] == "reading g.json  0 s" and shown[-1] == ""
    assert (tmp_path / "h.json").exists()
    assert on_terminal(tmp_path, "import", "-q", "--graph", "g.json", "-o", "i.json") == ""
    assert (tmp_path / "i.json").exists()


def test_phases_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """They come in the order in which the work is done, on one display, which is closed at the end."""
    phases: list[str] = []

    @contextmanager
    def display() -> Iterator[ShowPhase]:
        yield phases.append
        phases.append("closed")

    (tmp_path / "phased_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    with phases_shown_by(display):
        graph = load_graph(Source(function="phased_program:make"))
    assert phases == [
        "loading TensorFlow", "importing phased_program", "calling phased_program:make",
        "tracing phased_program:make", f"reading {graph.ops} ops", "closed",
    ]  # fmt: skip
    assert capsys.readouterr().out == ""  # what the program prints goes to stderr
