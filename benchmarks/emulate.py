"""Plans of small training steps in TensorFlow's executor on logical CPUs, against what was predicted: a table.

    python benchmarks/emulate.py --models rnnlm,nmt --gpus 2,4 --time-limit 10
    python benchmarks/emulate.py --wall        # also with functions that sleep: a quarter of a minute a row

An emulation sleeps predicted times: evidence about order, overlap and links, none about hardware or costs. `reached`
serves what is asked for at one instant as the executor happened to reach it, in place of the simulator's rule. Where
the wall clock is more than 5 % off, it runs again at four times the scale, and at 16: what goes by from function to
function, and the other course that a step takes then, must vanish as functions sleep longer. All runs are shown.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from on_gpus import CLUSTERS, cases, head, parser, row

from pesto.core.graph import FUNCTION, SESSION
from pesto.core.plans.execution_modes import GRAPHDEF
from pesto.core.source import Source
from pesto.inputs.load import planned_step
from pesto.tf.emulate.emulate_options import REACHED, WALL, EmulationOptions
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

if TYPE_CHECKING:
    from pesto.tf.emulate.clocks import EmulatedWork
    from pesto.tf.emulate.emulation import EmulatedRun

NEAR, SLOWER, RUNS = 0.05, 4.0, 3
WAYS = (SESSION, GRAPHDEF, FUNCTION)
HEAD = (
    "step", "GPUs", "as", "unchained", "not sent", "predicted ms", "nominal", "reached", "wall", "scale",
    "op / link inversions", "gain of the order",
)  # fmt: skip


def rows(source: Source, gpus: int, seconds: float, *, wall: bool) -> Iterator[tuple[object, ...]]:
    """The cells of one plan: in a session, as the GraphDef that `pesto apply` writes, and as a tf.function."""
    from pesto.tf.emulate import emulation
    from pesto.tf.emulate.enforced_graph import build_work, enforce_step

    graph, step = planned_step(source)
    plan = api.solve(graph, cluster=CLUSTERS[gpus], time_limit_s=seconds)
    whole = api.simulate(plan, graph)
    predicted = emulation.predict_step(plan, graph, whole.cluster, whole.run.timeline, whole.run.rank)
    for way in WAYS:
        ran = emulation.emulate(step, plan, predicted, EmulationOptions(way=way))
        work = build_work(enforce_step(step, plan, way=way, order=True), predicted)
        reached = emulation.run_work(work, ran.predicted_s, EmulationOptions(way=way, ties=REACHED)).step_s
        slept = slowed(work, ran.predicted_s, way) if wall else []
        apart = [f"{100 * (s / ran.predicted_s - 1):+.2f} %" for s in (ran.step_s, reached)]
        yield (
            f"{source.model} {source.variant}", gpus, way, f"{ran.unchained} of {ran.ops}",
            f"{ran.unsent} of {ran.unsent + ran.transfers}", f"{ran.predicted_s * 1e3:.3f}", *apart,
            ", ".join(f"{100 * (run.step_s / ran.predicted_s - 1):+.2f} %" for run in slept),
            ", ".join(f"{run.scale:.0f}" for run in slept),
            f"{len(ran.op_inversions)} / {len(ran.link_inversions)}", f"{100 * ran.gain:.1f} %",
        )  # fmt: skip


def slowed(work: "EmulatedWork", predicted_s: float, way: str) -> list["EmulatedRun"]:
    """Runs by the wall clock, each at SLOWER times the scale of the one before it, until one is at most NEAR off."""
    from pesto.tf.emulate import emulation

    runs = [emulation.run_work(work, predicted_s, EmulationOptions(way=way, clock=WALL))]
    while runs[-1].step_s > (1 + NEAR) * predicted_s and len(runs) < RUNS:
        scale = SLOWER * (runs[-1].scale or 1.0)
        runs.append(emulation.run_work(work, predicted_s, EmulationOptions(way=way, clock=WALL), scale))
    return runs


def main() -> None:
    """Print the table."""
    asked = parser(__doc__, models="rnnlm,nmt,transformer,wrn", gpus="2,4,8", seconds=10.0)
    asked.add_argument("--wall", action="store_true")
    given = asked.parse_args()
    load_tensorflow()
    print(head(HEAD))
    for model, gpus in cases(given):
        for cells in rows(Source(model=model, variant=given.variant), gpus, given.time_limit, wall=given.wall):
            print(row(cells), flush=True)


if __name__ == "__main__":
    main()
