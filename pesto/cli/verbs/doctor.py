"""pesto doctor: check this installation and list its packages."""

import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click
import numpy as np

from pesto.cli.options import json_option
from pesto.cli.printed import to_json
from pesto.core.distribution import install_command
from pesto.core.errors import Exit
from pesto.core.files.json import shown
from pesto.planning.solving.background_compiler import cache_folder, compiled_parts, shared_compiler
from pesto.reporting.show.lines import align_rows, paragraph
from pesto.verbs.compiling.parts import PARTS
from solvers import Options, Problem, available, solve
from solvers.api import SOLVERS
from solvers.heuristics.methods import PLACERS

PACKAGES = (
    "pesto-placement", "tensorflow", "keras", "ortools", "highspy", "PuLP", "PySCIPOpt", "numpy", "numba", "networkx",
    "msgspec", "protobuf",
)  # fmt: skip
_ABSENT = "not installed, which is optional: "
_IMPORT_ORDER = "import ortools before pulp or highspy in one program: behind them it cannot be loaded"
"""Both bring a library of HiGHS, and a process keeps the first; the solvers of a plan run in processes of their own."""
_TRY_TENSORFLOW = """
from pesto.tf.tensorflow_start import tensorflow
tensorflow()
from pesto.tf.selftest import self_test
self_test()
print("ok")
"""


@click.command("doctor")
@click.option(
    "--compile", "ahead", is_flag=True, help="Compile all that a solve needs, so that the first does not wait for it."
)
@json_option()
def doctor_command(*, ahead: bool, as_json: bool) -> None:
    """Check versions, every solver in its own process, and TensorFlow; exit 7 when something does not work.

    A solver that comes with an extra, and is not installed, is no fault.
    """
    if ahead:
        shared_compiler().need(*PARTS)
    checks = _check_solvers()
    has_tensorflow = find_spec("tensorflow") is not None
    checks["tensorflow runs"] = check_tensorflow() if has_tensorflow else f"{_ABSENT}{install_command('tensorflow')}"
    versions = dict.fromkeys(PACKAGES, "missing")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    versions["CBC"] = SOLVERS["cbc"].version() or "missing"
    well = all(text == "ok" or text.startswith(_ABSENT) for text in checks.values())
    compiled = {"parts": len(compiled_parts()), "of": len(PARTS), "folder": str(cache_folder())}
    if as_json:
        python = platform.python_version()
        found = {
            "python": python, "versions": versions, "compiled": compiled, "checks": checks, "notes": [_IMPORT_ORDER],
            "well": well,
        }  # fmt: skip
        click.echo(to_json(found))
    else:
        click.echo(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
        there = "{parts} of {of} parts of what a solve needs, in {folder}".format_map(compiled)
        rows = {**versions, "compiled": shown(there), **checks, "note": _IMPORT_ORDER}
        click.echo("\n".join(paragraph(line, 27) for line in align_rows(rows.items(), "<", (25,))))
    if not well:
        raise click.exceptions.Exit(Exit.SOLVER)


def _check_solvers() -> dict[str, str]:
    """Run each solver on a problem of known optimum: two tasks of 3 ticks on two devices take 3, or 6 on one."""
    none = np.zeros(0, dtype=np.int64)
    two_tasks = Problem(
        duration=np.full((2, 2), 3),
        location=np.arange(2),
        memory=np.zeros(2, dtype=np.int64),
        capacity=np.ones(2, dtype=np.int64),
        src=none,
        dst=none,
        payload=none,
        producer=none,
        transfer=np.zeros((0, 1), dtype=np.int64),
        path_class=np.array([[-1, 0], [0, -1]]),
        path_links=np.array([[[-1], [0]], [[1], [-1]]]),
        group=np.full(2, -1),
    )
    checks = {}
    for name, _, why_not in available():
        if why_not and SOLVERS[name].optional:
            checks[f"solver {name}"] = f"{_ABSENT}{why_not}"
            continue
        result = solve(two_tasks, name, Options(seconds=20, workers=8))
        best = result.schedule.makespan if result.schedule is not None else None
        right = best == 3 or (best == 6 and (name == "single" or name in PLACERS))
        checks[f"solver {name}"] = "ok" if right else f"failed: {result.status}, makespan {best} {result.detail}"
    return checks


def check_tensorflow() -> str:
    """Try TensorFlow in a process of its own: it and a solver must never share one."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY_TENSORFLOW], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return "no answer within 120 s"
    lines = done.stderr.strip().splitlines()
    return "ok" if done.stdout.strip().endswith("ok") else f"failed: {lines[-1] if lines else done.returncode}"
