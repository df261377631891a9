"""Programs of other packages planned, run and trained: whether steps by the plan give the bits of those without one.

    pip install keras-hub tf-keras 'transformers<5' tensorflow-recommenders deepctr
    python -m benchmarks.third_party [--only NAME ...] [--seconds 5]

Each is planned by `pesto solve` for two CPUs and run for three steps by `pesto run`, and some are trained for three
steps by `fit`, all in processes of their own. A program whose checks refuse what `pesto run` draws is run with its own
batch. A package that is not installed is a row that says so.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "third_party_keras3": ("bert_mlm", "bert_classifier", "roberta", "gpt2", "llama", "vit"),
    "third_party_keras2": (
        "mobilenet", "lstm", "bert", "distilbert", "gpt2", "t5", "vit", "retrieval", "ranking", "deepfm",
    ),
}  # fmt: skip
OWN_BATCH = ("third_party_keras2:t5",)
"""Programs with checks that a drawn batch does not pass."""
TRAINED = (
    "third_party_keras3:bert_classifier", "third_party_keras3:vit", "third_party_keras2:lstm",
    "third_party_keras2:bert", "third_party_keras2:retrieval", "third_party_keras2:ranking",
    "third_party_keras2:deepfm",
)  # fmt: skip
"""Programs that `fit` trains: some of each package."""
HEAD = ("program", "ops", "reading s", "solving s", "CPU s: solve", "all", "load", "run", "fit")


def main() -> None:
    """Print a row of a table for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names, such as keras2:vit")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each search")
    asked = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    print(f"commit {commit.stdout.strip()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("|", " | ".join(HEAD), "|\n|---|" + "---:|" * (len(HEAD) - 3) + "---|---|")
    for module, names in PROGRAMS.items():
        for name in names:
            if not asked.only or any(part in f"{module}:{name}" for part in asked.only):
                print("|", " | ".join(_row(f"{module}:{name}", asked.seconds)), "|", flush=True)
    print(f"\nCPU seconds in all {_cpu_s():.0f}, load at the end {os.getloadavg()[0]:.1f}")


def _row(program: str, seconds: float) -> list[str]:
    called = program.removeprefix("third_party_")
    begun = _cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        plan, step = str(Path(folder) / "plan.json"), ("--function", program, "--json")
        limit = ("--batch", "8", "--cluster", "cpux2", "--time-limit", str(seconds))
        solved = _json(program, "pesto", "solve", *step, *limit, "-o", plan)
        solve_cpu_s = _cpu_s() - begun
        if "error" in solved:
            return [called, *["-"] * (len(HEAD) - 2), _short(solved["error"])]
        batch = Path(folder) / "batch.npz"
        feeds = ("--feeds", str(batch)) if program in OWN_BATCH else ()
        if feeds:
            _json(program, "third_party_training", program, "--batch", str(batch))
        ran = _json(program, "pesto", "run", plan, *step, "--steps", "3", "--devices", "cpu", *feeds)
        ways = ((), ("--plan", plan)) if program in TRAINED else ()
        fits = [_json(program, "third_party_training", program, *way) for way in ways]
    took = {key: value for key, value in solved["stages_s"].items() if key not in ("start", "graph")}
    return [
        called, str(solved["ops"]), f"{solved['stages_s']['graph']:.1f}", f"{sum(took.values()):.1f}",
        f"{solve_cpu_s:.0f}", f"{_cpu_s() - begun:.0f}", f"{os.getloadavg()[0]:.1f}", _ran(ran),
        _fitted(*fits) if fits else "-",
    ]  # fmt: skip


def _ran(ran: dict[str, Any]) -> str:
    """The result of `pesto run`."""
    if "error" in ran:
        return _short(ran["error"])
    return "equal" if ran["losses_equal"] and ran["variables_equal"] else "differs"


def _fitted(without: dict[str, Any], placed: dict[str, Any]) -> str:
    """The result of `fit` by the plan, against that without one."""
    error = without.get("error") or placed.get("error")
    if error:
        return _short(error)
    if not placed["steps"] or placed["moves"] or placed["inversions"]:
        return f"{placed['steps']} placed steps, {placed['moves']} moved, {placed['inversions']} out of order"
    pairs = zip(without["variables"], placed["variables"], strict=True)
    differ = sum(one != other for one, other in pairs)
    if without["losses"] != placed["losses"] or differ:
        return (
            f"losses {without['losses'] == placed['losses']}, {differ} of {len(without['variables'])} variables differ"
        )
    return "equal"


def _json(program: str, module: str, *words: str) -> dict[str, Any]:
    """The JSON object that a Python module prints; one with `error` where it prints none."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    if "keras2" in program:
        environment["TF_USE_LEGACY_KERAS"] = "1"
    command: Sequence[str] = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[0 if module == "pesto" else -1].startswith("{"):
        return {"error": done.stderr}
    result: dict[str, Any] = json.loads(done.stdout if module == "pesto" else lines[-1])
    return result


def _short(error: str) -> str:
    """The end of an error, on one line of a table."""
    return " ".join(error.split())[-200:].replace("|", "/")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
