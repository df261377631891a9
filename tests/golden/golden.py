"""Golden results: hashes of what the command line makes, to show that a change moves no plan.

    python tests/golden/golden.py check [--only NAME...] [--keep FOLDER] [-v]
    python tests/golden/golden.py renew [--only NAME...]

Everything goes through `python -m pesto`, though in this process, so that the code behind it may move. The cases are in
`cases.py`, the hashes in `hashes.json`.
"""

import argparse
import contextlib
import gzip
import hashlib
import importlib.util
import io
import json
import logging
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
HASHES = HERE / "hashes.json"
FORMAT_VERSION = 1
LIBRARIES = ("highspy", "numba", "numpy", "ortools", "pulp", "pymetis", "pyscipopt", "tensorflow")
"""What results may depend on beside the project."""


class Done(NamedTuple):
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> Any:
        """The object that --json printed, None where nothing was."""
        return json.loads(self.out) if self.out.strip() else None


class Workshop:
    """A folder in which commands run, with the inputs of all cases in it."""

    def __init__(self, folder: Path) -> None:
        """Copy the inputs into an empty folder."""
        self.folder = folder
        shutil.copytree(HERE / "data", folder, dirs_exist_ok=True)

    def pesto(self, *words: object) -> Done:
        """Run one command of the project in the folder, as `python -m pesto` would."""
        out, err = io.StringIO(), io.StringIO()
        with _left_as_it_was(), contextlib.chdir(self.folder), _quiet(out, err):
            sys.argv = ["pesto", *map(str, words)]
            try:
                runpy.run_module("pesto", run_name="__main__")
            except SystemExit as end:
                return Done(int(end.code or 0), out.getvalue(), err.getvalue())
        raise RuntimeError("the command line did not end with an exit code")

    def fresh(self, name: str) -> Path:
        """A path in the folder at which nothing is."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        return path

    def graph(self, model: str) -> str:
        """Name of the graph file of a model's tiny variant; made by TensorFlow where it is not among the inputs."""
        name = f"{model}.json.gz"
        if not (self.folder / name).exists():
            self.must("import", "--model", model, "--variant", "tiny", "-o", name)
        return name

    def must(self, *words: object) -> Done:
        """Run a command that has to succeed; RuntimeError with its words otherwise."""
        done = self.pesto(*words)
        if done.code:
            raise RuntimeError(f"pesto {' '.join(map(str, words))} ended with {done.code}: {done.err[-500:]}")
        return done


class Case(NamedTuple):
    """One golden result."""

    name: str
    make: Callable[[Workshop], Any]
    """What is hashed, as JSON."""
    quick: bool = False
    """Whether the default test run has it: a second or so, without TensorFlow."""


@contextlib.contextmanager
def _left_as_it_was() -> Iterator[None]:
    """Undo what a command changes in its process: arguments, signal handlers, log handlers."""
    argv, log = sys.argv, logging.getLogger("pesto")
    handlers = list(log.handlers)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        sys.argv, log.handlers[:] = argv, handlers
        for number, handler in signals.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _quiet(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    """Catch what is printed, and what threads log of their failures, which a test run would keep to itself."""
    log, handler = logging.getLogger("concurrent.futures"), logging.StreamHandler(err)
    log.addHandler(handler)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    finally:
        log.removeHandler(handler)


def read_json(path: Path) -> Any:
    """The content of a JSON file, gzip or not; None where there is none."""
    if not path.exists():
        return None
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def canonical(value: Any) -> str:
    """JSON that is equal for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def all_cases() -> dict[str, Case]:
    """Every case by its name, in the order of `cases.py`."""
    found: list[Case] = _beside("cases").cases()
    return {case.name: case for case in found}


def _beside(name: str) -> ModuleType:
    """A module of this folder, which is no package and on no path when tests run."""
    full = f"golden_{name}"
    if full not in sys.modules:
        sys.modules.setdefault("golden", sys.modules[__name__])
        spec = importlib.util.spec_from_file_location(full, HERE / f"{name}.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"no {name}.py in {HERE}")
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


def known() -> dict[str, str]:
    """Name -> SHA-256, as written by `renew`; empty before the first."""
    found = read_json(HASHES)
    return dict(found["hashes"]) if found else {}


def versions() -> dict[str, str]:
    """The installed versions of LIBRARIES and Python; "" for what is missing."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def other_versions() -> str:
    """Which versions differ from those that the hashes were made with, on one line; empty where none does."""
    made, here = (read_json(HASHES) or {}).get("made_with", {}), versions()
    return ", ".join(f"{name} {made.get(name, '')} -> {here[name]}" for name in here if made.get(name) != here[name])


def difference(case: Case, shop: Workshop, hashes: Mapping[str, str], keep: Path | None = None) -> str:
    """Make a case's result; "" where it has its golden hash, otherwise one line. Write the result into `keep`."""
    try:
        value = case.make(shop)
    except Exception as error:
        return f"failed:  {case.name}: {type(error).__name__}: {error}"
    if keep is not None:
        path = keep / f"{case.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(canonical(value))
    if case.name not in hashes:
        return f"missing: {case.name} has no golden hash"
    return "" if digest(value) == hashes[case.name] else f"changed: {case.name}"


def check(chosen: Mapping[str, Case], keep: Path | None, *, stale: bool, verbose: bool) -> int:
    """Print one line for every result that is not as before; the number of them."""
    hashes, wrong = known(), 0
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        for case in chosen.values():
            began = time.perf_counter()
            line = difference(case, shop, hashes, keep)
            wrong += bool(line)
            if line or verbose:
                print(line or f"same:    {case.name} ({time.perf_counter() - began:.1f} s)", flush=True)
    for name in sorted(set(hashes) - set(all_cases())) if stale else ():
        wrong += 1
        print(f"stale:   {name} is no case any more")
    if wrong and other_versions():
        print(f"the hashes were made with other versions: {other_versions()}")
    print(f"{len(chosen)} results, {wrong} not as before")
    return wrong


def renew(chosen: Mapping[str, Case], *, whole: bool) -> None:
    """Write the hashes of the chosen cases; of all others keep what was there, unless these are all."""
    hashes = {} if whole else known()
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        for name, case in chosen.items():
            hashes[name] = digest(case.make(shop))
            print(f"{hashes[name][:12]} {name}", flush=True)
    made = {"format_version": FORMAT_VERSION, "made_with": versions(), "hashes": dict(sorted(hashes.items()))}
    HASHES.write_text(json.dumps(made, indent=1) + "\n")


def main() -> int:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(description="Compare results of the project with their golden hashes.")
    parser.add_argument("verb", choices=["check", "renew"])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names or patterns: 'solve/*/2gpu/*'")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="check: write every result here, to be compared")
    parser.add_argument("-v", "--verbose", action="store_true", help="check: a line for what is the same, too")
    given = parser.parse_args()
    cases = all_cases()
    chosen = {
        name: case for name, case in cases.items() if not given.only or any(fnmatchcase(name, p) for p in given.only)
    }
    if not chosen:
        parser.error(f"no case is called {' or '.join(given.only)}; there are {', '.join(cases)}")
    if given.verb == "renew":
        renew(chosen, whole=not given.only)
        return 0
    return min(1, check(chosen, given.keep, stale=not given.only, verbose=given.verbose))


if __name__ == "__main__":
    sys.exit(main())
