"""Trains v1 programs unplaced and by many plans, and compares every loss, variable and checkpoint bit for bit.

    python benchmarks/enforce_sessions.py [--plans 10] [--steps 2] [case ...]

One JSON line for each case and cluster: how many plans ran (random valid ones and one solved) on how many logical CPUs,
how many steps they trained, how many of their runs were verified, what that found, and what was equal. Each plan trains
from the start, then goes on from the unplaced run's checkpoint; an unplaced run goes on from the plan's. Every fifth
plan is traced too.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.errors import VerificationError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.simulator import simulate
from pesto.inputs import load as inputs
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import formulate
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api
from solvers.instances.random import random_order
from solvers.problem import Problem

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import models  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

CLUSTERS = {"cpux2": None, "cpux3": None, "cpux4": None, "v100x2-nvlink": "cpu", "v100x4": "cpu"}
"""Presets and how their devices map to logical CPUs; the last are hosts with GPUs."""
MODELS = ("rnnlm", "nmt", "transformer", "nasnet")
PROGRAMS = ("mlp resource", "mlp reference", "lstm resource", "lstm reference")

Trained = tuple[list[bytes], dict[str, bytes]]
"""Bytes of the loss of every step, and of every variable at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCase:
    """A program that trains."""

    name: str
    step: Callable[[], tuple[Any, list[str]]]
    """Its tf.Graph and what a step fetches: what is planned."""
    train: Callable[[Path | None, Path, int, int], Trained]
    """Go on from a folder's checkpoint, or from the start; leave one in another folder; first and last step."""


def main() -> None:
    """Run the cases that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join((*MODELS, *PROGRAMS))}")
    parser.add_argument("--plans", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2)
    asked = parser.parse_args()
    for name in asked.cases or (*MODELS, *PROGRAMS):
        for cluster in CLUSTERS:
            print(json.dumps(compared(case(name), cluster, asked.plans, asked.steps)), flush=True)


def case(name: str) -> SessionCase:
    """A built-in model's `tiny` variant in a plain session, or a program with a MonitoredTrainingSession."""
    if name in MODELS:
        return _model(name)
    kind, _, variables = name.partition(" ")
    build = partial(program, kind, resource=variables == "resource")
    return SessionCase(name=name, step=partial(_planned, build), train=partial(_monitored, build))


def compared(
    one: SessionCase, cluster: str, plans: int, steps: int, *, every: int = 5, limit_s: float = 2
) -> dict[str, Any]:
    """Train unplaced, by `plans` random plans and by a solved one; what was equal. Every `every`-th is traced."""
    began = time.perf_counter()
    graph, fetches = one.step()
    planned = sources.from_v1(graph, fetches)
    made = list(_plans(planned, cluster, plans, limit_s))
    result: dict[str, Any] = {
        "case": one.name,
        "cluster": cluster,
        "plans": len(made),
        "devices": 0,
        "ops": planned.ops,
    }
    result |= {"steps": 0, "verified_runs": 0, "traced_plans": 0, "moves": 0, "inversions": 0}
    result |= {"losses_equal": True, "variables_equal": True, "checkpoints_equal": True}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = one.train(None, folder / "unplaced", 0, steps)
        wanted = first, one.train(folder / "unplaced", folder / "unplaced2", steps, 2 * steps)
        for k, plan in enumerate(made):
            result["devices"] = max(result["devices"], len(set(plan.device_names())))
            result["traced_plans"] += k % every == 0
            try:
                how = {"devices": CLUSTERS[cluster], "trace": k % every == 0}
                _by_plan(one, partial(api.apply, plan, **how), wanted, (folder, steps), result)
            except VerificationError as error:
                result |= {"moves": result["moves"] + 1, "error": str(error)}
    return result | {"seconds": round(time.perf_counter() - began, 1)}


def _by_plan(
    one: SessionCase,
    apply: Callable[[], Any],
    wanted: tuple[Trained, Trained],
    where: tuple[Path, int],
    result: dict[str, Any],
) -> None:
    folder, steps = where
    placed, resumed, back = (folder / name for name in ("placed", "resumed", "back"))
    with apply() as applied:
        first = one.train(None, placed, 0, steps)
        second = one.train(folder / "unplaced", resumed, steps, 2 * steps)
    third = one.train(placed, back, steps, 2 * steps)
    result["steps"] += 2 * steps
    result["verified_runs"] += len(applied.findings)
    result["moves"] += sum(len(f.moves) for f in applied.findings)
    result["inversions"] += sum(len(f.inversions) for f in applied.findings)
    result["losses_equal"] &= (first[0], second[0]) == (wanted[0][0], wanted[1][0])
    result["variables_equal"] &= (first[1], second[1]) == (wanted[0][1], wanted[1][1])
    result["checkpoints_equal"] &= third == wanted[1] and _saved(placed) == _saved(folder / "unplaced")
    for used in (placed, resumed, back):
        shutil.rmtree(used)


def _saved(folder: Path) -> dict[str, bytes]:
    """Every tensor of a folder's last checkpoint."""
    reader = tf.train.load_checkpoint(str(folder))
    return {name: np.asarray(reader.get_tensor(name)).tobytes() for name in reader.get_variable_to_shape_map()}


