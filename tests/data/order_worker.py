"""Does TensorFlow run what it was given, in the order of the chains? A script, as devices are set once a process.

Hundreds of tiny ops, among them twins, constants and what can be folded, run by a random plan, with clocks in between:
TensorFlow optimises the graph of each device once more after it was split. Prints one JSON line for each way to run.
"""

import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pesto.verbs import api

api.logical_cpus(2)

import sys  # noqa: E402  # after the quiet load

import tensorflow as tf  # noqa: E402
from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_cases  # noqa: E402

from pesto.tf.sources import sources  # noqa: E402

RUNS = 10
UNTRACED = ("Const", "Identity", "NoOp", "Placeholder", "VarHandleOp")
"""What the executor does by itself, without a kernel that a trace would show."""
v1 = tf.compat.v1


def tangle(x: Any) -> tuple[list[Any], Any]:
    """(clocks, one number) of ops that the optimiser of each device would fold, merge or drop."""
    rng = np.random.default_rng(5)
    values, clocks = [x, *(tf.constant(float(k % 5)) for k in range(60))], []
    for kind in rng.integers(6, size=400).tolist():
        a, b = (values[int(rng.integers(len(values)))] for _ in range(2))
        if kind == 0:
            clocks.append(tf.raw_ops.Timestamp())
        else:
            made = [
                tf.add(values[1], values[2]),
                tf.multiply(a, b),
                tf.identity(a),
                tf.tanh(x),
                tf.size(tf.fill([3], a)),
            ]
            values.append(tf.cast(made[kind - 1], tf.float32))
    return clocks, tf.add_n(values)


def traced(run: Callable[[], Any]) -> dict[str, list[int]]:
    """When each op began, in ps, by "name:type"; one entry for each time that it ran."""
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options)
        run()
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace.FromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    found: dict[str, list[int]] = {}
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                found.setdefault(name, []).append(line.timestamp_ns * 1000 + event.offset_ps)
    return found


def neighbours(placement: Any, begun: dict[str, float]) -> tuple[int, int]:
    """(pairs of neighbours on a device in the plan's order, those that began the wrong way round)."""
    names, pairs, wrong = placement.graph.names, 0, 0
    for device in set(placement.device.tolist()):
        here = (placement.device == device) & (placement.chained | ~placement.chained.any())  # without order: all
        member = [i for i in np.argsort(placement.rank) if here[i] and names[i] in begun]
        times = [begun[names[i]] for i in member]
        pairs += len(times) - 1
        wrong += sum(bool(b < a) for a, b in itertools.pairwise(times))
    return pairs, wrong


def report(how: str, placement: Any, run: Callable[[], Sequence[float]], names: Sequence[str]) -> None:
    """What the clocks said over many runs, and what a trace of one run shows; `names` are those of the clocks."""
    said = [neighbours(placement, dict(zip(names, run(), strict=True))) for _ in range(RUNS)]
    graph, events = placement.graph, traced(run)
    kinds = {name: graph.types[k] for name, k in zip(graph.names, graph.type_of, strict=True)}
    shown = {name: events.get(f"{name}:{kind}", []) for name, kind in kinds.items() if kind not in UNTRACED}
    pairs, wrong = neighbours(placement, {name: times[0] for name, times in shown.items() if times})
    result = {
        "how": how,
        "clocks": {"pairs": sum(p for p, _ in said), "wrong": sum(w for _, w in said)},
        "trace": {"pairs": pairs, "wrong": wrong},
        "ops": len(shown),
        "dropped": sum(not times for times in shown.values()),
        "again": sum(len(times) > 1 for times in shown.values()),
    }
    print(json.dumps(result), flush=True)


def functions(order: bool) -> None:
    """A tf.function."""
    weight = tf.Variable(1.0)

    def step(x: Any) -> Any:
        clocks, total = tangle(x)
        weight.assign_add(total * 1e-9 + weight)
        return clocks

    specs = [tf.TensorSpec([], tf.float32)]
    plan = fit_cases.random_plan(sources.from_function(tf.function(step), *specs), "cpux2", 0)
    one = tf.function(step, input_signature=specs)
    x = tf.constant(1.5)
    with api.apply(plan, devices="cpu", order=order) as found:
        one(x)
        ((graph, expected, _),) = found.functions.placed.values()
        names = [t.op.inputs[0].op.name for t in graph.outputs]
        report(f"function, order={order}", expected.placement, lambda: [float(t) for t in one(x)], names)


def sessions(order: bool) -> None:
    """A v1 session."""
    with tf.Graph().as_default() as graph:
        x, weight = v1.placeholder(tf.float32, []), v1.get_variable("w", [], use_resource=True)
        clocks, total = tangle(x)
        step = weight.assign_add(total * 1e-9 + weight, read_value=False)
        init = v1.global_variables_initializer()
    plan = fit_cases.random_plan(sources.from_v1(graph, [step, *clocks]), "cpux2", 0)
    with api.apply(plan, devices="cpu", order=order) as found, v1.Session(graph=graph) as session:
        session.run(init)
        session.run([step, clocks], {x: 1.5})
        ((placed,),) = found.sessions.placed.values()
        placement, names = placed.expected.placement, [c.op.name for c in clocks]
        report(f"session, order={order}", placement, lambda: session.run([step, clocks], {x: 1.5})[1], names)


if __name__ == "__main__":
    for run in (functions, sessions):
        for order in (True, False):
            run(order)
