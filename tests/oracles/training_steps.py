"""Training steps made by hand: a random forward pass, its reverse-mode gradients and updates, and the truth of each."""

from typing import Any, NamedTuple

import numpy as np

SOURCE, FORWARD, BACKWARD, UPDATE, HELD = "input", "forward", "backward", "update", "held"


class Step(NamedTuple):
    """Ops as `small_graph` takes them, and what each is."""

    ops: list[dict[str, Any]]
    kind: dict[str, str]
    of: dict[str, int]
    """The forward op that a forward or backward op belongs to."""


def training_step(seed: int, layers: int = 6, *, momentum: bool = False, clipped: bool = False) -> Step:
    """A chain of ops with weights, with random skips; every gradient is its own op, sums of several are ops, too.

    momentum: each update is of two variables through an op between. clipped: gradients are scaled by a norm of all.
    """
    rng = np.random.default_rng(seed)
    step = Step([], {}, {})

    def add(name: str, kind: str, inputs: list[str], of: int = -1, **more: Any) -> str:
        step.ops.append({"name": name, "inputs": inputs, "s": 1e-5 * int(rng.integers(1, 6)), **more})
        step.kind[name], step.of[name] = kind, of
        return name

    reads = []
    for k in range(layers):
        size = 1000 + 8 * k
        add(f"w{k}", HELD, [], param=size, group=f"g{k}", launches=False)
        reads.append(add(f"r{k}", HELD, [f"w{k}"], bytes=size, group=f"g{k}", launches=False))
    made = [add("x", SOURCE, [], bytes=640)]
    inputs: list[list[int]] = []
    for k in range(layers):
        skips = {int(rng.integers(len(made)))} if rng.random() < 0.4 else set()
        taken = sorted({len(made) - 1} | skips)
        inputs.append(taken)
        made.append(
            add(f"f{k}", FORWARD, [made[at] for at in taken] + [reads[k]], k, bytes=int(rng.choice((640, 1280, 2560))))
        )
    add("loss", FORWARD, [made[-1]], layers, bytes=4)
    # Gradients arrive at each forward op from every reader of it.
    arriving: list[list[str]] = [[] for _ in made]
    arriving[-1].append(add("dloss", BACKWARD, [made[-1]], layers, bytes=640))
    gradients = [""] * layers
    for k in reversed(range(layers)):
        own = arriving[k + 1]
        arrived = own[0] if len(own) == 1 else add(f"sum{k}", BACKWARD, own, k, bytes=640)
        gradients[k] = add(f"dw{k}", BACKWARD, [arrived, made[inputs[k][-1]]], k, bytes=1000 + 8 * k)
        for at in inputs[k]:
            if at > 0:
                arriving[at].append(add(f"d{k}to{at}", BACKWARD, [arrived, reads[k]], k, bytes=640))
    if clipped:
        norm = add("norm", UPDATE, gradients, bytes=4)
        gradients = [add(f"c{k}", UPDATE, [g, norm], k, bytes=1000 + 8 * k) for k, g in enumerate(gradients)]
    for k in range(layers):
        if momentum:
            add(f"m{k}", HELD, [], param=1000 + 8 * k, group=f"m{k}", launches=False)
            step_of = add(f"s{k}", UPDATE, [gradients[k], f"m{k}"], k, bytes=1000 + 8 * k)
            add(f"um{k}", UPDATE, [f"m{k}", step_of], k, group=f"m{k}")
            gradients[k] = step_of
        add(f"u{k}", UPDATE, [f"w{k}", gradients[k]], k, group=f"g{k}")
    return step


def pipelined(graph: Any, cluster: Any, batches: int | None = None, **options: Any) -> Any:
    """A graph's pipeline on a cluster, with so many micro-batches and these options of `pesto pipeline`."""
    from pesto.verbs.pipeline_step import pipeline_step
    from pesto.verbs.requests import Context, PipelineRequest
    from pesto.verbs.verb_options import PipelineOptions

    asked = PipelineOptions(**options)
    request = PipelineRequest(source=graph, cluster=cluster, micro_batches=batches, options=asked)
    return pipeline_step(request, Context()).pipeline
