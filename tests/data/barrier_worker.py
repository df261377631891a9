"""What a Keras step by a plan sends between two logical CPUs; a script, as TensorFlow's devices are set once a process.

    python tests/data/barrier_worker.py [WIDTH]

Prints a JSON line with, for functions made of all their ops (`kept`) and of those that something needs (`gone`), the
bytes of the tensors that devices send each other, and what was verified; test_fit.py says what is right.
"""

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from pesto.verbs import api

api.logical_cpus(2)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_cases  # noqa: E402

from pesto.tf.enforce import functions  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402

WIDTH, BATCH, STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 8, 4, 3


def model() -> Any:
    """Dense layers with Adam, the same weights each time."""
    import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(WIDTH, "tanh") for _ in range(3)]
    made = keras.Sequential([keras.Input((WIDTH,)), *layers])
    made.compile("adam", "mse", jit_compile=False)
    return made


def losses(of: Any) -> list[float]:
    x = np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32)
    return [float(of.train_on_batch(x, x)) for _ in range(STEPS)]


def ran(plan: Any, graph: Any, plain: list[float]) -> dict[str, Any]:
    """A few steps by the plan."""
    seen: list[Any] = []
    verify = functions.verify_run
    with (
        mock.patch.object(functions, "verify_run", lambda parts, *rest: seen.append(parts) or verify(parts, *rest)),
        api.apply(plan, devices="cpu") as applied,
    ):
        equal = losses(model()) == plain
    nodes = [node for part in seen[0] for node in part.node]
    (found,) = applied.findings
    return {
        "barriers": sum(node.op == "IdentityN" for node in nodes), "bytes": sent(nodes, graph), "equal": equal,
        "moves": len(found.moves), "inversions": len(found.inversions),
    }  # fmt: skip


def sent(nodes: list[Any], graph: Any) -> int:
    """Bytes of the tensors of planned ops that are sent, also through relays."""
    first = dict(zip(reversed(graph.tensor_op.tolist()), reversed(range(len(graph.tensor_op))), strict=True))
    start = {name: first[op] for op, name in enumerate(graph.names) if op in first}
    through = {node.name: node.input[0] for node in nodes if "/pesto_send_" in node.name and node.op == "Identity"}
    total = 0
    for node in nodes:
        if node.op == "_Send":
            name, _, output = through.get(node.input[0], node.input[0]).partition(":")
            total += int(graph.tensor_bytes[start[name] + int(output or 0)]) if name in start else 0
    return total


def main() -> None:
    """Print the line."""
    plain, of = losses(model()), model()
    x = np.zeros((BATCH, WIDTH), np.float32)
    graph = sources.from_keras(of, BATCH, static=True, data=(x, x))
    plan = fit_cases.random_plan(graph, "cpux2", 0)
    with mock.patch.object(functions.FunctionEnforcement, "on_compile", lambda _, traced: traced.get_operations()):
        kept = ran(plan, graph, plain)
    print(json.dumps({"kept": kept, "gone": ran(plan, graph, plain)}))


if __name__ == "__main__":
    main()
