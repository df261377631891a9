"""Programs of other packages planned and run: whether three steps by the plan give the bits of those without one.

    pip install keras-hub tf-keras 'transformers<5' tensorflow-recommenders deepctr
    python -m benchmarks.third_party [--only NAME ...] [--seconds 5]

Each is planned by `pesto solve` for two CPUs and run by `pesto run`, in processes of its own. A package that is not
installed is a row that says so.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "third_party_keras3": ("bert_mlm", "bert_classifier", "roberta", "gpt2", "llama", "vit"),
    "third_party_keras2": (
        "mobilenet", "lstm", "bert", "distilbert", "gpt2", "vit", "retrieval", "ranking", "deepfm",
    ),
}  # fmt: skip
HEAD = ("program", "ops", "reading s", "solving s", "CPU s", "load", "run")


def main() -> None:
    """Print a row of a table for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names, such as keras2:vit")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each search")
    asked = parser.parse_args()
    print("|", " | ".join(HEAD), "|\n|---|" + "---:|" * (len(HEAD) - 2) + "---|")
    for module, names in PROGRAMS.items():
        for name in names:
            if not asked.only or any(part in f"{module}:{name}" for part in asked.only):
                print("|", " | ".join(_row(module, name, asked.seconds)), "|", flush=True)


def _row(module: str, name: str, seconds: float) -> list[str]:
    called = f"{module.removeprefix('third_party_')}:{name}"
    with tempfile.TemporaryDirectory() as folder:
        plan, step = str(Path(folder) / "plan.json"), ("--function", f"{module}:{name}", "--json")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        limit = ("--batch", "8", "--cluster", "cpux2", "--time-limit", str(seconds))
        solved = _pesto("solve", *step, *limit, "-o", plan)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if "error" in solved:
            return [called, *["-"] * (len(HEAD) - 2), solved["error"]]
        ran = _pesto("run", plan, *step, "--steps", "3", "--devices", "cpu")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took = {key: value for key, value in solved["stages_s"].items() if key not in ("start", "graph")}
    equal = ran.get("error") or ("equal" if ran["losses_equal"] and ran["variables_equal"] else "differs")
    return [
        called, str(solved["ops"]), f"{solved['stages_s']['graph']:.1f}", f"{sum(took.values()):.1f}", f"{spent:.1f}",
        f"{os.getloadavg()[0]:.0f}", equal,
    ]  # fmt: skip


def _pesto(*words: str) -> dict[str, Any]:
    """The JSON object that a command prints; one with `error` where it prints none."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    if any("keras2" in word for word in words):
        environment["TF_USE_LEGACY_KERAS"] = "1"
    command = [sys.executable, "-m", "pesto", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {"error": done.stderr[-200:]}
    return found


if __name__ == "__main__":
    main()
