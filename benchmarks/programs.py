"""Programs of users, from the program to verified steps: stages, gain, moves, inversions and distances.

    nice python benchmarks/programs.py [--program NAME] [--limit 10] [--steps 4] [--json]

Each program runs in processes of its own. One runs it as it is: TensorFlow as it comes (Grappler, oneDNN, threads). The
other records its step, solves for two V100s, and trains it without a plan but with those rewrites off and one thread an
op (reference `unplaced`, docs/guides/enforce.md), then by the plan, with a logical CPU for each of the plan's devices.
`gain` is modelled: the plan against all on one GPU. Distances are the largest difference of two numbers of a loss or
variable over the largest magnitude in it. Seconds are of the clock, but for `CPU s`: what all processes of a row took.
`load` is the machine's at the end of the row.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from program_cases import BATCH, PROGRAMS, SAVED, SESSION, Training, saved_model, v1_graph

CLUSTER = "v100x2-nvlink"
Row = dict[str, Any]
COLUMNS = {
    "program": "---", "ops": "---:", "record s": "---:", "solve s": "---:", "first step s": "---:",
    "without a plan": "---:", "step s": "---:", "gain": "---:", "moved": "---:", "inversions": "---:",
    "from stock: losses": "---:", "variables": "---:", "from unplaced": "---:", "CPU s": "---:", "load": "---:",
}  # fmt: skip


def main() -> None:
    """Measure each program, or those that are asked for; print a table, or with --json an object for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", choices=PROGRAMS)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of search")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=("stock", "planned"), help=argparse.SUPPRESS)
    parser.add_argument("--stock", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part == "stock":
        kept(trained(PROGRAMS[asked.program[0]], asked.steps)[0], asked.stock)
        return
    if asked.part == "planned":
        print(json.dumps(planned(asked.program[0], asked.limit, asked.steps, asked.stock)))
        return
    if not asked.json:
        print(f"| {' | '.join(COLUMNS)} |\n|{'|'.join(COLUMNS.values())}|")
    load = [os.getloadavg()[0]]
    for name in asked.program or PROGRAMS:
        row = apart(name, asked) | {"load": os.getloadavg()[0]}
        load.append(row["load"])
        print(json.dumps(row) if asked.json else line(row), flush=True)
    if not asked.json:
        print(f"\nLoad between {min(load):.1f} and {max(load):.1f} on {os.cpu_count()} cores.")


def line(row: Row) -> str:
    """One row of the table; 0 says that no bit differs."""
    far = [f"{row[key]:.2g}" if row[key] else "0" for key in ("stock_losses", "stock_variables", "reference")]
    cells = [
        row["program"], str(row["ops"]), f"{row['record_s']:.1f}", f"{row['solve_s']:.1f}", f"{row['first_s']:.2f}",
        f"{row['unplaced_first_s']:.2f}", f"{row['step_s']:.3f}", f"{row['gain']:.1%}",
        str(row["moves"]), str(row["inversions"]), *far, f"{row['cpu_s']:.0f}", f"{row['load']:.1f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def apart(name: str, arguments: argparse.Namespace) -> Row:
    """A program's row, measured in processes of its own."""
    environment, began = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, of_children()
    with tempfile.TemporaryDirectory() as folder:
        how = (
            "--limit",
            str(arguments.limit),
            "--steps",
            str(arguments.steps),
            "--stock",
            str(Path(folder, "stock.npz")),
        )
        command = [sys.executable, __file__, "--program", name, *how, "--part"]
        if name == SAVED:  # `pesto run` takes both references in its own process
            environment["TF_ENABLE_ONEDNN_OPTS"] = "1"
        else:
            said([*command, "stock"], environment)
        row: Row = json.loads(said([*command, "planned"], environment).splitlines()[-1])
    return row | {"cpu_s": of_children() - began}


def of_children() -> float:
    """CPU seconds of the processes that this one has waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def said(command: list[str], environment: dict[str, str]) -> str:
    """What a process prints; where it fails, this process ends with the end of what it complained of."""
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[3]}: {done.stderr[-2000:]}")
    return done.stdout


def trained(start: Callable[[], Training], steps: int) -> tuple[Row, list[float]]:
    """What a program gives from its first day on; seconds of its first step and of each later one."""
    program = start()
    began = time.perf_counter()
    losses = program.train(1)
    first = time.perf_counter()
    losses += program.train(steps)
    end = time.perf_counter()
    return {"losses": losses, "values": program.values()}, [first - began, (end - first) / steps]


def planned(name: str, limit_s: float, steps: int, stock: Path) -> Row:
    """A program's row; what it gives as it comes is in the file `stock`."""
    from pesto.verbs import api

    api.logical_cpus(3)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    row: Row = {"program": name}
    if name == SAVED:
        return row | of_saved_model(limit_s, steps)
    start = PROGRAMS[name]
    graph = timed(row, "record_s", lambda: from_v1() if name == SESSION else recorded(start))
    plan = timed(row, "solve_s", lambda: api.solve(graph, cluster=CLUSTER, time_limit_s=limit_s))
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    unplaced, alone_s = trained(start, steps)
    with api.apply(plan, devices="cpu") as applied:
        result, seconds = trained(start, steps)
    losses, variables, furthest = apart_by(result, taken(stock))
    row |= priced(plan) | {"stock_losses": losses, "stock_variables": variables, "furthest": furthest}
    row |= {"ops": graph.ops, "first_s": seconds[0], "step_s": seconds[1]}
    row |= {"unplaced_first_s": alone_s[0], "unplaced_step_s": alone_s[1]}
    row |= {"reference": max(apart_by(result, unplaced)[:2]), "verified_ops": applied.ops}
    return row | {part: sum(len(getattr(f, part)) for f in applied.findings) for part in ("moves", "inversions")}


def kept(result: Row, file: Path) -> None:
    """Write what `trained` gives."""
    names = list(result["values"])
    arrays = {str(k): result["values"][name] for k, name in enumerate(names)}
    np.savez(file, losses=result["losses"], names=names, **arrays)


def taken(file: Path) -> Row:
    """What `kept` wrote."""
    with np.load(file, allow_pickle=False) as result:
        values = {str(name): result[str(k)] for k, name in enumerate(result["names"])}
        return {"losses": result["losses"].tolist(), "values": values}


def timed(row: Row, stage: str, act: Callable[[], Any]) -> Any:
    """What `act` gives; its seconds go into the row."""
    began = time.perf_counter()
    result = act()
    row[stage] = time.perf_counter() - began
    return result


def recorded(start: Callable[[], Training]) -> Any:
    """The graph of one step of the program, which is run."""
    from pesto.verbs import api

    with api.record(batch=BATCH) as result:
        start().train(1)
    return result.graph


def from_v1() -> Any:
    """The graph of the v1 program's step."""
    from pesto.tf.sources import sources

    return sources.from_v1(v1_graph(), ["loss", "train"])


def priced(plan: Any) -> Row:
    """What the plan saves against everything on one GPU, modelled; both in seconds, and what made the plan."""
    made = plan.provenance
    ratio = made.candidates_ticks[made.chosen] / made.candidates_ticks["single"]
    return {"gain": 1 - ratio, "plan_s": plan.makespan_s, "single_s": plan.makespan_s / ratio, "chosen": made.chosen}


def apart_by(one: Row, other: Row) -> tuple[float, float, str]:
    """The largest relative difference of a loss, and of a variable; which that is."""
    from pesto.tf.run.planned_run import relative_distance

    assert one["values"].keys() == other["values"].keys()
    losses = [relative_distance(np.array(a), np.array(b)) for a, b in zip(one["losses"], other["losses"], strict=True)]
    variables = {name: relative_distance(value, other["values"][name]) for name, value in one["values"].items()}
    furthest = max(variables, key=lambda name: variables[name])
    return max(losses), variables[furthest], furthest


def of_saved_model(limit_s: float, steps: int) -> Row:
    """The row of a SavedModel, by what `pesto solve` and `pesto run` do."""
    from pesto.core.source import Source
    from pesto.inputs.load import run_plan
    from pesto.tf.run.run_options import RunOptions
    from pesto.verbs import api

    row: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        saved_model(Path(folder))
        source = Source(saved_model=Path(folder), signature="train")
        graph = timed(row, "record_s", lambda: api.load_graph(saved_model=folder, signature="train"))
        plan = timed(row, "solve_s", lambda: api.solve(graph, cluster=CLUSTER, time_limit_s=limit_s))
        ran = run_plan(plan, source, RunOptions(steps=steps, devices="cpu"))
        stock = run_plan(plan, source, RunOptions(steps=steps, devices="cpu", reference="stock"))
    equal = ran.losses_equal and ran.variables_equal
    return row | priced(plan) | {
        "ops": graph.ops, "first_s": ran.inject_s + ran.verify_s + ran.step_s, "step_s": ran.step_s,
        "unplaced_first_s": ran.unplaced_step_s, "furthest": stock.furthest,
        "unplaced_step_s": ran.unplaced_step_s, "stock_losses": stock.losses_distance,
        "stock_variables": stock.variables_distance, "reference": 0.0 if equal else float("inf"),
        "moves": len(ran.moves), "inversions": len(ran.inversions), "verified_ops": ran.ops,
    }  # fmt: skip


if __name__ == "__main__":
    main()
