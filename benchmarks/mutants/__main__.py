"""Mutation testing by sample: small wrong edits of a room's modules, and how many of them its tests notice.

    python -m benchmarks.mutants [--rooms checker,tight] [--count 25] [--out FILE] [--again FILE] [--markers EXPR]

From each room `--count` mutants are drawn. The tests of the room run on each in a copy of the tree, in which caches of
compiled functions are kept for all modules that do not use the mutated one; a test that fails, hangs or cannot be
collected kills the mutant.
`--out` appends each verdict as a line of JSON, and mutants in that file are not tried again; with `--again` only the
survivors of a file are tried. Prints survivors, and the score by room: killed mutants over those that are not marked
as equivalent in `equivalent.toml`.
"""

import argparse
import ast
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import hypothesis  # noqa: F401  # loaded once for all mutants, as networkx and numba are
import networkx as nx  # noqa: F401
import numba  # noqa: F401
import numpy as np
import pytest

from benchmarks.mutants.edits import Mutant
from benchmarks.mutants.rooms import ROOMS, ROOT, Room

_SLOWER, _LEAST_S = 6.0, 60.0
"""A run counts as hung after this multiple of the original's seconds, and after no fewer than these seconds."""
_TAIL = 30
"""Lines of the tests' output that are printed where they fail on the original."""
_COMPILES = b"solvers.compiled.kernels"
"""Matches the import statements of a source file."""
_LEFT_OUT = (".git", ".venv", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome of the tests on one mutant."""

    room: str
    key: str
    line: int
    outcome: str
    """killed, hung or survived; equivalent where it is marked, and was not tried."""
    seconds: float


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="rooms to test, separated by commas")
    parser.add_argument("--count", type=int, default=25, help="number of mutants of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of verdicts to append to; mutants in it are not tried again")
    parser.add_argument("--again", type=Path, help="file of verdicts whose survivors are tried again")
    parser.add_argument("--markers", help='tests to judge by, as of pytest -m; "not night" for all of the gate')
    options = parser.parse_args()
    marked = ("-m", options.markers) if options.markers else ()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        base = Path(folder, "base")
        shutil.copytree(ROOT, base, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        for name in options.rooms.split(","):
            drawn = (
                find_survivors(name, options.again)
                if options.again
                else draw_mutants(ROOMS[name], options.count, options.seed)
            )
            known = {verdict.key: verdict for verdict in read_verdicts(options.out) if verdict.room == name}
            verdicts += [known[mutant.key] for mutant in drawn if mutant.key in known]
            tests = (*ROOMS[name].tests, *marked)
            for verdict in judge_mutants(name, [mutant for mutant in drawn if mutant.key not in known], tests, base):
                verdicts.append(verdict)
                record_verdict(verdict, options.out)
    print("\n".join(format_table(verdicts)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{(used.ru_utime + used.ru_stime) / 60:.1f} CPU minutes")


def draw_mutants(room: Room, count: int, seed: int) -> list[Mutant]:
    """Draw `count` mutants of a room; equal seeds and sources draw equal mutants."""
    every = room.mutants()
    return [every[k] for k in np.random.default_rng(seed).permutation(len(every))[:count].tolist()]


def find_survivors(name: str, path: Path) -> list[Mutant]:
    """Return the mutants of a room that survived by a file of `--out`."""
    keys = {each.key for each in read_verdicts(path) if (each.room, each.outcome) == (name, "survived")}
    return [mutant for mutant in ROOMS[name].mutants() if mutant.key in keys]


def read_verdicts(path: Path | None) -> list[Verdict]:
    """Return the verdicts of a file; none without a file."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def read_equivalent_keys() -> set[str]:
    """Return the keys of the mutants that `equivalent.toml` marks as equivalent."""
    rows = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())["mutant"]
    return {f"{row['where']}: {row['before']}  =>  {row['after']}" for row in rows}