def _plans(graph: Graph, cluster: str, count: int, limit_s: float) -> Iterator[Plan]:
    """One solved plan, and `count` random ones on the same devices."""
    solved = api.solve(graph, cluster=cluster, time_limit_s=limit_s)
    machine = load_cluster(cluster)
    problem = formulate(graph, inputs.load_costs(graph, machine, None), machine, Settings())
    yield solved
    for seed in range(count):
        yield random_plan(solved, problem, np.random.default_rng(seed))


def random_plan(plan: Plan, problem: Problem, rng: np.random.Generator) -> Plan:
    """`plan` with a random allowed device for each op (a location for each group) and a random topological order."""
    device = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed])
    for group in range(int(problem.group.max(initial=-1)) + 1):
        members = np.flatnonzero(problem.group == group)
        common = problem.allowed[members].all(axis=0)
        device[members] = rng.choice(np.flatnonzero(common))
    rank = random_order(problem, rng)
    return replace(plan, rank=rank, schedule=simulate(problem, device, rank).schedule)


def config() -> Any:
    """One thread an op and no optimiser, so that unplaced runs compute what placed ones do."""
    made = v1.ConfigProto(intra_op_parallelism_threads=1)
    made.graph_options.rewrite_options.disable_meta_optimizer = True
    made.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return made


def _bytes(values: dict[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in values.items()}


def _model(name: str) -> SessionCase:
    step = models.build(name, "tiny")
    with step.graph.as_default():
        variables = {v.op.name: v for v in v1.global_variables()}
        saver = v1.train.Saver(variables)

    def train(start: Path | None, end: Path, first: int, last: int) -> Trained:
        losses = []
        with v1.Session(graph=step.graph, config=config()) as session:
            session.run(step.init)
            if start is not None:
                saver.restore(session, str(start / "model"))
            for k in range(first, last):
                loss, *_ = session.run([step.loss, *step.fetches], step.feed(np.random.default_rng(k)))
                losses.append(loss.tobytes())
            end.mkdir()
            saver.save(session, str(end / "model"))
            return losses, _bytes(session.run(variables))

    return SessionCase(name=name, step=lambda: (step.graph, [step.loss, *step.fetches]), train=train)


def program(kind: str, *, resource: bool) -> Any:
    """A tf.Graph with a small network, its loss, its training op and its summaries under fixed names."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope(v1.get_variable_scope(), use_resource=resource):
        v1.set_random_seed(7)
        number = v1.train.get_or_create_global_step()
        x = v1.placeholder(tf.float32, [4, 6], name="x")
        y = v1.placeholder(tf.float32, [4, 1], name="y")
        hidden = _perceptron(x) if kind == "mlp" else _lstm(x)
        out = tf.nn.dropout(hidden, rate=0.1, seed=3) @ v1.get_variable("out", [5, 1])
        loss = tf.reduce_mean(tf.square(out - y), name="loss")
        v1.summary.scalar("loss", loss)
        v1.summary.histogram("hidden", hidden)
        optimizer = v1.train.AdamOptimizer(0.01) if kind == "mlp" else v1.train.GradientDescentOptimizer(0.1)
        optimizer.minimize(loss, global_step=number, name="train")
    return graph


def _perceptron(x: Any) -> Any:
    y = tf.tanh(x @ v1.get_variable("w1", [6, 7]) + v1.get_variable("b1", [7]))
    return tf.tanh(y @ v1.get_variable("w2", [7, 5]))


def _lstm(x: Any) -> Any:
    """Three steps over two inputs each, unrolled; five units."""
    w, b = v1.get_variable("w", [7, 20]), v1.get_variable("b", [20])
    state, cell = tf.zeros([4, 5]), tf.zeros([4, 5])
    for part in tf.split(x, 3, axis=1):
        i, j, f, o = tf.split(tf.concat([part, state], 1) @ w + b, 4, axis=1)
        cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(j)
        state = tf.sigmoid(o) * tf.tanh(cell)
    return state


def _planned(build: Callable[[], Any]) -> tuple[Any, list[str]]:
    return build(), ["loss:0", "train"]


def _monitored(build: Callable[[], Any], start: Path | None, end: Path, first: int, last: int) -> Trained:
    """Train as a v1 program does, with hooks that checkpoint, report, log and stop."""
    if start is not None:
        shutil.copytree(start, end)
    losses, k, train = [], first, v1.train
    with build().as_default():
        hooks = [
            train.StopAtStepHook(last_step=last),
            # Its state file must not name its folder, which moves.
            train.CheckpointSaverHook(str(end), save_steps=2, saver=train.Saver(save_relative_paths=True)),
            train.SummarySaverHook(save_steps=2, output_dir=str(end / "events"), summary_op=v1.summary.merge_all()),
            train.LoggingTensorHook({"loss": "loss:0"}, every_n_iter=2),
        ]
        how: dict[str, Any] = dict.fromkeys(("save_checkpoint_secs", "save_summaries_steps", "save_summaries_secs"))
        with train.MonitoredTrainingSession(checkpoint_dir=str(end), hooks=hooks, config=config(), **how) as session:
            while not session.should_stop():
                rng = np.random.default_rng(k)
                feed = {"x:0": rng.random((4, 6), np.float32), "y:0": rng.random((4, 1), np.float32)}
                losses.append(session.run(["loss:0", "train"], feed)[0].tobytes())
                k += 1
    assert k == last and list((end / "events").iterdir())
    v1.summary.FileWriterCache.clear()
    return losses, _saved(end)


if __name__ == "__main__":
    main()
