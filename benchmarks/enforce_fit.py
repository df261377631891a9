"""Keras programs by plans: is every run the run without a plan, bit for bit?

    nice python benchmarks/enforce_fit.py [--models mlp,cnn] [--ways fit,batches] [--plans 25] [--devices 2,3,4]

Each model trains without a plan, then by random valid plans and by a solved one, on logical CPUs. One JSON line for
each model and way of training: how many plans and steps, ops that moved, pairs out of order, and whether the losses of
all steps, all variables at the end, their devices inside and outside and the checkpoints are as they should be.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fit_cases import MODELS, WAYS, TrainingWay, made, random_plan

from pesto.core.plans.plan import Plan
from pesto.verbs import api


def variables(model: Any) -> list[Any]:
    """Weights, seeds, the optimizer's and the metrics' variables."""
    every = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return list({id(v): v for v in every}.values())


def values(model: Any) -> list[bytes]:
    """All of them, bit for bit."""
    return [v.numpy().tobytes() for v in variables(model)]


def where(model: Any) -> list[str]:
    """The device of each variable."""
    return [v.value.handle.device for v in variables(model)]


def checkpoint(model: Any) -> Any:
    """Everything that training changes: Keras' own tracking leaves the seeds of dropout out."""
    import tensorflow as tf

    seeds = [v.value for v in model.non_trainable_variables if "seed" in v.path]
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer, seeds=seeds)


@dataclass
class FitTally:
    """What one model and one way of training came to."""

    model: str
    way: str
    plans: int = 0
    steps: int = 0
    ops: int = 0
    variables: int = 0
    """Variables that a plan put on another device than they were created on."""
    moves: int = 0
    inversions: int = 0
    losses_equal: bool = True
    variables_equal: bool = True
    devices_right: bool = True
    checkpoints: int = 0
    checkpoints_equal: bool = True
    seconds: float = 0.0


@dataclass
class FitCase:
    """A model, a way to train it, and what comes of it without a plan."""

    name: str
    way: TrainingWay
    folder: Path
    tally: FitTally

    def reference(self) -> None:
        """Train without a plan; the third part is trained when everything else is undone."""
        model = made(self.name)
        train = self.way.train(model, None)
        self.losses = [train(0)]
        self.save(model, "unplaced")
        self.losses += [train(1)]
        self.values, self.home = values(model), where(model)
        self.losses += [train(2)]

    def save(self, model: Any, stem: str) -> None:
        """Write a checkpoint and a file of weights."""
        checkpoint(model).write(str(self.folder / stem))
        model.save_weights(self.folder / f"{stem}.weights.h5")

    def load(self, model: Any, stem: str) -> None:
        """Weights must be the same from both files."""
        checkpoint(model).read(str(self.folder / stem)).assert_existing_objects_matched()
        before = [w.numpy().tobytes() for w in model.weights]
        model.load_weights(self.folder / f"{stem}.weights.h5")
        self.tally.checkpoints_equal &= before == [w.numpy().tobytes() for w in model.weights]

    def run(self, plan: Plan, *, thorough: bool) -> None:
        """Train by a plan, and hold everything against the run without it."""
        tally, model = self.tally, made(self.name)
        with contextlib.nullcontext() if self.way.placed else api.apply(plan, devices="cpu") as applied:
            train = self.way.train(model, plan)
            losses = [train(0)]
            self.save(model, "placed")
            losses += [train(1)]
            tally.losses_equal &= losses == self.losses[:2]
            tally.variables_equal &= values(model) == self.values
            self.count(applied or train.applied, model)
            if thorough:
                self.load(model, "unplaced")
                tally.checkpoints_equal &= train(1) == self.losses[1] and values(model) == self.values
                self.count(applied or train.applied, model)
        if not self.way.placed:
            tally.devices_right &= where(model) == self.home
        if thorough:
            tally.losses_equal &= self.way.train(model, None)(2) == self.losses[2]
            self.elsewhere()
        tally.plans += 1
        tally.steps += sum(map(len, losses))

    def count(self, applied: Any, model: Any) -> None:
        """Moves, inversions, and whether every variable of the plan is where the plan has it."""
        tally = self.tally
        tally.ops = max(tally.ops, *(f.ops for f in applied.findings))
        tally.moves += sum(len(f.moves) for f in applied.findings)
        tally.inversions += sum(len(f.inversions) for f in applied.findings)
        held = {id(v.value.handle): v.value for v in variables(model)}
        result = 0
        for graph, expected, _ in applied.functions.placed.values():
            index = {name: i for i, name in enumerate(expected.placement.graph.names)}
            for outer, inner in graph.captures:
                if id(outer) in held and inner.op.name in index:
                    target = expected.placement.device_of(index[inner.op.name])
                    tally.devices_right &= held[id(outer)].handle.device.endswith(target)
                    tally.variables += target != "/device:CPU:0"
                    result += 1
        tally.devices_right &= result >= len(model.trainable_variables) + len(model.optimizer.variables) - 1

    def elsewhere(self) -> None:
        """What was saved under the plan goes on without it, in a new model."""
        model = made(self.name)
        train = self.way.train(model, None)
        model.optimizer.build(model.trainable_variables)
        self.load(model, "placed")
        self.tally.checkpoints_equal &= train(1) == self.losses[1] and values(model) == self.values
        self.tally.checkpoints += 1


def main(argv: list[str]) -> None:
    """Run the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--plans", type=int, default=25)
    parser.add_argument("--devices", default="2,3,4")
    parser.add_argument(
        "--quick", action="store_true", help="random plans only, checkpoints of the first model's fit only"
    )
    given = parser.parse_args(argv)
    counts = [int(n) for n in given.devices.split(",")]
    api.logical_cpus(max(counts))
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    names = given.models.split(",")
    for way in given.ways.split(","):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                case = FitCase(name, WAYS[way], Path(folder), FitTally(name, way))
                begun = time.perf_counter()
                matrix(
                    case,
                    counts,
                    given.plans,
                    quick=given.quick,
                    thorough=not given.quick or (name, way) == (names[0], "fit"),
                )
                case.tally.seconds = round(time.perf_counter() - begun, 1)
                print(json.dumps(asdict(case.tally)), flush=True)


def matrix(case: FitCase, counts: list[int], plans: int, *, quick: bool, thorough: bool) -> None:
    """One case by a solved plan and random ones on each number of devices; the last of these checks everything."""
    graph = case.way.graph(case.name)
    case.reference()
    for devices in counts:
        cluster = f"cpux{devices}"
        solved = None if quick else api.solve(graph, cluster=cluster, time_limit_s=1)
        if solved is not None:
            case.run(solved, thorough=True)
        for k in range(plans):
            case.run(random_plan(graph, cluster, [devices, k], solved), thorough=thorough and k == plans - 1)


if __name__ == "__main__":
    main(sys.argv[1:])
