"""Mutation testing by sample: small wrong edits of a room's modules, and how many of them its tests notice.

    python -m benchmarks.mutants [--rooms checker,tight] [--count 25] [--seed 0] [--out FILE] [--again FILE]

Of each room `--count` mutants are drawn. Each is tried in a copy of the tree, in which caches of compiled functions are
kept for all other modules; a test that fails, hangs or cannot be collected kills it. `--out` keeps what became of each,
a line of JSON each, and what it has is not tried again; with `--again` exactly those mutants are tried that survived
there. Prints survivors, and the score by room: killed, of those that are not marked in `equivalent.toml`.
"""

import argparse
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
"""Times as long as the tests take on the original, and seconds at least, after which a run hangs."""
_LEFT_OUT = (".git", ".venv", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a mutant."""

    room: str
    key: str
    line: int
    outcome: str
    """killed, hung or survived; equivalent where it is marked, and was not tried."""
    seconds: float


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="some of them, with commas")
    parser.add_argument("--count", type=int, default=25, help="mutants of a room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file of what became of each: gone on with")
    parser.add_argument("--again", type=Path, help="such a file: its survivors are tried again")
    given = parser.parse_args()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        base = Path(folder, "base")
        shutil.copytree(ROOT, base, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        for name in given.rooms.split(","):
            drawn = survivors(name, given.again) if given.again else sample(ROOMS[name], given.count, given.seed)
            known = {each.key: each for each in read(given.out) if each.room == name}
            verdicts += [known[mutant.key] for mutant in drawn if mutant.key in known]
            for verdict in judged(name, [mutant for mutant in drawn if mutant.key not in known], base):
                verdicts.append(verdict)
                told(verdict, given.out)
    print("\n".join(table(verdicts)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{(used.ru_utime + used.ru_stime) / 60:.1f} CPU minutes")


def sample(room: Room, count: int, seed: int) -> list[Mutant]:
    """So many of a room's mutants, always the same for a seed and a text."""
    every = room.mutants()
    return [every[k] for k in np.random.default_rng(seed).permutation(len(every))[:count].tolist()]


def survivors(name: str, known: Path) -> list[Mutant]:
    """The mutants of a room that survived by a file of `--out`."""
    keys = {each.key for each in read(known) if (each.room, each.outcome) == (name, "survived")}
    return [mutant for mutant in ROOMS[name].mutants() if mutant.key in keys]


def read(known: Path | None) -> list[Verdict]:
    """The verdicts of a file; none where there is no file."""
    lines = known.read_text().splitlines() if known and known.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def marked_by_hand() -> set[str]:
    """The keys of equivalent mutants."""
    rows = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())["mutant"]
    return {f"{row['where']}: {row['before']}  =>  {row['after']}" for row in rows}


def judged(name: str, drawn: list[Mutant], base: Path) -> Iterator[Verdict]:
    """What becomes of each mutant; SystemExit where the tests fail on the original, or pass whatever is there."""
    if not drawn:
        return
    tests = ROOMS[name].tests
    outcome, seconds = passed(base, tests, None)
    if outcome != "survived":
        raise SystemExit(f"{name}: its tests fail on the original, so that they judge no mutant")
    broken = replace(drawn[0], source=b"raise AssertionError\n")
    if tried(broken, base, tests, None)[0] == "survived":
        raise SystemExit(f"{name}: its tests never import {broken.path}")
    limit, equivalent = max(_LEAST_S, _SLOWER * seconds), marked_by_hand()
    for mutant in drawn:
        marked = mutant.key in equivalent
        outcome, seconds = ("equivalent", 0.0) if marked else tried(mutant, base, tests, limit)
        yield Verdict(room=name, key=mutant.key, line=mutant.line, outcome=outcome, seconds=round(seconds, 1))


def tried(mutant: Mutant, base: Path, tests: tuple[str, ...], limit: float | None) -> tuple[str, float]:
    """The outcome of a mutant in a copy of the tree, and its seconds."""
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        tree = Path(folder, "tree")
        # Links, not copies: what compiles writes its caches anew, and a new file never changes the one it takes over.
        shutil.copytree(base, tree, symlinks=True, copy_function=linked)
        (tree / mutant.path).unlink()
        (tree / mutant.path).write_bytes(mutant.source)
        return passed(tree, tests, limit)


def linked(source: str, target: str) -> None:
    """A second name for a file."""
    os.link(source, target, follow_symlinks=False)


def passed(tree: Path, tests: tuple[str, ...], limit: float | None) -> tuple[str, float]:
    """Whether a tree's tests pass, and the seconds until that is known."""
    began = time.monotonic()
    running = multiprocessing.get_context("fork").Process(target=run, args=(tree, tests))
    running.start()
    running.join(limit)
    if running.exitcode is None:
        os.killpg(running.pid or 0, signal.SIGKILL)
        running.join()
        return "hung", time.monotonic() - began
    return "killed" if running.exitcode else "survived", time.monotonic() - began


def run(tree: Path, tests: tuple[str, ...]) -> None:
    """Run a tree's tests in this process, whose libraries are loaded but none of the project's own modules."""
    os.setsid()
    os.chdir(tree)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path[:] = [str(tree), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])
    os._exit(int(code))


def told(verdict: Verdict, out: Path | None) -> None:
    """Print a survivor, and keep a line of each."""
    if verdict.outcome == "survived":
        print(f"{verdict.room}, line {verdict.line}: {verdict.key}", flush=True)
    if out is not None:
        line = asdict(verdict)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def table(verdicts: list[Verdict]) -> Iterator[str]:
    """The score by room, in markdown."""
    yield "\n| room | mutants | equivalent | killed | survived | score |\n|---|---:|---:|---:|---:|---:|"
    for name in [*dict.fromkeys(verdict.room for verdict in verdicts), "all"]:
        mine = [verdict.outcome for verdict in verdicts if name in (verdict.room, "all")]
        count: Callable[[str], int] = mine.count
        killed, survived = count("killed") + count("hung"), count("survived")
        score = f"{killed / max(killed + survived, 1):.0%}"
        yield f"| {name} | {len(mine)} | {count('equivalent')} | {killed} | {survived} | {score} |"


if __name__ == "__main__":
    main()
