"""What is compiled beside a solve: in the order of need, once for all who wait, and no longer than they live."""

import fcntl
import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pesto.planning.solving import background_compiler
from pesto.planning.solving.background_compiler import (
    BackgroundCompiler,
    NothingToCompile,
    compile_in_process,
    shared_compiler,
)

TWO = """
import json, sys
print(json.dumps({"done": "first", "count": 1, "of": 2}), flush=True)
sys.stdin.readline()
print(json.dumps({"done": "second", "count": 2, "of": 2}), flush=True)
"""
MADE_UP = """
import os, sys, time
from pathlib import Path
import pesto.verbs.compiling.__main__ as compiling
folder, stay = Path(sys.argv[1]), sys.argv[2] == "stay"
def run(name, tiny):
    with (folder / "ran").open("a") as ran:
        print(name, os.getpid(), file=ran)
    time.sleep(600 if stay else 0.1)
compiling.run = run
compiling.PARTS.clear()
compiling.PARTS.update({"d": ("b", "c"), "b": ("a",), "a": (), "c": ()})
compiling.Tiny.make = staticmethod(lambda: None)
compiling.background_compiler.cache_folder = lambda: folder
compiling.main()
"""


def compiling(folder: Path, how: str) -> subprocess.Popen[str]:
    """Compilation of four made-up parts in a folder of their own."""
    words = [sys.executable, "-c", MADE_UP, str(folder), how]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, bufsize=1
    )


def test_a_stage_waits_for_its_part_alone() -> None:
    """The second comes when it is told to; a fork does not wait, nor does anyone for a process that has ended."""
    process = BackgroundCompiler([sys.executable, "-c", TWO])
    process.need("first")
    assert process.done == {"first"} and (process.count, process.of) == (1, 2)
    assert process.standing == ""  # nobody waits
    process.waiting = True
    assert process.standing == "compiling, first run on this machine: 1 of 2 parts"
    fork = multiprocessing.get_context("fork").Process(target=lambda: (process.need("another"), process.end()))
    fork.start()
    fork.join()
    assert fork.exitcode == 0 and process._process.poll() is None
    process._process.stdin.write("\n")
    process._process.stdin.flush()
    process.need("first", "second")
    assert process.done == {"first", "second"}
    process.need("a part that never comes")
    process.end()


def test_nobody_waits_for_a_part_once_it_is_late() -> None:
    """The stage is told so; a part that is there is there however late it is."""
    process = BackgroundCompiler([sys.executable, "-c", TWO])
    assert process.need("first", late=lambda: process.done == {"first"})
    assert process.need("first", late=lambda: True) and not process.lacks("first")
    assert not process.need("first", "second", late=lambda: True) and process.lacks("first", "second")
    assert process.standing == ""
    process.end()
    assert process.need("a part that never comes", late=lambda: True)


def test_who_ends_it_leaves_no_worker_behind(tmp_path) -> None:
    """One that had begun a part would keep the machine busy."""
    process = BackgroundCompiler([sys.executable, "-c", MADE_UP, str(tmp_path), "stay"])
    while not (tmp_path / "ran").exists() or not (tmp_path / "ran").read_text().strip():
        assert process._process.poll() is None
        time.sleep(0.01)
    workers = {line.split()[1] for line in (tmp_path / "ran").read_text().splitlines()}
    process.end()
    while any(_lives(worker) for worker in workers):
        time.sleep(0.01)


def _lives(process: str) -> bool:
    try:
        return Path("/proc", process, "stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("code", ["", "raise SystemExit(3)", "print('{}'); print('no json')"])
def test_a_process_that_fails_is_not_waited_for(code) -> None:
    """Stages compile for themselves then."""
    process = BackgroundCompiler([sys.executable, "-c", code])
    process.need("first")
    process.end()
    assert process.done == set()


def test_who_compiles_waits_for_nobody() -> None:
    with compile_in_process():
        assert isinstance(shared_compiler(), NothingToCompile)
        shared_compiler().need("anything")


def test_what_is_there_is_known_by_all_that_it_depends_on(tmp_path, monkeypatch) -> None:
    """Another source, version or processor: nothing is there. Nor is it where the file is damaged."""
    monkeypatch.setattr(background_compiler, "cache_folder", lambda: tmp_path)
    assert background_compiler.compiled_parts() == set()
    background_compiler.record_part("a")
    background_compiler.record_part("b")
    assert background_compiler.compiled_parts() == {"a", "b"}
    before = background_compiler.cache_key()
    monkeypatch.setattr(background_compiler, "cache_key", lambda: "another")
    assert background_compiler.compiled_parts() == set()
    monkeypatch.setattr(background_compiler, "cache_key", lambda: before)
    for damaged in (b"", b"[]", b'{"key": 1}', b"\xff"):
        background_compiler._file().write_bytes(damaged)
        assert background_compiler.compiled_parts() == set()


@pytest.mark.slow
def test_concurrent_compilations_do_everything_once_and_in_order(tmp_path) -> None:
    """Each says all parts, whoever has compiled them; none runs before what it would compile as well."""
    both = [compiling(tmp_path, "end") for _ in range(2)]
    for process in both:
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0
        process.stdin.close()
        assert sorted(line["done"] for line in lines) == ["a", "b", "c", "d"]
        assert [line["count"] for line in lines] == [1, 2, 3, 4] and {line["of"] for line in lines} == {4}
    ran = [line.split()[0] for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(ran) == ["a", "b", "c", "d"] and ran.index("a") < ran.index("b") and ran[-1] == "d"


@pytest.mark.parametrize("how", ["its stdin ends", "it is killed"])
def test_it_ends_with_whoever_started_it(how, tmp_path) -> None:
    """Workers, too, in the middle of a part, and the next compilation is free to begin."""
    process = compiling(tmp_path, "stay")
    ran = tmp_path / "ran"
    while not ran.exists() or "a" not in ran.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    if how == "it is killed":
        process.kill()
    else:
        process.stdin.close()
    process.wait()
    assert process.stdout.read() == ""  # at whose end all who could write have ended
    with (tmp_path / "pesto-compiled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
