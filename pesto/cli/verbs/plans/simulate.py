"""pesto simulate: predict the step time of a plan, also on another cluster."""

from pathlib import Path

import click

from pesto.choosing.whatif.rerun import LaunchedStep, Simulation, add_trust, evaluator_of
from pesto.cli.options import (
    Existing,
    cluster_option,
    costs_option,
    first_given,
    json_option,
    launch_option,
    refuse,
    source_options,
)
from pesto.cli.printed import check_outputs, to_json
from pesto.core.costs.analytical import LaunchCost
from pesto.core.errors import UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.plans.execution_modes import EXECUTION_MODES, PLACEMENT, ModePrediction
from pesto.core.plans.plan_file import read_placement
from pesto.core.quantities import duration, size
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_graph
from pesto.planning.solving.trust import DRAWS, ErrorModel
from pesto.reporting.show.facts import PLAN, enforced_keys, enforced_line, note_key, trust_keys, trust_table
from pesto.reporting.show.lines import fact
from pesto.verbs.artifacts import GivenStep, load_plan, simulate


@click.command("simulate")
@click.argument("plan", type=Existing(), required=False)
@source_options
@cluster_option(default=None)
@costs_option()
@click.option("--part", type=Existing(), help="The authors' part.json, in place of a plan.")
@click.option("--cdep", type=Existing(), help="The authors' cdep.json, with --part.")
@click.option("--per-edge", is_flag=True, help="With --part: one transfer an edge, as the paper counts them.")
@click.option(
    "--as",
    "way",
    type=click.Choice(EXECUTION_MODES),
    help="Also as TensorFlow runs PLAN this way, where not every op has a place in the order.",
)
@launch_option("Also with launches as ops of their own, each of TIME, or as the costs have them.")
@click.option(
    "--noise",
    type=float,
    help="Also where times are wrong: deviation of their logarithms, 0 to 2, such as 0.25.",
)
@click.option("--draws", type=int, help=f"With --noise: how many times errors are drawn.  [default: {DRAWS}]")
@click.option("--seed", type=int, default=0, show_default=True, help="With --noise: of the draws.")
@click.option(
    "--memory", type=click.Path(path_type=Path), help="Also write the bytes alive over the step here, as CSV."
)
@json_option()
def simulate_command(
    *,
    plan: Path | None,
    source: Source,
    cluster: str | None,
    costs: Path | None,
    part: Path | None,
    cdep: Path | None,
    per_edge: bool,
    way: str | None,
    launch: LaunchCost | None,
    noise: float | None,
    draws: int | None,
    seed: int,
    memory: Path | None,
    as_json: bool,
) -> None:
    """Predict the step time of PLAN, or of a placement in the authors' files.

    \b
    pesto simulate plan.json --cluster v100x2-pcie
    pesto simulate plan.json --memory bytes.csv
    pesto simulate plan.json --as session
    pesto simulate plan.json --launch 5us
    pesto simulate plan.json --noise 0.25 --draws 100
    pesto simulate --part part.json --cdep cdep.json --model nmt
    """
    # Options that lack one that they go with, or go with another.
    if (plan is None) == (part is None):
        raise UsageError.build("one placement is simulated", remedy="give either a PLAN or --part FILE [--cdep FILE]")
    if way is not None and plan is None:
        raise UsageError.build("--as is for a PLAN, whose order can be enforced", remedy="leave it out")
    if plan is not None:
        refuse("a PLAN says its own order and how transfers count", "cdep", "per_edge")
    if noise is None and (flag := first_given("draws", "seed")):
        raise UsageError.build(f"{flag} says how errors are drawn", remedy="give --noise as well, such as --noise 0.25")
    errors = None if noise is None else ErrorModel(noise=noise, draws=DRAWS if draws is None else draws, seed=seed)
    if memory is not None:
        check_outputs([memory], [file for file in (plan, part, cdep, source.file) if file], as_json=as_json)
    found = load_plan(plan, "simulate") if plan is not None else None
    if found is not None:
        _, run = simulate(found, GivenStep(source=source, cluster=cluster or None, costs=costs))
    else:  # the authors' part.json, and their cdep.json if there is one
        graph, machine = load_graph(source), load_cluster(cluster or "v100x2-nvlink")
        op_costs = load_costs(graph, machine, costs)
        bench = evaluator_of(graph, machine, op_costs, per_edge=per_edge)
        device, order = read_placement(Path(str(part)), cdep, graph, bench.problem, machine)
        placed = bench.placed("part", "", device) if order is None else bench.ordered("part", "", device, order)
        run = Simulation(cluster=machine, bench=bench, run=placed, costs_note=op_costs.said, costs=op_costs)
    run = add_trust(run, errors)
    if memory is not None:
        # device,seconds,bytes: from that time on the device holds so many; each device's rows in order of time.
        rows = ["device,seconds,bytes"]
        for name, (seconds, level) in run.bytes_alive().items():
            rows += [f"{name},{at:.9f},{size}" for at, size in zip(seconds.tolist(), level.tolist(), strict=True)]
        curves = ("\n".join(rows) + "\n").encode()
        write_atomic(memory, curves)
    if found is not None and found.placement_only:
        if way not in (None, PLACEMENT):
            raise UsageError.build(
                "the plan leaves the order to the framework", remedy=f"leave --as {way} out, or solve for an order"
            )
        way = PLACEMENT
    enforced = run.enforced(way) if way else None
    apart = run.launched(launch.each_s) if launch else None
    if not as_json:
        click.echo(_page(run, enforced, apart))
        return
    keys = {
        "kind": PLAN,
        "makespan_s": run.makespan_s,
        "busy_s": run.busy_s,
        "transfers": run.transfers,
        "sent_s": run.sent_s,
        "peak_bytes": run.peak_bytes,
        "fits": run.fits,
        **note_key(run.costs_note),
        **({"trust": trust_keys(run.trust)} if run.trust else {}),
        **enforced_keys(enforced),
    }
    if apart is not None:
        keys["launches"] = {
            "makespan_s": apart.makespan_s, "ops": apart.count, "busiest_s": apart.busiest_s, "times": apart.source,
        }  # fmt: skip
    click.echo(to_json(keys))


def _page(run: Simulation, enforced: ModePrediction | None, apart: LaunchedStep | None) -> str:
    """Return a page of a simulated step."""
    busy_s, peak_bytes = run.busy_s, run.peak_bytes
    head = [
        fact("step time", f"{duration(run.makespan_s)} predicted{'' if run.fits else ' (does not fit the memory)'}"),
        fact("transfers", f"{run.transfers} ({duration(run.sent_s)} in all)"),
    ]
    head += [enforced_line(enforced)] if enforced else []
    head += [fact("launches", f"{apart}")] if apart else []
    head += [fact("costs", run.costs_note)] if run.costs_note else []
    rows = [fact(d, f"busy {duration(busy_s[d])}, peak {size(peak_bytes[d])}") for d in busy_s]
    return "\n".join(head + rows + (trust_table(run.trust) if run.trust else []))
