"""A process that saves is killed, or its system call failed, at every single call of the save."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
OLD, NEW = b"old" * 50_000, b"new!" * 600_000  # 2.4 MB: the save writes it in three calls
CHILD = """
import os, sys
from pesto.core.files.disk import write_atomic
from pesto.core.errors import FileError
data = b"new!" * 600_000
os.getcwd()
try:
    write_atomic(sys.argv[1], data)
except FileError as error:
    os._exit(error.exit_code)
os.getcwd()
os._exit(0)
"""
STRACE = shutil.which("strace")


def traced(folder: Path, *options: str) -> tuple[int, str]:
    """Run the child under strace on a fresh old file; its exit code and the log."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "plan.json").write_bytes(OLD)
    log = folder.with_suffix(".log")
    command = [STRACE, "-o", str(log), *options, sys.executable, "-B", "-c", CHILD, str(folder / "plan.json")]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, timeout=60, env=environment, check=False)
    return done.returncode, log.read_text(errors="replace") if log.exists() else done.stderr.decode()


def calls_of_the_save(folder: Path) -> list[tuple[str, int]]:
    """(system call, how many of that name the process has made so far) for each call between the two getcwd."""
    code, log = traced(folder)
    if code != 0:
        pytest.skip(f"strace cannot trace here: {log[-200:]!r}")
    names = [line.partition("(")[0] for line in log.splitlines() if "(" in line]
    first, last = [k for k, name in enumerate(names) if name == "getcwd"][-2:]
    return [(name, names[: k + 1].count(name)) for k, name in enumerate(names) if first < k < last]


@pytest.fixture(scope="module")
def save(tmp_path_factory) -> tuple[Path, list[tuple[str, int]]]:
    if STRACE is None:
        pytest.skip("strace is not installed; tests/pesto/core/files/test_disk.py fails each step without it")
    folder = tmp_path_factory.mktemp("save")
    return folder, calls_of_the_save(folder)


def test_the_save_makes_the_calls_that_it_should(save):
    """Write all, sync the file, rename, sync the folder: in this order, and nothing after the last but a close."""
    names = [name for name, _ in save[1]]
    vital = [n for n in names if n in ("write", "fsync", "rename", "renameat", "renameat2")]
    assert vital[:3] == ["write"] * 3  # 2.4 MB in chunks of 1 MiB
    assert vital[3] == "fsync"
    assert vital[4].startswith("rename")
    assert vital[5:] == ["fsync"]


def test_killed_at_every_system_call(save):
    """kill -9 at each call leaves the whole old file or the whole new one, and the next save works."""
    folder, calls = save
    content = []
    for name, nth in calls:
        code, _ = traced(folder, "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={nth}")
        assert code in (-signal.SIGKILL, 128 + signal.SIGKILL), (name, nth)
        content.append((folder / "plan.json").read_bytes())
        assert content[-1] in (OLD, NEW), (name, nth)
        left = [p.name for p in folder.iterdir() if p.name != "plan.json"]
        assert all(n.startswith(".pesto-") and n.endswith(".tmp") for n in left), left
    # Killed at the first call nothing has happened; at the last, the close of the synced folder, everything has.
    assert content[0] == OLD
    assert content[-1] == NEW


@pytest.mark.parametrize("code", [pytest.param("EIO", marks=pytest.mark.slow), "ENOSPC"])
def test_every_system_call_fails(save, code):
    """An error of each call ends in exit 8 with the old file, or in a complete save; no temporary file is left."""
    folder, calls = save
    ends = set()
    for name, nth in calls:
        if name in ("unlink", "brk", "mmap", "munmap", "getrandom", "lstat", "readlink"):
            continue  # the allocator's, or calls whose failure is by design taken for "nothing is there"
        exit_code, _ = traced(folder, "-e", f"trace={name}", "-e", f"inject={name}:error={code}:when={nth}")
        ends.add(exit_code)
        content = (folder / "plan.json").read_bytes()
        assert exit_code in (0, 8), (name, nth, exit_code)
        assert content == NEW if exit_code == 0 else content in (OLD, NEW), (name, nth)
        assert [p.name for p in folder.iterdir()] == ["plan.json"], (name, nth)
    assert 8 in ends