def judge_mutants(name: str, drawn: list[Mutant], tests: tuple[str, ...], base: Path) -> Iterator[Verdict]:
    """Yield the verdict of each mutant; SystemExit where the tests fail on the original, or never import it."""
    if not drawn:
        return
    outcome, seconds = run_tests(base, tests, None)
    if outcome != "survived":
        tail = "\n".join(log_of(base).read_text(errors="replace").splitlines()[-_TAIL:])
        raise SystemExit(f"{tail}\n{name}: its tests fail on the original, so that they judge no mutant")
    broken = replace(drawn[0], source=b"raise AssertionError\n")
    if try_mutant(broken, base, tests, None)[0] == "survived":
        raise SystemExit(f"{name}: its tests never import {broken.path}")
    limit, equivalent = max(_LEAST_S, _SLOWER * seconds), read_equivalent_keys()
    for mutant in drawn:
        marked = mutant.key in equivalent
        outcome, seconds = ("equivalent", 0.0) if marked else try_mutant(mutant, base, tests, limit)
        yield Verdict(room=name, key=mutant.key, line=mutant.line, outcome=outcome, seconds=round(seconds, 1))


def try_mutant(mutant: Mutant, base: Path, tests: tuple[str, ...], limit: float | None) -> tuple[str, float]:
    """Run the tests on a mutant in a copy of the tree; return its outcome and the seconds of the run."""
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        tree = Path(folder, "tree")
        # Links, not copies: what compiles writes its caches anew, and a new file never changes the one it takes over.
        shutil.copytree(base, tree, symlinks=True, copy_function=link_file)
        (tree / mutant.path).unlink()
        (tree / mutant.path).write_bytes(mutant.source)
        for user in find_users(tree, mutant.path):
            for cache in (tree / user).parent.glob(f"__pycache__/{Path(user).stem}.*.nb[ic]"):
                cache.unlink()
        return run_tests(tree, tests, limit)


def find_users(tree: Path, path: str) -> set[str]:
    """Return the modules with compiled functions that import a module, directly or through others.

    Their caches may hold copies of its functions, and numba compares the time of a cache's own source file alone.
    """
    imports = {}
    for file in (file for room in ("solvers", "pesto", "tests") for file in tree.glob(f"{room}/**/*.py")):
        if _COMPILES in (text := file.read_bytes()):
            imports[file.relative_to(tree).as_posix()] = names = set[str]()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom):
                    module = f"{node.module}".replace(".", "/")
                    names |= {f"{module}.py", *(f"{module}/{each.name}.py" for each in node.names)}
    users: set[str] = set()
    reached = {path}
    while reached:
        reached = {file for file, names in imports.items() if names & reached} - users
        users |= reached
    return users


def link_file(source: str, target: str) -> None:
    """Make a hard link to a file, or copy a symbolic link."""
    os.link(source, target, follow_symlinks=False)


def run_tests(tree: Path, tests: tuple[str, ...], limit: float | None) -> tuple[str, float]:
    """Run the tests on a tree for at most `limit` seconds; return killed, hung or survived, and the seconds taken."""
    began = time.monotonic()
    running = multiprocessing.get_context("fork").Process(target=run_pytest, args=(tree, tests))
    running.start()
    running.join(limit)
    if running.exitcode is None:
        os.killpg(running.pid or 0, signal.SIGKILL)
        running.join()
        return "hung", time.monotonic() - began
    return "killed" if running.exitcode else "survived", time.monotonic() - began


def log_of(tree: Path) -> Path:
    """Return the file with the output of a tree's tests, beside the tree."""
    return tree.with_suffix(".log")


def run_pytest(tree: Path, tests: tuple[str, ...]) -> None:
    """Run a tree's tests in this process, which has loaded libraries but none of the project's own modules."""
    os.setsid()
    os.chdir(tree)
    log = os.open(log_of(tree), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path[:] = [str(tree), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


def record_verdict(verdict: Verdict, out: Path | None) -> None:
    """Print the mutant if it survived, and append its verdict to the file `out`."""
    if verdict.outcome == "survived":
        print(f"{verdict.room}, line {verdict.line}: {verdict.key}", flush=True)
    if out is not None:
        line = asdict(verdict)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def format_table(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield the lines of a Markdown table of the scores by room."""
    yield "\n| room | mutants | equivalent | killed | survived | score |\n|---|---:|---:|---:|---:|---:|"
    for name in [*dict.fromkeys(verdict.room for verdict in verdicts), "all"]:
        mine = [verdict.outcome for verdict in verdicts if name in (verdict.room, "all")]
        count: Callable[[str], int] = mine.count
        killed, survived = count("killed") + count("hung"), count("survived")
        score = f"{killed / max(killed + survived, 1):.0%}"
        yield f"| {name} | {len(mine)} | {count('equivalent')} | {killed} | {survived} | {score} |"


if __name__ == "__main__":
    main()
