"""A module run once: what it tells, what is said when it fails, and that nothing is left of it at its limit."""

import os
import subprocess
import time

import pytest

from solvers.process.one_shot import answered


@pytest.fixture
def module(monkeypatch, tmp_path):
    """A module of these lines, by its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(lines):
        (tmp_path / "asked_once.py").write_text(f"import os, sys, time\n{lines}\n")
        return "asked_once"

    return write


def test_bytes_go_in_and_come_out(module):
    """As they are."""
    echo = module("sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")
    assert answered(echo, b"\x00\xffab", 60.0, solver="echo") == b"ba\xff\x00"


def test_a_failure_is_told_with_its_last_words(module):
    """By the solver's name."""
    with pytest.raises(RuntimeError, match=r"CP-SAT failed \(3\): no licence$"):
        answered(module("sys.stderr.write('no licence\\n'); sys.exit(3)"), b"", 60.0, solver="CP-SAT")


@pytest.mark.kill
def test_at_its_limit_it_is_killed(module, tmp_path):
    """And nothing is told."""
    endless = module(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True: time.sleep(1)")
    assert answered(endless, b"", 3.0, solver="endless") is None
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_ends_it(module, monkeypatch, tmp_path):
    """Whatever interrupts the wait."""

    def interrupted(running, *_, **__):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    endless = module(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True: time.sleep(1)")
    with pytest.raises(KeyboardInterrupt):
        answered(endless, b"", 60.0, solver="endless")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
