"""What enforcing a plan costs: edits of a large graph, the chain for each op, and a large model run by its plan.

    python benchmarks/enforce.py [inject|chain|grappler|large] ... [--batch 4] [--steps 5]

inject: places and orders nmt 2x1024 (20 003 ops) on 3 logical CPUs stage by stage, without running it. chain: steps of
10 000 tiny ops with and without the chains on 1 and 2 logical devices, by turns in one process. grappler: the tiny
models with TensorFlow's optimizer on, off, and run before planning. large: profiles
rnnlm 2x2048 on this machine, solves it for 2 logical CPUs and runs it by the plan; on 2 cores that takes tens of
minutes and 12 GB. One JSON line for each measurement.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.errors import MismatchError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.inputs import load as inputs
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving import flow
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import grappler, models  # noqa: E402
from pesto.tf.apply_placement.placement import (  # noqa: E402
    StepPlacement,
    find_unchained_ops,
    place_trace,
    place_with_relays,
    trace_step,
)
from pesto.tf.apply_placement.targets import ApplyOptions, device_targets  # noqa: E402
from pesto.tf.enforce import context  # noqa: E402
from pesto.tf.enforce import sessions as steps  # noqa: E402
from pesto.tf.enforce.edits import apply_edits, compute_edits, write_edits  # noqa: E402
from pesto.tf.enforce.partitions import ExpectedPlacement, examine  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load
from pesto.tf.sources.sources import capture_v1  # noqa: E402

WIDTH, DEPTH = 100, 100
"""Of the graph of tiny ops: columns that do not depend on each other, ops in a row."""
ROUNDS, RUNS = 12, 10
"""How often variants take turns, and steps a turn."""


def main() -> None:
    """Run what is asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--batch", default="4", help="of rnnlm 2x2048")
    parser.add_argument("--steps", default="5", help="of rnnlm 2x2048, in each of its four runs")
    asked = parser.parse_args()
    parts = {"chain": chain, "inject": inject, "grappler": grappled, "large": lambda: large(asked.batch, asked.steps)}
    for name in asked.parts or parts:
        for row in parts[name]():
            print(json.dumps({"part": name, **row}), flush=True)


def inject() -> Iterator[dict[str, Any]]:
    """Seconds of each stage between a program's graph and its session under a plan."""
    step = models.build("nmt", "2x1024", 1)
    graph = sources.from_v1(step.graph, step.fetches)
    plan = _solved(graph, "v100x2-nvlink")
    took: dict[str, float] = {}
    with _timed(took, "capture"):
        captured = capture_v1(step.graph, plan.names, source="nmt")
    with _timed(took, "trace"):
        traced = trace_step(captured, None)
    with _timed(took, "lay"):
        wanted = device_targets(plan, "cpu")
        placement = place_with_relays(plan, traced, wanted, find_unchained_ops(step.graph, traced))
    with _timed(took, "edits"):
        changes = compute_edits(placement, traced, step.graph.as_graph_def().node)
    with _timed(took, "make"):
        undo = apply_edits(step.graph, changes)
    # The nodes by their planned devices, in place of TensorFlow's own partitions of a step that is not run here.
    parts = _split(step.graph.as_graph_def(), changes.device)
    with _timed(took, "examine"):
        result = examine(parts, ExpectedPlacement(placement=placement, loops=traced.loops))
    with _timed(took, "undo"):
        undo()
    yield {
        "ops": graph.ops, "devices": len(wanted), "chain_edges": len(placement.before), "seconds": took,
        "moves": len(result.moves), "inversions": len(result.inversions),
    }  # fmt: skip
    yield {"ops": graph.ops, "session_open_s": _open_s(step.graph), "with_plan_s": _open_placed_s(step.graph, plan)}


def _open_s(graph: Any) -> float:
    began = time.perf_counter()
    with v1.Session(graph=graph):
        return time.perf_counter() - began


def _open_placed_s(graph: Any, plan: Plan) -> float:
    took = 0.0
    with suppress(MismatchError), context.apply((plan,), ApplyOptions(devices="cpu")):
        took = _open_s(graph)
    return took  # the context's own complaint is that nothing ran, which here is so


def _split(graph_def: Any, device: dict[str, str]) -> list[Any]:
    parts: dict[str, Any] = {name: v1.GraphDef() for name in dict.fromkeys(device.values())}
    for node in graph_def.node:
        if node.name in device:
            parts[device[node.name]].node.append(node)
    return list(parts.values())


def chain() -> Iterator[dict[str, Any]]:
    """Microseconds that a chain adds for each of its edges: the difference of two medians, and of the least times.

    Both sessions take turns, as the machine's load changes. The chain also fixes the order in which a device visits its
    ops, which alone can make a step faster.
    """
    program = tf.Graph()
    with program.as_default():
        columns = [v1.placeholder_with_default(float(k), [], name=f"start_{k}") for k in range(WIDTH)]
        one = tf.constant(1.0)
        for _ in range(DEPTH):
            columns = [c + one for c in columns]
        fetch = tf.group(*columns, name="end")
    graph = sources.from_v1(program, [fetch])
    plan = _solved(graph, "cpux2")
    alone = replace(plan, schedule=replace(plan.schedule, device=np.zeros_like(plan.schedule.device)))
    for (devices, chosen), threads in itertools.product(((1, alone), (2, plan)), (1, 2)):
        free, ordered = (_opened(program, chosen, threads=threads, order=order) for order in (False, True))
        took = _by_turns([lambda: free[0].run("end"), lambda: ordered[0].run("end")])  # noqa: B023
        edges = len(ordered[1].before)
        yield {
            "ops": graph.ops, "devices": devices, "inter_op_threads": threads, "chain_edges": edges,
            **{
                f"{name}_{key}": value
                for name, choose in (("median", statistics.median), ("least", min))
                for key, value in _compared(choose(took[0]), choose(took[1]), edges).items()
            },
        }  # fmt: skip


def _opened(program: Any, plan: Plan, *, threads: int, order: bool) -> tuple[Any, StepPlacement]:
    """A stock session of the program with the plan's edits in it."""
    graph_def = program.as_graph_def(add_shapes=True)
    traced = trace_step(capture_v1(program, plan.names, source="tiny ops"), None)
    placement = place_trace(plan, traced.graph, device_targets(plan, "cpu"), order=order)
    write_edits(graph_def, compute_edits(placement, traced, graph_def.node))
    copy = tf.Graph()
    with copy.as_default():
        tf.import_graph_def(graph_def, name="")
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=threads)
    config.use_per_session_threads = True
    return v1.Session(graph=copy, config=steps.configure_session(config, device_targets(plan, "cpu"))), placement


def _compared(free_s: float, ordered_s: float, edges: int) -> dict[str, float]:
    added_us = (ordered_s - free_s) * 1e6
    return {"unordered_s": free_s, "ordered_s": ordered_s, "ratio": ordered_s / free_s, "us_per_edge": added_us / edges}


def _by_turns(variants: Sequence[Callable[[], Any]]) -> list[list[float]]:
    """Seconds of every run of each, over rounds in which every variant has a turn."""
    took: list[list[float]] = [[] for _ in variants]
    for round_ in range(ROUNDS + 1):
        for times, run in zip(took, variants, strict=True):
            for _ in range(RUNS):
                began = time.perf_counter()
                run()
                if round_:  # the first only warms up
                    times.append(time.perf_counter() - began)
    return took


def grappled() -> Iterator[dict[str, Any]]:
    """Step seconds with TensorFlow's optimizer, without it, and with `pesto optimize` in its place before planning."""
    for name in (family.name for family in models.FAMILIES):
        step = models.build(name, "tiny", None)
        stock = step.graph.as_graph_def(add_shapes=True)
        ready = grappler.optimize(stock, step.fetches, [step.init])
        feed = step.feed(np.random.default_rng(0))
        sessions = [_stock(stock, step, off=False), _stock(stock, step, off=True), _stock(ready, step, off=True)]
        took = _by_turns([lambda s=s: s.run(step.fetches, feed) for s in sessions])  # noqa: B023
        kinds = ("grappler_s", "without_s", "optimized_before_s")
        yield {
            "model": f"{name} tiny", "nodes": len(stock.node), "optimized_nodes": len(ready.node),
            **{kind: statistics.median(times) for kind, times in zip(kinds, took, strict=True)},
        }  # fmt: skip


def _stock(graph_def: Any, step: Any, *, off: bool) -> Any:
    copy = tf.Graph()
    with copy.as_default():
        tf.import_graph_def(graph_def, name="")
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    session = v1.Session(graph=copy, config=steps.configure_session(config, {}) if off else config)
    session.run(step.init)
    return session


def large(batch: str, run_steps: str) -> Iterator[dict[str, Any]]:
    """rnnlm 2x2048 from its profile to its run, as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        profile, plan = str(Path(folder, "profile.json")), str(Path(folder, "plan.json"))
        source = ("--model", "rnnlm", "--variant", "2x2048", "--batch", batch)
        yield _pesto("profile", *source, "--iterations", "4", "-o", profile)
        solved = _pesto(
            "solve", *source, "--cluster", "cpux2", "--costs", profile, "--time-limit", "60", "-q", "-o", plan
        )
        if solved["exit"]:
            yield solved
            return
        yield {key: solved[key] for key in ("ops", "candidates", "chosen", "makespan_s", "lower_bound_s", "costs")}
        yield _pesto("run", plan, *source, "--steps", run_steps)


def _pesto(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pesto", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return {**result, "exit": done.returncode, **({"error": done.stderr.strip()} if done.returncode else {})}


def _solved(graph: Graph, cluster: str) -> Plan:
    machine = load_cluster(cluster)
    costs = inputs.load_costs(graph, machine, None)
    return flow.solve(graph, machine, costs, Settings(time_limit_s=1), lambda _: None).plan


@contextmanager
def _timed(took: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took[name] = round(time.perf_counter() - began, 4)


if __name__ == "__main__":
    main()
